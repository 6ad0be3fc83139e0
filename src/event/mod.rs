//! The nouns that every stage shares: where an event came from, what it carries, who it is. No I/O, no clock.
//!
//! [`place`] has an event's identity, [`state`] the closed sets of states and reasons, [`roles`] what a process does, [`joining`] whether
//! it is in a workflow's group.

pub mod joining;
pub mod place;
pub mod roles;
pub mod state;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use joining::{Forbidden, Joining, Refusal};
pub use place::{CursorId, NotAnEventId, Place, decode_components, encode_component, encode_components};
pub use roles::Roles;
pub use state::{Reason, Standing, UnknownState, WorkflowState};

/// One start of the process. Random, so that two processes are never mistaken for each other.
pub type ProcessId = uuid::Uuid;

/// Where a record stands in Kafka: what the `oncebox-source` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// A record as Kafka gave it. Names and values are bytes: nothing promises UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub offset: i64,
    /// Milliseconds since 1970, when the record has a time.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    pub fn bytes(&self) -> usize {
        let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + length(value)).sum();
        length(&self.key) + length(&self.value) + headers
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    Json,
    CloudEvents,
    Text,
    Bytes,
}

impl ContentType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::CloudEvents => "application/cloudevents+json",
            Self::Text => "text/plain; charset=utf-8",
            Self::Bytes => "application/octet-stream",
        }
    }
}

/// An event that is made but not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub offset: i64,
    pub index: i32,
    pub key: String,
    pub event_type: String,
    pub content_type: ContentType,
    /// The record's own, when it had one.
    pub traceparent: Option<String>,
    /// The record's time, milliseconds since 1970; the source's when the record has none.
    pub record_at: Option<i64>,
    /// Whose order it keeps, where a workflow keeps one.
    pub lane: Option<Lane>,
    /// The key under which another event is the same, where a workflow asks for that.
    pub unique: Option<Fingerprint>,
    /// What tells this change from every other, where repeats are suppressed.
    pub fingerprint: Option<Fingerprint>,
    pub body: Bytes,
}

impl Draft {
    /// The event that it becomes: at this generation of its place, filed under this day, as of this moment.
    pub fn into_event(self, cursor: CursorId, topic: &Arc<str>, partition: i32, filed: Filed) -> Event {
        let Filed { generation, day, stored_at } = filed;
        Event {
            place: Place { cursor, offset: self.offset, index: self.index, generation },
            day,
            source: SourcePosition { topic: Arc::clone(topic), partition, offset: self.offset },
            key: self.key,
            event_type: self.event_type,
            content_type: self.content_type.as_str().to_owned(),
            traceparent: self.traceparent,
            record_at: self.record_at,
            lane: self.lane,
            stored_at,
            body: self.body,
        }
    }
}

/// What an event has that its record does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Filed {
    pub generation: i32,
    pub day: jiff::civil::Date,
    /// Microseconds since 1970.
    pub stored_at: i64,
}

/// The events of one ordering key on one partition go out one after the other: 63 bits of the key's SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub i64);

impl Lane {
    pub fn of(key: &[u8]) -> Self {
        let digest = Sha256::digest(key);
        let head: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
        Self((u64::from_be_bytes(head) >> 1) as i64)
    }
}

/// The SHA-256 of what identifies a change.
pub type Fingerprint = [u8; 32];

/// A stored event, with all that a request needs.
#[derive(Debug, Clone)]
pub struct Event {
    pub place: Place,
    /// The day that its rows are filed under, in every table.
    pub day: jiff::civil::Date,
    pub source: SourcePosition,
    pub key: String,
    pub event_type: String,
    pub content_type: String,
    pub traceparent: Option<String>,
    pub record_at: Option<i64>,
    pub lane: Option<Lane>,
    /// When it was stored, microseconds since 1970.
    pub stored_at: i64,
    pub body: Bytes,
}
