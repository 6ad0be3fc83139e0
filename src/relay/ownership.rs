//! Which deliveries this process holds: taking free ones, keeping leases alive, giving back what is no longer its own.

use std::time::Instant;

use tracing::{error, info, warn};

use super::dispatcher::{Dispatcher, MOST_BYTES_AHEAD, Message};
use super::window::Window;
use crate::config::InDoubt;
use crate::event::{CursorId, Place};
use crate::observe::chain;
use crate::outbox::claim::{self, Claim};
use crate::outbox::delivery::{self, Delivery, Failover, Found, Kept, Progress};
use crate::outbox::handoff::Desk;
use crate::outbox::{self, Database, workflow};

/// How many waiting events one claim reads.
const RANGE_EVENTS: usize = 1_000;
/// More than one record can make.
const WIDEST_RANGE: usize = 20_000;

impl Dispatcher {
    /// Takes deliveries that are free (those of partitions this process reads, and those that nobody comes for), and
    /// finds events that wait without anybody having said so.
    pub(super) fn look_for_deliveries(&mut self) {
        if self.looking {
            return;
        }
        self.looking = true;
        let (shared, workflow, messages) = (self.shared.clone(), self.workflow.clone(), self.messages.clone());
        let held: Vec<CursorId> = self.windows.keys().copied().collect();
        tokio::spawn(async move {
            let lease = workflow.delivery.lease;
            let mut taken = Vec::new();
            let found = match delivery::look(&shared.database, &workflow.id, shared.process, lease, &held).await {
                Ok(found) => found,
                Err(error) => {
                    warn!(workflow = %workflow.id, error = %chain(&error), "looking for deliveries failed");
                    Found::default()
                }
            };
            // One that we know we hold is never among them, even with its lease run out: it is extended, because what it
            // has sent is known here, and would be in doubt after a take-over.
            for cursor in found.free {
                match delivery::take(&shared.database, &workflow.id, cursor, shared.process, lease).await {
                    Ok(delivery) => taken.extend(delivery),
                    Err(error) => {
                        warn!(workflow = %workflow.id, error = %chain(&error), "taking a delivery failed");
                    }
                }
            }
            let _ = messages.send(Message::Looked { taken, waiting: found.waiting });
        });
    }

    pub(super) fn looked(&mut self, taken: Vec<Delivery>, waiting: &[CursorId]) {
        self.looking = false;
        for cursor in waiting {
            if let Some(window) = self.windows.get_mut(cursor) {
                window.may_wait = true;
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
            if self.stopping {
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
            if let Err(error) = workflow::audit(&database, "oncebox", "failover", Some(&id), &detail).await {
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
                let kept = match delivery::extend(&shared.database, shared.process, lease, &held).await {
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
        let Some(kept) = kept else { return };
        for Progress { cursor, epoch, .. } in asked {
            // Given back and taken anew meanwhile: the answer is about the one before.
            let Some(window) = self.windows.get_mut(cursor).filter(|window| window.epoch == *epoch) else { continue };
            match kept.iter().find(|k| k.cursor == *cursor) {
                Some(kept) => {
                    window.lease_until = lease_until;
                    if kept.wanted {
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

    /// Reads events that wait in the outbox, as far as there is room.
    pub(super) fn claim_waiting(&mut self) {
        if !self.may_send() {
            return;
        }
        let only_what_starts = self.workflow.delivery.in_doubt.claims_only_what_starts();
        let (events, bytes) = self.ahead();
        let bytes = MOST_BYTES_AHEAD.saturating_sub(bytes);
        let mut room = match only_what_starts {
            true => self.slots().free().saturating_sub(self.queued()),
            false => self.most_ahead().saturating_sub(events),
        };
        // Few large claims: planning one costs as much as reading hundreds of rows.
        if !only_what_starts && (room < self.most_ahead() / 2 || bytes < MOST_BYTES_AHEAD / 2) {
            return;
        }
        let sure = self.slots().kept().max(1);
        let bytes = i64::try_from(bytes / self.windows.len().max(1)).expect("memory is small");
        let mut windows: Vec<&mut Window> = self.windows.values_mut().filter(|window| window.may_claim()).collect();
        windows.sort_by_key(|window| window.claimed_at);
        for window in windows {
            // Whoever waited longest gets the room that its next record needs before anybody else gets any.
            if room == 0 || (only_what_starts && room < window.claim_limit) {
                return;
            }
            window.claiming = true;
            window.claimed_at = Instant::now();
            let limit = room.min(RANGE_EVENTS).max(window.claim_limit);
            room = room.saturating_sub(limit);
            // A claim leaves out its last record when that may be cut, so one more is asked for than may start.
            let (slots, limit) = if only_what_starts { (limit, limit + 1) } else { (0, limit) };
            self.reserved_for_firsts += slots;
            let limit = i64::try_from(limit).expect("a range is small");
            let (cursor, epoch, claimed_to) = (window.cursor, window.epoch, window.claimed_to());
            let (database, messages, id) =
                (self.shared.database.clone(), self.messages.clone(), self.workflow.id.clone());
            tokio::spawn(async move {
                let mut claim = claim::waiting(&database, (cursor, epoch), claimed_to, limit, bytes).await;
                if only_what_starts && slots >= sure && matches!(claim, Ok(Claim::TooNarrow)) {
                    claim = spread(&database, (cursor, epoch), claimed_to, &id).await;
                }
                let claim = claim.map_err(|error| {
                    warn!(workflow = %id, error = %chain(&error), "claiming waiting events failed");
                });
                let _ = messages.send(Message::Waiting { cursor, epoch, slots, claim: claim.ok() });
            });
        }
    }

    /// Claimed events that no request was made for yet.
    pub(super) fn queued(&self) -> usize {
        self.windows.values().map(Window::queued).sum()
    }

    pub(super) fn claimed(&mut self, cursor: CursorId, epoch: i64, claim: Option<Claim>) {
        let only_what_starts = self.workflow.delivery.in_doubt.claims_only_what_starts();
        let sure = self.slots().kept().max(1);
        let Some(window) = self.windows.get_mut(&cursor).filter(|window| window.epoch == epoch) else { return };
        window.claiming = false;
        match claim {
            // Came too late to be started: never sent, so given back with the rest.
            Some(Claim::Range { events, .. }) if window.releasing && !events.is_empty() => {}
            Some(Claim::Range { claimed_to, events }) => {
                // What was read may have been cut by the limit: asked again until nothing comes.
                // A record whose events were each given a life of their own has none here, and they are due now.
                window.may_wait = !events.is_empty() || claimed_to > window.claimed_to();
                self.next_retry_at = if events.is_empty() { Instant::now() } else { self.next_retry_at };
                window.claim_limit = 0;
                let in_turn = window.has_queued();
                window.accept(claimed_to, events);
                if !in_turn && window.has_queued() {
                    self.turns.push_back(cursor);
                }
            }
            Some(Claim::Nothing) => window.may_wait = false,
            // Asked again with the slots that first attempts are sure to get; more than those are leased one by one.
            Some(Claim::TooNarrow) if only_what_starts => window.claim_limit = sure,
            Some(Claim::TooNarrow) => window.claim_limit = WIDEST_RANGE,
            // The range stays another than we believe, after a lost reply for one: the delivery is given back and taken
            // anew, which sorts out what belongs to whom.
            Some(Claim::Astray) if window.goes_astray(Instant::now()) => self.release(cursor),
            Some(Claim::Astray) => {}
            // Asked again; if the claim was made without our knowing, it is found astray then.
            None => {}
        }
    }
}

/// The next record has more events than may start together: each is leased by itself.
async fn spread(
    database: &Database,
    held: (CursorId, i64),
    claimed_to: i64,
    workflow: &str,
) -> Result<Claim, outbox::Error> {
    let moved = claim::spread(database, held, claimed_to, workflow).await?;
    Ok(moved.map_or(Claim::Astray, |claimed_to| Claim::Range { claimed_to, events: Vec::new() }))
}
