//! Exchanging workflows while a process runs: a new configuration that takes over, and removed workflows that are drained.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::{Config, Workflow};
use crate::observe::chain;
use crate::outbox::promise::Running;
use crate::outbox::workflow;
use crate::preflight::{clash_over_at_most_once, is_at_most_once};
use crate::process::{Prepared, Process, rules};
use crate::relay;
use crate::run::prepare;
use crate::stages::Stages;
use crate::upkeep::Drains;

const ASK_POSTGRES_AGAIN: Duration = Duration::from_secs(1);

impl Process {
    /// All of a new configuration, or nothing of it: whatever could speak against it is found before anything is stopped. Answers how many
    /// workflows were added, changed or removed.
    pub async fn take_over(&mut self, new: Config, mut stopped: watch::Receiver<bool>) -> Result<usize, String> {
        let ending = self.ending(&new);
        self.can_take_over(&new, &ending).await?;
        let ended: Vec<Stages> = ending.iter().filter_map(|id| self.stages.remove(id)).collect();
        let removed = ended.iter().filter(|stages| new.workflow(&stages.workflow().id).is_none()).count();
        self.common.sending.rules = rules(&new);
        self.begin_to_end(ended);
        let mut starting = new.workflows.clone();
        starting.retain(|workflow| !self.stages.contains_key(&workflow.id));
        let changes = starting.len() + removed;
        self.config = new;
        // Each takes the place of the one before as soon as that has ended: none waits for another's slow endpoint. What is
        // written down of it, a new name for one, is written when nobody works under the old one.
        loop {
            let is_awaited = |id: &str| self.is_ending(id);
            let is_ready = |w: &Arc<Workflow>| !is_awaited(&w.id) && !w.former_id.as_deref().is_some_and(is_awaited);
            let (ready, later): (Vec<_>, Vec<_>) = starting.into_iter().partition(is_ready);
            starting = later;
            if !self.start_surely(ready, &mut stopped).await || starting.is_empty() && !self.is_any_ending() {
                return Ok(changes);
            }
            self.await_ended(&mut stopped).await;
        }
    }

    /// The workflows that do not go on as they are.
    fn ending(&self, new: &Config) -> Vec<Arc<str>> {
        let all = self.config.egress != new.egress;
        let stays = |stages: &Stages| {
            let now = new.workflow(&stages.workflow().id);
            !all && now.is_some_and(|now| now.fingerprint == stages.workflow().fingerprint && !stages.followed.is_left)
        };
        self.stages.iter().filter(|(_, stages)| !stays(stages)).map(|(id, _)| Arc::clone(id)).collect()
    }

    /// What runs here, and what is on its way out.
    fn promises(&self) -> Vec<Running> {
        let followed = self.stages.values().map(|stages| &stages.followed).chain(self.still_followed.values());
        let promise = |workflow: &Workflow| Running {
            workflow: workflow.id.to_string(),
            at_most_once: is_at_most_once(workflow),
        };
        followed.filter(|one| !one.is_left).map(|one| promise(&one.workflow)).collect()
    }

    /// Whether a new configuration can be taken over without a restart, or why not.
    async fn can_take_over(&self, new: &Config, ending: &[Arc<str>]) -> Result<(), String> {
        let fixed = [
            ("kafka", self.config.kafka != new.kafka),
            ("postgres", self.config.postgres != new.postgres),
            ("admin", self.config.admin != new.admin),
            ("tracing", self.config.tracing != new.tracing),
        ];
        let changed: Vec<&str> = fixed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name).collect();
        if !changed.is_empty() {
            return Err(format!("{} cannot change while the process runs: restart it", changed.join(", ")));
        }
        // One that this process does not run may be run by another.
        let clash = clash_over_at_most_once(new, &self.database, self.promises()).await;
        if let Some(clash) = clash.map_err(|error| format!("a new configuration needs Postgres: {}", chain(&error)))? {
            return Err(clash);
        }
        let starts =
            |workflow: &&Arc<Workflow>| ending.contains(&workflow.id) || !self.stages.contains_key(&workflow.id);
        for workflow in new.workflows.iter().filter(starts) {
            relay::check(workflow, &rules(new)).map_err(|error| format!("{}: {}", workflow.id, chain(&error)))?;
        }
        Ok(())
    }

    /// Tells Postgres of these workflows, as long as it takes, and starts them. Answers false when the process is to end meanwhile.
    async fn start_surely(&mut self, workflows: Vec<Arc<Workflow>>, stopped: &mut watch::Receiver<bool>) -> bool {
        let wanted = Config { workflows, ..self.config.clone() };
        loop {
            if *stopped.borrow() {
                return false;
            }
            match prepare(wanted.clone(), &self.database).await {
                Ok(Prepared { config, standings }) => {
                    // One that has another name by now is not run under the old one.
                    let is_off = |w: &Workflow| wanted.workflow(&w.id).is_some() && config.workflow(&w.id).is_none();
                    self.config.workflows.retain(|workflow| !is_off(workflow));
                    config.workflows.iter().for_each(|workflow| self.start_or_say(workflow, &standings));
                    self.tell_roster();
                    return true;
                }
                Err(error) => {
                    warn!(error = %chain(error.as_ref()), "waiting for Postgres to take a new configuration over");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(ASK_POSTGRES_AGAIN) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        }
    }

    /// Delivers what is left of these workflows, and of no others.
    pub async fn drain_left(&mut self, drains: Drains, mut stopped: watch::Receiver<bool>) {
        let is_over = |stages: &Stages| {
            stages.followed.is_left && !drains.iter().any(|workflow| workflow.id == stages.workflow().id)
        };
        let over: Vec<Arc<str>> =
            self.stages.iter().filter(|(_, stages)| is_over(stages)).map(|(id, _)| Arc::clone(id)).collect();
        let ended: Vec<Stages> = over.iter().filter_map(|id| self.stages.remove(id)).collect();
        let mut is_changed = !ended.is_empty();
        self.begin_to_end(ended);
        while self.await_ended(&mut stopped).await {}
        let fresh: Vec<&Arc<Workflow>> = drains.iter().filter(|w| !self.stages.contains_key(&w.id)).collect();
        let ids: Vec<&str> = fresh.iter().map(|workflow| &*workflow.id).collect();
        let Ok(standings) = workflow::states(&self.database, &ids).await else { return };
        for workflow in fresh {
            match self.start_workflow(workflow, &standings, true) {
                Ok(()) => {
                    info!(workflow = %workflow.id, "delivering what is left of a removed workflow");
                    is_changed = true;
                }
                Err(error) => {
                    warn!(workflow = %workflow.id, error = %chain(error.as_ref()), "what is left cannot be delivered");
                }
            }
        }
        if is_changed {
            self.tell_roster();
        }
    }

    /// Begins to end stages, each in its own order, within the grace period.
    pub(crate) fn begin_to_end(&mut self, ended: Vec<Stages>) {
        let deadline = tokio::time::Instant::now() + self.config.shutdown_grace;
        for stages in ended {
            let (id, mut stopping) = (Arc::clone(&stages.workflow().id), self.stopping.subscribe());
            self.common.readiness.forget(&id);
            self.still_followed.insert(Arc::clone(&id), Arc::clone(&stages.followed));
            self.ending.spawn(async move {
                if let Some(lease) = stages.end(deadline).await {
                    // What it has sent is its own until its leases have run out. A process that ends leaves that to the others.
                    tokio::select! {
                        () = tokio::time::sleep(lease) => {}
                        _ = stopping.wait_for(|stop| *stop) => {}
                    }
                }
                id
            });
        }
    }

    /// Waits for the stages of one more workflow to end. Answers whether there may be others: not when the process is to end
    /// meanwhile, because then they go on ending while the rest does.
    async fn await_ended(&mut self, stopped: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            ended = self.ending.join_next() => self.note_ended(ended),
            _ = stopped.wait_for(|stop| *stop) => false,
        }
    }

    pub(crate) fn note_ended(&mut self, ended: Option<Result<Arc<str>, tokio::task::JoinError>>) -> bool {
        match ended {
            Some(Ok(id)) => drop(self.still_followed.remove(&id)),
            // Which one it was that panicked is known when all others have ended.
            Some(Err(_)) => {}
            None => self.still_followed.clear(),
        }
        !self.still_followed.is_empty()
    }

    fn is_any_ending(&self) -> bool {
        !self.still_followed.is_empty()
    }

    fn is_ending(&self, workflow: &str) -> bool {
        self.still_followed.contains_key(workflow)
    }

    fn start_or_say(&mut self, workflow: &Arc<Workflow>, standings: &crate::process::Standings) {
        if let Err(error) = self.start_workflow(workflow, standings, false) {
            error!(workflow = %workflow.id, error = %chain(error.as_ref()), "does not run: it could not be started");
        }
    }
}
