//! Writing outcomes down, with Postgres away too: work enters, and leaves done.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tracing::{error, warn};

use crate::observe::chain;
use crate::outbox::Error;

/// Tries until it works. An outcome that is not written down would be a repeat, so there is no giving up.
pub(super) async fn until_done<T, F: Future<Output = Result<T, Error>>>(what: &str, mut work: impl FnMut() -> F) -> T {
    let mut patience = Patience::new(what);
    loop {
        match work().await {
            Ok(value) => return value,
            Err(failure) => patience.wait(&failure).await,
        }
    }
}

/// The same for several outcomes. Where Postgres refuses one of them that is the answer: the others can be written down without it.
pub(super) async fn until_done_or_refused<T, F: Future<Output = Result<T, Error>>>(
    what: &str,
    mut work: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut patience = Patience::new(what);
    loop {
        match work().await {
            Ok(value) => return Ok(value),
            Err(failure) if failure.is_about_rows() => return Err(failure),
            Err(failure) => patience.wait(&failure).await,
        }
    }
}

/// Says that it failed, and waits ever longer.
struct Patience<'a> {
    what: &'a str,
    pauses: ExponentialBackoff,
}

impl<'a> Patience<'a> {
    fn new(what: &'a str) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .without_max_times()
            .with_jitter()
            .build();
        Self { what, pauses }
    }

    async fn wait(&mut self, failure: &Error) {
        let what = self.what;
        if failure.may_pass() {
            warn!(error = %chain(failure), "{what} failed; trying again");
        } else {
            error!(error = %chain(failure), "{what} failed; trying again");
        }
        tokio::time::sleep(self.pauses.next().unwrap_or(Duration::from_secs(2))).await;
    }
}
