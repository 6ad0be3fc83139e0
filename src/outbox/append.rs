//! Enters: what was read from partitions, as batches. Leaves: rows and moved cursors, committed together, or nothing.
//!
//! A batch whose cursor did not move is fenced: another process owns it, or the database lost commits. A COMMIT whose
//! reply was lost is resolved by reading the cursor, which is either where it was or where it should be.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::civil::Date;

use super::load::Load;
use super::sql::{bytes_list, float8s, int4s, int8s, texts, uuid};
use super::{Database, Error, Purpose};
use crate::config::Workflow;
use crate::event::{CursorId, Draft, ProcessId, Reason};
use crate::transform::Origin;

/// One assignment of one partition to this process, until it is revoked or fenced.
#[derive(Debug)]
pub struct Holding {
    pub workflow: Arc<Workflow>,
    pub origin: Origin,
    pub cursor: CursorId,
    pub epoch: i64,
    /// Set once; batches of a lost holding are dropped, never written.
    lost: AtomicBool,
    /// The stored next offset, as far as this process moved it.
    stored_to: AtomicI64,
    /// The offset up to which records were made into events.
    transformed_to: AtomicI64,
}

impl Holding {
    pub fn new(workflow: Arc<Workflow>, origin: Origin, cursor: CursorId, epoch: i64, next_offset: i64) -> Self {
        let (lost, stored_to) = (AtomicBool::new(false), AtomicI64::new(next_offset));
        let transformed_to = AtomicI64::new(next_offset);
        Self { workflow, origin, cursor, epoch, lost, stored_to, transformed_to }
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    pub fn transformed_to(&self) -> i64 {
        self.transformed_to.load(Ordering::Acquire)
    }

    pub fn note_transformed(&self, next: i64) {
        self.transformed_to.store(next, Ordering::Release);
    }

    pub fn stored_to(&self) -> i64 {
        self.stored_to.load(Ordering::Acquire)
    }
}

/// A record that could not be made into events.
#[derive(Debug)]
pub struct DeadRecord {
    pub offset: i64,
    pub reason: Reason,
    pub detail: String,
    pub value: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    /// JSON: a list of [name, value], both base64.
    pub headers: String,
    pub source_at: Option<i64>,
}

/// Consecutive records of one partition and what became of them.
#[derive(Debug)]
pub struct Batch {
    pub holding: Arc<Holding>,
    /// The cursor must stand here, and moves to `next`.
    pub expected: i64,
    pub next: i64,
    pub drafts: Vec<Draft>,
    pub dead: Vec<DeadRecord>,
    pub filtered: Vec<i64>,
    pub tombstones: Vec<i64>,
    /// What it holds of the workflow's memory, until it is stored or dropped.
    pub loads: Vec<Load>,
}

impl Batch {
    pub fn bytes(&self) -> usize {
        self.drafts.iter().map(|draft| draft.body.len()).sum()
    }

    /// How long its changes are remembered, where repeats are suppressed.
    fn remembered(&self) -> Duration {
        self.holding.workflow.delivery.deduplication.as_ref().map_or(Duration::ZERO, |d| d.ttl)
    }

    /// Joins the partition's next batch onto this one.
    pub fn extend(&mut self, next: Batch) {
        debug_assert_eq!(self.next, next.expected);
        self.next = next.next;
        self.drafts.extend(next.drafts);
        self.dead.extend(next.dead);
        self.filtered.extend(next.filtered);
        self.tombstones.extend(next.tombstones);
        self.loads.extend(next.loads);
    }
}

/// A batch that is stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its first attempts belong to this process.
    pub claimed: bool,
    pub generation: i32,
    pub day: Date,
    /// Offset and index of events that were not stored, because the source had published them before.
    pub suppressed: HashSet<(i64, i32)>,
    /// Offset and index of events that wait in retry for their time.
    pub scheduled: HashSet<(i64, i32)>,
}

/// Stores each batch whose cursor this process still owns; fenced ones are missing from the answer.
/// `claim` has the delivery epoch under which a batch's first attempts are claimed, if they are.
pub async fn append(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
    claim: &HashMap<CursorId, i64>,
) -> Result<HashMap<CursorId, Stored>, Error> {
    crate::failpoint!("ingest.commit_fails", Err(Error::TooSlow));
    let of = |value: fn(&Batch) -> i64| batches.iter().map(value).collect::<Vec<i64>>();
    let count = |n: usize| i32::try_from(n).expect("a batch is far below 2^31 events");
    let cursors = of(|b| b.holding.cursor.0);
    let epochs = of(|b| b.holding.epoch);
    let expected = of(|b| b.expected);
    let next = of(|b| b.next);
    let delivery: Vec<i64> = batches.iter().map(|b| claim.get(&b.holding.cursor).copied().unwrap_or(-1)).collect();
    let events: Vec<i32> = batches.iter().map(|b| count(b.drafts.len())).collect();
    let bytes = of(|b| b.bytes() as i64);
    let dead: Vec<i32> = batches.iter().map(|b| count(b.dead.len())).collect();
    let filtered: Vec<String> = batches.iter().map(|b| super::offsets::multirange(&b.filtered)).collect();
    let tombstones: Vec<String> = batches.iter().map(|b| super::offsets::multirange(&b.tombstones)).collect();

    let drafts: Vec<(&Batch, &Draft)> = batches.iter().flat_map(|b| b.drafts.iter().map(move |d| (b, d))).collect();
    let event_cursors: Vec<i64> = drafts.iter().map(|(b, _)| b.holding.cursor.0).collect();
    let event_offsets: Vec<i64> = drafts.iter().map(|(_, d)| d.offset).collect();
    let event_indexes: Vec<i32> = drafts.iter().map(|(_, d)| d.index).collect();
    let keys: Vec<&str> = drafts.iter().map(|(_, d)| d.key.as_str()).collect();
    let types: Vec<&str> = drafts.iter().map(|(_, d)| d.event_type.as_str()).collect();
    let content_types: Vec<&str> = drafts.iter().map(|(_, d)| d.content_type.as_str()).collect();
    let traceparents: Vec<Option<&str>> = drafts.iter().map(|(_, d)| d.traceparent.as_deref()).collect();
    let source_ats: Vec<Option<i64>> = drafts.iter().map(|(_, d)| d.record_at).collect();
    let versions: Vec<i64> = drafts.iter().map(|(b, _)| b.holding.workflow.version).collect();
    let bodies: Vec<&[u8]> = drafts.iter().map(|(_, d)| d.body.as_ref()).collect();
    let fingerprints: Vec<Option<&[u8]>> =
        drafts.iter().map(|(_, d)| d.fingerprint.as_ref().map(<[u8; 32]>::as_slice)).collect();
    let lanes: Vec<Option<i64>> = drafts.iter().map(|(_, d)| d.lane.map(|lane| lane.0)).collect();
    let delays: Vec<f64> = drafts.iter().map(|(b, _)| b.holding.workflow.delivery.delay.as_secs_f64()).collect();
    let remembered: Vec<f64> = drafts.iter().map(|(b, _)| b.remembered().as_secs_f64()).collect();

    let records: Vec<(&Batch, &DeadRecord)> = batches.iter().flat_map(|b| b.dead.iter().map(move |d| (b, d))).collect();
    let dead_cursors: Vec<i64> = records.iter().map(|(b, _)| b.holding.cursor.0).collect();
    let dead_offsets: Vec<i64> = records.iter().map(|(_, d)| d.offset).collect();
    let reasons: Vec<&str> = records.iter().map(|(_, d)| d.reason.as_str()).collect();
    let details: Vec<String> = records.iter().map(|(_, d)| d.detail.replace('\0', "\u{fffd}")).collect();
    let dead_versions: Vec<i64> = records.iter().map(|(b, _)| b.holding.workflow.version).collect();
    let values: Vec<Option<&[u8]>> = records.iter().map(|(_, d)| d.value.as_deref()).collect();
    let record_keys: Vec<Option<&[u8]>> = records.iter().map(|(_, d)| d.key.as_deref()).collect();
    let headers: Vec<&str> = records.iter().map(|(_, d)| d.headers.as_str()).collect();
    let dead_ats: Vec<Option<i64>> = records.iter().map(|(_, d)| d.source_at).collect();

    let parameters = [
        uuid(&process),
        int8s(&cursors),
        int8s(&epochs),
        int8s(&expected),
        int8s(&next),
        int8s(&delivery),
        int4s(&events),
        int8s(&bytes),
        int4s(&dead),
        texts(&filtered),
        texts(&tombstones),
        int8s(&event_cursors),
        int8s(&event_offsets),
        int4s(&event_indexes),
        texts(&keys),
        texts(&types),
        texts(&content_types),
        texts(&traceparents),
        int8s(&source_ats),
        int8s(&versions),
        bytes_list(&bodies),
        int8s(&dead_cursors),
        int8s(&dead_offsets),
        texts(&reasons),
        texts(&details),
        int8s(&dead_versions),
        bytes_list(&values),
        bytes_list(&record_keys),
        texts(&headers),
        int8s(&dead_ats),
        bytes_list(&fingerprints),
        float8s(&remembered),
        int8s(&lanes),
        float8s(&delays),
    ];
    let rows = database.query(Purpose::Append, include_str!("../../sql/ingest/append.sql"), &parameters).await?;
    crate::failpoint!("ingest.commit_unanswered", Err(Error::TooSlow));
    let (left_out, moved): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.get::<_, Option<i64>>("left_offset").is_some());
    let mut stored: HashMap<CursorId, Stored> = moved
        .into_iter()
        .map(|row| {
            let (claimed, generation, day) = (row.get("claimed"), row.get("generation"), row.get("day"));
            (
                CursorId(row.get("id")),
                Stored { claimed, generation, day, suppressed: HashSet::new(), scheduled: HashSet::new() },
            )
        })
        .collect();
    for row in left_out {
        if let Some(stored) = stored.get_mut(&CursorId(row.get("id"))) {
            let list = if row.get("suppressed") { &mut stored.suppressed } else { &mut stored.scheduled };
            list.insert((row.get("left_offset"), row.get("left_index")));
        }
    }
    Ok(stored)
}

/// What a lost reply meant for one batch.
#[derive(Debug, Clone, Copy)]
pub enum Resolved {
    /// The cursor is where the batch moves it. Whether its events were claimed too is not known.
    Committed,
    /// The cursor is where it was: the append can be made again.
    NotCommitted,
    Fenced,
}

/// Reads the cursors of batches whose append was not answered.
pub async fn resolve(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
) -> Result<HashMap<CursorId, Resolved>, Error> {
    let ids: Vec<i64> = batches.iter().map(|b| b.holding.cursor.0).collect();
    let rows =
        database.query(Purpose::Append, include_str!("../../sql/ingest/read_cursors.sql"), &[int8s(&ids)]).await?;
    let mut answers = HashMap::new();
    for batch in batches {
        let row = rows.iter().find(|row| row.get::<_, i64>("id") == batch.holding.cursor.0);
        let resolved = match row {
            Some(row)
                if row.get::<_, Option<ProcessId>>("owner") == Some(process)
                    && row.get::<_, i64>("owner_epoch") == batch.holding.epoch =>
            {
                match row.get::<_, i64>("next_offset") {
                    next if next == batch.next => Resolved::Committed,
                    next if next == batch.expected => Resolved::NotCommitted,
                    _ => Resolved::Fenced,
                }
            }
            Some(_) | None => Resolved::Fenced,
        };
        answers.insert(batch.holding.cursor, resolved);
    }
    Ok(answers)
}

/// Marks how far a holding is stored or delivered. Called by the writer after the commit, and by the direct path's window.
pub fn note_stored(holding: &Holding, next: i64) {
    holding.stored_to.store(next, Ordering::Release);
}
