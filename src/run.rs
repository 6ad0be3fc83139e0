//! `oncebox run`: check what must be true, start everything, follow the configuration, drain at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{error, info};

use crate::admin::live::History;
use crate::admin::{self, Api, Desk};
use crate::config::Config;
use crate::dead_letter::replayer::replay_forever;
use crate::event::Roles;
use crate::observe::{Metrics, chain};
use crate::outbox::submit::Submissions;
use crate::outbox::{Database, partitions, workflow};
use crate::preflight;
use crate::process::{Prepared, Process};
use crate::reload::Reloads;

/// A process that was killed looks as if it ran for this long.
const GONE_SURELY: Duration = Duration::from_secs(12);

/// Runs until `stopped` says true, then drains. Returns once everything that was started has ended.
pub async fn run(
    config: Config,
    roles: Roles,
    mut reloads: Reloads,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    let desk = Desk::new(&config.admin, &metrics);
    let readiness = Arc::clone(&desk.readiness);
    let listener = TcpListener::bind(config.admin.listen)
        .await
        .with_context(|| format!("admin.listen {} cannot be used", config.admin.listen))?;
    let admin = tokio::spawn(admin::serve(listener, desk.clone(), roles.admin));
    let database = Database::new(&config.postgres).map_err(|error| anyhow::anyhow!("{}", chain(&error)))?;
    tokio::select! {
        checked = preflight::patiently(async || preflight::check_database(&database).await) => checked?,
        _ = stopped.wait_for(|stop| *stop) => return Ok(()),
    }
    let cluster = tokio::select! {
        cluster = preflight::cluster_id(&config) => cluster?,
        _ = stopped.wait_for(|stop| *stop) => return Ok(()),
    };
    // Postgres may be lost again meanwhile; nothing that is written here minds being written twice.
    let prepared = tokio::select! {
        prepared = preflight::patiently(async || ready(&config, &database).await) => prepared?,
        _ = stopped.wait_for(|stop| *stop) => return Ok(()),
    };
    let (mut process, mut drains) = Process::start(prepared, roles, &database, &cluster, &metrics, &readiness)?;
    let mut beside = tokio::task::JoinSet::new();
    if roles.admin {
        desk.open(operators(&process, roles.relay, &metrics, &mut beside)?);
    }
    readiness.checked.store(true, Ordering::Release);
    info!(process = %process.id(), workflows = process.running(), roles = %roles, "running");
    let meanwhile = stopped.clone();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            part = process.broken() => {
                // Leases run out and another process goes on; one that limps would hold them.
                bail!("the {part} ended by itself, which it never should: ending the process");
            }
            Some(found) = drains.recv() => {
                if roles.relay {
                    process.drain_left(found, meanwhile.clone()).await;
                }
            }
            wanted = reloads.next() => {
                let outcome = match wanted {
                    Ok(config) => process.take_over(config, meanwhile.clone()).await,
                    Err(problems) => Err(problems),
                };
                metrics.reloaded(outcome.is_ok());
                match outcome {
                    Ok(changes) => info!(changes, "the configuration was taken over"),
                    Err(problems) => error!("the new configuration is refused, the old one stays:\n{problems}"),
                }
            }
        }
    }
    info!("stopping: finishing what is under way");
    readiness.stopping.store(true, Ordering::Release);
    beside.abort_all();
    process.drain().await;
    admin.abort();
    info!("stopped");
    Ok(())
}

/// What operators ask, and what they ask for, on connections of their own.
fn operators(
    process: &Process,
    sends: bool,
    metrics: &Arc<Metrics>,
    beside: &mut tokio::task::JoinSet<()>,
) -> anyhow::Result<Api> {
    let connect = || Database::new(&process.config.postgres).map_err(|error| anyhow::anyhow!("{}", chain(&error)));
    let (database, apart) = (connect()?, connect()?);
    let (workflows, configured, history) = (process.workflows(), process.configured(), Arc::new(History::default()));
    beside.spawn(Arc::clone(&history).sample_forever(Arc::clone(metrics)));
    beside.spawn(replay_forever(apart, process.id(), workflows.clone()));
    let submissions = Submissions::start(database.clone(), Arc::clone(metrics));
    Ok(Api { database, workflows, configured, kafka: process.config.kafka.clone(), sends, history, submissions })
}

/// Workflows that Postgres knows, and room for their events.
async fn ready(config: &Config, database: &Database) -> anyhow::Result<Prepared> {
    let began = Instant::now();
    while let Some(clash) = preflight::clash_over_at_most_once(config, database, Vec::new()).await? {
        if began.elapsed() > GONE_SURELY {
            bail!("{clash}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let prepared = prepare(config.clone(), database).await?;
    partitions::make(database).await.context("making partitions")?;
    Ok(prepared)
}

/// What Postgres must know before workflows run, and what it knows about them.
pub(crate) async fn prepare(config: Config, database: &Database) -> anyhow::Result<Prepared> {
    let config = preflight::settle_names(config, database).await?;
    for workflow in &config.workflows {
        workflow::register(database, workflow).await.context("registering workflows")?;
    }
    let ids: Vec<&str> = config.workflows.iter().map(|workflow| &*workflow.id).collect();
    let standings = workflow::states(database, &ids).await.context("reading workflow states")?;
    Ok(Prepared { config, standings })
}
