//! Workflows as operators see them, and what is decided about them.
//!
//! Files: this one (where they stand), `decisions` (pause, resume, drain, park), `limits` (what they may do at most), `errors` (what went
//! wrong last).

mod decisions;
mod errors;
mod limits;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::event::WorkflowState;
use crate::outbox::sql::text;
use crate::outbox::{Database, Purpose};

pub use crate::outbox::left::Fate;
pub use decisions::{Decided, Resumed};
pub use errors::LastError;
pub use limits::Limits;

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
    /// Whether its configuration pauses it (`paused: true`), whatever anybody decided: that ends with a change of the configuration alone.
    pub paused_by_configuration: bool,
    /// Whether a process runs it.
    pub is_run: bool,
    /// Whether one of those reads it.
    #[serde(default = "not_known_otherwise")]
    pub is_read: bool,
    /// Whether one of those sends its events.
    #[serde(default = "not_known_otherwise")]
    pub is_sent: bool,
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

impl Workflow {
    /// Whether it would run, were it not for its configuration.
    pub fn only_its_configuration_pauses_it(&self) -> bool {
        self.paused_by_configuration && self.sends && self.state == WorkflowState::Paused.as_str()
    }
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
    /// Seconds in each stage, and from record to delivery (`total`), over the last five minutes.
    pub stages: BTreeMap<String, Percentiles>,
}

/// Upper bounds, in seconds, of what half, 90% and 99% took; null where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
}

/// Of a process that does not say: one of before there were roles.
fn not_known_otherwise() -> bool {
    true
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
            // Nothing is left of a configuration that could pause it.
            if one.only_its_configuration_pauses_it() {
                one.reason = None;
            }
            one.paused_by_configuration = false;
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
    // Whoever has what is left of it delivered does not mean the pause that it was removed with.
    let paused = row.get::<_, bool>("paused") && !row.get::<_, bool>("draining");
    let (state, reason) = match (halted, decided) {
        (Some(halted), _) => (WorkflowState::Halted.as_str(), Some(halted)),
        (None, "running") if paused => (WorkflowState::Paused.as_str(), Some("paused by its configuration".to_owned())),
        (None, decided) => (decided, row.get("reason")),
    };
    let guarantee = text("/delivery/guarantee", "idempotent-keys");
    let is_direct = match text("/delivery/mechanism", "").as_str() {
        "" => ["at-least-once", "idempotent-keys"].contains(&guarantee.as_str()),
        named => named != "transactional-outbox",
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
        paused_by_configuration: paused,
        is_run: row.get("is_run"),
        // What is sent without being stored is read by whoever sends it.
        is_read: row.get(if is_direct { "is_sent" } else { "is_read" }),
        is_sent: row.get("is_sent"),
        draining: row.get("draining"),
        guarantee,
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
}
