//! What an attempt's outcome means for its event. The one place where the retry rules live; pure.
//!
//! Enters: the outcome, how often the event was tried, the policy. Leaves: a verdict that the outbox writes down.

use std::time::Duration;

use super::backoff;
use crate::config::scalar::StatusMatch;
use crate::config::{Answers, Retries};
use crate::event::Reason;

/// What happened to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A status line came back. `retry_after` is what the answer asked for, when it is readable.
    Answered { status: u16, retry_after: Option<Duration> },
    /// Bytes left, and nobody knows what became of them.
    Unknown(Trouble),
    /// Nothing left this machine.
    NeverSent(Trouble),
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Timeout,
    Connect,
    Dns,
    Tls,
    /// The egress rules forbid every address that the name has.
    Blocked,
    /// The connection broke, or what came back is not HTTP.
    Broken,
    /// The token endpoint gave out no token.
    Token,
}

/// What becomes of the event.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Delivered,
    /// Tried again after the delay. An attempt that does not count leaves `maxAttempts` untouched.
    Retry {
        after: Duration,
        counts: bool,
    },
    Dead(Reason),
    /// The workflow suspends itself; the event waits, uncounted.
    Suspend(Suspension),
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
pub fn judge(outcome: &Outcome, tries: Tries, answers: &Answers, retries: &Retries, random: f64) -> Verdict {
    let asked = match outcome {
        Outcome::Answered { status, retry_after } => {
            let listed = |list: &[StatusMatch]| list.iter().any(|m| m.matches(*status));
            if listed(&answers.delivered) || (crate::mutant!("redirects-are-deliveries") && *status / 100 == 3) {
                return Verdict::Delivered;
            }
            if listed(&answers.in_progress) {
                return in_progress(tries, retries);
            }
            if listed(&answers.gone) {
                return Verdict::Suspend(Suspension::Gone);
            }
            if listed(&answers.rejected) {
                return Verdict::Dead(Reason::Rejected);
            }
            // Only these two statuses define what Retry-After means for a request like ours.
            retry_after.filter(|_| matches!(status, 429 | 503))
        }
        Outcome::NeverSent(Trouble::Blocked) => return Verdict::Suspend(Suspension::Blocked),
        Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
    };
    if let Some(reason) = spent(tries, retries) {
        return Verdict::Dead(reason);
    }
    let delay = backoff::jittered(backoff::scheduled(&retries.backoff, tries.counted), retries.jitter, random);
    // What the receiver asks for is never cut short: if that is past giveUpAfter, the event has had its last attempt.
    let asked = asked.unwrap_or_default().min(retries.max_retry_after);
    Verdict::Retry { after: within(delay, tries, retries).max(asked), counts: true }
}

/// Whether the receiver may have processed the request although it was not delivered.
pub fn is_in_doubt(outcome: &Outcome, answers: &Answers) -> bool {
    match outcome {
        Outcome::Answered { status, .. } => answers.in_doubt.iter().any(|m| m.matches(*status)),
        Outcome::Unknown(_) => true,
        Outcome::NeverSent(_) => false,
    }
}

/// The outcome as metrics and attempt records name it.
pub fn label(outcome: &Outcome, answers: &Answers) -> &'static str {
    let trouble = match outcome {
        Outcome::Answered { status, .. } => {
            let listed = |list: &[StatusMatch]| list.iter().any(|m| m.matches(*status));
            return match status {
                _ if listed(&answers.delivered) => "delivered",
                _ if listed(&answers.in_progress) => "in_progress",
                _ if listed(&answers.gone) => "gone",
                _ if listed(&answers.rejected) => "rejected",
                429 => "throttled",
                300..=399 => "http_3xx",
                400..=499 => "http_4xx",
                500..=599 => "http_5xx",
                _ => "other",
            };
        }
        Outcome::Unknown(trouble) | Outcome::NeverSent(trouble) => trouble,
    };
    match trouble {
        Trouble::Timeout => "timeout",
        Trouble::Connect => "connect",
        Trouble::Dns => "dns",
        Trouble::Tls => "tls",
        Trouble::Blocked => "blocked",
        Trouble::Broken | Trouble::Token => "other",
    }
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

    fn verdict(outcome: &Outcome, counted: u32, age: u64, limit: Option<u32>) -> Verdict {
        let tries = Tries { sends: counted, counted, age: Duration::from_secs(age) };
        judge(outcome, tries, &answers(), &retries(limit), 0.5)
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
        assert_eq!(verdict(&answered(410), 1, 0, None), Verdict::Suspend(Suspension::Gone));
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
            judge(&answered(409), tries, &answers(), &retries(None), 0.5)
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
        assert_eq!(verdict(&blocked, 1, 0, Some(1)), Verdict::Suspend(Suspension::Blocked));
    }

    #[test]
    fn an_event_taken_over_after_its_last_attempt_is_not_sent_again() {
        let tries = Tries { sends: 2, counted: 2, age: Duration::ZERO };
        assert_eq!(may_try(tries, &retries(Some(1))), Err(Reason::Exhausted));
        assert_eq!(may_try(tries, &retries(Some(2))), Ok(()));
        assert_eq!(may_try(tries, &retries(None)), Ok(()));
    }
}
