//! The limits of a workflow: when its endpoint is left alone, how fast it is asked, how many dead letters are too many.

use std::time::Duration;

use super::check::Report;
use super::raw_workflow::RawWorkflow;

/// After so many failures in a row the endpoint is left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitBreaker {
    pub failures: u32,
    pub open_for: Duration,
}

/// Requests to the endpoint, of all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub per_second: u64,
    /// How many at once after an idle time.
    pub burst: u64,
}

/// More refused or exhausted events than this suspend the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterLimit {
    pub count: u64,
    pub per: Duration,
}

pub fn circuit(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> CircuitBreaker {
    let given = raw.delivery.circuit_breaker.as_ref();
    let failures = given.and_then(|breaker| breaker.failures).unwrap_or(20);
    let open_for = given.and_then(|breaker| breaker.open_for).map_or(Duration::from_secs(30), |span| span.0);
    for (is_zero, key) in [(failures == 0, "failures"), (open_for.is_zero(), "openFor")] {
        if is_zero {
            let pointer = format!("{here}/delivery/circuitBreaker/{key}");
            report.problem(&pointer, "the circuit would always be open, or never", "more than 0");
        }
    }
    CircuitBreaker { failures, open_for }
}

pub fn rate(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<RateLimit> {
    let given = &raw.delivery.rate_limit;
    for (value, key) in [(given.per_second, "perSecond"), (given.burst, "burst")] {
        if value == Some(0) {
            let pointer = format!("{here}/delivery/rateLimit/{key}");
            report.problem(&pointer, "nothing could ever be delivered", "more than 0");
        }
    }
    if given.per_second.is_none() && given.burst.is_some() {
        let pointer = format!("{here}/delivery/rateLimit");
        report.problem(&pointer, "a burst of what rate?", "perSecond, and burst if it is another");
    }
    let per_second = given.per_second?;
    Some(RateLimit { per_second, burst: given.burst.unwrap_or(per_second) })
}

pub fn dead_letters(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> DeadLetterLimit {
    let given = raw.delivery.dead_letter_limit.as_ref();
    let count = given.and_then(|limit| limit.count).unwrap_or(1_000);
    let per = given.and_then(|limit| limit.per).map_or(Duration::from_secs(600), |span| span.0);
    if per.is_zero() {
        let pointer = format!("{here}/delivery/deadLetterLimit/per");
        report.problem(&pointer, "the limit could never be reached", "more than 0s");
    }
    DeadLetterLimit { count: count.min(1_000_000), per }
}
