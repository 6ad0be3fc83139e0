//! What this process may have at once: its share of what the workflow may, among all that run it; and what it has.

use std::sync::atomic::Ordering;

use super::circuit::State;
use super::dispatcher::Dispatcher;
use crate::outbox::attempt::Right;

impl Dispatcher {
    /// Requests that may be under way: this process's share, and one while it is to be seen whether the endpoint lives.
    pub fn concurrency(&self) -> usize {
        if self.circuit.state() == State::Closed { self.share() } else { 1 }
    }

    /// This process's share of the workflow's concurrency.
    pub fn share(&self) -> usize {
        (self.workflow.delivery.concurrency / self.processes().max(1)).max(1)
    }

    /// Processes that share what the workflow may have at once; 0: not known yet.
    pub fn processes(&self) -> usize {
        self.share.processes.load(Ordering::Relaxed)
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

    /// How far first attempts may be claimed ahead of what is settled.
    pub fn most_ahead(&self) -> usize {
        let least = if self.workflow.delivery.ordering.is_some() { 4_000 } else { 1_000 };
        (4 * self.workflow.delivery.concurrency).max(least)
    }
}
