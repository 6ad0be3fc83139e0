//! Changes and uniqueness keys that were seen: the memory behind `deduplication` and `unique`. Written by the append itself; here it is
//! kept small.

use std::time::{Duration, Instant};

use tracing::warn;

use super::sql::int8;
use super::unique::{self, Mark, Pruned};
use super::{Database, Error, Purpose};
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
