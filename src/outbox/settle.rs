//! Writes deliveries down. A 2xx counts whoever holds the lease by now; what was sent under a lost one is late.
//!
//! May be called again after a lost reply.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::attempt::{EventRef, Places, Right, as_i32};
use super::block::Blocks;
use super::claim::place;
use super::database::Within;
use super::sql::{dates, int4, int4s, int8s, uuid};
use super::{Database, Error, Purpose};
use crate::event::{Place, ProcessId};

/// An attempt whose answer was 2xx.
#[derive(Debug, Clone)]
pub struct Completion {
    pub event: EventRef,
    pub right: Right,
    pub sends: u32,
    /// Nothing when it is not an answer that says so, but an operator.
    pub status: Option<u16>,
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

/// Writes deliveries down: first attempts and retries each by their own statement. Answers what became of each, in their order.
pub async fn completed(database: &Database, process: ProcessId, batch: &[Completion]) -> Result<Vec<Settled>, Error> {
    let mut sorted: Vec<usize> = (0..batch.len()).collect();
    // Of several answers to one event the first is the one whose right may still stand.
    sorted.sort_by_key(|at| (batch[*at].event.place, Reverse(batch[*at].right.fence())));
    let (retries, firsts): (Vec<usize>, Vec<usize>) = sorted.into_iter().partition(|at| batch[*at].right.is_retry());
    let mut settled = vec![Settled::Recorded; batch.len()];
    // Nearly always there is one.
    let mut by_status: BTreeMap<Option<u16>, Vec<usize>> = BTreeMap::new();
    for at in firsts {
        by_status.entry(batch[at].status).or_default().push(at);
    }
    for (status, places) in by_status {
        let part: Vec<&Completion> = places.iter().map(|at| &batch[*at]).collect();
        let is_new = match completed_new(database, process, status, &part).await {
            // One of them had ended before, or was sent under a delivery that is lost.
            Err(error) if error.is_conflict() => false,
            is_new => is_new?,
        };
        if !is_new {
            let judged = completed_again(database, process, &part).await?;
            places.iter().zip(judged).for_each(|(at, one)| settled[*at] = one);
        }
    }
    if !retries.is_empty() {
        let part: Vec<&Completion> = retries.iter().map(|at| &batch[*at]).collect();
        let judged = completed_retry(Within::Alone(database, Purpose::Settle), &part).await?;
        retries.iter().zip(judged).for_each(|(at, one)| settled[*at] = one);
    }
    Ok(settled)
}

/// Writes down that a retry is delivered, as a part of what is done in one transaction.
pub async fn completed_within(within: Within<'_>, retry: &Completion) -> Result<Settled, Error> {
    let settled = completed_retry(within, &[retry]).await?;
    Ok(settled.into_iter().next().unwrap_or(Settled::AlreadyDone))
}

/// As if all of them were sent under deliveries that are still held, and none was written down before; otherwise nothing is.
async fn completed_new(
    database: &Database,
    process: ProcessId,
    status: Option<u16>,
    batch: &[&Completion],
) -> Result<bool, Error> {
    let (Some(status), Some(blocks)) = (status, Blocks::of(batch.iter().map(|c| &c.event))) else {
        return Ok(false);
    };
    let mut sums: BTreeMap<i64, Sum> = BTreeMap::new();
    for completion in batch {
        let epoch = completion.right.fence();
        let sum = sums.entry(completion.event.place.cursor.0).or_insert(Sum { epoch, events: 0, bytes: 0 });
        if sum.epoch != epoch {
            return Ok(false);
        }
        sum.events += 1;
        sum.bytes += i64::try_from(completion.event.body_bytes).unwrap_or(i64::MAX);
    }
    let cursors: Vec<i64> = sums.keys().copied().collect();
    let column = |of: fn(&Sum) -> i64| sums.values().map(of).collect::<Vec<i64>>();
    let (events, sizes, epochs) = (column(|sum| sum.events), column(|sum| sum.bytes), column(|sum| sum.epoch));
    let status = i32::from(status);
    let parameters = [
        int8s(&blocks.cursors),
        int8s(&blocks.blocks),
        int4s(&blocks.indexes),
        int4s(&blocks.generations),
        dates(&blocks.days),
        int8s(&blocks.bits),
        int4(&status),
        uuid(&process),
        int8s(&cursors),
        int8s(&events),
        int8s(&sizes),
        int8s(&epochs),
    ];
    database.query(Purpose::Settle, include_str!("../../sql/relay/settle_new.sql"), &parameters).await?;
    Ok(true)
}

/// What a batch has of one cursor.
struct Sum {
    epoch: i64,
    events: i64,
    bytes: i64,
}

/// Some may have been written down before: by an earlier try, by another process, as something else. Or their deliveries are
/// lost.
async fn completed_again(
    database: &Database,
    process: ProcessId,
    batch: &[&Completion],
) -> Result<Vec<Settled>, Error> {
    let once = each_once(batch);
    let places = Places::of(once.iter().map(|c| &c.event));
    let (statuses, bytes) = statuses_and_bytes(&once);
    let cursors = places.distinct_cursors();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        int4s(&statuses),
        int4s(&bytes),
        uuid(&process),
        int8s(&cursors),
    ];
    let file = include_str!("../../sql/relay/settle_completed.sql");
    let rows = database.query(Purpose::Settle, file, &parameters).await?;
    let (held, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, Option<i64>>("epoch").is_some());
    let held: HashSet<(i64, i64)> = held.iter().map(|row| (row.get("cursor"), row.get("epoch"))).collect();
    let mut done: HashSet<Place> = done.into_iter().map(place).collect();
    let judged = batch.iter().map(|c| {
        let in_time = held.contains(&(c.event.place.cursor.0, c.right.fence()));
        Settled::of(done.remove(&c.event.place), in_time)
    });
    Ok(judged.collect())
}

async fn completed_retry(within: Within<'_>, batch: &[&Completion]) -> Result<Vec<Settled>, Error> {
    let once = each_once(batch);
    let places = Places::of(once.iter().map(|c| &c.event));
    let (statuses, bytes) = statuses_and_bytes(&once);
    let sends: Vec<i32> = once.iter().map(|c| as_i32(c.sends)).collect();
    let fences: Vec<i64> = once.iter().map(|c| c.right.fence()).collect();
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
        int8s(&fences),
    ];
    let rows = within.query(include_str!("../../sql/relay/settle_retried.sql"), &parameters).await?;
    let (standing, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, Option<i64>>("fence").is_some());
    let fences: HashMap<Place, i64> = standing.into_iter().map(|row| (place(row), row.get("fence"))).collect();
    let mut done: HashSet<Place> = done.into_iter().map(place).collect();
    let judged = batch.iter().map(|c| {
        let in_time = fences.get(&c.event.place) == Some(&c.right.fence());
        Settled::of(done.remove(&c.event.place), in_time)
    });
    Ok(judged.collect())
}

/// Notes on dead letters that an answer 2xx came after all. Answers those, and the ones that were cancelled or replaced before it.
pub async fn note_late(database: &Database, late: &[EventRef]) -> Result<HashSet<Place>, Error> {
    let places = Places::of(late.iter());
    let parameters =
        [int8s(&places.cursors), int8s(&places.offsets), int4s(&places.indexes), int4s(&places.generations)];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/note_late.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}

/// Removes what a take-over has stored of events that a late answer has ended: nobody else does where it is held.
pub async fn clear_done(database: &Database, late: &[EventRef]) -> Result<(), Error> {
    let places = Places::of(late.iter());
    let parameters =
        [int8s(&places.cursors), int8s(&places.offsets), int4s(&places.indexes), int4s(&places.generations)];
    database.query(Purpose::Settle, include_str!("../../sql/relay/clear_done.sql"), &parameters).await?;
    Ok(())
}

/// One answer to each event, the first of those that are there: what is asked for twice would be counted twice.
fn each_once<'a>(batch: &[&'a Completion]) -> Vec<&'a Completion> {
    let mut once = batch.to_vec();
    once.dedup_by_key(|completion| completion.event.place);
    once
}

fn statuses_and_bytes(batch: &[&Completion]) -> (Vec<Option<i32>>, Vec<i32>) {
    let bytes = |c: &&Completion| i32::try_from(c.event.body_bytes).unwrap_or(i32::MAX);
    (batch.iter().map(|c| c.status.map(i32::from)).collect(), batch.iter().map(bytes).collect())
}
