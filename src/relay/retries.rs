//! Events that are tried again: leasing those that are due, asking about those in doubt, sending them.

use std::time::{Duration, Instant};

use tracing::warn;

use super::attempts::Job;
use super::cancels::sweep;
use super::dispatcher::{Dispatcher, POLL};
use super::inbox::{Claimed, Message};
use crate::config::{InDoubt, OnKeyFailure};
use crate::event::Reason;
use crate::observe::chain;
use crate::outbox::attempt::Right;
use crate::outbox::claim::{self, PutAway, Retry};
use crate::outbox::failure::Next;
use crate::send::lookup::Known;
use crate::send::{backoff, verdict};

/// Retries that another process left are looked for this often, and a due time further away is asked for again.
const LOOK_FOR_RETRIES: Duration = Duration::from_secs(1);

/// What a lookup said about an event in doubt.
pub(super) struct Asked {
    job: Job,
    known: Known,
    lease_until: Instant,
    began: Instant,
}

impl Dispatcher {
    /// Leases retries that are due, no more than can start now.
    pub(super) fn claim_retries(&mut self, now: Instant) {
        if !self.may_send() || self.reserved > 0 || now < self.next_retry_at {
            return;
        }
        if self.claims_fail {
            self.next_retry_at = now + LOOK_FOR_RETRIES;
            return self.ask_postgres();
        }
        let slots = self.slots_for_retries();
        if slots == 0 {
            return;
        }
        self.reserved = slots;
        let held = self.held_lanes();
        self.next_retry_at = now + self.longest_sleep();
        let (shared, workflow, messages) = (self.shared.clone(), self.workflow.clone(), self.messages.clone());
        tokio::spawn(async move {
            let limit = i64::try_from(slots).expect("slots are few");
            let lease = workflow.delivery.lease;
            let policy = workflow.delivery.in_doubt;
            let blocks = workflow.delivery.ordering == Some(OnKeyFailure::Block);
            if workflow.delivery.unique.is_some() {
                // What waits for another may be free by now.
                sweep(&shared, &workflow.id, &messages).await;
            }
            let put_away =
                claim::put_away(&shared.database, &workflow.id, policy, blocks).await.unwrap_or_else(|error| {
                    warn!(workflow = %workflow.id, error = %chain(&error), "putting away what is in doubt failed");
                    PutAway::default()
                });
            let claimed =
                claim::retries(&shared.database, &workflow.id, shared.process, lease, limit, policy, held.as_deref())
                    .await;
            #[cfg_attr(not(feature = "failpoints"), allow(unused_variables))]
            let claimed_any = claimed.as_ref().is_ok_and(|retries| !retries.is_empty());
            let next_due = match &claimed {
                Ok(retries) if retries.len() < slots => {
                    claim::next_due(&shared.database, &workflow.id, held.as_deref()).await.ok().flatten()
                }
                Ok(_) => Some(Duration::ZERO),
                Err(_) => None,
            };
            let claimed = claimed.map_err(|error| {
                warn!(workflow = %workflow.id, error = %chain(&error), "claiming retries failed");
            });
            crate::failpoint!("claim.after");
            if claimed_any {
                crate::failpoint!("claim.retries");
            }
            let found = claimed.ok().map(|retries| Claimed { retries, put_away, next_due });
            let _ = messages.send(Message::Retries { slots, found });
        });
    }

    /// How many retries may be leased now.
    pub(super) fn slots_for_retries(&self) -> usize {
        let firsts_wait =
            self.direct_waits() || self.windows.values().any(|window| window.has_queued() || window.may_wait);
        let slots = self.slots();
        if firsts_wait && slots.is_turn_of_firsts() {
            return 0;
        }
        let delivery = &self.workflow.delivery;
        let kept_for_firsts = match delivery.in_doubt.claims_only_what_starts() {
            // Where every event waits for its time, or may be replaced, none of them has a first attempt of its own.
            _ if !firsts_wait && delivery.each_alone() => 0,
            // What is claimed must start.
            true if firsts_wait => slots.kept().max(self.queued()),
            // Kept also while none waits: a retry may take as long as the endpoint's patience lasts.
            true | false => slots.kept(),
        };
        slots.for_retries(kept_for_firsts)
    }

    /// New events of a workflow with a delay are due at times of their own.
    fn longest_sleep(&self) -> Duration {
        if self.workflow.delivery.each_alone() { POLL } else { LOOK_FOR_RETRIES }
    }

    /// Finds out whether Postgres answers again, without keeping a slot for it.
    fn ask_postgres(&self) {
        let held = self.held_lanes();
        let (database, id, messages) = (self.shared.database.clone(), self.workflow.id.clone(), self.messages.clone());
        tokio::spawn(async move {
            if let Ok(next_due) = claim::next_due(&database, &id, held.as_deref()).await {
                let found = Claimed { retries: Vec::new(), put_away: PutAway::default(), next_due };
                let _ = messages.send(Message::Retries { slots: 0, found: Some(found) });
            }
        });
    }

    fn put_away(&self, put_away: PutAway) {
        let PutAway { held, ended, expired } = put_away;
        self.metrics.dead_lettered(Reason::InDoubt).inc_by(ended);
        self.metrics.leases_expired.inc_by(expired);
        self.metrics.in_doubt.inc_by(expired);
        if held + ended > 0 {
            warn!(workflow = %self.workflow.id, held, ended, "events in doubt are not sent again by themselves");
        }
    }

    pub(super) fn retries_claimed(&mut self, slots: usize, found: Option<Claimed>) {
        self.reserved = self.reserved.saturating_sub(slots);
        self.claims_fail = found.is_none();
        let Some(Claimed { retries, put_away, next_due }) = found else { return };
        self.put_away(put_away);
        if let Some(due) = next_due {
            self.next_retry_at = Instant::now() + due.min(self.longest_sleep());
        }
        for retry in retries {
            if retry.expired {
                self.metrics.leases_expired.inc();
                self.metrics.in_doubt.inc();
            }
            self.try_again(retry);
        }
    }

    fn try_again(&mut self, retry: Retry) {
        let Retry { event, fence, tries, late, in_doubt, lease_until, .. } = retry;
        // Its last attempt is over and only not written down yet, with Postgres slow or away: that outcome decides.
        if self.retries.contains_key(&event.place) {
            return;
        }
        self.retries.insert(event.place, fence);
        self.metrics.queue_stage.observe(late.as_secs_f64());
        let job = Job { event, right: Right::Retry { fence }, tries };
        // Checked on our own clock: a process that was stopped meanwhile gives the event back, if it is still its own. It was
        // not sent, so that neither a request nor an attempt is counted.
        if !self.lease_lasts(lease_until) {
            let after = POLL;
            self.unsent(job, if in_doubt { Next::InDoubt { after } } else { Next::Again { after } });
        } else if in_doubt && self.workflow.delivery.in_doubt == InDoubt::Ask {
            self.ask(job, lease_until);
        } else {
            self.send_again(job);
        }
    }

    fn lease_lasts(&self, lease_until: Instant) -> bool {
        lease_until >= Instant::now() + self.workflow.endpoint.timeout || crate::mutant!("no-check-before-sending")
    }

    fn send_again(&mut self, job: Job) {
        match verdict::may_try(job.tries, &self.workflow.delivery.retries) {
            Ok(()) => {
                // What came over HTTP, waits for its time or for its turn has its first request from here.
                if job.tries.sends == 1 {
                    self.note_ingest(&job.event);
                }
                self.send(job);
            }
            Err(reason) => self.give_up(job, reason),
        }
    }

    /// Ends an event before another request is made.
    fn give_up(&mut self, mut job: Job, reason: Reason) {
        self.unsettled += 1;
        job.tries.sends = job.tries.sends.saturating_sub(1);
        self.dies(job, reason, None);
    }

    /// Asks the endpoint whether it has processed the event. A question is a request like any other: it takes a slot.
    fn ask(&mut self, job: Job, lease_until: Instant) {
        let Some(question) = self.question.clone() else { return self.send_again(job) };
        self.rate.take();
        self.unsettled += 1;
        self.note_under_way(job.right);
        let messages = self.messages.clone();
        let began = Instant::now();
        let deadline = began + self.workflow.endpoint.timeout;
        tokio::spawn(async move {
            let known = question.ask(&job.event.key, deadline).await;
            let _ = messages.send(Message::Asked(Box::new(Asked { job, known, lease_until, began })));
        });
    }

    pub(super) fn asked(&mut self, asked: Asked) {
        let Asked { mut job, known, lease_until, began } = asked;
        self.unsettled -= 1;
        self.note_over(job.right);
        job.tries.age += began.elapsed();
        match known {
            Known::NotProcessed if self.lease_lasts(lease_until) => self.send_again(job),
            // The answer came too late for this lease: the next one posts.
            Known::NotProcessed => self.unsent(job, Next::Again { after: Duration::ZERO }),
            Known::Processed { status } => {
                self.unsettled += 1;
                job.tries.sends = job.tries.sends.saturating_sub(1);
                self.delivered(&job, Some(status));
            }
            Known::Unclear if job.tries.age >= self.workflow.delivery.retries.give_up_after => {
                self.give_up(job, Reason::Expired);
            }
            Known::Unclear => {
                let retries = &self.workflow.delivery.retries;
                let after = backoff::scheduled(&retries.backoff, job.tries.counted);
                let after = backoff::jittered(after, retries.jitter, rand::random::<f64>());
                self.unsent(job, Next::InDoubt { after });
            }
        }
    }

    /// Puts an event back that was leased and not sent: neither request nor attempt is counted.
    fn unsent(&mut self, mut job: Job, next: Next) {
        self.unsettled += 1;
        job.tries.sends = job.tries.sends.saturating_sub(1);
        let counted = job.tries.counted.saturating_sub(1);
        self.waits(job, counted, next, None);
    }
}
