//! One after the other in a lane, whatever happens to each.

use bytes::Bytes;

use super::*;
use crate::event::{CursorId, Place, SourcePosition};

fn event(offset: i64, lane: i64) -> Event {
    Event {
        place: Place { cursor: CursorId(1), offset, index: 0, generation: 0 },
        day: jiff::civil::date(2026, 1, 1),
        source: SourcePosition { topic: "t".into(), partition: 0, offset },
        key: String::new(),
        event_type: String::new(),
        content_type: String::new(),
        traceparent: None,
        record_at: None,
        lane: Some(Lane(lane)),
        stored_at: 0,
        body: Bytes::new(),
    }
}

fn shown(turn: &Turn) -> &'static str {
    match turn {
        Turn::Starts(_) => "starts",
        Turn::Waits => "waits",
        Turn::Behind(_) => "behind",
    }
}

/// The first attempt of lane 7 is over: which one starts.
fn next(lanes: &mut Lanes) -> Option<i64> {
    match lanes.ended(Lane(7)) {
        Next::Starts(event) => Some(event.place.offset),
        Next::Stored | Next::Nothing => None,
    }
}

#[test]
fn the_next_of_a_lane_starts_when_the_one_before_is_over() {
    let mut lanes = Lanes::default();
    let turns = [event(1, 7), event(2, 7), event(3, 8), event(4, 7)].map(|event| shown(&lanes.enter(event)));
    assert_eq!(turns, ["starts", "waits", "starts", "waits"]);
    assert_eq!(next(&mut lanes), Some(2));
    assert_eq!(shown(&lanes.enter(event(5, 7))), "waits", "2 is under way");
    assert_eq!(next(&mut lanes), Some(4));
    assert_eq!(next(&mut lanes), Some(5));
    assert_eq!(next(&mut lanes), None);
    assert_eq!(shown(&lanes.enter(event(6, 7))), "starts");
}

#[test]
fn what_waits_for_one_that_failed_is_stored_behind_it_and_so_is_what_comes_later() {
    let mut lanes = Lanes::default();
    for offset in 1..=3 {
        lanes.enter(event(offset, 7));
    }
    let now = Instant::now();
    let behind: Vec<i64> = lanes.stored(Lane(7), now).iter().map(|event| event.place.offset).collect();
    assert_eq!(behind, [2, 3]);
    assert_eq!(shown(&lanes.enter(event(4, 7))), "behind");
    assert!(matches!(lanes.ended(Lane(7)), Next::Stored), "a late word changes nothing");
    assert_eq!(lanes.stored_lanes().collect::<Vec<_>>(), [Lane(7)]);
}

#[test]
fn a_lane_is_free_only_by_a_look_that_began_after_the_last_event_was_stored() {
    let mut lanes = Lanes::new(&[Lane(7)]);
    let before = Instant::now();
    assert_eq!(shown(&lanes.enter(event(1, 7))), "behind");
    let later = before + std::time::Duration::from_secs(1);
    lanes.looked_at(&[Lane(7)], &HashSet::new(), later);
    assert_eq!(shown(&lanes.enter(event(2, 7))), "behind", "1 is still on its way to be stored");
    lanes.put(Lane(7), later);
    lanes.put(Lane(7), later);
    lanes.looked_at(&[Lane(7)], &HashSet::new(), later);
    assert_eq!(shown(&lanes.enter(event(3, 7))), "behind", "the look is not newer than what was stored");
    lanes.put(Lane(7), later);
    let last = later + std::time::Duration::from_secs(1);
    lanes.looked_at(&[Lane(7)], &HashSet::from([Lane(7)]), last);
    assert_eq!(lanes.stored_lanes().count(), 1, "busy");
    lanes.looked_at(&[Lane(7)], &HashSet::new(), last);
    assert_eq!(shown(&lanes.enter(event(4, 7))), "starts");
}

#[test]
fn a_long_lane_waits_in_postgres_and_not_before_its_first() {
    let mut lanes = Lanes::default();
    let turns: Vec<Turn> = (0..MOST_WAITING as i64 + 2).map(|offset| lanes.enter(event(offset, 7))).collect();
    let Some(Turn::Behind(behind)) = turns.last() else { panic!("the last one is one too many") };
    assert!(behind.iter().map(|event| event.place.offset).eq(1..MOST_WAITING as i64 + 2), "in order");
    assert_eq!(lanes.stored_lanes().count(), 0, "nothing is let go while the first is under way");
    assert!(matches!(lanes.ended(Lane(7)), Next::Stored));
    assert_eq!(lanes.stored_lanes().count(), 1);
}
