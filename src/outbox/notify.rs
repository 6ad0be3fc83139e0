//! Wake-ups across processes: a NOTIFY says that a workflow has new work or a new state. Never the only way: every
//! listener also polls, so a lost notice costs at most a poll's interval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::sql::text;
use super::{Database, Error, Purpose};
use crate::event::CursorId;
use crate::observe::chain;

const RECONNECT_AFTER: Duration = Duration::from_secs(2);
/// How often one process tells the others of events that it stored and does not send.
const RING_EVERY: Duration = Duration::from_millis(10);
/// What a notice begins with that is only about events that wait. No workflow's id does. It goes on with a colon and the cursors.
const WAITING: char = '+';
/// Cursors in one notice, which has room for 8,000 bytes.
const CURSORS: usize = 300;

/// What a notice says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A workflow has something to look at; where the id is empty, other processes may be there.
    Changed(Arc<str>),
    /// Events were stored by a process that does not send them.
    Waiting { workflow: Arc<str>, cursors: Arc<[CursorId]> },
}

impl Notice {
    fn of(payload: &str) -> Self {
        match payload.strip_prefix(WAITING).and_then(|rest| rest.split_once(':')) {
            Some((workflow, cursors)) => {
                let cursors = cursors.split(',').filter_map(|id| id.parse().ok().map(CursorId)).collect();
                Self::Waiting { workflow: workflow.into(), cursors }
            }
            None => Self::Changed(payload.into()),
        }
    }

    fn is_about(&self, id: &str) -> bool {
        let (Self::Changed(workflow) | Self::Waiting { workflow, .. }) = self;
        **workflow == *id
    }

    fn waiting(workflow: &str, cursors: &[CursorId]) -> String {
        let cursors: Vec<String> = cursors.iter().map(|cursor| cursor.0.to_string()).collect();
        format!("{WAITING}{workflow}:{}", cursors.join(","))
    }
}

/// Waits for a notice about this workflow. None: some were missed.
pub async fn about(heard: &mut broadcast::Receiver<Notice>, workflow: &str) -> Option<Notice> {
    loop {
        match heard.recv().await {
            Ok(notice) if notice.is_about(workflow) => return Some(notice),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return None,
            // Nothing comes any more: the process ends.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits for a notice that something changed, or for the word that some were missed.
pub async fn changed(heard: &mut broadcast::Receiver<Notice>) {
    while let Ok(Notice::Waiting { .. }) = heard.recv().await {}
}

/// Where a process that stores events and does not send them says so: workflow and cursor of each batch.
pub type Bell = mpsc::UnboundedSender<(Arc<str>, CursorId)>;

/// Tells the processes that send of what was stored, many batches at once. Runs until it is dropped.
pub async fn ring_forever(database: Database, mut rung: mpsc::UnboundedReceiver<(Arc<str>, CursorId)>) {
    let mut batches = Vec::new();
    while rung.recv_many(&mut batches, 1_000).await > 0 {
        let mut waiting: BTreeMap<Arc<str>, BTreeSet<CursorId>> = BTreeMap::new();
        for (workflow, cursor) in batches.drain(..) {
            waiting.entry(workflow).or_default().insert(cursor);
        }
        for (workflow, cursors) in waiting {
            let cursors: Vec<CursorId> = cursors.into_iter().collect();
            for cursors in cursors.chunks(CURSORS) {
                if let Err(error) = tell(&database, &Notice::waiting(&workflow, cursors)).await {
                    debug!(error = %chain(&error), "nobody was told of events that wait; they are found by polling");
                }
            }
        }
        tokio::time::sleep(RING_EVERY).await;
    }
}

/// Tells every process that a workflow has something to look at.
pub async fn tell(database: &Database, workflow: &str) -> Result<(), Error> {
    let channel = format!("oncebox_{}", database.schema.name());
    let parameters = [text(&channel), text(&workflow)];
    database.query(Purpose::Claim, include_str!("../../sql/relay/notify.sql"), &parameters).await?;
    Ok(())
}

/// Hears notices on a session of its own and passes the workflow's id on. Runs until it is dropped.
pub async fn listen_forever(database: Database, heard: broadcast::Sender<Notice>) {
    loop {
        if let Err(error) = listen(&database, &heard).await {
            debug!(error = %chain(&error), "not listening for notices; polling goes on");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

async fn listen(database: &Database, heard: &broadcast::Sender<Notice>) -> Result<(), Error> {
    let (client, mut connection) = database.direct().await?;
    let heard = heard.clone();
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                // Nobody listening inside is fine: there may be no workflow.
                let _ = heard.send(Notice::of(notice.payload()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_stored_all_the_time_is_no_change() {
        let (sender, mut heard) = broadcast::channel(8);
        let waiting = Notice::waiting("orders", &[CursorId(7), CursorId(12)]);
        for payload in [&*waiting, "orders"] {
            sender.send(Notice::of(payload)).unwrap();
        }
        let cursors = [CursorId(7), CursorId(12)].into();
        assert_eq!(Notice::of(&waiting), Notice::Waiting { workflow: "orders".into(), cursors });
        changed(&mut heard).await;
        assert!(heard.is_empty(), "the last of them was");
    }
}
