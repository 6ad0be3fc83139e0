//! Proves that nothing was lost. Enters: a workflow. Leaves: for every partition what became of each record that was read, and every
//! gap by name.
//!
//! Every offset from the first to the cursor has exactly one disposition: it made events, each of which is delivered, waiting,
//! cancelled or a dead letter; or it was filtered, a tombstone, or suppressed as a repeat; or it was left out knowingly. What Postgres
//! knows nothing of is looked for in Kafka: transaction markers and compaction leave offsets without a record. Nothing is stopped
//! for it. What is past its retention is not missed, and only that: everything else is to be on record from the first offset on, and the
//! counters must say the same.
//!
//! Files: `offsets` (sets of offsets), `outbox` (what Postgres knows of records), `places` (events that wait, and dead letters, one by one),
//! `counters` (whether they say the same), `kafka` (what is really there).

mod counters;
mod kafka;
pub mod offsets;
mod outbox;
mod places;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Kafka, Workflow};
use crate::event::{CursorId, Place};
use crate::outbox::Database;
use offsets::Offsets;
use outbox::{Cursor, Found};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Outbox(#[from] crate::outbox::Error),
    #[error("Kafka cannot be asked")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("Kafka cannot be asked about topics")]
    Topics(#[from] crate::ingest::native::DescribeError),
    #[error("{topic}/{partition} cannot be read at offset {offset}: nothing came for a while")]
    Silent { topic: String, partition: i32, offset: i64 },
}

/// What became of the records of one partition.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = VerifiedPartition)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    /// Offsets that were looked at: `[from, to)`. What lies before is past its retention.
    pub from: i64,
    pub to: i64,
    pub counts: Counts,
    pub gaps: Vec<Gap>,
}

/// Events and records by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Events.
    pub delivered: i64,
    pub waiting: i64,
    pub cancelled: i64,
    pub dead: i64,
    /// Dead letters that were made into events again; those are not counted once more.
    pub replayed: i64,
    /// Records.
    pub filtered: i64,
    pub tombstones: i64,
    pub suppressed: i64,
    /// Offsets that were left out knowingly: lost by Kafka before they were read, or skipped by an operator. On record.
    pub skipped: i64,
    /// Offsets read without the outbox: delivered up to the mark, which alone vouches for them.
    pub marked: i64,
    /// Offsets at which Kafka has no record.
    pub absent: i64,
    /// Offsets that nothing is known of, and that Kafka does not have any more.
    pub unknown: i64,
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    pub kind: Kind,
    /// topic/partition/offset, the first where there are several.
    pub source: String,
    /// Offsets `[from, to)`.
    pub from: i64,
    pub to: i64,
    /// The event, where it is about one.
    pub event: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = GapKind)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A record in Kafka that was passed over, or of whose reading nothing is on record.
    NeverRead,
    /// A record that was read, and of which nothing is left.
    Lost,
    /// An event that nothing will deliver: stored and waiting for nobody, or waiting and not stored.
    Stuck,
    /// An event that ended as a dead letter which is not there.
    NoDeadLetter,
    /// More or fewer events than were stored, or than a counter says.
    Miscounted,
    /// A record or an event with two dispositions.
    Twice,
}

/// Looks at every partition; `tell` hears how far it is.
pub async fn verify(
    kafka: &Kafka,
    database: &Database,
    workflow: &Workflow,
    mut tell: impl FnMut(&str),
) -> Result<Vec<Partition>, Error> {
    let mut partitions = Vec::new();
    for listed in outbox::cursors(database, &workflow.id).await? {
        let known = on_record(database, &workflow.id, listed.id, &mut tell).await?;
        let Some((cursor, mut found)) = known else { continue };
        in_kafka(kafka, &cursor, &mut found, &mut tell).await?;
        partitions.push(Partition {
            from: cursor.known_from(),
            to: cursor.next_offset,
            topic: cursor.topic,
            topic_id: cursor.topic_id,
            partition: cursor.partition,
            counts: found.counts,
            gaps: found.gaps,
        });
    }
    Ok(partitions)
}

/// What Postgres knows of one partition, and whether its counters say the same. Nothing for a cursor that is not there any more.
async fn on_record(
    database: &Database,
    workflow: &str,
    id: CursorId,
    tell: &mut impl FnMut(&str),
) -> Result<Option<(Cursor, Found)>, Error> {
    loop {
        let before = counters::read(database, id).await?;
        // As it is now: a day may have gone past its retention while the others were looked at.
        let now = outbox::cursors(database, workflow).await?;
        let Some(cursor) = now.into_iter().find(|cursor| cursor.id == id) else { return Ok(None) };
        let name = format!("{}/{}", cursor.topic, cursor.partition);
        let mut found = outbox::look(database, &cursor, |offset| tell(&format!("{name}: at offset {offset}"))).await?;
        places::look(database, &cursor, &mut found).await?;
        let ends = counters::count(database, id).await?;
        let (Some(before), Some(after)) = (before, counters::read(database, id).await?) else { return Ok(None) };
        // A day went meanwhile, or the database failed over: what was found first and what was found last do not belong together.
        if !before.is_of_one_time_with(&after) {
            continue;
        }
        let mut differences = counters::appended(&before, &after, found.unended, found.counts.suppressed);
        differences.extend(counters::ended(&before, &after, &ends));
        let all = (cursor.known_from(), cursor.next_offset);
        found.gaps.extend(differences.into_iter().map(|message| cursor.gap(Kind::Miscounted, all, None, message)));
        return Ok(Some((cursor, found)));
    }
}

/// What Postgres does not know of one partition's offsets is looked for in Kafka.
async fn in_kafka(kafka: &Kafka, cursor: &Cursor, found: &mut Found, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
    let all = Offsets::from(cursor.known_from()..cursor.next_offset);
    let skipped = cursor.skipped.within(&all);
    found.counts.skipped = skipped.without(&found.reached).count();
    found.counts.marked = cursor.direct.within(&all).without(&skipped).without(&found.reached).count();
    let unread = cursor.kept().without(&found.reached).without(&cursor.skipped).without(&cursor.direct);
    // What has no disposition in one reading may have one in another, before or after a rewind.
    let nothing = found.nothing.without(&cursor.direct);
    let asked = unread.with(&nothing);
    if asked.count() == 0 {
        return Ok(());
    }
    tell(&format!("{}/{}: looking for {} records in Kafka", cursor.topic, cursor.partition, asked.count()));
    let there = kafka::records(kafka, cursor, &asked).await?;
    found.counts.unknown = there.gone.count();
    found.counts.absent = asked.without(&there.gone).without(&there.found).count();
    let mut name = |kind, offsets: &Offsets, message: &str| {
        let gap = |range: &std::ops::Range<i64>| cursor.gap(kind, (range.start, range.end), None, message);
        found.gaps.extend(offsets.ranges().iter().map(gap));
    };
    name(Kind::NeverRead, &unread.within(&there.found), "in Kafka, and nothing says that it was read");
    name(Kind::Lost, &nothing.within(&there.found), "read, and nothing is left of it");
    if cursor.are_days_known {
        name(Kind::Lost, &unread.within(&there.gone), "nothing is on record of it, nor has Kafka it any more");
    }
    Ok(())
}

/// An event's id, as people name it.
fn event_id(cursor: CursorId, offset: i64, index: i32, generation: i32) -> String {
    Place { cursor, offset, index, generation }.to_string()
}
