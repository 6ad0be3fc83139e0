//! Enters: what was read from partitions, as batches. Leaves: rows and moved cursors, committed together, or nothing.
//!
//! A batch whose cursor did not move is fenced: another process owns it, or the database lost commits. A COMMIT whose
//! reply was lost is resolved by reading the cursor, which is either where it was or where it should be.

use std::collections::{HashMap, HashSet};

use jiff::civil::Date;
use tokio_postgres::Row;

use super::batch::Batch;
use super::columns::{CursorColumns, Joined, Special, ThinColumns};
use super::sql::{bytes, bytes_list, float8s, int4s, int8, int8s, text, texts, uuid};
use super::unique::{self, Fate, UniqueColumns};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, ProcessId};

/// Bodies that are sent as one value, of which Postgres takes a gigabyte at most.
const MOST_JOINED: i64 = 256 << 20;

/// A batch that is stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its first attempts belong to this process.
    pub claimed: bool,
    pub generation: i32,
    pub day: Date,
    /// Offset and index of events that were not stored, because the source had published them before.
    pub suppressed: HashSet<(i64, i32)>,
    /// Offset and index of events that wait in retry for their time.
    pub scheduled: HashSet<(i64, i32)>,
    /// How many were refused because another event has their uniqueness key.
    pub duplicates: u64,
}

/// Stores each batch whose cursor this process still owns; fenced ones are missing from the answer.
/// `claim` has the delivery epoch under which a batch's first attempts are claimed, if they are.
pub async fn append(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
    claim: &HashMap<CursorId, i64>,
) -> Result<HashMap<CursorId, Stored>, Error> {
    crate::failpoint!("ingest.commit_fails", Err(Error::TooSlow));
    let is_plain = batches.iter().all(Batch::is_plain);
    let (rows, duplicates) = if is_plain {
        (plain(database, process, batches, claim).await?, HashMap::new())
    } else {
        all(database, process, batches, claim).await?
    };
    crate::failpoint!("ingest.commit_unanswered", Err(Error::TooSlow));
    let (left_out, moved): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.get::<_, Option<i64>>("left_offset").is_some());
    let mut stored: HashMap<CursorId, Stored> = moved
        .into_iter()
        .map(|row| {
            let (claimed, generation, day) = (row.get("claimed"), row.get("generation"), row.get("day"));
            (
                CursorId(row.get("id")),
                Stored {
                    claimed,
                    generation,
                    day,
                    suppressed: HashSet::new(),
                    scheduled: HashSet::new(),
                    duplicates: duplicates.get(&row.get::<_, i64>("id")).copied().unwrap_or(0),
                },
            )
        })
        .collect();
    for row in left_out {
        if let Some(stored) = stored.get_mut(&CursorId(row.get("id"))) {
            let list = if row.get("suppressed") { &mut stored.suppressed } else { &mut stored.scheduled };
            list.insert((row.get("left_offset"), row.get("left_index")));
        }
    }
    Ok(stored)
}

/// The common case: nothing but events that are stored, to be sent now, or suppressed. What all events share is said once.
async fn plain(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
    claim: &HashMap<CursorId, i64>,
) -> Result<Vec<Row>, Error> {
    let cursors = CursorColumns::of(batches, claim);
    let events = ThinColumns::of(batches);
    if events.are_alike() && cursors.bytes.iter().sum::<i64>() <= MOST_JOINED {
        return alike(database, process, &cursors, &events).await;
    }
    let parameters = [
        uuid(&process),
        int8s(&cursors.ids),
        int8s(&cursors.epochs),
        int8s(&cursors.expected),
        int8s(&cursors.next),
        int8s(&cursors.delivery),
        int4s(&cursors.events),
        int8s(&cursors.bytes),
        texts(&cursors.filtered),
        texts(&cursors.tombstones),
        int8s(&events.each.cursors),
        int8s(&events.each.offsets),
        int4s(&events.each.indexes),
        texts(&events.each.keys),
        texts(&events.each.types),
        texts(&events.each.content_types),
        texts(&events.each.traceparents),
        int8s(&events.each.source_ats),
        int8s(&events.each.versions),
        bytes_list(&events.each.bodies),
        int8s(&events.each.lanes),
        text(&events.event_type),
        text(&events.content_type),
        int8(&events.version),
        bytes_list(&events.fingerprints),
        float8s(&events.remembered),
    ];
    database.query(Purpose::Append, include_str!("../../sql/ingest/append_events.sql"), &parameters).await
}

/// The commonest: each event is the only one of its record, and they have all else in common.
async fn alike(
    database: &Database,
    process: ProcessId,
    cursors: &CursorColumns,
    events: &ThinColumns<'_>,
) -> Result<Vec<Row>, Error> {
    let bodies = Joined::of(&events.each.bodies);
    let parameters = [
        uuid(&process),
        int8s(&cursors.ids),
        int8s(&cursors.epochs),
        int8s(&cursors.expected),
        int8s(&cursors.next),
        int8s(&cursors.delivery),
        int4s(&cursors.events),
        int8s(&cursors.bytes),
        texts(&cursors.filtered),
        texts(&cursors.tombstones),
        int8s(&events.each.cursors),
        int8s(&events.each.offsets),
        texts(&events.each.keys),
        int8s(&events.each.source_ats),
        bytes(&bodies.all),
        int4s(&bodies.from),
        int4s(&bodies.bytes),
        text(&events.event_type),
        text(&events.content_type),
        int8(&events.version),
    ];
    database.query(Purpose::Append, include_str!("../../sql/ingest/append_alike.sql"), &parameters).await
}

/// Also answers how many events of each cursor were refused as duplicates.
async fn all(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
    claim: &HashMap<CursorId, i64>,
) -> Result<(Vec<Row>, HashMap<i64, u64>), Error> {
    let (standing, candidates) = unique::candidates(batches);
    if candidates.is_empty() {
        let keys = UniqueColumns::of(batches, Vec::new());
        let columns = Special::of(batches, claim);
        let (file, parameters) = columns.statement(&process, &keys);
        let rows = database.query(Purpose::Append, file, &parameters).await?;
        return Ok((rows, HashMap::new()));
    }
    database
        .transaction(Purpose::Append, async |transaction| {
            let decided = unique::take(database, transaction, Some(process), &standing, &candidates).await?;
            let mut duplicates: HashMap<i64, u64> = HashMap::new();
            for (event, decided) in candidates.iter().zip(&decided) {
                if decided.as_ref().is_some_and(|decided| decided.fate == Fate::Duplicate) {
                    *duplicates.entry(event.cursor.0).or_default() += 1;
                }
            }
            let keys = UniqueColumns::of(batches, decided);
            let columns = Special::of(batches, claim);
            let (file, parameters) = columns.statement(&process, &keys);
            let rows = transaction.query_typed(&database.schema.text(file), &parameters).await;
            Ok((rows.map_err(|source| Error::statement(file, source))?, duplicates))
        })
        .await
}

/// What a lost reply meant for one batch.
#[derive(Debug, Clone, Copy)]
pub enum Resolved {
    /// The cursor is where the batch moves it. Whether its events were claimed too is not known.
    Committed,
    /// The cursor is where it was: the append can be made again.
    NotCommitted,
    Fenced,
}

/// Reads the cursors of batches whose append was not answered.
pub async fn resolve(
    database: &Database,
    process: ProcessId,
    batches: &[Batch],
) -> Result<HashMap<CursorId, Resolved>, Error> {
    let ids: Vec<i64> = batches.iter().map(|b| b.holding.cursor.0).collect();
    let rows =
        database.query(Purpose::Append, include_str!("../../sql/ingest/read_cursors.sql"), &[int8s(&ids)]).await?;
    let mut answers = HashMap::new();
    for batch in batches {
        let row = rows.iter().find(|row| row.get::<_, i64>("id") == batch.holding.cursor.0);
        let resolved = match row {
            Some(row)
                if row.get::<_, Option<ProcessId>>("owner") == Some(process)
                    && row.get::<_, i64>("owner_epoch") == batch.holding.epoch =>
            {
                match row.get::<_, i64>("next_offset") {
                    next if next == batch.next => Resolved::Committed,
                    next if next == batch.expected => Resolved::NotCommitted,
                    _ => Resolved::Fenced,
                }
            }
            Some(_) | None => Resolved::Fenced,
        };
        answers.insert(batch.holding.cursor, resolved);
    }
    Ok(answers)
}
