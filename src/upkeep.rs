//! Work beside the data path: following what operators decided, filling gauges, holding the reader back when too much
//! waits, halting what `onInvalid` halts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc, watch};
use tracing::{debug, error, warn};

use crate::config::Workflow;
use crate::event::{ProcessId, Standing, WorkflowState};
use crate::ingest::watched::Watched;
use crate::observe::{Metrics, chain};
use crate::outbox::append::Holding;
use crate::outbox::fleet::{self, Census};
use crate::outbox::gauges::{self, Figures};
use crate::outbox::{Database, direct, notify, workflow};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is followed of one workflow, and who is told.
pub struct Followed {
    pub workflow: Arc<Workflow>,
    pub state: watch::Sender<Standing>,
    pub pressure: Arc<AtomicBool>,
    /// Processes that run it; 0 until that is known.
    pub processes: Arc<AtomicUsize>,
    pub watched: Arc<Watched>,
}

/// Reads states every second, and at once after a notice; figures every second. Runs until it is dropped.
pub async fn follow_forever(
    database: Database,
    process: ProcessId,
    followed: Vec<Followed>,
    metrics: Arc<Metrics>,
    mut heard: broadcast::Receiver<String>,
) {
    let mut figures_at = Instant::now();
    let mut fleet = Fleet::default();
    loop {
        let is_settled = fleet.look(&database, process, &followed).await;
        read_states(&database, &followed, &metrics).await;
        if Instant::now() >= figures_at {
            figures_at = Instant::now() + LOOK_EVERY;
            read_figures(&database, &followed, &metrics).await;
        }
        tokio::select! {
            () = tokio::time::sleep(if is_settled { LOOK_EVERY } else { fleet::KNOWN_AFTER }) => {}
            _ = heard.recv() => {}
        }
    }
}

/// What is known of the other processes, per workflow.
#[derive(Default)]
struct Fleet(HashMap<Arc<str>, Census>);

impl Fleet {
    /// Says that this process is there, and looks who else is. Answers whether every share is known.
    async fn look(&mut self, database: &Database, process: ProcessId, followed: &[Followed]) -> bool {
        let ids: Vec<&str> = followed.iter().map(|one| &*one.workflow.id).collect();
        let is_first = self.0.is_empty();
        let others = match fleet::beat(database, process, &ids).await {
            Ok(others) => others,
            Err(error) => {
                debug!(error = %chain(&error), "this process could not say that it is there");
                return true;
            }
        };
        let now = Instant::now();
        let mut is_settled = true;
        for one in followed {
            let census = self.0.entry(Arc::clone(&one.workflow.id)).or_default();
            let processes = census.note(others.get(&*one.workflow.id).copied().unwrap_or(0), now);
            is_settled &= processes > 0;
            one.processes.store(processes, Ordering::Relaxed);
        }
        if is_first && !is_settled {
            // They look at once instead of within a second.
            let _ = notify::tell(database, "").await;
        }
        is_settled
    }
}

async fn read_states(database: &Database, followed: &[Followed], metrics: &Metrics) {
    let ids: Vec<&str> = followed.iter().map(|f| &*f.workflow.id).collect();
    match workflow::states(database, &ids).await {
        Ok(states) => {
            for one in followed {
                let Some(standing) = states.get(&*one.workflow.id).copied() else { continue };
                // Sent even when it is the same: a stage may have changed its own mind meanwhile.
                one.state.send_replace(standing);
                let shown = standing.shown();
                let paused = one.workflow.paused && shown == WorkflowState::Running;
                metrics.set_state(&one.workflow.id, if paused { WorkflowState::Paused } else { shown });
            }
        }
        Err(error) => {
            debug!(error = %chain(&error), "workflow states could not be read");
            followed.iter().for_each(|one| metrics.forget_state(&one.workflow.id));
        }
    }
}

async fn read_figures(database: &Database, followed: &[Followed], metrics: &Metrics) {
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
        let (waiting, bytes) = (figures.waiting.unsigned_abs(), figures.waiting_bytes.unsigned_abs());
        if waiting > delivery.max_waiting || bytes > delivery.max_waiting_bytes {
            if !self.pressure.swap(true, Ordering::AcqRel) {
                warn!(workflow = id, waiting, bytes, "too much waits; reading pauses");
            }
        } else if waiting * 5 < delivery.max_waiting * 4 && bytes / 4 * 5 < delivery.max_waiting_bytes {
            self.pressure.store(false, Ordering::Release);
        }
        let retrying = figures.retryable + figures.scheduled + figures.pending + figures.active + figures.available;
        let states = [
            ("scheduled", figures.scheduled),
            ("available", (figures.waiting - retrying).max(0) + figures.available),
            ("active", figures.active),
            ("retryable", figures.retryable),
            ("pending", figures.pending),
            ("completed", figures.completed),
            ("cancelled", figures.cancelled),
            ("discarded", figures.discarded),
        ];
        for (state, count) in states {
            metrics.events.with_label_values(&[id, state]).set(count);
        }
        metrics.blocked_keys.with_label_values(&[id]).set(figures.blocked);
        // Not known, with Kafka away for one: then what is known counts.
        let in_kafka = self.watched.oldest_unread(id).unwrap_or_default().as_secs_f64();
        let oldest = |ages: &[Option<f64>]| ages.iter().flatten().copied().fold(in_kafka, f64::max);
        metrics.delivery_lag.with_label_values(&[id]).set(oldest(&[figures.first_age, figures.retry_lag]));
        metrics.undelivered_age.with_label_values(&[id]).set(oldest(&[figures.first_age, figures.retry_age]));
    }
}

/// Absent rather than stale.
fn forget(workflow: &str, metrics: &Metrics) {
    let _ = metrics.delivery_lag.remove_label_values(&[workflow]);
    let _ = metrics.undelivered_age.remove_label_values(&[workflow]);
    let _ = metrics.blocked_keys.remove_label_values(&[workflow]);
    for state in ["scheduled", "available", "active", "retryable", "pending", "completed", "cancelled", "discarded"] {
        let _ = metrics.events.remove_label_values(&[workflow, state]);
    }
}

/// Halts workflows whose `onInvalid` is `halt`, as the workers ask. Runs until it is dropped.
pub async fn halt_forever(database: Database, mut asked: mpsc::UnboundedReceiver<(Arc<Holding>, String)>) {
    while let Some((holding, reason)) = asked.recv().await {
        let id = &holding.workflow.id;
        error!(workflow = %id, reason, "halted: reading stops until an operator decides");
        if let Err(failure) = workflow::halt(&database, id, &reason).await {
            // The partition is read again and asks again.
            warn!(workflow = %id, error = %chain(&failure), "writing the halt failed");
        }
        let _ = notify::tell(&database, id).await;
    }
}

/// Forgets which events of the direct path were stored, once nothing reads them again. Runs until it is dropped.
pub async fn prune_forever(database: Database) {
    const AT_ONCE: usize = 5_000;
    loop {
        match direct::prune(&database, AT_ONCE as i64).await {
            Ok(AT_ONCE) => tokio::time::sleep(Duration::from_millis(100)).await,
            Ok(_) => tokio::time::sleep(Duration::from_secs(60)).await,
            Err(error) => {
                debug!(error = %chain(&error), "forgetting what was spilled failed; trying again later");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
    }
}
