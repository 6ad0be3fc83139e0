//! The same topic to the same receiver by somebody else's relay, at least once, beside ours exactly once: events per second, and
//! CPU for each. Ours counts with what Postgres spends on it.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Serialize;

use super::Flags;
use super::meter::{self, Window};
use super::stand::{Process, Stand};
use super::subject::{Subject, TOPIC};
use super::throughput::{self, WARM};

#[derive(Debug, Default, Serialize)]
pub struct Peers {
    pub ours: Vec<Window>,
    pub theirs: Vec<Window>,
}

impl Peers {
    /// Our events per CPU-second over theirs, the median of the rounds'.
    pub fn ratio(&self) -> f64 {
        let ours: Vec<f64> = self.ours.iter().map(|window| window.subject_cpu_us + window.postgres_cpu_us).collect();
        let theirs: Vec<f64> = self.theirs.iter().map(|window| window.subject_cpu_us).collect();
        throughput::ratio(&theirs, &ours)
    }
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Peers> {
    let mut all = Peers::default();
    if !flags.peer.exists() {
        println!("{} is not there, so there is nothing to compare with: see `make bench-peers`", flags.peer.display());
        return Ok(all);
    }
    for round in 0..flags.rounds() {
        let subject =
            Subject { concurrency: flags.concurrency, ..Subject::new(&format!("beside-peers-{round}"), true) };
        let ours = throughput::relay(stand, &subject, flags).await?;
        println!("round {round}  {}", throughput::line("outbox", &ours));
        let theirs = peer(stand, flags, round).await?;
        println!("round {round}  {}", throughput::line("peer, at least once", &theirs));
        all.ours.push(ours);
        all.theirs.push(theirs);
    }
    Ok(all)
}

async fn peer(stand: &Stand, flags: &Flags, round: usize) -> anyhow::Result<Window> {
    stand.settle().await?;
    let log = std::fs::File::create(stand.folder.join(format!("peer-{round}.log")))?;
    let child = Command::new(std::path::absolute(&flags.peer)?)
        .arg("-c")
        .arg(std::path::absolute(&flags.peer_config)?)
        .env("BROKERS", stand.brokers())
        .env("TOPIC", TOPIC)
        .env("GROUP", format!("peer-{round}"))
        .env("RECEIVER", stand.receiver_address())
        .env("CONCURRENCY", flags.concurrency.to_string())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("starting the peer")?;
    let process = Process(child);
    meter::measure(stand, &[process.pid()], WARM, flags.window()).await
}
