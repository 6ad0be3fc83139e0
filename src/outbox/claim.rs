//! Claims: first attempts that waited in the outbox, as ranges; retries that are due, each with its own lease.
//!
//! A claim is committed before anything is sent. Only what can start now is claimed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_postgres::Row;

use super::sql::{boolean, float8, int4s, int8, int8s, text, uuid};
use super::{Database, Error, Purpose};
use crate::config::InDoubt;
use crate::event::{CursorId, Event, Lane, Place, ProcessId, SourcePosition};
use crate::send::verdict::Tries;

/// How many events in doubt one statement puts away.
const PUT_AWAY_AT_ONCE: i64 = 1_000;

/// What a claim of waiting events found.
#[derive(Debug)]
pub enum Claim {
    /// The next events of the cursor are claimed, up to offset `claimed_to`.
    Range {
        claimed_to: i64,
        events: Vec<Event>,
    },
    Nothing,
    /// One record has more events than the limit: ask for more at once.
    TooNarrow,
    /// The claimed range or the epoch is not what this process believes.
    Astray,
}

pub async fn waiting(
    database: &Database,
    (cursor, epoch): (CursorId, i64),
    claimed_to: i64,
    limit: i64,
    bytes: i64,
) -> Result<Claim, Error> {
    crate::failpoint!("claim.before");
    let parameters = [int8(&cursor.0), int8(&epoch), int8(&claimed_to), int8(&limit), int8(&bytes)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/claim_waiting.sql"), &parameters).await?;
    crate::failpoint!("claim.after");
    let Some(first) = rows.first() else { return Ok(Claim::Astray) };
    let Some(claimed_to) = first.get::<_, Option<i64>>("claimed_to") else {
        return Ok(match (first.get("standing"), first.get("cut")) {
            (true, false) => Claim::Nothing,
            (true, true) => Claim::TooNarrow,
            (false, _) => Claim::Astray,
        });
    };
    // A range without events is one row without an event.
    let events = rows.iter().filter(|row| row.get::<_, Option<i64>>("record_offset").is_some());
    Ok(Claim::Range { claimed_to, events: events.map(|row| event(row, cursor)).collect() })
}

/// An event leased for one more attempt.
#[derive(Debug)]
pub struct Retry {
    pub event: Event,
    pub fence: i64,
    /// This attempt included.
    pub tries: Tries,
    /// How long it had been due.
    pub late: Duration,
    /// The lease of the attempt before ran out.
    pub expired: bool,
    /// Nobody knows what became of the attempt before.
    pub in_doubt: bool,
    /// Until when the lease surely lasts, by this process's own clock.
    pub lease_until: Instant,
}

/// What became of a record with more events than may start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Each has a life of its own, up to this offset.
    Done { claimed_to: i64 },
    /// They are of one lane, and go out one after the other.
    InLane,
    /// The claimed range or the epoch is not what this process believes.
    Astray,
}

/// Gives each event of the next waiting record a life of its own, unless they keep order among themselves.
pub async fn spread(
    database: &Database,
    (cursor, epoch): (CursorId, i64),
    claimed_to: i64,
    ordered: bool,
) -> Result<Spread, Error> {
    let parameters = [int8(&cursor.0), int8(&epoch), int8(&claimed_to), boolean(&ordered)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/spread_record.sql"), &parameters).await?;
    crate::failpoint!("claim.spread_unanswered", Err(Error::TooSlow));
    Ok(match rows.first() {
        Some(row) if row.get("in_lane") => Spread::InLane,
        Some(row) => Spread::Done { claimed_to: row.get("claimed_to") },
        None => Spread::Astray,
    })
}

/// Events of one workflow that were put away because their last attempt is in doubt.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PutAway {
    /// Held until an operator decides.
    pub held: u64,
    /// Ended as dead letters.
    pub ended: u64,
    /// Those whose lease ran out.
    pub expired: u64,
}

/// Puts away what is in doubt, when the workflow does not try it again by itself.
pub async fn put_away(database: &Database, workflow: &str, policy: InDoubt, blocks: bool) -> Result<PutAway, Error> {
    let parameters = [text(&workflow), int8(&PUT_AWAY_AT_ONCE)];
    match policy {
        InDoubt::Redeliver | InDoubt::Ask => Ok(PutAway::default()),
        InDoubt::Hold | InDoubt::End if crate::mutant!("doubt-is-sent-again") => Ok(PutAway::default()),
        InDoubt::Hold => {
            let file = include_str!("../../sql/relay/hold_in_doubt.sql");
            let rows = database.query(Purpose::Claim, file, &parameters).await?;
            let expired = rows.iter().filter(|row| row.get("expired")).count() as u64;
            Ok(PutAway { held: rows.len() as u64, expired, ..PutAway::default() })
        }
        InDoubt::End => {
            let file = include_str!("../../sql/relay/end_in_doubt.sql");
            let parameters = [text(&workflow), int8(&PUT_AWAY_AT_ONCE), boolean(&blocks)];
            let rows = database.query(Purpose::Claim, file, &parameters).await?;
            let count = |name: &str| rows.first().map_or(0, |row| row.get::<_, i64>(name).unsigned_abs());
            Ok(PutAway { ended: count("ended"), expired: count("expired"), ..PutAway::default() })
        }
    }
}

/// Leases retries that are due, and those whose lease ran out. What is in doubt is among them only where it is tried again.
pub async fn retries(
    database: &Database,
    workflow: &str,
    process: ProcessId,
    lease: Duration,
    limit: i64,
    policy: InDoubt,
    cursors: Option<&[i64]>,
) -> Result<Vec<Retry>, Error> {
    let lease_until = Instant::now() + lease;
    let seconds = lease.as_secs_f64();
    let doubtful_too = match policy {
        InDoubt::Redeliver | InDoubt::Ask => true,
        InDoubt::Hold | InDoubt::End => crate::mutant!("doubt-is-sent-again"),
    };
    let parameters =
        [text(&workflow), uuid(&process), float8(&seconds), int8(&limit), boolean(&doubtful_too), int8s(&cursors)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/claim_retries.sql"), &parameters).await?;
    Ok(rows.iter().map(|row| retry(row, lease_until)).collect())
}

fn retry(row: &Row, lease_until: Instant) -> Retry {
    let count = |name: &str| u32::try_from(row.get::<_, i32>(name)).unwrap_or(u32::MAX);
    let seconds = |name: &str| Duration::from_secs_f64(row.get::<_, f64>(name).max(0.0));
    Retry {
        event: event(row, CursorId(row.get("cursor"))),
        fence: row.get("fence"),
        tries: Tries { sends: count("sends"), counted: count("counted"), age: seconds("age") },
        late: seconds("late"),
        expired: row.get("expired"),
        in_doubt: row.get("in_doubt"),
        lease_until,
    }
}

/// How long until the next retry is due; `None` when none waits.
pub async fn next_due(database: &Database, workflow: &str, cursors: Option<&[i64]>) -> Result<Option<Duration>, Error> {
    let file = include_str!("../../sql/relay/next_due.sql");
    let rows = database.query(Purpose::Claim, file, &[text(&workflow), int8s(&cursors)]).await?;
    Ok(rows.first().map(|row| Duration::from_secs_f64(row.get::<_, f64>("seconds").max(0.0))))
}

/// Extends the leases of retries that are still under way; answers which were.
pub async fn extend_retries(database: &Database, held: &[(Place, i64)], lease: Duration) -> Result<Vec<Place>, Error> {
    let of = |value: fn(&Place) -> i64| held.iter().map(|(place, _)| value(place)).collect::<Vec<i64>>();
    let (cursors, offsets) = (of(|p| p.cursor.0), of(|p| p.offset));
    let indexes: Vec<i32> = held.iter().map(|(place, _)| place.index).collect();
    let generations: Vec<i32> = held.iter().map(|(place, _)| place.generation).collect();
    let fences: Vec<i64> = held.iter().map(|(_, fence)| *fence).collect();
    let seconds = lease.as_secs_f64();
    let parameters =
        [int8s(&cursors), int8s(&offsets), int4s(&indexes), int4s(&generations), int8s(&fences), float8(&seconds)];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/extend_retries.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

/// The place that a row's four columns name.
pub fn place(row: &Row) -> Place {
    Place {
        cursor: CursorId(row.get("cursor")),
        offset: row.get("record_offset"),
        index: row.get("event_index"),
        generation: row.get("generation"),
    }
}

fn event(row: &Row, cursor: CursorId) -> Event {
    let offset = row.get("record_offset");
    let topic: String = row.get("topic");
    Event {
        place: Place { cursor, offset, index: row.get("event_index"), generation: row.get("generation") },
        day: row.get("day"),
        source: SourcePosition { topic: Arc::from(topic), partition: row.get("partition"), offset },
        key: row.get("key"),
        event_type: row.get("event_type"),
        content_type: row.get("content_type"),
        traceparent: row.get("traceparent"),
        record_at: row.get("source_at"),
        lane: row.get::<_, Option<i64>>("lane").map(Lane),
        stored_at: row.get("stored_at"),
        body: Bytes::from(row.get::<_, Vec<u8>>("body")),
    }
}
