//! Keeps the reader of a workflow in step with its deliveries: what is stored a little ahead of its first attempt is handed
//! on in memory, what is stored far ahead has to be read back. The relay says how far ahead it is, the reader waits.
//!
//! Nobody waits for long: an endpoint that is slow leaves events in the outbox, as it should.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// What is on its way may turn out to be no events, and nobody tells: how soon that is looked for, and how seldom after a while.
const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(32);
/// What part of all there may be is worth a batch: with a half, the queue ran dry at times before the next was stored.
const WORTH: usize = 4;

#[derive(Debug, Default)]
pub struct Pace {
    known: Mutex<Known>,
    fell: Condvar,
}

#[derive(Debug, Default)]
struct Known {
    ahead: Ahead,
    /// A reader waits until so many events are ahead at most: to be woken costs more than to be told.
    waits_for: Option<usize>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing is delivered here, or not from memory: there is no step to keep.
    #[default]
    Unknown,
    /// Events wait in the outbox to be read back.
    Behind,
    /// So many events are claimed and not started, and so many should be at most.
    By { events: usize, most: usize },
}

impl Pace {
    pub fn tell(&self, ahead: Ahead) {
        let mut known = self.known.lock().expect("no holder of this lock panics");
        known.ahead = ahead;
        let is_awaited = known.waits_for.is_some_and(|most| match ahead {
            Ahead::Unknown => true,
            Ahead::Behind => false,
            Ahead::By { events, .. } => events <= most,
        });
        if is_awaited {
            known.waits_for = None;
            drop(known);
            self.fell.notify_all();
        }
    }

    /// How many records may be read now, with so many on their way to be stored. Waits until that is worth a batch, at most
    /// `patience`; then they are read all the same.
    pub fn wait(&self, on_their_way: impl Fn() -> usize, patience: Duration, most_records: usize) -> usize {
        let room = |ahead: Ahead| match ahead {
            Ahead::Unknown => Some(most_records),
            Ahead::Behind => None,
            Ahead::By { events, most } => most
                .checked_sub(events + on_their_way())
                .filter(|room| *room >= most / WORTH)
                .map(|room| room.min(most_records)),
        };
        let deadline = Instant::now() + patience;
        let mut pause = LOOK_AFTER;
        let mut known = self.known.lock().expect("no holder of this lock panics");
        loop {
            if let Some(room) = room(known.ahead) {
                known.waits_for = None;
                return room;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                known.waits_for = None;
                return most_records;
            };
            let on_their_way = on_their_way();
            known.waits_for = Some(match known.ahead {
                Ahead::By { most, .. } => (most - most / WORTH).saturating_sub(on_their_way),
                Ahead::Unknown | Ahead::Behind => usize::MAX,
            });
            let at_most = if on_their_way == 0 { left } else { left.min(pause) };
            pause = (pause * 2).min(LOOK_AT_LEAST_EVERY);
            known = self.fell.wait_timeout(known, at_most).expect("no holder of this lock panics").0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_in_batches_that_there_is_room_for() {
        let pace = Pace::default();
        assert_eq!(pace.wait(|| 0, Duration::ZERO, 1_000), 1_000, "nobody keeps a pace");
        pace.tell(Ahead::By { events: 300, most: 1_000 });
        assert_eq!(pace.wait(|| 100, Duration::ZERO, 1_000), 600);
        assert_eq!(pace.wait(|| 100, Duration::ZERO, 50), 50);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let pace = Pace::default();
        pace.tell(Ahead::By { events: 1_000, most: 1_000 });
        assert_eq!(pace.wait(|| 0, Duration::from_millis(1), 1_000), 1_000);
        pace.tell(Ahead::Behind);
        assert_eq!(pace.wait(|| 0, Duration::from_millis(1), 1_000), 1_000);
    }

    #[test]
    fn a_reader_goes_on_as_soon_as_there_is_room() {
        let pace = std::sync::Arc::new(Pace::default());
        pace.tell(Ahead::By { events: 1_000, most: 1_000 });
        let told = std::sync::Arc::clone(&pace);
        let reader = std::thread::spawn(move || told.wait(|| 0, Duration::from_secs(60), 1_000));
        pace.tell(Ahead::By { events: 400, most: 1_000 });
        assert_eq!(reader.join().unwrap(), 600);
    }
}
