//! Exchanging workflows while a process runs: a new configuration that takes over, and removed workflows that are drained.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::Config;
use crate::observe::chain;
use crate::process::{Prepared, Process, rules};
use crate::relay;
use crate::stages::Stages;
use crate::upkeep::Drains;

impl Process {
    /// Whether a new configuration can be taken over without a restart, or why not.
    pub fn can_take_over(&self, new: &Config) -> Result<(), String> {
        let fixed = [
            ("kafka", self.config.kafka != new.kafka),
            ("postgres", self.config.postgres != new.postgres),
            ("admin", self.config.admin != new.admin),
        ];
        let changed: Vec<&str> = fixed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name).collect();
        match changed.as_slice() {
            [] => Ok(()),
            names => Err(format!("{} cannot change while the process runs: restart it", names.join(", "))),
        }
    }

    /// Exchanges the workflows that are added, changed or removed; the others do not notice. Answers how many.
    pub async fn take_over(&mut self, prepared: Prepared, stopped: watch::Receiver<bool>) -> anyhow::Result<usize> {
        let Prepared { config, standings } = prepared;
        let all = self.config.egress != config.egress;
        let stays = |stages: &Stages| {
            let now = config.workflow(&stages.workflow().id);
            !all && now.is_some_and(|now| now.fingerprint == stages.workflow().fingerprint && !stages.followed.is_left)
        };
        let ending: Vec<Arc<str>> =
            self.stages.iter().filter(|(_, stages)| !stays(stages)).map(|(id, _)| Arc::clone(id)).collect();
        // All or nothing: what cannot be started is found before anything is stopped.
        let rules = rules(&config);
        let starts = |id: &Arc<str>| ending.contains(id) || !self.stages.contains_key(id);
        for workflow in config.workflows.iter().filter(|workflow| starts(&workflow.id)) {
            relay::check(workflow, &rules).with_context(|| format!("workflow {}", workflow.id))?;
        }
        let ended: Vec<Stages> = ending.iter().filter_map(|id| self.stages.remove(id)).collect();
        let removed = ended.iter().filter(|stages| config.workflow(&stages.workflow().id).is_none()).count();
        self.end(ended, stopped).await;
        self.config = config;
        self.common.sending.rules = rules;
        let mut started = 0;
        for workflow in self.config.workflows.clone() {
            if !self.stages.contains_key(&workflow.id) {
                self.start_workflow(&workflow, &standings, false)?;
                started += 1;
            }
        }
        self.tell_roster();
        Ok(started + removed)
    }

    /// Delivers what is left of these workflows, and of no others.
    pub async fn drain_left(&mut self, drains: Drains) {
        let is_over = |stages: &Stages| {
            stages.followed.is_left && !drains.iter().any(|workflow| workflow.id == stages.workflow().id)
        };
        let over: Vec<Arc<str>> =
            self.stages.iter().filter(|(_, stages)| is_over(stages)).map(|(id, _)| Arc::clone(id)).collect();
        let ended: Vec<Stages> = over.iter().filter_map(|id| self.stages.remove(id)).collect();
        let mut is_changed = !ended.is_empty();
        self.end(ended, self.stopping.subscribe()).await;
        for workflow in &drains {
            if self.stages.contains_key(&workflow.id) {
                continue;
            }
            match self.start_workflow(workflow, &HashMap::new(), true) {
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
}
