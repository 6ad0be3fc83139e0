//! Gaps: offsets that were never read, and why. Recorded whatever the policy, so that nothing is silent.

use deadpool_postgres::{Client, Object};

use super::database::{STATEMENT_LIMIT, Within};
use super::sql::{Schema, int8, text};
use super::{Database, Error, Purpose, rewind};
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

/// Notes a loss that leaves the cursor where it is, once, however often it is found. `lost` is `[from, to)` as in a gap;
/// nothing when the topic itself is gone, and with it what it still had.
pub async fn record(
    database: &Database,
    cursor: CursorId,
    lost: Option<(i64, i64)>,
    reason: GapReason,
    action: &str,
) -> Result<(), Error> {
    let mut client = database.get(Purpose::Admin).await?;
    match tokio::time::timeout(STATEMENT_LIMIT, note(&mut client, &database.schema, cursor, lost, reason, action)).await
    {
        Ok(noted) => noted,
        Err(_) => {
            drop(Object::take(client));
            Err(Error::TooSlow)
        }
    }
}

/// One transaction: a second process that finds the same loss waits at the lock, and then sees what the first has noted.
async fn note(
    client: &mut Client,
    schema: &Schema,
    cursor: CursorId,
    lost: Option<(i64, i64)>,
    reason: GapReason,
    action: &str,
) -> Result<(), Error> {
    let lock = include_str!("../../sql/ingest/lock_cursor.sql");
    let record = include_str!("../../sql/ingest/record_gap.sql");
    let failed = |file| move |source| Error::statement(file, source);
    let transaction = client.transaction().await.map_err(failed(lock))?;
    transaction.query_typed(&schema.text(lock), &[int8(&cursor.0)]).await.map_err(failed(lock))?;
    let (from, to) = lost.unzip();
    let reason = reason.as_str();
    let parameters = [int8(&cursor.0), int8(&from), int8(&to), text(&reason), text(&action)];
    transaction.query_typed(&schema.text(record), &parameters).await.map_err(failed(record))?;
    transaction.commit().await.map_err(failed(record))
}

/// Moves the cursor and records the gap. One that does not stand where it must is left alone: somebody was faster.
pub async fn move_to(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    match skip(Within::Alone(database, Purpose::Admin), gap, action).await? {
        true => Ok(()),
        false => rewind::rewind(database, gap, action).await,
    }
}

/// The same as a part of what is done in one transaction.
pub async fn move_within(within: Within<'_>, gap: &Gap, action: &str) -> Result<(), Error> {
    match skip(within, gap, action).await? {
        true => Ok(()),
        false => rewind::move_back(within, gap, action).await,
    }
}

/// Answers whether it moved: not where it is to go back.
async fn skip(within: Within<'_>, gap: &Gap, action: &str) -> Result<bool, Error> {
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to), text(&reason), text(&action)];
    Ok(!within.query(include_str!("../../sql/ingest/skip_gap.sql"), &parameters).await?.is_empty())
}
