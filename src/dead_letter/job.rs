//! Replays of many dead letters: asked for, looked at, paused, cancelled. Durable; `replayer` carries them out.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Error, Filter};
use crate::outbox::sql::{boolean, float8, int8, text, texts, timestamptz, uuid};
use crate::outbox::{Database, Purpose};

/// A replay of many, as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    /// running, paused, cancelled or completed.
    pub state: String,
    pub filter: Filter,
    /// At most so many a second; null: as fast as it goes.
    pub per_second: Option<f64>,
    /// Whether each gets another key.
    pub new_key: bool,
    /// Whether those of at-most-once workflows are among them.
    pub force: bool,
    pub who: String,
    /// How many there were when it was asked for.
    pub total: i64,
    pub replayed: i64,
    /// Those that could not be: the dead letter stays.
    pub skipped: i64,
    /// Why the last of those was skipped.
    pub problem: Option<String>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// What somebody wants replayed, and how.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// Under one id it is begun once, however often it is asked for.
    pub id: Uuid,
    pub filter: Filter,
    pub per_second: Option<f64>,
    pub new_key: bool,
    pub force: bool,
}

/// What an operator says about a replay that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Pause,
    Resume,
    Cancel,
}

impl Word {
    /// The state that it leads to, and those it may come from.
    fn change(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Pause => ("paused", &["running"]),
            Self::Resume => ("running", &["paused"]),
            Self::Cancel => ("cancelled", &["running", "paused"]),
        }
    }

    /// The state that it leads to.
    pub fn leads_to(self) -> &'static str {
        self.change().0
    }
}

/// How many there are.
pub async fn count(database: &Database, filter: &Filter) -> Result<i64, Error> {
    let parameters = [text(&filter.workflow), text(&filter.reason), timestamptz(&filter.from), timestamptz(&filter.to)];
    let rows = database.ask_slowly(include_str!("../../sql/dead_letter/count.sql"), &parameters).await?;
    Ok(rows.first().map_or(0, |row| row.get("letters")))
}

pub async fn create(database: &Database, order: &Order, who: &str) -> Result<(), Error> {
    let Order { id, filter, per_second, new_key, force } = order;
    let parameters = [
        uuid(id),
        text(&filter.workflow),
        text(&filter.reason),
        timestamptz(&filter.from),
        timestamptz(&filter.to),
        boolean(new_key),
        boolean(force),
        float8(per_second),
        text(&who),
    ];
    // It counts them: not on the connection that quick questions need.
    database.query(Purpose::Settle, include_str!("../../sql/dead_letter/job_create.sql"), &parameters).await?;
    Ok(())
}

/// Newest first, from behind `after`.
pub async fn list(database: &Database, after: Option<(Timestamp, Uuid)>, limit: i64) -> Result<Vec<Replay>, Error> {
    read(database, None, after, limit).await
}

pub async fn show(database: &Database, id: Uuid) -> Result<Option<Replay>, Error> {
    Ok(read(database, Some(id), None, 1).await?.into_iter().next())
}

async fn read(
    database: &Database,
    one: Option<Uuid>,
    after: Option<(Timestamp, Uuid)>,
    limit: i64,
) -> Result<Vec<Replay>, Error> {
    let (at, id): (Option<Timestamp>, Option<Uuid>) = after.unzip();
    let parameters = [uuid(&one), int8(&limit), timestamptz(&at), uuid(&id)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/dead_letter/job_list.sql"), &parameters).await?;
    Ok(rows.iter().map(replay).collect())
}

fn replay(row: &tokio_postgres::Row) -> Replay {
    Replay {
        id: row.get("id"),
        state: row.get("state"),
        filter: Filter {
            workflow: row.get("workflow"),
            reason: row.get("reason"),
            from: row.get("from_at"),
            to: row.get("to_at"),
        },
        per_second: row.get("per_second"),
        new_key: row.get("new_key"),
        force: row.get("force"),
        who: row.get("who"),
        total: row.get("total"),
        replayed: row.get("replayed"),
        skipped: row.get("skipped"),
        problem: row.get("problem"),
        created_at: row.get("created_at"),
        finished_at: row.get("finished_at"),
    }
}

/// Answers whether it changed anything.
pub async fn decide(database: &Database, id: Uuid, word: Word, who: &str) -> Result<bool, Error> {
    let (state, from) = word.change();
    let parameters = [uuid(&id), text(&state), texts(&from), text(&who)];
    let rows =
        database.query(Purpose::Admin, include_str!("../../sql/dead_letter/job_decide.sql"), &parameters).await?;
    Ok(!rows.is_empty())
}
