//! The retry rules, case by case.

use super::*;
use crate::config::Backoff;

fn answers() -> Answers {
    let exact = |list: &[u16]| list.iter().copied().map(StatusMatch::Exact).collect();
    Answers {
        delivered: vec![StatusMatch::Class(2)],
        in_progress: exact(&[409]),
        rejected: exact(&[400, 413, 414, 415, 422]),
        gone: exact(&[410]),
        in_doubt: exact(&[408, 500, 502, 504]),
    }
}

fn retries(max_attempts: Option<u32>) -> Retries {
    Retries {
        max_attempts,
        backoff: Backoff::Listed(vec![Duration::from_secs(10)]),
        jitter: 0.0,
        give_up_after: Duration::from_secs(3600),
        max_retry_after: Duration::from_secs(600),
    }
}

fn judged(outcome: &Outcome, counted: u32, age: u64, limit: Option<u32>, in_doubt: InDoubt) -> Judgement {
    let tries = Tries { sends: counted, counted, age: Duration::from_secs(age) };
    let (answers, retries) = (answers(), retries(limit));
    judge(outcome, tries, Policy { answers: &answers, retries: &retries, in_doubt }, 0.5)
}

fn verdict(outcome: &Outcome, counted: u32, age: u64, limit: Option<u32>) -> Verdict {
    judged(outcome, counted, age, limit, InDoubt::Redeliver).verdict
}

fn answered(status: u16) -> Outcome {
    Outcome::Answered { status, retry_after: None }
}

fn retry(seconds: u64) -> Verdict {
    Verdict::Retry { after: Duration::from_secs(seconds), counts: true }
}

#[test]
fn only_2xx_is_delivered_and_redirects_are_failures() {
    for status in [200, 201, 202, 204, 205, 299] {
        assert_eq!(verdict(&answered(status), 1, 0, None), Verdict::Delivered, "{status}");
    }
    for status in [100, 199, 301, 302, 307, 308, 401, 403, 404, 408, 425, 429, 500, 502, 503, 504, 599] {
        assert_eq!(verdict(&answered(status), 1, 0, None), retry(10), "{status}");
    }
}

#[test]
fn refusals_are_dead_at_once_and_gone_suspends() {
    for status in [400, 413, 414, 415, 422] {
        assert_eq!(verdict(&answered(status), 1, 0, None), Verdict::Dead(Reason::Rejected), "{status}");
    }
    let gone = judged(&answered(410), 1, 0, None, InDoubt::Redeliver);
    assert_eq!(gone, waits_for_resume(Suspension::Gone), "the event waits, nothing is lost");
}

#[test]
fn in_progress_is_not_counted_but_ends_with_give_up_after() {
    let after = Duration::from_secs(1);
    assert_eq!(verdict(&answered(409), 1, 0, Some(1)), Verdict::Retry { after, counts: false });
    assert_eq!(verdict(&answered(409), 1, 3600, None), Verdict::Dead(Reason::Expired));
}

#[test]
fn waits_for_in_progress_grow_with_those_answers_alone() {
    let after = |sends, counted| {
        let tries = Tries { sends, counted, age: Duration::ZERO };
        let (answers, retries) = (answers(), retries(None));
        let policy = Policy { answers: &answers, retries: &retries, in_doubt: InDoubt::Redeliver };
        judge(&answered(409), tries, policy, 0.5).verdict
    };
    let waits = |seconds| Verdict::Retry { after: Duration::from_secs(seconds), counts: false };
    assert_eq!(after(6, 6), waits(1), "the first one after five failures");
    assert_eq!(after(7, 6), waits(2));
    assert_eq!(after(8, 6), waits(4));
}

#[test]
fn attempts_and_time_both_end_an_event() {
    assert_eq!(verdict(&answered(500), 3, 0, Some(3)), Verdict::Dead(Reason::Exhausted));
    assert_eq!(verdict(&answered(500), 2, 0, Some(3)), retry(10));
    assert_eq!(verdict(&Outcome::Unknown(Trouble::Timeout), 2, 3600, None), Verdict::Dead(Reason::Expired));
    assert_eq!(verdict(&answered(500), 2, 3595, None), retry(5), "the last attempt is made in time");
}

#[test]
fn retry_after_is_never_earlier_than_the_schedule_and_is_capped() {
    let asked = |status, seconds| Outcome::Answered { status, retry_after: Some(Duration::from_secs(seconds)) };
    assert_eq!(verdict(&asked(429, 60), 1, 0, None), retry(60));
    assert_eq!(verdict(&asked(503, 1), 1, 0, None), retry(10));
    assert_eq!(verdict(&asked(503, 100_000), 1, 0, None), retry(600));
    assert_eq!(verdict(&asked(500, 60), 1, 0, None), retry(10), "500 has no Retry-After");
    assert_eq!(verdict(&asked(503, 60), 1, 3590, None), retry(60), "also past giveUpAfter");
}

#[test]
fn a_blocked_address_suspends_and_costs_no_attempt() {
    let blocked = Outcome::NeverSent(Trouble::Blocked);
    for in_doubt in [InDoubt::Redeliver, InDoubt::End] {
        assert_eq!(judged(&blocked, 1, 0, Some(1), in_doubt), waits_for_resume(Suspension::Blocked));
    }
}

#[test]
fn at_most_once_sends_again_only_what_never_left() {
    let verdict = |outcome: &Outcome| judged(outcome, 1, 0, None, InDoubt::End).verdict;
    assert_eq!(verdict(&answered(204)), Verdict::Delivered);
    for status in [301, 400, 404, 408, 409, 410, 422, 429, 500, 502, 503, 504] {
        assert_eq!(verdict(&answered(status)), Verdict::Dead(Reason::Rejected), "{status}");
    }
    for trouble in [Trouble::Timeout, Trouble::Broken] {
        assert_eq!(verdict(&Outcome::Unknown(trouble)), Verdict::Dead(Reason::InDoubt));
    }
    for trouble in [Trouble::Timeout, Trouble::Connect, Trouble::Dns, Trouble::Tls] {
        assert_eq!(verdict(&Outcome::NeverSent(trouble)), retry(10));
    }
    let gone = judged(&answered(410), 1, 0, None, InDoubt::End);
    assert_eq!(gone.suspends, Some(Suspension::Gone), "gone also suspends");
    let spent = judged(&Outcome::NeverSent(Trouble::Connect), 3, 0, Some(3), InDoubt::End);
    assert_eq!(spent.verdict, Verdict::Dead(Reason::Exhausted));
}

#[test]
fn what_is_in_doubt_is_held_or_asked_about_even_after_the_last_attempt() {
    let lost = Outcome::Unknown(Trouble::Broken);
    assert_eq!(judged(&lost, 3, 0, Some(3), InDoubt::Hold).verdict, Verdict::Held);
    assert_eq!(judged(&answered(500), 1, 0, None, InDoubt::Hold).verdict, Verdict::Held);
    assert_eq!(judged(&answered(503), 1, 0, None, InDoubt::Hold).verdict, retry(10), "not in doubt");
    assert_eq!(judged(&lost, 3, 0, Some(3), InDoubt::Ask).verdict, retry(10), "asked before it is given up");
    assert_eq!(judged(&answered(503), 3, 0, Some(3), InDoubt::Ask).verdict, Verdict::Dead(Reason::Exhausted));
}

#[test]
fn an_event_taken_over_after_its_last_attempt_is_not_sent_again() {
    let tries = Tries { sends: 2, counted: 2, age: Duration::ZERO };
    assert_eq!(may_try(tries, &retries(Some(1))), Err(Reason::Exhausted));
    assert_eq!(may_try(tries, &retries(Some(2))), Ok(()));
    assert_eq!(may_try(tries, &retries(None)), Ok(()));
}
