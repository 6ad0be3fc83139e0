//! Enters: batches. Leaves: the columns that a statement takes. What must hold: one list for each field, of the same length and in the
//! same order, but for those of [`ThinColumns`] that are left out.

use std::collections::HashMap;

use super::batch::{Batch, DeadRecord};
use super::sql::{Parameter, bytes_list, float8s, int4s, int8s, texts, uuid};
use super::unique::UniqueColumns;
use crate::event::{CursorId, Draft, ProcessId};

/// One entry for each batch.
pub struct CursorColumns {
    pub ids: Vec<i64>,
    pub epochs: Vec<i64>,
    pub expected: Vec<i64>,
    pub next: Vec<i64>,
    /// The epoch under which first attempts are claimed; -1 where they are not.
    pub delivery: Vec<i64>,
    pub events: Vec<i32>,
    pub bytes: Vec<i64>,
    pub dead: Vec<i32>,
    pub filtered: Vec<String>,
    pub tombstones: Vec<String>,
}

/// One entry for each event.
pub struct EventColumns<'a> {
    pub cursors: Vec<i64>,
    pub offsets: Vec<i64>,
    pub indexes: Vec<i32>,
    pub keys: Vec<&'a str>,
    pub types: Vec<&'a str>,
    pub content_types: Vec<&'a str>,
    pub traceparents: Vec<Option<&'a str>>,
    pub source_ats: Vec<Option<i64>>,
    pub versions: Vec<i64>,
    pub bodies: Vec<&'a [u8]>,
    pub lanes: Vec<Option<i64>>,
}

/// One entry for each event, where events may be suppressed or delayed.
pub struct SpecialColumns<'a> {
    pub fingerprints: Vec<Option<&'a [u8]>>,
    /// Seconds for which a fingerprint is remembered.
    pub remembered: Vec<f64>,
    /// Seconds.
    pub delays: Vec<f64>,
}

/// One entry for each record that makes no event.
pub struct DeadColumns<'a> {
    pub cursors: Vec<i64>,
    pub offsets: Vec<i64>,
    pub reasons: Vec<&'a str>,
    pub details: Vec<String>,
    pub versions: Vec<i64>,
    pub values: Vec<Option<&'a [u8]>>,
    pub keys: Vec<Option<&'a [u8]>>,
    pub headers: Vec<&'a str>,
    pub source_ats: Vec<Option<i64>>,
}

fn count(n: usize) -> i32 {
    i32::try_from(n).expect("a batch is far below 2^31 events and bytes")
}

impl CursorColumns {
    pub fn of(batches: &[Batch], claim: &HashMap<CursorId, i64>) -> Self {
        let of = |value: fn(&Batch) -> i64| batches.iter().map(value).collect::<Vec<i64>>();
        Self {
            ids: of(|b| b.holding.cursor.0),
            epochs: of(|b| b.holding.epoch),
            expected: of(|b| b.expected),
            next: of(|b| b.next),
            delivery: batches.iter().map(|b| claim.get(&b.holding.cursor).copied().unwrap_or(-1)).collect(),
            events: batches.iter().map(|b| count(b.drafts.len())).collect(),
            bytes: of(|b| b.bytes() as i64),
            dead: batches.iter().map(|b| count(b.dead.len())).collect(),
            filtered: batches.iter().map(|b| super::offsets::multirange(&b.filtered)).collect(),
            tombstones: batches.iter().map(|b| super::offsets::multirange(&b.tombstones)).collect(),
        }
    }
}

fn drafts(batches: &[Batch]) -> Vec<(&Batch, &Draft)> {
    batches.iter().flat_map(|b| b.drafts.iter().map(move |d| (b, d))).collect()
}

impl<'a> EventColumns<'a> {
    pub fn of(batches: &'a [Batch]) -> Self {
        let drafts = drafts(batches);
        Self {
            cursors: drafts.iter().map(|(b, _)| b.holding.cursor.0).collect(),
            offsets: drafts.iter().map(|(_, d)| d.offset).collect(),
            indexes: drafts.iter().map(|(_, d)| d.index).collect(),
            keys: drafts.iter().map(|(_, d)| d.key.as_str()).collect(),
            types: drafts.iter().map(|(_, d)| d.event_type.as_str()).collect(),
            content_types: drafts.iter().map(|(_, d)| d.content_type.as_str()).collect(),
            traceparents: drafts.iter().map(|(_, d)| d.traceparent.as_deref()).collect(),
            source_ats: drafts.iter().map(|(_, d)| d.record_at).collect(),
            versions: drafts.iter().map(|(b, _)| b.holding.workflow.version).collect(),
            bodies: drafts.iter().map(|(_, d)| d.body.as_ref()).collect(),
            lanes: drafts.iter().map(|(_, d)| d.lane.map(|lane| lane.0)).collect(),
        }
    }
}

/// The events' columns without what can be left out. Of types, content types and versions an empty list means that all events have the one
/// value beside it; of indexes, that all are 0; of all others, that no event has one.
pub struct ThinColumns<'a> {
    pub each: EventColumns<'a>,
    pub event_type: Option<&'a str>,
    pub content_type: Option<&'a str>,
    pub version: Option<i64>,
    pub fingerprints: Vec<Option<&'a [u8]>>,
    pub remembered: Vec<f64>,
}

impl<'a> ThinColumns<'a> {
    pub fn of(batches: &'a [Batch]) -> Self {
        let mut each = EventColumns::of(batches);
        let event_type = shared(&mut each.types);
        let content_type = shared(&mut each.content_types);
        let version = shared(&mut each.versions);
        if each.indexes.iter().all(|index| *index == 0) {
            each.indexes.clear();
        }
        leave_out_if_absent(&mut each.traceparents);
        leave_out_if_absent(&mut each.source_ats);
        leave_out_if_absent(&mut each.lanes);
        let suppresses = batches.iter().any(|b| b.holding.workflow.delivery.deduplication.is_some());
        let (fingerprints, remembered) = match suppresses {
            true => {
                let SpecialColumns { fingerprints, remembered, .. } = SpecialColumns::of(batches);
                (fingerprints, remembered)
            }
            false => (Vec::new(), Vec::new()),
        };
        Self { each, event_type, content_type, version, fingerprints, remembered }
    }

    /// Whether the events differ in nothing but place, key, source time and body.
    pub fn are_alike(&self) -> bool {
        let Self { each, fingerprints, .. } = self;
        each.indexes.is_empty()
            && each.types.is_empty()
            && each.content_types.is_empty()
            && each.traceparents.is_empty()
            && each.versions.is_empty()
            && each.lanes.is_empty()
            && fingerprints.is_empty()
    }
}

/// Byte strings as one, and where each is in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined {
    pub all: Vec<u8>,
    /// Counted from 1, as Postgres does.
    pub from: Vec<i32>,
    pub bytes: Vec<i32>,
}

impl Joined {
    pub fn of(parts: &[&[u8]]) -> Self {
        let total = parts.iter().map(|part| part.len()).sum();
        let mut joined = Self { all: Vec::with_capacity(total), from: Vec::new(), bytes: Vec::new() };
        for part in parts {
            joined.from.push(count(joined.all.len() + 1));
            joined.bytes.push(count(part.len()));
            joined.all.extend_from_slice(part);
        }
        joined
    }
}

/// The value that all have, if there is one: the list is emptied then.
fn shared<T: Copy + PartialEq>(list: &mut Vec<T>) -> Option<T> {
    let first = *list.first()?;
    list.iter().all(|one| *one == first).then(|| {
        list.clear();
        first
    })
}

fn leave_out_if_absent<T>(list: &mut Vec<Option<T>>) {
    if list.iter().all(Option::is_none) {
        list.clear();
    }
}

impl<'a> SpecialColumns<'a> {
    pub fn of(batches: &'a [Batch]) -> Self {
        let drafts = drafts(batches);
        Self {
            fingerprints: drafts.iter().map(|(_, d)| d.fingerprint.as_ref().map(<[u8; 32]>::as_slice)).collect(),
            remembered: drafts.iter().map(|(b, _)| b.remembered().as_secs_f64()).collect(),
            delays: drafts.iter().map(|(b, _)| b.holding.workflow.delivery.delay.as_secs_f64()).collect(),
        }
    }
}

impl<'a> DeadColumns<'a> {
    pub fn of(batches: &'a [Batch]) -> Self {
        let records: Vec<(&Batch, &DeadRecord)> =
            batches.iter().flat_map(|b| b.dead.iter().map(move |d| (b, d))).collect();
        Self {
            cursors: records.iter().map(|(b, _)| b.holding.cursor.0).collect(),
            offsets: records.iter().map(|(_, d)| d.offset).collect(),
            reasons: records.iter().map(|(_, d)| d.reason.as_str()).collect(),
            details: records.iter().map(|(_, d)| d.detail.replace('\0', "\u{fffd}")).collect(),
            versions: records.iter().map(|(b, _)| b.holding.workflow.version).collect(),
            values: records.iter().map(|(_, d)| d.value.as_deref()).collect(),
            keys: records.iter().map(|(_, d)| d.key.as_deref()).collect(),
            headers: records.iter().map(|(_, d)| d.headers.as_str()).collect(),
            source_ats: records.iter().map(|(_, d)| d.source_at).collect(),
        }
    }
}

/// The columns of the general statement.
pub struct Special<'a> {
    cursors: CursorColumns,
    events: EventColumns<'a>,
    special: SpecialColumns<'a>,
    dead: DeadColumns<'a>,
}

impl<'a> Special<'a> {
    pub fn of(batches: &'a [Batch], claim: &HashMap<CursorId, i64>) -> Self {
        Self {
            cursors: CursorColumns::of(batches, claim),
            events: EventColumns::of(batches),
            special: SpecialColumns::of(batches),
            dead: DeadColumns::of(batches),
        }
    }

    /// The statement, and what it takes.
    pub fn statement<'b>(
        &'b self,
        process: &'b ProcessId,
        keys: &'b UniqueColumns,
    ) -> (&'static str, Vec<Parameter<'b>>) {
        let Self { cursors, events, special, dead } = self;
        let parameters = vec![
            uuid(process),
            int8s(&cursors.ids),
            int8s(&cursors.epochs),
            int8s(&cursors.expected),
            int8s(&cursors.next),
            int8s(&cursors.delivery),
            int4s(&cursors.events),
            int8s(&cursors.bytes),
            int4s(&cursors.dead),
            texts(&cursors.filtered),
            texts(&cursors.tombstones),
            int8s(&events.cursors),
            int8s(&events.offsets),
            int4s(&events.indexes),
            texts(&events.keys),
            texts(&events.types),
            texts(&events.content_types),
            texts(&events.traceparents),
            int8s(&events.source_ats),
            int8s(&events.versions),
            bytes_list(&events.bodies),
            int8s(&dead.cursors),
            int8s(&dead.offsets),
            texts(&dead.reasons),
            texts(&dead.details),
            int8s(&dead.versions),
            bytes_list(&dead.values),
            bytes_list(&dead.keys),
            texts(&dead.headers),
            int8s(&dead.source_ats),
            bytes_list(&special.fingerprints),
            float8s(&special.remembered),
            int8s(&events.lanes),
            float8s(&special.delays),
            texts(&keys.fates),
            int8s(&keys.waits_cursors),
            int8s(&keys.waits_offsets),
            int4s(&keys.waits_indexes),
            int4s(&keys.waits_generations),
            float8s(&keys.dues),
            texts(&keys.said),
        ];
        (include_str!("../../sql/ingest/append.sql"), parameters)
    }
}
