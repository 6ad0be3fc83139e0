//! Enters: Kafka. Leaves: batches of one partition's consecutive records, transformed, for the outbox's writer, or straight
//! for the relay where a workflow has the direct path.
//!
//! Each workflow has a consumer on a thread of its own, because librdkafka's calls block and its callbacks run inside
//! them. Start offsets come from the stored cursor, inside the assignment itself. `relay` is never imported here: the
//! two meet in `outbox`.
//!
//! Files in reading order: `consumer` (the loop), `gather` (records into batches), `progress` (offsets told on),
//! `context` (rebalances), `assignment` (cursor and log), `path` (with or without the outbox), `marks` (offsets in Kafka),
//! `workers` (transform threads), `watch` and `watched` (topics that change underneath, lag), `backlog` (how old it is),
//! `settings`, `native` (what the safe crate lacks).

pub mod assignment;
mod backlog;
mod consumer;
mod context;
mod gather;
mod marks;
pub mod native;
mod path;
mod progress;
pub mod settings;
pub mod watch;
pub mod watched;
pub mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Notify, watch as channel};

use crate::config::{Kafka, Workflow};
use crate::direct::Desk;
use crate::event::{Joining, ProcessId, Standing};
use crate::outbox::Database;
use crate::outbox::fleet::Share;
use crate::outbox::load::Budget;
use crate::outbox::pace::Pace;
use workers::Workers;

/// What every consumer of a process shares.
#[derive(Clone)]
pub struct Shared {
    pub kafka: Arc<Kafka>,
    /// The namespace inside keys and cursors.
    pub cluster: Arc<str>,
    pub database: Database,
    pub process: ProcessId,
    pub workers: Arc<Workers>,
    pub watched: Arc<watched::Watched>,
    pub budget: Arc<Budget>,
    pub runtime: tokio::runtime::Handle,
}

/// What one consumer hears from, and tells, the rest of the process.
#[derive(Clone)]
pub struct Signals {
    pub state: channel::Receiver<Standing>,
    /// Whether others do all there is to do.
    pub share: Arc<Share>,
    /// Too much waits in the outbox: read no further.
    pub pressure: Arc<AtomicBool>,
    /// How far ahead of the first attempts to read.
    pub pace: Arc<Pace>,
    /// Told after every assignment, for the relay to look for deliveries.
    pub assigned: Arc<Notify>,
    /// Told once the workflow's group was joined, or why Kafka forbids it.
    pub joining: Arc<Joining>,
    /// Where batches go, when the workflow has the direct path.
    pub direct: Option<Desk>,
    pub stopping: channel::Receiver<bool>,
}

impl Signals {
    /// Whether this process reads: neither halted, nor leaving it to others.
    pub fn reads(&self) -> bool {
        self.state.borrow().reads() && !self.share.leaves_reading()
    }
}

/// Starts the consumer of one workflow on its own thread. It ends after `stopping`, with its cursors released.
pub fn start(workflow: Arc<Workflow>, shared: Shared, signals: Signals) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .name(format!("ingest-{}", workflow.id))
        .spawn(move || consumer::run(&workflow, &shared, &signals))
        .expect("a thread can be started")
}
