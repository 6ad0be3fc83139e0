//! What one process knows of a delivery it holds: what is claimed, what was started, how far all is settled. Pure.
//!
//! Events start in offset order, so those never sent are always the end of the range and can be given back.

mod open;
mod turns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use self::open::Open;
use super::lanes::{Lanes, Turn};
use crate::event::{CursorId, Event, Place};
use crate::outbox::block;
use crate::outbox::delivery::{Delivery, Progress};
use crate::outbox::handoff::HandOff;

/// A hand-off is in memory long before this.
const ASTRAY_PATIENCE: Duration = Duration::from_secs(1);
/// Before a claim that failed, or found the range elsewhere, is asked again.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);

pub struct Window {
    pub cursor: CursorId,
    pub epoch: i64,
    pub lease_until: Instant,
    /// Events may wait in the outbox behind what is claimed.
    pub may_wait: bool,
    /// And they do, as far as is known.
    pub reads_back: bool,
    /// How many events the next claim must ask for at least.
    pub claim_limit: usize,
    /// When the last claim began: whoever waited longest is next.
    pub claimed_at: Instant,
    /// A claim is under way.
    pub claiming: bool,
    /// No new claims and no new records; let go once all that was started is settled.
    pub releasing: bool,
    /// Being given back: nothing else is to be done.
    pub leaving: bool,
    pub told: Arc<AtomicBool>,
    timeline: Arc<str>,
    claimed_to: i64,
    queue: VecDeque<Event>,
    /// Events whose lane has become free: next of all.
    ready: VecDeque<Event>,
    lanes: Lanes,
    /// Whether order is kept: else an event's lane says nothing.
    ordered: bool,
    /// Events that are to be stored behind others of their lane.
    behind: Vec<Event>,
    /// Hand-offs that came before the claim that precedes them.
    early: Vec<HandOff>,
    open: Open,
    /// The sums of `open` and `early`.
    events: usize,
    bytes: usize,
    /// Since when claims find the range elsewhere than believed.
    astray_since: Option<Instant>,
    /// No claim before this.
    claim_after: Instant,
    last_started: Option<i64>,
}

impl Window {
    pub fn new(delivery: &Delivery) -> Self {
        Self {
            cursor: delivery.cursor,
            epoch: delivery.epoch,
            lease_until: delivery.lease_until,
            // Events may have been appended between taking the delivery and knowing that we hold it.
            may_wait: true,
            reads_back: true,
            claim_limit: 0,
            claimed_at: Instant::now(),
            claiming: false,
            releasing: false,
            leaving: false,
            told: Arc::default(),
            timeline: Arc::clone(&delivery.timeline),
            claimed_to: delivery.claimed_to,
            queue: VecDeque::new(),
            ready: VecDeque::new(),
            lanes: Lanes::new(delivery.lanes.as_deref().unwrap_or_default()),
            ordered: delivery.lanes.is_some(),
            behind: Vec::new(),
            early: Vec::new(),
            open: Open::default(),
            events: 0,
            bytes: 0,
            astray_since: None,
            claim_after: Instant::now(),
            last_started: None,
        }
    }

    pub fn claimed_to(&self) -> i64 {
        self.claimed_to
    }

    /// Takes a hand-off in. One that is not next waits for the claim before it; one of another epoch is nothing to us.
    pub fn hand_off(&mut self, hand_off: HandOff) {
        if self.releasing || hand_off.epoch != self.epoch || hand_off.from < self.claimed_to {
            return;
        }
        self.events += hand_off.events.len();
        self.bytes += hand_off.events.iter().map(|event| event.body.len()).sum::<usize>();
        if hand_off.from > self.claimed_to {
            // If the claim before it never comes, asking for it finds out.
            self.may_wait = true;
            self.early.push(hand_off);
            return;
        }
        self.queue_up(hand_off.to, hand_off.events);
    }

    /// Takes in what a claim returned, and the hand-offs that waited for it. One that comes back after the release began
    /// moves nothing, also when it holds no events: the range ends where it was given back from.
    pub fn accept(&mut self, claimed_to: i64, events: Vec<Event>) {
        if self.releasing && !crate::mutant!("late-claim-moves-the-range") {
            return;
        }
        self.events += events.len();
        self.bytes += events.iter().map(|event| event.body.len()).sum::<usize>();
        self.queue_up(claimed_to, events);
    }

    fn queue_up(&mut self, claimed_to: i64, events: Vec<Event>) {
        self.claimed_to = claimed_to;
        self.astray_since = None;
        for event in &events {
            self.open.add(event.place.offset, event.body.len());
        }
        self.queue.extend(events);
        if let Some(at) = self.early.iter().position(|early| early.from == self.claimed_to) {
            let next = self.early.swap_remove(at);
            self.queue_up(next.to, next.events);
        }
    }

    /// A claim found the range elsewhere. That may be a hand-off still on its way; answers whether it is too long for
    /// that.
    pub fn goes_astray(&mut self, now: Instant) -> bool {
        self.claims_later(now);
        *self.astray_since.get_or_insert(now) + ASTRAY_PATIENCE <= now
    }

    /// An outcome was not written as this process's own. Nothing starts until the lease has been extended, which shows whether there
    /// is one; answers whether that was not known before.
    pub fn doubt(&mut self, now: Instant) -> bool {
        let is_news = self.lease_until > now;
        self.lease_until = self.lease_until.min(now);
        self.claims_later(now);
        is_news
    }

    /// A Postgres that is away is not asked as fast as it can refuse.
    pub fn claims_later(&mut self, now: Instant) {
        self.claim_after = now + CLAIM_PAUSE;
    }

    /// From when on waiting events can be asked for, if there may be any.
    pub fn next_claim(&self) -> Option<Instant> {
        (self.may_wait && !self.claiming && !self.releasing).then_some(self.claim_after)
    }

    pub fn may_claim(&self) -> bool {
        self.next_claim().is_some_and(|at| at <= Instant::now())
    }

    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty() || !self.ready.is_empty()
    }

    pub fn queued(&self) -> usize {
        self.queue.len() + self.ready.len()
    }

    /// The next event that may be sent. Those whose lane is busy wait, or are to be stored behind others.
    pub fn start(&mut self) -> Option<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        loop {
            let event = self.queue.pop_front()?;
            self.last_started = Some(event.place.offset);
            if !self.ordered {
                return Some(event);
            }
            match self.lanes.enter(event) {
                Turn::Starts(event) => return Some(event),
                Turn::Waits => {}
                Turn::Behind(events) => self.behind.extend(events),
            }
        }
    }

    /// Whether the next event's end is kept in the same row as this one's.
    pub fn is_next_beside(&self, event: &Event) -> bool {
        let next = self.ready.front().or(self.queue.front());
        let row = |event: &Event| (block::of(event.place.offset), event.place.index, event.place.generation);
        next.is_some_and(|next| row(next) == row(event))
    }

    /// Takes an event out that was not started, and whose turn has not come.
    pub fn take_unsent(&mut self, place: Place) -> Option<Event> {
        match self.queue.iter().position(|event| event.place == place) {
            Some(at) => self.queue.remove(at),
            None => self.lanes.take_waiting(place),
        }
    }

    /// Events that are to be stored behind others of their lane.
    pub fn take_behind(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.behind)
    }

    /// An event is done or in retry.
    pub fn settle(&mut self, place: Place) {
        if let Some(bytes) = self.open.end(place.offset) {
            self.events -= 1;
            self.bytes -= bytes;
        }
    }

    /// Claimed events that are not settled yet, and the bytes of their bodies.
    pub fn outstanding(&self) -> (usize, usize) {
        (self.events, self.bytes)
    }

    /// The first offset with an event that is neither done nor in retry.
    pub fn progress(&self) -> Progress {
        let first_open = self.open.first().filter(|_| !crate::mutant!("settled-past-open-events"));
        let settled_to = first_open.unwrap_or(self.claimed_to);
        Progress { cursor: self.cursor, epoch: self.epoch, settled_to, timeline: Arc::clone(&self.timeline) }
    }

    /// Stops at the record being started: what was never sent is dropped here and given back in Postgres.
    pub fn release(&mut self) {
        if self.releasing {
            return;
        }
        self.releasing = true;
        for early in self.early.drain(..) {
            self.events -= early.events.len();
            self.bytes -= early.events.iter().map(|event| event.body.len()).sum::<usize>();
        }
        self.shelve(Instant::now());
        let keep = self.queue.iter().take_while(|event| Some(event.place.offset) == self.last_started).count();
        let dropped = self.queue.split_off(keep);
        if let Some(first) = dropped.front() {
            self.claimed_to = first.place.offset;
        }
        for event in dropped {
            self.settle(event.place);
        }
    }

    /// Whether a releasing window can be let go.
    pub fn is_spent(&self) -> bool {
        let all_settled = self.open.is_empty() || crate::mutant!("released-before-settled");
        self.releasing && !self.leaving && !self.claiming && all_settled
    }
}

#[cfg(test)]
mod tests;
