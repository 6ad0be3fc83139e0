//! Who else is there: this process says that it is, and takes its share of what each workflow may have at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tracing::{debug, error, info, warn};

use super::Followed;
use super::follow::{LOOK_EVERY, Roster};
use crate::event::{ProcessId, Roles, WorkflowState};
use crate::observe::chain;
use crate::outbox::fleet::{self, Census, Part, Share, Word};
use crate::outbox::notify::{self, Notice};
use crate::outbox::{Database, workflow};

/// Why a workflow is suspended that goes two ways.
const CLASH: &str = "some processes run it with `at-most-once`, others without: stop those of one side in order (SIGTERM), then \
                     resume it";

/// What is known of the other processes, per workflow.
#[derive(Default)]
struct Fleet(HashMap<Arc<str>, Census>);

/// Says so every second, and at once after a notice. A task of its own: however long the gauges take, the others are not to think
/// that this process is gone. Runs until it is dropped.
pub async fn beat_forever(
    database: Database,
    (process, roles): (ProcessId, Roles),
    mut roster: Roster,
    mut heard: broadcast::Receiver<Notice>,
) {
    let mut fleet = Fleet::default();
    loop {
        let followed = roster.borrow_and_update().clone();
        let pause = fleet.look(&database, (process, roles), &followed).await;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = notify::changed(&mut heard) => {}
            Ok(()) = roster.changed() => {}
        }
    }
}

impl Fleet {
    /// Says that this process is there, and looks who else is. Answers how long that is good for.
    async fn look(
        &mut self,
        database: &Database,
        (process, roles): (ProcessId, Roles),
        followed: &[Arc<Followed>],
    ) -> Duration {
        let configured = followed.iter().filter(|one| !one.is_left);
        let words: Vec<Word<'_>> = configured.map(|one| one.word()).collect();
        let others = match fleet::beat(database, (process, roles), &words).await {
            Ok(others) => others,
            Err(error) => {
                debug!(error = %chain(&error), "this process could not say that it is there");
                return LOOK_EVERY;
            }
        };
        let now = Instant::now();
        self.0.retain(|id, _| followed.iter().any(|one| one.workflow.id == *id));
        let (mut is_settled, mut is_new, mut is_less, mut is_first) = (true, false, false, false);
        for one in followed {
            // What is left of a workflow is delivered by everybody.
            let peers = if one.is_left { others.all.clone() } else { others.of(&one.workflow.id) };
            is_new |= !self.0.contains_key(&one.workflow.id);
            let census = self.0.entry(Arc::clone(&one.workflow.id)).or_default();
            let workflow = &one.workflow;
            let part = census.note(&peers, workflow.delivery.concurrency, workflow.endpoint.timeout, now);
            // Which of them can deliver it is not known. And who sends nothing is in nobody's way.
            let part = if one.is_left || !roles.relay { part.with_a_slot() } else { part };
            // Of two that start at once one at least knows this before it sends anything, and the other with its next look. Neither
            // goes on then: it would meet what the other has begun.
            let clashes = others.clash_over(&one.workflow.id) && !one.is_left && !crate::mutant!("promises-mixed");
            let part = if clashes { part.given_way() } else { part };
            is_settled &= part.processes > 0 && part.slots == part.share;
            is_first |= part.processes == 0 && peers.under_way.is_empty();
            is_less |= part.slots < one.share.slots();
            if clashes {
                suspend(database, one);
            }
            match part.stands_by() != one.share.stands_by() {
                true if clashes => warn!(workflow = %workflow.id, "sending nothing: {CLASH}"),
                true => tell_of_turn(one, part),
                false => {}
            }
            // What is sent without being stored is read by whoever sends it.
            let is_apart = !workflow.delivery.is_direct() && (peers.are_apart || roles.ingest != roles.relay);
            one.share.set(part, is_apart);
        }
        if is_new && !is_settled {
            // They look at once instead of within a second.
            let _ = notify::tell(database, "").await;
        }
        match is_settled {
            // What began between the word and the answer is not in the word. And nobody is alone at first sight.
            _ if is_less || is_first => Duration::ZERO,
            true => LOOK_EVERY,
            false => fleet::KNOWN_AFTER,
        }
    }
}

impl Followed {
    fn word(&self) -> Word<'_> {
        let Share { under_way, firsts, .. } = &*self.share;
        let (under_way, firsts) = (under_way.load(Ordering::Relaxed), firsts.load(Ordering::Relaxed));
        let takes = !self.ends.load(Ordering::Relaxed) && self.share.processes() > 0 && !self.share.stands_by();
        Word { workflow: &self.workflow.id, guarantee: self.workflow.delivery.guarantee, under_way, firsts, takes }
    }
}

/// For every process, and until an operator says that it is resolved: should one side die in the middle of something, the other does not
/// take that up by itself. Written beside the look, for which others wait.
fn suspend(database: &Database, one: &Followed) {
    if one.state.borrow().decided == WorkflowState::Suspended {
        return;
    }
    let (database, id) = (database.clone(), Arc::clone(&one.workflow.id));
    tokio::spawn(async move {
        match workflow::stop(&database, &id, WorkflowState::Suspended, CLASH, "oncebox").await {
            Ok(true) => {
                error!(workflow = %id, reason = CLASH, "suspended: events wait until `oncebox resume`");
                let _ = notify::tell(&database, &id).await;
            }
            // Another process was first.
            Ok(false) => {}
            // The next look tries again, and nothing is sent meanwhile.
            Err(failure) => debug!(workflow = %id, error = %chain(&failure), "writing the suspension failed"),
        }
    });
}

fn tell_of_turn(one: &Followed, part: Part) {
    let (workflow, concurrency, processes) = (&one.workflow.id, one.workflow.delivery.concurrency, part.processes);
    if part.stands_by() {
        info!(%workflow, concurrency, processes, "standing by: older processes make all the requests that it may have at once");
    } else {
        info!(%workflow, "standing by no longer");
    }
}
