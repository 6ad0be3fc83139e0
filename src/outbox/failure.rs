//! Writes down attempts that did not deliver, and when each event is tried again.
//!
//! A failure counts only under the owner and epoch, or the fence, it was sent with: a process that lost its lease cannot
//! change what the new owner does. May be called again after a lost reply.

use std::collections::HashSet;
use std::time::Duration;

use super::attempt::{AttemptRecord, EventRef, Places, Right, as_i32};
use super::claim::place;
use super::sql::{booleans, bytes_list, dates, float8s, int4s, int8s, texts, uuid};
use super::{Database, Error, Purpose};
use crate::event::{Place, ProcessId};

/// An attempt after which the event waits.
#[derive(Debug, Clone)]
pub struct Failure {
    pub event: EventRef,
    pub workflow: std::sync::Arc<str>,
    pub right: Right,
    pub sends: u32,
    /// Attempts that count, after this one.
    pub counted: u32,
    pub next: Next,
    /// Nothing when no request was made.
    pub attempt: Option<AttemptRecord>,
}

/// What an event waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its next attempt.
    Again { after: Duration },
    /// The same, and nobody knows what became of this one.
    InDoubt { after: Duration },
    /// An operator's word on what became of it.
    Held,
}

impl Next {
    /// How long until something is done about it by itself.
    pub fn due_in(self) -> Option<Duration> {
        match self {
            Self::Again { after } | Self::InDoubt { after } => Some(after),
            Self::Held => None,
        }
    }

    pub(super) fn seconds(self) -> f64 {
        self.due_in().unwrap_or_default().as_secs_f64()
    }

    pub(super) fn is_in_doubt(self) -> bool {
        match self {
            Self::Again { .. } => false,
            Self::InDoubt { .. } | Self::Held => true,
        }
    }

    /// Why it is held, if it is.
    pub(super) fn held(self) -> Option<&'static str> {
        match self {
            Self::Again { .. } | Self::InDoubt { .. } => None,
            Self::Held => Some("in_doubt"),
        }
    }
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
    let waits: Vec<f64> = batch.iter().map(|f| f.next.seconds()).collect();
    let in_doubt: Vec<bool> = batch.iter().map(|f| f.next.is_in_doubt()).collect();
    let agos: Vec<f64> = batch.iter().map(|f| f.attempt.as_ref().map_or(0.0, |a| a.ago.as_secs_f64())).collect();
    let helds: Vec<Option<&str>> = batch.iter().map(|f| f.next.held()).collect();
    let event_ats: Vec<Option<i64>> = batch.iter().map(|f| f.event.record_at).collect();
    let lanes: Vec<Option<i64>> = batch.iter().map(|f| f.event.lane.map(|lane| lane.0)).collect();
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
        uuid(&process),
        float8s(&agos),
        int8s(&event_ats),
        texts(&helds),
        int8s(&lanes),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/fail_first.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

async fn failed_retry(database: &Database, batch: &[&Failure]) -> Result<Vec<Place>, Error> {
    let places = Places::of(batch.iter().map(|f| &f.event));
    let fences: Vec<i64> = batch.iter().map(|f| f.right.fence()).collect();
    let counted: Vec<i32> = batch.iter().map(|f| as_i32(f.counted)).collect();
    let waits: Vec<f64> = batch.iter().map(|f| f.next.seconds()).collect();
    let in_doubt: Vec<bool> = batch.iter().map(|f| f.next.is_in_doubt()).collect();
    let helds: Vec<Option<&str>> = batch.iter().map(|f| f.next.held()).collect();
    let sends: Vec<i32> = batch.iter().map(|f| as_i32(f.sends)).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        int8s(&fences),
        int4s(&counted),
        float8s(&waits),
        booleans(&in_doubt),
        texts(&helds),
        int4s(&sends),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/fail_retry.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}
