//! Dead letters: events that Oncebox has stopped trying to deliver. Listing, showing, discarding and replaying them.
//!
//! They are written where events end: by the outbox's append (records that cannot be read) and by its settle (events
//! that were refused or exhausted). A replay makes a new event at the old one's place, generation up, same key and bytes.
//!
//! Files: this one (what there is), `replay` (one), `apart` (what may never end), `job` and `replayer` (many, over crashes), `park_all` (all of a
//! workflow that is gone).

mod apart;
pub mod job;
mod park_all;
mod replay;
pub mod replayer;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::{CursorId, Place};
use crate::outbox::sql::{int4, int8, text, timestamptz};
use crate::outbox::{Database, Error as OutboxError, Purpose, claim};
use crate::transform::Rejection;

pub use park_all::park_all;
pub use replay::{Wish, replay};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error("no dead letter {0}")]
    NotFound(Place),
    #[error("dead letter {0} belongs to workflow `{1}`, which this configuration does not have")]
    NoWorkflow(Place, String),
    #[error("{0}: the record makes no event any more, so it stays a dead letter")]
    MakesNothing(Place),
    #[error("the record still cannot be made into events")]
    StillInvalid(#[source] Rejection),
    #[error("{0}: its record takes the workflow's programs too long, or too far; it stays a dead letter")]
    TooLong(Place),
    #[error("{0}: this process is busy with other records, which take their programs too long; try again later")]
    Busy(Place),
    #[error("the workflow's programs do not compile: {0}")]
    Programs(String),
    #[error(
        "{0}: two events of its record have the same uniqueness key, and the workflow's `unique` rejects the second; it stays a dead letter"
    )]
    Rejects(Place),
    #[error(
        "`{workflow}` promises at-most-once, and the endpoint may have seen {place} already; force (--force) sends it all the same"
    )]
    NeedsForce { place: Place, workflow: String },
    #[error("{place} is under way again as {active}, with the same key; the dead letter stays")]
    KeyActive { place: Place, active: Place },
}

/// A dead letter in a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetterSummary)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its event's id.
    pub id: String,
    pub workflow: String,
    /// topic/partition/offset.
    pub source: String,
    /// exhausted, expired, rejected, invalid, duplicate, in_doubt, too_large or parked.
    pub reason: String,
    pub detail: Option<String>,
    pub key: Option<String>,
    pub event_type: Option<String>,
    /// Requests that were made.
    pub attempts: i32,
    /// Whether the later events of its ordering key wait for it.
    pub blocks: bool,
    pub created_at: Timestamp,
}

/// Which dead letters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetterFilter)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Filter {
    /// Only those of this workflow.
    pub workflow: Option<String>,
    /// Only those with this reason.
    pub reason: Option<String>,
    /// Only those written at this time or later.
    pub from: Option<Timestamp>,
    /// Only those written before this time.
    pub to: Option<Timestamp>,
}

/// Where a list goes on: behind this one.
pub type Mark = (Timestamp, Place);

pub async fn list(
    database: &Database,
    filter: &Filter,
    after: Option<Mark>,
    limit: i64,
) -> Result<Vec<Summary>, Error> {
    let (at, place) = after.unzip();
    let at: Option<Timestamp> = at;
    let place = place.unwrap_or(Place { cursor: CursorId(0), offset: 0, index: 0, generation: 0 });
    let CursorId(cursor) = place.cursor;
    let parameters = [
        text(&filter.workflow),
        text(&filter.reason),
        timestamptz(&filter.from),
        timestamptz(&filter.to),
        int8(&limit),
        timestamptz(&at),
        int8(&cursor),
        int8(&place.offset),
        int4(&place.index),
        int4(&place.generation),
    ];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/list.sql"), &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let place = claim::place(row);
            let (topic, partition): (String, i32) = (row.get("topic"), row.get("partition"));
            Summary {
                id: place.to_string(),
                workflow: row.get("workflow"),
                source: format!("{topic}/{partition}/{}", place.offset),
                reason: row.get("reason"),
                detail: row.get("detail"),
                key: row.get("key"),
                event_type: row.get("event_type"),
                attempts: row.get("sends"),
                blocks: row.get("blocks"),
                created_at: row.get("created_at"),
            }
        })
        .collect())
}

/// Removes one for good. Answers whose it was.
pub async fn discard(database: &Database, place: Place, who: &str) -> Result<String, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation), text(&who)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/discard.sql"), &parameters).await?;
    rows.first().map(|row| row.get("workflow")).ok_or(Error::NotFound(place))
}

/// A dead letter, whole.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub place: Place,
    pub workflow: String,
    pub topic: String,
    pub partition: i32,
    pub reason: String,
    pub detail: Option<String>,
    pub key: Option<String>,
    pub event_type: Option<String>,
    pub content_type: Option<String>,
    pub traceparent: Option<String>,
    pub source_at: Option<i64>,
    pub body: Option<Vec<u8>>,
    pub record_key: Option<Vec<u8>>,
    pub record_headers: Option<serde_json::Value>,
    pub attempts: serde_json::Value,
    pub sends: i32,
    pub first_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    /// The endpoint did answer 2xx, after the event was given up.
    pub late_success_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub cluster: String,
    pub topic_id: String,
}

/// A dead letter as people and programs get to see it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetter)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    pub id: String,
    pub workflow: String,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// exhausted, expired, rejected, invalid, duplicate, in_doubt, too_large or parked.
    pub reason: String,
    pub detail: Option<String>,
    pub key: Option<String>,
    pub event_type: Option<String>,
    pub content_type: Option<String>,
    pub traceparent: Option<String>,
    pub body_bytes: usize,
    /// base64; only when asked for.
    pub body: Option<String>,
    /// base64; only when asked for.
    pub record_key: Option<String>,
    /// Pairs of name and value, each base64; only when asked for.
    pub record_headers: Option<serde_json::Value>,
    pub attempts: Vec<Attempt>,
    /// Requests that were made.
    pub sends: i32,
    pub first_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    /// The endpoint did answer 2xx, after the event was given up.
    pub late_success_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// One request that did not deliver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its number.
    pub send: i32,
    pub fence: i64,
    pub at: String,
    pub outcome: String,
    pub status: Option<i32>,
    pub error: Option<String>,
    /// The beginning of the answer, base64; only when asked for.
    pub answer: Option<String>,
    /// How long it took.
    pub millis: i32,
}

/// Whether bodies, answers and record headers are shown too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    Hidden,
    Shown,
}

impl DeadLetter {
    pub fn shown(&self, payload: Payload) -> Shown {
        let is_shown = payload == Payload::Shown;
        let encode = |bytes: &Option<Vec<u8>>| bytes.as_ref().filter(|_| is_shown).map(|bytes| STANDARD.encode(bytes));
        let mut attempts: Vec<Attempt> = serde_json::from_value(self.attempts.clone()).unwrap_or_default();
        for attempt in &mut attempts {
            // Postgres breaks base64 into lines.
            attempt.answer = attempt.answer.take().filter(|_| is_shown).map(|text| text.replace('\n', ""));
        }
        Shown {
            id: self.place.to_string(),
            workflow: self.workflow.clone(),
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.place.offset,
            reason: self.reason.clone(),
            detail: self.detail.clone(),
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            content_type: self.content_type.clone(),
            traceparent: self.traceparent.clone(),
            body_bytes: self.body.as_ref().map_or(0, Vec::len),
            body: encode(&self.body),
            record_key: encode(&self.record_key),
            record_headers: self.record_headers.clone().filter(|_| is_shown),
            attempts,
            sends: self.sends,
            first_attempt_at: self.first_attempt_at,
            last_attempt_at: self.last_attempt_at,
            late_success_at: self.late_success_at,
            created_at: self.created_at,
        }
    }
}

pub async fn show(database: &Database, place: Place) -> Result<DeadLetter, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/show.sql"), &parameters).await?;
    let row = rows.first().ok_or(Error::NotFound(place))?;
    Ok(DeadLetter {
        place,
        workflow: row.get("workflow"),
        topic: row.get("topic"),
        partition: row.get("partition"),
        reason: row.get("reason"),
        detail: row.get("detail"),
        key: row.get("key"),
        event_type: row.get("event_type"),
        content_type: row.get("content_type"),
        traceparent: row.get("traceparent"),
        source_at: row.get("source_at"),
        body: row.get("body"),
        record_key: row.get("record_key"),
        record_headers: row.get("record_headers"),
        attempts: row.get("attempts"),
        sends: row.get("sends"),
        first_attempt_at: row.get("first_attempt_at"),
        last_attempt_at: row.get("last_attempt_at"),
        late_success_at: row.get("late_success_at"),
        created_at: row.get("created_at"),
        cluster: row.get("cluster"),
        topic_id: row.get("topic_id"),
    })
}
