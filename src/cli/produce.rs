//! `oncebox produce`, hidden: lines of standard input to a topic, for the demo's steps.

use std::io::BufRead;
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::Failure;

#[derive(Debug, clap::Args)]
pub struct Produce {
    #[arg(long)]
    brokers: String,
    #[arg(long)]
    topic: String,
    /// The records' key.
    #[arg(long)]
    key: Option<String>,
}

pub fn run(produce: &Produce) -> Result<(), Failure> {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", &produce.brokers).create()?;
    let mut count = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(&produce.topic).payload(&line);
        record.key = produce.key.as_deref();
        producer.send(record).map_err(|(error, _)| error).context("the record is taken")?;
        producer.flush(Duration::from_secs(10)).context("the broker has the record")?;
        count += 1;
    }
    println!("produced {count}");
    Ok(())
}
