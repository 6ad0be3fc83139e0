//! The producer: records whose fate is written inside them, and a log of what the broker said to each.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use crate::evidence::{Log, Produced};

struct Context {
    log: Log,
}

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, n: Self::DeliveryOpaque) {
        let produced = match result {
            Ok(message) => Produced {
                n: *n,
                outcome: "ok".to_owned(),
                partition: Some(message.partition()),
                offset: Some(message.offset()),
            },
            // It may be in the topic all the same: the dump tells.
            Err(_) => Produced { n: *n, outcome: "unknown".to_owned(), partition: None, offset: None },
        };
        self.log.write(&produced);
    }
}

/// A running producer.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub struct Plan {
    pub topic: String,
    pub events: u64,
    /// Records per second.
    pub rate: u64,
    pub seed: u64,
}

impl Load {
    pub fn start(brokers: &str, log: &Path, plan: Plan) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let context = Context { log: Log::create(log)? };
        let producer: ThreadedProducer<Context> = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "20")
            .set("message.timeout.ms", "60000")
            .set("topic.metadata.refresh.interval.ms", "2000")
            .create_with_context(context)?;
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || produce(&producer, &plan, &stopping));
        Ok(Self { stop, thread: Some(thread) })
    }

    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn produce(producer: &ThreadedProducer<Context>, plan: &Plan, stopping: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(plan.seed);
    let began = std::time::Instant::now();
    for n in 0..plan.events {
        if stopping.load(Ordering::SeqCst) {
            break;
        }
        let due = Duration::from_micros(n * 1_000_000 / plan.rate.max(1));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let key = format!("k{}", random.random_range(0..500));
        let value = value(n, &key, &mut random);
        let mut record = BaseRecord::with_opaque_to(&plan.topic, Box::new(n)).key(&key);
        if let Some(value) = &value {
            record = record.payload(value);
        }
        while let Err((_, unsent)) = producer.send(record) {
            std::thread::sleep(Duration::from_millis(50));
            record = unsent;
        }
    }
    let _ = producer.flush(Duration::from_secs(90));
}

/// Mostly an event or a few; some filtered, some refused by the receiver, some unreadable, some tombstones.
fn value(n: u64, key: &str, random: &mut StdRng) -> Option<String> {
    if n % 97 == 5 {
        return None;
    }
    if n % 101 == 7 {
        return Some(format!("{{broken {n}"));
    }
    let pad: String = (0..random.random_range(10..300)).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect();
    let fan = match n % 20 {
        0 => 3,
        1 => 0,
        _ => 1,
    };
    let (keep, refuse) = (n % 13 != 4, n % 211 == 9);
    Some(format!(r#"{{"n":{n},"key":"{key}","fan":{fan},"keep":{keep},"refuse":{refuse},"pad":"{pad}"}}"#))
}
