//! What is decided about workflows: pause and resume; and of those that are removed, drain and park.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::WorkflowState;
use crate::operate::{Error, Operator};
use crate::outbox::audit::{self, Entry};
use crate::outbox::database::Within;
use crate::outbox::left::{self, Fate};
use crate::outbox::{Purpose, notify, workflow as store};

/// What is held for longer is left for another time.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// What a decision did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    pub workflow: String,
    /// False when it was so already.
    pub changed: bool,
}

/// What came of asking for a workflow to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    pub workflow: String,
    /// False when nobody had stopped it, and it has not stopped itself.
    pub changed: bool,
    /// Its configuration pauses it all the same: it runs once that is changed.
    pub paused_by_configuration: bool,
}

impl Operator {
    /// Nothing is sent until it is resumed. What comes in is kept, and the clocks of `giveUpAfter` stop.
    pub async fn pause(&self, id: &str) -> Result<Decided, Error> {
        self.known(id).await?;
        // Before its first start too: then it must not begin.
        store::know(&self.database, id).await?;
        let reason = format!("paused by {}", self.who);
        let changed = store::stop(&self.database, id, WorkflowState::Paused, &reason, &self.who).await?;
        self.decided(id, changed).await
    }

    /// The way out of a pause, a suspension or a halt. A pause by the configuration is none that could be ended here.
    pub async fn resume(&self, id: &str) -> Result<Resumed, Error> {
        self.known(id).await?;
        let done = store::resume(&self.database, id, &self.who).await?;
        let changed = done.is_some_and(|done| done.changed);
        // What runs heeds the configuration that it runs with; what does not would heed the one that is here.
        let is_paused = match left::is_run(&self.database, id).await? {
            true => done.is_some_and(|done| done.is_paused),
            false => self.configured(id).is_some_and(|flow| flow.paused),
        };
        if !changed && is_paused {
            let message = format!(
                "`{id}` is paused by its configuration, not by an operator: it runs once `paused: true` is taken out of that"
            );
            return Err(Error::conflict("paused_by_configuration", message));
        }
        let Decided { workflow, changed } = self.decided(id, changed).await?;
        Ok(Resumed { workflow, changed, paused_by_configuration: is_paused })
    }

    /// Has what is left of a workflow that nobody runs any more delivered by the processes that run, or decides that it is to be
    /// made dead letters, which `park` does.
    pub async fn decide_left(&self, id: &str, fate: Fate) -> Result<Decided, Error> {
        let is_left = self.is_left(id).await?;
        let changed = is_left && left::decide(&self.database, id, fate, &self.who).await?;
        self.decided(id, changed).await
    }

    /// Makes dead letters of what is left of a workflow that nobody runs any more, once that is decided and on record; `tell` hears
    /// how many, on the way. What is interrupted is taken up by asking again.
    pub async fn park(&self, id: &str, tell: impl FnMut(u64) + Send) -> Result<u64, Error> {
        let deadline = Instant::now() + LONGEST_LEASE;
        while left::is_held(&self.database, id).await? && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let parked = crate::dead_letter::park_all(&self.database, id, tell).await?;
        // They were many statements. That it was decided is on record since before the first; this says what came of it.
        let detail = format!("{parked} events");
        let entry = Entry { who: &self.who, action: "parked", workflow: Some(id), detail: &detail };
        audit::write(Within::Alone(&self.database, Purpose::Admin), &entry).await?;
        Ok(parked)
    }

    /// Whether anything is left of a workflow that no process runs.
    async fn is_left(&self, id: &str) -> Result<bool, Error> {
        if left::workflows(&self.database).await?.iter().any(|one| one.id == id) {
            return Ok(true);
        }
        self.known(id).await?;
        if left::is_run(&self.database, id).await? {
            return Err(Error::conflict(
                "workflow_running",
                format!(
                    "`{id}` is run by a process: remove it from the configuration of all of them first, then ask again after 10 s"
                ),
            ));
        }
        Ok(false)
    }

    async fn decided(&self, id: &str, changed: bool) -> Result<Decided, Error> {
        if changed {
            // Heard of by the next poll at the latest.
            let _ = notify::tell(&self.database, id).await;
        }
        Ok(Decided { workflow: id.to_owned(), changed })
    }
}
