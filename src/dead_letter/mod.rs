//! Dead letters: events that Oncebox has stopped trying to deliver. Listing, showing, and replaying them one by one.
//!
//! They are written where events end: by the outbox's append (records that cannot be read) and by its settle (events
//! that were refused or exhausted). A replay makes a new event at the old one's place, generation up, same key and bytes.

mod park_all;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;

use crate::config::Workflow;
use crate::event::{CursorId, Draft, Lane, Place, Record};
use crate::outbox::sql::{bytes_list, int4, int4s, int8, int8s, text, texts};
use crate::outbox::{Database, Error as OutboxError, Purpose, claim};
use crate::transform::{Disposition, Origin, Rejection, Transformer};

pub use park_all::park_all;

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
    #[error("the workflow's programs do not compile: {0}")]
    Programs(String),
}

/// A dead letter in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: String,
    pub workflow: String,
    pub source: String,
    pub reason: String,
    pub detail: Option<String>,
    pub key: Option<String>,
    pub attempts: i32,
    pub created_at: Timestamp,
}

pub async fn list(database: &Database, workflow: Option<&str>, limit: i64) -> Result<Vec<Summary>, Error> {
    let parameters = [text(&workflow), int8(&limit)];
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
                attempts: row.get("sends"),
                created_at: row.get("created_at"),
            }
        })
        .collect())
}

/// A dead letter, whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    pub id: String,
    #[serde(skip)]
    pub place: Place,
    pub workflow: String,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub reason: String,
    pub detail: Option<String>,
    pub key: Option<String>,
    pub event_type: Option<String>,
    pub content_type: Option<String>,
    pub traceparent: Option<String>,
    #[serde(skip)]
    pub source_at: Option<i64>,
    /// base64.
    #[serde(serialize_with = "as_base64")]
    pub body: Option<Vec<u8>>,
    #[serde(serialize_with = "as_base64")]
    pub record_key: Option<Vec<u8>>,
    pub record_headers: Option<serde_json::Value>,
    pub attempts: serde_json::Value,
    pub sends: i32,
    pub first_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    /// The endpoint did answer 2xx, after the event was given up.
    pub late_success_at: Option<Timestamp>,
    pub created_at: Timestamp,
    #[serde(skip)]
    pub cluster: String,
    #[serde(skip)]
    pub topic_id: String,
}

fn as_base64<S: serde::Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
}

pub async fn show(database: &Database, place: Place) -> Result<DeadLetter, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/show.sql"), &parameters).await?;
    let row = rows.first().ok_or(Error::NotFound(place))?;
    Ok(DeadLetter {
        id: place.to_string(),
        place,
        workflow: row.get("workflow"),
        topic: row.get("topic"),
        partition: row.get("partition"),
        offset,
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

/// Makes a dead letter into events again; answers how many. Once, however often it is asked for.
pub async fn replay(
    database: &Database,
    letter: &DeadLetter,
    workflow: &Arc<Workflow>,
    who: &str,
) -> Result<i64, Error> {
    let drafts = drafts(letter, workflow)?;
    crate::failpoint!("replay.before");
    let indexes: Vec<i32> = drafts.iter().map(|d| d.index).collect();
    let keys: Vec<&str> = drafts.iter().map(|d| d.key.as_str()).collect();
    let types: Vec<&str> = drafts.iter().map(|d| d.event_type.as_str()).collect();
    let content_types: Vec<&str> = drafts.iter().map(|d| d.content_type.as_str()).collect();
    let traceparents: Vec<Option<&str>> = drafts.iter().map(|d| d.traceparent.as_deref()).collect();
    let source_ats: Vec<Option<i64>> = drafts.iter().map(|d| d.source_at).collect();
    let bodies: Vec<&[u8]> = drafts.iter().map(|d| d.body.as_slice()).collect();
    let lanes: Vec<Option<i64>> = drafts.iter().map(|d| d.lane.map(|lane| lane.0)).collect();
    let Place { cursor: CursorId(cursor), offset, index, generation } = letter.place;
    let parameters = [
        int8(&cursor),
        int8(&offset),
        int4(&index),
        int4(&generation),
        int8(&workflow.version),
        text(&who),
        int4s(&indexes),
        texts(&keys),
        texts(&types),
        texts(&content_types),
        texts(&traceparents),
        int8s(&source_ats),
        bytes_list(&bodies),
        int8s(&lanes),
    ];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/replay.sql"), &parameters).await?;
    crate::failpoint!("replay.after");
    match rows.first() {
        Some(row) if row.get::<_, i64>("taken") > 0 => Ok(row.get("made")),
        Some(_) | None => Err(Error::NotFound(letter.place)),
    }
}

/// One event of a replay.
struct Again {
    index: i32,
    key: String,
    event_type: String,
    content_type: String,
    traceparent: Option<String>,
    source_at: Option<i64>,
    lane: Option<Lane>,
    body: Vec<u8>,
}

/// The event as it was; or, for a record that could not be read, what the present configuration makes of it.
fn drafts(letter: &DeadLetter, workflow: &Arc<Workflow>) -> Result<Vec<Again>, Error> {
    if let (Some(key), Some(body)) = (&letter.key, &letter.body) {
        return Ok(vec![Again {
            index: letter.place.index,
            key: key.clone(),
            event_type: letter.event_type.clone().unwrap_or_default(),
            content_type: letter.content_type.clone().unwrap_or_default(),
            traceparent: letter.traceparent.clone(),
            source_at: letter.source_at,
            // It is in the letter's row.
            lane: None,
            body: body.clone(),
        }]);
    }
    let record = Record {
        offset: letter.offset,
        timestamp: letter.source_at,
        key: letter.record_key.clone(),
        value: letter.body.clone(),
        headers: letter.record_headers.as_ref().map(headers).unwrap_or_default(),
    };
    let origin = Origin {
        cluster: letter.cluster.as_str().into(),
        topic: letter.topic.as_str().into(),
        topic_id: letter.topic_id.as_str().into(),
        partition: letter.partition,
    };
    // A transform that gives nothing is a filter by another name.
    let transformer = Transformer::new(Arc::clone(workflow)).map_err(Error::Programs)?;
    match transformer.apply(&record, &origin) {
        Disposition::Events { drafts, .. } if drafts.is_empty() => Err(Error::MakesNothing(letter.place)),
        Disposition::Events { drafts, .. } => Ok(drafts.into_iter().map(again).collect()),
        Disposition::Filtered | Disposition::Tombstone => Err(Error::MakesNothing(letter.place)),
        Disposition::Rejected(rejection) => Err(Error::StillInvalid(rejection)),
    }
}

fn again(draft: Draft) -> Again {
    Again {
        index: draft.index,
        key: draft.key,
        event_type: draft.event_type,
        content_type: draft.content_type.as_str().to_owned(),
        traceparent: draft.traceparent,
        source_at: draft.record_at,
        lane: draft.lane,
        body: draft.body.to_vec(),
    }
}

/// A record's headers as the dead letter keeps them: a list of [name, value], base64.
fn headers(stored: &serde_json::Value) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let decode = |text: &str| STANDARD.decode(text).unwrap_or_default();
    let pairs: Vec<(String, Option<String>)> = serde_json::from_value(stored.clone()).unwrap_or_default();
    pairs.iter().map(|(name, value)| (decode(name), value.as_deref().map(decode))).collect()
}
