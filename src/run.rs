//! Starts the stages of `oncebox run`, and drains them in order. The only file that knows every stage.
//!
//! ```text
//! ingest threads → transform workers ─┬→ writer ─(commit)→ hand-off ─┬→ dispatchers → settler
//!                                     └──────── direct path ─────────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tracing::{info, warn};

use crate::admin::{self, Readiness};
use crate::config::{Config, Workflow};
use crate::event::{ProcessId, Standing};
use crate::ingest;
use crate::ingest::watch::Watch;
use crate::ingest::watched::Watched;
use crate::ingest::workers::Workers;
use crate::observe::{Metrics, chain};
use crate::outbox::handoff::Desks;
use crate::outbox::writer::Writer;
use crate::outbox::{Database, notify, partitions, seen, workflow};
use crate::preflight;
use crate::relay::{self, Settler};
use crate::send::egress::Rules;
use crate::upkeep;

const WRITER_QUEUE: usize = 256;

/// Runs until `stop` resolves, then drains. Returns once everything that was started has ended.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    let readiness = Arc::new(Readiness::default());
    let listener = TcpListener::bind(config.admin.listen)
        .await
        .with_context(|| format!("admin.listen {} cannot be used", config.admin.listen))?;
    let admin = tokio::spawn(admin::serve(listener, Arc::clone(&metrics), Arc::clone(&readiness)));
    let database = Database::new(&config.postgres).map_err(|error| anyhow::anyhow!("{}", chain(&error)))?;
    tokio::pin!(stop);
    tokio::select! {
        checked = preflight::check_database(&database) => checked?,
        () = &mut stop => return Ok(()),
    }
    let cluster = tokio::select! {
        cluster = preflight::cluster_id(&config) => cluster?,
        () = &mut stop => return Ok(()),
    };
    let config = preflight::settle_names(config, &database).await?;
    for workflow in &config.workflows {
        workflow::register(&database, workflow).await.context("registering workflows")?;
    }
    let known: Vec<_> = config.workflows.iter().map(|w| (&w.id, w.delivery.guarantee.as_str(), &w.labels)).collect();
    metrics.register(&known);
    partitions::make(&database).await.context("making partitions")?;
    let ids: Vec<&str> = config.workflows.iter().map(|workflow| &*workflow.id).collect();
    let standings = workflow::states(&database, &ids).await.context("reading workflow states")?;
    let process = Process::start(&config, &database, &cluster, &standings, &metrics, &readiness)?;
    readiness.checked.store(true, Ordering::Release);
    info!(process = %process.id, workflows = config.workflows.len(), "running");
    tokio::select! {
        () = stop => {}
        part = process.broken() => {
            // Leases run out and another process goes on; one that limps would hold them.
            bail!("the {part} ended by itself, which it never should: ending the process");
        }
    }
    info!("stopping: finishing what is under way");
    readiness.stopping.store(true, Ordering::Release);
    process.drain(config.shutdown_grace).await;
    admin.abort();
    info!("stopped");
    Ok(())
}

/// Everything that runs.
struct Process {
    id: ProcessId,
    stopping: watch::Sender<bool>,
    consumers: Vec<std::thread::JoinHandle<()>>,
    dispatchers: Vec<tokio::task::JoinHandle<()>>,
    workers: Arc<Workers>,
    writer: tokio::task::JoinHandle<()>,
    settlers: [tokio::task::JoinHandle<()>; 2],
    /// Work that ends with the process: nothing of it needs finishing.
    background: tokio::task::JoinSet<()>,
}

impl Process {
    fn start(
        config: &Config,
        database: &Database,
        cluster: &Arc<str>,
        standings: &HashMap<String, Standing>,
        metrics: &Arc<Metrics>,
        readiness: &Readiness,
    ) -> anyhow::Result<Self> {
        let id = ProcessId::new_v4();
        let (stopping, stopped) = watch::channel(false);
        let desks = Desks::default();
        let (batches, queue) = mpsc::channel(WRITER_QUEUE);
        let (halts, halted) = mpsc::unbounded_channel();
        let writer = Writer {
            database: database.clone(),
            process: id,
            desks: desks.clone(),
            metrics: Arc::clone(metrics),
            halts: halts.clone(),
        };
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = Arc::new(Workers::start(threads, &batches, &halts, metrics));
        drop(batches);
        let (settler, settlers) = Settler::start(database, id, metrics);
        let watched = Arc::new(Watched::default());
        let reading = ingest::Shared {
            kafka: Arc::new(config.kafka.clone()),
            cluster: Arc::clone(cluster),
            database: database.clone(),
            process: id,
            workers: Arc::clone(&workers),
            watched: Arc::clone(&watched),
            runtime: tokio::runtime::Handle::current(),
        };
        let sending = relay::Shared {
            database: database.clone(),
            process: id,
            desks,
            settler,
            metrics: Arc::clone(metrics),
            rules: Rules::new(config.egress.allow.clone()).through(config.egress.proxy.clone()),
        };
        let (heard, _) = broadcast::channel(256);
        let mut background = tokio::task::JoinSet::new();
        background.spawn(notify::listen_forever(database.clone(), heard.clone()));
        background.spawn(partitions::maintain_forever(database.clone(), config.workflows.clone(), Arc::clone(metrics)));
        if config.workflows.iter().any(|workflow| workflow.delivery.deduplication.is_some()) {
            background.spawn(seen::prune_forever(database.clone()));
        }
        if config.workflows.iter().any(|workflow| workflow.delivery.is_direct()) {
            background.spawn(upkeep::prune_forever(database.clone()));
        }
        background.spawn(upkeep::halt_forever(database.clone(), halted));
        watch_thread(config, &reading, metrics, stopped.clone());
        let mut process = Self {
            id,
            consumers: Vec::new(),
            dispatchers: Vec::new(),
            workers,
            writer: tokio::spawn(writer.run(queue)),
            settlers,
            background,
            stopping,
        };
        let mut followed = Vec::new();
        for workflow in &config.workflows {
            let parts = Followed::new(workflow, standings, &watched);
            readiness.await_joined(&workflow.id, &parts.joined);
            process.start_workflow(workflow, &reading, &sending, &parts, (&heard, &stopped))?;
            followed.push(parts.followed);
        }
        process.background.spawn(upkeep::follow_forever(
            database.clone(),
            id,
            followed,
            Arc::clone(metrics),
            heard.subscribe(),
        ));
        Ok(process)
    }

    fn start_workflow(
        &mut self,
        workflow: &Arc<Workflow>,
        reading: &ingest::Shared,
        sending: &relay::Shared,
        parts: &Followed,
        (heard, stopped): (&broadcast::Sender<String>, &watch::Receiver<bool>),
    ) -> anyhow::Result<()> {
        let (desk, parcels) = match workflow.delivery.is_direct() {
            true => {
                let (desk, parcels) = mpsc::unbounded_channel();
                (Some(desk), Some(parcels))
            }
            false => (None, None),
        };
        let dispatcher = relay::start(
            workflow,
            sending,
            relay::Signals {
                state: parts.followed.state.subscribe(),
                processes: Arc::clone(&parts.followed.processes),
                assigned: Arc::clone(&parts.assigned),
                heard: heard.subscribe(),
                parcels,
                stopping: stopped.clone(),
            },
        )?;
        self.dispatchers.push(dispatcher);
        let signals = ingest::Signals {
            state: parts.followed.state.subscribe(),
            pressure: Arc::clone(&parts.followed.pressure),
            assigned: Arc::clone(&parts.assigned),
            joined: Arc::clone(&parts.joined),
            direct: desk,
            stopping: stopped.clone(),
        };
        self.consumers.push(ingest::start(Arc::clone(workflow), reading.clone(), signals));
        Ok(())
    }

    /// Resolves when a part that runs as long as the process has ended: it panicked.
    async fn broken(&self) -> &'static str {
        loop {
            if self.writer.is_finished() {
                return "writer";
            }
            if self.settlers.iter().any(tokio::task::JoinHandle::is_finished) {
                return "settler";
            }
            if self.dispatchers.iter().any(tokio::task::JoinHandle::is_finished) {
                return "dispatcher of a workflow";
            }
            if self.consumers.iter().any(std::thread::JoinHandle::is_finished) {
                return "consumer of a workflow";
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Stop reading and sending; let what was read be stored, what was sent be settled, and the rest be given back.
    async fn drain(mut self, grace: Duration) {
        let _ = self.stopping.send(true);
        let deadline = tokio::time::Instant::now() + grace;
        let consumers = std::mem::take(&mut self.consumers);
        let joined = tokio::task::spawn_blocking(move || consumers.into_iter().for_each(|thread| drop(thread.join())));
        if tokio::time::timeout_at(deadline, joined).await.is_err() {
            warn!("consumers did not end in time");
        }
        for dispatcher in self.dispatchers {
            // What is still on its way keeps its lease: another process takes it over when that runs out.
            let abort = dispatcher.abort_handle();
            if tokio::time::timeout_at(deadline, dispatcher).await.is_err() {
                warn!("requests are still under way at the end of the grace period; their leases will run out");
                abort.abort();
            }
        }
        drop(self.workers);
        let _ = tokio::time::timeout(Duration::from_secs(2), self.writer).await;
        for settler in self.settlers {
            let _ = tokio::time::timeout(Duration::from_secs(2), settler).await;
        }
        self.background.shutdown().await;
    }
}

fn watch_thread(config: &Config, reading: &ingest::Shared, metrics: &Arc<Metrics>, stopping: watch::Receiver<bool>) {
    let watch = Watch {
        kafka: Arc::clone(&reading.kafka),
        cluster: Arc::clone(&reading.cluster),
        watched: Arc::clone(&reading.watched),
        database: reading.database.clone(),
        metrics: Arc::clone(metrics),
        workflows: config.workflows.iter().map(|workflow| Arc::clone(&workflow.id)).collect(),
        runtime: reading.runtime.clone(),
        stopping,
    };
    // Never joined: it only measures, and may be waiting for a broker that is away.
    let started = std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch.run());
    started.expect("a thread can be started");
}

/// The signals of one workflow's stages.
struct Followed {
    followed: upkeep::Followed,
    assigned: Arc<Notify>,
    joined: Arc<AtomicBool>,
}

impl Followed {
    fn new(workflow: &Arc<Workflow>, standings: &HashMap<String, Standing>, watched: &Arc<Watched>) -> Self {
        // What was decided before this start holds from its first moment.
        let standing = standings.get(&*workflow.id).copied().unwrap_or(Standing::RUNNING);
        let followed = upkeep::Followed {
            workflow: Arc::clone(workflow),
            state: watch::channel(standing).0,
            pressure: Arc::default(),
            processes: Arc::default(),
            watched: Arc::clone(watched),
        };
        Self { followed, assigned: Arc::default(), joined: Arc::default() }
    }
}
