//! How much was read and is not stored yet. Bounds the memory of a workflow's ingest: the reader waits while it is full.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Amount {
    records: usize,
    bytes: usize,
}

/// The amount under way between reading and storing.
#[derive(Debug, Default)]
pub struct Pipeline {
    amount: Mutex<Amount>,
    fell: Condvar,
}

const MOST_RECORDS: usize = 10_000;
const MOST_BYTES: usize = 64 << 20;

/// A part of the amount; gone when it is dropped, whatever became of the records.
#[derive(Debug)]
pub struct Load {
    pipeline: Arc<Pipeline>,
    amount: Amount,
}

impl Pipeline {
    pub fn add(self: &Arc<Self>, records: usize, bytes: usize) -> Load {
        let amount = Amount { records, bytes };
        let mut total = self.lock();
        total.records += records;
        total.bytes += bytes;
        drop(total);
        Load { pipeline: Arc::clone(self), amount }
    }

    /// Waits until there is room, at most `patience`. Answers whether there is.
    pub fn wait_for_room(&self, patience: Duration) -> bool {
        self.wait(patience, |amount| amount.records < MOST_RECORDS && amount.bytes < MOST_BYTES)
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
