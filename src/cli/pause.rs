//! `oncebox pause WORKFLOW`: nothing is sent until `resume`. What comes in is kept, and the clocks of `giveUpAfter` stop.

use super::resume::Resume;
use super::{Failure, block_on, known, load};
use crate::event::WorkflowState;
use crate::outbox::{Database, notify, workflow as store};

pub fn run(pause: &Resume) -> Result<(), Failure> {
    let loaded = load(&pause.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let who = super::output::who();
    let reason = format!("paused by {who}");
    let (id, changed) = block_on(async {
        let id = known(&loaded, &database, &pause.workflow).await?;
        // Before its first start too: then it must not begin.
        store::know(&database, &id).await?;
        let (from, to) = ([WorkflowState::Running], WorkflowState::Paused);
        let changed = store::set(&database, &id, &from, to, Some(&reason), &who).await?;
        if changed {
            store::audit(&database, &who, "pause", Some(&id), "").await?;
            notify::tell(&database, &id).await?;
        }
        Ok::<_, Failure>((id, changed))
    })?;
    println!("{}: {}", id, if changed { "paused" } else { "was not running" });
    Ok(())
}
