//! Events that operators cancel while this process has them in memory: those that were not sent are dropped, and written down as
//! cancelled.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;

use super::Shared;
use super::dispatcher::Dispatcher;
use super::inbox::Message;
use super::persist::until_done;
use crate::event::Place;
use crate::observe::chain;
use crate::outbox::attempt::EventRef;
use crate::outbox::cancel;

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Ends what was to be cancelled and is not being sent; what may be in memory here is asked for.
pub(super) async fn sweep(shared: &Shared, workflow: &str, messages: &UnboundedSender<Message>) {
    match cancel::sweep(&shared.database, workflow).await {
        Ok(asked) if asked.is_empty() => {}
        Ok(asked) => drop(messages.send(Message::CancelAsked(asked))),
        Err(error) => warn!(workflow, error = %chain(&error), "ending what was cancelled failed; trying again"),
    }
}

impl Dispatcher {
    /// Looks for what was cancelled, also while nothing may be sent: it must not be sent when that is over.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep_at {
            return;
        }
        self.next_sweep_at = now + SWEEP_EVERY;
        let (shared, id, messages) = (self.shared.clone(), self.workflow.id.clone(), self.messages.clone());
        tokio::spawn(async move { sweep(&shared, &id, &messages).await });
    }

    /// Drops what was not sent of these. Until that is written down an event counts as claimed.
    pub(super) fn drop_cancelled(&mut self, asked: &[Place]) {
        let mut unsent: Vec<(EventRef, i64)> = Vec::new();
        for place in asked {
            let Some(window) = self.windows.get_mut(&place.cursor) else { continue };
            if let Some(event) = window.take_unsent(*place) {
                unsent.push((EventRef::from(&event), window.epoch));
            }
        }
        if unsent.is_empty() {
            return;
        }
        let (shared, messages) = (self.shared.clone(), self.messages.clone());
        tokio::spawn(async move {
            // Those that are missing from the answer are another process's by now, with the whole delivery.
            until_done("ending cancelled events", || cancel::end_unsent(&shared.database, shared.process, &unsent))
                .await;
            let over = unsent.iter().map(|(event, epoch)| (event.place, *epoch)).collect();
            let _ = messages.send(Message::Withdrawn(over));
        });
    }

    pub(super) fn withdrawn(&mut self, over: &[(Place, i64)]) {
        for (place, epoch) in over {
            if let Some(window) = self.windows.get_mut(&place.cursor).filter(|window| window.epoch == *epoch) {
                window.settle(*place);
            }
        }
    }
}
