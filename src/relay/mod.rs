//! Enters: claimed events, handed off in memory or read from the outbox. Leaves: attempts, and verdicts to the settler.
//!
//! One dispatcher per workflow decides what may be sent now; it alone touches its state, and everything slow (a request,
//! a statement) runs beside it and comes back as a message. `ingest` is never imported here: the two meet in `outbox`.
//!
//! Files in reading order: `window` (what is known of a delivery), `dispatcher` (the loop), `inbox` (what it hears), `ownership` (taking, keeping,
//! giving back), `waiting` (claiming what waited), `lanes` and `order` (one after the other per key), `attempts` (starting and finishing), `retries` (trying again, asking), `slots` (who goes
//! next), `circuit` (whether the endpoint is left alone), `settler`, `persist` and `apart` (writing outcomes down), `word` (telling of it), `tracing` (telling of them); for the path without
//! outbox `direct` (partitions and their events) and `spiller` (storing what failed).

mod apart;
mod attempts;
mod cancels;
mod circuit;
mod direct;
mod dispatcher;
mod flood;
mod inbox;
mod lanes;
mod order;
mod ownership;
mod persist;
mod rate;
mod retries;
pub mod settler;
mod share;
mod slots;
mod spiller;
mod tracing;
mod waiting;
pub mod window;
mod word;

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{broadcast, watch};

use crate::config::Workflow;
use crate::direct::Parcel;
use crate::event::{ProcessId, Standing};
use crate::observe::Metrics;
use crate::observe::trace::Tracer;
use crate::outbox::Database;
use crate::outbox::fleet::Share;
use crate::outbox::handoff::Desks;
use crate::outbox::load::Budget;
use crate::outbox::notify::Notice;
use crate::outbox::pace::Pace;
use crate::send::connect::Target;
use crate::send::credentials;
use crate::send::egress::Rules;
use crate::send::lookup::Question;

pub use settler::Settler;

/// What every dispatcher of a process shares.
#[derive(Clone)]
pub struct Shared {
    pub database: Database,
    pub process: ProcessId,
    pub desks: Desks,
    pub settler: Settler,
    pub metrics: Arc<Metrics>,
    pub rules: Rules,
    pub budget: Arc<Budget>,
    /// There when somebody collects traces.
    pub tracer: Option<Tracer>,
}

/// What one dispatcher hears from the rest of the process.
pub struct Signals {
    /// What was decided about the workflow.
    pub state: watch::Receiver<Standing>,
    /// What this process may have of the workflow, and has.
    pub share: Arc<Share>,
    /// Cursors may have changed hands.
    pub assigned: Arc<tokio::sync::Notify>,
    /// Notices from other processes.
    pub heard: broadcast::Receiver<Notice>,
    /// How far ahead of its first attempts the consumer may read.
    pub pace: Arc<Pace>,
    /// What the consumer read, where the workflow has the direct path.
    pub parcels: Option<UnboundedReceiver<Parcel>>,
    /// True once the process is to end.
    pub stopping: watch::Receiver<bool>,
}

/// Whether a workflow's endpoint can be spoken to: its certificates and keys are there.
pub fn check(workflow: &Arc<Workflow>, rules: &Rules) -> Result<(), credentials::Error> {
    let target = Target::new(workflow, rules)?;
    Question::new(workflow, &target, rules)?;
    Ok(())
}

/// Starts the dispatcher of one workflow. It ends after `stopping`, when all it started is settled and given back.
pub fn start(
    workflow: &Arc<Workflow>,
    shared: &Shared,
    signals: Signals,
) -> Result<tokio::task::JoinHandle<()>, credentials::Error> {
    let target = Target::new(workflow, &shared.rules)?;
    let question = Question::new(workflow, &target, &shared.rules)?;
    let dispatcher = dispatcher::Dispatcher::new(Arc::clone(workflow), shared.clone(), signals, target, question);
    Ok(tokio::spawn(dispatcher.run()))
}
