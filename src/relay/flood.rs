//! Too many dead letters in a short time stop the workflow: an endpoint that refuses everything is not fed the backlog.

use std::time::{Duration, Instant};

use tracing::warn;

use super::dispatcher::Dispatcher;
use super::inbox::Message;
use crate::config::DeadLetterLimit;
use crate::event::Reason;
use crate::observe::chain;
use crate::outbox::park;

/// With few deaths they are counted this often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// When the dead letters of all processes are counted next. Pure.
pub struct Flood {
    limit: DeadLetterLimit,
    /// Deaths here since they were counted last.
    uncounted: u64,
    counting: bool,
    counted_at: Instant,
}

impl Flood {
    pub fn new(limit: DeadLetterLimit, now: Instant) -> Self {
        Self { limit, uncounted: 0, counting: false, counted_at: now }
    }

    /// Refused or given up by the endpoint's doing: what cannot be read, or is in doubt, says nothing about it.
    pub fn note(&mut self, reason: Reason) {
        match reason {
            Reason::Rejected | Reason::Exhausted | Reason::Expired => self.uncounted += 1,
            Reason::Invalid | Reason::Duplicate | Reason::InDoubt | Reason::TooLarge | Reason::Parked => {}
        }
    }

    /// After every twentieth part of the limit, and soon after the last death.
    fn is_due(&self, now: Instant) -> bool {
        let many = self.uncounted > self.limit.count / 20;
        let is_time = now >= self.counted_at + COUNT_EVERY;
        !self.counting && self.uncounted > 0 && (many || is_time) && !crate::mutant!("dead-letters-flood")
    }

    fn begin(&mut self, now: Instant) {
        (self.counting, self.counted_at, self.uncounted) = (true, now, 0);
    }

    pub fn counted(&mut self, is_known: bool) {
        self.counting = false;
        // Asked again soon.
        self.uncounted += u64::from(!is_known);
    }
}

impl Dispatcher {
    pub(super) fn watch_dead_letters(&mut self, now: Instant) {
        if !self.flood.is_due(now) {
            return;
        }
        self.flood.begin(now);
        let limit = self.flood.limit;
        let (database, id, messages) = (self.shared.database.clone(), self.workflow.id.clone(), self.messages.clone());
        tokio::spawn(async move {
            let are_too_many = park::are_too_many(&database, &id, limit).await.map_err(|error| {
                warn!(workflow = %id, error = %chain(&error), "dead letters could not be counted; trying again");
            });
            let _ = messages.send(Message::DeadLettersCounted(are_too_many.ok()));
        });
    }

    pub(super) fn dead_letters_counted(&mut self, are_too_many: Option<bool>) {
        self.flood.counted(are_too_many.is_some());
        if are_too_many == Some(true) {
            let DeadLetterLimit { count, per } = self.flood.limit;
            self.suspend(format!("more than {count} dead letters within {} s (deadLetterLimit)", per.as_secs()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_deaths_are_counted_after_a_second_and_many_at_once() {
        let now = Instant::now();
        let mut flood = Flood::new(DeadLetterLimit { count: 100, per: Duration::from_secs(600) }, now);
        flood.note(Reason::Rejected);
        assert!(!flood.is_due(now) && flood.is_due(now + COUNT_EVERY));
        (0..5).for_each(|_| flood.note(Reason::Exhausted));
        assert!(flood.is_due(now));
        flood.begin(now);
        flood.note(Reason::Expired);
        assert!(!flood.is_due(now + COUNT_EVERY), "one count at a time");
        flood.counted(true);
        assert!(flood.is_due(now + COUNT_EVERY));
    }

    #[test]
    fn records_that_cannot_be_read_do_not_count() {
        let now = Instant::now();
        let mut flood = Flood::new(DeadLetterLimit { count: 0, per: Duration::from_secs(600) }, now);
        [Reason::Invalid, Reason::TooLarge, Reason::InDoubt].into_iter().for_each(|reason| flood.note(reason));
        assert!(!flood.is_due(now + COUNT_EVERY));
    }
}
