//! Which processes are there: each says so every second, and takes its share of what a workflow may have at once.
//!
//! Shares add up to what the workflow may have, however many processes there are: where they are more than that, the youngest
//! have none and stand by. A process that has just come leaves to the others what they still have under way above their new
//! shares.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::sql::{boolean, float8, int4s, texts, uuid};
use super::{Database, Error, Purpose};
use crate::config::Guarantee;
use crate::event::{ProcessId, Roles};

/// A process that was silent for this long counts as gone.
pub const GONE_AFTER: Duration = Duration::from_secs(5);

/// By then the others have looked: they are told.
pub const KNOWN_AFTER: Duration = Duration::from_millis(500);

/// What one process and the others have of a workflow. Its dispatcher writes what is under way, the fleet's task the rest.
#[derive(Debug, Default)]
pub struct Share {
    processes: AtomicUsize,
    slots: AtomicUsize,
    stands_by: AtomicBool,
    is_apart: AtomicBool,
    /// Requests that are under way here.
    pub under_way: AtomicUsize,
    /// Of them, first attempts of stored events.
    pub firsts: AtomicUsize,
}

impl Share {
    /// Processes that send for the workflow, this one included: they share its limits. 0: not known yet.
    pub fn processes(&self) -> usize {
        self.processes.load(Ordering::Relaxed)
    }

    /// Requests that may be under way here; none until that is known.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// The others make all the requests that there may be: this process sends nothing.
    pub fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    /// Whether to leave reading to the others too: those that make the requests read as well, unless reading and sending are apart.
    pub fn leaves_reading(&self) -> bool {
        self.stands_by() && !self.is_apart.load(Ordering::Relaxed)
    }

    pub fn set(&self, part: Part, is_apart: bool) {
        self.processes.store(part.processes, Ordering::Relaxed);
        self.slots.store(part.slots, Ordering::Relaxed);
        self.is_apart.store(is_apart, Ordering::Relaxed);
        self.stands_by.store(part.stands_by(), Ordering::Relaxed);
    }
}

/// What a process says of one of its workflows.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a> {
    pub workflow: &'a str,
    pub guarantee: Guarantee,
    pub under_way: usize,
    pub firsts: usize,
    /// Whether it takes deliveries of it: not when it is about to end it, stands by, or does not know its share yet.
    pub takes: bool,
}

/// The other processes that send for a workflow.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Peers {
    /// What each has under way, those that came first at the front.
    pub under_way: Vec<usize>,
    /// How many came before this process.
    pub older: usize,
    /// Whether some that run it only read or only send.
    pub are_apart: bool,
}

/// The other processes that send.
#[derive(Debug, Default)]
pub struct Others {
    pub all: Peers,
    by_workflow: HashMap<String, Peers>,
    clashing: HashSet<String>,
}

impl Others {
    /// Those that send for a workflow.
    pub fn of(&self, workflow: &str) -> Peers {
        self.by_workflow.get(workflow).cloned().unwrap_or_default()
    }

    /// Whether one of them runs a workflow at most once where this process does not, or the other way round.
    pub fn clash_over(&self, workflow: &str) -> bool {
        self.clashing.contains(workflow)
    }
}

/// Says that this process is there, and what it does. Answers who else sends.
pub async fn beat(
    database: &Database,
    (process, roles): (ProcessId, Roles),
    words: &[Word<'_>],
) -> Result<Others, Error> {
    let seconds = GONE_AFTER.as_secs_f64();
    let number = |many: usize| i32::try_from(many).unwrap_or(i32::MAX);
    let workflows: Vec<&str> = words.iter().map(|word| word.workflow).collect();
    let under_way: Vec<i32> = words.iter().map(|word| number(word.under_way)).collect();
    let firsts: Vec<i32> = words.iter().map(|word| number(word.firsts)).collect();
    let guarantees: Vec<&str> = words.iter().map(|word| word.guarantee.as_str()).collect();
    let takes: Vec<&str> = words.iter().filter(|word| word.takes && roles.relay).map(|word| word.workflow).collect();
    let parameters = [
        uuid(&process),
        texts(&workflows),
        float8(&seconds),
        int4s(&under_way),
        int4s(&firsts),
        boolean(&roles.relay),
        boolean(&roles.ingest),
        texts(&takes),
        texts(&guarantees),
    ];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/beat.sql"), &parameters).await?;
    let mut others = Others::default();
    for row in &rows {
        if row.get("clashes") {
            others.clashing.insert(row.get("workflow"));
            continue;
        }
        let under_way: Vec<i32> = row.get("under_way");
        let peers = Peers {
            under_way: under_way.into_iter().map(|many| usize::try_from(many).unwrap_or(0)).collect(),
            older: usize::try_from(row.get::<_, i64>("older")).unwrap_or(0),
            are_apart: row.get("are_apart"),
        };
        match row.get("workflow") {
            Some(workflow) => drop(others.by_workflow.insert(workflow, peers)),
            None => others.all = peers,
        }
    }
    Ok(others)
}

/// Gives this process's share to the others at once.
pub async fn leave(database: &Database, process: ProcessId) -> Result<(), Error> {
    database.query(Purpose::Admin, include_str!("../../sql/relay/leave.sql"), &[uuid(&process)]).await?;
    Ok(())
}

/// A process's part of what a workflow may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Processes, this one included; 0: not known yet.
    pub processes: usize,
    /// Its share when all have come to terms.
    pub share: usize,
    /// What it may have now.
    pub slots: usize,
}

impl Part {
    pub const UNKNOWN: Self = Self { processes: 0, share: 0, slots: 0 };

    /// The same, and never without a slot.
    pub fn with_a_slot(self) -> Self {
        let least = usize::from(self.processes > 0);
        Self { share: self.share.max(least), slots: self.slots.max(least), ..self }
    }

    /// None of it, whatever there is for others.
    pub fn given_way(self) -> Self {
        Self { processes: self.processes.max(1), share: 0, slots: 0 }
    }

    pub fn stands_by(self) -> bool {
        self.processes > 0 && self.share == 0
    }
}

/// Who shares a workflow, as one process believes. Pure.
///
/// One that comes to others waits until they know of it. One that finds nobody looks again: of two that come at once, each says that
/// it is there before its second look, so that one at least sees the other. And a share grows only when several looks have said so: after an outage of
/// Postgres everybody looks gone to whoever speaks first.
#[derive(Debug, Default)]
pub struct Census {
    first_at: Option<Instant>,
    /// How many others there were in the last looks, and how many of them came first.
    recent: [(usize, usize); 3],
    looks: usize,
}

impl Census {
    /// Takes a look in. `concurrency` is what the workflow may have, `timeout` how long a request may last.
    pub fn note(&mut self, peers: &Peers, concurrency: usize, timeout: Duration, now: Instant) -> Part {
        let others = peers.under_way.len();
        let first_at = *self.first_at.get_or_insert(now);
        self.recent[self.looks % self.recent.len()] = (others, peers.older);
        self.looks += 1;
        let others = self.others();
        let is_known =
            if others == 0 { self.looks > 1 } else { now.saturating_duration_since(first_at) >= KNOWN_AFTER };
        if !is_known {
            return Part::UNKNOWN;
        }
        let processes = if crate::mutant!("each-process-has-all") { 1 } else { others + 1 };
        let share = share_of(concurrency, processes, self.older());
        // What was sent before this process came is over after a request's time. Who has more for longer is configured to. It is
        // the newcomer alone that waits: if all did, nobody would send until all had said so.
        let is_new = now.saturating_duration_since(first_at) < timeout + GONE_AFTER;
        let excess =
            if is_new && !crate::mutant!("newcomers-do-not-wait") { excess(peers, concurrency, processes) } else { 0 };
        Part { processes, share, slots: share.saturating_sub(excess) }
    }

    fn others(&self) -> usize {
        self.recent.iter().map(|(others, _)| *others).max().unwrap_or(0)
    }

    fn older(&self) -> usize {
        self.recent.iter().map(|(_, older)| *older).max().unwrap_or(0)
    }
}

/// The share of the process that came as number `turn`, from 0. All shares together are `concurrency`.
fn share_of(concurrency: usize, processes: usize, turn: usize) -> usize {
    concurrency / processes + usize::from(turn < concurrency % processes)
}

/// What the others have under way above their shares.
fn excess(peers: &Peers, concurrency: usize, processes: usize) -> usize {
    let turns = (0..).filter(|turn| *turn != peers.older);
    let over = |(turn, has): (usize, &usize)| has.saturating_sub(share_of(concurrency, processes, turn));
    turns.zip(&peers.under_way).map(over).sum()
}

#[cfg(test)]
mod tests;
