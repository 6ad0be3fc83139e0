//! Cursors: which offset of which partition is next, and who may move it.
//!
//! The stored cursor is the truth. A process takes it on assignment and gets an epoch; every later write names both.

use super::database::Within;
use super::sql::{boolean, int4s, int8, int8s, text, uuid};
use super::{Database, Error, Purpose};
use crate::event::{CursorId, ProcessId};

/// A cursor that this process owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub id: CursorId,
    pub epoch: i64,
    pub next_offset: i64,
    pub generation: i32,
    /// How often it was taken at this offset without a clean release in between.
    pub taken_times: i32,
    /// The record that was being read alone when the last owner died.
    pub suspect_offset: Option<i64>,
    /// How often it was being read alone when the process died.
    pub suspect_times: i32,
    /// Which marks in Kafka are its own.
    pub mark_era: i64,
    /// Read without the outbox.
    pub direct: bool,
}

/// A stored cursor, as far as assignment needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub id: CursorId,
    pub topic_id: String,
    pub partition: i32,
    pub next_offset: i64,
    /// Read without the outbox so far.
    pub direct: bool,
    pub mark_era: i64,
    /// The database may have lost commits since the offset was written.
    pub failed_over: bool,
}

/// Where a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub id: CursorId,
    pub partition: i32,
    pub offset: i64,
}

/// One incarnation of a topic, as a workflow sees it.
#[derive(Debug, Clone, Copy)]
pub struct TopicName<'a> {
    pub workflow: &'a str,
    pub cluster: &'a str,
    pub topic: &'a str,
    pub topic_id: &'a str,
    /// Read without the outbox.
    pub direct: bool,
}

/// Stores where partitions start; a cursor that exists stays as it is.
pub async fn add(database: &Database, name: TopicName<'_>, starts: &[Start]) -> Result<(), Error> {
    add_within(Within::Alone(database, Purpose::Admin), name, starts).await
}

/// The same as a part of what is done in one transaction.
pub async fn add_within(within: Within<'_>, name: TopicName<'_>, starts: &[Start]) -> Result<(), Error> {
    let ids: Vec<i64> = starts.iter().map(|s| s.id.0).collect();
    let partitions: Vec<i32> = starts.iter().map(|s| s.partition).collect();
    let offsets: Vec<i64> = starts.iter().map(|s| s.offset).collect();
    let parameters = [
        int8s(&ids),
        text(&name.workflow),
        text(&name.cluster),
        text(&name.topic),
        text(&name.topic_id),
        int4s(&partitions),
        int8s(&offsets),
        boolean(&name.direct),
    ];
    within.query(include_str!("../../sql/ingest/add_cursors.sql"), &parameters).await?;
    Ok(())
}

pub async fn of_topic(database: &Database, workflow: &str, cluster: &str, topic: &str) -> Result<Vec<Known>, Error> {
    let parameters = [text(&workflow), text(&cluster), text(&topic)];
    let file = include_str!("../../sql/ingest/cursors_of_topic.sql");
    let rows = database.query(Purpose::Admin, file, &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| Known {
            id: CursorId(row.get("id")),
            topic_id: row.get("topic_id"),
            partition: row.get("partition"),
            next_offset: row.get("next_offset"),
            direct: row.get("direct"),
            mark_era: row.get("mark_era"),
            failed_over: row.get("failed_over"),
        })
        .collect())
}

/// Whether the workflow has ever read from this cluster.
pub async fn any(database: &Database, workflow: &str, cluster: &str) -> Result<bool, Error> {
    let file = include_str!("../../sql/ingest/workflow_has_cursors.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow), text(&cluster)]).await?;
    Ok(rows.first().is_some_and(|row| row.get("found")))
}

/// The clusters that the workflow has cursors of, by their names.
pub async fn clusters(database: &Database, workflow: &str) -> Result<Vec<String>, Error> {
    let file = include_str!("../../sql/admin/cursor_clusters.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    Ok(rows.iter().map(|row| row.get("cluster")).collect())
}

pub async fn take(database: &Database, ids: &[CursorId], process: ProcessId) -> Result<Vec<Taken>, Error> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let file = include_str!("../../sql/ingest/take_cursors.sql");
    let rows = database.query(Purpose::Admin, file, &[int8s(&ids), uuid(&process)]).await?;
    Ok(rows
        .iter()
        .map(|row| Taken {
            id: CursorId(row.get("id")),
            epoch: row.get("owner_epoch"),
            next_offset: row.get("next_offset"),
            generation: row.get("generation"),
            taken_times: row.get("taken_times"),
            suspect_offset: row.get("suspect_offset"),
            suspect_times: row.get("suspect_times"),
            mark_era: row.get("mark_era"),
            direct: row.get("direct"),
        })
        .collect())
}

pub async fn release(database: &Database, taken: &[(CursorId, i64)], process: ProcessId) -> Result<(), Error> {
    let ids: Vec<i64> = taken.iter().map(|(id, _)| id.0).collect();
    let epochs: Vec<i64> = taken.iter().map(|(_, epoch)| *epoch).collect();
    let file = include_str!("../../sql/ingest/release_cursors.sql");
    database.query(Purpose::Admin, file, &[int8s(&ids), int8s(&epochs), uuid(&process)]).await?;
    Ok(())
}

/// Notes the record that is about to be read alone.
pub async fn suspect(
    database: &Database,
    (id, epoch): (CursorId, i64),
    process: ProcessId,
    offset: i64,
) -> Result<(), Error> {
    let file = include_str!("../../sql/ingest/suspect.sql");
    let parameters = [int8(&id.0), uuid(&process), int8(&epoch), int8(&offset)];
    database.query(Purpose::Append, file, &parameters).await?;
    Ok(())
}

/// Ends the suspicion: the record did no harm.
pub async fn clear(database: &Database, (id, epoch): (CursorId, i64), process: ProcessId) -> Result<(), Error> {
    let file = include_str!("../../sql/ingest/clear_suspect.sql");
    let parameters = [int8(&id.0), uuid(&process), int8(&epoch)];
    database.query(Purpose::Append, file, &parameters).await?;
    Ok(())
}

/// A cursor as people look at it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = PartitionOffsets)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    #[serde(skip)]
    #[schema(ignore)]
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub start_offset: i64,
    pub next_offset: i64,
    pub claimed_to: i64,
    pub settled_to: i64,
    pub events: i64,
    pub completed: i64,
    pub cancelled: i64,
    pub discarded: i64,
    pub suppressed: i64,
}

pub async fn list(database: &Database, workflow: &str) -> Result<Vec<Listed>, Error> {
    let rows =
        database.query(Purpose::Admin, include_str!("../../sql/admin/list_cursors.sql"), &[text(&workflow)]).await?;
    Ok(rows
        .iter()
        .map(|row| Listed {
            id: row.get("id"),
            cluster: row.get("cluster"),
            topic: row.get("topic"),
            topic_id: row.get("topic_id"),
            partition: row.get("partition"),
            start_offset: row.get("start_offset"),
            next_offset: row.get("next_offset"),
            claimed_to: row.get("claimed_to"),
            settled_to: row.get("settled_to"),
            events: row.get("appended"),
            completed: row.get("completed"),
            cancelled: row.get("cancelled"),
            discarded: row.get("discarded"),
            suppressed: row.get("suppressed"),
        })
        .collect())
}
