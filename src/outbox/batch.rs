//! What was read of one partition and is to be stored: consecutive records as batches, and the right under which they were read. No I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use super::load::Load;
use crate::config::Workflow;
use crate::event::{CursorId, Draft, Reason};
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

    /// Called by the writer after the commit, and by the direct path's window.
    pub fn note_stored(&self, next: i64) {
        self.stored_to.store(next, Ordering::Release);
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

    /// Whether it is nothing but events that are stored, to be sent now, or suppressed.
    pub(super) fn is_plain(&self) -> bool {
        self.dead.is_empty() && !self.holding.workflow.delivery.each_alone()
    }

    /// How long its changes are remembered, where repeats are suppressed.
    pub(super) fn remembered(&self) -> Duration {
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
