//! The workflow keys of the YAML, as serde and the JSON Schema see them, with meaning, unit and default.
//!
//! `defaults` has this shape too, so nothing is required here; `check.rs` asks for what a workflow must have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::scalar::{AttemptLimit, Keep, MaybeSpan, Size, Span, StatusMatch};

/// One workflow: records of some topics, delivered to one endpoint.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawWorkflow {
    /// [a-z0-9][a-z0-9-]{0,62}, unique; it is part of keys and cursors and never changes.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,62}$"))]
    pub id: Option<String>,
    /// Takes over the cursor and keys of a renamed workflow.
    pub former_id: Option<String>,
    /// On oncebox_workflow_info, for alert routing.
    pub labels: BTreeMap<String, String>,
    /// Paused if this or an operator says so.
    pub paused: Option<bool>,
    /// Where records come from.
    pub source: RawSource,
    /// jq; false, null or no output drops the record, counted as filtered. Default: keep all.
    pub filter: Option<String>,
    /// jq; each output is one event. Default: the value itself.
    pub transform: Option<String>,
    /// Text, or jq when it starts with a dot; empty: the topic.
    pub event_type: Option<String>,
    /// Where events go.
    pub endpoint: RawEndpoint,
    /// How they go there.
    pub delivery: RawDelivery,
    /// How long the records of completed events stay queryable; default 30d.
    pub retention: Option<Span>,
    /// And their bodies; default 3d.
    pub payload_retention: Option<Span>,
    /// And dead letters; default never.
    pub dead_letter_retention: Option<Keep>,
    /// Record in, expected requests out, for `oncebox test`.
    pub tests: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawSource {
    /// Topic names, or one regular expression that starts with ^.
    pub topics: Option<Vec<String>>,
    /// How values are encoded; default json.
    pub encoding: Option<Encoding>,
    /// plain, or debezium (change envelope, with or without the schema/payload wrapper); default plain.
    pub format: Option<Format>,
    /// earliest, latest or an RFC 3339 time: where the first start of the workflow on a topic begins; default earliest.
    pub start_from: Option<String>,
    /// What to do when the stored offset is no longer in the topic, or the topic was re-created; default halt.
    pub on_offset_loss: Option<OnOffsetLoss>,
    /// What to do with records that have no value; default skip.
    pub tombstones: Option<Tombstones>,
    /// What to do with a record that cannot be decoded, filtered or transformed; default deadLetter.
    pub on_invalid: Option<OnInvalid>,
    /// A larger record becomes a dead letter; default 1MiB.
    pub max_bytes: Option<Size>,
}

macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident $case:literal { $($variant:ident),+ $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(rename_all = $case)]
        pub enum $name { $($variant),+ })+
    };
}

choices! {
    Encoding "camelCase" { Json, Text, Bytes, Avro, Protobuf, JsonSchema }
    Format "camelCase" { Plain, Debezium }
    OnOffsetLoss "camelCase" { Halt, Earliest, Latest }
    Tombstones "camelCase" { Skip, Deliver }
    OnInvalid "camelCase" { DeadLetter, Halt }
    Method "UPPERCASE" { Post, Put, Patch }
    Compression "camelCase" { None, Gzip }
    Guarantee "kebab-case" { AtMostOnce, AtLeastOnce, IdempotentKeys, ExactlyOnce }
    Mechanism "kebab-case" { TransactionalOutbox, KafkaOffsets, GeneratedKeys }
    Envelope "camelCase" { Keyed, None, Cloudevents }
    HashAlgorithm "UPPERCASE" { Sha256 }
    OnInDoubt "camelCase" { Redeliver, Ask, Hold }
    Ordering "camelCase" { None, Key }
    OnKeyFailure "camelCase" { Block, Continue }
    UniqueDimension "camelCase" { Type, Queue, Args, Meta }
    UniqueConflict "snake_case" { Reject, Replace, ReplaceExceptSchedule, Ignore }
    UniqueState "camelCase" {
        Scheduled, Available, Active, Retryable, Pending, Completed, Cancelled, Discarded
    }
}

impl Guarantee {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
            Self::IdempotentKeys => "idempotent-keys",
            Self::ExactlyOnce => "exactly-once",
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawEndpoint {
    /// http:// or https://; no userinfo.
    pub url: Option<String>,
    /// Default POST.
    pub method: Option<Method>,
    /// Extra request headers; those that Oncebox sets cannot be overridden.
    pub headers: BTreeMap<String, String>,
    /// One deadline for connect, TLS, request and answer; default 15s. Too low repeats slow but successful requests.
    pub timeout: Option<Span>,
    /// Default none.
    pub compression: Option<Compression>,
    /// One of basic, bearer, oauth2.
    pub auth: RawAuth,
    /// Own CA; client certificate.
    pub tls: RawEndpointTls,
    /// Standard Webhooks signatures.
    pub signing: RawSigning,
    /// What a status means; anything not listed is retried.
    pub answers: RawAnswers,
    /// How to ask whether a key was processed.
    pub lookup: RawLookup,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAuth {
    /// User name and password.
    pub basic: Option<RawBasic>,
    /// A fixed token.
    pub bearer: Option<RawBearer>,
    /// Client credentials.
    pub oauth2: Option<RawOauth2>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawBasic {
    pub username: String,
    pub password: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawBearer {
    pub token: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOauth2 {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: String,
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawEndpointTls {
    /// A file with CA certificates to trust instead of the system's.
    pub ca: Option<String>,
    /// A file with the client certificate.
    pub cert: Option<String>,
    /// A file with its key.
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawSigning {
    /// Every listed secret signs, for rotation.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAnswers {
    /// Default [2xx].
    pub delivered: Option<Vec<StatusMatch>>,
    /// This key is being processed: tried again soon, uncounted; default [409].
    pub in_progress: Option<Vec<StatusMatch>>,
    /// Refused: dead letter at once; default [400, 413, 414, 415, 422].
    pub rejected: Option<Vec<StatusMatch>>,
    /// The workflow suspends itself; default [410].
    pub gone: Option<Vec<StatusMatch>>,
    /// Failed, and perhaps processed; default [408, 500, 502, 504].
    pub in_doubt: Option<Vec<StatusMatch>>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawLookup {
    /// With {idempotencyKey} in it.
    pub url: Option<String>,
    /// Statuses that mean processed.
    pub processed: Option<Vec<StatusMatch>>,
    /// Statuses that mean not processed.
    pub not_processed: Option<Vec<StatusMatch>>,
}

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
    /// Undelivered events above which the consumer pauses; below 80% it resumes; default 1000000.
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
    pub keys: Option<Vec<UniqueDimension>>,
    pub args_keys: Option<Vec<String>>,
    #[serde(rename = "argsKeys")]
    pub args_keys_camel: Option<Vec<String>>,
    pub meta_keys: Option<Vec<String>>,
    #[serde(rename = "metaKeys")]
    pub meta_keys_camel: Option<Vec<String>>,
    pub period: Option<String>,
    pub states: Option<Vec<UniqueState>>,
    pub on_conflict: Option<UniqueConflict>,
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
    pub initial: Option<Span>,
    pub multiplier: Option<f64>,
    pub max: Option<Span>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawRateLimit {
    #[schemars(range(min = 1))]
    pub per_second: Option<u64>,
    #[schemars(range(min = 1))]
    pub burst: Option<u64>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCircuitBreaker {
    pub failures: Option<u32>,
    pub open_for: Option<Span>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawDeadLetterLimit {
    pub count: Option<u64>,
    pub per: Option<Span>,
}
