//! One partition on the direct path: what is queued, what is under way, how far all is delivered. Pure.
//!
//! Events start in offset order and end in any; the watermark is the first offset that still has an open event.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::Opening;
use crate::event::{CursorId, Event, Filed, Place};
use crate::outbox::batch::{Batch, DeadRecord, Holding};
use crate::outbox::direct::Spot;
use crate::outbox::load::Load;

pub struct Window {
    holding: Arc<Holding>,
    generation: i32,
    /// Events that are stored already, of records that are read again.
    spilled: HashSet<Spot>,
    queue: VecDeque<Event>,
    /// Offsets with events that are neither delivered nor stored: how many of each.
    open: BTreeMap<i64, u32>,
    /// Batches that the watermark has not passed, in order.
    batches: VecDeque<Accepted>,
    /// The offset after the last record that came in.
    read_to: i64,
    last_started: Option<i64>,
    /// Events that were started in vain and put back: how often.
    tried: HashMap<Place, u32>,
    /// Started, and neither delivered nor stored yet.
    under_way: usize,
    /// Set when nothing more is to be started; dropped with the window.
    closing: Option<Option<Sender<()>>>,
}

struct Accepted {
    next: i64,
    open: usize,
    loads: Vec<Load>,
}

impl Window {
    pub fn new(opening: Opening) -> Self {
        Self {
            holding: opening.holding,
            generation: opening.generation,
            spilled: opening.spilled,
            queue: VecDeque::new(),
            open: BTreeMap::new(),
            batches: VecDeque::new(),
            read_to: opening.from,
            last_started: None,
            tried: HashMap::new(),
            under_way: 0,
            closing: None,
        }
    }

    pub fn cursor(&self) -> CursorId {
        self.holding.cursor
    }

    pub fn epoch(&self) -> i64 {
        self.holding.epoch
    }

    pub fn holding(&self) -> &Arc<Holding> {
        &self.holding
    }

    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes a batch in. Answers the records that no event could be made of: they are under way from now on.
    /// One that does not begin where the last ended would hide a hole: the partition is given up and read again.
    pub fn accept(&mut self, batch: Batch, now: jiff::Timestamp) -> Vec<(Place, DeadRecord)> {
        if batch.expected != self.read_to && !crate::mutant!("holes-are-passed") {
            self.holding.lose();
        }
        if self.closing.is_some() || self.holding.is_lost() {
            return Vec::new();
        }
        let Batch { holding, next, drafts, dead, loads, .. } = batch;
        let origin = &holding.origin;
        let day = now.to_zoned(jiff::tz::TimeZone::UTC).date();
        let filed = Filed { generation: self.generation, day, stored_at: now.as_microsecond() };
        let mut accepted = Accepted { next, open: 0, loads };
        for draft in drafts {
            if self.spilled.remove(&(draft.offset, draft.index)) {
                continue;
            }
            accepted.open += 1;
            *self.open.entry(draft.offset).or_default() += 1;
            self.queue.push_back(draft.into_event(holding.cursor, &origin.topic, origin.partition, filed));
        }
        let mut unreadable = Vec::new();
        for record in dead {
            if self.spilled.remove(&(record.offset, 0)) {
                continue;
            }
            accepted.open += 1;
            *self.open.entry(record.offset).or_default() += 1;
            self.under_way += 1;
            let place =
                Place { cursor: self.holding.cursor, offset: record.offset, index: 0, generation: self.generation };
            unreadable.push((place, record));
        }
        if accepted.open == 0 {
            accepted.loads.iter_mut().for_each(Load::shrink);
        }
        self.read_to = next;
        self.batches.push_back(accepted);
        self.advance();
        unreadable
    }

    /// The next event, and how often it was started so far, this time included.
    pub fn start(&mut self) -> Option<(Event, u32)> {
        let event = self.queue.pop_front()?;
        self.under_way += 1;
        self.last_started = Some(event.place.offset);
        let sends = self.tried.remove(&event.place).unwrap_or(0) + 1;
        Some((event, sends))
    }

    /// An event that was started is delivered or stored.
    pub fn settle(&mut self, offset: i64) {
        self.under_way -= 1;
        if let Some(count) = self.open.get_mut(&offset) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&offset);
            }
        }
        let at = self.batches.partition_point(|batch| batch.next <= offset);
        if let Some(batch) = self.batches.get_mut(at) {
            batch.open -= 1;
            if batch.open == 0 {
                batch.loads.iter_mut().for_each(Load::shrink);
            }
        }
        self.advance();
    }

    /// An event that was started is to be started again, before all others.
    pub fn put_back(&mut self, event: Event, sends: u32) {
        self.under_way -= 1;
        if self.closing.is_none() {
            self.tried.insert(event.place, sends);
            self.queue.push_front(event);
        }
    }

    /// An event that was started is neither, and somebody else's by now: its record is read again.
    pub fn abandon(&mut self) {
        self.under_way -= 1;
    }

    fn advance(&mut self) {
        let watermark = self.watermark();
        while self.batches.front().is_some_and(|batch| batch.next <= watermark) {
            self.batches.pop_front();
        }
        self.holding.note_stored(watermark);
    }

    /// All below this offset is delivered or stored.
    pub fn watermark(&self) -> i64 {
        let first_open = self.open.keys().next().copied();
        first_open.filter(|_| !crate::mutant!("mark-past-open-events")).unwrap_or(self.read_to)
    }

    /// Starts no other record, and finishes the one that was begun: it would be sent again as a whole. What was never
    /// started is read again by whoever comes next.
    pub fn close(&mut self, finished: Option<Sender<()>>) {
        let is_begun = |event: &&Event| Some(event.place.offset) == self.last_started && !self.holding.is_lost();
        let keep = self.queue.iter().take_while(is_begun).count();
        self.queue.truncate(keep);
        self.closing = Some(finished);
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether a closing window can be dropped.
    pub fn is_spent(&self) -> bool {
        self.closing.is_some() && self.under_way == 0 && self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests;
