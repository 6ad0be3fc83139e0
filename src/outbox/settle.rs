//! Writes down what became of attempts: delivered, to be tried again, dead.
//!
//! Every call may be made again after a lost reply. A delivery counts whoever holds the lease; a failure only under the
//! owner and epoch, or the fence, it was sent with.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::claim::place;
use super::sql::{boolean, booleans, bytes_list, date, dates, float8s, int4, int4s, int8, int8s, text, texts, uuid};
use super::{Database, Error, Purpose};
use crate::event::{Event, Place, ProcessId, Reason};

/// Under which right an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// A first attempt, out of a claimed range.
    Range { epoch: i64 },
    /// A leased retry.
    Retry { fence: i64 },
}

impl Right {
    /// What the `oncebox-fence` header says: it never falls for a key.
    pub fn fence(self) -> i64 {
        match self {
            Self::Range { epoch } => epoch,
            Self::Retry { fence } => fence,
        }
    }

    fn is_retry(self) -> bool {
        matches!(self, Self::Retry { .. })
    }
}

/// An attempt whose answer was 2xx.
#[derive(Debug, Clone)]
pub struct Completion {
    pub event: EventRef,
    pub right: Right,
    pub sends: u32,
    pub status: u16,
}

/// As much of an event as settling needs.
#[derive(Debug, Clone)]
pub struct EventRef {
    pub place: Place,
    pub day: jiff::civil::Date,
    pub body_bytes: usize,
}

impl From<&Event> for EventRef {
    fn from(event: &Event) -> Self {
        Self { place: event.place, day: event.day, body_bytes: event.body.len() }
    }
}

/// What writing down a delivery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Recorded under the right it was sent with.
    Recorded,
    /// Recorded, after the lease had run out.
    Late,
    /// The event was terminal already.
    AlreadyDone,
}

impl Settled {
    fn of(first: bool, in_time: bool) -> Self {
        match (first, in_time) {
            (true, true) => Self::Recorded,
            (true, false) => Self::Late,
            (false, _) => Self::AlreadyDone,
        }
    }
}

fn as_i32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Writes deliveries down: first attempts and retries each by their own statement.
pub async fn completed(
    database: &Database,
    process: ProcessId,
    batch: &[Completion],
) -> Result<HashMap<Place, Settled>, Error> {
    let mut sorted: Vec<&Completion> = batch.iter().collect();
    sorted.sort_by_key(|completion| completion.event.place);
    let (retries, firsts): (Vec<&Completion>, Vec<&Completion>) = sorted.into_iter().partition(|c| c.right.is_retry());
    let mut settled = HashMap::with_capacity(batch.len());
    if !firsts.is_empty() {
        settled.extend(completed_first(database, process, &firsts).await?);
    }
    if !retries.is_empty() {
        settled.extend(completed_retry(database, &retries).await?);
    }
    Ok(settled)
}

async fn completed_first(
    database: &Database,
    process: ProcessId,
    batch: &[&Completion],
) -> Result<Vec<(Place, Settled)>, Error> {
    let places = Places::of(batch.iter().map(|c| &c.event));
    let (statuses, bytes) = statuses_and_bytes(batch);
    let cursors = places.distinct_cursors();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int4s(&statuses),
        int4s(&bytes),
        uuid(&process),
        int8s(&cursors),
    ];
    let file = include_str!("../../sql/relay/settle_completed.sql");
    let rows = database.query(Purpose::Settle, file, &parameters).await?;
    let (held, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, Option<i64>>("epoch").is_some());
    let held: HashSet<(i64, i64)> = held.iter().map(|row| (row.get("cursor"), row.get("epoch"))).collect();
    let done: HashSet<Place> = done.into_iter().map(place).collect();
    let judged = batch.iter().map(|c| {
        let in_time = held.contains(&(c.event.place.cursor.0, c.right.fence()));
        (c.event.place, Settled::of(done.contains(&c.event.place), in_time))
    });
    Ok(judged.collect())
}

async fn completed_retry(database: &Database, batch: &[&Completion]) -> Result<Vec<(Place, Settled)>, Error> {
    let places = Places::of(batch.iter().map(|c| &c.event));
    let (statuses, bytes) = statuses_and_bytes(batch);
    let sends: Vec<i32> = batch.iter().map(|c| as_i32(c.sends)).collect();
    let cursors = places.distinct_cursors();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int4s(&sends),
        int4s(&statuses),
        int4s(&bytes),
        int8s(&cursors),
    ];
    let file = include_str!("../../sql/relay/settle_retried.sql");
    let rows = database.query(Purpose::Settle, file, &parameters).await?;
    let (cleared, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, Option<i64>>("fence").is_some());
    let fences: HashMap<Place, i64> = cleared.into_iter().map(|row| (place(row), row.get("fence"))).collect();
    let done: HashSet<Place> = done.into_iter().map(place).collect();
    let judged = batch.iter().map(|c| {
        let in_time = fences.get(&c.event.place) == Some(&c.right.fence());
        (c.event.place, Settled::of(done.contains(&c.event.place), in_time))
    });
    Ok(judged.collect())
}

fn statuses_and_bytes(batch: &[&Completion]) -> (Vec<i32>, Vec<i32>) {
    let bytes = |c: &&Completion| i32::try_from(c.event.body_bytes).unwrap_or(i32::MAX);
    (batch.iter().map(|c| i32::from(c.status)).collect(), batch.iter().map(bytes).collect())
}

/// An attempt that did not deliver, as it is kept.
#[derive(Debug, Clone)]
pub struct AttemptRecord {
    pub outcome: &'static str,
    pub status: Option<u16>,
    pub error: Option<String>,
    /// The first bytes of the answer.
    pub answer: Option<Vec<u8>>,
    pub took: Duration,
    /// How long ago it began.
    pub ago: Duration,
}

/// An attempt after which the event waits.
#[derive(Debug, Clone)]
pub struct Failure {
    pub event: EventRef,
    pub workflow: std::sync::Arc<str>,
    pub right: Right,
    pub sends: u32,
    /// Attempts that count, after this one.
    pub counted: u32,
    pub wait: Duration,
    pub in_doubt: bool,
    pub attempt: AttemptRecord,
}

/// Keeps what attempts saw. Comes before the verdict, so that a dead letter has its last attempt.
pub async fn record_attempts<'a>(
    database: &Database,
    attempts: impl IntoIterator<Item = (&'a EventRef, u32, Right, &'a AttemptRecord)>,
) -> Result<(), Error> {
    let mut rows: Vec<_> = attempts.into_iter().collect();
    rows.sort_by_key(|(event, send, _, _)| (event.place, *send));
    let places = Places::of(rows.iter().map(|(event, _, _, _)| *event));
    let sends: Vec<i32> = rows.iter().map(|(_, send, _, _)| as_i32(*send)).collect();
    let fences: Vec<i64> = rows.iter().map(|(_, _, right, _)| right.fence()).collect();
    let agos: Vec<f64> = rows.iter().map(|(_, _, _, a)| a.ago.as_secs_f64()).collect();
    let outcomes: Vec<&str> = rows.iter().map(|(_, _, _, a)| a.outcome).collect();
    let statuses: Vec<Option<i32>> = rows.iter().map(|(_, _, _, a)| a.status.map(i32::from)).collect();
    let errors: Vec<Option<String>> =
        rows.iter().map(|(_, _, _, a)| a.error.as_ref().map(|e| e.replace('\0', "\u{fffd}"))).collect();
    let answers: Vec<Option<&[u8]>> = rows.iter().map(|(_, _, _, a)| a.answer.as_deref()).collect();
    let millis: Vec<i32> =
        rows.iter().map(|(_, _, _, a)| i32::try_from(a.took.as_millis()).unwrap_or(i32::MAX)).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int4s(&sends),
        int8s(&fences),
        float8s(&agos),
        texts(&outcomes),
        int4s(&statuses),
        texts(&errors),
        bytes_list(&answers),
        int4s(&millis),
    ];
    let file = include_str!("../../sql/relay/record_attempts.sql");
    database.query(Purpose::Settle, file, &parameters).await?;
    Ok(())
}

/// Lets failed events wait. Those missing from the answer were fenced, or are done.
pub async fn failed(database: &Database, process: ProcessId, batch: &[Failure]) -> Result<HashSet<Place>, Error> {
    let mut batch: Vec<&Failure> = batch.iter().collect();
    batch.sort_by_key(|failure| failure.event.place);
    let (retries, firsts): (Vec<&Failure>, Vec<&Failure>) = batch.into_iter().partition(|f| f.right.is_retry());
    let mut written = HashSet::new();
    if !firsts.is_empty() {
        written.extend(failed_first(database, process, &firsts).await?);
    }
    if !retries.is_empty() {
        written.extend(failed_retry(database, &retries).await?);
    }
    Ok(written)
}

async fn failed_first(database: &Database, process: ProcessId, batch: &[&Failure]) -> Result<Vec<Place>, Error> {
    let places = Places::of(batch.iter().map(|f| &f.event));
    let epochs: Vec<i64> = batch.iter().map(|f| f.right.fence()).collect();
    let counted: Vec<i32> = batch.iter().map(|f| as_i32(f.counted)).collect();
    let waits: Vec<f64> = batch.iter().map(|f| f.wait.as_secs_f64()).collect();
    let in_doubt: Vec<bool> = batch.iter().map(|f| f.in_doubt).collect();
    let workflows: Vec<&str> = batch.iter().map(|f| &*f.workflow).collect();
    let agos: Vec<f64> = batch.iter().map(|f| f.attempt.ago.as_secs_f64()).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int8s(&epochs),
        int4s(&counted),
        float8s(&waits),
        booleans(&in_doubt),
        texts(&workflows),
        uuid(&process),
        float8s(&agos),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/fail_first.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

async fn failed_retry(database: &Database, batch: &[&Failure]) -> Result<Vec<Place>, Error> {
    let places = Places::of(batch.iter().map(|f| &f.event));
    let fences: Vec<i64> = batch.iter().map(|f| f.right.fence()).collect();
    let counted: Vec<i32> = batch.iter().map(|f| as_i32(f.counted)).collect();
    let waits: Vec<f64> = batch.iter().map(|f| f.wait.as_secs_f64()).collect();
    let in_doubt: Vec<bool> = batch.iter().map(|f| f.in_doubt).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        int8s(&fences),
        int4s(&counted),
        float8s(&waits),
        booleans(&in_doubt),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/fail_retry.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

/// An event that ends as a dead letter.
#[derive(Debug, Clone)]
pub struct Death {
    pub event: EventRef,
    pub workflow: std::sync::Arc<str>,
    pub right: Right,
    pub sends: u32,
    pub reason: Reason,
    /// Nothing when the event was given up before another attempt was made.
    pub attempt: Option<AttemptRecord>,
}

/// What parking an event found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    Written,
    /// The event was terminal already.
    AlreadyDone,
    Fenced,
}

/// Moves one event to the dead letters, in one statement.
pub async fn park(database: &Database, process: ProcessId, death: &Death) -> Result<Parked, Error> {
    let place = death.event.place;
    let (sends, fence) = (as_i32(death.sends), death.right.fence());
    let (reason, workflow, retried) = (death.reason.as_str(), &*death.workflow, death.right.is_retry());
    let bytes = death.event.body_bytes as i64;
    let parameters = [
        int8(&place.cursor.0),
        int8(&place.offset),
        int4(&place.index),
        int4(&place.generation),
        date(&death.event.day),
        text(&workflow),
        text(&reason),
        int4(&sends),
        int8(&fence),
        boolean(&retried),
        uuid(&process),
        int8(&bytes),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/dead_letter/park.sql"), &parameters).await?;
    Ok(match rows.first().map(|row| (row.get("allowed"), row.get("parked"))) {
        Some((_, true)) => Parked::Written,
        Some((true, false)) => Parked::AlreadyDone,
        Some((false, false)) | None => Parked::Fenced,
    })
}

/// Places as the arrays that statements take.
struct Places {
    cursors: Vec<i64>,
    offsets: Vec<i64>,
    indexes: Vec<i32>,
    generations: Vec<i32>,
    days: Vec<jiff::civil::Date>,
}

impl Places {
    fn distinct_cursors(&self) -> Vec<i64> {
        let mut cursors = self.cursors.clone();
        cursors.sort_unstable();
        cursors.dedup();
        cursors
    }

    fn of<'a>(events: impl Iterator<Item = &'a EventRef> + Clone) -> Self {
        Self {
            cursors: events.clone().map(|e| e.place.cursor.0).collect(),
            offsets: events.clone().map(|e| e.place.offset).collect(),
            indexes: events.clone().map(|e| e.place.index).collect(),
            generations: events.clone().map(|e| e.place.generation).collect(),
            days: events.map(|e| e.day).collect(),
        }
    }
}
