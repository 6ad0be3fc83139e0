//! The lanes of a delivery, where it keeps order: what a change of one means for the events that wait in memory. Pure.

use std::collections::HashSet;
use std::time::Instant;

use super::Window;
use crate::event::Lane;
use crate::relay::lanes::Next;

impl Window {
    /// A first attempt of the lane is over for good. Answers whether what is stored of the lane comes next.
    pub fn lane_ended(&mut self, lane: Lane, now: Instant, may_start: bool) -> bool {
        match self.lanes.ended(lane) {
            Next::Starts(event) if self.releasing || !may_start => {
                let behind = self.lanes.defer(event, now);
                self.behind.extend(behind);
                false
            }
            Next::Starts(event) => {
                self.ready.push_back(event);
                false
            }
            Next::Stored => true,
            Next::Nothing => false,
        }
    }

    /// Something of the lane was stored without this having been told.
    pub fn learn_lane(&mut self, lane: Lane, now: Instant) {
        self.behind.extend(self.lanes.learn(lane, now));
    }

    /// Events whose turn it is and that do not start now are stored, so that they do not seem to have been sent.
    pub fn shelve(&mut self, now: Instant) {
        for event in std::mem::take(&mut self.ready) {
            let behind = self.lanes.defer(event, now);
            self.behind.extend(behind);
        }
    }

    /// Something of the lane is stored from now on.
    pub fn lane_stored(&mut self, lane: Lane, now: Instant) {
        self.behind.extend(self.lanes.stored(lane, now));
    }

    pub fn put_behind(&mut self, lane: Lane, now: Instant) {
        self.lanes.put(lane, now);
    }

    pub fn stored_lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        self.lanes.stored_lanes()
    }

    pub fn waits_for_stored(&self, lane: Lane) -> bool {
        self.lanes.waits_for_stored(lane)
    }

    pub fn looked_at(&mut self, asked: &[Lane], busy: &HashSet<Lane>, asked_at: Instant) {
        self.lanes.looked_at(asked, busy, asked_at);
    }
}
