//! What went wrong last with a workflow: requests that did not deliver, of events that wait, are held or are dead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operate::Error;
use crate::outbox::sql::{int8, text};
use crate::outbox::{Database, Purpose, claim};

/// So many are shown.
const NEWEST: i64 = 10;

/// A request that did not deliver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LastError {
    /// Its event's id.
    pub event: String,
    /// Where the event stands now: scheduled, available, active, retryable, pending or discarded.
    pub state: String,
    /// Its number.
    pub send: i32,
    pub at: Timestamp,
    pub outcome: String,
    pub status: Option<i32>,
    pub error: Option<String>,
    /// How long it took.
    pub millis: i32,
}

/// Newest first.
pub async fn newest(database: &Database, workflow: &str) -> Result<Vec<LastError>, Error> {
    let parameters = [text(&workflow), int8(&NEWEST)];
    let file = include_str!("../../../sql/operate/last_errors.sql");
    let rows = database.query(Purpose::Admin, file, &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| LastError {
            event: claim::place(row).to_string(),
            state: row.get("state"),
            send: row.get("send"),
            at: row.get("at"),
            outcome: row.get("outcome"),
            status: row.get("status"),
            error: row.get("error"),
            millis: row.get("millis"),
        })
        .collect())
}
