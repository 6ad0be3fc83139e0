//! Which deliveries this process holds: taking free ones, keeping leases alive, giving back what is no longer its own.

use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::Shared;
use super::dispatcher::Dispatcher;
use super::inbox::Message;
use super::window::Window;
use crate::config::InDoubt;
use crate::event::{CursorId, Place};
use crate::observe::chain;
use crate::outbox::audit::{self, Entry};
use crate::outbox::database::Within;
use crate::outbox::delivery::{self, Delivery, Failover, Kept, Progress, TakeOver, Turn};
use crate::outbox::fleet::GONE_AFTER;
use crate::outbox::handoff::Desk;
use crate::outbox::{Purpose, claim};

/// Before leases are extended again when that failed.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Takes deliveries that are free (those of partitions this process reads or whose turn it is, and those that nobody comes for),
    /// and finds events that wait without anybody having said so.
    pub(super) fn look_for_deliveries(&mut self) {
        if self.looking {
            return;
        }
        self.looking = true;
        let (shared, workflow, messages) = (self.shared.clone(), self.workflow.clone(), self.messages.clone());
        let held: Vec<CursorId> = self.windows.keys().copied().collect();
        let began = Instant::now();
        let take_over = if began < self.unsure_until { TakeOver::Nobodys } else { TakeOver::Expired };
        tokio::spawn(async move {
            let ordered = workflow.delivery.ordering.is_some();
            let mut taken = Vec::new();
            let me = (shared.process, workflow.delivery.lease);
            let found = match delivery::look(&shared.database, &workflow.id, me, (&held, ordered), take_over).await {
                Ok(found) => found,
                Err(error) => {
                    warn!(workflow = %workflow.id, error = %chain(&error), "looking for deliveries failed");
                    let _ = messages.send(Message::LookFailed { began });
                    return;
                }
            };
            // One that we know we hold is never among them, even with its lease run out: it is extended, because what it
            // has sent is known here, and would be in doubt after a take-over.
            for cursor in found.free {
                match delivery::take(&shared.database, &workflow.id, cursor, me, ordered).await {
                    Ok(delivery) => taken.extend(delivery),
                    Err(error) => {
                        warn!(workflow = %workflow.id, error = %chain(&error), "taking a delivery failed");
                    }
                }
            }
            let fresh: Vec<(CursorId, i64)> = taken.iter().map(|delivery| (delivery.cursor, delivery.epoch)).collect();
            let _ = messages.send(Message::Looked { taken, waiting: found.waiting });
            for (cursor, epoch) in fresh.into_iter().filter(|_| !ordered) {
                let_go(&shared, &workflow.id, cursor, epoch).await;
            }
        });
    }

    /// Postgres was away for so long that others look gone: what they hold is theirs until they had time to say that they are there.
    pub(super) fn look_failed(&mut self, began: Instant) {
        self.looking = false;
        let now = Instant::now();
        if now - *self.failing_since.get_or_insert(began) >= GONE_AFTER {
            self.unsure_until = now + GONE_AFTER;
        }
    }

    pub(super) fn looked(&mut self, taken: Vec<Delivery>, waiting: &[CursorId]) {
        self.looking = false;
        self.failing_since = None;
        for cursor in waiting {
            if let Some(window) = self.windows.get_mut(cursor) {
                window.may_wait = true;
                window.reads_back = true;
            }
        }
        self.taken(taken);
    }

    fn taken(&mut self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            if delivery.in_doubt > 0 {
                self.metrics.in_doubt.inc_by(delivery.in_doubt);
                self.metrics.leases_expired.inc_by(delivery.in_doubt);
                self.next_retry_at = Instant::now();
                info!(workflow = %self.workflow.id, in_doubt = delivery.in_doubt, "took over events in doubt");
            }
            if let Some(failover) = &delivery.failover {
                self.tell_of_failover(failover);
            }
            let window = Window::new(&delivery);
            let desk = Desk {
                epoch: delivery.epoch,
                has_room: self.has_room.clone(),
                sender: self.news.clone(),
                told: window.told.clone(),
            };
            self.shared.desks.open(delivery.cursor, desk);
            self.windows.insert(delivery.cursor, window);
            if self.stopping || self.share.stands_by() {
                self.release(delivery.cursor);
            }
        }
    }

    /// Attempts that were committed and then lost with the old server may be made again. Where that breaks the promise,
    /// it is put on record: from where on, and since when.
    fn tell_of_failover(&self, failover: &Failover) {
        let Failover { topic, partition, from } = failover;
        if self.workflow.delivery.in_doubt != InDoubt::End {
            info!(workflow = %self.workflow.id, topic, partition, "the database failed over");
            return;
        }
        error!(
            workflow = %self.workflow.id, topic, partition, from,
            "the database failed over: if it lost commits, events from this offset on may be sent a second time"
        );
        let detail = format!(
            "{topic}/{partition}: events from offset {from} on may be sent a second time, if the server that took over \
             lacks commits of the one before"
        );
        let (database, id) = (self.shared.database.clone(), self.workflow.id.clone());
        tokio::spawn(async move {
            let entry = Entry { who: "oncebox", action: "failover", workflow: Some(&id), detail: &detail };
            if let Err(error) = audit::write(Within::Alone(&database, Purpose::Admin), &entry).await {
                warn!(workflow = %id, error = %chain(&error), "the failover could not be put on record");
            }
        });
    }

    /// Extends every lease: of deliveries, and of retries whose outcome is not written yet.
    pub(super) fn extend(&mut self) {
        let held: Vec<_> = self.windows.values().filter(|w| !w.leaving).map(Window::progress).collect();
        let retries: Vec<(Place, i64)> = self.retries.iter().map(|(place, fence)| (*place, *fence)).collect();
        let (shared, messages) = (self.shared.clone(), self.messages.clone());
        let (lease, id) = (self.workflow.delivery.lease, self.workflow.id.clone());
        if held.is_empty() && retries.is_empty() {
            return;
        }
        tokio::spawn(async move {
            let lease_until = Instant::now() + lease;
            if !held.is_empty() {
                let kept = match delivery::extend(&shared.database, &id, (shared.process, lease), &held).await {
                    Ok(kept) => Some(kept),
                    Err(error) => {
                        warn!(workflow = %id, error = %chain(&error), "extending leases failed; sending may stop");
                        None
                    }
                };
                let _ = messages.send(Message::Extended { asked: held, kept, lease_until });
            }
            // A lease that is not extended runs out; its request is bounded by a deadline before that.
            if !retries.is_empty()
                && let Err(error) = claim::extend_retries(&shared.database, &retries, lease).await
            {
                warn!(workflow = %id, error = %chain(&error), "extending the leases of retries failed");
            }
        });
    }

    pub(super) fn extended(&mut self, asked: &[Progress], kept: Option<Vec<Kept>>, lease_until: Instant) {
        // No answer: the leases run on as they are, and nothing starts that they would not outlast.
        let Some(kept) = kept else {
            self.next_beat_at = self.next_beat_at.min(Instant::now() + ASK_AGAIN);
            return;
        };
        for Progress { cursor, epoch, .. } in asked {
            // Given back and taken anew meanwhile: the answer is about the one before.
            let Some(window) = self.windows.get_mut(cursor).filter(|window| window.epoch == *epoch) else { continue };
            match kept.iter().find(|k| k.cursor == *cursor) {
                Some(kept) => {
                    window.lease_until = lease_until;
                    if kept.wanted && Instant::now() >= self.unsure_until {
                        self.release(*cursor);
                    }
                }
                None => self.lost(*cursor),
            }
        }
    }

    /// Another process has taken the delivery over: what is queued is no longer ours, what is under way may come late.
    fn lost(&mut self, cursor: CursorId) {
        if let Some(window) = self.windows.get(&cursor)
            && !window.leaving
        {
            warn!(
                workflow = %self.workflow.id,
                "a delivery is not ours any more: another process took it over, or the database failed over"
            );
            self.shared.desks.close(cursor);
            self.windows.remove(&cursor);
        }
    }

    /// Begins to give a delivery back.
    pub(super) fn release(&mut self, cursor: CursorId) {
        self.shared.desks.close(cursor);
        if let Some(window) = self.windows.get_mut(&cursor) {
            window.release();
            let (behind, epoch) = (window.take_behind(), window.epoch);
            self.put_behind(behind, epoch);
        }
    }

    /// Lets go of deliveries whose started events are all settled.
    pub(super) fn let_go(&mut self) {
        for window in self.windows.values_mut().filter(|window| window.is_spent()) {
            window.leaving = true;
            let (cursor, progress, claimed_to) = (window.cursor, window.progress(), window.claimed_to());
            let (shared, messages, id) = (self.shared.clone(), self.messages.clone(), self.workflow.id.clone());
            tokio::spawn(async move {
                let database = &shared.database;
                let mut outcome = delivery::give_back(database, cursor, progress.epoch, claimed_to).await;
                if outcome.is_ok() {
                    outcome = delivery::release(database, shared.process, &progress).await;
                }
                if let Err(error) = outcome {
                    // The lease runs out by itself, and all of it is settled: nothing is in doubt.
                    warn!(workflow = %id, error = %chain(&error), "giving a delivery back failed; its lease will end");
                }
                let _ = messages.send(Message::Released { cursor, epoch: progress.epoch });
            });
        }
    }
}

/// Lets go all that waited for its turn, as long as it takes.
async fn let_go(shared: &Shared, workflow: &str, cursor: CursorId, epoch: i64) {
    let mut last = Turn::FIRST;
    loop {
        match delivery::let_go(&shared.database, cursor, epoch, last).await {
            Ok(Some(turn)) => last = turn,
            Ok(None) => return,
            Err(error) => {
                warn!(workflow, error = %chain(&error), "letting events go that waited for their turn failed; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
