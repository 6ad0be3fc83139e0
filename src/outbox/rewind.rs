//! Moving a cursor back: its records are read again, as events of a new generation with the same keys.
//!
//! What the old generation still has to deliver keeps its place in retry; what was in doubt stays in doubt.

use deadpool_postgres::Transaction;

use super::database::Within;
use super::gap::Gap;
use super::sql::{int8, text};
use super::{Database, Error, Purpose};

/// One transaction: whoever delivers the cursor loses it, as in a take-over.
pub async fn rewind(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    let work =
        async |transaction: &Transaction<'_>| move_back(Within::Transaction(database, transaction), gap, action).await;
    database.transaction(Purpose::Admin, work).await
}

/// As a part of one.
pub(super) async fn move_back(within: Within<'_>, gap: &Gap, action: &str) -> Result<(), Error> {
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to)];
    let rows = within.query(include_str!("../../sql/ingest/seize_delivery.sql"), &parameters).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (workflow, epoch): (String, i64) = (row.get("workflow"), row.get("epoch"));
    let (settled_to, claimed_to): (i64, i64) = (row.get("settled_to"), row.get("claimed_to"));
    let parameters = [int8(&gap.cursor.0), text(&workflow), int8(&settled_to), int8(&claimed_to), int8(&epoch)];
    within.query(include_str!("../../sql/relay/rescue.sql"), &parameters).await?;
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.to), text(&reason), text(&action)];
    within.query(include_str!("../../sql/ingest/rewind_cursor.sql"), &parameters).await?;
    Ok(())
}
