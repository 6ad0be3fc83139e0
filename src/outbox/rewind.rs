//! Moving a cursor back: its records are read again, as events of a new generation with the same keys.
//!
//! What the old generation still has to deliver keeps its place in retry; what was in doubt stays in doubt.

use super::gap::Gap;
use super::sql::{int8, text};
use super::{Database, Error, Purpose};

/// One transaction: whoever delivers the cursor loses it, as in a take-over.
pub async fn rewind(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    let lock = include_str!("../../sql/ingest/seize_delivery.sql");
    let rescue = include_str!("../../sql/relay/rescue.sql");
    let rewind = include_str!("../../sql/ingest/rewind_cursor.sql");
    let failed = |file| move |source| Error::statement(file, source);
    let mut client = database.get(Purpose::Admin).await?;
    let transaction = client.transaction().await.map_err(failed(lock))?;
    let text_of = |file| database.schema.text(file);
    let rows = transaction.query_typed(&text_of(lock), &[int8(&gap.cursor.0)]).await.map_err(failed(lock))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (workflow, epoch): (String, i64) = (row.get("workflow"), row.get("epoch"));
    let (settled_to, claimed_to): (i64, i64) = (row.get("settled_to"), row.get("claimed_to"));
    let parameters = [int8(&gap.cursor.0), text(&workflow), int8(&settled_to), int8(&claimed_to), int8(&epoch)];
    transaction.query_typed(&text_of(rescue), &parameters).await.map_err(failed(rescue))?;
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.to), text(&reason), text(&action)];
    transaction.query_typed(&text_of(rewind), &parameters).await.map_err(failed(rewind))?;
    transaction.commit().await.map_err(failed(rewind))
}
