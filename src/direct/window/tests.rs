//! The window's promises: what is marked is delivered or stored.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::config::sample;
use crate::event::{ContentType, Draft, Reason};
use crate::outbox::load::Pipeline;
use crate::transform::Origin;

fn window(spilled: impl IntoIterator<Item = Spot>) -> Window {
    let origin = Origin { cluster: "c".into(), topic: "t".into(), topic_id: "i".into(), partition: 0 };
    let workflow = Arc::clone(&sample::loaded("").config.workflows[0]);
    let holding = Arc::new(Holding::new(workflow, origin, CursorId(1), 7, 10));
    Window::new(Opening { holding, from: 10, generation: 0, spilled: spilled.into_iter().collect() })
}

fn draft(offset: i64, index: i32) -> Draft {
    Draft {
        offset,
        index,
        key: String::new(),
        event_type: String::new(),
        content_type: ContentType::Json,
        traceparent: None,
        record_at: None,
        lane: None,
        unique: None,
        fingerprint: None,
        body: Bytes::new(),
    }
}

fn batch(window: &Window, expected: i64, next: i64, drafts: Vec<Draft>) -> Batch {
    let pipeline: Arc<Pipeline> = Arc::default();
    Batch {
        holding: Arc::clone(&window.holding),
        expected,
        next,
        drafts,
        dead: Vec::new(),
        filtered: Vec::new(),
        tombstones: Vec::new(),
        loads: vec![pipeline.add(1, 1)],
    }
}

fn accept(window: &mut Window, batch: Batch) -> usize {
    window.accept(batch, jiff::Timestamp::UNIX_EPOCH).len()
}

#[test]
fn a_filtered_record_and_a_marker_are_passed_at_once() {
    let mut window = window([]);
    let empty = batch(&window, 10, 15, Vec::new());
    accept(&mut window, empty);
    assert_eq!((window.watermark(), window.holding.stored_to()), (15, 15));
}

#[test]
fn what_is_stored_already_is_not_sent_again() {
    let mut window = window([(10, 1), (11, 0)]);
    let read = batch(&window, 10, 13, vec![draft(10, 0), draft(10, 1), draft(11, 0), draft(12, 0)]);
    accept(&mut window, read);
    let started: Vec<Spot> =
        std::iter::from_fn(|| window.start()).map(|(e, _)| (e.place.offset, e.place.index)).collect();
    assert_eq!(started, [(10, 0), (12, 0)]);
    window.settle(10);
    assert_eq!(window.watermark(), 12);
}

#[test]
fn an_unreadable_record_holds_the_mark_until_it_is_stored() {
    let mut window = window([]);
    let mut read = batch(&window, 10, 12, vec![draft(11, 0)]);
    read.dead.push(DeadRecord {
        offset: 10,
        reason: Reason::Invalid,
        detail: String::new(),
        value: None,
        key: None,
        headers: "[]".to_owned(),
        source_at: None,
    });
    assert_eq!(accept(&mut window, read), 1);
    window.start().expect("an event");
    window.settle(11);
    assert_eq!(window.watermark(), 10);
    window.settle(10);
    assert_eq!(window.watermark(), 12);
}

#[test]
fn a_closed_window_waits_for_what_was_started_and_marks_nothing_that_was_not() {
    let mut window = window([]);
    let read = batch(&window, 10, 13, vec![draft(10, 0), draft(11, 0), draft(12, 0)]);
    accept(&mut window, read);
    window.start().expect("an event");
    window.start().expect("an event");
    window.close(None);
    assert!(window.start().is_none() && !window.is_spent());
    window.settle(11);
    window.settle(10);
    assert!(window.is_spent());
    assert_eq!(window.watermark(), 12, "12 was never started");
}

#[test]
fn a_probe_that_failed_is_the_first_to_be_sent_again() {
    let mut window = window([]);
    let read = batch(&window, 10, 12, vec![draft(10, 0), draft(11, 0)]);
    accept(&mut window, read);
    let (probe, sends) = window.start().expect("an event");
    window.put_back(probe, sends);
    let (again, sends) = window.start().expect("an event");
    assert_eq!((again.place.offset, sends), (10, 2), "and its requests are counted on");
    assert_eq!(window.watermark(), 10);
}

#[test]
fn a_batch_that_leaves_a_hole_is_not_passed_over() {
    let mut window = window([]);
    let read = batch(&window, 10, 12, vec![draft(11, 0)]);
    accept(&mut window, read);
    let later = batch(&window, 15, 16, Vec::new());
    accept(&mut window, later);
    assert!(window.holding.is_lost(), "12 to 14 were never passed on");
    assert_eq!(window.watermark(), 11);
}

#[test]
fn a_record_that_was_begun_is_finished_when_the_partition_goes() {
    let mut window = window([]);
    let read = batch(&window, 10, 12, vec![draft(10, 0), draft(10, 1), draft(11, 0)]);
    accept(&mut window, read);
    window.start().expect("an event");
    window.close(None);
    assert!(!window.is_spent());
    assert_eq!(window.start().expect("the rest of the record").0.place.index, 1);
    assert!(window.start().is_none());
    window.settle(10);
    window.settle(10);
    assert!(window.is_spent());
    assert_eq!(window.watermark(), 11);
}

proptest! {
    #[test]
    fn the_mark_never_passes_an_open_event(
        sizes in proptest::collection::vec(0usize..3, 1..40),
        order in proptest::collection::vec(any::<u16>(), 120),
    ) {
        let mut window = window([]);
        let mut offset = 10;
        for chunk in sizes.chunks(7) {
            let first = offset;
            let mut drafts = Vec::new();
            for size in chunk {
                drafts.extend((0..*size).map(|index| draft(offset, index as i32)));
                offset += 1;
            }
            let read = batch(&window, first, offset, drafts);
            accept(&mut window, read);
        }
        let mut open: Vec<Event> = std::iter::from_fn(|| window.start()).map(|(event, _)| event).collect();
        for pick in order {
            let still: BTreeSet<i64> = open.iter().map(|event| event.place.offset).collect();
            prop_assert_eq!(window.watermark(), still.first().copied().unwrap_or(offset));
            if open.is_empty() {
                break;
            }
            let event = open.swap_remove(pick as usize % open.len());
            window.settle(event.place.offset);
        }
    }
}
