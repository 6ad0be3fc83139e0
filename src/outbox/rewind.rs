//! Moving a cursor back: its records are read again, as events of a new generation with the same keys.
//!
//! What the old generation still has to deliver keeps its place in retry; what was in doubt stays in doubt.

use deadpool_postgres::{Client, Object};

use super::database::STATEMENT_LIMIT;
use super::gap::Gap;
use super::sql::{Schema, int8, text};
use super::{Database, Error, Purpose};

/// One transaction: whoever delivers the cursor loses it, as in a take-over.
pub async fn rewind(database: &Database, gap: &Gap, action: &str) -> Result<(), Error> {
    let mut client = database.get(Purpose::Admin).await?;
    match tokio::time::timeout(STATEMENT_LIMIT, move_back(&mut client, &database.schema, gap, action)).await {
        Ok(moved) => moved,
        Err(_) => {
            drop(Object::take(client));
            Err(Error::TooSlow)
        }
    }
}

async fn move_back(client: &mut Client, schema: &Schema, gap: &Gap, action: &str) -> Result<(), Error> {
    let lock = include_str!("../../sql/ingest/seize_delivery.sql");
    let rescue = include_str!("../../sql/relay/rescue.sql");
    let rewind = include_str!("../../sql/ingest/rewind_cursor.sql");
    let failed = |file| move |source| Error::statement(file, source);
    let transaction = client.transaction().await.map_err(failed(lock))?;
    let parameters = [int8(&gap.cursor.0), int8(&gap.from), int8(&gap.to)];
    let rows = transaction.query_typed(&schema.text(lock), &parameters).await.map_err(failed(lock))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (workflow, epoch): (String, i64) = (row.get("workflow"), row.get("epoch"));
    let (settled_to, claimed_to): (i64, i64) = (row.get("settled_to"), row.get("claimed_to"));
    let parameters = [int8(&gap.cursor.0), text(&workflow), int8(&settled_to), int8(&claimed_to), int8(&epoch)];
    transaction.query_typed(&schema.text(rescue), &parameters).await.map_err(failed(rescue))?;
    let reason = gap.reason.as_str();
    let parameters = [int8(&gap.cursor.0), int8(&gap.to), text(&reason), text(&action)];
    transaction.query_typed(&schema.text(rewind), &parameters).await.map_err(failed(rewind))?;
    transaction.commit().await.map_err(failed(rewind))
}
