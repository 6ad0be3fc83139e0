//! The offsets that the direct path marks in Kafka: all below a mark is delivered or stored.
//!
//! A mark carries the id of its topic, and an era when it has one: a topic that was created again, a cursor that an
//! operator moved and a database that failed over each begin anew, and older marks are not believed.

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::native;

/// A mark as Kafka holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub offset: i64,
    pub topic_id: String,
    pub era: i64,
}

/// What goes with an offset: the topic's id, and the era when it is not the first.
fn written(topic_id: &str, era: i64) -> String {
    if era == 0 { topic_id.to_owned() } else { format!("{topic_id}/{era}") }
}

/// Nothing for a text that is no mark's: the outbox path and other tools write none.
fn read(offset: i64, text: &[u8]) -> Option<Mark> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
    let (topic_id, era) = match text.rsplit_once('/') {
        Some((topic_id, era)) => (topic_id, era.parse().ok()?),
        None => (text, 0),
    };
    (offset >= 0).then(|| Mark { offset, topic_id: topic_id.to_owned(), era })
}

/// Adds a mark to what is about to be committed.
pub fn add(list: &mut TopicPartitionList, topic: &str, partition: i32, (topic_id, era): (&str, i64), offset: i64) {
    let mut element = list.add_partition(topic, partition);
    if element.set_offset(Offset::Offset(offset)).is_ok() {
        element.set_metadata(written(topic_id, era));
    }
}

/// Asks for the marks of the consumer's group.
pub fn fetch<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: impl IntoIterator<Item = (String, i32)>,
    patience: Duration,
) -> Result<HashMap<(String, i32), Mark>, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition(&topic, partition);
    }
    let found = consumer.committed_offsets(list, patience)?;
    let marks = native::committed(&found).into_iter();
    Ok(marks.filter_map(|one| Some(((one.topic, one.partition), read(one.offset, &one.metadata)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written() {
        for (topic_id, era) in [("fBJ2s1v2S0yGcX0vYwY9Xg", 0), ("fBJ2s1v2S0yGcX0vYwY9Xg", 1_790_000_000_000)] {
            let mark = read(42, written(topic_id, era).as_bytes()).expect("a mark");
            assert_eq!(mark, Mark { offset: 42, topic_id: topic_id.to_owned(), era });
        }
        assert_eq!(written("abc", 0), "abc", "the first era's is the id alone");
    }

    #[test]
    fn what_others_commit_is_no_mark() {
        for (offset, text) in [(42, &b""[..]), (-1001, b"abc"), (42, b"abc/x"), (42, &[0xff, 0xfe])] {
            assert_eq!(read(offset, text), None);
        }
    }
}
