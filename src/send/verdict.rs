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
mod tests;
