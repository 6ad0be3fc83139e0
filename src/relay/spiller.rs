//! Enters: events and records of the direct path that could not be delivered. Leaves: stored ones, and word of each.
//!
//! One that is to become a dead letter is stored first, leased to this process, and ended like any other: should the
//! process die in between, its lease runs out and it is tried again.

use tokio::task::JoinSet;
use tracing::warn;

use super::persist::until_done;
use super::settler::{Desk, Undelivered};
use super::word::{Committed, LaneIs, Reply};
use crate::event::Reason;
use crate::outbox::attempt::{EventRef, Right};
use crate::outbox::failure;
use crate::outbox::park::Death;
use crate::outbox::spill::{self, Burial, Spill, SpillEnd};

/// Bodies that one statement stores.
const MOST_BYTES: usize = 16 << 20;

impl Desk {
    /// Stores them in portions, so that none takes too long.
    pub(super) async fn spill(&self, batch: Vec<(Spill, Reply)>, apart: &mut JoinSet<()>) {
        let mut portion = Vec::new();
        let mut bytes = 0;
        for (spill, reply) in batch {
            if bytes + spill.event.body.len() > MOST_BYTES && !portion.is_empty() {
                self.spill_portion(std::mem::take(&mut portion), apart).await;
                bytes = 0;
            }
            bytes += spill.event.body.len();
            portion.push((spill, reply));
        }
        if !portion.is_empty() {
            self.spill_portion(portion, apart).await;
        }
    }

    async fn spill_portion(&self, batch: Vec<(Spill, Reply)>, apart: &mut JoinSet<()>) {
        crate::failpoint!("spill.before");
        let (mut spills, replies): (Vec<Spill>, Vec<Reply>) = batch.into_iter().unzip();
        let store = || spill::spill(&self.database, self.process, &spills);
        let Some(stored) = self.together("storing events", store).await else {
            let items = spills.into_iter().zip(replies);
            let items = items.map(|(spill, reply)| Undelivered::Spills(Box::new(spill), reply));
            return self.except_apart(items, apart).await;
        };
        crate::failpoint!("spill.after");
        for spill in &mut spills {
            if let Some(stored) = stored.get(&spill.event.place) {
                spill.event.day = stored.day;
            }
        }
        let ours: Vec<&Spill> = spills.iter().filter(|spill| stored.contains_key(&spill.event.place)).collect();
        self.record_spilled(&ours).await;
        for (spill, reply) in spills.into_iter().zip(replies) {
            let place = spill.event.place;
            let metrics = self.metrics.of(&spill.workflow);
            let is_ours = stored.contains_key(&place);
            match stored.get(&place) {
                Some(stored) => metrics.spilled.inc_by(u64::from(stored.fresh)),
                None => {
                    metrics.fenced_writes.inc();
                    warn!(workflow = %spill.workflow, event = %place, "fenced: the partition is another process's by now");
                }
            }
            let right = Right::Direct { epoch: spill.epoch };
            let due_in = match spill.end {
                SpillEnd::Waits(next) => next.due_in().filter(|_| is_ours),
                SpillEnd::Dies { reason, .. } => {
                    if is_ours && self.end(&spill, reason).await.is_none() {
                        // What is stored already is stored again, which changes nothing.
                        self.except_apart([Undelivered::Spills(Box::new(spill), reply)], apart).await;
                        continue;
                    }
                    None
                }
            };
            let _ = reply.send(vec![Committed { place, right, due_in, is_ours, lane: None, lane_is: LaneIs::Free }]);
        }
    }

    /// Ends an event that was stored for it; nothing where Postgres refuses that.
    async fn end(&self, spill: &Spill, reason: Reason) -> Option<Committed> {
        let right = Right::Retry { fence: spill.epoch };
        let (event, sends) = (EventRef::from(&spill.event), spill.sends);
        let workflow = spill.workflow.clone();
        self.park(&Death { event, workflow, right, sends, reason, blocks: false, attempt: None }).await
    }

    /// What the attempts saw, filed under the day that their events are.
    async fn record_spilled(&self, spills: &[&Spill]) {
        let events: Vec<EventRef> = spills.iter().map(|spill| EventRef::from(&spill.event)).collect();
        until_done("recording attempts", || {
            let attempts = spills.iter().zip(&events).map(|(spill, event)| {
                let right = Right::Direct { epoch: spill.epoch };
                (event, spill.sends, right, &spill.attempt)
            });
            failure::record_attempts(&self.database, attempts.collect::<Vec<_>>())
        })
        .await;
    }

    pub(super) async fn bury(&self, batch: Vec<(Burial, Reply)>, apart: &mut JoinSet<()>) {
        if batch.is_empty() {
            return;
        }
        let (burials, replies): (Vec<Burial>, Vec<Reply>) = batch.into_iter().unzip();
        let store = || spill::bury(&self.database, self.process, &burials);
        let Some(stored) = self.together("storing records", store).await else {
            let items = burials.into_iter().zip(replies);
            let items = items.map(|(burial, reply)| Undelivered::Buries(burial, reply));
            return self.except_apart(items, apart).await;
        };
        for (burial, reply) in burials.into_iter().zip(replies) {
            let metrics = self.metrics.of(&burial.workflow);
            let fresh = stored.get(&burial.place).copied();
            match fresh {
                Some(true) => metrics.dead_lettered(burial.record.reason).inc(),
                Some(false) => {}
                None => metrics.fenced_writes.inc(),
            }
            let right = Right::Direct { epoch: burial.epoch };
            let (place, is_ours) = (burial.place, fresh.is_some());
            let _ =
                reply.send(vec![Committed { place, right, due_in: None, is_ours, lane: None, lane_is: LaneIs::Free }]);
        }
    }
}
