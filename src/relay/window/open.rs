//! Offsets with events that are neither done nor in retry, of one delivery: how many, and their bytes. Pure.
//!
//! They come in order and most end nearly so: a queue, in which what has ended stays until all before it has.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct Open {
    offsets: VecDeque<Offset>,
}

#[derive(Debug)]
struct Offset {
    offset: i64,
    /// Of its events, those that are open.
    events: u32,
    bytes: usize,
}

impl Open {
    pub fn add(&mut self, offset: i64, bytes: usize) {
        let at = match self.offsets.back() {
            Some(last) if last.offset >= offset => self.find(offset),
            Some(_) | None => Err(self.offsets.len()),
        };
        match at {
            Ok(at) => {
                self.offsets[at].events += 1;
                self.offsets[at].bytes += bytes;
            }
            Err(at) => self.offsets.insert(at, Offset { offset, events: 1, bytes }),
        }
    }

    /// One of its events has ended. Answers the bytes of all of them once they all have; nothing when none was open.
    pub fn end(&mut self, offset: i64) -> Option<usize> {
        let at = self.find(offset).ok()?;
        let found = &mut self.offsets[at];
        found.events = found.events.checked_sub(1)?;
        let ended = if found.events == 0 { std::mem::take(&mut found.bytes) } else { 0 };
        while self.offsets.front().is_some_and(|first| first.events == 0) {
            self.offsets.pop_front();
        }
        Some(ended)
    }

    pub fn first(&self) -> Option<i64> {
        self.offsets.front().map(|first| first.offset)
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    fn find(&self, offset: i64) -> Result<usize, usize> {
        self.offsets.binary_search_by_key(&offset, |one| one.offset)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    proptest::proptest! {
        /// Whatever comes and ends in whatever order, it is what a map of all open offsets says.
        #[test]
        fn what_is_open_is_what_was_added_and_has_not_ended(steps in proptest::collection::vec((0i64..12, 0u8..3), 0..80)) {
            let (mut open, mut wanted) = (Open::default(), BTreeMap::<i64, (u32, usize)>::new());
            for (offset, kind) in steps {
                if kind > 0 {
                    open.add(offset, 3);
                    let one = wanted.entry(offset).or_default();
                    *one = (one.0 + 1, one.1 + 3);
                    continue;
                }
                let ended = wanted.get_mut(&offset).map(|one| {
                    one.0 -= 1;
                    if one.0 == 0 { one.1 } else { 0 }
                });
                wanted.retain(|_, one| one.0 > 0);
                proptest::prop_assert_eq!(open.end(offset), ended);
                proptest::prop_assert_eq!((open.first(), open.is_empty()), (wanted.keys().next().copied(), wanted.is_empty()));
            }
        }
    }
}
