//! How old the records are that no cursor has passed yet, and how long Kafka keeps records at all.
//!
//! A reader of its own looks at one record per partition and throws it away: no group, no offset, no cursor is touched.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use tracing::debug;

use super::settings;
use crate::config::Kafka;

const LOOK_LIMIT: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// A topic's name and a partition.
pub type TopicPartition = (String, i32);

/// The first record that a cursor has not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstUnread {
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

pub struct Backlog {
    reader: BaseConsumer,
    admin: AdminClient<DefaultClientContext>,
    /// What was seen last time; a cursor that stands still is not looked at again.
    seen: HashMap<TopicPartition, FirstUnread>,
    kept: HashMap<String, (Instant, Option<Duration>)>,
}

impl Backlog {
    pub fn new(kafka: &Kafka) -> Result<Self, KafkaError> {
        let mut config = settings::client(kafka);
        let reader = config
            .clone()
            // librdkafka asks for a group before it lets anyone read; this one is never joined.
            .set("group.id", format!("{}.watch", kafka.group_prefix))
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.message.max.bytes", "65536")
            .set("queued.max.messages.kbytes", "1024")
            .set("fetch.wait.max.ms", "100")
            .create()?;
        config.remove("isolation.level");
        Ok(Self { reader, admin: config.create()?, seen: HashMap::new(), kept: HashMap::new() })
    }

    /// The first record at or after each offset, where there is one.
    pub fn look(&mut self, unread: &HashMap<TopicPartition, i64>) -> &HashMap<TopicPartition, FirstUnread> {
        self.seen.retain(|key, first| unread.get(key).is_some_and(|offset| *offset <= first.offset));
        let mut missing = TopicPartitionList::new();
        for (key, offset) in unread.iter().filter(|(key, _)| !self.seen.contains_key(*key)) {
            let _ = missing.add_partition_offset(&key.0, key.1, Offset::Offset(*offset));
        }
        if missing.count() > 0 {
            if let Err(error) = self.read_first(&missing) {
                debug!(%error, "the backlog's first records could not be read");
            }
            let _ = self.reader.unassign();
        }
        &self.seen
    }

    fn read_first(&mut self, partitions: &TopicPartitionList) -> Result<(), KafkaError> {
        self.reader.assign(partitions)?;
        let (deadline, wanted) = (Instant::now() + LOOK_LIMIT, self.seen.len() + partitions.count());
        while self.seen.len() < wanted && Instant::now() < deadline {
            let Some(message) = self.reader.poll(Duration::from_millis(100)) else { continue };
            let message = message?;
            let Some(timestamp) = message.timestamp().to_millis().filter(|millis| *millis >= 0) else { continue };
            let key = (message.topic().to_owned(), message.partition());
            self.seen.entry(key).or_insert(FirstUnread { offset: message.offset(), timestamp });
        }
        Ok(())
    }

    /// How long a topic keeps records; nothing when for ever, or when it cannot be asked.
    pub fn kept(&mut self, topic: &str, runtime: &tokio::runtime::Handle) -> Option<Duration> {
        if let Some((asked, kept)) = self.kept.get(topic)
            && asked.elapsed() < ASK_AGAIN
        {
            return *kept;
        }
        let options = AdminOptions::new().request_timeout(Some(LOOK_LIMIT));
        let resource = ResourceSpecifier::Topic(topic);
        let answer = runtime.block_on(self.admin.describe_configs(&[resource], &options)).ok();
        let described = answer.and_then(|mut resources| resources.pop()).and_then(Result::ok);
        let value = described.and_then(|resource| resource.get("retention.ms").and_then(|entry| entry.value.clone()));
        let kept = value.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        self.kept.insert(topic.to_owned(), (Instant::now(), kept));
        kept
    }
}
