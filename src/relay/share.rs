//! What this process may have at once: its share of what the workflow may, among all that send for it; and what it has.

use std::sync::atomic::Ordering;

use super::circuit::State;
use super::dispatcher::Dispatcher;
use crate::event::CursorId;
use crate::outbox::attempt::Right;

impl Dispatcher {
    /// Requests that may be under way: this process's share, and one while it is to be seen whether the endpoint lives.
    pub fn concurrency(&self) -> usize {
        if self.circuit.state() == State::Closed { self.share() } else { 1 }
    }

    /// This process's share of the workflow's concurrency. Without one nothing starts (`may_send`), but a record of several
    /// events that was begun is finished, one by one.
    pub fn share(&self) -> usize {
        self.share.slots().max(1)
    }

    /// Processes that share what the workflow may do in a second; 0: not known yet. Those that stand by need none of it.
    pub fn senders(&self) -> usize {
        self.share.processes().min(self.workflow.delivery.concurrency)
    }

    /// Others make all the requests that there may be: what is held is theirs.
    pub(super) fn stand_by(&mut self) {
        // Whoever sent until now may have spent a burst a moment ago.
        self.rate.empty();
        let held = self.windows.values().filter(|window| !window.releasing);
        let cursors: Vec<CursorId> = held.map(|window| window.cursor).collect();
        cursors.into_iter().for_each(|cursor| self.release(cursor));
    }

    /// A request has begun: counted here, shown to operators, and told to the other processes.
    pub(super) fn note_under_way(&mut self, right: Right) {
        self.in_flight += 1;
        self.retries_in_flight += usize::from(right.is_retry());
        self.metrics.in_flight.inc();
        self.share.under_way.fetch_add(1, Ordering::Relaxed);
        self.share.firsts.fetch_add(usize::from(right.is_first()), Ordering::Relaxed);
    }

    /// A request is over, one way or the other.
    pub(super) fn note_over(&mut self, right: Right) {
        self.in_flight -= 1;
        self.retries_in_flight -= usize::from(right.is_retry());
        self.metrics.in_flight.dec();
        self.share.under_way.fetch_sub(1, Ordering::Relaxed);
        self.share.firsts.fetch_sub(usize::from(right.is_first()), Ordering::Relaxed);
    }

    /// How many events may be claimed that were not started yet; where a claim covers only what starts, that are not settled yet.
    pub fn most_ahead(&self) -> usize {
        let least = if self.workflow.delivery.ordering.is_some() { 4_000 } else { 1_000 };
        (4 * self.workflow.delivery.concurrency).max(least)
    }
}
