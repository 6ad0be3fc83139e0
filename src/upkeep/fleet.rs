//! Who else is there: this process says that it is, and takes its share of what each workflow may have at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::broadcast;
use tracing::debug;

use super::Followed;
use super::follow::{LOOK_EVERY, Roster};
use crate::event::ProcessId;
use crate::observe::chain;
use crate::outbox::fleet::{self, Census, Share, Word};
use crate::outbox::{Database, notify};

/// What is known of the other processes, per workflow.
#[derive(Default)]
struct Fleet(HashMap<Arc<str>, Census>);

/// Says so every second, and at once after a notice. A task of its own: however long the gauges take, the others are not to think
/// that this process is gone. Runs until it is dropped.
pub async fn beat_forever(
    database: Database,
    process: ProcessId,
    mut roster: Roster,
    mut heard: broadcast::Receiver<String>,
) {
    let mut fleet = Fleet::default();
    loop {
        let followed = roster.borrow_and_update().clone();
        let is_settled = fleet.look(&database, process, &followed).await;
        tokio::select! {
            () = tokio::time::sleep(if is_settled { LOOK_EVERY } else { fleet::KNOWN_AFTER }) => {}
            _ = heard.recv() => {}
            Ok(()) = roster.changed() => {}
        }
    }
}

impl Fleet {
    /// Says that this process is there, and looks who else is. Answers whether every share is known.
    async fn look(&mut self, database: &Database, process: ProcessId, followed: &[Arc<Followed>]) -> bool {
        let configured = followed.iter().filter(|one| !one.is_left);
        let words: Vec<Word<'_>> = configured.map(|one| one.word()).collect();
        let others = match fleet::beat(database, process, &words).await {
            Ok(others) => others,
            Err(error) => {
                debug!(error = %chain(&error), "this process could not say that it is there");
                return true;
            }
        };
        let now = Instant::now();
        self.0.retain(|id, _| followed.iter().any(|one| one.workflow.id == *id));
        let (mut is_settled, mut is_new) = (true, false);
        for one in followed {
            // What is left of a workflow is delivered by everybody.
            let with_it = if one.is_left { others.all } else { others.of(&one.workflow.id) };
            is_new |= !self.0.contains_key(&one.workflow.id);
            let processes = self.0.entry(Arc::clone(&one.workflow.id)).or_default().note(with_it, now);
            is_settled &= processes > 0;
            one.share.processes.store(processes, Ordering::Relaxed);
        }
        if is_new && !is_settled {
            // They look at once instead of within a second.
            let _ = notify::tell(database, "").await;
        }
        is_settled
    }
}

impl Followed {
    fn word(&self) -> Word<'_> {
        let Share { under_way, firsts, .. } = &*self.share;
        let (under_way, firsts) = (under_way.load(Ordering::Relaxed), firsts.load(Ordering::Relaxed));
        Word { workflow: &self.workflow.id, under_way, firsts }
    }
}
