//! Counting what is many: the gauges stop at some thousands per state, this goes to the end, one workflow after the other and
//! so seldom that Postgres hardly works for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tracing::debug;

use super::follow::{LOOK_EVERY, Roster};
use crate::observe::chain;
use crate::outbox::Database;
use crate::outbox::gauges::{self, States};

/// Counting takes at most one part in this many of the time.
const REST: u32 = 20;

/// What the last full count of one workflow found.
#[derive(Debug, Default)]
pub struct Tally {
    is_wanted: AtomicBool,
    counted: Mutex<Option<States>>,
}

impl Tally {
    /// The states to show for those that were read: themselves, or where they were cut the last full count, if there is one.
    pub(super) fn of(&self, read: &States) -> Option<States> {
        let is_cut = read.are_cut();
        let mut counted = self.counted();
        self.is_wanted.store(is_cut, Ordering::Relaxed);
        if !is_cut {
            // The next time that there is much, this one is long out of date.
            *counted = None;
            return Some(*read);
        }
        *counted
    }

    fn store(&self, states: States) {
        let mut counted = self.counted();
        if self.is_wanted.load(Ordering::Relaxed) {
            *counted = Some(states);
        }
    }

    fn counted(&self) -> MutexGuard<'_, Option<States>> {
        self.counted.lock().expect("no holder of this lock panics")
    }
}

/// Counts where it is wanted. Runs until it is dropped.
pub async fn tally_forever(database: Database, mut roster: Roster) {
    loop {
        let followed = roster.borrow_and_update().clone();
        for one in followed.iter().filter(|one| one.tally.is_wanted.load(Ordering::Relaxed)) {
            let began = Instant::now();
            match gauges::count(&database, &one.workflow.id).await {
                Ok(states) => one.tally.store(states),
                Err(error) => {
                    debug!(workflow = %one.workflow.id, error = %chain(&error), "its events could not be counted");
                }
            }
            tokio::time::sleep(rest(began.elapsed())).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn rest(spent: Duration) -> Duration {
    spent.saturating_mul(REST).min(Duration::from_secs(600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_is_never_shown_and_what_was_not_always() {
        let (tally, few) = (Tally::default(), States { retryable: 7, ..States::default() });
        let cut = States { retryable: 10_001, ..States::default() };
        let all = States { retryable: 1_000_000, ..States::default() };
        assert_eq!(tally.of(&few), Some(few));
        assert!(!tally.is_wanted.load(Ordering::Relaxed));
        assert_eq!(tally.of(&cut), None);
        assert!(tally.is_wanted.load(Ordering::Relaxed));
        tally.store(all);
        assert_eq!(tally.of(&cut), Some(all));
        assert_eq!(tally.of(&few), Some(few));
        tally.store(all);
        assert_eq!(tally.of(&cut), None);
    }
}
