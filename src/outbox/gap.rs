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
    pub from: i64,
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

pub async fn record(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to), text(&reason), text(&action)];
    database.query(Purpose::Admin, include_str!("../../sql/ingest/record_gap.sql"), &parameters).await?;
    Ok(())
}

/// Moves the cursor over a gap and records it, in one statement. A cursor that moved meanwhile is left alone.
pub async fn skip(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    if gap.to < gap.from {
        return super::rewind::rewind(database, gap, action).await;
    }
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to), text(&reason), text(&action)];
    database.query(Purpose::Admin, include_str!("../../sql/ingest/skip_gap.sql"), &parameters).await?;
    Ok(())
}
