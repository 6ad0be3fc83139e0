//! What a dispatcher hears: results of work that ran beside it, hand-offs, notices, committed outcomes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::debug;

use super::attempts::Finished;
use super::dispatcher::Dispatcher;
use super::retries::Asked;
use super::word::Committed;
use crate::event::{CursorId, Lane, Place};
use crate::observe::chain;
use crate::outbox::attempt::Right;
use crate::outbox::claim::{Claim, PutAway, Retry};
use crate::outbox::delivery::{Delivery, Kept, Progress};
use crate::outbox::handoff::News;
use crate::outbox::lane::{HeldLane, Looked};
use crate::outbox::notify::Notice;
use crate::outbox::workflow;

/// What comes back from work that ran beside the loop.
pub(super) enum Message {
    Finished(Box<Finished>),
    Looked {
        taken: Vec<Delivery>,
        waiting: Vec<CursorId>,
    },
    LookFailed {
        began: Instant,
    },
    Extended {
        asked: Vec<Progress>,
        kept: Option<Vec<Kept>>,
        lease_until: Instant,
    },
    Released {
        cursor: CursorId,
        epoch: i64,
    },
    Waiting {
        cursor: CursorId,
        epoch: i64,
        slots: usize,
        claim: Option<Claim>,
    },
    Retries {
        slots: usize,
        found: Option<Claimed>,
    },
    Asked(Box<Asked>),
    CircuitAccounted,
    /// Events that operators want cancelled, which may be in memory here.
    CancelAsked(Vec<Place>),
    /// Events that were cancelled before they were sent, and the epochs they were claimed under.
    Withdrawn(Vec<(Place, i64)>),
    DeadLettersCounted(Option<bool>),
    LanesLearned {
        found: Vec<(CursorId, Lane)>,
        learned_to: Option<(CursorId, Lane)>,
    },
    LanesLooked {
        asked: Vec<HeldLane>,
        asked_at: Instant,
        looked: Option<Looked>,
    },
}

/// What a claim of retries came to.
pub(super) struct Claimed {
    pub retries: Vec<Retry>,
    pub put_away: PutAway,
    pub next_due: Option<Duration>,
}

impl Dispatcher {
    pub(super) fn take_in(&mut self, message: Message) {
        match message {
            Message::Finished(finished) => self.finish(*finished),
            Message::Looked { taken, waiting } => self.looked(taken, &waiting),
            Message::LookFailed { began } => self.look_failed(began),
            Message::Extended { asked, kept, lease_until } => self.extended(&asked, kept, lease_until),
            Message::Released { cursor, epoch } => {
                // Taken anew meanwhile, when the reply was late: that one stays.
                if self.windows.get(&cursor).is_some_and(|window| window.epoch == epoch) {
                    self.windows.remove(&cursor);
                }
                super::settler::tell(&self.shared.database, &self.workflow.id);
            }
            Message::Waiting { cursor, epoch, slots, claim } => {
                self.reserved_for_firsts -= slots;
                self.claimed(cursor, epoch, claim);
            }
            Message::Retries { slots, found } => self.retries_claimed(slots, found),
            Message::Asked(asked) => self.asked(*asked),
            Message::CancelAsked(asked) => self.drop_cancelled(&asked),
            Message::Withdrawn(over) => self.withdrawn(&over),
            Message::LanesLearned { found, learned_to } => self.lanes_learned(&found, learned_to),
            Message::LanesLooked { asked, asked_at, looked } => self.lanes_looked(&asked, asked_at, looked),
            Message::DeadLettersCounted(are_too_many) => self.dead_letters_counted(are_too_many),
            Message::CircuitAccounted => {
                self.circuit.half_open();
                self.show_circuit();
            }
        }
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::HandOff(hand_off) => {
                let cursor = hand_off.cursor;
                if let Some(window) = self.windows.get_mut(&cursor) {
                    let in_turn = window.has_queued();
                    window.hand_off(hand_off);
                    if !in_turn && window.has_queued() {
                        self.turns.push_back(cursor);
                    }
                }
            }
            News::Due => self.next_retry_at = Instant::now(),
            News::Waiting(cursor) => {
                if let Some(window) = self.windows.get_mut(&cursor) {
                    window.told.store(false, Ordering::Release);
                    window.may_wait = true;
                    window.reads_back = true;
                }
            }
        }
    }

    /// A notice may mean waiting events, due retries, or a delivery that was let go. None: some were missed.
    pub(super) fn heard(&mut self, notice: Option<Notice>) {
        let now = Instant::now();
        match notice {
            Some(Notice::Waiting { cursors, .. }) => {
                for cursor in &*cursors {
                    if let Some(window) = self.windows.get_mut(cursor) {
                        window.may_wait = true;
                        // Events that each have a life of their own wait as retries do.
                        self.next_retry_at = if self.workflow.delivery.each_alone() { now } else { self.next_retry_at };
                    }
                }
            }
            Some(Notice::Changed(_)) | None => {
                self.next_look_at = now;
                self.next_retry_at = now;
                self.next_sweep_at = now;
                self.next_learn_at = now;
                self.windows.values_mut().for_each(|window| window.may_wait = true);
            }
        }
    }

    pub(super) fn show_circuit(&self) {
        self.metrics.circuit.set(self.circuit.state().number());
    }

    pub(super) fn settled(&mut self, committed: Committed) {
        if !committed.right.is_direct() {
            self.unsettled = self.unsettled.saturating_sub(1);
        }
        let keeps_order = self.workflow.delivery.ordering.is_some();
        match committed.right {
            Right::Direct { epoch } => {
                self.storing -= 1;
                self.passed(committed.place, epoch, committed.is_ours);
            }
            Right::Range { epoch } => {
                let window = self.windows.get_mut(&committed.place.cursor).filter(|window| window.epoch == epoch);
                if let Some(window) = window {
                    window.settle(committed.place);
                    let now = Instant::now();
                    let is_lost = !committed.is_ours && !crate::mutant!("lost-rights-are-not-noticed");
                    if is_lost && window.doubt(now) {
                        self.next_beat_at = now;
                    }
                    if let Some(lane) = committed.lane.filter(|_| keeps_order) {
                        self.lane_changed(committed.place.cursor, lane, committed.lane_is);
                    }
                }
            }
            Right::Retry { .. } => {
                self.retries.remove(&committed.place);
                if self.workflow.delivery.unique.is_some() {
                    // Another may have waited for this one.
                    self.next_retry_at = Instant::now();
                }
                if let Some(lane) = committed.lane.filter(|_| keeps_order) {
                    self.lanes_to_open.insert((committed.place.cursor, lane));
                }
            }
        }
        if let Some(due_in) = committed.due_in {
            self.next_retry_at = self.next_retry_at.min(Instant::now() + due_in);
        }
    }

    /// The end of an open circuit's time is put on the workflow's account before anything is tried.
    pub(super) fn follow_circuit(&mut self, now: Instant) {
        let Some(open_for) = self.circuit.ends(now) else { return };
        let (database, id, messages) = (self.shared.database.clone(), self.workflow.id.clone(), self.messages.clone());
        tokio::spawn(async move {
            let accounted = workflow::account_circuit(&database, &id, open_for).await;
            if let Err(error) = accounted {
                debug!(workflow = %id, error = %chain(&error), "an open circuit was not accounted for");
            }
            let _ = messages.send(Message::CircuitAccounted);
        });
    }
}
