//! Orders for the demo: produced to Kafka beside the relay, each acknowledged by the broker before it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

/// So many a second: the kills come while there is something to do.
const PER_SECOND: usize = 2_500;

pub fn create_topic(brokers: &str, name: &str, partitions: i32) -> anyhow::Result<String> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let results = runtime.block_on(admin.create_topics([&topic], &AdminOptions::new()));
    for result in results.context("creating the topic")? {
        result.map_err(|(topic, code)| anyhow::anyhow!("creating {topic}: {code}"))?;
    }
    Ok(name.to_owned())
}

struct Acknowledged(Arc<AtomicUsize>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): Self::DeliveryOpaque) {
        if result.is_ok() {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A thread that produces.
pub struct Orders {
    acknowledged: Arc<AtomicUsize>,
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

impl Orders {
    pub fn produce(brokers: &str, topic: &str, count: usize) -> Self {
        let (acknowledged, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, ended) = (Arc::clone(&acknowledged), Arc::clone(&done));
        let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let outcome = produce(&brokers, &topic, count, counter);
            ended.store(true, Ordering::Release);
            outcome
        });
        Self { acknowledged, done, thread }
    }

    pub fn produced(&self) -> usize {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub fn finish(self) -> anyhow::Result<usize> {
        self.thread.join().map_err(|_| anyhow::anyhow!("the producer panicked"))??;
        Ok(self.acknowledged.load(Ordering::Acquire))
    }
}

fn produce(brokers: &str, topic: &str, count: usize, counter: Arc<AtomicUsize>) -> anyhow::Result<()> {
    let producer: ThreadedProducer<Acknowledged> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .create_with_context(Acknowledged(counter))?;
    for id in 0..count {
        let customer = (id * 7919) % 1_000;
        let cents = (id * 37) % 100_000;
        let value = format!(
            r#"{{"id":{id},"customer":{customer},"amount":{}.{:02},"currency":"EUR","lines":[{{"sku":"A-{}","quantity":{}}}]}}"#,
            cents / 100,
            cents % 100,
            id % 321,
            1 + id % 4
        );
        let key = customer.to_string();
        let mut record = BaseRecord::to(topic).key(&key).payload(&value);
        while let Err((_, unsent)) = producer.send(record) {
            std::thread::sleep(Duration::from_millis(10));
            record = unsent;
        }
        if id % (PER_SECOND / 20) == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    producer.flush(Duration::from_secs(30)).context("the broker has all orders")
}
