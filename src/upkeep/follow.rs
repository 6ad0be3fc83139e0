//! What is followed of each workflow, every second: whether it may send and read, how much waits, how old it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc, watch};
use tracing::{debug, warn};

use super::left::{Drains, Left};
use super::tally::Tally;
use crate::config::Workflow;
use crate::event::{Joining, Standing, WorkflowState};
use crate::ingest::watched::Watched;
use crate::observe::{Metrics, chain};
use crate::outbox::fleet::Share;
use crate::outbox::gauges::{self, Figures};
use crate::outbox::notify::{self, Notice};
use crate::outbox::{Database, workflow};

pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is followed of one workflow, and who is told.
pub struct Followed {
    pub workflow: Arc<Workflow>,
    pub state: watch::Sender<Standing>,
    pub pressure: Arc<AtomicBool>,
    pub share: Arc<Share>,
    /// What a full count found last, where there is too much to count every second.
    pub tally: Tally,
    pub watched: Arc<Watched>,
    /// Whether Kafka lets this process read it.
    pub joining: Arc<Joining>,
    /// Not configured any more: only what is left of it is delivered.
    pub is_left: bool,
    /// Whether its stages are on their way out.
    pub ends: AtomicBool,
}

/// The workflows that run, as they change.
pub type Roster = watch::Receiver<Vec<Arc<Followed>>>;

/// Follows until it is dropped. States are read at once after a notice too.
pub struct Follow {
    pub database: Database,
    pub roster: Roster,
    pub metrics: Arc<Metrics>,
    pub heard: broadcast::Receiver<Notice>,
    /// Told which workflows are to be drained.
    pub drains: mpsc::UnboundedSender<Drains>,
}

impl Follow {
    pub async fn run(mut self) {
        let mut figures_at = Instant::now();
        let mut left = Left::default();
        let mut followed = Vec::new();
        loop {
            let before = std::mem::replace(&mut followed, self.roster.borrow_and_update().clone());
            for gone in before.iter().filter(|one| !followed.iter().any(|now| now.workflow.id == one.workflow.id)) {
                self.metrics.forget_state(&gone.workflow.id);
                forget(&gone.workflow.id, &self.metrics);
            }
            read_states(&self.database, &followed, &self.metrics).await;
            if Instant::now() >= figures_at {
                figures_at = Instant::now() + LOOK_EVERY;
                read_figures(&self.database, &followed, &self.metrics).await;
                left.look(&self.database, &followed, &self.metrics, &self.drains).await;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = notify::changed(&mut self.heard) => {}
                Ok(()) = self.roster.changed() => {}
            }
        }
    }
}

async fn read_states(database: &Database, followed: &[Arc<Followed>], metrics: &Metrics) {
    let ids: Vec<&str> = followed.iter().map(|f| &*f.workflow.id).collect();
    match workflow::states(database, &ids).await {
        Ok(states) => {
            for one in followed {
                let Some(standing) = states.get(&*one.workflow.id).copied() else { continue };
                // Sent even when it is the same: a stage may have changed its own mind meanwhile.
                one.state.send_replace(standing);
                if one.is_left {
                    // Shown as removed.
                    continue;
                }
                let decided = standing.shown();
                let runs = decided == WorkflowState::Running;
                let shown = if runs && one.workflow.paused {
                    WorkflowState::Paused
                } else if runs && one.joining.refusal().is_some() {
                    // Nobody decided it, and it is not on record: it is so for as long as Kafka says no.
                    WorkflowState::Halted
                } else {
                    decided
                };
                metrics.set_state(&one.workflow.id, shown);
            }
        }
        Err(error) => {
            debug!(error = %chain(&error), "workflow states could not be read");
            followed.iter().for_each(|one| metrics.forget_state(&one.workflow.id));
        }
    }
}

async fn read_figures(database: &Database, followed: &[Arc<Followed>], metrics: &Metrics) {
    for one in followed {
        match gauges::read(database, &one.workflow.id).await {
            Ok(figures) => one.apply(&figures, metrics),
            Err(_) => forget(&one.workflow.id, metrics),
        }
    }
    match gauges::oldest_snapshot_seconds(database).await {
        Ok(seconds) => metrics.oldest_snapshot.with_label_values::<&str>(&[]).set(seconds),
        Err(_) => drop(metrics.oldest_snapshot.remove_label_values::<&str>(&[])),
    }
}

impl Followed {
    fn apply(&self, figures: &Figures, metrics: &Metrics) {
        let id = &*self.workflow.id;
        let delivery = &self.workflow.delivery;
        let (waiting, bytes) = (figures.waiting.max(0).unsigned_abs(), figures.waiting_bytes.max(0).unsigned_abs());
        if waiting > delivery.max_waiting || bytes > delivery.max_waiting_bytes {
            if !self.pressure.swap(true, Ordering::AcqRel) {
                warn!(workflow = id, waiting, bytes, "too much waits; reading pauses");
            }
        } else if waiting * 5 < delivery.max_waiting * 4 && bytes / 4 * 5 < delivery.max_waiting_bytes {
            self.pressure.store(false, Ordering::Release);
        }
        let over =
            [("completed", figures.completed), ("cancelled", figures.cancelled), ("discarded", figures.discarded)];
        show(id, metrics, &over);
        match self.tally.of(&figures.states) {
            Some(states) => {
                // Those that were never tried have no row of their own: they are what is left.
                let untried = (figures.waiting - states.events()).max(0);
                let firsts = figures.firsts.min(untried);
                let waiting = [
                    ("scheduled", states.scheduled),
                    ("available", states.available + untried - firsts),
                    ("active", states.active + firsts),
                    ("retryable", states.retryable),
                    ("pending", states.pending),
                ];
                show(id, metrics, &waiting);
                metrics.blocked_keys.with_label_values(&[id]).set(states.blocked);
            }
            None => forget_waiting(id, metrics),
        }
        // Of what is left of a workflow nothing is read. Not known, with Kafka away for one: then what is known to be late still is, but
        // that nothing is cannot be said.
        let in_kafka = if self.is_left { Some(Duration::ZERO) } else { self.watched.oldest_unread(id) };
        let in_kafka = in_kafka.map(|age| age.as_secs_f64());
        show_age(&metrics.delivery_lag, id, oldest([in_kafka, figures.first_age, figures.retry_lag]));
        show_age(&metrics.undelivered_age, id, oldest([in_kafka, figures.first_age, figures.retry_age]));
    }
}

/// The greatest age that is known.
fn oldest(ages: [Option<f64>; 3]) -> Option<f64> {
    ages.into_iter().flatten().reduce(f64::max)
}

fn show_age(gauge: &prometheus::GaugeVec, workflow: &str, age: Option<f64>) {
    match age {
        Some(seconds) => gauge.with_label_values(&[workflow]).set(seconds),
        None => drop(gauge.remove_label_values(&[workflow])),
    }
}

/// Absent rather than stale.
pub(super) fn forget(workflow: &str, metrics: &Metrics) {
    let _ = metrics.delivery_lag.remove_label_values(&[workflow]);
    let _ = metrics.undelivered_age.remove_label_values(&[workflow]);
    forget_waiting(workflow, metrics);
    for state in ["completed", "cancelled", "discarded"] {
        let _ = metrics.events.remove_label_values(&[workflow, state]);
    }
}

/// More waits than was counted so far.
fn forget_waiting(workflow: &str, metrics: &Metrics) {
    let _ = metrics.blocked_keys.remove_label_values(&[workflow]);
    for state in ["scheduled", "available", "active", "retryable", "pending"] {
        let _ = metrics.events.remove_label_values(&[workflow, state]);
    }
}

fn show(workflow: &str, metrics: &Metrics, states: &[(&str, i64)]) {
    for (state, count) in states {
        metrics.events.with_label_values(&[workflow, state]).set(*count);
    }
}
