//! Makes dead letters of all that is left of a workflow that nobody runs.
//!
//! Each event is claimed first, as if it were to be sent, so that whoever should start to run the workflow meanwhile and
//! this do not both decide about one. What is interrupted is taken up by asking again.

use std::sync::Arc;
use std::time::Duration;

use crate::config::InDoubt;
use crate::event::{CursorId, Event, ProcessId, Reason};
use crate::outbox::attempt::{EventRef, Right};
use crate::outbox::claim::{self, Claim};
use crate::outbox::delivery::{self, Progress};
use crate::outbox::park::{self, Death, Parked};
use crate::outbox::{Database, Error, left};

const LEASE: Duration = Duration::from_secs(60);
const AT_ONCE: i64 = 500;
const MOST_BYTES: i64 = 64 << 20;

struct Parking<'a, F> {
    database: &'a Database,
    process: ProcessId,
    workflow: Arc<str>,
    parked: u64,
    tell: F,
}

/// Answers how many events it parked; `tell` hears of it on the way.
pub async fn park_all(database: &Database, workflow: &str, tell: impl FnMut(u64)) -> Result<u64, Error> {
    let process = ProcessId::new_v4();
    let mut parking = Parking { database, process, workflow: workflow.into(), parked: 0, tell };
    for cursor in left::cursors(database, workflow).await? {
        parking.waiting(cursor).await?;
    }
    left::make_due(database, workflow).await?;
    parking.retries().await?;
    Ok(parking.parked)
}

impl<F: FnMut(u64)> Parking<'_, F> {
    /// Events that were never sent. Those that a process had claimed when it ended are in retry after this.
    async fn waiting(&mut self, cursor: CursorId) -> Result<(), Error> {
        let held = (self.process, LEASE);
        let Some(taken) = delivery::take(self.database, &self.workflow, cursor, held, false).await? else {
            return Ok(());
        };
        let (epoch, mut claimed_to, mut limit) = (taken.epoch, taken.claimed_to, AT_ONCE);
        loop {
            match claim::waiting(self.database, (cursor, epoch), claimed_to, limit, MOST_BYTES).await? {
                Claim::Range { claimed_to: reached, events } => {
                    for event in &events {
                        self.park(event, Right::Range { epoch }, 0).await?;
                    }
                    (claimed_to, limit) = (reached, AT_ONCE);
                }
                Claim::TooNarrow => limit *= 2,
                Claim::Nothing | Claim::Astray => break,
            }
            let progress = Progress { cursor, epoch, settled_to: claimed_to, timeline: Arc::clone(&taken.timeline) };
            if delivery::extend(self.database, &self.workflow, (self.process, LEASE), &[progress]).await?.is_empty() {
                return Ok(());
            }
        }
        let progress = Progress { cursor, epoch, settled_to: claimed_to, timeline: taken.timeline };
        delivery::release(self.database, self.process, &progress).await
    }

    async fn retries(&mut self) -> Result<(), Error> {
        loop {
            let (database, policy) = (self.database, InDoubt::Redeliver);
            let due = claim::retries(database, &self.workflow, self.process, LEASE, AT_ONCE, policy, None).await?;
            if due.is_empty() {
                return Ok(());
            }
            for retry in due {
                // The claim counted a request that is not made.
                let sends = retry.tries.sends.saturating_sub(1);
                self.park(&retry.event, Right::Retry { fence: retry.fence }, sends).await?;
            }
        }
    }

    async fn park(&mut self, event: &Event, right: Right, sends: u32) -> Result<(), Error> {
        let (workflow, event) = (Arc::clone(&self.workflow), EventRef::from(event));
        let death = Death { event, workflow, right, sends, reason: Reason::Parked, blocks: false, attempt: None };
        if park::park(self.database, self.process, &death).await? == Parked::Written {
            self.parked += 1;
            (self.tell)(self.parked);
        }
        Ok(())
    }
}
