//! `oncebox resume WORKFLOW`: the way out of a pause, a suspension or a halt.

use std::path::PathBuf;

use super::{Failure, block_on, known, load};
use crate::event::WorkflowState;
use crate::outbox::{Database, notify, workflow as store};

#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Its id.
    pub workflow: String,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    pub config: PathBuf,
}

pub fn run(resume: &Resume) -> Result<(), Failure> {
    let loaded = load(&resume.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let who = super::output::who();
    let (id, changed) = block_on(async {
        let id = known(&loaded, &database, &resume.workflow).await?;
        let from = [WorkflowState::Paused, WorkflowState::Suspended];
        let sends = store::set(&database, &id, &from, WorkflowState::Running, None, &who).await?;
        let reads = store::end_halt(&database, &id).await?;
        let changed = sends || reads;
        if changed {
            store::audit(&database, &who, "resume", Some(&id), "").await?;
            notify::tell(&database, &id).await?;
        }
        Ok::<_, Failure>((id, changed))
    })?;
    println!("{}: {}", id, if changed { "running" } else { "was running already" });
    Ok(())
}
