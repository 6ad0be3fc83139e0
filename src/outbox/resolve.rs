//! Events that wait for an operator's word: saying what became of what is held.
//!
//! A word counts once, and only while the event is still held: a late answer may have settled it meanwhile.

use super::attempt::{EventRef, Right};
use super::park::{self, Death, Parked};
use super::settle::{self, Completion, Settled};
use super::sql::{int4, int8};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, Place, ProcessId, Reason};

/// An event that is held, as far as settling it needs.
#[derive(Debug, Clone)]
pub struct Held {
    pub workflow: std::sync::Arc<str>,
    pub event: EventRef,
    sends: u32,
    fence: i64,
}

/// Nothing when the event is not held.
pub async fn held(database: &Database, place: Place) -> Result<Option<Held>, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/admin/read_held.sql"), &parameters).await?;
    Ok(rows.first().map(|row| Held {
        workflow: row.get::<_, &str>("workflow").into(),
        event: EventRef {
            place,
            day: row.get("day"),
            body_bytes: usize::try_from(row.get::<_, i32>("body_bytes")).unwrap_or(0),
            record_at: row.get("source_at"),
            lane: None,
        },
        sends: u32::try_from(row.get::<_, i32>("sends")).unwrap_or(0),
        fence: row.get("fence"),
    }))
}

/// The endpoint has processed it. Answers whether that settled it.
pub async fn delivered(database: &Database, held: &Held) -> Result<bool, Error> {
    let right = Right::Retry { fence: held.fence };
    let completion = Completion { event: held.event.clone(), right, sends: held.sends, status: None };
    // No process delivers it: what decides is that the event is not terminal yet.
    let settled = settle::completed(database, ProcessId::nil(), &[completion]).await?;
    Ok(settled.get(&(held.event.place, right)).is_some_and(|settled| *settled != Settled::AlreadyDone))
}

/// The endpoint has not processed it. Answers whether it was still held.
pub async fn send_again(database: &Database, held: &Held) -> Result<bool, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = held.event.place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation), int8(&held.fence)];
    let file = include_str!("../../sql/admin/send_held_again.sql");
    Ok(!database.query(Purpose::Admin, file, &parameters).await?.is_empty())
}

/// Nobody knows, and nobody will: a dead letter. Answers whether it was still held.
pub async fn give_up(database: &Database, held: &Held, blocks: bool) -> Result<bool, Error> {
    let death = Death {
        event: held.event.clone(),
        workflow: held.workflow.clone(),
        right: Right::Retry { fence: held.fence },
        sends: held.sends,
        reason: Reason::InDoubt,
        blocks,
        attempt: None,
    };
    Ok(park::park(database, ProcessId::nil(), &death).await? == Parked::Written)
}
