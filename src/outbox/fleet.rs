//! Which processes are there: each says so every second, and takes its share of what a workflow may have at once.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::sql::{float8, int4s, texts, uuid};
use super::{Database, Error, Purpose};
use crate::event::ProcessId;

/// A process that was silent for this long counts as gone.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// What one process and the others have of a workflow. Its dispatcher writes what is under way, the fleet's task the rest.
#[derive(Debug, Default)]
pub struct Share {
    /// Processes that run the workflow, this one included: they share its limits. 0: not known yet.
    pub processes: AtomicUsize,
    /// Requests that are under way here.
    pub under_way: AtomicUsize,
    /// Of them, first attempts of stored events.
    pub firsts: AtomicUsize,
}

/// What a process says of one of its workflows.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a> {
    pub workflow: &'a str,
    pub under_way: usize,
    pub firsts: usize,
}

/// The other processes.
#[derive(Debug, Default)]
pub struct Others {
    pub all: usize,
    by_workflow: HashMap<String, usize>,
}

impl Others {
    /// Those that run a workflow.
    pub fn of(&self, workflow: &str) -> usize {
        self.by_workflow.get(workflow).copied().unwrap_or(0)
    }
}

/// Says that this process is there. Answers who else is.
pub async fn beat(database: &Database, process: ProcessId, words: &[Word<'_>]) -> Result<Others, Error> {
    let seconds = GONE_AFTER.as_secs_f64();
    let number = |many: usize| i32::try_from(many).unwrap_or(i32::MAX);
    let workflows: Vec<&str> = words.iter().map(|word| word.workflow).collect();
    let under_way: Vec<i32> = words.iter().map(|word| number(word.under_way)).collect();
    let firsts: Vec<i32> = words.iter().map(|word| number(word.firsts)).collect();
    let parameters = [uuid(&process), texts(&workflows), float8(&seconds), int4s(&under_way), int4s(&firsts)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/beat.sql"), &parameters).await?;
    let mut others = Others::default();
    for row in &rows {
        let count = usize::try_from(row.get::<_, i64>("others")).unwrap_or(0);
        match row.get("workflow") {
            Some(workflow) => drop(others.by_workflow.insert(workflow, count)),
            None => others.all = count,
        }
    }
    Ok(others)
}

/// Gives this process's share to the others at once.
pub async fn leave(database: &Database, process: ProcessId) -> Result<(), Error> {
    database.query(Purpose::Admin, include_str!("../../sql/relay/leave.sql"), &[uuid(&process)]).await?;
    Ok(())
}

/// How many processes share a workflow, as this one believes. Pure.
///
/// One that comes to others waits until they know of it. And a share grows only when several looks have said so: after an outage of
/// Postgres everybody looks gone to whoever speaks first.
#[derive(Debug, Default)]
pub struct Census {
    first_at: Option<Instant>,
    recent: [usize; 3],
    looks: usize,
}

/// By then the others have looked: they are told.
pub const KNOWN_AFTER: Duration = Duration::from_millis(500);

impl Census {
    /// Takes a look in. Answers how many processes there are, this one included; 0: not to send yet.
    pub fn note(&mut self, others: usize, now: Instant) -> usize {
        let first_at = *self.first_at.get_or_insert(now);
        self.recent[self.looks % self.recent.len()] = others;
        self.looks += 1;
        let most = self.recent.iter().copied().max().unwrap_or(0);
        let is_known = most == 0 || now.saturating_duration_since(first_at) >= KNOWN_AFTER;
        if is_known { most + 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_it_starts_at_once_and_among_others_when_they_know() {
        let now = Instant::now();
        assert_eq!(Census::default().note(0, now), 1);
        let mut census = Census::default();
        assert_eq!(census.note(2, now), 0);
        assert_eq!(census.note(2, now + Duration::from_millis(400)), 0);
        assert_eq!(census.note(2, now + Duration::from_millis(500)), 3);
    }

    #[test]
    fn a_share_shrinks_at_once_and_grows_only_when_several_looks_agree() {
        let now = Instant::now();
        let mut census = Census::default();
        let later = now + Duration::from_secs(5);
        census.note(1, now);
        assert_eq!([0, 0, 0].map(|others| census.note(others, later)), [2, 2, 1]);
        assert_eq!(census.note(4, later), 5);
    }
}
