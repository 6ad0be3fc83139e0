//! Which processes are there: each says so every second, and takes its share of what a workflow may have at once.
//!
//! Shares add up to what the workflow may have, however many processes there are: where they are more than that, the youngest
//! have none and stand by. A process that has just come leaves to the others what they still have under way above their new
//! shares.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::sql::{boolean, float8, int4s, texts, uuid};
use super::{Database, Error, Purpose};
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
}

impl Others {
    /// Those that send for a workflow.
    pub fn of(&self, workflow: &str) -> Peers {
        self.by_workflow.get(workflow).cloned().unwrap_or_default()
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
    ];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/beat.sql"), &parameters).await?;
    let mut others = Others::default();
    for row in &rows {
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
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(15);

    fn idle(others: usize, older: usize) -> Peers {
        Peers { under_way: vec![0; others], older, are_apart: false }
    }

    fn note(census: &mut Census, others: usize, now: Instant) -> usize {
        census.note(&idle(others, 0), 64, TIMEOUT, now).processes
    }

    #[test]
    fn alone_it_starts_after_a_second_look_and_among_others_when_they_know() {
        let now = Instant::now();
        let mut alone = Census::default();
        assert_eq!([0, 0].map(|others| note(&mut alone, others, now)), [0, 1]);
        let mut census = Census::default();
        assert_eq!(note(&mut census, 2, now), 0);
        assert_eq!(note(&mut census, 2, now + Duration::from_millis(400)), 0);
        assert_eq!(note(&mut census, 2, now + Duration::from_millis(500)), 3);
    }

    #[test]
    fn a_share_shrinks_at_once_and_grows_only_when_several_looks_agree() {
        let now = Instant::now();
        let mut census = Census::default();
        let later = now + Duration::from_secs(5);
        note(&mut census, 1, now);
        assert_eq!([0, 0, 0].map(|others| note(&mut census, others, later)), [2, 2, 1]);
        assert_eq!(note(&mut census, 4, later), 5);
    }

    #[test]
    fn shares_add_up_to_what_the_workflow_may_have_and_the_youngest_stand_by() {
        for concurrency in 1..=20 {
            for processes in 1..=9 {
                let shares = (0..processes).map(|turn| share_of(concurrency, processes, turn));
                assert_eq!(shares.sum::<usize>(), concurrency, "{concurrency} among {processes}");
            }
        }
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let part = |older| {
            let mut census = Census::default();
            census.note(&idle(2, older), 1, TIMEOUT, now);
            census.note(&idle(2, older), 1, TIMEOUT, later)
        };
        assert_eq!([0, 1, 2].map(|older| part(older).slots), [1, 0, 0]);
        assert_eq!([0, 1, 2].map(|older| part(older).stands_by()), [false, true, true]);
        assert!(!Part::UNKNOWN.stands_by());
    }

    #[test]
    fn whoever_is_there_already_waits_for_nobody() {
        let (mut census, now) = (Census::default(), Instant::now());
        let busy = |others| Peers { under_way: vec![16; others], older: 0, are_apart: false };
        census.note(&busy(1), 32, TIMEOUT, now);
        let later = now + TIMEOUT + GONE_AFTER;
        assert_eq!(census.note(&busy(1), 32, TIMEOUT, later).slots, 16);
        assert_eq!(census.note(&busy(2), 32, TIMEOUT, later).slots, 11, "a smaller share, and all of it");
    }

    #[test]
    fn a_newcomer_waits_for_what_the_others_have_above_their_shares_but_not_for_ever() {
        let (mut census, now) = (Census::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let busy = |has| Peers { under_way: vec![has], older: 1, are_apart: false };
        census.note(&busy(4), 4, TIMEOUT, at(0));
        assert_eq!(census.note(&busy(4), 4, TIMEOUT, at(1)), Part { processes: 2, share: 2, slots: 0 });
        assert_eq!(census.note(&busy(3), 4, TIMEOUT, at(2)).slots, 1);
        assert_eq!(census.note(&busy(2), 4, TIMEOUT, at(3)).slots, 2);
        // One that is configured to have more does not keep this one from sending.
        assert_eq!(census.note(&busy(64), 4, TIMEOUT, at(19)).slots, 0);
        assert_eq!(census.note(&busy(64), 4, TIMEOUT, at(20)).slots, 2);
    }
}
