//! The keys below `delivery`: what is promised, how keys are made, when and how fast attempts are made.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::raw_workflow::{
    Envelope, Guarantee, HashAlgorithm, Mechanism, OnInDoubt, OnKeyFailure, Ordering, UniqueConflict, UniqueDimension,
    UniqueState,
};
use super::scalar::{AttemptLimit, MaybeSpan, Size, Span};

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawDelivery {
    /// What is promised; default idempotent-keys.
    pub guarantee: Option<Guarantee>,
    /// How; default: the guarantee's first one.
    pub mechanism: Option<Mechanism>,
    /// The body's form; default keyed.
    pub envelope: Option<Envelope>,
    /// How keys are made and sent.
    pub idempotency_key: RawIdempotencyKey,
    /// Suppresses changes that the source repeats; needs transactional-outbox.
    pub deduplication: Option<RawDeduplication>,
    /// The Open Job Spec UniquePolicy; needs transactional-outbox.
    pub unique: Option<RawUnique>,
    /// When a failed attempt is tried again.
    pub retries: RawRetries,
    /// What to do when an attempt's outcome is unknown; default redeliver.
    pub on_in_doubt: Option<OnInDoubt>,
    /// Default none.
    pub ordering: Option<Ordering>,
    /// jq; empty: the Kafka key's bytes.
    pub ordering_key: Option<String>,
    /// What a key's later events do when one is dead-lettered; default block.
    pub on_key_failure: Option<OnKeyFailure>,
    /// Requests in flight to this endpoint, all processes together; default 64. Too high melts the endpoint.
    #[schemars(range(min = 1, max = 10_000))]
    pub concurrency: Option<u32>,
    /// Requests per second, all processes together.
    pub rate_limit: RawRateLimit,
    /// When an endpoint that only fails is left alone.
    pub circuit_breaker: Option<RawCircuitBreaker>,
    /// More refused or exhausted events than this suspend the workflow.
    pub dead_letter_limit: Option<RawDeadLetterLimit>,
    /// How long a claim lasts; empty: timeout + 30s; must exceed the timeout.
    pub lease: Option<MaybeSpan>,
    /// Deliver this long after the record's timestamp; default 0s.
    pub delay: Option<Span>,
    /// Undelivered events above which the consumer pauses and events over HTTP are answered 503; below 80% both go on; default 1000000.
    #[schemars(range(min = 1))]
    pub max_waiting: Option<u64>,
    /// The same for their bytes; default 4GiB.
    pub max_waiting_bytes: Option<Size>,
    /// For people: shown by explain.
    pub documentation: Option<Value>,
    /// For people: shown by explain.
    pub client_guidance: Option<Value>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawIdempotencyKey {
    /// Which fields make the key; default {database}:{table}:{primaryKey}:{changeVersion} for debezium, else the Kafka
    /// coordinates.
    pub format: Option<String>,
    /// Only SHA256.
    pub hash_algorithm: Option<HashAlgorithm>,
    /// Empty: the workflow id.
    pub namespace: Option<String>,
    /// The header that carries the key; default Idempotency-Key.
    pub header: Option<String>,
    /// As a structured-field string, in quotes; default true.
    pub quoted: Option<bool>,
    /// Also in the keyed envelope; default true.
    pub included_in_payload: Option<bool>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawDeduplication {
    /// The change version is always added.
    pub key_fields: Vec<String>,
    /// How long a key is remembered.
    pub ttl: Span,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawUnique {
    /// What is compared: type is always in; default [type].
    pub keys: Option<Vec<UniqueDimension>>,
    /// Only these names at the top of the data; default: all of the data.
    pub args_keys: Option<Vec<String>>,
    /// The same as args_keys.
    #[serde(rename = "argsKeys")]
    pub args_keys_camel: Option<Vec<String>>,
    /// These headers; needed with meta.
    pub meta_keys: Option<Vec<String>>,
    /// The same as meta_keys.
    #[serde(rename = "metaKeys")]
    pub meta_keys_camel: Option<Vec<String>>,
    /// An ISO 8601 duration from the making of the event that is there; default: no end.
    pub period: Option<String>,
    /// In which an event is in the way; default [available, active, scheduled, retryable, pending].
    pub states: Option<Vec<UniqueState>>,
    /// What becomes of the later event; default reject.
    pub on_conflict: Option<UniqueConflict>,
    /// The same as on_conflict.
    #[serde(rename = "onConflict")]
    pub on_conflict_camel: Option<UniqueConflict>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawRetries {
    /// Default true; false dead-letters after the first failed attempt.
    pub enabled: Option<bool>,
    /// Default unlimited.
    pub max_attempts: Option<AttemptLimit>,
    /// {initial, multiplier, max}, or a list whose last entry repeats; default 1s, 2, 10m.
    pub backoff: Option<RawBackoff>,
    /// The same list in milliseconds.
    pub backoff_ms: Option<Vec<u64>>,
    /// The share of a delay that is random, 0 to 1; default 0.2.
    #[schemars(range(min = 0, max = 1))]
    pub jitter: Option<f64>,
    /// From the event's first attempt; default 24h.
    pub give_up_after: Option<Span>,
    /// The longest Retry-After that is honoured; default 1h.
    pub max_retry_after: Option<Span>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "{initial, multiplier, max}, or a list of durations such as [1s, 2s, 5s]")]
pub enum RawBackoff {
    Listed(Vec<Span>),
    Growing(RawGrowing),
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawGrowing {
    /// Before the second attempt; default 1s.
    pub initial: Option<Span>,
    /// Each delay is so many times the one before; default 2.
    pub multiplier: Option<f64>,
    /// The longest delay; default 10m.
    pub max: Option<Span>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawRateLimit {
    /// Requests in a second; default: no limit.
    #[schemars(range(min = 1))]
    pub per_second: Option<u64>,
    /// How many at once after an idle time; default: as many as perSecond.
    #[schemars(range(min = 1))]
    pub burst: Option<u64>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCircuitBreaker {
    /// After so many in a row nothing is sent; default 20.
    pub failures: Option<u32>,
    /// How long, before one request tries again; default 30s.
    pub open_for: Option<Span>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawDeadLetterLimit {
    /// How many are too many; default 1000.
    pub count: Option<u64>,
    /// Within which time; default 10m.
    pub per: Option<Span>,
}
