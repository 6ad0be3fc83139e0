//! What is really in Kafka at some offsets. Read as the relay reads: what an aborted transaction wrote is no record.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};

use super::Error;
use super::offsets::Offsets;
use super::outbox::Cursor;
use crate::config::Kafka;
use crate::ingest::{native, settings};

const ASK: Duration = Duration::from_secs(10);
/// Nothing came for so long: the broker is away.
const PATIENCE: Duration = Duration::from_secs(30);

const BRIDGED: i64 = 5_000;

/// What was asked for, sorted.
pub struct There {
    /// Offsets with a record.
    pub found: Offsets,
    /// Offsets that Kafka does not have any more.
    pub gone: Offsets,
}

pub async fn records(kafka: &Kafka, cursor: &Cursor, asked: &Offsets) -> Result<There, Error> {
    let mut client = settings::client(kafka);
    client
        .set("group.id", format!("{}.verify", kafka.group_prefix))
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "error");
    let (topic, id, partition) = (cursor.topic.clone(), cursor.topic_id.clone(), cursor.partition);
    let asked = asked.clone();
    let read = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = client.create()?;
        read(&consumer, &topic, &id, partition, &asked)
    });
    read.await.expect("reading does not panic")
}

fn read(consumer: &BaseConsumer, topic: &str, id: &str, partition: i32, asked: &Offsets) -> Result<There, Error> {
    let described = native::describe_topics(consumer.client(), &[topic.to_owned()], ASK)?;
    // Another topic of the same name tells nothing of this one.
    if described.get(topic).is_none_or(|now| now.id != id) {
        return Ok(There { found: Offsets::default(), gone: asked.clone() });
    }
    let (low, high) = consumer.fetch_watermarks(topic, partition, ASK)?;
    let gone = asked.without(&Offsets::from(low..high));
    let mut found = Vec::new();
    // Reading on over a few thousand records is quicker than beginning anew for each marker of a transaction.
    for range in asked.without(&gone).bridged(BRIDGED).ranges() {
        let mut at = TopicPartitionList::new();
        at.add_partition_offset(topic, partition, Offset::Offset(range.start))?;
        consumer.assign(&at)?;
        let mut last = Instant::now();
        loop {
            match consumer.poll(Duration::from_millis(500)) {
                Some(Ok(record)) => {
                    last = Instant::now();
                    if record.offset() >= range.end {
                        break;
                    }
                    found.push(record.offset()..record.offset() + 1);
                }
                // Nothing comes after what was asked for.
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(error)) => return Err(error.into()),
                None if last.elapsed() > PATIENCE => {
                    return Err(Error::Silent { topic: topic.to_owned(), partition, offset: range.start });
                }
                None => {}
            }
        }
    }
    Ok(There { found: Offsets::of(found).within(asked), gone })
}
