//! The key and the effect in one transaction of PostgreSQL.
//!
//! Enters: an [`Event`] and an effect. Leaves: what to answer. Must hold: the key is inserted before anything else, and 2xx
//! is answered only when key and effect are committed, by this copy or an earlier one.

use std::time::Duration;

use http::StatusCode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::event::Event;

/// The SQL of the table of keys.
pub const TABLE: &str = "
    create table if not exists processed_events (
        key text primary key,
        digest text not null,
        source text,
        fence bigint,
        received_at timestamptz not null default now());
    create index if not exists processed_events_age on processed_events (received_at);
";
const INSERT_KEY: &str = "
    insert into processed_events (key, digest, source, fence) values ($1, $2, $3, $4)
    on conflict (key) do nothing
";
const KNOWN: &str = "select digest, fence from processed_events where key = $1";
const PRUNE: &str = "
    delete from processed_events
     where key in (select key from processed_events where received_at < now() - make_interval(secs => $1)
                    order by received_at limit $2)
";
// For this transaction alone: another one, begun after a rollback, does not have the key.
const MARK: &str = "select set_config('lock_timeout', $1, true), set_config('oncebox.key', $2, true)";
const IS_MARKED: &str = "select current_setting('oncebox.key', true) is not distinct from $1";

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What became of a key. Only after `Fresh` have the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The key is new.
    Fresh,
    /// The key is known.
    Repeat,
    /// The key is known with other bytes: keep the first.
    Conflict,
    /// The key is known from a copy with a higher fence.
    Stale,
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("another transaction holds the key")]
    InProgress(#[source] BoxError),
    /// The commit failed, perhaps only its answer: the event is processed, or it is not.
    #[error("committing")]
    OutcomeUnknown(#[source] BoxError),
    #[error("having the effect")]
    NotProcessed(#[source] BoxError),
    /// Answered 200.
    #[error("the key {key} came with another body, of digest {digest}; the first is kept")]
    OtherBody { key: String, digest: String },
    /// Answered 200.
    #[error("the key {key} came with fence {fence}, and was processed with a higher one")]
    LowerFence { key: String, fence: i64 },
}

/// What to tell the sender. The cause is whatever went wrong, or was out of the ordinary, for the log.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub text: &'static str,
    pub cause: Option<Trouble>,
}

impl Answer {
    fn of(event: &Event, applied: Applied) -> Self {
        let ok = |text| Self { status: StatusCode::OK, text, cause: None };
        match applied {
            Applied::Fresh => ok("processed\n"),
            Applied::Repeat => ok("seen before\n"),
            Applied::Conflict => Trouble::OtherBody { key: event.key.clone(), digest: event.digest.clone() }.into(),
            Applied::Stale => {
                let fence = event.fence.expect("it was compared");
                Trouble::LowerFence { key: event.key.clone(), fence }.into()
            }
        }
    }
}

impl From<Trouble> for Answer {
    fn from(cause: Trouble) -> Self {
        let (status, text) = match cause {
            Trouble::InProgress(_) => (StatusCode::CONFLICT, "this key is being processed\n"),
            Trouble::OutcomeUnknown(_) => (StatusCode::INTERNAL_SERVER_ERROR, "perhaps processed\n"),
            Trouble::NotProcessed(_) => (StatusCode::SERVICE_UNAVAILABLE, "not processed\n"),
            // The event is processed, if not by this copy, so that the sender need not come again.
            Trouble::OtherBody { .. } => (StatusCode::OK, "seen before with other bytes; the first are kept\n"),
            Trouble::LowerFence { .. } => (StatusCode::OK, "seen before; a newer attempt was processed\n"),
        };
        Self { status, text, cause: Some(cause) }
    }
}

impl From<BoxError> for Trouble {
    fn from(error: BoxError) -> Self {
        Self::NotProcessed(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::NotProcessed(error.into())
    }
}

/// The error of inserting a key: an effect that waits too long is no copy under way.
fn held(error: tokio_postgres::Error) -> Trouble {
    match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => Trouble::InProgress(error.into()),
        _ => error.into(),
    }
}

/// Inserts the key in the caller's transaction, and commits nothing. A concurrent copy waits here for the transaction that
/// holds the key, at most for `lock_timeout`.
pub async fn apply_once(transaction: &Transaction<'_>, event: &Event) -> Result<Applied, tokio_postgres::Error> {
    let Event { key, digest, source, fence, .. } = event;
    if transaction.execute(INSERT_KEY, &[key, digest, source, fence]).await? == 1 {
        return Ok(Applied::Fresh);
    }
    let Some(known) = transaction.query_opt(KNOWN, &[key]).await? else {
        // Pruned since the insert: it was processed, with bytes that nobody knows any more.
        return Ok(Applied::Repeat);
    };
    let (first, known_fence): (String, Option<i64>) = (known.get(0), known.get(1));
    if first != *digest {
        return Ok(Applied::Conflict);
    }
    let is_older = fence.zip(known_fence).is_some_and(|(given, known)| given < known);
    Ok(if is_older { Applied::Stale } else { Applied::Repeat })
}

/// Forgets the oldest keys, at most so many, in the caller's transaction if there is one. Returns how many they were.
pub async fn prune(
    client: &impl GenericClient,
    older_than: Duration,
    at_most: i64,
) -> Result<u64, tokio_postgres::Error> {
    client.execute(PRUNE, &[&older_than.as_secs_f64(), &at_most]).await
}

/// For `endpoint.lookup`. Asks the unique index, which also knows the keys of transactions under way.
pub async fn lookup(client: &mut Client, key: &str) -> Answer {
    match is_processed(client, key).await {
        Ok(true) => Answer { status: StatusCode::OK, text: "processed\n", cause: None },
        Ok(false) => Answer { status: StatusCode::NOT_FOUND, text: "not processed\n", cause: None },
        Err(trouble) => trouble.into(),
    }
}

async fn is_processed(client: &mut Client, key: &str) -> Result<bool, Trouble> {
    let transaction = begin(client, key, Duration::from_millis(100)).await?;
    let inserted = transaction.execute(INSERT_KEY, &[&key, &"", &None::<String>, &None::<i64>]).await.map_err(held)?;
    transaction.rollback().await?;
    Ok(inserted == 0)
}

/// Has effects once.
#[derive(Debug, Clone, Copy)]
pub struct Once {
    pub lock_timeout: Duration,
}

impl Default for Once {
    fn default() -> Self {
        Self { lock_timeout: Duration::from_secs(2) }
    }
}

impl Once {
    /// The effect runs at most once per key that is committed, in the transaction of the key.
    pub async fn process<Effect>(&self, client: &mut Client, event: &Event, effect: Effect) -> Answer
    where
        Effect: AsyncFnOnce(&Transaction<'_>) -> Result<(), BoxError>,
    {
        match self.try_to_process(client, event, effect).await {
            Ok(applied) => Answer::of(event, applied),
            Err(trouble) => trouble.into(),
        }
    }

    async fn try_to_process<Effect>(
        &self,
        client: &mut Client,
        event: &Event,
        effect: Effect,
    ) -> Result<Applied, Trouble>
    where
        Effect: AsyncFnOnce(&Transaction<'_>) -> Result<(), BoxError>,
    {
        // What is not committed is rolled back when it is dropped.
        let transaction = begin(client, &event.key, self.lock_timeout).await?;
        let applied = apply_once(&transaction, event).await.map_err(held)?;
        if applied == Applied::Fresh {
            effect(&transaction).await?;
            // Postgres answers the commit of a failed transaction without an error, and rolls back. In one this fails. One
            // that works may have been begun after the transaction of the key was rolled back.
            if !transaction.query_one(IS_MARKED, &[&event.key]).await?.try_get::<_, bool>(0)? {
                let text = "the effect ended the transaction, and did not say so";
                return Err(Trouble::NotProcessed(text.into()));
            }
            transaction.commit().await.map_err(|error| Trouble::OutcomeUnknown(error.into()))?;
        }
        Ok(applied)
    }
}

async fn begin<'a>(
    client: &'a mut Client,
    key: &str,
    lock_timeout: Duration,
) -> Result<Transaction<'a>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute(MARK, &[&lock_timeout.as_millis().to_string(), &key]).await?;
    Ok(transaction)
}
