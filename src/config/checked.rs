//! The checked configuration: what every stage works from. Built only by `check.rs`; all values are within bounds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::credentials::{Auth, Tls};
use super::limits::{CircuitBreaker, DeadLetterLimit, RateLimit};
use super::problem::Problem;
use super::raw::{PostgresTlsMode, Role};
use super::raw_workflow::{
    Compression, Encoding, Envelope, Format, Guarantee, Mechanism, Method, OnInvalid, OnKeyFailure, OnOffsetLoss,
    Tombstones,
};
use super::scalar::StatusMatch;
use super::secret::Secret;
use super::test_check::Test;
use super::unique::UniquePolicy;

#[derive(Debug, Clone)]
pub struct Config {
    pub kafka: Kafka,
    pub postgres: Postgres,
    pub admin: Admin,
    pub egress: Egress,
    /// Where traces go; nothing: they are not made.
    pub tracing: Option<url::Url>,
    /// How long SIGTERM waits for requests under way.
    pub shutdown_grace: Duration,
    pub workflows: Vec<Arc<Workflow>>,
    /// Keys outside workflows whose behaviour is not built yet: `run` refuses all.
    pub unsupported: Vec<Problem>,
}

impl Config {
    pub fn workflow(&self, id: &str) -> Option<&Arc<Workflow>> {
        self.workflows.iter().find(|workflow| &*workflow.id == id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kafka {
    pub brokers: String,
    /// The namespace inside keys, when it is not the cluster id that the brokers report.
    pub cluster: Option<String>,
    pub group_prefix: String,
    pub properties: BTreeMap<String, Secret>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    pub url: Secret,
    /// A session connection for LISTEN and migrations.
    pub direct_url: Secret,
    pub schema: String,
    pub pool_size: usize,
    pub tls_mode: PostgresTlsMode,
    pub tls_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    pub listen: SocketAddr,
    /// Who may ask; nobody needs to say who they are when there are none.
    pub tokens: Vec<Token>,
}

/// Somebody who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// As the audit shows it.
    pub name: String,
    pub secret: Secret,
    pub role: Role,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    pub allow: Vec<IpNet>,
    /// An HTTP proxy's URL, with its credentials.
    pub proxy: Option<Secret>,
}

#[derive(Debug, Clone)]
pub struct Workflow {
    pub id: Arc<str>,
    /// The id whose cursors and keys it takes over.
    pub former_id: Option<String>,
    /// Its place in the list.
    pub index: usize,
    pub labels: BTreeMap<String, String>,
    pub paused: bool,
    pub source: Source,
    /// jq; `None` keeps every record.
    pub filter: Option<String>,
    /// jq; `None` passes the value through untouched.
    pub transform: Option<String>,
    pub event_type: EventType,
    pub endpoint: Endpoint,
    pub delivery: Delivery,
    pub retention: Duration,
    pub payload_retention: Duration,
    pub dead_letter_retention: Option<Duration>,
    /// Record in, expected requests out, for `oncebox test`.
    pub tests: Vec<Test>,
    /// Keys whose behaviour is not built yet: `run` refuses this workflow.
    pub unsupported: Vec<Problem>,
    /// The first 63 bits of the SHA-256 of `document`.
    pub version: i64,
    /// Of the workflow with its references resolved: whether anything of it is another.
    pub fingerprint: [u8; 32],
    /// The workflow as written, without its tests, `${..}` unresolved: what may be stored.
    pub document: String,
}

#[derive(Debug, Clone)]
pub struct Source {
    pub topics: Topics,
    pub encoding: Encoding,
    pub format: Format,
    pub start_from: StartFrom,
    pub on_offset_loss: OnOffsetLoss,
    pub tombstones: Tombstones,
    pub on_invalid: OnInvalid,
    pub max_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topics {
    Named(Vec<String>),
    /// One regular expression, with its leading `^`.
    Matching(String),
}

impl Topics {
    /// What librdkafka's subscribe takes: it reads a leading `^` as a regular expression.
    pub fn subscription(&self) -> Vec<&str> {
        match self {
            Self::Named(names) => names.iter().map(String::as_str).collect(),
            Self::Matching(pattern) => vec![pattern.as_str()],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Time(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventType {
    Topic,
    Text(String),
    Jq(String),
}

#[derive(Debug, Clone)]
pub struct Endpoint {
    pub url: url::Url,
    pub method: Method,
    /// Names in lower case; values may hold secrets.
    pub headers: Vec<(String, Secret)>,
    pub timeout: Duration,
    pub compression: Compression,
    pub auth: Auth,
    pub tls: Tls,
    /// Standard Webhooks; each signs.
    pub signing: Vec<Secret>,
    pub answers: Answers,
    pub lookup: Option<Lookup>,
}

/// How to ask an endpoint whether it has processed a key.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// With `{idempotencyKey}` in it.
    pub url: String,
    pub processed: Vec<StatusMatch>,
    pub not_processed: Vec<StatusMatch>,
}

#[derive(Debug, Clone)]
pub struct Answers {
    pub delivered: Vec<StatusMatch>,
    pub in_progress: Vec<StatusMatch>,
    pub rejected: Vec<StatusMatch>,
    pub gone: Vec<StatusMatch>,
    pub in_doubt: Vec<StatusMatch>,
}

#[derive(Debug, Clone)]
pub struct Delivery {
    pub guarantee: Guarantee,
    pub mechanism: Mechanism,
    pub envelope: Envelope,
    pub key: IdempotencyKey,
    pub deduplication: Option<Deduplication>,
    pub unique: Option<UniquePolicy>,
    pub retries: Retries,
    pub in_doubt: InDoubt,
    /// Whether the events of one ordering key go out one after the other, and what the others do when one is given up.
    pub ordering: Option<OnKeyFailure>,
    /// jq; nothing means the record key's bytes.
    pub ordering_key: Option<String>,
    pub concurrency: usize,
    pub rate: Option<RateLimit>,
    pub circuit: CircuitBreaker,
    pub dead_letter_limit: DeadLetterLimit,
    pub lease: Duration,
    /// Not before this long after the record's timestamp.
    pub delay: Duration,
    pub max_waiting: u64,
    pub max_waiting_bytes: u64,
}

impl Delivery {
    /// Whether every event has a life of its own from when it is stored: it waits for its time, or may be replaced.
    pub fn each_alone(&self) -> bool {
        !self.delay.is_zero() || self.unique.is_some()
    }

    /// Whether records are delivered without the outbox, as long as that works.
    pub fn is_direct(&self) -> bool {
        match self.mechanism {
            Mechanism::KafkaOffsets | Mechanism::GeneratedKeys => true,
            Mechanism::TransactionalOutbox => false,
        }
    }
}

/// Changes that the source repeats within `ttl` are suppressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deduplication {
    /// Placeholders of a key format, without their braces.
    pub fields: Vec<String>,
    pub ttl: Duration,
}

/// What becomes of an attempt whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDoubt {
    /// Posted again, with the same key.
    Redeliver,
    /// The endpoint's lookup is asked first.
    Ask,
    /// An operator decides.
    Hold,
    /// Never sent again: a dead letter. At-most-once.
    End,
}

impl InDoubt {
    /// Whether a claim must mean that a request is made now, so that in doubt never means "perhaps not even sent".
    pub fn claims_only_what_starts(self) -> bool {
        match self {
            Self::Redeliver => false,
            Self::Ask | Self::Hold | Self::End => true,
        }
    }
}

#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    /// `None`: the format's own default.
    pub format: Option<String>,
    pub namespace: String,
    pub header: String,
    pub quoted: bool,
    pub included_in_payload: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Retries {
    /// The first attempt included; `None` is unlimited.
    pub max_attempts: Option<u32>,
    pub backoff: Backoff,
    pub jitter: f64,
    pub give_up_after: Duration,
    pub max_retry_after: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Backoff {
    Growing {
        initial: Duration,
        multiplier: f64,
        max: Duration,
    },
    /// The last entry repeats.
    Listed(Vec<Duration>),
}
