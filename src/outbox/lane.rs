//! Order per key: events that wait for those before them in their lane, and which lanes are free.
//!
//! What must hold: of the events of one lane that are stored, only the first is due; the others are `pending`.

use std::collections::HashSet;

use super::attempt::{EventRef, Places};
use super::claim::place;
use super::sql::{dates, int4s, int8, int8s, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, Lane, Place, ProcessId};

/// An event whose lane is busy.
#[derive(Debug, Clone)]
pub struct Behind {
    pub event: EventRef,
    /// The delivery's epoch.
    pub epoch: i64,
}

/// Stores that events wait. Those missing from the answer were fenced.
pub async fn put_behind(database: &Database, process: ProcessId, batch: &[Behind]) -> Result<HashSet<Place>, Error> {
    let places = Places::of(batch.iter().map(|behind| &behind.event));
    let event_ats: Vec<Option<i64>> = batch.iter().map(|behind| behind.event.record_at).collect();
    let lanes: Vec<Option<i64>> = batch.iter().map(|behind| behind.event.lane.map(|lane| lane.0)).collect();
    let epochs: Vec<i64> = batch.iter().map(|behind| behind.epoch).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int8s(&event_ats),
        int8s(&lanes),
        int8s(&epochs),
        uuid(&process),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/put_behind.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

/// What a look at lanes found.
#[derive(Debug, Default)]
pub struct Looked {
    /// Lanes in which something is stored that is not over.
    pub busy: HashSet<(CursorId, Lane)>,
    /// Whether an event was let go.
    pub let_go: bool,
}

/// A lane of a delivery that is held under this epoch.
pub type HeldLane = (CursorId, Lane, i64);

/// Lets the first event of each lane go, if nothing is before it.
pub async fn open(database: &Database, process: ProcessId, lanes: &[HeldLane]) -> Result<Looked, Error> {
    let cursors: Vec<i64> = lanes.iter().map(|(cursor, _, _)| cursor.0).collect();
    let numbers: Vec<i64> = lanes.iter().map(|(_, lane, _)| lane.0).collect();
    let epochs: Vec<i64> = lanes.iter().map(|(_, _, epoch)| *epoch).collect();
    let parameters = [int8s(&cursors), int8s(&numbers), int8s(&epochs), uuid(&process)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/open_lanes.sql"), &parameters).await?;
    let busy = rows.iter().map(lane).collect();
    Ok(Looked { busy, let_go: rows.iter().any(|row| row.get::<_, i64>("opened") > 0) })
}

/// Lanes of these cursors into which an operator has put something back.
pub async fn replayed(database: &Database, cursors: &[CursorId]) -> Result<Vec<(CursorId, Lane)>, Error> {
    let cursors: Vec<i64> = cursors.iter().map(|cursor| cursor.0).collect();
    let file = include_str!("../../sql/relay/replayed_lanes.sql");
    let rows = database.query(Purpose::Claim, file, &[int8s(&cursors)]).await?;
    Ok(rows.iter().map(lane).collect())
}

/// Lanes in one such look.
const MOST_WAITING: i64 = 10_000;

/// Lanes in which something waits, from where the last look ended. Answers also where this one did, if there are more.
pub async fn waiting(
    database: &Database,
    cursors: &[CursorId],
    after: Option<(CursorId, Lane)>,
) -> Result<(Vec<(CursorId, Lane)>, Option<(CursorId, Lane)>), Error> {
    let cursors: Vec<i64> = cursors.iter().map(|cursor| cursor.0).collect();
    let (CursorId(cursor), Lane(number)) = after.unwrap_or((CursorId(i64::MIN), Lane(i64::MIN)));
    let parameters = [int8s(&cursors), int8(&MOST_WAITING), int8(&cursor), int8(&number)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/waiting_lanes.sql"), &parameters).await?;
    let found: Vec<(CursorId, Lane)> = rows.iter().map(lane).collect();
    let is_full = i64::try_from(found.len()).is_ok_and(|count| count >= MOST_WAITING);
    let last = found.last().copied().filter(|_| is_full);
    Ok((found, last))
}

fn lane(row: &tokio_postgres::Row) -> (CursorId, Lane) {
    (CursorId(row.get("cursor")), Lane(row.get("lane")))
}
