//! Gaps: offsets that were never read, and why. Recorded whatever the policy, so that nothing is silent.

use super::sql::{int8, text};
use super::{Database, Error, Purpose};
use crate::config::OnOffsetLoss;
use crate::event::CursorId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// Kafka removed the records before they were read.
    Retention,
    /// The log ends before the stored offset.
    BeyondEnd,
    TopicRecreated,
    Operator,
}

impl GapReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::BeyondEnd => "beyond_end",
            Self::TopicRecreated => "topic_recreated",
            Self::Operator => "operator",
        }
    }
}

/// Offsets `[from, to)`; for a log that ends early, `to` is before `from`.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    pub cursor: CursorId,
    /// Where the cursor must stand; nothing for wherever it stands.
    pub from: Option<i64>,
    pub to: i64,
    pub reason: GapReason,
}

/// The policy as a gap's record names it.
pub fn action(policy: OnOffsetLoss) -> &'static str {
    match policy {
        OnOffsetLoss::Halt => "halt",
        OnOffsetLoss::Earliest => "earliest",
        OnOffsetLoss::Latest => "latest",
    }
}

/// Notes that a topic which was read up to `offset` is gone.
pub async fn record(database: &Database, cursor: CursorId, offset: i64, action: &str) -> Result<(), Error> {
    let reason = GapReason::TopicRecreated.as_str();
    let parameters = [int8(&cursor.0), int8(&offset), int8(&offset), text(&reason), text(&action)];
    database.query(Purpose::Admin, include_str!("../../sql/ingest/record_gap.sql"), &parameters).await?;
    Ok(())
}

/// Moves the cursor and records the gap. One that does not stand where it must is left alone: somebody was faster.
pub async fn move_to(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to), text(&reason), text(&action)];
    let moved = database.query(Purpose::Admin, include_str!("../../sql/ingest/skip_gap.sql"), &parameters).await?;
    if moved.is_empty() {
        super::rewind::rewind(database, gap, action).await?;
    }
    Ok(())
}
