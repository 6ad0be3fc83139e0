//! Work beside the data path: following what operators decided, filling gauges, sharing limits with the other processes,
//! holding the reader back when too much waits, halting what `onInvalid` halts.
//!
//! Files: `follow` (states, gauges, pressure), `tally` (counting what is many), `fleet` (who else is there), `left` (workflows that nobody runs any more).

mod fleet;
pub mod follow;
mod left;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, error, warn};

use crate::observe::chain;
use crate::outbox::batch::Holding;
use crate::outbox::{Database, direct, notify, workflow};

pub use fleet::beat_forever;
pub use follow::Followed;
pub use left::Drains;
pub use tally::{Tally, tally_forever};

/// A workflow to be halted, and why.
pub type Halt = (Arc<Holding>, String);

/// Halts workflows whose `onInvalid` is `halt`, as the workers ask. Runs until it is dropped.
pub async fn halt_forever(database: Database, mut asked: mpsc::UnboundedReceiver<Halt>) {
    while let Some((holding, reason)) = asked.recv().await {
        let id = &holding.workflow.id;
        error!(workflow = %id, reason, "halted: reading stops until an operator decides");
        if let Err(failure) = workflow::halt(&database, id, &reason).await {
            // The partition is read again and asks again.
            warn!(workflow = %id, error = %chain(&failure), "writing the halt failed");
        }
        let _ = notify::tell(&database, id).await;
    }
}

/// Forgets which events of the direct path were stored, once nothing reads them again. Runs until it is dropped.
pub async fn prune_forever(database: Database) {
    const AT_ONCE: usize = 5_000;
    loop {
        match direct::prune(&database, AT_ONCE as i64).await {
            Ok(AT_ONCE) => tokio::time::sleep(Duration::from_millis(100)).await,
            Ok(_) => tokio::time::sleep(Duration::from_secs(60)).await,
            Err(error) => {
                debug!(error = %chain(&error), "forgetting what was spilled failed; trying again later");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
    }
}
