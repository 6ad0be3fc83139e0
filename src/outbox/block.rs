//! Events as Postgres keeps their ends: 64 neighbouring offsets to a row, a bit for each.
//!
//! Enters: events sorted by place. Leaves: a row for each block they are in, no two alike.

use jiff::civil::Date;

use super::attempt::EventRef;

/// The block that an offset is in.
pub fn of(offset: i64) -> i64 {
    offset >> 6
}

/// Columns of the blocks that some events are in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    pub cursors: Vec<i64>,
    pub blocks: Vec<i64>,
    pub indexes: Vec<i32>,
    pub generations: Vec<i32>,
    pub days: Vec<Date>,
    pub bits: Vec<i64>,
}

impl Blocks {
    /// Nothing when an event is there twice: then there are fewer bits than events.
    pub fn of<'a>(sorted: impl Iterator<Item = &'a EventRef>) -> Option<Self> {
        let mut blocks = Self::default();
        for event in sorted {
            let bit = 1i64 << (event.place.offset & 63);
            match blocks.find(event) {
                Some(row) if blocks.bits[row] & bit != 0 => return None,
                Some(row) => blocks.bits[row] |= bit,
                None => blocks.push(event, bit),
            }
        }
        Some(blocks)
    }

    /// The event's row. Those of its offsets are the last ones.
    fn find(&self, EventRef { place, day, .. }: &EventRef) -> Option<usize> {
        let near = |row: &usize| self.cursors[*row] == place.cursor.0 && self.blocks[*row] == of(place.offset);
        let is_same = |row: &usize| {
            self.indexes[*row] == place.index && self.generations[*row] == place.generation && self.days[*row] == *day
        };
        (0..self.bits.len()).rev().take_while(near).find(is_same)
    }

    fn push(&mut self, EventRef { place, day, .. }: &EventRef, bit: i64) {
        self.cursors.push(place.cursor.0);
        self.blocks.push(of(place.offset));
        self.indexes.push(place.index);
        self.generations.push(place.generation);
        self.days.push(*day);
        self.bits.push(bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CursorId, Place};

    fn event(cursor: i64, offset: i64, index: i32, day: i8) -> EventRef {
        let place = Place { cursor: CursorId(cursor), offset, index, generation: 0 };
        EventRef { place, day: Date::constant(2026, 1, day), body_bytes: 1, record_at: None, lane: None }
    }

    #[test]
    fn each_event_has_one_bit_in_the_row_of_its_block() {
        let events = [
            event(1, 0, 0, 1),
            event(1, 63, 0, 1),
            event(1, 63, 1, 1),
            event(1, 64, 0, 1),
            event(2, 65, 0, 1),
            event(2, 66, 0, 2),
        ];
        let blocks = Blocks::of(events.iter()).unwrap();
        assert_eq!(blocks.cursors, [1, 1, 1, 2, 2]);
        assert_eq!(blocks.blocks, [0, 0, 1, 1, 1]);
        assert_eq!(blocks.indexes, [0, 1, 0, 0, 0]);
        assert_eq!(blocks.bits, [i64::MIN | 1, i64::MIN, 1, 2, 4]);
        let days: Vec<i8> = blocks.days.iter().map(|day| day.day()).collect();
        assert_eq!(days, [1, 1, 1, 1, 2]);
    }

    #[test]
    fn an_event_that_is_there_twice_has_no_blocks() {
        assert_eq!(Blocks::of([event(1, 7, 0, 1), event(1, 7, 0, 1)].iter()), None);
    }
}
