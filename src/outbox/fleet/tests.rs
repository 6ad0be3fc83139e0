//! Shares and looks: what one process believes of the others.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(15);

fn idle(others: usize, older: usize) -> Peers {
    Peers { under_way: vec![0; others], older, are_apart: false }
}

fn note(census: &mut Census, others: usize, now: Instant) -> usize {
    census.note(&idle(others, 0), 64, TIMEOUT, now).processes
}

#[test]
fn alone_it_starts_after_a_second_look_and_among_others_when_they_know() {
    let now = Instant::now();
    let mut alone = Census::default();
    assert_eq!([0, 0].map(|others| note(&mut alone, others, now)), [0, 1]);
    let mut census = Census::default();
    assert_eq!(note(&mut census, 2, now), 0);
    assert_eq!(note(&mut census, 2, now + Duration::from_millis(400)), 0);
    assert_eq!(note(&mut census, 2, now + Duration::from_millis(500)), 3);
}

#[test]
fn a_share_shrinks_at_once_and_grows_only_when_several_looks_agree() {
    let now = Instant::now();
    let mut census = Census::default();
    let later = now + Duration::from_secs(5);
    note(&mut census, 1, now);
    assert_eq!([0, 0, 0].map(|others| note(&mut census, others, later)), [2, 2, 1]);
    assert_eq!(note(&mut census, 4, later), 5);
}

#[test]
fn shares_add_up_to_what_the_workflow_may_have_and_the_youngest_stand_by() {
    for concurrency in 1..=20 {
        for processes in 1..=9 {
            let shares = (0..processes).map(|turn| share_of(concurrency, processes, turn));
            assert_eq!(shares.sum::<usize>(), concurrency, "{concurrency} among {processes}");
        }
    }
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let part = |older| {
        let mut census = Census::default();
        census.note(&idle(2, older), 1, TIMEOUT, now);
        census.note(&idle(2, older), 1, TIMEOUT, later)
    };
    assert_eq!([0, 1, 2].map(|older| part(older).slots), [1, 0, 0]);
    assert_eq!([0, 1, 2].map(|older| part(older).stands_by()), [false, true, true]);
    assert!(!Part::UNKNOWN.stands_by());
}

#[test]
fn whoever_is_there_already_waits_for_nobody() {
    let (mut census, now) = (Census::default(), Instant::now());
    let busy = |others| Peers { under_way: vec![16; others], older: 0, are_apart: false };
    census.note(&busy(1), 32, TIMEOUT, now);
    let later = now + TIMEOUT + GONE_AFTER;
    assert_eq!(census.note(&busy(1), 32, TIMEOUT, later).slots, 16);
    assert_eq!(census.note(&busy(2), 32, TIMEOUT, later).slots, 11, "a smaller share, and all of it");
}

#[test]
fn a_newcomer_waits_for_what_the_others_have_above_their_shares_but_not_for_ever() {
    let (mut census, now) = (Census::default(), Instant::now());
    let at = |seconds| now + Duration::from_secs(seconds);
    let busy = |has| Peers { under_way: vec![has], older: 1, are_apart: false };
    census.note(&busy(4), 4, TIMEOUT, at(0));
    assert_eq!(census.note(&busy(4), 4, TIMEOUT, at(1)), Part { processes: 2, share: 2, slots: 0 });
    assert_eq!(census.note(&busy(3), 4, TIMEOUT, at(2)).slots, 1);
    assert_eq!(census.note(&busy(2), 4, TIMEOUT, at(3)).slots, 2);
    // One that is configured to have more does not keep this one from sending.
    assert_eq!(census.note(&busy(64), 4, TIMEOUT, at(19)).slots, 0);
    assert_eq!(census.note(&busy(64), 4, TIMEOUT, at(20)).slots, 2);
}
