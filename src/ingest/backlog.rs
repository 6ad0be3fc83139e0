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
use crate::event::CursorId;

const LOOK_LIMIT: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// A cursor that lags: where it stands, and where its log ended when that was asked.
#[derive(Debug, Clone)]
pub struct Unread {
    pub cursor: CursorId,
    pub topic: String,
    pub partition: i32,
    pub next_offset: i64,
    pub end: i64,
}

/// The first record that a cursor has not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstUnread {
    /// Where the cursor stood.
    from: i64,
    /// Milliseconds since 1970.
    timestamp: i64,
}

pub struct Backlog {
    reader: BaseConsumer,
    admin: AdminClient<DefaultClientContext>,
    /// What was seen last time; a cursor that stands still is not looked at again.
    seen: HashMap<CursorId, FirstUnread>,
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

    /// The time of the first record that each cursor has not passed, where it can be had. All are of one workflow.
    pub fn look(&mut self, unread: &[Unread]) -> HashMap<CursorId, i64> {
        let mut missing = TopicPartitionList::new();
        for one in unread {
            if self.seen.get(&one.cursor).is_none_or(|first| first.from != one.next_offset) {
                self.seen.remove(&one.cursor);
                let _ = missing.add_partition_offset(&one.topic, one.partition, Offset::Offset(one.next_offset));
            }
        }
        if missing.count() > 0 {
            if let Err(error) = self.read_first(&missing, unread) {
                debug!(%error, "the backlog's first records could not be read");
            }
            let _ = self.reader.unassign();
        }
        let timestamp = |one: &Unread| Some((one.cursor, self.seen.get(&one.cursor)?.timestamp));
        unread.iter().filter_map(timestamp).collect()
    }

    fn read_first(&mut self, partitions: &TopicPartitionList, unread: &[Unread]) -> Result<(), KafkaError> {
        self.reader.assign(partitions)?;
        let deadline = Instant::now() + LOOK_LIMIT;
        let mut wanted = partitions.count();
        while wanted > 0 && Instant::now() < deadline {
            let message = match self.reader.poll(Duration::from_millis(100)) {
                None => continue,
                Some(Ok(message)) => message,
                // One partition's trouble, an offset that is gone for one; the others can still be seen.
                Some(Err(error)) => {
                    debug!(%error, "the backlog's first record could not be read");
                    continue;
                }
            };
            let Some(timestamp) = message.timestamp().to_millis().filter(|millis| *millis >= 0) else { continue };
            let of = |one: &&Unread| one.topic == message.topic() && one.partition == message.partition();
            if let Some(one) = unread.iter().find(of)
                && !self.seen.contains_key(&one.cursor)
            {
                self.seen.insert(one.cursor, FirstUnread { from: one.next_offset, timestamp });
                wanted -= 1;
            }
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
