//! What happened to one request, and how metrics and attempt records name it. Pure.

use std::time::Duration;

use crate::config::Answers;
use crate::config::scalar::StatusMatch;

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
