//! What is measured: a workflow of some kind, and the events that it gets.

use std::time::{Duration, SystemTime};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

pub const TOPIC: &str = "bench.events";
pub const PARTITIONS: i32 = 12;
/// Where a workflow's tables are, unless it has some of its own.
pub const SCHEMA: &str = "oncebox";

/// One workflow.
#[derive(Debug, Clone)]
pub struct Subject {
    pub id: String,
    pub topic: String,
    pub schema: String,
    pub is_outbox: bool,
    pub reshapes: bool,
    pub signs: bool,
    pub concurrency: usize,
    /// Whether it begins with what is in the topic, or with what comes.
    pub from_earliest: bool,
    /// More of `delivery`.
    pub more: &'static str,
}

/// Seven fields of the event.
const RESHAPE: &str = "{orderId: .after.id, n: .after.n, us: .after.us, customer: .after.customer.name, \
                       total: .after.total, currency: .after.currency, status: .after.status}";

impl Subject {
    pub fn new(id: &str, is_outbox: bool) -> Self {
        Self {
            id: id.to_owned(),
            topic: TOPIC.to_owned(),
            schema: SCHEMA.to_owned(),
            is_outbox,
            reshapes: false,
            signs: false,
            concurrency: 64,
            from_earliest: true,
            more: "",
        }
    }

    pub fn yaml(&self, receiver: &str) -> String {
        let transform = if self.reshapes { format!("    transform: '{RESHAPE}'\n") } else { String::new() };
        let signing = if self.signs { ", signing: {secrets: [\"${BENCH_SECRET}\"]}" } else { "" };
        let (guarantee, mechanism) = match self.is_outbox {
            true => ("exactly-once", "transactional-outbox"),
            false => ("idempotent-keys", "generated-keys"),
        };
        format!(
            "  - id: {id}\n    source: {{topics: [{topic}], startFrom: {from}}}\n{transform}    eventType: OrderChanged\n\
             \x20   endpoint: {{url: \"http://{receiver}/events\"{signing}}}\n\
             \x20   delivery: {{guarantee: {guarantee}, mechanism: {mechanism}, concurrency: {concurrency}{more}}}\n",
            id = self.id,
            topic = self.topic,
            from = if self.from_earliest { "earliest" } else { "latest" },
            concurrency = self.concurrency,
            more = self.more,
        )
    }
}

/// A change as Debezium writes it, of about 500 bytes. Whoever receives it finds its number and when it was made.
pub fn event(n: u64, us: u128) -> String {
    let ms = us / 1000;
    format!(
        "{{\"before\":null,\"after\":{{\"n\":{n},\"us\":{us},\"id\":{id},\"customer\":{{\"name\":\"Grace Hopper\",\"city\":\"Arlington\"}},\
         \"status\":\"placed\",\"total\":\"{total}.90\",\"currency\":\"EUR\",\"note\":\"leave it with the neighbour on the second floor, please, and ring twice\"}},\
         \"source\":{{\"version\":\"3.0.0.Final\",\"connector\":\"postgresql\",\"name\":\"sales\",\"ts_ms\":{ms},\"snapshot\":\"false\",\
         \"db\":\"sales\",\"schema\":\"public\",\"table\":\"orders\",\"txId\":{id},\"lsn\":{lsn}}},\"op\":\"c\",\"ts_ms\":{ms}}}",
        id = 1_000_000 + n,
        total = n % 1000,
        lsn = 24_023_128 + n * 80,
    )
}

pub fn now_us() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros()
}

pub fn producer(brokers: &str, linger: &str) -> anyhow::Result<ThreadedProducer<DefaultProducerContext>> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("linger.ms", linger)
        // Records without a key go to one partition after the other, a batch at a time.
        .set("sticky.partitioning.linger.ms", "2")
        .set("queue.buffering.max.messages", "1000000")
        .create()?)
}

/// Fills a topic as fast as it goes.
pub fn fill(brokers: &str, topic: &str, events: std::ops::Range<u64>) -> anyhow::Result<()> {
    let producer = producer(brokers, "20")?;
    for n in events {
        send(&producer, topic, n, Some(&n.to_string()));
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(())
}

/// Sends one event, waiting for room.
pub fn send(producer: &ThreadedProducer<DefaultProducerContext>, topic: &str, n: u64, key: Option<&str>) {
    let value = event(n, now_us());
    let mut record: BaseRecord<'_, str, String> = BaseRecord::to(topic).payload(&value);
    record.key = key;
    while let Err((_, unsent)) = producer.send(record) {
        std::thread::sleep(Duration::from_millis(5));
        record = unsent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_json_of_about_500_bytes() {
        let text = event(123_456, 1_700_000_000_000_000);
        assert!((480..=540).contains(&text.len()), "{} bytes", text.len());
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
