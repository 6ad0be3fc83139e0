//! The figures behind the gauges: what waits, how old it is, where the cursors stand. Read every few seconds by one task,
//! from counters and bounded look-ups, so that a scrape costs nothing and a long backlog costs no more than a short one.

use super::sql::text;
use super::{Database, Error, Purpose};
use crate::event::CursorId;

/// Where `read` stops counting: sql/observe/workflow_gauges.sql.
const MANY: i64 = 10_001;

/// Events that were put off or tried and are not done, by state, and keys that are blocked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct States {
    pub scheduled: i64,
    pub available: i64,
    pub active: i64,
    pub retryable: i64,
    pub pending: i64,
    /// Dead letters that keep a lane shut.
    pub blocked: i64,
}

impl States {
    /// Whether a count has stopped before its end.
    pub fn are_cut(&self) -> bool {
        let Self { scheduled, available, active, retryable, pending, blocked } = *self;
        [scheduled, available, active, retryable, pending, blocked].contains(&MANY)
    }

    /// All events, whatever their state.
    pub fn events(&self) -> i64 {
        self.scheduled + self.available + self.active + self.retryable + self.pending
    }
}

/// One workflow's figures, the same whichever process asks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Undelivered events, and the bytes of their bodies.
    pub waiting: i64,
    pub waiting_bytes: i64,
    pub completed: i64,
    pub cancelled: i64,
    pub discarded: i64,
    /// First attempts under way, in all processes, as of their last word.
    pub firsts: i64,
    /// Each counted up to `MANY`.
    pub states: States,
    /// Seconds since the oldest retry became due.
    pub retry_lag: Option<f64>,
    /// Seconds since the oldest retry's first attempt.
    pub retry_age: Option<f64>,
    /// Seconds since the oldest event that was not tried, or whose first attempt is under way.
    pub first_age: Option<f64>,
}

pub async fn read(database: &Database, workflow: &str) -> Result<Figures, Error> {
    let file = include_str!("../../sql/observe/workflow_gauges.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    let Some(row) = rows.first() else { return Ok(Figures::default()) };
    let file = include_str!("../../sql/observe/oldest_unsettled.sql");
    let oldest = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    Ok(Figures {
        waiting: row.get("waiting"),
        waiting_bytes: row.get("waiting_bytes"),
        completed: row.get("completed"),
        cancelled: row.get("cancelled"),
        discarded: row.get("discarded"),
        firsts: row.get("firsts"),
        states: States {
            scheduled: row.get("scheduled"),
            available: row.get("available"),
            active: row.get("active"),
            retryable: row.get("retryable"),
            pending: row.get("pending"),
            blocked: row.get("blocked"),
        },
        retry_lag: row.get("retry_lag"),
        retry_age: row.get("retry_age"),
        first_age: oldest.first().and_then(|row| row.get("age")),
    })
}

/// Counts to the end. Takes as long as there are rows: asked for seldom.
pub async fn count(database: &Database, workflow: &str) -> Result<States, Error> {
    let file = include_str!("../../sql/observe/count_states.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    let of =
        |state: &str| rows.iter().find(|row| row.get::<_, &str>("state") == state).map_or(0, |row| row.get("events"));
    Ok(States {
        scheduled: of("scheduled"),
        available: of("available"),
        active: of("active"),
        retryable: of("retryable"),
        pending: of("pending"),
        blocked: of("blocked"),
    })
}

/// Where one cursor stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorOffset {
    pub id: CursorId,
    pub owner_epoch: i64,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub next_offset: i64,
    /// Read without the outbox: the offset is a copy of what is marked in Kafka.
    pub direct: bool,
    pub mark_era: i64,
}

pub async fn offsets(database: &Database, workflow: &str, cluster: &str) -> Result<Vec<CursorOffset>, Error> {
    let file = include_str!("../../sql/observe/cursor_offsets.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow), text(&cluster)]).await?;
    Ok(rows
        .iter()
        .map(|row| CursorOffset {
            id: CursorId(row.get("id")),
            owner_epoch: row.get("owner_epoch"),
            topic: row.get("topic"),
            topic_id: row.get("topic_id"),
            partition: row.get("partition"),
            next_offset: row.get("next_offset"),
            direct: row.get("direct"),
            mark_era: row.get("mark_era"),
        })
        .collect())
}

pub async fn oldest_snapshot_seconds(database: &Database) -> Result<f64, Error> {
    let rows = database.query(Purpose::Admin, include_str!("../../sql/observe/oldest_snapshot.sql"), &[]).await?;
    Ok(rows.first().map_or(0.0, |row| row.get("seconds")))
}
