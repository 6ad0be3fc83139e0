//! What a workflow may do at most, as it is configured.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Delivery;

/// For all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Requests under way at once.
    pub concurrency: u64,
    /// Null: as many requests as there can be.
    pub rate_limit: Option<RateLimit>,
    pub dead_letter_limit: DeadLetterLimit,
    /// Undelivered events above which reading pauses.
    pub max_waiting: u64,
    /// Bytes of their bodies above which it does.
    pub max_waiting_bytes: u64,
}

/// Requests in a second, and at once after an idle time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    pub per_second: u64,
    pub burst: u64,
}

/// More refused or exhausted events than these in that time suspend the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterLimit {
    pub count: u64,
    pub per_seconds: f64,
}

impl Limits {
    pub fn of(delivery: &Delivery) -> Self {
        let crate::config::DeadLetterLimit { count, per } = delivery.dead_letter_limit;
        Self {
            concurrency: delivery.concurrency as u64,
            rate_limit: delivery.rate.map(|rate| RateLimit { per_second: rate.per_second, burst: rate.burst }),
            dead_letter_limit: DeadLetterLimit { count, per_seconds: per.as_secs_f64() },
            max_waiting: delivery.max_waiting,
            max_waiting_bytes: delivery.max_waiting_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample::loaded;

    #[test]
    fn limits_are_those_of_the_configuration_and_the_defaults_where_it_names_none() {
        let limits = |more: &str| Limits::of(&loaded(more).config.workflows[0].delivery);
        let defaults = limits("");
        assert_eq!((defaults.concurrency, defaults.rate_limit), (64, None));
        assert_eq!(defaults.dead_letter_limit, DeadLetterLimit { count: 1_000, per_seconds: 600.0 });
        assert_eq!((defaults.max_waiting, defaults.max_waiting_bytes), (1_000_000, 4 << 30));
        let own = limits("    delivery: {concurrency: 3, rateLimit: {perSecond: 5}, maxWaiting: 7}\n");
        assert_eq!((own.concurrency, own.max_waiting), (3, 7));
        assert_eq!(own.rate_limit, Some(RateLimit { per_second: 5, burst: 5 }));
    }
}
