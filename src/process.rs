//! Everything that runs in a process: the parts that all workflows share, and the stages of each. Starts them, and drains them
//! in order. The only file that knows every stage; `exchange` is about what changes meanwhile.
//!
//! ```text
//! ingest threads → transform workers ─┬→ writer ─(commit)→ hand-off ─┬→ dispatchers → settler
//!                                     └──────── direct path ─────────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};

use crate::admin::Readiness;
use crate::config::{Config, Workflow};
use crate::event::{ProcessId, Roles, Standing};
use crate::export::export_forever;
use crate::ingest;
use crate::ingest::watch::Watch;
use crate::ingest::watched::Watched;
use crate::ingest::workers::Workers;
use crate::observe::Metrics;
use crate::observe::trace::Tracer;
use crate::operate::submit::Intake;
use crate::outbox::handoff::Desks;
use crate::outbox::load::Budget;
use crate::outbox::notify::Notice;
use crate::outbox::writer::{Coming, Writer};
use crate::outbox::{Database, fleet, notify, partitions, seen};
use crate::relay::{self, Settler};
use crate::send::egress::Rules;
use crate::stages::Stages;
use crate::upkeep::{self, Drains, Followed, follow::Follow};

const WRITER_QUEUE: usize = 256;

/// What was decided about workflows, by id.
pub type Standings = HashMap<String, Standing>;

/// A configuration that Postgres knows, and what it knows about its workflows.
pub struct Prepared {
    pub config: Config,
    pub standings: Standings,
}

/// What the stages of every workflow share.
pub struct Common {
    pub roles: Roles,
    pub reading: ingest::Shared,
    pub sending: relay::Shared,
    pub heard: broadcast::Sender<Notice>,
    pub watched: Arc<Watched>,
    pub readiness: Arc<Readiness>,
}

pub struct Process {
    id: ProcessId,
    pub(crate) config: Config,
    pub(crate) common: Common,
    pub(crate) database: Database,
    metrics: Arc<Metrics>,
    /// By workflow.
    pub(crate) stages: HashMap<Arc<str>, Stages>,
    workflows: watch::Sender<Vec<Arc<Workflow>>>,
    configured: watch::Sender<Vec<Intake>>,
    roster: watch::Sender<Vec<Arc<Followed>>>,
    /// Stages on their way out; each answers its workflow when another may take its place.
    pub(crate) ending: tokio::task::JoinSet<Arc<str>>,
    /// What they are followed by: until then they count as running, because their requests do.
    pub(crate) still_followed: HashMap<Arc<str>, Arc<Followed>>,
    pub(crate) stopping: watch::Sender<bool>,
    writer: tokio::task::JoinHandle<()>,
    settlers: [tokio::task::JoinHandle<()>; 2],
    /// Work that ends with the process: nothing of it needs finishing.
    background: tokio::task::JoinSet<()>,
}

impl Process {
    /// Starts everything. Told on the way: which workflows are to be drained.
    pub fn start(
        prepared: Prepared,
        roles: Roles,
        database: &Database,
        cluster: &Arc<str>,
        metrics: &Arc<Metrics>,
        readiness: &Arc<Readiness>,
    ) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<Drains>)> {
        let Prepared { config, standings } = prepared;
        let id = ProcessId::new_v4();
        let (batches, queue) = mpsc::channel(WRITER_QUEUE);
        let (halts, halted) = mpsc::unbounded_channel();
        let (desks, coming) = (Desks::default(), Coming::default());
        let (bell, rung) = mpsc::unbounded_channel();
        let writer = Writer {
            database: database.clone(),
            process: id,
            desks: desks.clone(),
            metrics: Arc::clone(metrics),
            coming: Arc::clone(&coming),
            bell,
            halts: halts.clone(),
        };
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = Arc::new(Workers::start(threads, (&batches, &coming), &halts, metrics));
        let (settler, settlers) = Settler::start(database, id, metrics);
        let watched = Arc::new(Watched::default());
        let budget: Arc<Budget> = Arc::default();
        budget.share_among(config.workflows.len());
        let reading = ingest::Shared {
            kafka: Arc::new(config.kafka.clone()),
            cluster: Arc::clone(cluster),
            database: database.clone(),
            process: id,
            workers,
            watched: Arc::clone(&watched),
            budget: Arc::clone(&budget),
            runtime: tokio::runtime::Handle::current(),
        };
        let sending = relay::Shared {
            database: database.clone(),
            process: id,
            desks,
            settler,
            metrics: Arc::clone(metrics),
            rules: rules(&config),
            budget,
            tracer: None,
        };
        let mut background = tokio::task::JoinSet::new();
        background.spawn(notify::ring_forever(database.clone(), rung));
        let sending = match &config.tracing {
            Some(collector) => {
                let (tracer, spans) = Tracer::new();
                background.spawn(export_forever(collector.clone(), tracer.clone(), spans));
                relay::Shared { tracer: Some(tracer), ..sending }
            }
            None => sending,
        };
        let (drains_found, drains) = mpsc::unbounded_channel();
        let mut process = Self {
            id,
            common: Common {
                roles,
                reading,
                sending,
                heard: broadcast::channel(4_096).0,
                watched,
                readiness: Arc::clone(readiness),
            },
            database: database.clone(),
            metrics: Arc::clone(metrics),
            stages: HashMap::new(),
            workflows: watch::channel(Vec::new()).0,
            configured: watch::channel(Vec::new()).0,
            roster: watch::channel(Vec::new()).0,
            ending: tokio::task::JoinSet::new(),
            still_followed: HashMap::new(),
            stopping: watch::channel(false).0,
            writer: tokio::spawn(writer.run(queue)),
            settlers,
            background,
            config,
        };
        for workflow in process.config.workflows.clone() {
            process.start_workflow(&workflow, &standings, false)?;
        }
        process.tell_roster();
        process.start_background(halted, drains_found);
        Ok((process, drains))
    }

    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The workflows that run, as they change.
    pub fn workflows(&self) -> watch::Receiver<Vec<Arc<Workflow>>> {
        self.workflows.subscribe()
    }

    /// Where events over HTTP come in, of those that are configured, as they change: not of those of which only the rest is delivered.
    pub fn configured(&self) -> watch::Receiver<Vec<Intake>> {
        self.configured.subscribe()
    }

    /// How many workflows run.
    pub fn running(&self) -> usize {
        self.stages.len()
    }

    fn start_background(
        &mut self,
        halted: mpsc::UnboundedReceiver<upkeep::Halt>,
        drains: mpsc::UnboundedSender<Drains>,
    ) {
        let (database, metrics) = (&self.database, &self.metrics);
        let follow = Follow {
            database: database.clone(),
            roster: self.roster.subscribe(),
            metrics: Arc::clone(metrics),
            heard: self.common.heard.subscribe(),
            drains,
        };
        self.background.spawn(notify::listen_forever(database.clone(), self.common.heard.clone()));
        let workflows = self.workflows.subscribe();
        self.background.spawn(partitions::maintain_forever(database.clone(), workflows, Arc::clone(metrics)));
        self.background.spawn(seen::prune_forever(database.clone()));
        self.background.spawn(upkeep::prune_forever(database.clone()));
        self.background.spawn(upkeep::halt_forever(database.clone(), halted));
        self.background.spawn(follow.run());
        self.background.spawn(upkeep::tally_forever(database.clone(), self.roster.subscribe()));
        let (roster, heard) = (self.roster.subscribe(), self.common.heard.subscribe());
        self.background.spawn(upkeep::beat_forever(database.clone(), (self.id, self.common.roles), roster, heard));
        let watch = Watch {
            kafka: Arc::clone(&self.common.reading.kafka),
            cluster: Arc::clone(&self.common.reading.cluster),
            watched: Arc::clone(&self.common.watched),
            budget: Arc::clone(&self.common.sending.budget),
            database: database.clone(),
            metrics: Arc::clone(metrics),
            workflows: self.workflows.subscribe(),
            runtime: self.common.reading.runtime.clone(),
            stopping: self.stopping.subscribe(),
        };
        // Never joined: it only measures, and may be waiting for a broker that is away.
        let started = std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch.run());
        started.expect("a thread can be started");
    }

    pub(crate) fn start_workflow(
        &mut self,
        workflow: &Arc<Workflow>,
        standings: &Standings,
        is_left: bool,
    ) -> anyhow::Result<()> {
        // What was decided before this start holds from its first moment.
        let standing = standings.get(&*workflow.id).copied().unwrap_or(Standing::RUNNING);
        let stages = Stages::start(workflow, &self.common, standing, is_left)?;
        self.stages.insert(Arc::clone(&workflow.id), stages);
        Ok(())
    }

    /// Says what runs now to whoever follows it.
    pub(crate) fn tell_roster(&self) {
        let configured = &self.config.workflows;
        let known: Vec<_> = configured.iter().map(|w| (&w.id, w.delivery.guarantee.as_str(), &w.labels)).collect();
        self.metrics.register(&known);
        let followed = self.stages.values().map(|stages| &stages.followed).chain(self.still_followed.values());
        let followed: Vec<Arc<Followed>> = followed.cloned().collect();
        self.common.sending.budget.share_among(followed.len());
        self.workflows.send_replace(followed.iter().map(|one| Arc::clone(&one.workflow)).collect());
        let configured = followed.iter().filter(|one| !one.is_left);
        let intakes = configured
            .map(|one| Intake { workflow: Arc::clone(&one.workflow.id), pressure: Arc::clone(&one.pressure) });
        self.configured.send_replace(intakes.collect());
        self.roster.send_replace(followed);
    }

    /// Resolves when a part that runs as long as the process has ended: it panicked.
    pub async fn broken(&self) -> &'static str {
        loop {
            if self.writer.is_finished() {
                return "writer";
            }
            if self.settlers.iter().any(tokio::task::JoinHandle::is_finished) {
                return "settler";
            }
            if let Some(part) = self.stages.values().find_map(Stages::broken) {
                return part;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Stop reading and sending; let what was read be stored, what was sent be settled, and the rest be given back.
    pub async fn drain(mut self) {
        let _ = self.stopping.send(true);
        let ended: Vec<Stages> = self.stages.drain().map(|(_, stages)| stages).collect();
        self.begin_to_end(ended);
        loop {
            let ended = self.ending.join_next().await;
            let is_last = !self.note_ended(ended);
            // Nobody is to count on a share that nobody uses.
            self.tell_roster();
            if is_last {
                break;
            }
        }
        let Self { id, common, database, writer, settlers, mut background, .. } = self;
        background.abort_all();
        let _ = tokio::time::timeout(Duration::from_secs(1), fleet::leave(&database, id)).await;
        drop(common);
        let _ = tokio::time::timeout(Duration::from_secs(2), writer).await;
        for settler in settlers {
            let _ = tokio::time::timeout(Duration::from_secs(2), settler).await;
        }
        background.shutdown().await;
    }
}

pub(crate) fn rules(config: &Config) -> Rules {
    Rules::new(config.egress.allow.clone()).through(config.egress.proxy.clone())
}
