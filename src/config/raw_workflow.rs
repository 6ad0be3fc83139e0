//! The workflow keys of the YAML, as serde and the JSON Schema see them, with meaning, unit and default.
//!
//! `defaults` has this shape too, so nothing is required here; `check.rs` asks for what a workflow must have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::raw_delivery::RawDelivery;
use super::raw_endpoint::RawEndpoint;
use super::raw_test::RawTest;
use super::scalar::{Keep, Size, Span};

/// One workflow: records of some topics, delivered to one endpoint.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawWorkflow {
    /// [a-z0-9][a-z0-9-]{0,62}, unique; it is part of keys and cursors and never changes.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,62}$"))]
    pub id: Option<String>,
    /// Takes over the cursor and keys of a renamed workflow: its former id.
    #[schemars(regex(pattern = r"^([a-z0-9][a-z0-9-]{0,62})?$"))]
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
    pub tests: Vec<RawTest>,
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

impl Mechanism {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TransactionalOutbox => "transactional-outbox",
            Self::KafkaOffsets => "kafka-offsets",
            Self::GeneratedKeys => "generated-keys",
        }
    }
}

impl Guarantee {
    pub const ALL: [Self; 4] = [Self::AtMostOnce, Self::AtLeastOnce, Self::IdempotentKeys, Self::ExactlyOnce];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
            Self::IdempotentKeys => "idempotent-keys",
            Self::ExactlyOnce => "exactly-once",
        }
    }
}
