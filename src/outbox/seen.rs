//! Changes and keys that were seen: the memory behind `deduplication`, `unique` and the keys that callers give over HTTP. Written by the
//! statements that store events; here it is asked, and kept small.

use std::time::{Duration, Instant};

use tracing::warn;

use super::sql::{bytes, int8, text};
use super::unique::{self, Mark, Pruned};
use super::{Database, Error, Purpose, claim};
use crate::event::{Fingerprint, Place};
use crate::observe::chain;

const PRUNED_AT_ONCE: i64 = 5_000;
const PRUNE_EVERY: Duration = Duration::from_secs(30);
/// Between two full batches, so that others get their turn on the connection.
const BREATH: Duration = Duration::from_millis(100);
/// Uniqueness keys that something needed are looked at again after this: its dead letter may be gone.
const LOOK_AGAIN: Duration = Duration::from_secs(3_600);

/// Forgets what is past its time. Runs until it is dropped.
pub async fn prune_forever(database: Database) {
    let mut keys = Keys { mark: Mark::START, begun: Instant::now() };
    loop {
        let is_more = async {
            let most = PRUNED_AT_ONCE as usize;
            let (seen, audit) = (prune(&database).await?, prune_audit(&database).await?);
            Ok::<_, Error>(keys.prune(&database).await? || seen == most || audit == most)
        };
        let pause = match is_more.await {
            Ok(true) => BREATH,
            Ok(false) => PRUNE_EVERY,
            Err(error) => {
                warn!(error = %chain(&error), "forgetting old changes failed; trying again later");
                PRUNE_EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// An event that a caller gave over HTTP under a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    pub place: Place,
    /// Given again now, it makes no second event.
    pub is_remembered: bool,
}

/// The one that was given under this key, if it was not forgotten.
pub async fn given(database: &Database, workflow: &str, key: &Fingerprint) -> Result<Option<Given>, Error> {
    let key = key.as_slice();
    let parameters = [text(&workflow), bytes(&key)];
    let rows = database.query(Purpose::Admin, include_str!("../../sql/submit/known_key.sql"), &parameters).await?;
    Ok(rows.first().map(|row| Given { place: claim::place(row), is_remembered: row.get("is_remembered") }))
}

/// Where the look at uniqueness keys stands: it goes on as the time of others is up. What dead letters need is not passed through each time.
struct Keys {
    mark: Mark,
    begun: Instant,
}

impl Keys {
    /// Answers whether there may be more.
    async fn prune(&mut self, database: &Database) -> Result<bool, Error> {
        let Pruned { looked_at, mark, .. } = unique::prune(database, self.mark, PRUNED_AT_ONCE).await?;
        let is_more = looked_at == PRUNED_AT_ONCE;
        *self = match !is_more && self.begun.elapsed() > LOOK_AGAIN {
            true => Self { mark: Mark::START, begun: Instant::now() },
            false => Self { mark, ..*self },
        };
        Ok(is_more)
    }
}

/// Answers how many were forgotten.
pub async fn prune(database: &Database) -> Result<usize, Error> {
    let file = include_str!("../../sql/admin/prune_seen.sql");
    Ok(database.query(Purpose::Admin, file, &[int8(&PRUNED_AT_ONCE)]).await?.len())
}

/// Forgets who gave events over HTTP. Answers how many rows.
async fn prune_audit(database: &Database) -> Result<usize, Error> {
    let file = include_str!("../../sql/admin/prune_audit.sql");
    Ok(database.query(Purpose::Admin, file, &[int8(&PRUNED_AT_ONCE)]).await?.len())
}
