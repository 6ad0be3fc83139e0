//! The topic: made, grown, described, read back.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::evidence::{Dumped, Log};
use crate::servers::Kafka;

const LIMIT: Duration = Duration::from_secs(20);

fn admin(brokers: &str) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", brokers).create()?)
}

pub async fn create(brokers: &str, name: &str, partitions: i32) -> anyhow::Result<()> {
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(LIMIT)).operation_timeout(Some(LIMIT));
    for result in admin(brokers)?.create_topics([&topic], &options).await? {
        result.map_err(|(name, code)| anyhow::anyhow!("topic {name}: {code}"))?;
    }
    Ok(())
}

pub async fn grow(brokers: &str, name: &str, partitions: i32) -> anyhow::Result<()> {
    let count = usize::try_from(partitions)?;
    let options = AdminOptions::new().request_timeout(Some(LIMIT)).operation_timeout(Some(LIMIT));
    for result in admin(brokers)?.create_partitions([&NewPartitions::new(name, count)], &options).await? {
        result.map_err(|(name, code)| anyhow::anyhow!("topic {name}: {code}"))?;
    }
    Ok(())
}

/// Where each partition ends.
pub fn ends(brokers: &str, name: &str) -> anyhow::Result<Vec<(i32, i64)>> {
    let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let metadata = client.fetch_metadata(Some(name), LIMIT)?;
    let topic = metadata.topics().first().context("the topic")?;
    let mut ends = Vec::new();
    for partition in topic.partitions() {
        ends.push((partition.id(), client.fetch_watermarks(name, partition.id(), LIMIT)?.1));
    }
    Ok(ends)
}

/// Reads the topic with Kafka's own console client and writes what it found as evidence.
pub fn dump(kafka: &Kafka, name: &str, folder: &Path) -> anyhow::Result<()> {
    let raw = folder.join("dump.txt");
    kafka.dump(name, &raw)?;
    let log = Log::create(&folder.join("dump.jsonl"))?;
    for line in std::fs::read_to_string(&raw)?.lines() {
        log.write(&parse(line).with_context(|| format!("a line of the dump: {line}"))?);
    }
    Ok(())
}

/// `CreateTime:1700000000000<US>Partition:3<US>Offset:42<US>value`, in whichever order the parts come.
fn parse(line: &str) -> Option<Dumped> {
    let mut dumped = Dumped { partition: -1, offset: -1, timestamp: -1, value: None };
    for part in line.split('\u{1f}') {
        if let Some(text) = part.strip_prefix("CreateTime:").or_else(|| part.strip_prefix("LogAppendTime:")) {
            dumped.timestamp = text.parse().ok()?;
        } else if let Some(text) = part.strip_prefix("Partition:") {
            dumped.partition = text.parse().ok()?;
        } else if let Some(text) = part.strip_prefix("Offset:") {
            dumped.offset = text.parse().ok()?;
        } else if part != "null" {
            dumped.value = Some(part.to_owned());
        }
    }
    (dumped.partition >= 0 && dumped.offset >= 0).then_some(dumped)
}
