//! One relay from its start to its end, measured once or more often. Each event that it sent must have come once.

use std::time::Duration;

use super::meter::{self, Run, Window};
use super::stand::{Process, Stand};
use super::subject::Subject;

pub struct Life<'a> {
    stand: &'a Stand,
    relay: Process,
    supply: u64,
}

impl<'a> Life<'a> {
    /// Of one workflow, from the beginning of the topic. What was written before is on the disk.
    pub async fn begin(stand: &'a Stand, subject: &Subject) -> anyhow::Result<Self> {
        stand.settle().await?;
        let config = stand.config(&subject.id, std::slice::from_ref(subject))?;
        Ok(Self::of(stand, stand.relay(&subject.id, &config)?, stand.supply()))
    }

    /// Of a relay that was started otherwise, with so many events to send at most.
    pub fn of(stand: &'a Stand, relay: Process, supply: u64) -> Self {
        Self { stand, relay, supply }
    }

    pub async fn window(&self, warm: u64, length: Duration) -> anyhow::Result<Window> {
        let run = Run { processes: &[self.relay.pid()], warm, supply: Some(self.supply) };
        meter::measure(self.stand, &run, length).await
    }

    /// Events that it surely has yet to send.
    pub async fn left(&self) -> anyhow::Result<u64> {
        Ok(self.supply.saturating_sub(self.stand.seen().await?.requests))
    }

    /// Kills it, and looks at what came.
    pub async fn end(self) -> anyhow::Result<()> {
        let Self { stand, relay, .. } = self;
        drop(relay);
        came_once(stand).await
    }
}

/// Since the receiver was told to forget.
pub async fn came_once(stand: &Stand) -> anyhow::Result<()> {
    let seen = stand.seen_at_rest().await?;
    anyhow::ensure!(seen.requests == seen.distinct, "{} events came in {} requests", seen.distinct, seen.requests);
    Ok(())
}
