//! The stages of one workflow: its consumer, its dispatcher, and what passes between them. Started and ended together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tracing::warn;

use crate::config::Workflow;
use crate::event::Standing;
use crate::ingest;
use crate::outbox::pace::Pace;
use crate::process::Common;
use crate::relay;
use crate::upkeep::{Followed, Tally};

pub struct Stages {
    pub followed: Arc<Followed>,
    stopping: watch::Sender<bool>,
    /// Nothing where only what is left is delivered, or this process does not read.
    consumer: Option<std::thread::JoinHandle<()>>,
    /// Nothing where this process does not send.
    dispatcher: Option<tokio::task::JoinHandle<()>>,
}

impl Stages {
    /// Starts those that this process has the roles for; only the dispatcher when nothing is to be read.
    pub fn start(workflow: &Arc<Workflow>, common: &Common, standing: Standing, is_left: bool) -> anyhow::Result<Self> {
        let stopping = watch::channel(false).0;
        let followed = Arc::new(Followed {
            workflow: Arc::clone(workflow),
            state: watch::channel(standing).0,
            pressure: Arc::default(),
            share: Arc::default(),
            tally: Tally::default(),
            watched: Arc::clone(&common.watched),
            joining: Arc::default(),
            is_left,
            ends: AtomicBool::new(false),
        });
        let assigned: Arc<Notify> = Arc::default();
        let pace: Arc<Pace> = Arc::default();
        let is_direct = workflow.delivery.is_direct();
        let (desk, parcels) = match is_direct && !is_left {
            true => {
                let (desk, parcels) = mpsc::unbounded_channel();
                (Some(desk), Some(parcels))
            }
            false => (None, None),
        };
        let signals = relay::Signals {
            state: followed.state.subscribe(),
            share: Arc::clone(&followed.share),
            assigned: Arc::clone(&assigned),
            heard: common.heard.subscribe(),
            pace: Arc::clone(&pace),
            parcels,
            stopping: stopping.subscribe(),
        };
        let dispatcher = common.roles.relay.then(|| relay::start(workflow, &common.sending, signals)).transpose()?;
        let consumer = (common.roles.read(is_direct) && !is_left).then(|| {
            let joining = Arc::clone(&followed.joining);
            common.readiness.await_joined(&workflow.id, &joining);
            let signals = ingest::Signals {
                state: followed.state.subscribe(),
                share: Arc::clone(&followed.share),
                pressure: Arc::clone(&followed.pressure),
                pace,
                assigned,
                joining,
                direct: desk,
                stopping: stopping.subscribe(),
            };
            ingest::start(Arc::clone(workflow), common.reading.clone(), signals)
        });
        Ok(Self { followed, stopping, consumer, dispatcher })
    }

    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.followed.workflow
    }

    /// The part that has ended by itself, if one has.
    pub fn broken(&self) -> Option<&'static str> {
        if self.dispatcher.as_ref().is_some_and(tokio::task::JoinHandle::is_finished) {
            return Some("dispatcher of a workflow");
        }
        let is_over = self.consumer.as_ref().is_some_and(std::thread::JoinHandle::is_finished);
        is_over.then_some("consumer of a workflow")
    }

    /// Stops reading and sending, and waits until what was read is stored and what was sent is settled. Answers, where that was
    /// not done in time, how long its leases may still last.
    pub async fn end(self, deadline: tokio::time::Instant) -> Option<Duration> {
        let Self { followed, stopping, consumer, dispatcher } = self;
        let id = &followed.workflow.id;
        followed.ends.store(true, Ordering::Relaxed);
        let _ = stopping.send(true);
        if let Some(consumer) = consumer {
            let joined = tokio::task::spawn_blocking(move || drop(consumer.join()));
            if tokio::time::timeout_at(deadline, joined).await.is_err() {
                warn!(workflow = %id, "the consumer did not end in time");
            }
        }
        // What is still on its way keeps its lease: another process takes it over when that runs out.
        let dispatcher = dispatcher?;
        let abort = dispatcher.abort_handle();
        if tokio::time::timeout_at(deadline, dispatcher).await.is_err() {
            warn!(workflow = %id, "requests are still under way at the end of the grace period; their leases will run out");
            abort.abort();
            return Some(followed.workflow.delivery.lease);
        }
        None
    }
}
