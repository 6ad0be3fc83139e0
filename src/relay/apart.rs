//! What Postgres refuses to write down: enters what came together, leaves each by itself, beside the others and for as long as it takes. One
//! bad end holds up nobody else.

use std::pin::Pin;

use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tracing::error;

use super::persist::{until_done, until_done_or_refused};
use super::settler::{Delivered, Desk, Undelivered};
use crate::observe::chain;
use crate::outbox::Error;

impl Desk {
    /// Writes down what came together; nothing, and nothing is written, where Postgres refuses one of it. What is by itself already is tried
    /// until it works.
    pub(super) async fn together<T, F: Future<Output = Result<T, Error>>>(
        &self,
        what: &str,
        work: impl FnMut() -> F,
    ) -> Option<T> {
        if self.is_alone {
            return Some(until_done(what, work).await);
        }
        match until_done_or_refused(what, work).await {
            Ok(done) => Some(done),
            Err(refusal) => {
                error!(error = %chain(&refusal), "{what} failed; each is tried by itself");
                None
            }
        }
    }

    /// Has each of these deliveries written down by itself.
    pub(super) fn deliver_apart(&self, items: impl IntoIterator<Item = Delivered>, apart: &mut JoinSet<()>) {
        forget_done(apart);
        for item in items {
            let (only, queue) = unbounded_channel();
            let _ = only.send(item);
            apart.spawn(self.alone().complete(queue));
        }
    }

    /// Has each of these written down by itself. What has a lane is waited for, one after the other: stored before what comes before it in
    /// its lane, it would be sent before that.
    pub(super) async fn except_apart(&self, items: impl IntoIterator<Item = Undelivered>, apart: &mut JoinSet<()>) {
        forget_done(apart);
        for item in items {
            let keeps_order = item.lane().is_some();
            let done = self.alone().except_only(item);
            if keeps_order {
                done.await;
            } else {
                apart.spawn(done);
            }
        }
    }

    fn except_only(self, item: Undelivered) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (only, queue) = unbounded_channel();
        let _ = only.send(item);
        Box::pin(self.except(queue))
    }

    /// The same desk for one outcome.
    fn alone(&self) -> Self {
        let mut desk = self.clone();
        desk.is_alone = true;
        desk
    }
}

fn forget_done(apart: &mut JoinSet<()>) {
    while apart.try_join_next().is_some() {}
}
