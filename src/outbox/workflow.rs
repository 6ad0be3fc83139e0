//! What was decided about a workflow: whether it sends, whether it reads. Durable, the same for all processes.

use std::collections::HashMap;
use std::time::Duration;

use super::database::Within;
use super::sql::{boolean, float8, int8, text, texts};
use super::{Database, Error, Purpose};
use crate::config::Workflow;
use crate::event::{Standing, WorkflowState};

/// Makes a workflow known, with its configuration. What was decided about it before stays.
pub async fn register(database: &Database, workflow: &Workflow) -> Result<(), Error> {
    let id = &*workflow.id;
    let parameters = [text(&id), int8(&workflow.version), text(&workflow.document), boolean(&workflow.paused)];
    let file = include_str!("../../sql/admin/register_workflow.sql");
    database.query(Purpose::Admin, file, &parameters).await?;
    Ok(())
}

/// Has it on record, though it never ran.
pub async fn know(database: &Database, workflow: &str) -> Result<(), Error> {
    database.query(Purpose::Admin, include_str!("../../sql/admin/know_workflow.sql"), &[text(&workflow)]).await?;
    Ok(())
}

/// Takes over everything that a workflow has under its former id. Answers how many partitions, if it did.
pub async fn rename(database: &Database, former: &str, id: &str) -> Result<Option<i64>, Error> {
    let file = include_str!("../../sql/admin/rename_workflow.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&former), text(&id)]).await?;
    Ok(rows.first().map(|row| row.get("partitions")))
}

/// Those that live on under another id, and which.
pub async fn renamed(database: &Database, ids: &[&str]) -> Result<HashMap<String, String>, Error> {
    let file = include_str!("../../sql/admin/renamed_workflows.sql");
    let rows = database.query(Purpose::Admin, file, &[texts(&ids)]).await?;
    Ok(rows.iter().map(|row| (row.get("id"), row.get("renamed_to"))).collect())
}

/// Every workflow that is known, with the configuration it runs with, as written.
pub async fn running(database: &Database) -> Result<Vec<(String, String)>, Error> {
    let file = include_str!("../../sql/admin/running_configuration.sql");
    let rows = database.query(Purpose::Admin, file, &[]).await?;
    Ok(rows.iter().map(|row| (row.get("id"), row.get("document"))).collect())
}

pub async fn states(database: &Database, ids: &[&str]) -> Result<HashMap<String, Standing>, Error> {
    let file = include_str!("../../sql/admin/workflow_states.sql");
    let rows = database.query(Purpose::Admin, file, &[texts(&ids)]).await?;
    let standing = |row: &tokio_postgres::Row| {
        // A state of a newer version is one in which nothing is sent.
        let decided = row.get::<_, &str>("state").parse().unwrap_or(WorkflowState::Paused);
        (row.get("id"), Standing { decided, halted: row.get::<_, Option<&str>>("halted").is_some() })
    };
    Ok(rows.iter().map(standing).collect())
}

/// Stops reading. Answers whether it was reading.
pub async fn halt(database: &Database, workflow: &str, reason: &str) -> Result<bool, Error> {
    let file = include_str!("../../sql/admin/halt_workflow.sql");
    Ok(!database.query(Purpose::Admin, file, &[text(&workflow), text(&reason)]).await?.is_empty())
}

/// Reads again. Answers whether it was halted.
pub async fn end_halt(within: Within<'_>, workflow: &str) -> Result<bool, Error> {
    Ok(!within.query(include_str!("../../sql/admin/end_halt.sql"), &[text(&workflow)]).await?.is_empty())
}

/// Stops sending, if it sends. Answers whether it did.
pub async fn stop(
    database: &Database,
    workflow: &str,
    to: WorkflowState,
    reason: &str,
    who: &str,
) -> Result<bool, Error> {
    let state = to.as_str();
    let parameters = [text(&workflow), text(&state), text(&reason), text(&who)];
    let file = include_str!("../../sql/admin/stop_workflow.sql");
    Ok(!database.query(Purpose::Admin, file, &parameters).await?.is_empty())
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Whether anything had stopped it that an operator can end.
    pub changed: bool,
    /// Whether its configuration pauses it.
    pub is_paused: bool,
}

/// Sends and reads again, whatever had stopped it. Nothing when it is not on record.
pub async fn resume(database: &Database, workflow: &str, who: &str) -> Result<Option<Resumed>, Error> {
    let file = include_str!("../../sql/admin/resume_workflow.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow), text(&who)]).await?;
    Ok(rows.first().map(|row| Resumed { changed: row.get("changed"), is_paused: row.get("paused") }))
}

/// Counts the time until now for which a circuit was open as stopped.
pub async fn account_circuit(database: &Database, workflow: &str, open_for: Duration) -> Result<(), Error> {
    let seconds = open_for.as_secs_f64();
    let file = include_str!("../../sql/admin/account_circuit.sql");
    database.query(Purpose::Admin, file, &[text(&workflow), float8(&seconds)]).await?;
    Ok(())
}
