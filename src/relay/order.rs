//! Order per key in the dispatcher: what ended lets the next of its lane go, what failed has the others stored behind it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tracing::warn;

use super::dispatcher::Dispatcher;
use super::inbox::Message;
use super::settler::Undelivered;
use super::word::LaneIs;
use crate::event::{CursorId, Event, Lane};
use crate::observe::chain;
use crate::outbox::attempt::EventRef;
use crate::outbox::lane::{self, Behind, HeldLane, Looked};

/// However a lane came to be free, this finds it: a late answer, an operator, another process.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Lanes in one such look: with many thousands blocked, each is looked at every few seconds.
const MOST_LOOKED_AT: usize = 2_000;
/// What an operator puts back into a lane is heard of by a notice; without one, this finds it.
const LEARN_EVERY: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// The cursors whose retries this process may claim; nothing when order is not kept and it may claim any.
    pub(super) fn held_lanes(&self) -> Option<Vec<i64>> {
        self.workflow.delivery.ordering?;
        Some(self.windows.values().filter(|window| !window.releasing).map(|window| window.cursor.0).collect())
    }

    /// A first attempt was settled, or an event was stored behind others.
    pub(super) fn lane_changed(&mut self, cursor: CursorId, lane: Lane, is: LaneIs) {
        let now = Instant::now();
        let may_start = !self.shelves();
        let Some(window) = self.windows.get_mut(&cursor) else { return };
        let in_turn = window.has_queued();
        match is {
            LaneIs::Free => {
                if window.lane_ended(lane, now, may_start) {
                    self.lanes_to_open.insert((cursor, lane));
                }
            }
            LaneIs::Stored => window.lane_stored(lane, now),
            LaneIs::Behind => {
                window.put_behind(lane, now);
                self.lanes_to_open.insert((cursor, lane));
            }
        }
        if !in_turn && window.has_queued() {
            self.turns.push_back(cursor);
        }
        let (behind, epoch) = (window.take_behind(), window.epoch);
        self.put_behind(behind, epoch);
    }

    /// Has events stored behind others of their lane. They stay open until they are.
    pub(super) fn put_behind(&mut self, events: Vec<Event>, epoch: i64) {
        for event in events {
            self.unsettled += 1;
            let behind = Behind { event: EventRef::from(&event), epoch };
            self.shared.settler.undelivered(Undelivered::Behind(behind, self.reply.clone()));
        }
    }

    /// Whether an event that does not start at once must not stay claimed, because it would seem to have been sent.
    fn shelves(&self) -> bool {
        self.workflow.delivery.in_doubt.claims_only_what_starts() && !self.may_send()
    }

    /// Stores events whose turn it is, when nothing is sent for now.
    pub(super) fn shelve(&mut self, now: Instant) {
        if self.workflow.delivery.ordering.is_none() || !self.shelves() {
            return;
        }
        let mut shelved = Vec::new();
        for window in self.windows.values_mut().filter(|window| !window.releasing) {
            window.shelve(now);
            shelved.push((window.take_behind(), window.epoch));
        }
        shelved.into_iter().for_each(|(behind, epoch)| self.put_behind(behind, epoch));
    }

    /// Finds lanes into which something was put beside this: by an operator, or as it was stored, with a delay or a
    /// uniqueness key.
    pub(super) fn learn_lanes(&mut self, now: Instant) {
        if self.workflow.delivery.ordering.is_none() || now < self.next_learn_at || self.windows.is_empty() {
            return;
        }
        let each_alone = self.workflow.delivery.each_alone();
        self.next_learn_at = now + if each_alone { LOOK_EVERY } else { LEARN_EVERY };
        let held: Vec<CursorId> = self.windows.keys().copied().collect();
        let (database, messages, after) = (self.shared.database.clone(), self.messages.clone(), self.learned_to);
        tokio::spawn(async move {
            let found = match each_alone {
                true => lane::waiting(&database, &held, after).await,
                false => lane::replayed(&database, &held).await.map(|found| (found, None)),
            };
            // Asked again soon enough.
            let (found, learned_to) = found.unwrap_or_default();
            let _ = messages.send(Message::LanesLearned { found, learned_to });
        });
    }

    pub(super) fn lanes_learned(&mut self, found: &[(CursorId, Lane)], learned_to: Option<(CursorId, Lane)>) {
        let now = Instant::now();
        self.learned_to = learned_to;
        for (cursor, lane) in found {
            let Some(window) = self.windows.get_mut(cursor) else { continue };
            window.learn_lane(*lane, now);
            let (behind, epoch) = (window.take_behind(), window.epoch);
            self.put_behind(behind, epoch);
            self.lanes_to_open.insert((*cursor, *lane));
        }
    }

    /// Looks at lanes of which something has ended, and now and then at all in which something is stored.
    pub(super) fn open_lanes(&mut self, now: Instant) {
        // While nothing is sent nothing is let go either: of what an operator replays meanwhile the first is to go first.
        if self.workflow.delivery.ordering.is_none() || self.opening_lanes || !self.may_send() {
            return;
        }
        let is_time = now >= self.next_lanes_at;
        if self.lanes_to_open.is_empty() && !is_time {
            return;
        }
        let mut asked: HashSet<(CursorId, Lane)> = std::mem::take(&mut self.lanes_to_open);
        // With a first attempt of the lane under way, what is stored of it is not the first.
        asked.retain(|(cursor, lane)| self.windows.get(cursor).is_some_and(|window| window.waits_for_stored(*lane)));
        if is_time {
            self.next_lanes_at = now + LOOK_EVERY;
            if self.lanes_to_look_at.is_empty() {
                for window in self.windows.values() {
                    self.lanes_to_look_at.extend(window.stored_lanes().map(|lane| (window.cursor, lane)));
                }
            }
            let left = self.lanes_to_look_at.len().saturating_sub(MOST_LOOKED_AT);
            for (cursor, lane) in self.lanes_to_look_at.split_off(left) {
                if self.windows.get(&cursor).is_some_and(|window| window.waits_for_stored(lane)) {
                    asked.insert((cursor, lane));
                }
            }
        }
        if asked.is_empty() {
            return;
        }
        self.opening_lanes = true;
        let epoch = |cursor: &CursorId| self.windows.get(cursor).map_or(0, |window| window.epoch);
        let asked: Vec<HeldLane> = asked.into_iter().map(|(cursor, lane)| (cursor, lane, epoch(&cursor))).collect();
        let (shared, id, messages) = (self.shared.clone(), self.workflow.id.clone(), self.messages.clone());
        tokio::spawn(async move {
            let asked_at = Instant::now();
            let looked = lane::open(&shared.database, shared.process, &asked).await.map_err(|error| {
                warn!(workflow = %id, error = %chain(&error), "looking at lanes failed; trying again");
            });
            let _ = messages.send(Message::LanesLooked { asked, asked_at, looked: looked.ok() });
        });
    }

    pub(super) fn lanes_looked(&mut self, asked: &[HeldLane], asked_at: Instant, looked: Option<Looked>) {
        self.opening_lanes = false;
        // They come again with all in which something is stored.
        let Some(looked) = looked else { return };
        if looked.let_go {
            self.next_retry_at = Instant::now();
        }
        let mut by_cursor: HashMap<CursorId, (Vec<Lane>, HashSet<Lane>)> = HashMap::new();
        for (cursor, lane, _) in asked {
            by_cursor.entry(*cursor).or_default().0.push(*lane);
        }
        for (cursor, lane) in &looked.busy {
            by_cursor.entry(*cursor).or_default().1.insert(*lane);
        }
        for (cursor, (asked, busy)) in by_cursor {
            if let Some(window) = self.windows.get_mut(&cursor) {
                window.looked_at(&asked, &busy, asked_at);
            }
        }
    }
}
