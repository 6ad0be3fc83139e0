//! Changes and uniqueness keys that were seen: the memory behind `deduplication` and `unique`. Written by the append itself; here it is
//! kept small.

use std::time::Duration;

use tracing::warn;

use super::sql::int8;
use super::{Database, Error, Purpose, unique};
use crate::observe::chain;

const PRUNED_AT_ONCE: i64 = 5_000;
const PRUNE_EVERY: Duration = Duration::from_secs(30);
/// Between two full batches, so that others get their turn on the connection.
const BREATH: Duration = Duration::from_millis(100);

/// Forgets what is past its time. Runs until it is dropped.
pub async fn prune_forever(database: Database) {
    loop {
        let pruned = async {
            let (seen, audit) = (prune(&database).await?, prune_audit(&database).await?);
            Ok::<_, Error>(seen.max(audit).max(unique::prune(&database, PRUNED_AT_ONCE).await?))
        };
        let pause = match pruned.await {
            Ok(forgotten) if forgotten == PRUNED_AT_ONCE as usize => BREATH,
            Ok(_) => PRUNE_EVERY,
            Err(error) => {
                warn!(error = %chain(&error), "forgetting old changes failed; trying again later");
                PRUNE_EVERY
            }
        };
        tokio::time::sleep(pause).await;
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
