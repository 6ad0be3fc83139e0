//! Events that wait for an operator's word: saying what became of what is held.
//!
//! A word counts once, and only while the event is still held: a late answer may have settled it meanwhile.

use deadpool_postgres::Transaction;

use super::attempt::{EventRef, Right};
use super::audit::{self, Entry};
use super::database::Within;
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

/// What an operator says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The endpoint has processed it.
    Delivered,
    /// The endpoint has not processed it: it is sent again.
    NotDelivered,
    /// Nobody knows, and nobody will: a dead letter.
    Unknown {
        /// Whether the later events of its lane wait for it.
        blocks: bool,
    },
}

/// One transaction: what is said and who said it. Answers whether it counts: not when the event was settled meanwhile.
pub async fn resolve(database: &Database, held: &Held, said: Said, entry: &Entry<'_>) -> Result<bool, Error> {
    let work =
        async |transaction: &Transaction<'_>| take(Within::Transaction(database, transaction), held, said, entry).await;
    database.transaction(Purpose::Settle, work).await
}

async fn take(within: Within<'_>, held: &Held, said: Said, entry: &Entry<'_>) -> Result<bool, Error> {
    let counts = match said {
        Said::Delivered => delivered(within, held).await?,
        Said::NotDelivered => send_again(within, held).await?,
        Said::Unknown { blocks } => give_up(within, held, blocks).await?,
    };
    if counts {
        audit::write(within, entry).await?;
    }
    Ok(counts)
}

async fn delivered(within: Within<'_>, held: &Held) -> Result<bool, Error> {
    let right = Right::Retry { fence: held.fence };
    let completion = Completion { event: held.event.clone(), right, sends: held.sends, status: None };
    // No process delivers it: what decides is that the event is not terminal yet.
    Ok(settle::completed_within(within, &completion).await? != Settled::AlreadyDone)
}

async fn send_again(within: Within<'_>, held: &Held) -> Result<bool, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = held.event.place;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation), int8(&held.fence)];
    Ok(!within.query(include_str!("../../sql/admin/send_held_again.sql"), &parameters).await?.is_empty())
}

async fn give_up(within: Within<'_>, held: &Held, blocks: bool) -> Result<bool, Error> {
    let death = Death {
        event: held.event.clone(),
        workflow: held.workflow.clone(),
        right: Right::Retry { fence: held.fence },
        sends: held.sends,
        reason: Reason::InDoubt,
        blocks,
        attempt: None,
    };
    Ok(park::park_within(within, ProcessId::nil(), &death).await? == Parked::Written)
}
