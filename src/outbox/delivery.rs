//! Who delivers a cursor's events: taking a delivery over, keeping it, giving it back.
//!
//! A delivery moves when its owner has let go (all that was sent is settled) or its lease has run out. Whatever a lost
//! owner had claimed and not settled is in doubt from then on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Client, Object};

use super::database::STATEMENT_LIMIT;
use super::fleet::GONE_AFTER;
use super::sql::{Schema, boolean, float8, int4, int8, int8s, text, texts, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, Lane, ProcessId};

/// A delivery that this process holds.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub cursor: CursorId,
    pub epoch: i64,
    pub settled_to: i64,
    pub claimed_to: i64,
    pub next_offset: i64,
    /// Until when the lease surely lasts, by this process's own clock.
    pub lease_until: Instant,
    /// Events that the last owner left in doubt.
    pub in_doubt: u64,
    /// The history that the database was in: a failover begins another, in which commits may be missing.
    pub timeline: Arc<str>,
    /// What the database may have lost, when it has failed over since the delivery was last taken.
    pub failover: Option<Failover>,
    /// Lanes in which something is stored that is not over; nothing where order is not kept.
    pub lanes: Option<Vec<Lane>>,
}

/// A partition whose last commits may be missing.
#[derive(Debug, Clone)]
pub struct Failover {
    pub topic: String,
    pub partition: i32,
    /// The first offset of which the database does not know that it was sent.
    pub from: i64,
}

/// What a look around found.
#[derive(Debug, Default)]
pub struct Found {
    /// Deliveries that this process may take.
    pub free: Vec<CursorId>,
    /// Its own, with events that wait in the outbox.
    pub waiting: Vec<CursorId>,
}

/// Whose deliveries a process may take that others have not let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// Those whose lease has run out.
    Expired,
    /// Nobody's: Postgres was away just now, and who holds them may not have been able to say that it is there.
    Nobodys,
}

/// The poll behind every wake-up: whatever notice was lost, this finds it.
pub async fn look(
    database: &Database,
    workflow: &str,
    (process, lease): (ProcessId, Duration),
    (held, ordered): (&[CursorId], bool),
    take_over: TakeOver,
) -> Result<Found, Error> {
    let (lease, gone) = (lease.as_secs_f64(), GONE_AFTER.as_secs_f64());
    let held: Vec<i64> = held.iter().map(|cursor| cursor.0).collect();
    let takes_over = take_over == TakeOver::Expired;
    let parameters = [
        text(&workflow),
        uuid(&process),
        float8(&lease),
        int8s(&held),
        boolean(&ordered),
        float8(&gone),
        boolean(&takes_over),
    ];
    let file = include_str!("../../sql/relay/deliverable.sql");
    let rows = database.query(Purpose::Claim, file, &parameters).await?;
    let mut found = Found::default();
    for row in rows {
        let list = if row.get("mine") { &mut found.waiting } else { &mut found.free };
        list.push(CursorId(row.get("cursor")));
    }
    Ok(found)
}

/// Takes one delivery and puts in doubt what its last owner left. `None`: somebody else was faster.
pub async fn take(
    database: &Database,
    workflow: &str,
    cursor: CursorId,
    (process, lease): (ProcessId, Duration),
    ordered: bool,
) -> Result<Option<Delivery>, Error> {
    let mut client = database.get(Purpose::Claim).await?;
    let taking = take_over(&mut client, &database.schema, (workflow, ordered), cursor, (process, lease));
    match tokio::time::timeout(STATEMENT_LIMIT, taking).await {
        Ok(taken) => taken,
        Err(_) => {
            drop(Object::take(client));
            Err(Error::TooSlow)
        }
    }
}

async fn take_over(
    client: &mut Client,
    schema: &Schema,
    (workflow, ordered): (&str, bool),
    cursor: CursorId,
    (process, lease): (ProcessId, Duration),
) -> Result<Option<Delivery>, Error> {
    let before = Instant::now();
    let take = include_str!("../../sql/relay/take_delivery.sql");
    let rescue = include_str!("../../sql/relay/rescue.sql");
    let failed = |file| move |source| Error::statement(file, source);
    // Two statements, because the second must see what was committed while the first waited for its locks.
    let transaction = client.transaction().await.map_err(failed(take))?;
    let seconds = lease.as_secs_f64();
    let parameters = [int8(&cursor.0), uuid(&process), float8(&seconds)];
    let rows = transaction.query_typed(&schema.text(take), &parameters).await.map_err(failed(take))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (epoch, settled_to, claimed_to): (i64, i64, i64) =
        (row.get("epoch"), row.get("settled_to"), row.get("claimed_to"));
    let parameters = [int8(&cursor.0), text(&workflow), int8(&settled_to), int8(&claimed_to), int8(&epoch)];
    let lost = transaction.query_typed(&schema.text(rescue), &parameters).await.map_err(failed(rescue))?;
    let keep = include_str!("../../sql/relay/keep_order.sql");
    let parameters = [int8(&cursor.0), boolean(&ordered)];
    let lanes = transaction.query_typed(&schema.text(keep), &parameters).await.map_err(failed(keep))?;
    let in_doubt: i64 = lost.first().map_or(0, |row| row.get("in_doubt"));
    let delivery = Delivery {
        cursor,
        epoch,
        // All below claimed_to is now in done or in retry.
        settled_to: claimed_to,
        claimed_to,
        next_offset: row.get("next_offset"),
        lease_until: before + lease,
        in_doubt: in_doubt.unsigned_abs(),
        timeline: row.get::<_, &str>("timeline").into(),
        failover: row.get::<_, bool>("failed_over").then(|| Failover {
            topic: row.get("topic"),
            partition: row.get("partition"),
            from: claimed_to,
        }),
        lanes: ordered.then(|| lanes.iter().map(|row| Lane(row.get("lane"))).collect()),
    };
    transaction.commit().await.map_err(failed(take))?;
    Ok(Some(delivery))
}

/// An event that waits for its turn, as a place in the order of lanes.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    lane: i64,
    offset: i64,
    index: i32,
    generation: i32,
}

impl Turn {
    pub const FIRST: Self = Self { lane: i64::MIN, offset: -1, index: 0, generation: 0 };
}

/// Lets go some of what waited for its turn after `last`, for an owner who keeps no order. Answers how far it came; nothing when
/// none is left, or the delivery has another owner.
pub async fn let_go(database: &Database, cursor: CursorId, epoch: i64, last: Turn) -> Result<Option<Turn>, Error> {
    let Turn { lane, offset, index, generation } = last;
    let parameters = [int8(&cursor.0), int8(&epoch), int8(&lane), int8(&offset), int4(&index), int4(&generation)];
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/let_go.sql"), &parameters).await?;
    Ok(rows.first().map(|row| Turn {
        lane: row.get("lane"),
        offset: row.get("record_offset"),
        index: row.get("event_index"),
        generation: row.get("generation"),
    }))
}

/// How far a held delivery is settled.
#[derive(Debug, Clone)]
pub struct Progress {
    pub cursor: CursorId,
    pub epoch: i64,
    pub settled_to: i64,
    /// Where this is known from.
    pub timeline: Arc<str>,
}

/// A delivery that is still held. `wanted`: another process waits for it, because it reads the partition now or it is its turn.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    pub cursor: CursorId,
    pub wanted: bool,
}

/// Extends leases; those missing from the answer are lost.
pub async fn extend(
    database: &Database,
    workflow: &str,
    (process, lease): (ProcessId, Duration),
    held: &[Progress],
) -> Result<Vec<Kept>, Error> {
    let cursors: Vec<i64> = held.iter().map(|p| p.cursor.0).collect();
    let epochs: Vec<i64> = held.iter().map(|p| p.epoch).collect();
    let settled: Vec<i64> = held.iter().map(|p| p.settled_to).collect();
    let (seconds, gone) = (lease.as_secs_f64(), GONE_AFTER.as_secs_f64());
    let timelines: Vec<&str> = held.iter().map(|p| &*p.timeline).collect();
    let parameters = [
        int8s(&cursors),
        int8s(&epochs),
        int8s(&settled),
        uuid(&process),
        float8(&seconds),
        texts(&timelines),
        text(&workflow),
        float8(&gone),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/extend.sql"), &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| Kept {
            cursor: CursorId(row.get("cursor")),
            wanted: row.get::<_, Option<bool>>("wanted") == Some(true),
        })
        .collect())
}

/// Returns the end of a claimed range that was never sent, and claims no more under this epoch.
pub async fn give_back(database: &Database, cursor: CursorId, epoch: i64, from: i64) -> Result<(), Error> {
    let parameters = [int8(&cursor.0), int8(&epoch), int8(&from)];
    database.query(Purpose::Claim, include_str!("../../sql/relay/give_back.sql"), &parameters).await?;
    Ok(())
}

/// Lets go of a delivery whose sent events are all settled.
pub async fn release(database: &Database, process: ProcessId, progress: &Progress) -> Result<(), Error> {
    let Progress { cursor, epoch, settled_to, timeline } = progress;
    let timeline = &**timeline;
    let parameters = [int8(&cursor.0), uuid(&process), int8(epoch), int8(settled_to), text(&timeline)];
    database.query(Purpose::Claim, include_str!("../../sql/relay/release.sql"), &parameters).await?;
    Ok(())
}
