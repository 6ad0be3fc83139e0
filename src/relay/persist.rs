//! Writing outcomes down, with Postgres away too: work enters, and leaves done.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tracing::{error, warn};

use crate::observe::chain;
use crate::outbox::Error;

/// Tries until it works. An outcome that is not written down would be a repeat, so there is no giving up.
pub(super) async fn until_done<T, F: Future<Output = Result<T, Error>>>(what: &str, mut work: impl FnMut() -> F) -> T {
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        match work().await {
            Ok(value) => return value,
            Err(failure) if failure.may_pass() => warn!(error = %chain(&failure), "{what} failed; trying again"),
            Err(failure) => error!(error = %chain(&failure), "{what} failed; trying again"),
        }
        tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(2))).await;
    }
}
