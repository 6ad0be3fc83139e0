//! What this process may have at once: its share of what the workflow may, among all that run it.

use std::sync::atomic::Ordering;

use super::circuit::State;
use super::dispatcher::Dispatcher;

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
        self.share_of.load(Ordering::Relaxed)
    }

    /// How far first attempts may be claimed ahead of what is settled.
    pub fn most_ahead(&self) -> usize {
        let least = if self.workflow.delivery.ordering.is_some() { 4_000 } else { 1_000 };
        (4 * self.workflow.delivery.concurrency).max(least)
    }
}
