//! The benchmark: what a relay costs beside the bare work. Everything that is compared is measured in turn in the same run,
//! round after round, and compared within a round: a busy machine is busy for both.
//!
//! Files in reading order: `stand` (where), `subject` (what), `meter` (how), `bare` and `insert` (what it is compared with),
//! `throughput`, `latency`, `growth`, `scale`, `unique`, `peers` (what is asked), `report` and `plot` (what is said).

pub mod bare;
mod growth;
mod insert;
mod latency;
mod meter;
mod peers;
mod plot;
mod report;
mod scale;
mod stand;
mod subject;
mod throughput;
mod unique;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use stand::Stand;
use subject::{PARTITIONS, TOPIC};

#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// Three minutes rather than half an hour: fewer rounds, smaller tables.
    #[arg(long)]
    quick: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Requests at the same time, of the relay and of the bare client.
    #[arg(long, default_value_t = 512)]
    concurrency: usize,
    /// Only these kinds of throughput.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncebox")]
    binary: PathBuf,
    /// A relay of others to compare with, and its configuration.
    #[arg(long, default_value = "target/peers/connect")]
    peer: PathBuf,
    #[arg(long, default_value = "proof/peers/connect.yaml")]
    peer_config: PathBuf,
    /// Where Kafka's jars are.
    #[arg(long, default_value = "target/dev/kafka/lib")]
    jars: PathBuf,
    /// Where figures and plots go.
    #[arg(long, default_value = "target/bench-results")]
    results: PathBuf,
    /// Where servers and logs go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Flags {
    fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    fn wants(&self, kind: &str) -> bool {
        match self.kinds.is_empty() {
            true => !(self.quick && kind.ends_with("signed")),
            false => self.kinds.iter().any(|wanted| wanted == kind),
        }
    }

    fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 3 } else { 6 })
    }
}

pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let began = Instant::now();
    let stand = Stand::start(
        std::path::absolute(&flags.out)?,
        std::path::absolute(&flags.binary)?,
        &std::path::absolute(&flags.jars)?,
    )
    .await?;
    crate::topic::create(&stand.brokers(), TOPIC, PARTITIONS).await?;
    let events = if flags.quick { 400_000 } else { 1_000_000 };
    let brokers = stand.brokers();
    tokio::task::spawn_blocking(move || subject::fill(&brokers, TOPIC, 0..events)).await??;
    stand.order(&["migrate"], &stand.config("migrate", &[subject::Subject::new("none", true)])?)?;
    println!("{:>5}s  {events} events are in the topic", began.elapsed().as_secs());
    let mut results = report::Results::default();
    let wants = |part: &str| flags.only.is_empty() || flags.only.iter().any(|one| one == part);
    if wants("throughput") {
        results.throughput = throughput::run(&stand, flags).await?;
    }
    if wants("latency") {
        results.latency = latency::run(&stand, flags).await?;
    }
    if wants("scale") {
        results.scale = scale::run(&stand, flags).await?;
    }
    if wants("growth") {
        results.growth = growth::run(&stand, flags).await?;
    }
    if flags.only.iter().any(|one| one == "peers") {
        results.peers = peers::run(&stand, flags).await?;
    }
    if wants("unique") {
        results.unique = unique::run(&stand, flags).await?;
    }
    if wants("memory") {
        results.peak_rss_mib = scale::memory(&stand, flags).await?;
    }
    println!("{:>5}s  done", began.elapsed().as_secs());
    results.write(&flags.results)?;
    stand.clear();
    Ok(true)
}
