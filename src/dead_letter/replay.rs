//! Enters: a dead letter and who wants it delivered again. Leaves: new events at its place, once.
//!
//! Same key and bytes, unless another key is asked for. A record that could not be read is made into events by the present
//! configuration.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::apart::{Apart, Ended};
use super::{DeadLetter, Error};
use crate::config::{Guarantee, UniqueConflict, UniqueState, Workflow};
use crate::event::{CursorId, Draft, Fingerprint, Lane, Place, Record};
use crate::outbox::sql::{bytes_list, float8, int4, int4s, int8, int8s, text, texts, uuid};
use crate::outbox::{Database, Purpose};
use crate::transform::{Disposition, Origin, Transformer};

/// How a replay is wished for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    pub who: String,
    /// Also for an at-most-once workflow, whose endpoint may then see the event twice.
    pub force: bool,
    /// Another key, so that a receiver takes it for a new event.
    pub new_key: bool,
    /// The replay of many that it is part of, which counts it.
    pub job: Option<uuid::Uuid>,
}

/// Makes a dead letter into events again; answers how many. Once, however often it is asked for.
pub async fn replay(
    database: &Database,
    letter: &DeadLetter,
    workflow: &Arc<Workflow>,
    wish: &Wish,
) -> Result<i64, Error> {
    if workflow.delivery.guarantee == Guarantee::AtMostOnce && !wish.force {
        return Err(Error::NeedsForce { place: letter.place, workflow: letter.workflow.clone() });
    }
    let mut drafts = match letter.key.is_some() && letter.body.is_some() {
        true => drafts(letter, workflow)?,
        false => drafts_apart(letter, workflow).await?,
    };
    if wish.new_key {
        drafts.iter_mut().for_each(|draft| draft.rekey(letter.place.generation + 1));
    }
    let who = &wish.who;
    crate::failpoint!("replay.before");
    let indexes: Vec<i32> = drafts.iter().map(|d| d.index).collect();
    let keys: Vec<&str> = drafts.iter().map(|d| d.key.as_str()).collect();
    let types: Vec<&str> = drafts.iter().map(|d| d.event_type.as_str()).collect();
    let content_types: Vec<&str> = drafts.iter().map(|d| d.content_type.as_str()).collect();
    let traceparents: Vec<Option<&str>> = drafts.iter().map(|d| d.traceparent.as_deref()).collect();
    let source_ats: Vec<Option<i64>> = drafts.iter().map(|d| d.source_at).collect();
    let bodies: Vec<&[u8]> = drafts.iter().map(|d| d.body.as_slice()).collect();
    let lanes: Vec<Option<i64>> = drafts.iter().map(|d| d.lane.map(|lane| lane.0)).collect();
    let unique: Vec<Option<&[u8]>> = drafts.iter().map(|d| d.unique.as_ref().map(Fingerprint::as_slice)).collect();
    let changes: Vec<Option<&[u8]>> =
        drafts.iter().map(|d| d.fingerprint.as_ref().map(Fingerprint::as_slice)).collect();
    let remembered =
        workflow.delivery.deduplication.as_ref().map_or(0.0, |deduplication| deduplication.ttl.as_secs_f64());
    let of_workflow: &str = &workflow.id;
    let kept = workflow.retention.as_secs_f64();
    let period = workflow.delivery.unique.as_ref().and_then(|policy| policy.period.as_deref());
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
        uuid(&wish.job),
        bytes_list(&unique),
        float8(&kept),
        text(&period),
        text(&of_workflow),
        bytes_list(&changes),
        float8(&remembered),
    ];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/replay.sql"), &parameters).await?;
    crate::failpoint!("replay.after");
    let Some(row) = rows.first() else { return Err(Error::NotFound(letter.place)) };
    // Somebody else was faster, and what is under way is what they made of it.
    if !row.get::<_, bool>("is_there") {
        return Err(Error::NotFound(letter.place));
    }
    if let Some(cursor) = row.get::<_, Option<i64>>("active_cursor").map(CursorId) {
        let (offset, index) = (row.get("active_offset"), row.get("active_index"));
        let active = Place { cursor, offset, index, generation: row.get("active_generation") };
        return Err(Error::KeyActive { place: letter.place, active });
    }
    if row.get::<_, i64>("taken") == 0 {
        return Err(Error::NotFound(letter.place));
    }
    Ok(row.get("made"))
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
    /// Of a record that could not be read when it came: it has no uniqueness key yet.
    unique: Option<Fingerprint>,
    /// Nor is its change known, where repeats are suppressed.
    fingerprint: Option<Fingerprint>,
    body: Vec<u8>,
}

impl Again {
    /// The same event under another key, also where the body says it.
    fn rekey(&mut self, generation: i32) {
        let key = format!("{}-r{generation}", self.key);
        // Envelopes begin with it, and a key is plain text: the first place where it stands as a JSON string is its own.
        for name in ["{\"idempotencyKey\":", "{\"specversion\":\"1.0\",\"id\":"] {
            let old = format!("{name}\"{}\"", self.key);
            if let Some(rest) = self.body.strip_prefix(old.as_bytes()) {
                let mut body = format!("{name}\"{key}\"").into_bytes();
                body.extend_from_slice(rest);
                self.body = body;
                break;
            }
        }
        self.key = key;
    }
}

/// A program that is running cannot be interrupted, and may panic: it is waited for only so long.
const RECORD_LIMIT: Duration = Duration::from_secs(5);
static APART: Apart = Apart::idle();

async fn drafts_apart(letter: &DeadLetter, workflow: &Arc<Workflow>) -> Result<Vec<Again>, Error> {
    let place = letter.place;
    let (letter, workflow) = (letter.clone(), Arc::clone(workflow));
    let task = (place, workflow.version);
    match APART.run(task, RECORD_LIMIT, move || drafts(&letter, &workflow)).await {
        Ended::Done(made) => made,
        Ended::TooLong => Err(Error::TooLong(place)),
        Ended::Busy => Err(Error::Busy(place)),
    }
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
            unique: None,
            fingerprint: None,
            body: body.clone(),
        }]);
    }
    let record = Record {
        offset: letter.place.offset,
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
        Disposition::Events { drafts, .. } => {
            let drafts = one_after_the_other(drafts, workflow).ok_or(Error::Rejects(letter.place))?;
            Ok(drafts.into_iter().map(again).collect())
        }
        Disposition::Filtered | Disposition::Tombstone => Err(Error::MakesNothing(letter.place)),
        Disposition::Rejected(rejection) => Err(Error::StillInvalid(rejection)),
    }
}

/// Events of one record that have the same uniqueness key, judged as if each had come after the one before it was stored. As when a record is
/// read (`take_unique`), but that a replay waits for no `delay`, leaves no trace of what is ignored or replaced, and is refused as a whole:
/// then it is nothing, because a letter of its own for one event would be lost among these.
fn one_after_the_other(mut drafts: Vec<Draft>, workflow: &Workflow) -> Option<Vec<Draft>> {
    let Some(policy) = &workflow.delivery.unique else { return Some(drafts) };
    let waits_in_lane = drafts.first().is_some_and(|draft| draft.lane.is_some());
    let stands = if waits_in_lane { UniqueState::Pending } else { UniqueState::Available };
    // A period of nothing is over at once.
    let lasts = policy.period.as_deref().is_none_or(|period| period.bytes().any(|byte| (b'1'..=b'9').contains(&byte)));
    if !policy.states.contains(&stands) || !lasts {
        return Some(drafts);
    }
    let mut keys = HashSet::new();
    let mut is_first = |draft: &Draft| draft.unique.is_none_or(|key| keys.insert(key));
    match policy.on_conflict {
        UniqueConflict::Reject => drafts.iter().all(is_first).then_some(drafts),
        UniqueConflict::Ignore => {
            drafts.retain(is_first);
            Some(drafts)
        }
        // The last takes the place of those before it.
        UniqueConflict::Replace | UniqueConflict::ReplaceExceptSchedule => {
            drafts.reverse();
            drafts.retain(&mut is_first);
            drafts.reverse();
            Some(drafts)
        }
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
        unique: draft.unique,
        fingerprint: draft.fingerprint,
        body: draft.body.to_vec(),
    }
}

/// A record's headers as the dead letter keeps them: a list of [name, value], base64.
fn headers(stored: &serde_json::Value) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let decode = |text: &str| STANDARD.decode(text).unwrap_or_default();
    let pairs: Vec<(String, Option<String>)> = serde_json::from_value(stored.clone()).unwrap_or_default();
    pairs.iter().map(|(name, value)| (decode(name), value.as_deref().map(decode))).collect()
}

#[cfg(test)]
mod tests;
