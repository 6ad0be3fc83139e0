//! What becomes of an event after one attempt, in this workflow. Every rule is asked of `send::verdict`, so that what is
//! explained is what is done; added is only what the guarantee and `onInDoubt` make of it.

use std::time::Duration;

use super::facts::{Doubt, Facts, Path};
use crate::config::InDoubt;
use crate::config::scalar::StatusMatch;
use crate::config::shown::shown_duration;
use crate::event::Reason;
use crate::send::outcome::{Outcome, is_in_doubt};
use crate::send::verdict::{self, Judgement, Suspension, Tries, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counted {
    Yes,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    Retried {
        after: Duration,
        counted: Counted,
    },
    /// Tried again although it may have been processed.
    Redelivered {
        after: Duration,
    },
    /// `lookup` decides.
    Asked,
    /// Waits for an operator.
    Held,
    Dead(Reason),
    /// The workflow stops sending; the event waits.
    Suspended(Suspension),
    /// At most once: the event is over, and the workflow stops sending.
    DeadAndSuspended,
}

/// Whether the receiver can get a second request because of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeat {
    No,
    SameKey,
    IfNotProcessed,
    ByOperator,
    /// As an event of its own, which nothing shows to be a copy.
    OtherKey,
}

impl Repeat {
    pub fn in_words(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::SameKey => "yes, same key",
            Self::IfNotProcessed => "only if not processed",
            Self::ByOperator => "only by an operator",
            Self::OtherKey => "yes, another key",
        }
    }
}

/// What becomes of the event, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Becomes {
    Delivered,
    Retried,
    Asked,
    Held,
    DeadLetter,
    /// Waits, with the workflow, for an operator.
    Waits,
    /// Its record is read again from Kafka.
    ReadAgain,
    Suppressed,
    Unaffected,
    /// Gone, under the condition that the text names.
    Lost,
}

/// What of a copy is as in the first request: what is tried again is stored, also on the direct path.
const SAME: &str = "with the same key and the same bytes";

/// The first attempt has just been made.
const FIRST: Tries = Tries { sends: 1, counted: 1, age: Duration::ZERO };

pub fn of(outcome: &Outcome, facts: &Facts<'_>) -> Fate {
    let policy = facts.policy();
    // In the middle of the jitter: the delay as it is configured.
    let Judgement { verdict, suspends } = verdict::judge(outcome, FIRST, policy, 0.5);
    let in_doubt = is_in_doubt(outcome, policy.answers);
    match (verdict, suspends) {
        (Verdict::Dead(_), Some(_)) => Fate::DeadAndSuspended,
        (Verdict::Delivered | Verdict::Retry { .. } | Verdict::Held, Some(suspension)) => Fate::Suspended(suspension),
        (Verdict::Delivered, None) => Fate::Delivered,
        (Verdict::Held, None) => Fate::Held,
        (Verdict::Dead(reason), None) => Fate::Dead(reason),
        (Verdict::Retry { after, counts: false }, None) => Fate::Retried { after, counted: Counted::No },
        (Verdict::Retry { after, counts: true }, None) => match policy.in_doubt {
            InDoubt::Ask if in_doubt => Fate::Asked,
            InDoubt::Redeliver if in_doubt => Fate::Redelivered { after },
            InDoubt::Redeliver | InDoubt::Ask | InDoubt::Hold | InDoubt::End => {
                Fate::Retried { after, counted: Counted::Yes }
            }
        },
    }
}

impl Fate {
    pub fn becomes(&self) -> Becomes {
        match self {
            Self::Delivered => Becomes::Delivered,
            Self::Retried { .. } | Self::Redelivered { .. } => Becomes::Retried,
            Self::Asked => Becomes::Asked,
            Self::Held => Becomes::Held,
            Self::Dead(_) | Self::DeadAndSuspended => Becomes::DeadLetter,
            Self::Suspended(_) => Becomes::Waits,
        }
    }

    /// `outcome` is what the fate came from: what never left cannot be seen twice.
    pub fn repeat(&self, outcome: &Outcome) -> Repeat {
        match (self, outcome) {
            (_, Outcome::NeverSent(_)) | (Self::Delivered, _) => Repeat::No,
            (Self::Retried { .. } | Self::Redelivered { .. }, _) => Repeat::SameKey,
            (Self::Asked, _) => Repeat::IfNotProcessed,
            (Self::Held | Self::Dead(_) | Self::DeadAndSuspended | Self::Suspended(_), _) => Repeat::ByOperator,
        }
    }

    pub fn in_words(&self, facts: &Facts<'_>) -> String {
        let same = SAME;
        let stored = match facts.path {
            Path::Outbox => "",
            Path::Direct => "stored in the outbox as `retryable`, so that its partition goes on, and ",
        };
        match self {
            Self::Delivered => "delivered".to_owned(),
            Self::Retried { after, counted: Counted::Yes } => {
                format!("{stored}tried again after {}, then on the schedule, {same}", shown_duration(*after))
            }
            Self::Retried { after, counted: Counted::No } => format!(
                "this key is being processed: {stored}tried again after {}, 2s, 4s .. 30s, {same}; not counted against \
                 maxAttempts, bounded by giveUpAfter ({})",
                shown_duration(*after),
                facts.give_up_after()
            ),
            Self::Redelivered { after } => format!(
                "in doubt, and counted as such: {stored}sent again after {}, then on the schedule, {same}; a receiver \
                 that honours the key drops the copy",
                shown_duration(*after)
            ),
            Self::Asked => asked(facts),
            Self::Held => "in doubt: held as `pending`, and nothing is sent, until an operator resolves it \
                           (`oncebox events resolve`)"
                .to_owned(),
            Self::Dead(reason) => format!("dead letter `{}`; {}", reason.as_str(), replay(facts)),
            Self::Suspended(Suspension::Gone) => "the workflow suspends itself: its events wait and nothing is lost; \
                                                  `oncebox resume` starts it again"
                .to_owned(),
            Self::Suspended(Suspension::Blocked) => {
                "nothing leaves; the workflow suspends itself and names the line to \
                                                     add to egress.allow; its events wait"
                    .to_owned()
            }
            Self::DeadAndSuspended => {
                format!("dead letter `rejected`, and the workflow suspends itself; {}", replay(facts))
            }
        }
    }

    /// The key whose behaviour this is, for marking what a build lacks.
    pub fn decided_by(&self, facts: &Facts<'_>) -> &'static str {
        match (self, facts.doubt) {
            (_, Doubt::Never) => "/delivery/guarantee",
            (Self::Asked | Self::Held, _) => "/delivery/onInDoubt",
            (
                Self::Delivered
                | Self::Retried { .. }
                | Self::Redelivered { .. }
                | Self::Dead(_)
                | Self::Suspended(_)
                | Self::DeadAndSuspended,
                _,
            ) => match facts.path {
                Path::Outbox => "/endpoint/answers",
                Path::Direct => "/delivery/mechanism",
            },
        }
    }
}

fn asked(facts: &Facts<'_>) -> String {
    let statuses = |list: &[StatusMatch]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Some(lookup) = &facts.workflow.endpoint.lookup else { return "in doubt".to_owned() };
    format!(
        "in doubt: the next turn asks endpoint.lookup first; {} settles it as delivered without a second POST, {} sends \
         it again {SAME}, anything else waits for the next turn",
        statuses(&lookup.processed),
        statuses(&lookup.not_processed),
    )
}

fn replay(facts: &Facts<'_>) -> &'static str {
    match facts.doubt {
        Doubt::Never => "it is never sent again by itself; a replay by an operator needs --force",
        Doubt::Redeliver | Doubt::Ask | Doubt::Hold => "`oncebox dead-letters replay` sends it again with the same key",
    }
}
