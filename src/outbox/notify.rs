//! Wake-ups across processes: a NOTIFY says that a workflow has new work or a new state. Never the only way: every
//! listener also polls, so a lost notice costs at most a poll's interval.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::sql::text;
use super::{Database, Error, Purpose};
use crate::observe::chain;

const RECONNECT_AFTER: Duration = Duration::from_secs(2);

/// Tells every process that a workflow has something to look at.
pub async fn tell(database: &Database, workflow: &str) -> Result<(), Error> {
    let channel = format!("oncebox_{}", database.schema.name());
    let parameters = [text(&channel), text(&workflow)];
    database.query(Purpose::Claim, include_str!("../../sql/relay/notify.sql"), &parameters).await?;
    Ok(())
}

/// Hears notices on a session of its own and passes the workflow's id on. Runs until it is dropped.
pub async fn listen_forever(database: Database, heard: broadcast::Sender<String>) {
    loop {
        if let Err(error) = listen(&database, &heard).await {
            debug!(error = %chain(&error), "not listening for notices; polling goes on");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

async fn listen(database: &Database, heard: &broadcast::Sender<String>) -> Result<(), Error> {
    let (client, mut connection) = database.direct().await?;
    let heard = heard.clone();
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                // Nobody listening inside is fine: there may be no workflow.
                let _ = heard.send(notice.payload().to_owned());
            }
        }
    });
    // The channel is named after the schema, which the configuration restricts to plain identifiers.
    let statement = include_str!("../../sql/relay/listen.sql")
        .replace("oncebox_schema", &format!("oncebox_{}", database.schema.name()));
    client.batch_execute(&statement).await.map_err(|source| Error::statement("listen", source))?;
    // Ends when the connection does.
    let _ = driver.await;
    Ok(())
}
