//! A hidden stand-in for Kafka where neither Maven nor a JVM can be had: librdkafka's own mock cluster, in a process.
//!
//! It keeps nothing on disk and knows no transactions: good for the demo, not for the tests that need a real broker.

use std::io::Write;

use anyhow::Context as _;
use rdkafka::mocking::MockCluster;

use crate::cli::Failure;

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Topics to create.
    #[arg(long, default_value = "demo-orders")]
    topic: Vec<String>,
    /// Their partitions.
    #[arg(long, default_value_t = 6)]
    partitions: i32,
}

/// Prints the address of its broker and serves until it is killed.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    let cluster = MockCluster::new(1).context("librdkafka's mock cluster")?;
    for topic in &flags.topic {
        cluster.create_topic(topic, flags.partitions, 1).with_context(|| format!("topic {topic}"))?;
    }
    println!("{}", cluster.bootstrap_servers());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
