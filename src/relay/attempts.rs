//! Starting attempts and judging how they ended.
//!
//! In flight lasts until the outcome is committed: at most twice the concurrency per process, so that a kill repeats no
//! more than that. First attempts keep slots of their own, so that a storm of retries cannot starve them.

use std::time::{Duration, Instant, SystemTime};

use tracing::{debug, error};

use super::dispatcher::{Dispatcher, Message};
use super::settler::{Delivered, Undelivered};
use crate::event::{Event, WorkflowState};
use crate::observe::chain;
use crate::outbox::attempt::{AttemptRecord, EventRef, Right};
use crate::outbox::claim::{self, Retry};
use crate::outbox::failure::Failure;
use crate::outbox::park::Death;
use crate::outbox::settle::Completion;
use crate::outbox::{notify, workflow};
use crate::send::verdict::{self, Outcome, Suspension, Tries, Verdict};
use crate::send::{self, Attempt};

/// Without a known due time, retries that another process left are looked for this often.
const LOOK_FOR_RETRIES: Duration = Duration::from_secs(1);
/// A due time further away than this is asked for again.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// An event on its way, and under which right.
pub(super) struct Job {
    pub event: Event,
    pub right: Right,
    pub tries: Tries,
}

pub(super) struct Finished {
    job: Job,
    attempt: Attempt,
    began: Instant,
}

impl Dispatcher {
    fn free_slots(&self) -> usize {
        let concurrency = self.concurrency();
        let requests = concurrency.saturating_sub(self.in_flight + self.reserved);
        requests.min((2 * concurrency).saturating_sub(self.unsettled + self.reserved))
    }

    /// Starts queued first attempts, one per cursor in turn, while there are slots and the leases last.
    pub(super) fn start_attempts(&mut self) {
        let timeout = self.workflow.endpoint.timeout;
        let mut passes = self.turns.len();
        while passes > 0 && self.free_slots() > 0 {
            let Some(cursor) = self.turns.pop_front() else { return };
            passes -= 1;
            let may_send = self.may_send();
            let Some(window) = self.windows.get_mut(&cursor) else { continue };
            // A releasing window finishes the record it has begun, also while stopping.
            let lease_lasts =
                window.lease_until >= Instant::now() + timeout || crate::mutant!("no-check-before-sending");
            if !window.has_queued() {
                continue;
            }
            if !lease_lasts || !(may_send || window.releasing) {
                self.turns.push_back(cursor);
                continue;
            }
            let epoch = window.epoch;
            let Some(event) = window.start() else { continue };
            if window.has_queued() {
                self.turns.push_back(cursor);
                passes += 1;
            }
            if let Some(at) = event.record_at {
                self.metrics.ingest_stage.observe((event.stored_at - at).max(0) as f64 / 1000.0);
            }
            self.metrics.queue_stage.observe(seconds_since(event.stored_at));
            let tries = Tries { sends: 1, counted: 1, age: Duration::ZERO };
            self.send(Job { event, right: Right::Range { epoch }, tries });
        }
    }

    fn send(&mut self, job: Job) {
        self.in_flight += 1;
        self.unsettled += 1;
        self.metrics.in_flight.inc();
        let connection = self.idle.pop();
        let (target, template, messages) = (self.target.clone(), self.template.clone(), self.messages.clone());
        // The clock starts here, next to the look at the lease: a process that is stopped before the task runs finds its
        // time up.
        let began = Instant::now();
        let deadline = began + self.workflow.endpoint.timeout;
        tokio::spawn(async move {
            let request = template.request(&job.event, job.tries.sends, job.right.fence());
            let attempt = send::attempt(&target, connection, request, began, deadline).await;
            crate::failpoint!("send.after_response");
            let _ = messages.send(Message::Finished(Box::new(Finished { job, attempt, began })));
        });
    }

    pub(super) fn finish(&mut self, finished: Finished) {
        let Finished { job, mut attempt, began } = finished;
        self.in_flight -= 1;
        self.metrics.in_flight.dec();
        if let Some(connection) = attempt.connection.take()
            && self.idle.len() < self.concurrency()
        {
            self.idle.push(connection);
        }
        let Job { event, right, tries } = job;
        let tries = Tries { age: tries.age + began.elapsed(), ..tries };
        let answers = &self.workflow.endpoint.answers;
        let label = verdict::label(&attempt.outcome, answers);
        let in_doubt = verdict::is_in_doubt(&attempt.outcome, answers);
        let random = rand::random::<f64>();
        let verdict = verdict::judge(&attempt.outcome, tries, answers, &self.workflow.delivery.retries, random);
        self.metrics.attempts(label).inc();
        self.metrics.send_stage.observe(attempt.took.as_secs_f64());
        if tries.sends > 1 {
            self.metrics.retries.inc();
        }
        if in_doubt && verdict != Verdict::Delivered {
            self.metrics.in_doubt.inc();
        }
        if verdict != Verdict::Delivered {
            debug!(
                workflow = %self.workflow.id, event = %event.place, attempt = tries.sends, outcome = label,
                error = attempt.error.as_deref(), "not delivered"
            );
        }
        let status = match attempt.outcome {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
        };
        let record = |attempt: Attempt| AttemptRecord {
            outcome: label,
            status,
            error: attempt.error,
            answer: (!attempt.answer.is_empty()).then_some(attempt.answer),
            took: attempt.took,
            ago: began.elapsed(),
        };
        let failure = |counted: u32, wait: Duration, attempt: Attempt| Failure {
            event: EventRef::from(&event),
            workflow: self.workflow.id.clone(),
            right,
            sends: tries.sends,
            counted,
            wait,
            in_doubt,
            attempt: record(attempt),
        };
        match verdict {
            Verdict::Delivered => {
                if let Some(at) = event.record_at {
                    self.metrics.latency.observe(seconds_since(at));
                }
                let completion = Completion {
                    event: EventRef::from(&event),
                    right,
                    sends: tries.sends,
                    status: status.unwrap_or_default(),
                };
                self.shared.settler.delivered(Delivered {
                    workflow: self.workflow.id.clone(),
                    completion,
                    answered_at: Instant::now(),
                    reply: self.reply.clone(),
                });
            }
            Verdict::Retry { after, counts } => {
                let counted = if counts { tries.counted } else { tries.counted.saturating_sub(1) };
                let failure = failure(counted, after, attempt);
                self.shared.settler.undelivered(Undelivered::Waits(failure, self.reply.clone()));
            }
            Verdict::Suspend(suspension) => {
                let error = attempt.error.clone();
                let failure = failure(tries.counted.saturating_sub(1), Duration::ZERO, attempt);
                self.shared.settler.undelivered(Undelivered::Waits(failure, self.reply.clone()));
                self.suspend(suspension, error);
            }
            Verdict::Dead(reason) => {
                let death = Death {
                    event: EventRef::from(&event),
                    workflow: self.workflow.id.clone(),
                    right,
                    sends: tries.sends,
                    reason,
                    attempt: Some(record(attempt)),
                };
                self.shared.settler.undelivered(Undelivered::Dies(death, self.reply.clone()));
            }
        }
    }

    /// Stops sending here at once, and for every process as soon as it is written.
    fn suspend(&mut self, suspension: Suspension, error: Option<String>) {
        if self.state.decided == WorkflowState::Suspended {
            return;
        }
        self.state.decided = WorkflowState::Suspended;
        let reason = match suspension {
            Suspension::Gone => "the endpoint answered that it is gone".to_owned(),
            Suspension::Blocked => error.unwrap_or_else(|| "egress forbids the endpoint's address".to_owned()),
        };
        error!(workflow = %self.workflow.id, reason, "suspended: events wait until `oncebox resume`");
        let (database, id) = (self.shared.database.clone(), self.workflow.id.clone());
        tokio::spawn(async move {
            let from = [WorkflowState::Running, WorkflowState::Paused];
            let to = WorkflowState::Suspended;
            let written = workflow::set(&database, &id, &from, to, Some(&reason), "oncebox").await;
            if let Err(error) = written {
                // The next attempt after the state is read again suspends it again.
                error!(workflow = %id, error = %chain(&error), "writing the suspension failed");
            }
            let _ = notify::tell(&database, &id).await;
        });
    }

    /// Leases retries that are due, no more than can start now.
    pub(super) fn claim_retries(&mut self, now: Instant) {
        if !self.may_send() || self.reserved > 0 || now < self.next_retry_at {
            return;
        }
        let firsts = self.windows.values().any(super::window::Window::has_queued);
        let kept_for_firsts = if firsts { (self.concurrency() / 4).max(1) } else { 0 };
        let slots = self.free_slots().saturating_sub(kept_for_firsts);
        if slots == 0 {
            return;
        }
        self.reserved = slots;
        self.next_retry_at = now + LOOK_FOR_RETRIES;
        let (shared, workflow, messages) = (self.shared.clone(), self.workflow.clone(), self.messages.clone());
        tokio::spawn(async move {
            let limit = i64::try_from(slots).expect("slots are few");
            let lease = workflow.delivery.lease;
            let claimed = claim::retries(&shared.database, &workflow.id, shared.process, lease, limit).await;
            #[cfg_attr(not(feature = "failpoints"), allow(unused_variables))]
            let claimed_any = claimed.as_ref().is_ok_and(|retries| !retries.is_empty());
            let next_due = match &claimed {
                Ok(retries) if retries.len() < slots => {
                    claim::next_due(&shared.database, &workflow.id).await.ok().flatten()
                }
                Ok(_) => Some(Duration::ZERO),
                Err(_) => None,
            };
            let retries = claimed.unwrap_or_else(|error| {
                tracing::warn!(workflow = %workflow.id, error = %chain(&error), "claiming retries failed");
                Vec::new()
            });
            crate::failpoint!("claim.after");
            if claimed_any {
                crate::failpoint!("claim.retries");
            }
            let _ = messages.send(Message::Retries { slots, retries, next_due });
        });
    }

    pub(super) fn retries_claimed(&mut self, slots: usize, retries: Vec<Retry>, next_due: Option<Duration>) {
        self.reserved = self.reserved.saturating_sub(slots);
        if let Some(due) = next_due {
            self.next_retry_at = Instant::now() + due.min(LONGEST_SLEEP);
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
        let right = Right::Retry { fence: retry.fence };
        // Checked on our own clock: a process that was stopped meanwhile leaves the event to whoever holds it now.
        let lease_lasts = retry.lease_until >= Instant::now() + self.workflow.endpoint.timeout;
        if !lease_lasts && !crate::mutant!("no-check-before-sending") {
            return;
        }
        // Its last attempt is over and only not written down yet, with Postgres slow or away: that outcome decides.
        if self.retries.contains_key(&retry.event.place) {
            return;
        }
        self.retries.insert(retry.event.place, retry.fence);
        if let Err(reason) = verdict::may_try(retry.tries, &self.workflow.delivery.retries) {
            self.unsettled += 1;
            let death = Death {
                event: EventRef::from(&retry.event),
                workflow: self.workflow.id.clone(),
                right,
                sends: retry.tries.sends.saturating_sub(1),
                reason,
                attempt: None,
            };
            self.shared.settler.undelivered(Undelivered::Dies(death, self.reply.clone()));
            return;
        }
        self.send(Job { event: retry.event, right, tries: retry.tries });
    }
}

fn seconds_since(millis: i64) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    (now - millis as f64 / 1000.0).max(0.0)
}
