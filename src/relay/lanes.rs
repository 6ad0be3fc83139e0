//! Which lanes of one delivery are busy, and what waits for them in memory. Pure.
//!
//! A lane is busy while a first attempt of it is under way or not settled, or while something of it is stored: to be tried
//! again, or dead and blocking. In the first case the next events wait here; in the second they are stored behind it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use crate::event::{Event, Lane, Place};

#[derive(Default)]
pub struct Lanes(HashMap<Lane, Busy>);

struct Busy {
    /// A first attempt is under way, or not settled.
    in_flight: bool,
    /// In order, behind it.
    waiting: VecDeque<Event>,
    /// Something of the lane is stored.
    is_stored: bool,
    /// Events on their way to be stored behind it.
    storing: usize,
    /// When something was last stored here: what was asked before that is out of date.
    changed_at: Instant,
}

impl Busy {
    fn new(in_flight: bool) -> Self {
        let (waiting, changed_at) = (VecDeque::new(), Instant::now());
        Self { in_flight, waiting, is_stored: !in_flight, storing: 0, changed_at }
    }

    /// Something is stored, and nothing under way before it.
    fn waits_for_stored(&self) -> bool {
        self.is_stored && !self.in_flight
    }
}

/// How many events of one lane wait in memory: the others are stored, so that one lane does not hold up all.
const MOST_WAITING: usize = 128;

/// What becomes of the next event.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Turn {
    Starts(Event),
    /// In memory.
    Waits,
    /// In Postgres, in this order.
    Behind(Vec<Event>),
}

/// What is next in a lane.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Next {
    Starts(Event),
    /// What is stored comes next.
    Stored,
    Nothing,
}

impl Lanes {
    pub fn new(stored: &[Lane]) -> Self {
        Self(stored.iter().map(|lane| (*lane, Busy::new(false))).collect())
    }

    /// An event is next in its partition.
    pub fn enter(&mut self, event: Event) -> Turn {
        let Some(lane) = event.lane.filter(|_| !crate::mutant!("lanes-ignored")) else { return Turn::Starts(event) };
        match self.0.get_mut(&lane) {
            None => {
                self.0.insert(lane, Busy::new(true));
                Turn::Starts(event)
            }
            Some(busy) if busy.is_stored || busy.waiting.len() >= MOST_WAITING => {
                busy.is_stored = true;
                busy.storing += busy.waiting.len() + 1;
                Turn::Behind(busy.waiting.drain(..).chain([event]).collect())
            }
            Some(busy) => {
                busy.waiting.push_back(event);
                Turn::Waits
            }
        }
    }

    /// Takes an event out that waits for its turn in memory.
    pub fn take_waiting(&mut self, place: Place) -> Option<Event> {
        self.0.values_mut().find_map(|busy| {
            let at = busy.waiting.iter().position(|event| event.place == place)?;
            busy.waiting.remove(at)
        })
    }

    /// The first attempt that was under way is over for good.
    pub fn ended(&mut self, lane: Lane) -> Next {
        let Some(busy) = self.0.get_mut(&lane) else { return Next::Nothing };
        busy.in_flight = false;
        if busy.is_stored {
            return Next::Stored;
        }
        match busy.waiting.pop_front() {
            Some(event) => {
                busy.in_flight = true;
                Next::Starts(event)
            }
            None => {
                self.0.remove(&lane);
                Next::Nothing
            }
        }
    }

    /// The first attempt that was under way is stored, or dead and blocking. Answers the events that are to be stored behind.
    pub fn stored(&mut self, lane: Lane, now: Instant) -> Vec<Event> {
        let busy = self.0.entry(lane).or_insert_with(|| Busy::new(false));
        (busy.in_flight, busy.is_stored, busy.changed_at) = (false, true, now);
        busy.storing += busy.waiting.len();
        busy.waiting.drain(..).collect()
    }

    /// An event whose turn it was is not started here any more: it is stored, and those that wait for it behind it.
    pub fn defer(&mut self, event: Event, now: Instant) -> Vec<Event> {
        let Some(lane) = event.lane else { return Vec::new() };
        let behind = self.stored(lane, now);
        if let Some(busy) = self.0.get_mut(&lane) {
            busy.storing += 1;
        }
        [event].into_iter().chain(behind).collect()
    }

    /// Something of the lane was stored without this having been told: an operator's replay, at its old place. Answers the
    /// events that are to be stored behind.
    pub fn learn(&mut self, lane: Lane, now: Instant) -> Vec<Event> {
        let Some(busy) = self.0.get_mut(&lane) else {
            self.0.insert(lane, Busy::new(false));
            return Vec::new();
        };
        if busy.is_stored {
            return Vec::new();
        }
        (busy.is_stored, busy.changed_at) = (true, now);
        busy.storing += busy.waiting.len();
        busy.waiting.drain(..).collect()
    }

    /// An event was stored behind others.
    pub fn put(&mut self, lane: Lane, now: Instant) {
        if let Some(busy) = self.0.get_mut(&lane) {
            busy.storing = busy.storing.saturating_sub(1);
            busy.changed_at = now;
        }
    }

    /// Lanes in which something is stored, and nothing under way before it.
    pub fn stored_lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        self.0.iter().filter(|(_, busy)| busy.waits_for_stored()).map(|(lane, _)| *lane)
    }

    pub fn waits_for_stored(&self, lane: Lane) -> bool {
        self.0.get(&lane).is_some_and(Busy::waits_for_stored)
    }

    /// Of these lanes, those that are not `busy` were empty at some moment after `asked_at`.
    pub fn looked_at(&mut self, asked: &[Lane], busy: &HashSet<Lane>, asked_at: Instant) {
        for lane in asked.iter().filter(|lane| !busy.contains(lane)) {
            let is_empty = |b: &Busy| b.waits_for_stored() && b.storing == 0 && b.changed_at < asked_at;
            if self.0.get(lane).is_some_and(is_empty) {
                self.0.remove(lane);
            }
        }
    }
}

#[cfg(test)]
mod tests;
