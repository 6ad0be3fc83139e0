//! Workflows that no process runs any more and that still have events.

use super::sql::{boolean, text};
use super::{Database, Error, Purpose};
use crate::event::CursorId;

/// One of them.
#[derive(Debug, Clone)]
pub struct LeftWorkflow {
    pub id: String,
    /// Its last configuration, as written.
    pub document: String,
    pub waiting: i64,
    /// An operator wants the rest delivered.
    pub is_draining: bool,
}

pub async fn workflows(database: &Database) -> Result<Vec<LeftWorkflow>, Error> {
    let rows = database.query(Purpose::Admin, include_str!("../../sql/admin/left_workflows.sql"), &[]).await?;
    let one = |row: &tokio_postgres::Row| LeftWorkflow {
        id: row.get("id"),
        document: row.get("document"),
        waiting: row.get("waiting"),
        is_draining: row.get("draining"),
    };
    Ok(rows.iter().map(one).collect())
}

/// What is to become of what is left of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered.
    Drain,
    /// It is made dead letters, and nobody is to deliver it meanwhile.
    Park,
}

/// Decides it, on record. Answers whether the workflow is known.
pub async fn decide(database: &Database, workflow: &str, fate: Fate, who: &str) -> Result<bool, Error> {
    let (is_draining, action) = match fate {
        Fate::Drain => (true, "drain"),
        Fate::Park => (false, "park"),
    };
    let file = include_str!("../../sql/admin/set_draining.sql");
    let parameters = [text(&workflow), boolean(&is_draining), text(&who), text(&action)];
    Ok(!database.query(Purpose::Admin, file, &parameters).await?.is_empty())
}

/// Whether a process runs it.
pub async fn is_run(database: &Database, workflow: &str) -> Result<bool, Error> {
    let file = include_str!("../../sql/admin/is_run.sql");
    Ok(!database.query(Purpose::Admin, file, &[text(&workflow)]).await?.is_empty())
}

/// Whether a process sends its events: one that runs it may only read, or only answer operators.
pub async fn is_sent(database: &Database, workflow: &str) -> Result<bool, Error> {
    let file = include_str!("../../sql/admin/is_sent.sql");
    Ok(!database.query(Purpose::Admin, file, &[text(&workflow)]).await?.is_empty())
}

/// Whether a process holds any of it: a delivery, or an event that is under way.
pub async fn is_held(database: &Database, workflow: &str) -> Result<bool, Error> {
    let file = include_str!("../../sql/admin/is_held.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    Ok(rows.first().is_some_and(|row| row.get("held")))
}

/// The cursors of a workflow with events that were never claimed.
pub async fn cursors(database: &Database, workflow: &str) -> Result<Vec<CursorId>, Error> {
    let file = include_str!("../../sql/admin/left_cursors.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    Ok(rows.iter().map(|row| CursorId(row.get("cursor"))).collect())
}

/// Makes everything that waits in retry due, whatever it waits for, so that it can be claimed and ended.
pub async fn make_due(database: &Database, workflow: &str) -> Result<(), Error> {
    database.query(Purpose::Admin, include_str!("../../sql/admin/make_due.sql"), &[text(&workflow)]).await?;
    Ok(())
}
