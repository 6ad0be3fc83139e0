//! Starting attempts and judging how they ended.
//!
//! In flight lasts until the outcome is committed: at most twice the concurrency per process, so that a kill repeats no
//! more than that.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tracing::{debug, error, info, warn};

use super::circuit::{self, State};
use super::dispatcher::Dispatcher;
use super::inbox::Message;
use super::settler::{Delivered, Undelivered};
use super::slots::Slots;
use crate::config::OnKeyFailure;
use crate::event::{Event, Reason, WorkflowState};
use crate::observe::chain;
use crate::outbox::attempt::{AttemptRecord, EventRef, Right};
use crate::outbox::failure::{Failure, Next};
use crate::outbox::park::Death;
use crate::outbox::settle::Completion;
use crate::outbox::spill::SpillEnd;
use crate::outbox::{notify, workflow};
use crate::send::outcome::{self, Outcome};
use crate::send::verdict::{self, Judgement, Policy, Suspension, Tries, Verdict};
use crate::send::{self, Attempt};

/// How long a connection is kept without a request.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);

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
    pub(super) fn slots(&self) -> Slots {
        Slots {
            concurrency: self.concurrency(),
            share: self.share(),
            in_flight: self.in_flight,
            retries_in_flight: self.retries_in_flight,
            unsettled: self.unsettled,
            reserved: self.reserved + self.reserved_for_firsts,
            first_went: self.first_went,
            allowed: self.rate.allows(),
        }
    }

    pub(super) fn first_may_start(&self) -> bool {
        // Retries that may not be leased now wait for nothing that a first attempt has.
        let are_due = self.next_retry_at <= Instant::now() && self.slots_for_retries() > 0;
        let retries_wait = self.reserved > 0 || are_due;
        !retries_wait || !self.may_send() || self.slots().first_may_start()
    }

    /// Starts queued first attempts, one per cursor in turn, while there are slots and the leases last.
    pub(super) fn start_attempts(&mut self) {
        let timeout = self.workflow.endpoint.timeout;
        let mut passes = self.turns.len();
        while passes > 0 && self.slots().free() > 0 && self.first_may_start() {
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
            let started = window.start();
            let behind = window.take_behind();
            self.put_behind(behind, epoch);
            let Some(window) = self.windows.get_mut(&cursor) else { continue };
            let Some(event) = started else { continue };
            if window.has_queued() {
                // Neighbours end up in one row: a cursor's turn lasts until its next block of them.
                match window.is_next_beside(&event) {
                    true => self.turns.push_front(cursor),
                    false => self.turns.push_back(cursor),
                }
                passes += 1;
            }
            self.note_start(&event);
            let tries = Tries { sends: 1, counted: 1, age: Duration::ZERO };
            self.send(Job { event, right: Right::Range { epoch }, tries });
        }
    }

    /// How long a first attempt took to come about.
    pub(super) fn note_start(&self, event: &Event) {
        self.note_ingest(event);
        self.metrics.queue_stage.observe(seconds_since(event.stored_at));
    }

    /// From the record, or the caller's request, to the outbox. A replay is as old as its dead letter, and says nothing about that.
    pub(super) fn note_ingest(&self, event: &Event) {
        if let Some(at) = event.record_at
            && !event.place.is_replay()
        {
            self.metrics.ingest_stage.observe((event.stored_at / 1000 - at).max(0) as f64 / 1000.0);
        }
    }

    pub(super) fn send(&mut self, job: Job) {
        self.rate.take();
        self.first_went = !job.right.is_retry();
        self.unsettled += usize::from(!job.right.is_direct());
        self.note_under_way(job.right);
        let connection = self.idle.pop_back().map(|(_, connection)| connection);
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
        self.note_over(job.right);
        if let Some(connection) = attempt.connection.take()
            && self.idle.len() < self.concurrency()
        {
            self.idle.push_back((Instant::now(), connection));
        }
        // While the circuit is open, and for its probes, no attempt counts.
        let state = self.circuit.state();
        let counts_at_all = state == State::Closed;
        if self.circuit.note(circuit::sign(&attempt.outcome), Instant::now()) {
            self.circuit_changed();
        }
        let is_failed_probe = state == State::HalfOpen && self.circuit.state() == State::Open;
        let counted = job.tries.counted.saturating_sub(u32::from(!counts_at_all));
        let tries = Tries { age: job.tries.age + began.elapsed(), counted, ..job.tries };
        let job = Job { tries, ..job };
        let answers = &self.workflow.endpoint.answers;
        let label = outcome::label(&attempt.outcome, answers);
        let in_doubt = outcome::is_in_doubt(&attempt.outcome, answers);
        let Judgement { verdict, suspends } =
            verdict::judge(&attempt.outcome, tries, self.policy(), rand::random::<f64>());
        self.metrics.attempts(label).inc();
        self.metrics.send_stage.observe(attempt.took.as_secs_f64());
        self.trace(&job, &attempt, began, label, verdict == Verdict::Delivered);
        if tries.sends > 1 {
            self.metrics.retries.inc();
        }
        if in_doubt && verdict != Verdict::Delivered {
            self.metrics.in_doubt.inc();
        }
        if verdict != Verdict::Delivered {
            debug!(
                workflow = %self.workflow.id, event = %job.event.place, attempt = tries.sends, outcome = label,
                error = attempt.error.as_deref(), "not delivered"
            );
        }
        let status = match attempt.outcome {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
        };
        let error = attempt.error.clone();
        let record = AttemptRecord {
            outcome: label,
            status,
            error: attempt.error,
            answer: (!attempt.answer.is_empty()).then_some(attempt.answer),
            took: attempt.took,
            ago: began.elapsed(),
        };
        match verdict {
            Verdict::Delivered if job.right.is_direct() => self.delivered_directly(&job),
            Verdict::Delivered => self.delivered(&job, status),
            Verdict::Retry { .. } if job.right.is_direct() && is_failed_probe => self.puts_back(job),
            Verdict::Retry { after, counts } => {
                let counted = if counts || !counts_at_all { tries.counted } else { tries.counted.saturating_sub(1) };
                let next = if in_doubt { Next::InDoubt { after } } else { Next::Again { after } };
                self.waits(job, counted, next, Some(record));
            }
            Verdict::Held => self.waits(job, tries.counted, Next::Held, Some(record)),
            Verdict::Dead(reason) => self.dies(job, reason, Some(record)),
        }
        if let Some(suspension) = suspends {
            self.suspend(match suspension {
                Suspension::Gone => "the endpoint answered that it is gone".to_owned(),
                Suspension::Blocked => error.unwrap_or_else(|| "egress forbids the endpoint's address".to_owned()),
            });
        }
    }

    /// An unused connection is not looked at: one that the endpoint has closed would be kept half open.
    pub(super) fn close_idle(&mut self, now: Instant) {
        while self.idle.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) > IDLE_PATIENCE) {
            self.idle.pop_front();
        }
    }

    pub(super) fn policy(&self) -> Policy<'_> {
        let delivery = &self.workflow.delivery;
        Policy { answers: &self.workflow.endpoint.answers, retries: &delivery.retries, in_doubt: delivery.in_doubt }
    }

    /// Has a delivery written down. The event is in flight until it is.
    pub(super) fn delivered(&self, job: &Job, status: Option<u16>) {
        if let Some(at) = job.event.record_at {
            self.metrics.latency.observe(seconds_since(at * 1000));
        }
        self.shared.settler.delivered(Delivered {
            metrics: Arc::clone(&self.metrics),
            completion: Completion {
                event: EventRef::from(&job.event),
                right: job.right,
                sends: job.tries.sends,
                status,
            },
            answered_at: Instant::now(),
            is_awaited: job.event.lane.is_some() || self.slots().are_awaited(),
            reply: self.reply.clone(),
        });
    }

    /// Has it written down that the event waits, and for what.
    pub(super) fn waits(&mut self, job: Job, counted: u32, next: Next, attempt: Option<AttemptRecord>) {
        if let (Right::Direct { .. }, Some(attempt)) = (job.right, &attempt) {
            return self.spills(job, counted, SpillEnd::Waits(next), attempt.clone());
        }
        let failure = Failure {
            event: EventRef::from(&job.event),
            workflow: self.workflow.id.clone(),
            right: job.right,
            sends: job.tries.sends,
            counted,
            next,
            attempt,
        };
        self.shared.settler.undelivered(Undelivered::Waits(failure, self.reply.clone()));
    }

    pub(super) fn dies(&mut self, job: Job, reason: Reason, attempt: Option<AttemptRecord>) {
        self.flood.note(reason);
        if let (Right::Direct { .. }, Some(attempt)) = (job.right, &attempt) {
            let lease = self.workflow.delivery.lease.as_secs_f64();
            return self.spills(job, 1, SpillEnd::Dies { reason, lease }, attempt.clone());
        }
        let death = Death {
            event: EventRef::from(&job.event),
            workflow: self.workflow.id.clone(),
            right: job.right,
            sends: job.tries.sends,
            reason,
            blocks: self.workflow.delivery.ordering == Some(OnKeyFailure::Block),
            attempt,
        };
        self.shared.settler.undelivered(Undelivered::Dies(death, self.reply.clone()));
    }

    fn circuit_changed(&self) {
        self.show_circuit();
        match self.circuit.state() {
            State::Open => warn!(workflow = %self.workflow.id, "the circuit is open: the endpoint only fails"),
            State::HalfOpen | State::Closed => info!(workflow = %self.workflow.id, "the circuit is closed again"),
        }
    }

    /// Stops sending here at once, and for every process as soon as it is written.
    pub(super) fn suspend(&mut self, reason: String) {
        if self.state.decided == WorkflowState::Suspended {
            return;
        }
        self.state.decided = WorkflowState::Suspended;
        error!(workflow = %self.workflow.id, reason, "suspended: events wait until `oncebox resume`");
        let (database, id) = (self.shared.database.clone(), self.workflow.id.clone());
        tokio::spawn(async move {
            let written = workflow::stop(&database, &id, WorkflowState::Suspended, &reason, "oncebox").await;
            if let Err(error) = written {
                // The next attempt after the state is read again suspends it again.
                error!(workflow = %id, error = %chain(&error), "writing the suspension failed");
            }
            let _ = notify::tell(&database, &id).await;
        });
    }
}

pub(super) fn seconds_since(micros: i64) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    (now - micros as f64 / 1e6).max(0.0)
}
