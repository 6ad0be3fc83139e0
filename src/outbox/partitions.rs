//! Day partitions: made ahead of time, dropped when past their retention. Never a bulk delete, never an undelivered row.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use tracing::{info, warn};

use super::sql::{date, float8, int4, int8, text};
use super::{Database, Error, Purpose};
use crate::config::Workflow;
use crate::observe::{Metrics, chain};

const DAYS_AHEAD: i32 = 7;
const MAINTAIN_EVERY: Duration = Duration::from_secs(300);
const PRUNED_AT_ONCE: i64 = 1_000;
const DROP_LIMIT: Duration = Duration::from_secs(120);

/// Runs until it is dropped.
pub async fn maintain_forever(
    database: Database,
    workflows: tokio::sync::watch::Receiver<Vec<Arc<Workflow>>>,
    metrics: Arc<Metrics>,
) {
    loop {
        let current = workflows.borrow().clone();
        if let Err(error) = maintain(&database, &current, &metrics).await {
            let _ = metrics.partitions_ahead_days.remove_label_values::<&str>(&[]);
            warn!(error = %chain(&error), "maintaining partitions failed; trying again later");
        }
        tokio::time::sleep(MAINTAIN_EVERY).await;
    }
}

pub async fn maintain(database: &Database, workflows: &[Arc<Workflow>], metrics: &Metrics) -> Result<(), Error> {
    make(database).await?;
    metrics.partitions_ahead_days.with_label_values::<&str>(&[]).set(f64::from(ahead(database).await?));
    drop_old(database, workflows).await?;
    for workflow in workflows {
        if let Some(keep) = workflow.dead_letter_retention {
            prune_dead_letters(database, &workflow.id, keep).await?;
        }
    }
    Ok(())
}

pub async fn make(database: &Database) -> Result<(), Error> {
    let file = include_str!("../../sql/admin/make_partitions.sql");
    database.query(Purpose::Admin, file, &[int4(&DAYS_AHEAD)]).await?;
    Ok(())
}

async fn ahead(database: &Database) -> Result<i32, Error> {
    let rows = database.query(Purpose::Admin, include_str!("../../sql/admin/partitions_ahead.sql"), &[]).await?;
    Ok(rows.first().and_then(|row| row.get::<_, Option<i32>>("days")).unwrap_or(-1))
}

async fn drop_old(database: &Database, workflows: &[Arc<Workflow>]) -> Result<(), Error> {
    // A day holds the events of all workflows, so the longest retention decides.
    let days = |kept: fn(&Workflow) -> Duration| {
        let longest = workflows.iter().map(|w| kept(w)).max().unwrap_or(Duration::from_secs(30 * 86_400));
        i32::try_from(longest.as_secs().div_ceil(86_400)).unwrap_or(i32::MAX / 2)
    };
    let bodies = days(|w| w.payload_retention);
    let records = days(|w| w.retention).max(bodies);
    let file = include_str!("../../sql/admin/droppable_partitions.sql");
    let parameters = [int4(&bodies), int4(&records)];
    let rows = database.query(Purpose::Admin, file, &parameters).await?;
    if rows.is_empty() {
        return Ok(());
    }
    // A connection of its own, and limits: this waits for readers, and nobody is to wait for it.
    let (client, connection) = database.direct().await?;
    let connection = tokio::spawn(connection);
    let dropped = tokio::time::timeout(DROP_LIMIT, drop_each(database, &client, &rows)).await;
    connection.abort();
    match dropped {
        Ok(result) => result.map_err(|source| Error::statement(file, source)),
        Err(_) => Err(Error::TooSlow),
    }
}

async fn drop_each(
    database: &Database,
    client: &tokio_postgres::Client,
    rows: &[tokio_postgres::Row],
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(include_str!("../../sql/admin/drop_limits.sql")).await?;
    let note = include_str!("../../sql/admin/note_gone.sql");
    for row in rows {
        // Bodies may go: what became of their events stays known.
        if row.get::<_, &str>("parent") != "outbox" {
            let day: Date = row.get("day");
            client.query_typed(&database.schema.text(note), &[date(&day)]).await?;
        }
        // Both statements were written by Postgres itself. Detaching concurrently cannot run in a transaction, and
        // waits for readers without blocking writers. One that is cut short is finished the next time.
        if let Some(detach) = row.get::<_, Option<&str>>("detach") {
            client.batch_execute(detach).await?;
        }
        client.batch_execute(row.get("remove")).await?;
        info!(partition = row.get::<_, &str>("name"), "dropped: past its retention");
    }
    Ok(())
}

async fn prune_dead_letters(database: &Database, workflow: &str, keep: Duration) -> Result<(), Error> {
    let seconds = keep.as_secs_f64();
    let parameters = [text(&workflow), float8(&seconds), int8(&PRUNED_AT_ONCE)];
    database.query(Purpose::Admin, include_str!("../../sql/admin/prune_dead_letters.sql"), &parameters).await?;
    Ok(())
}
