//! How much was read and is not stored yet. Bounds the memory of a workflow's ingest: the reader waits while it is full. All
//! workflows of a process share one budget.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Amount {
    records: usize,
    bytes: usize,
}

/// Bodies that a process holds for each of its workflows, in each of two places: on the way to be stored, and claimed.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

/// All workflows together, in each place.
const BYTES_IN_ALL: usize = 48 << 20;
const MOST_BYTES: usize = 48 << 20;
/// Whoever holds nothing takes what comes, whatever its size: nobody is stopped by a small share. Up to 2,048 workflows.
const FEWEST_BYTES: usize = 24 << 10;

impl Budget {
    /// So many workflows share it from now on.
    pub fn share_among(&self, workflows: usize) {
        self.0.store(workflows, Ordering::Relaxed);
    }

    /// What one workflow may hold in one place.
    pub fn bytes(&self) -> usize {
        (BYTES_IN_ALL / self.0.load(Ordering::Relaxed).max(1)).clamp(FEWEST_BYTES, MOST_BYTES)
    }
}

/// The amount under way between reading and storing.
#[derive(Debug, Default)]
pub struct Pipeline {
    budget: Arc<Budget>,
    amount: Mutex<Amount>,
    fell: Condvar,
}

const MOST_RECORDS: usize = 10_000;

/// A part of the amount; gone when it is dropped, whatever became of the records.
#[derive(Debug)]
pub struct Load {
    pipeline: Arc<Pipeline>,
    amount: Amount,
}

impl Pipeline {
    pub fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { budget: Arc::clone(budget), ..Self::default() })
    }

    pub fn add(self: &Arc<Self>, records: usize, bytes: usize) -> Load {
        let amount = Amount { records, bytes };
        let mut total = self.lock();
        total.records += records;
        total.bytes += bytes;
        drop(total);
        Load { pipeline: Arc::clone(self), amount }
    }

    /// Records that were read and are not stored yet.
    pub fn records(&self) -> usize {
        self.lock().records
    }

    /// Waits until there is room, at most `patience`. Answers whether there is.
    pub fn wait_for_room(&self, patience: Duration) -> bool {
        let most = self.budget.bytes();
        self.wait(patience, |amount| amount.records < MOST_RECORDS && amount.bytes < most)
    }

    /// Waits until everything is stored or dropped, at most `patience`. Answers whether it is.
    pub fn wait_until_empty(&self, patience: Duration) -> bool {
        self.wait(patience, |amount| amount.records == 0)
    }

    fn wait(&self, patience: Duration, fits: impl Fn(&Amount) -> bool) -> bool {
        let total = self.lock();
        let (total, _) = self
            .fell
            .wait_timeout_while(total, patience, |amount| !fits(amount))
            .expect("no holder of this lock panics");
        fits(&total)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Amount> {
        self.amount.lock().expect("no holder of this lock panics")
    }
}

impl Load {
    /// What was read has become something else, larger or smaller.
    pub fn weigh(&mut self, bytes: usize) {
        let mut total = self.pipeline.lock();
        total.bytes = total.bytes - self.amount.bytes + bytes;
        self.amount.bytes = bytes;
    }

    /// All of it is delivered or stored, and only its offsets are still remembered: that weighs a tenth.
    pub fn shrink(&mut self) {
        let left = Amount { records: self.amount.records.div_ceil(10), bytes: 0 };
        let mut total = self.pipeline.lock();
        total.records = total.records - self.amount.records + left.records;
        total.bytes -= self.amount.bytes;
        self.amount = left;
        drop(total);
        self.pipeline.fell.notify_all();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let mut total = self.pipeline.lock();
        total.records -= self.amount.records;
        total.bytes -= self.amount.bytes;
        drop(total);
        self.pipeline.fell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_workflows_share_one_budget() {
        let budget = Budget::default();
        assert_eq!(budget.bytes(), MOST_BYTES);
        for workflows in [100, 1_000, 2_000] {
            budget.share_among(workflows);
            assert!(workflows * budget.bytes() <= BYTES_IN_ALL);
        }
        budget.share_among(10_000);
        assert_eq!(budget.bytes(), FEWEST_BYTES, "none is left without");
    }
}
