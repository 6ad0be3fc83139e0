//! What the direct path keeps in Postgres: a copy of the offset that is marked in Kafka, and which way a cursor is read.
//!
//! What must hold: all below the copy is delivered or stored. The copy is moved by the cursor's owner, or up to a mark in
//! Kafka that can be believed: one of the same topic and era, on a database that did not fail over since.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::{Client, Object};

use super::database::STATEMENT_LIMIT;
use super::sql::{Schema, int8, int8s, text, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, ProcessId};

/// A place without its cursor and generation: the record's offset, the event's index in it.
pub type Spot = (i64, i32);

/// An offset that Kafka holds for a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub cursor: CursorId,
    pub offset: i64,
    pub era: i64,
}

fn ids(cursors: &[CursorId]) -> Vec<i64> {
    cursors.iter().map(|cursor| cursor.0).collect()
}

/// Moves copies up to their marks.
pub async fn catch_up(database: &Database, marks: &[Mark]) -> Result<(), Error> {
    let cursors: Vec<i64> = marks.iter().map(|mark| mark.cursor.0).collect();
    let offsets: Vec<i64> = marks.iter().map(|mark| mark.offset).collect();
    let eras: Vec<i64> = marks.iter().map(|mark| mark.era).collect();
    let parameters = [int8s(&cursors), int8s(&offsets), int8s(&eras)];
    database.query(Purpose::Admin, include_str!("../../sql/direct/catch_up.sql"), &parameters).await?;
    Ok(())
}

/// Reads from the copies from now on, whatever Kafka has: the database failed over.
pub async fn distrust_marks(database: &Database, cursors: &[CursorId]) -> Result<(), Error> {
    let cursors = ids(cursors);
    let file = include_str!("../../sql/direct/distrust_marks.sql");
    database.query(Purpose::Admin, file, &[int8s(&cursors)]).await?;
    Ok(())
}

/// How far a cursor is delivered, as its owner knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub cursor: CursorId,
    pub epoch: i64,
    pub offset: i64,
}

/// Writes copies. Answers the cursors that are still this process's own, on a database that has kept all.
pub async fn copy(database: &Database, process: ProcessId, reached: &[Reached]) -> Result<HashSet<CursorId>, Error> {
    let cursors: Vec<i64> = reached.iter().map(|one| one.cursor.0).collect();
    let epochs: Vec<i64> = reached.iter().map(|one| one.epoch).collect();
    let offsets: Vec<i64> = reached.iter().map(|one| one.offset).collect();
    let parameters = [int8s(&cursors), int8s(&epochs), int8s(&offsets), uuid(&process)];
    let rows = database.query(Purpose::Append, include_str!("../../sql/direct/copy.sql"), &parameters).await?;
    Ok(rows.iter().map(|row| CursorId(row.get("id"))).collect())
}

/// Events ahead of the cursors that are stored already.
pub async fn spilled_ahead(
    database: &Database,
    cursors: &[CursorId],
) -> Result<HashMap<CursorId, HashSet<Spot>>, Error> {
    let cursors = ids(cursors);
    let file = include_str!("../../sql/direct/spilled_ahead.sql");
    let rows = database.query(Purpose::Admin, file, &[int8s(&cursors)]).await?;
    let mut spilled: HashMap<CursorId, HashSet<Spot>> = HashMap::new();
    for row in rows {
        let spots = spilled.entry(CursorId(row.get("cursor"))).or_default();
        spots.insert((row.get("record_offset"), row.get("event_index")));
    }
    Ok(spilled)
}

/// Has cursors read through the outbox from now on.
pub async fn leave(database: &Database, cursors: &[CursorId]) -> Result<(), Error> {
    let mut client = database.get(Purpose::Admin).await?;
    match tokio::time::timeout(STATEMENT_LIMIT, switch_back(&mut client, &database.schema, &ids(cursors))).await {
        Ok(switched) => switched,
        Err(_) => {
            drop(Object::take(client));
            Err(Error::TooSlow)
        }
    }
}

async fn switch_back(client: &mut Client, schema: &Schema, cursors: &[i64]) -> Result<(), Error> {
    let lock = include_str!("../../sql/direct/lock.sql");
    let leave = include_str!("../../sql/direct/leave.sql");
    let failed = |file| move |source| Error::statement(file, source);
    let transaction = client.transaction().await.map_err(failed(lock))?;
    transaction.query_typed(&schema.text(lock), &[int8s(&cursors)]).await.map_err(failed(lock))?;
    transaction.query_typed(&schema.text(leave), &[int8s(&cursors)]).await.map_err(failed(leave))?;
    transaction.commit().await.map_err(failed(leave))
}

/// Has a cursor read without the outbox from now on, or gets nearer to that: what it still has to deliver goes on in retry,
/// `at_once` of it in one transaction. Answers whether it is done.
pub async fn enter(database: &Database, cursor: CursorId, at_once: i64) -> Result<bool, Error> {
    let mut client = database.get(Purpose::Admin).await?;
    match tokio::time::timeout(STATEMENT_LIMIT, switch(&mut client, &database.schema, cursor, at_once)).await {
        Ok(switched) => switched,
        Err(_) => {
            drop(Object::take(client));
            Err(Error::TooSlow)
        }
    }
}

async fn switch(client: &mut Client, schema: &Schema, cursor: CursorId, at_once: i64) -> Result<bool, Error> {
    let seize = include_str!("../../sql/direct/seize.sql");
    let rescue = include_str!("../../sql/relay/rescue.sql");
    let enter = include_str!("../../sql/direct/enter.sql");
    let failed = |file| move |source| Error::statement(file, source);
    let transaction = client.transaction().await.map_err(failed(seize))?;
    let rows = transaction.query_typed(&schema.text(seize), &[int8(&cursor.0)]).await.map_err(failed(seize))?;
    let Some(row) = rows.first() else { return Ok(true) };
    let (workflow, epoch): (String, i64) = (row.get("workflow"), row.get("epoch"));
    let (settled_to, claimed_to): (i64, i64) = (row.get("settled_to"), row.get("claimed_to"));
    let parameters = [int8(&cursor.0), text(&workflow), int8(&settled_to), int8(&claimed_to), int8(&epoch)];
    transaction.query_typed(&schema.text(rescue), &parameters).await.map_err(failed(rescue))?;
    let parameters = [int8(&cursor.0), int8(&at_once)];
    let rows = transaction.query_typed(&schema.text(enter), &parameters).await.map_err(failed(enter))?;
    let is_last = rows.first().is_none_or(|row| row.get("is_last"));
    transaction.commit().await.map_err(failed(enter))?;
    Ok(is_last)
}

/// Forgets what nothing will read again. Answers how many.
pub async fn prune(database: &Database, at_once: i64) -> Result<usize, Error> {
    let file = include_str!("../../sql/direct/prune.sql");
    Ok(database.query(Purpose::Admin, file, &[int8(&at_once)]).await?.len())
}
