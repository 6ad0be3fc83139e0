//! Enters: SIGHUP, and files that change. Leaves: a new configuration that passed every check, or what is wrong with it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::info;

use crate::config::{self, Config};

/// How often the files are looked at. A change counts once two looks agree: a file is not always written at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a configuration is loaded and checked.
pub type Loader = Box<dyn Fn() -> Result<Config, String> + Send>;

pub struct Reloads {
    path: PathBuf,
    load: Loader,
    hangups: mpsc::UnboundedReceiver<()>,
    ticks: tokio::time::Interval,
    /// What the files held when they were read last, and when they were looked at last.
    read: Option<config::Digest>,
    seen: Option<config::Digest>,
}

impl Reloads {
    pub fn new(path: PathBuf, load: Loader, hangups: mpsc::UnboundedReceiver<()>) -> Self {
        let read = config::digest(&path);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Self { path, load, hangups, ticks, read, seen: read }
    }

    /// Waits for a reason to read the configuration again, and reads it. Can be dropped while it waits.
    pub async fn next(&mut self) -> Result<Config, String> {
        loop {
            tokio::select! {
                Some(()) = self.hangups.recv() => {
                    info!("SIGHUP: reading the configuration");
                    break;
                }
                _ = self.ticks.tick() => {
                    let now = config::digest(&self.path);
                    let is_steady = now.is_some() && now == self.seen;
                    self.seen = now;
                    if is_steady && now != self.read {
                        info!("the configuration has changed: reading it");
                        break;
                    }
                }
            }
        }
        self.read = config::digest(&self.path);
        self.seen = self.read;
        (self.load)()
    }
}
