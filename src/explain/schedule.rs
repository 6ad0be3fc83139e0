//! When an event that keeps failing is tried, and when it is given up: `send::verdict` is asked attempt after attempt.

use std::time::Duration;

use super::facts::{Doubt, Facts};
use crate::config::shown::shown_duration;
use crate::event::Reason;
use crate::send::outcome::{Outcome, Trouble};
use crate::send::verdict::{self, Tries, Verdict};

/// More rows than this say nothing new: delays have reached their maximum long before.
const ROWS: usize = 12;
/// Where counting stops: a delay of 10 ms for a year would take for ever.
const MOST_ATTEMPTS: u32 = 1_000_000;

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// The first attempts, each with the delay before it and the time since the first.
    pub attempts: Vec<Attempt>,
    /// How many there are in all, when every delay is as scheduled; `None`: more than a million.
    pub total: Option<u32>,
    /// From the first attempt to the last, in words.
    pub span: String,
    /// The reason of the dead letter at its end.
    pub ends: Option<&'static str>,
    pub max_attempts: Option<u32>,
    pub give_up_after: String,
    /// What is tried again on it.
    pub applies_to: &'static str,
    /// A delay is moved by up to this share of itself.
    pub jitter: f64,
    pub max_retry_after: String,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Attempt {
    pub attempt: u32,
    pub delay: String,
    pub since: String,
}

pub fn of(facts: &Facts<'_>) -> Schedule {
    let retries = &facts.workflow.delivery.retries;
    // Nothing left this machine, so every guarantee tries again.
    let outcome = Outcome::NeverSent(Trouble::Connect);
    let mut attempts = vec![Attempt { attempt: 1, delay: "-".to_owned(), since: "0s".to_owned() }];
    let (mut count, mut age, mut total, mut ends) = (1, Duration::ZERO, None, None);
    while count < MOST_ATTEMPTS {
        let tries = Tries { sends: count, counted: count, age };
        match verdict::judge(&outcome, tries, facts.policy(), 0.5).verdict {
            Verdict::Retry { after, .. } => {
                count += 1;
                age += after;
                if attempts.len() < ROWS {
                    let (delay, since) = (shown_duration(after), shown_duration(age));
                    attempts.push(Attempt { attempt: count, delay, since });
                }
            }
            Verdict::Dead(reason) => {
                (total, ends) = (Some(count), Some(reason));
                break;
            }
            Verdict::Delivered | Verdict::Held => break,
        }
    }
    Schedule {
        attempts,
        total,
        span: shown_duration(age),
        ends: ends.map(Reason::as_str),
        max_attempts: retries.max_attempts,
        give_up_after: shown_duration(retries.give_up_after),
        applies_to: match facts.doubt {
            Doubt::Never => "only a request that surely never left",
            Doubt::Redeliver | Doubt::Ask | Doubt::Hold => "every failure that is tried again",
        },
        jitter: retries.jitter,
        max_retry_after: shown_duration(retries.max_retry_after),
    }
}

impl Schedule {
    pub fn in_words(&self) -> String {
        match (self.total, self.ends) {
            (Some(1), _) => "one attempt: a failure that is not refused outright is a dead letter at once".to_owned(),
            (Some(total), Some(reason)) => {
                format!("{total} attempts within {}, then dead letter `{reason}`", self.span)
            }
            (Some(_) | None, _) => format!("more than {MOST_ATTEMPTS} attempts until giveUpAfter"),
        }
    }
}
