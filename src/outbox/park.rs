//! Moves an event to the dead letters: the letter, the `done` row and the counters in one statement.

use super::attempt::{AttemptRecord, EventRef, Right, as_i32};
use super::database::Within;
use super::sql::{boolean, date, float8, int4, int8, text, uuid};
use super::{Database, Error, Purpose};
use crate::config::DeadLetterLimit;
use crate::event::{ProcessId, Reason};

/// An event that ends as a dead letter.
#[derive(Debug, Clone)]
pub struct Death {
    pub event: EventRef,
    pub workflow: std::sync::Arc<str>,
    pub right: Right,
    pub sends: u32,
    pub reason: Reason,
    /// Whether the later events of its lane wait for it.
    pub blocks: bool,
    /// Nothing when the event was given up before another attempt was made.
    pub attempt: Option<AttemptRecord>,
}

/// What parking an event found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    Written,
    /// The event was terminal already.
    AlreadyDone,
    Fenced,
}

/// Moves one event to the dead letters, in one statement.
pub async fn park(database: &Database, process: ProcessId, death: &Death) -> Result<Parked, Error> {
    park_within(Within::Alone(database, Purpose::Settle), process, death).await
}

/// The same as a part of what is done in one transaction.
pub async fn park_within(within: Within<'_>, process: ProcessId, death: &Death) -> Result<Parked, Error> {
    let place = death.event.place;
    let (sends, fence) = (as_i32(death.sends), death.right.fence());
    let (reason, retried) = (death.reason.as_str(), death.right.is_retry());
    let bytes = death.event.body_bytes as i64;
    let parameters = [
        int8(&place.cursor.0),
        int8(&place.offset),
        int4(&place.index),
        int4(&place.generation),
        date(&death.event.day),
        text(&reason),
        int4(&sends),
        int8(&fence),
        boolean(&retried),
        uuid(&process),
        int8(&bytes),
        boolean(&death.blocks),
    ];
    let rows = within.query(include_str!("../../sql/dead_letter/park.sql"), &parameters).await?;
    Ok(match rows.first().map(|row| (row.get("allowed"), row.get("parked"))) {
        Some((_, true)) => Parked::Written,
        Some((true, false)) => Parked::AlreadyDone,
        Some((false, false)) | None => Parked::Fenced,
    })
}

/// Whether a workflow has had more dead letters lately than its limit allows, those of all processes together.
pub async fn are_too_many(database: &Database, workflow: &str, limit: DeadLetterLimit) -> Result<bool, Error> {
    let (seconds, count) = (limit.per.as_secs_f64(), i64::try_from(limit.count).unwrap_or(i64::MAX - 1));
    let file = include_str!("../../sql/relay/recent_dead_letters.sql");
    let rows = database.query(Purpose::Claim, file, &[text(&workflow), float8(&seconds), int8(&count)]).await?;
    Ok(rows.first().is_some_and(|row| row.get("too_many")))
}
