//! What is known of a delivery, step by step.

use bytes::Bytes;

use super::*;
use crate::event::SourcePosition;

fn window() -> Window {
    Window::new(&Delivery {
        cursor: CursorId(1),
        epoch: 7,
        settled_to: 0,
        claimed_to: 10,
        next_offset: 10,
        lease_until: Instant::now() + Duration::from_secs(1),
        in_doubt: 0,
        timeline: "00000001".into(),
        failover: None,
        lanes: None,
    })
}

fn event(offset: i64, index: i32) -> Event {
    Event {
        place: Place { cursor: CursorId(1), offset, index, generation: 0 },
        day: jiff::civil::date(2026, 1, 1),
        source: SourcePosition { topic: "t".into(), partition: 0, offset },
        key: String::new(),
        event_type: String::new(),
        content_type: String::new(),
        traceparent: None,
        lane: None,
        record_at: None,
        stored_at: 0,
        body: Bytes::new(),
    }
}

fn hand_off(from: i64, to: i64, events: Vec<Event>) -> HandOff {
    HandOff { cursor: CursorId(1), epoch: 7, from, to, events }
}

#[test]
fn settled_to_never_passes_an_unsettled_event() {
    let mut window = window();
    window.hand_off(hand_off(10, 13, vec![event(10, 0), event(11, 0), event(11, 1)]));
    let started: Vec<Event> = std::iter::from_fn(|| window.start()).collect();
    window.settle(started[2].place);
    assert_eq!(window.progress().settled_to, 10);
    window.settle(started[0].place);
    assert_eq!(window.progress().settled_to, 11, "one event of the record is open");
    window.settle(started[1].place);
    assert_eq!(window.progress().settled_to, 13);
}

#[test]
fn a_hand_off_waits_for_the_claim_before_it() {
    let mut window = window();
    window.hand_off(hand_off(12, 13, vec![event(12, 0)]));
    assert!(!window.has_queued());
    window.accept(12, vec![event(10, 0), event(11, 0)]);
    let offsets: Vec<i64> = std::iter::from_fn(|| window.start()).map(|e| e.place.offset).collect();
    assert_eq!(offsets, [10, 11, 12]);
    assert_eq!(window.claimed_to(), 13);
    window.hand_off(hand_off(12, 13, vec![event(12, 0)]));
    assert!(!window.has_queued(), "a hand-off below what is claimed is stale");
}

#[test]
fn a_claim_that_comes_back_after_the_release_moves_nothing() {
    let mut window = window();
    window.hand_off(hand_off(10, 13, vec![event(10, 0), event(11, 0), event(12, 0)]));
    let first = window.start().unwrap();
    window.release();
    // A range of filtered records, say.
    window.accept(14, Vec::new());
    window.settle(first.place);
    assert_eq!((window.claimed_to(), window.progress().settled_to), (11, 11), "11 and 12 were never sent");
}

#[test]
fn a_release_gives_back_whole_records_that_were_never_sent() {
    let mut window = window();
    window.hand_off(hand_off(10, 13, vec![event(10, 0), event(11, 0), event(11, 1), event(12, 0)]));
    let first = [window.start().unwrap(), window.start().unwrap()];
    window.release();
    assert_eq!(window.claimed_to(), 12, "record 11 has begun and is finished here");
    let rest = window.start().unwrap();
    assert_eq!((rest.place.offset, rest.place.index), (11, 1));
    assert!(window.start().is_none() && !window.is_spent());
    for event in first.iter().chain([&rest]) {
        window.settle(event.place);
    }
    assert!(window.is_spent());
    assert_eq!(window.progress().settled_to, 12);
}

#[test]
fn nothing_starts_under_a_right_in_doubt_until_it_is_confirmed() {
    let mut window = window();
    let now = Instant::now();
    assert!(window.doubt(now), "the first sign is news");
    assert!(window.lease_until <= now && !window.may_claim());
    assert!(!window.doubt(now), "the second is not");
    window.lease_until = now + Duration::from_secs(1);
    assert!(window.doubt(now), "since it was confirmed, it is again");
}
