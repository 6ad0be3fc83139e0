//! Enters: events that callers gave over HTTP. Leaves: the same, stored and durable, or why not; each with its place.
//!
//! Several share a transaction: what queued while the last one committed. What must hold: a key that a caller gave is taken once, and
//! of events with one uniqueness key one is first, whichever way they came.

mod store;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{Database, Error, notify};
use crate::config::UniquePolicy;
use crate::event::{Fingerprint, Lane, Place};
use crate::observe::Metrics;
use store::store;

/// Where events over HTTP come from, in the place of a topic. No cluster has an empty name.
const TOPIC: &str = "http";
const MOST_AT_ONCE: usize = 100;
const MOST_BYTES: usize = 8 << 20;

/// An event as a caller gave it, ready to be stored.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Whose name the audit shows.
    pub who: Arc<str>,
    pub workflow: Arc<str>,
    pub version: i64,
    pub key: String,
    pub event_type: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
    pub traceparent: Option<String>,
    pub source_at: i64,
    pub due: Option<Timestamp>,
    /// It waits for this long at the least, by the database's clock.
    pub delay: Duration,
    pub lane: Option<Lane>,
    /// For a key that the caller gave: what stands for the key, and what stands for the request.
    pub own: Option<(Fingerprint, Fingerprint)>,
    pub unique: Option<(UniquePolicy, Fingerprint)>,
    /// For how long keys are remembered.
    pub kept: Duration,
}

/// An event as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub place: Place,
    /// scheduled, available or pending; cancelled when another of the same moment has replaced it.
    pub state: String,
    pub due: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    Stored(Stored),
    /// The caller sent the same before, or asked for repeats to be ignored.
    Deduplicated(Place),
    /// Another event has its uniqueness key.
    Duplicate {
        place: Place,
        state: String,
    },
    /// The caller sent something else under this key.
    KeyReused(Place),
}

type Answer = oneshot::Sender<Result<Submitted, Arc<Error>>>;
type Asked = Vec<(Submission, Answer)>;

/// The way to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Submissions(mpsc::Sender<(Submission, Answer)>);

impl Submissions {
    /// Starts the writer; it ends when every way to it is gone.
    pub fn start(database: Database, metrics: Arc<Metrics>) -> Self {
        let (sender, queue) = mpsc::channel(MOST_AT_ONCE);
        tokio::spawn(write(database, metrics, queue));
        Self(sender)
    }

    /// Answers once it is durable.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Arc<Error>> {
        let (answer, answered) = oneshot::channel();
        // A writer that is gone went with the process.
        self.0.send((submission, answer)).await.map_err(|_| Arc::new(Error::Pool))?;
        answered.await.map_err(|_| Arc::new(Error::Pool))?
    }
}

async fn write(database: Database, metrics: Arc<Metrics>, mut queue: mpsc::Receiver<(Submission, Answer)>) {
    let mut known = HashMap::new();
    let mut left = Asked::new();
    loop {
        if left.is_empty() && queue.recv_many(&mut left, MOST_AT_ONCE).await == 0 {
            return;
        }
        let (batch, later) = without_repeats(std::mem::take(&mut left));
        left = later;
        let (submissions, answers): (Vec<Submission>, Vec<Answer>) = batch.into_iter().unzip();
        match store(&database, &submissions, &mut known).await {
            Ok(stored) => {
                tell(&database, &submissions);
                for ((answer, stored), submission) in answers.into_iter().zip(stored).zip(&submissions) {
                    count(&metrics, &submission.workflow, &stored);
                    // A caller that did not wait asks again, with the same key.
                    let _ = answer.send(Ok(stored));
                }
            }
            // Surely nothing was stored. After any other error that is not known, and another try could store them twice.
            Err(error) if error.is_about_data() && submissions.len() > 1 => {
                // Each alone shows which.
                for (submission, answer) in submissions.into_iter().zip(answers) {
                    let stored = store(&database, std::slice::from_ref(&submission), &mut known).await;
                    tell(&database, std::slice::from_ref(&submission));
                    let one = stored.map(|mut stored| stored.swap_remove(0));
                    let _ = one.as_ref().map(|stored| count(&metrics, &submission.workflow, stored));
                    let _ = answer.send(one.map_err(Arc::new));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                answers.into_iter().for_each(|answer| drop(answer.send(Err(Arc::clone(&error)))));
            }
        }
    }
}

fn count(metrics: &Metrics, workflow: &Arc<str>, stored: &Submitted) {
    match stored {
        Submitted::Stored(_) => metrics.of(workflow).ingested.inc(),
        Submitted::Deduplicated(_) => metrics.of(workflow).duplicates_suppressed.inc(),
        Submitted::Duplicate { .. } | Submitted::KeyReused(_) => {}
    }
}

/// Those that share a transaction, and those that come after it: one of a caller's key at a time, and so many bytes.
fn without_repeats(all: Asked) -> (Asked, Asked) {
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    all.into_iter().partition(|(one, _)| {
        let has_room = bytes == 0 || bytes + one.body.len() <= MOST_BYTES;
        let is_first = match &one.own {
            Some((key, _)) => seen.insert((Arc::clone(&one.workflow), *key)),
            None => true,
        };
        bytes += if has_room && is_first { one.body.len() } else { 0 };
        has_room && is_first
    })
}

/// Whoever delivers them is told, where failing to is no harm: they poll.
fn tell(database: &Database, submissions: &[Submission]) {
    let workflows: HashSet<Arc<str>> = submissions.iter().map(|one| Arc::clone(&one.workflow)).collect();
    let database = database.clone();
    tokio::spawn(async move {
        for workflow in workflows {
            let _ = notify::tell(&database, &workflow).await;
        }
    });
}
