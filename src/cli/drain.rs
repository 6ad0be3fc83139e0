//! `oncebox drain WORKFLOW` and `oncebox park WORKFLOW`: what becomes of the events of a workflow that nobody runs any more.
//!
//! To drain is to deliver them with the last configuration: the processes that run do that, and this waits for it. To park
//! is to make each a dead letter, here and now.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Failure, block_on, load};
use crate::outbox::left::{self, LeftWorkflow};
use crate::outbox::{Database, gauges, notify, workflow as store};

/// Events that wait for each other move on sooner.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// What is held for longer is left for another time.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Drain {
    /// Its id.
    workflow: String,
    /// A YAML file, or a directory of *.yaml files: the configuration that it was removed from.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
    /// Ask for it and do not wait until it is done.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub struct Park {
    /// Its id.
    workflow: String,
    /// A YAML file, or a directory of *.yaml files: the configuration that it was removed from.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

pub fn drain(flags: &Drain) -> Result<(), Failure> {
    let loaded = load(&flags.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let id = &flags.workflow;
    block_on(async {
        let Some(_) = find(&database, id).await? else { return Ok(()) };
        let who = super::output::who();
        left::set_draining(&database, id, true, &who).await?;
        notify::tell(&database, id).await?;
        if flags.no_wait {
            println!("{id}: is being drained by the processes that run");
            return Ok(());
        }
        let (mut stuck_since, mut waiting): (Option<Instant>, i64) = (None, 0);
        while let Some(rest) = one(&database, id).await? {
            let why = why_stuck(&database, id).await?.filter(|_| rest.waiting == waiting);
            waiting = rest.waiting;
            stuck_since = why.as_ref().map(|_| stuck_since.unwrap_or_else(Instant::now));
            if let Some(why) = why.filter(|_| stuck_since.is_some_and(|since| since.elapsed() > STUCK_AFTER)) {
                return Err(anyhow::anyhow!(
                    "{id}: {} events are left, and none has moved for a while: {why}",
                    rest.waiting
                )
                .into());
            }
            super::output::progress(&format!("{id}: {} events left", rest.waiting));
            let standing = store::states(&database, &[id.as_str()]).await?;
            if standing.get(id).is_some_and(|standing| !standing.sends()) {
                return Err(anyhow::anyhow!(
                    "{id} was paused or suspended meanwhile; `oncebox resume {id}`, then drain again"
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if left::is_run(&database, id).await? {
            println!("{id}: is run by a process again");
        } else {
            println!("{id}: nothing is left");
        }
        Ok(())
    })
}

pub fn park(flags: &Park) -> Result<(), Failure> {
    let loaded = load(&flags.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let id = &flags.workflow;
    block_on(async {
        let Some(_) = find(&database, id).await? else { return Ok(()) };
        let who = super::output::who();
        // Nobody is to deliver what is being parked.
        left::set_draining(&database, id, false, &who).await?;
        notify::tell(&database, id).await?;
        let deadline = Instant::now() + LONGEST_LEASE;
        while left::is_held(&database, id).await? && Instant::now() < deadline {
            super::output::progress(&format!("{id}: waiting until nobody delivers it"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let parked = crate::dead_letter::park_all(&database, id, |parked| {
            super::output::progress(&format!("{id}: {parked} events parked"));
        })
        .await?;
        store::audit(&database, &who, "park", Some(id), &format!("{parked} events")).await?;
        match one(&database, id).await? {
            None => println!("{id}: {parked} events are dead letters now (reason parked)"),
            Some(rest) => println!(
                "{id}: {parked} events are dead letters now (reason parked); {} are under way, park again when their leases \
                 have run out",
                rest.waiting
            ),
        }
        Ok(())
    })
}

/// Why nothing moves, if all that is left waits for a person.
async fn why_stuck(database: &Database, id: &str) -> Result<Option<String>, Failure> {
    let figures = gauges::read(database, id).await?;
    let states = &figures.states;
    let moves = states.scheduled + states.available + states.active + states.retryable + figures.firsts;
    let untried = !states.are_cut() && figures.waiting > states.events();
    if states.pending == 0 || moves > 0 || untried {
        return Ok(None);
    }
    Ok(Some(match states.blocked {
        0 => format!("they are held until somebody decides (`oncebox events list --workflow {id}`)"),
        keys => format!(
            "they wait behind dead letters of {keys} ordering keys. Replay those (`oncebox dead-letters list`), or make the \
             rest dead letters too (`oncebox park {id}`)"
        ),
    }))
}

async fn one(database: &Database, id: &str) -> Result<Option<LeftWorkflow>, Failure> {
    Ok(left::workflows(database).await?.into_iter().find(|one| one.id == id))
}

/// The workflow, if anything is left of it; says so when nothing is.
async fn find(database: &Database, id: &str) -> Result<Option<LeftWorkflow>, Failure> {
    if let Some(found) = one(database, id).await? {
        return Ok(Some(found));
    }
    if left::is_run(database, id).await? {
        return Err(Failure::Usage(format!(
            "`{id}` is run by a process: remove it from the configuration of all of them first, then ask again after 10 s"
        )));
    }
    println!("{id}: nothing is left");
    Ok(None)
}
