//! Stores what the direct path could not deliver: events to be tried again, records that no event could be made of.
//!
//! Fenced by the cursor's owner and epoch. May be called again after a lost reply: a place is stored once.

use std::collections::{BTreeSet, HashMap};

use jiff::civil::Date;

use super::attempt::{AttemptRecord, as_i32};
use super::batch::DeadRecord;
use super::claim::place;
use super::failure::Next;
use super::sql::{booleans, bytes_list, float8s, int4s, int8s, texts, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, Event, Place, ProcessId, Reason};

/// An event whose attempt on the direct path failed.
#[derive(Debug, Clone)]
pub struct Spill {
    pub event: Event,
    pub workflow: std::sync::Arc<str>,
    pub version: i64,
    /// The owner's epoch that it was sent under.
    pub epoch: i64,
    pub sends: u32,
    pub counted: u32,
    pub end: SpillEnd,
    pub attempt: AttemptRecord,
}

/// What comes after the attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SpillEnd {
    Waits(Next),
    /// It becomes a dead letter, in a statement of its own; leased until then for so many seconds.
    Dies {
        reason: Reason,
        lease: f64,
    },
}

impl SpillEnd {
    fn next(self) -> Next {
        match self {
            Self::Waits(next) => next,
            Self::Dies { .. } => Next::Again { after: std::time::Duration::ZERO },
        }
    }

    fn lease(self) -> Option<f64> {
        match self {
            Self::Waits(_) => None,
            Self::Dies { lease, .. } => Some(lease),
        }
    }
}

/// A stored event: the day it is filed under, and whether it was stored just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spilled {
    pub day: Date,
    pub fresh: bool,
}

/// Stores events; those missing from the answer are fenced.
pub async fn spill(database: &Database, process: ProcessId, batch: &[Spill]) -> Result<HashMap<Place, Spilled>, Error> {
    let mut batch: Vec<&Spill> = batch.iter().collect();
    batch.sort_by_key(|spill| spill.event.place);
    let distinct = distinct(batch.iter().map(|spill| spill.event.place.cursor));
    let epochs: Vec<i64> = batch.iter().map(|s| s.epoch).collect();
    let cursors: Vec<i64> = batch.iter().map(|s| s.event.place.cursor.0).collect();
    let offsets: Vec<i64> = batch.iter().map(|s| s.event.place.offset).collect();
    let indexes: Vec<i32> = batch.iter().map(|s| s.event.place.index).collect();
    let generations: Vec<i32> = batch.iter().map(|s| s.event.place.generation).collect();
    let keys: Vec<&str> = batch.iter().map(|s| s.event.key.as_str()).collect();
    let types: Vec<&str> = batch.iter().map(|s| s.event.event_type.as_str()).collect();
    let content_types: Vec<&str> = batch.iter().map(|s| s.event.content_type.as_str()).collect();
    let traceparents: Vec<Option<&str>> = batch.iter().map(|s| s.event.traceparent.as_deref()).collect();
    let source_ats: Vec<Option<i64>> = batch.iter().map(|s| s.event.record_at).collect();
    let versions: Vec<i64> = batch.iter().map(|s| s.version).collect();
    let bodies: Vec<&[u8]> = batch.iter().map(|s| s.event.body.as_ref()).collect();
    let workflows: Vec<&str> = batch.iter().map(|s| &*s.workflow).collect();
    let counted: Vec<i32> = batch.iter().map(|s| as_i32(s.counted)).collect();
    let waits: Vec<f64> = batch.iter().map(|s| s.end.next().seconds()).collect();
    let in_doubt: Vec<bool> = batch.iter().map(|s| s.end.next().is_in_doubt()).collect();
    let agos: Vec<f64> = batch.iter().map(|s| s.attempt.ago.as_secs_f64()).collect();
    let helds: Vec<Option<&str>> = batch.iter().map(|s| s.end.next().held()).collect();
    let leases: Vec<Option<f64>> = batch.iter().map(|s| s.end.lease()).collect();
    let sends: Vec<i32> = batch.iter().map(|s| as_i32(s.sends)).collect();
    let parameters = [
        uuid(&process),
        int8s(&distinct),
        int8s(&epochs),
        int8s(&cursors),
        int8s(&offsets),
        int4s(&indexes),
        int4s(&generations),
        texts(&keys),
        texts(&types),
        texts(&content_types),
        texts(&traceparents),
        int8s(&source_ats),
        int8s(&versions),
        bytes_list(&bodies),
        texts(&workflows),
        int4s(&counted),
        float8s(&waits),
        booleans(&in_doubt),
        float8s(&agos),
        texts(&helds),
        float8s(&leases),
        int4s(&sends),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/direct/spill.sql"), &parameters).await?;
    let mut stored = HashMap::new();
    for row in &rows {
        // An earlier try, of which we never heard, was committed while this one ran: the next one sees it.
        let day: Option<Date> = row.get("day");
        let day = day.ok_or(Error::TooSlow)?;
        stored.insert(place(row), Spilled { day, fresh: row.get("fresh") });
    }
    Ok(stored)
}

/// A record of the direct path that no event could be made of.
#[derive(Debug)]
pub struct Burial {
    pub place: Place,
    pub workflow: std::sync::Arc<str>,
    pub version: i64,
    pub epoch: i64,
    pub record: DeadRecord,
}

/// Stores records as dead letters. Answers those that are stored, and whether just now; the others are fenced.
pub async fn bury(database: &Database, process: ProcessId, batch: &[Burial]) -> Result<HashMap<Place, bool>, Error> {
    let distinct = distinct(batch.iter().map(|burial| burial.place.cursor));
    let epochs: Vec<i64> = batch.iter().map(|b| b.epoch).collect();
    let cursors: Vec<i64> = batch.iter().map(|b| b.place.cursor.0).collect();
    let offsets: Vec<i64> = batch.iter().map(|b| b.place.offset).collect();
    let generations: Vec<i32> = batch.iter().map(|b| b.place.generation).collect();
    let reasons: Vec<&str> = batch.iter().map(|b| b.record.reason.as_str()).collect();
    let details: Vec<String> = batch.iter().map(|b| b.record.detail.replace('\0', "\u{fffd}")).collect();
    let versions: Vec<i64> = batch.iter().map(|b| b.version).collect();
    let values: Vec<Option<&[u8]>> = batch.iter().map(|b| b.record.value.as_deref()).collect();
    let record_keys: Vec<Option<&[u8]>> = batch.iter().map(|b| b.record.key.as_deref()).collect();
    let headers: Vec<&str> = batch.iter().map(|b| b.record.headers.as_str()).collect();
    let source_ats: Vec<Option<i64>> = batch.iter().map(|b| b.record.source_at).collect();
    let parameters = [
        uuid(&process),
        int8s(&distinct),
        int8s(&epochs),
        int8s(&cursors),
        int8s(&offsets),
        int4s(&generations),
        texts(&reasons),
        texts(&details),
        int8s(&versions),
        bytes_list(&values),
        bytes_list(&record_keys),
        texts(&headers),
        int8s(&source_ats),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/direct/bury.sql"), &parameters).await?;
    let stored: HashMap<(i64, i64), bool> =
        rows.iter().map(|row| ((row.get("cursor"), row.get("record_offset")), row.get("fresh"))).collect();
    let of = |b: &Burial| Some((b.place, *stored.get(&(b.place.cursor.0, b.place.offset))?));
    Ok(batch.iter().filter_map(of).collect())
}

fn distinct(cursors: impl Iterator<Item = CursorId>) -> Vec<i64> {
    cursors.map(|cursor| cursor.0).collect::<BTreeSet<i64>>().into_iter().collect()
}
