//! What an attempt's outcome means for its event. The one place where the retry rules live; pure.
//!
//! Enters: the outcome, how often the event was tried, the policy. Leaves: a verdict that the outbox writes down.

use std::time::Duration;

use super::backoff;
use super::outcome::{Outcome, Trouble, is_in_doubt};
use crate::config::scalar::StatusMatch;
use crate::config::{Answers, InDoubt, Retries};
use crate::event::Reason;

/// What becomes of the event.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Delivered,
    /// Tried again after the delay. An attempt that does not count leaves `maxAttempts` untouched.
    Retry {
        after: Duration,
        counts: bool,
    },
    /// Held until an operator says what became of it.
    Held,
    Dead(Reason),
}

/// What becomes of the event, and of its workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The workflow sends nothing more until somebody resumes it.
    pub suspends: Option<Suspension>,
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, suspends: None }
    }
}

/// What a workflow says about its attempts.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    pub answers: &'a Answers,
    pub retries: &'a Retries,
    pub in_doubt: InDoubt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspension {
    /// The endpoint said that it is gone for good.
    Gone,
    /// The egress rules forbid the endpoint's address.
    Blocked,
}

/// How often the event was tried, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    /// Requests made, this one included.
    pub sends: u32,
    /// Those that count against `maxAttempts`, this one included.
    pub counted: u32,
    /// Time since the event's first attempt.
    pub age: Duration,
}

/// `random` is from 0 up to 1 and only moves a delay within its jitter.
pub fn judge(outcome: &Outcome, tries: Tries, policy: Policy<'_>, random: f64) -> Judgement {
    match policy.in_doubt {
        InDoubt::End => judge_only_attempt(outcome, tries, policy, random),
        InDoubt::Redeliver | InDoubt::Ask | InDoubt::Hold => judge_attempt(outcome, tries, policy, random),
    }
}

fn judge_attempt(outcome: &Outcome, tries: Tries, policy: Policy<'_>, random: f64) -> Judgement {
    let Policy { answers, retries, in_doubt } = policy;
    let asked = match outcome {
        Outcome::Answered { status, retry_after } => {
            let listed = |list: &[StatusMatch]| list.iter().any(|m| m.matches(*status));
            if listed(&answers.delivered) || (crate::mutant!("redirects-are-deliveries") && *status / 100 == 3) {
                return Verdict::Delivered.into();
            }
            if listed(&answers.in_progress) {
                return in_progress(tries, retries).into();
            }
            if listed(&answers.gone) {
                return waits_for_resume(Suspension::Gone);
            }
            if listed(&answers.rejected) {
                return Verdict::Dead(Reason::Rejected).into();
            }
            // Only these two statuses define what Retry-After means for a request like ours.
            retry_after.filter(|_| matches!(status, 429 | 503))
        }
        Outcome::NeverSent(Trouble::Blocked) => return waits_for_resume(Suspension::Blocked),
        Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
    };
    let doubtful = is_in_doubt(outcome, answers);
    if doubtful && in_doubt == InDoubt::Hold {
        return Verdict::Held.into();
    }
    // Asked about before it is given up: it may have been processed after all.
    let asks = doubtful && in_doubt == InDoubt::Ask;
    if let Some(reason) = spent(tries, retries)
        && !asks
    {
        return Verdict::Dead(reason).into();
    }
    again(tries, retries, asked, random).into()
}

/// At most once: whatever may have reached the endpoint is never sent again.
fn judge_only_attempt(outcome: &Outcome, tries: Tries, policy: Policy<'_>, random: f64) -> Judgement {
    let Policy { answers, retries, .. } = policy;
    match outcome {
        Outcome::Answered { status, .. } => {
            let listed = |list: &[StatusMatch]| list.iter().any(|m| m.matches(*status));
            if listed(&answers.delivered) {
                return Verdict::Delivered.into();
            }
            let suspends = listed(&answers.gone).then_some(Suspension::Gone);
            Judgement { verdict: Verdict::Dead(Reason::Rejected), suspends }
        }
        Outcome::Unknown(_) => Verdict::Dead(Reason::InDoubt).into(),
        Outcome::NeverSent(Trouble::Blocked) => waits_for_resume(Suspension::Blocked),
        Outcome::NeverSent(_) => match spent(tries, retries) {
            Some(reason) => Verdict::Dead(reason).into(),
            None => again(tries, retries, None, random).into(),
        },
    }
}

/// The event waits, uncounted, for as long as its workflow is suspended.
fn waits_for_resume(suspension: Suspension) -> Judgement {
    Judgement { verdict: Verdict::Retry { after: Duration::ZERO, counts: false }, suspends: Some(suspension) }
}

fn again(tries: Tries, retries: &Retries, asked: Option<Duration>, random: f64) -> Verdict {
    let delay = backoff::jittered(backoff::scheduled(&retries.backoff, tries.counted), retries.jitter, random);
    // What the receiver asks for is never cut short: if that is past giveUpAfter, the event has had its last attempt.
    let asked = asked.unwrap_or_default().min(retries.max_retry_after);
    Verdict::Retry { after: within(delay, tries, retries).max(asked), counts: true }
}

/// Whether an event may be tried at all: asked before a retry is sent, where the attempt about to be made is counted.
pub fn may_try(tries: Tries, retries: &Retries) -> Result<(), Reason> {
    if retries.max_attempts.is_some_and(|most| tries.counted > most) {
        return Err(Reason::Exhausted);
    }
    if tries.sends > 1 && tries.age > retries.give_up_after + GRACE {
        return Err(Reason::Expired);
    }
    Ok(())
}

/// A last attempt is made at the end of `giveUpAfter`; it may start this much late.
const GRACE: Duration = Duration::from_secs(5);

fn in_progress(tries: Tries, retries: &Retries) -> Verdict {
    if tries.age >= retries.give_up_after {
        return Verdict::Dead(Reason::Expired);
    }
    Verdict::Retry {
        after: within(backoff::in_progress(1 + tries.sends - tries.counted.min(tries.sends)), tries, retries),
        counts: false,
    }
}

fn spent(tries: Tries, retries: &Retries) -> Option<Reason> {
    if retries.max_attempts.is_some_and(|most| tries.counted >= most) {
        return Some(Reason::Exhausted);
    }
    (tries.age >= retries.give_up_after).then_some(Reason::Expired)
}

/// A delay that would end after `giveUpAfter` ends with it: the last attempt is made in time.
fn within(after: Duration, tries: Tries, retries: &Retries) -> Duration {
    after.min(retries.give_up_after.saturating_sub(tries.age))
}

#[cfg(test)]
mod tests {
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
}
