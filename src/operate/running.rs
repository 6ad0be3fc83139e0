//! What runs, as it is stored: what a new configuration is compared with before it takes over.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::outbox::migrate::{self, Fit};
use crate::outbox::{cursor, gauges, workflow};

/// A workflow that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RunningConfiguration)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub id: String,
    /// As it was written, references unresolved.
    pub document: Value,
    /// Events that are stored and not delivered.
    pub undelivered: i64,
    /// The clusters that its cursors are of; none when it has read nothing.
    pub clusters: Vec<String>,
}

impl Operator {
    /// The workflows that run. A database without a schema runs nothing yet.
    pub async fn running(&self) -> Result<Vec<Running>, Error> {
        let database = &self.database;
        match migrate::fit(database).await? {
            Fit::TooOld { version: 0 } => return Ok(Vec::new()),
            Fit::Fits => {}
            Fit::TooOld { .. } | Fit::TooNew { .. } => {
                let message =
                    "the schema there is of another version than this binary: compare with the binary that runs there";
                return Err(Error::conflict("other_version", message));
            }
        }
        let mut running = Vec::new();
        for (id, document) in workflow::running(database).await? {
            let undelivered = gauges::read(database, &id).await?.waiting;
            let document = serde_json::from_str(&document)
                .map_err(|_| Error::Unavailable(format!("the stored configuration of `{id}` cannot be read")))?;
            let clusters = cursor::clusters(database, &id).await?;
            running.push(Running { id, document, undelivered, clusters });
        }
        Ok(running)
    }
}
