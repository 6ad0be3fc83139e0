//! Events that operators cancel. What waits ends at once; what is claimed is asked for: its owner drops it unsent, or lets the answer
//! decide, and it is never tried again.

use super::attempt::{EventRef, Places};
use super::claim::place;
use super::sql::{dates, int4, int4s, int8, int8s, text, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, Place, ProcessId};

/// What cancelling an event came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It is, now or before.
    Now,
    /// It was claimed.
    Requested,
    /// It has ended as something else.
    Ended(String),
    Unknown,
}

pub async fn cancel(database: &Database, event: Place, who: &str) -> Result<Cancelled, Error> {
    let Place { cursor: CursorId(cursor), offset, index, generation } = event;
    let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation), text(&who)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/operate/cancel.sql"), &parameters).await?;
    Ok(match rows.first().map(|row| row.get::<_, &str>("outcome")) {
        Some("cancelled") => Cancelled::Now,
        Some("requested") => Cancelled::Requested,
        Some("unknown") | None => Cancelled::Unknown,
        Some(state) => Cancelled::Ended(state.to_owned()),
    })
}

/// Ends what was to be cancelled and is not being sent any more; answers those that a process may have in memory. Also lets events go
/// that waited for another of their uniqueness key.
pub async fn sweep(database: &Database, workflow: &str) -> Result<Vec<Place>, Error> {
    let rows = database.query(Purpose::Claim, include_str!("../../sql/relay/sweep.sql"), &[text(&workflow)]).await?;
    Ok(rows.iter().map(place).collect())
}

/// Ends events that this process had claimed under these epochs and has not sent; answers which are over.
pub async fn end_unsent(
    database: &Database,
    process: ProcessId,
    unsent: &[(EventRef, i64)],
) -> Result<Vec<Place>, Error> {
    let places = Places::of(unsent.iter().map(|(event, _)| event));
    let epochs: Vec<i64> = unsent.iter().map(|(_, epoch)| *epoch).collect();
    let bytes: Vec<i32> = unsent.iter().map(|(event, _)| i32::try_from(event.body_bytes).unwrap_or(i32::MAX)).collect();
    let parameters = [
        int8s(&places.cursors),
        int8s(&places.offsets),
        int4s(&places.indexes),
        int4s(&places.generations),
        dates(&places.days),
        int8s(&epochs),
        int4s(&bytes),
        uuid(&process),
    ];
    let rows = database.query(Purpose::Settle, include_str!("../../sql/relay/cancel_unsent.sql"), &parameters).await?;
    Ok(rows.iter().map(place).collect())
}
