//! Moving the cursors of a workflow on an operator's word: all of them, the end of a halt, and who asked for it. One transaction, so that
//! no partition is moved without the others, and none without a record of it.

use std::time::Duration;

use deadpool_postgres::Transaction;

use super::audit::{self, Entry};
use super::cursor::{self, Start, TopicName};
use super::database::Within;
use super::gap::{self, Gap};
use super::sql::int8;
use super::{Database, Error, Purpose, workflow};
use crate::event::CursorId;

/// Whatever waits behind a cursor that goes back is written to retry.
const LONGEST: Duration = Duration::from_secs(60);

/// One partition's move.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// It was never read, and begins there.
    Begin(TopicName<'a>, Start),
    Move(Gap),
}

impl Step<'_> {
    fn cursor(&self) -> CursorId {
        match self {
            Self::Begin(_, start) => start.id,
            Self::Move(gap) => gap.cursor,
        }
    }
}

pub async fn carry_out(
    database: &Database,
    workflow: &str,
    steps: &[Step<'_>],
    entry: &Entry<'_>,
) -> Result<(), Error> {
    let work = async |transaction: &Transaction<'_>| {
        all(Within::Transaction(database, transaction), workflow, steps, entry).await
    };
    // It may take a while: not on the connection that quick questions need.
    database.transaction_of(Purpose::Settle, LONGEST, work).await
}

/// Cursors are locked in the order of their ids, as by whoever stores events, and all of them before the first delivery is.
async fn all(within: Within<'_>, workflow: &str, steps: &[Step<'_>], entry: &Entry<'_>) -> Result<(), Error> {
    let mut steps: Vec<&Step<'_>> = steps.iter().collect();
    steps.sort_by_key(|step| step.cursor());
    let cursors: Vec<i64> = steps.iter().map(|step| step.cursor().0).collect();
    for cursor in cursors {
        within.query(include_str!("../../sql/ingest/lock_cursor.sql"), &[int8(&cursor)]).await?;
    }
    for step in steps {
        match step {
            Step::Begin(name, start) => cursor::add_within(within, *name, &[*start]).await?,
            Step::Move(gap) => gap::move_within(within, gap, "set").await?,
        }
    }
    workflow::end_halt(within, workflow).await?;
    audit::write(within, entry).await
}
