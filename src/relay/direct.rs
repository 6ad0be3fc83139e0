//! First attempts of the direct path: partitions come and go, events are started in turn, failures are stored.
//!
//! A delivery is over with its answer: nothing is written. A failure is over when it is stored; until then its partition's
//! mark stays before it.

use std::time::Duration;

use tracing::debug;

use super::attempts::{Job, seconds_since};
use super::dispatcher::Dispatcher;
use super::settler::Undelivered;
use crate::direct::Parcel;
use crate::direct::window::Window;
use crate::event::{CursorId, Place};
use crate::outbox::attempt::{AttemptRecord, Right};
use crate::outbox::spill::{Burial, Spill, SpillEnd};
use crate::send::verdict::Tries;

impl Dispatcher {
    pub(super) fn receive(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Open(opening) => {
                let window = Window::new(opening);
                debug!(workflow = %self.workflow.id, epoch = window.epoch(), "a partition of the direct path is open");
                self.direct.insert((window.cursor(), window.epoch()), window);
            }
            Parcel::Batch(batch) => {
                let key = (batch.holding.cursor, batch.holding.epoch);
                let Some(window) = self.direct.get_mut(&key).filter(|w| !w.holding().is_lost()) else { return };
                self.metrics.ingested.inc_by(batch.drafts.len() as u64);
                self.metrics.filtered.inc_by((batch.filtered.len() + batch.tombstones.len()) as u64);
                let in_turn = window.has_queued();
                let unreadable = window.accept(batch, jiff::Timestamp::now());
                if !in_turn && window.has_queued() {
                    self.direct_turns.push_back(key);
                }
                for (place, record) in unreadable {
                    self.storing += 1;
                    let (workflow, version) = (self.workflow.id.clone(), self.workflow.version);
                    let burial = Burial { place, workflow, version, epoch: key.1, record };
                    self.shared.settler.undelivered(Undelivered::Buries(burial, self.reply.clone()));
                }
            }
            Parcel::Close(closing) => {
                let key = (closing.holding.cursor, closing.holding.epoch);
                if let Some(window) = self.direct.get_mut(&key) {
                    window.close(Some(closing.finished));
                }
            }
        }
    }

    pub(super) fn direct_waits(&self) -> bool {
        self.direct.values().any(Window::has_queued)
    }

    /// Starts queued events, one per partition in turn, while there are slots and what failed is being stored. A partition
    /// that is given up finishes the record it has begun, also while stopping.
    pub(super) fn start_direct(&mut self) {
        let mut passes = self.direct_turns.len();
        while passes > 0 && self.slots().free() > 0 && self.first_may_start() && self.storing < self.most_ahead() {
            let Some(key) = self.direct_turns.pop_front() else { return };
            passes -= 1;
            let may_send = self.may_send();
            let Some(window) = self.direct.get_mut(&key) else { continue };
            if window.holding().is_lost() {
                window.close(None);
            }
            if !may_send && !window.is_closing() {
                self.direct_turns.push_back(key);
                continue;
            }
            let Some((event, sends)) = window.start() else { continue };
            if window.has_queued() {
                self.direct_turns.push_back(key);
                passes += 1;
            }
            if sends == 1 {
                self.note_start(&event);
            }
            let tries = Tries { sends, counted: 1, age: Duration::ZERO };
            self.send(Job { event, right: Right::Direct { epoch: key.1 }, tries });
        }
    }

    /// An answer 2xx: that is all.
    pub(super) fn delivered_directly(&mut self, job: &Job) {
        self.metrics.delivered.inc();
        if let Some(at) = job.event.record_at {
            self.metrics.latency.observe(seconds_since(at * 1000));
        }
        self.passed(job.event.place, job.right.fence(), true);
    }

    /// A probe of an endpoint that still fails is not stored: with each one Postgres would fill up.
    pub(super) fn puts_back(&mut self, job: Job) {
        let key = (job.event.place.cursor, job.right.fence());
        let Some(window) = self.direct.get_mut(&key) else { return };
        let in_turn = window.has_queued();
        window.put_back(job.event, job.tries.sends);
        if !in_turn && window.has_queued() {
            self.direct_turns.push_back(key);
        }
    }

    /// Has an event stored whose attempt failed.
    pub(super) fn spills(&mut self, job: Job, counted: u32, end: SpillEnd, attempt: AttemptRecord) {
        let key = (job.event.place.cursor, job.right.fence());
        if self.direct.get(&key).is_none_or(|window| window.holding().is_lost()) {
            // Read again by whoever has the partition now.
            self.passed(job.event.place, key.1, false);
            return;
        }
        self.storing += 1;
        let spill = Spill {
            workflow: self.workflow.id.clone(),
            version: self.workflow.version,
            epoch: key.1,
            sends: job.tries.sends,
            counted,
            end,
            attempt,
            event: job.event,
        };
        self.shared.settler.undelivered(Undelivered::Spills(Box::new(spill), self.reply.clone()));
    }

    /// An event is over here: delivered or stored, or another process's by now.
    pub(super) fn passed(&mut self, place: Place, epoch: i64, is_safe: bool) {
        let Some(window) = self.direct.get_mut(&(place.cursor, epoch)) else { return };
        if is_safe {
            window.settle(place.offset);
        } else {
            window.holding().lose();
            window.abandon();
        }
    }

    /// Drops windows that are over; whoever waits for one hears of it by that.
    pub(super) fn drop_spent(&mut self) {
        for window in self.direct.values_mut().filter(|window| window.holding().is_lost()) {
            window.close(None);
        }
        self.direct.retain(|_, window| !window.is_spent());
    }
}

/// A partition in this process's hands: its cursor, and the epoch it was taken under.
pub(super) type Key = (CursorId, i64);
