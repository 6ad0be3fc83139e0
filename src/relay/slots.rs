//! Who gets a free slot: first attempts and retries each keep a share, so that neither a storm of retries nor a long
//! backlog starves the other. Pure.

/// Requests that start while a batch of deliveries is written down, at least; of many slots, half.
const STARTS_MEANWHILE: usize = 64;

/// From so many on some can be idle for a moment.
const MANY: usize = 256;

/// Requests that may be under way, and those that are.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Requests that may be under way, at least 1.
    pub concurrency: usize,
    /// This process's share of the workflow's concurrency: the same, unless the circuit is half open.
    pub share: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// Of them, requests that are not an event's first, questions included.
    pub retries_in_flight: usize,
    /// Events started whose outcome is not committed yet, the requests under way included.
    pub unsettled: usize,
    /// Slots that claims under way may need.
    pub reserved: usize,
    /// Whether the last request was an event's first.
    pub first_went: bool,
    /// Requests that the rate allows now.
    pub allowed: usize,
}

impl Slots {
    pub fn free(&self) -> usize {
        let requests = self.concurrency.saturating_sub(self.in_flight + self.reserved);
        let requests = requests.min(self.allowed.saturating_sub(self.reserved));
        requests.min((2 * self.share).saturating_sub(self.unsettled + self.reserved))
    }

    /// Whether deliveries that are not written down will soon be what others wait for: the writing takes a few milliseconds, in which
    /// the endpoint is to have something to do. What is under way beyond a quarter of the share is as good for that as room for more:
    /// with an endpoint that answers faster than they are written down, most of what is under way only waits there.
    pub fn are_awaited(&self) -> bool {
        let room = (2 * self.share).saturating_sub(self.unsettled);
        let under_way = if self.share < MANY { 0 } else { self.in_flight.saturating_sub(self.share / 4) };
        room + under_way < (self.share / 2).max(STARTS_MEANWHILE)
    }

    /// How many each of first attempts and retries keeps while both wait.
    pub fn kept(&self) -> usize {
        (self.concurrency / 4).max(1).min(self.concurrency - 1)
    }

    /// Whether the only slot is a first attempt's, if one waits.
    pub fn is_turn_of_firsts(&self) -> bool {
        self.concurrency == 1 && !self.first_went
    }

    /// How many retries may start, with so many slots kept for first attempts.
    pub fn for_retries(&self, kept_for_firsts: usize) -> usize {
        if crate::mutant!("retries-starve") {
            return self.free().saturating_sub(kept_for_firsts);
        }
        let slots = self.free().min(self.concurrency.saturating_sub(kept_for_firsts + self.retries_in_flight));
        // Where the rate is what there is too little of, it is shared too; a single request is made in turns.
        match self.allowed.saturating_sub(self.reserved) {
            tokens if kept_for_firsts == 0 || tokens >= self.concurrency => slots,
            1 => slots.min(usize::from(self.first_went)),
            tokens => slots.min(tokens - tokens.div_ceil(4).min(tokens)),
        }
    }

    /// Whether a first attempt may start while retries wait. With one slot they take turns.
    pub fn first_may_start(&self) -> bool {
        match self.concurrency {
            _ if crate::mutant!("retries-starve") => true,
            1 => self.is_turn_of_firsts(),
            concurrency => self.in_flight - self.retries_in_flight + self.kept() < concurrency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both wait all the time, and slots come free one by one; answers how many retries were sent, and how many firsts.
    fn sent(concurrency: usize) -> (usize, usize) {
        let mut slots = Slots {
            concurrency,
            share: concurrency,
            in_flight: concurrency,
            retries_in_flight: 0,
            unsettled: concurrency,
            reserved: 0,
            first_went: true,
            allowed: usize::MAX,
        };
        // Requests under way, oldest first: whether each is a retry.
        let mut under_way: std::collections::VecDeque<bool> = (0..concurrency).map(|_| false).collect();
        let (mut retries, mut firsts) = (0, 0);
        for _ in 0..100 * concurrency {
            let was_retry = under_way.pop_front().expect("something is under way");
            slots.in_flight -= 1;
            slots.unsettled -= 1;
            slots.retries_in_flight -= usize::from(was_retry);
            let is_retry = slots.for_retries(slots.kept()) > 0;
            if !is_retry && !slots.first_may_start() {
                panic!("a slot stays free with both waiting: {slots:?}");
            }
            slots.in_flight += 1;
            slots.unsettled += 1;
            slots.retries_in_flight += usize::from(is_retry);
            slots.first_went = !is_retry;
            under_way.push_back(is_retry);
            if is_retry { retries += 1 } else { firsts += 1 }
        }
        (retries, firsts)
    }

    #[test]
    fn first_attempts_and_retries_both_get_their_share_when_slots_come_free_one_by_one() {
        for concurrency in [2, 3, 4, 16, 64] {
            let (retries, firsts) = sent(concurrency);
            let least = 100 * concurrency / 5;
            assert!(retries >= least && firsts >= least, "{retries} retries, {firsts} firsts of {concurrency}");
        }
    }

    #[test]
    fn a_single_slot_is_taken_in_turns() {
        let slots = |first_went| Slots {
            concurrency: 1,
            share: 1,
            in_flight: 0,
            retries_in_flight: 0,
            unsettled: 0,
            reserved: 0,
            first_went,
            allowed: usize::MAX,
        };
        assert!(!slots(true).first_may_start() && slots(false).first_may_start());
        assert!(!slots(true).is_turn_of_firsts() && slots(false).is_turn_of_firsts(), "never both, never neither");
        assert_eq!(slots(true).for_retries(slots(true).kept()), 1);
    }

    #[test]
    fn a_rate_is_shared_too_while_both_wait() {
        let slots = |allowed, first_went| Slots {
            concurrency: 64,
            share: 64,
            in_flight: 0,
            retries_in_flight: 0,
            unsettled: 0,
            reserved: 0,
            first_went,
            allowed,
        };
        assert_eq!(slots(8, true).for_retries(16), 6);
        assert_eq!((slots(1, true).for_retries(16), slots(1, false).for_retries(16)), (1, 0), "in turns");
        assert_eq!(slots(8, true).for_retries(0), 8, "no first attempt waits");
    }

    #[test]
    fn deliveries_are_written_down_while_there_is_room_for_what_starts_meanwhile() {
        assert!(!gathering(64, 64, 0).are_awaited() && gathering(64, 65, 0).are_awaited());
        assert!(!gathering(512, 768, 0).are_awaited() && gathering(512, 769, 0).are_awaited());
        assert!(gathering(16, 1, 0).are_awaited(), "with few slots nothing is gathered");
    }

    #[test]
    fn of_many_slots_what_is_under_way_beyond_a_quarter_is_as_good_as_room() {
        assert!(gathering(512, 769, 128).are_awaited() && !gathering(512, 769, 129).are_awaited());
        assert!(gathering(512, 1024, 383).are_awaited() && !gathering(512, 1024, 384).are_awaited());
        assert!(gathering(256, 385, 64).are_awaited() && !gathering(256, 385, 65).are_awaited());
        assert!(gathering(255, 416, 255).are_awaited(), "of fewer slots none can be idle");
    }

    fn gathering(share: usize, unsettled: usize, in_flight: usize) -> Slots {
        Slots {
            concurrency: share,
            share,
            in_flight,
            retries_in_flight: 0,
            unsettled,
            reserved: 0,
            first_went: true,
            allowed: usize::MAX,
        }
    }

    #[test]
    fn in_flight_lasts_until_the_outcome_is_committed() {
        let slots = Slots {
            concurrency: 8,
            share: 8,
            in_flight: 2,
            retries_in_flight: 0,
            unsettled: 15,
            reserved: 0,
            first_went: true,
            allowed: usize::MAX,
        };
        assert_eq!(slots.free(), 1, "at most twice the concurrency");
    }
}
