//! Workflows that no process runs any more, with events left: shown as removed, and delivered where an operator asked for it.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{debug, error};

use super::Followed;
use super::follow::forget;
use crate::config::{self, Workflow};
use crate::event::WorkflowState;
use crate::observe::{Metrics, chain};
use crate::outbox::{Database, left};

/// The workflows that are to be drained, with their last configuration.
pub type Drains = Vec<Arc<Workflow>>;

#[derive(Default)]
pub(super) struct Left {
    shown: HashSet<String>,
    is_draining: bool,
    /// Workflows whose stored configuration cannot be used here: said once.
    refused: HashSet<String>,
}

impl Left {
    pub async fn look(
        &mut self,
        database: &Database,
        followed: &[Arc<Followed>],
        metrics: &Metrics,
        drains: &mpsc::UnboundedSender<Drains>,
    ) {
        let found = match left::workflows(database).await {
            Ok(found) => found,
            Err(error) => {
                debug!(error = %chain(&error), "workflows that are left could not be read");
                return;
            }
        };
        let is_run = |id: &str| followed.iter().any(|one| !one.is_left && *one.workflow.id == *id);
        let found: Vec<left::LeftWorkflow> = found.into_iter().filter(|one| !is_run(&one.id)).collect();
        for gone in self.shown.iter().filter(|id| !found.iter().any(|one| one.id == **id) && !is_run(id)) {
            metrics.forget_state(gone);
            forget(gone, metrics);
        }
        self.shown = found.iter().map(|one| one.id.clone()).collect();
        for one in &found {
            metrics.set_state(&one.id, WorkflowState::Removed);
        }
        let draining: Drains =
            found.iter().filter(|one| one.is_draining).filter_map(|one| self.configuration(one)).collect();
        if !draining.is_empty() || self.is_draining {
            self.is_draining = !draining.is_empty();
            let _ = drains.send(draining);
        }
    }

    fn configuration(&mut self, one: &left::LeftWorkflow) -> Option<Arc<Workflow>> {
        match config::stored(&one.document) {
            // Whoever asks for the rest to be delivered does not mean the pause that it was removed with.
            Ok(workflow) => Some(Arc::new(Workflow { paused: false, ..workflow })),
            Err(problems) => {
                if self.refused.insert(one.id.clone()) {
                    error!(workflow = one.id, "its stored configuration cannot be used here:\n{problems}");
                }
                None
            }
        }
    }
}
