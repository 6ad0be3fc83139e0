//! Workflows as operators see them, and what is decided about them.
//!
//! Files: this one, `limits` (what they may do at most), `errors` (what went wrong last).

mod errors;
mod limits;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::event::WorkflowState;
use crate::outbox::audit::{self, Entry};
use crate::outbox::database::Within;
use crate::outbox::sql::text;
use crate::outbox::{Database, Purpose, left, notify, workflow as store};

pub use crate::outbox::left::Fate;
pub use errors::LastError;
pub use limits::Limits;

/// What is held for longer is left for another time.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// A workflow and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    pub id: String,
    /// running, paused, suspended, halted or removed.
    pub state: String,
    /// Why it is not running.
    pub reason: Option<String>,
    /// When and by whom that was decided.
    pub changed_at: Timestamp,
    pub changed_by: String,
    /// Whether it sends, as far as somebody decided about that: not while paused or suspended.
    pub sends: bool,
    /// Whether a process runs it.
    pub is_run: bool,
    /// Whether what is left of it is being delivered, though it is not configured any more.
    pub draining: bool,
    pub guarantee: String,
    /// Where it reads and where it delivers, as written: references are not resolved.
    pub topics: Vec<String>,
    pub endpoint: String,
    pub labels: BTreeMap<String, String>,
    /// Age of the oldest event that is due and undelivered, 0 when none is.
    pub delivery_lag_seconds: f64,
    /// Age of the oldest undelivered event, those included that wait for a retry.
    pub undelivered_age_seconds: f64,
    /// By state; those that are not over are counted up to 10,001.
    pub events: Events,
    /// Bytes of the bodies that are not delivered.
    pub waiting_bytes: i64,
    /// Events in doubt that wait for a word of an operator, up to 10,001.
    pub held: i64,
    /// Up to 10,001.
    pub dead_letters: i64,
    /// Ordering keys behind a dead letter, up to 10,001.
    pub blocked_keys: i64,
    /// Records that are not read yet. Null where Postgres alone was asked.
    pub kafka_lag_records: Option<i64>,
    /// What it may do at most. Null where it is not configured.
    pub limits: Option<Limits>,
    /// The last requests that did not deliver, newest first, of events that wait, are held or are dead. Null in the list of all.
    pub last_errors: Option<Vec<LastError>>,
    /// What the process that answers knows of its own work. Null where it does not send, or Postgres alone was asked.
    pub live: Option<Live>,
}

/// Events of a workflow by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    pub scheduled: i64,
    pub available: i64,
    pub active: i64,
    pub retryable: i64,
    pub pending: i64,
    pub completed: i64,
    pub cancelled: i64,
    pub discarded: i64,
}

impl Events {
    pub fn undelivered(&self) -> i64 {
        self.scheduled + self.available + self.active + self.retryable + self.pending
    }
}

/// What one process knows of its own work for a workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    pub in_flight: i64,
    /// closed, half-open or open.
    pub circuit: String,
    /// Deliveries a second, over the last half minute.
    pub per_second: f64,
    /// Of the requests of the last half minute, those that did not deliver; null when there were none.
    pub error_share: Option<f64>,
    /// Deliveries a second in each of the last steps of five seconds, oldest first.
    pub history: Vec<f64>,
    /// Requests since the process started, by outcome.
    pub attempts: BTreeMap<String, u64>,
    /// Seconds in each stage, and from record to delivery (`total`), since the process started.
    pub stages: BTreeMap<String, Percentiles>,
}

/// Upper bounds, in seconds, of what half, 90% and 99% took; null where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
}

/// Every workflow that is configured, run, or has something left; or the one of this id.
pub async fn read(database: &Database, only: Option<&str>, configured: &[&str]) -> Result<Vec<Workflow>, Error> {
    let rows = database.query(Purpose::Admin, include_str!("../../sql/operate/workflows.sql"), &[text(&only)]).await?;
    let mut found = Vec::new();
    for row in &rows {
        let mut one = workflow(row);
        let is_configured = configured.contains(&one.id.as_str());
        if !is_configured && !one.is_run {
            if only.is_none() && one.events.undelivered() == 0 && one.dead_letters == 0 {
                continue;
            }
            one.state = WorkflowState::Removed.as_str().to_owned();
        }
        found.push(one);
    }
    Ok(found)
}

fn workflow(row: &tokio_postgres::Row) -> Workflow {
    let document: Value = row
        .get::<_, Option<&str>>("document")
        .and_then(|document| serde_json::from_str(document).ok())
        .unwrap_or_default();
    let text =
        |pointer: &str, default: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or(default).to_owned();
    let list = |pointer: &str| {
        let items = document.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let labels = document.pointer("/labels").cloned().and_then(|labels| serde_json::from_value(labels).ok());
    let (halted, decided): (Option<String>, &str) = (row.get("halted"), row.get("state"));
    let paused = row.get("paused");
    let (state, reason) = match (halted, decided) {
        (Some(halted), _) => (WorkflowState::Halted.as_str(), Some(halted)),
        (None, "running") if paused => (WorkflowState::Paused.as_str(), Some("paused by its configuration".to_owned())),
        (None, decided) => (decided, row.get("reason")),
    };
    let waiting: i64 = row.get("waiting");
    let known = ["scheduled", "available", "active", "retryable", "pending"].map(|state| row.get::<_, i64>(state));
    // Those that were never tried have no row of their own: they are what is left.
    let untried = (waiting - known.iter().sum::<i64>()).max(0);
    let firsts = row.get::<_, i64>("firsts").min(untried);
    let [scheduled, available, active, retryable, pending] = known;
    let oldest = |ages: &[&str]| ages.iter().filter_map(|age| row.get::<_, Option<f64>>(*age)).fold(0.0, f64::max);
    Workflow {
        id: row.get("id"),
        state: state.to_owned(),
        reason,
        changed_at: row.get("changed_at"),
        changed_by: row.get("changed_by"),
        sends: decided == WorkflowState::Running.as_str(),
        is_run: row.get("is_run"),
        draining: row.get("draining"),
        guarantee: text("/delivery/guarantee", "idempotent-keys"),
        topics: list("/source/topics"),
        endpoint: text("/endpoint/url", ""),
        labels: labels.unwrap_or_default(),
        delivery_lag_seconds: oldest(&["first_age", "retry_lag"]),
        undelivered_age_seconds: oldest(&["first_age", "retry_age"]),
        events: Events {
            scheduled,
            available: available + untried - firsts,
            active: active + firsts,
            retryable,
            pending,
            completed: row.get("completed"),
            cancelled: row.get("cancelled"),
            discarded: row.get("discarded"),
        },
        waiting_bytes: row.get("waiting_bytes"),
        held: row.get("held"),
        dead_letters: row.get("letters"),
        blocked_keys: row.get("blocked"),
        kafka_lag_records: None,
        limits: None,
        last_errors: None,
        live: None,
    }
}

/// What a decision did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    pub workflow: String,
    /// False when it was so already.
    pub changed: bool,
}

impl Operator {
    pub async fn workflow(&self, id: &str) -> Result<Workflow, Error> {
        let found = self.read_workflows(Some(id)).await?.into_iter().next().ok_or_else(|| self.no_workflow(id))?;
        Ok(Workflow { last_errors: Some(errors::newest(&self.database, id).await?), ..found })
    }

    pub async fn all_workflows(&self) -> Result<Vec<Workflow>, Error> {
        self.read_workflows(None).await
    }

    async fn read_workflows(&self, only: Option<&str>) -> Result<Vec<Workflow>, Error> {
        let configured: Vec<&str> = self.workflows.iter().map(|workflow| &*workflow.id).collect();
        let mut found = read(&self.database, only, &configured).await?;
        for one in &mut found {
            one.limits = self.configured(&one.id).map(|flow| Limits::of(&flow.delivery));
        }
        Ok(found)
    }

    /// Nothing is sent until it is resumed. What comes in is kept, and the clocks of `giveUpAfter` stop.
    pub async fn pause(&self, id: &str) -> Result<Decided, Error> {
        self.known(id).await?;
        // Before its first start too: then it must not begin.
        store::know(&self.database, id).await?;
        let reason = format!("paused by {}", self.who);
        let changed = store::stop(&self.database, id, WorkflowState::Paused, &reason, &self.who).await?;
        self.decided(id, changed).await
    }

    /// The way out of a pause, a suspension or a halt.
    pub async fn resume(&self, id: &str) -> Result<Decided, Error> {
        self.known(id).await?;
        let changed = store::resume(&self.database, id, &self.who).await?;
        self.decided(id, changed).await
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
