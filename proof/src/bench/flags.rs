//! What is asked of a run, and what follows from that: which parts, how often, how long, how much.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// In the order in which they are measured.
pub const PARTS: [&str; 7] = ["throughput", "latency", "scale", "growth", "peers", "unique", "memory"];
const QUICK: [&str; 3] = ["throughput", "latency", "growth"];
/// Measured only when it is named: it needs what others made.
const PEERS: &str = "peers";

#[derive(Debug, Clone, Serialize, clap::Args)]
pub struct Flags {
    /// Three minutes rather than twenty: fewer parts and rounds, smaller tables.
    #[arg(long)]
    pub quick: bool,
    /// Only these parts. Their figures go to files of their own.
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    pub only: Vec<String>,
    /// Requests at the same time, of the relay and of the bare client.
    #[arg(long, default_value_t = 512)]
    pub concurrency: usize,
    /// Only these kinds of throughput.
    #[arg(long, value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Events in the topic; more where they run out before a window is over.
    #[arg(long)]
    pub events: Option<u64>,
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncebox")]
    pub binary: PathBuf,
    /// A relay of others to compare with, and its configuration.
    #[arg(long, default_value = "target/peers/connect")]
    pub peer: PathBuf,
    #[arg(long, default_value = "proof/peers/connect.yaml")]
    pub peer_config: PathBuf,
    /// Another: Kafka Connect with its sink, and their configurations.
    #[arg(long, default_value = "target/peers/kafka-connect")]
    pub kafka_connect: PathBuf,
    #[arg(long, default_value = "proof/peers/kafka-connect")]
    pub kafka_connect_config: PathBuf,
    /// Where Kafka's jars are.
    #[arg(long, default_value = "target/dev/kafka/lib")]
    pub jars: PathBuf,
    /// Where figures and plots go.
    #[arg(long, env = "BENCH_OUT", default_value = "target/bench-results")]
    pub results: PathBuf,
    /// Where servers and logs go.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
}

impl Flags {
    pub fn wants_part(&self, part: &str) -> bool {
        match (self.only.is_empty(), self.quick) {
            (false, _) => self.only.iter().any(|wanted| wanted == part),
            (true, true) => QUICK.contains(&part),
            (true, false) => part != PEERS,
        }
    }

    pub fn wants_kind(&self, kind: &str) -> bool {
        match self.kinds.is_empty() {
            true => !(self.quick && kind.ends_with("signed")),
            false => self.kinds.iter().any(|wanted| wanted == kind),
        }
    }

    /// Of what the limits are about.
    pub fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// Of all else.
    pub fn few_rounds(&self) -> usize {
        if self.quick { 2 } else { 3 }
    }

    pub fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 3 } else { 5 })
    }

    /// Events in the topic. Growth goes through three million of them, and not to the end; several processes send many while they
    /// still share the partitions out.
    pub fn topic_events(&self) -> u64 {
        let usual = match (self.quick, self.wants_part("growth") || self.wants_part("scale")) {
            (true, _) => 800_000,
            (false, true) => 3_400_000,
            (false, false) => 1_000_000,
        };
        self.events.unwrap_or(usual)
    }

    /// What is put behind the names of its files: nothing for a whole run, whose files nothing else overwrites.
    pub fn suffix(&self) -> String {
        let quick = self.quick.then_some("quick");
        let kinds = (!self.kinds.is_empty()).then_some("kinds");
        let parts = quick.into_iter().chain(self.only.iter().map(String::as_str)).chain(kinds);
        parts.map(|part| format!("-{part}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Asked {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags(arguments: &[&str]) -> Flags {
        Asked::try_parse_from(["bench"].iter().chain(arguments)).expect("known flags").flags
    }

    #[test]
    fn only_a_whole_run_has_the_plain_names() {
        assert_eq!(flags(&[]).suffix(), "");
        assert_eq!(flags(&["--quick"]).suffix(), "-quick");
        assert_eq!(flags(&["--only", "peers"]).suffix(), "-peers");
        assert_eq!(flags(&["--quick", "--only", "growth,memory"]).suffix(), "-quick-growth-memory");
        assert_eq!(flags(&["--kinds", "outbox"]).suffix(), "-kinds");
    }

    #[test]
    fn peers_are_measured_when_they_are_named() {
        assert!(PARTS.iter().all(|part| flags(&[]).wants_part(part) == (*part != PEERS)));
        assert!(flags(&["--only", "peers"]).wants_part("peers") && !flags(&["--only", "peers"]).wants_part("memory"));
        assert!(flags(&["--quick"]).wants_part("latency") && !flags(&["--quick"]).wants_part("scale"));
    }

    #[test]
    fn a_part_that_is_not_known_is_an_error() {
        assert!(Asked::try_parse_from(["bench", "--only", "trougput"]).is_err());
    }
}
