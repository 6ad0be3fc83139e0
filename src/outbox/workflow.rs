//! What was decided about a workflow: running, paused, suspended or halted, durable and the same for all processes.

use std::collections::HashMap;

use super::sql::{int8, text, texts};
use super::{Database, Error, Purpose};
use crate::config::Workflow;
use crate::event::WorkflowState;

/// A state with why it is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: WorkflowState,
    pub reason: Option<String>,
}

pub async fn register(database: &Database, workflow: &Workflow) -> Result<(), Error> {
    let id = &*workflow.id;
    let parameters = [text(&id), int8(&workflow.version), text(&workflow.document)];
    let file = include_str!("../../sql/admin/register_workflow.sql");
    database.query(Purpose::Admin, file, &parameters).await?;
    Ok(())
}

pub async fn states(database: &Database, ids: &[&str]) -> Result<HashMap<String, Standing>, Error> {
    let file = include_str!("../../sql/admin/workflow_states.sql");
    let rows = database.query(Purpose::Admin, file, &[texts(&ids)]).await?;
    let standing = |row: &tokio_postgres::Row| {
        let state = row.get::<_, &str>("state").parse().unwrap_or(WorkflowState::Halted);
        (row.get("id"), Standing { state, reason: row.get("reason") })
    };
    Ok(rows.iter().map(standing).collect())
}

/// Changes a workflow's state if it stands in one of `from`. Answers whether it did.
pub async fn set(
    database: &Database,
    workflow: &str,
    from: &[WorkflowState],
    to: WorkflowState,
    reason: Option<&str>,
    who: &str,
) -> Result<bool, Error> {
    let from: Vec<&str> = from.iter().map(|state| state.as_str()).collect();
    let state = to.as_str();
    let parameters = [text(&workflow), text(&state), text(&reason), text(&who), texts(&from)];
    let file = include_str!("../../sql/admin/set_workflow_state.sql");
    Ok(!database.query(Purpose::Admin, file, &parameters).await?.is_empty())
}

pub async fn audit(
    database: &Database,
    who: &str,
    action: &str,
    workflow: Option<&str>,
    detail: &str,
) -> Result<(), Error> {
    let parameters = [text(&who), text(&action), text(&workflow), text(&detail)];
    database.query(Purpose::Admin, include_str!("../../sql/admin/write_audit.sql"), &parameters).await?;
    Ok(())
}
