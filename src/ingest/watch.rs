//! Topics that change underneath: every few seconds the ids of all topics in use are compared with those the cursors
//! were taken under, and the logs' ends with the stored offsets.
//!
//! librdkafka does not notice that a topic was deleted and created again when the new log is longer than the old.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use tracing::{debug, warn};

use super::native;
use crate::config::Kafka;
use crate::event::CursorId;
use crate::observe::Metrics;
use crate::outbox::Database;
use crate::outbox::append::Holding;
use crate::outbox::gauges::{self, CursorOffset};
use crate::transform::Origin;

const EVERY: Duration = Duration::from_secs(5);
const ASK_KAFKA: Duration = Duration::from_secs(3);

/// The topics that this process reads, by workflow, with the id each was taken under.
#[derive(Debug, Default)]
pub struct Watched {
    topics: Mutex<HashMap<WorkflowTopic, HeldTopic>>,
    changed: Mutex<HashSet<Arc<str>>>,
    holdings: Mutex<HashMap<CursorId, Weak<Holding>>>,
}

/// A workflow's id and a topic's name.
type WorkflowTopic = (Arc<str>, Arc<str>);
/// A topic's id, and the partitions held of it.
type HeldTopic = (Arc<str>, HashSet<i32>);

impl Watched {
    pub fn hold(&self, workflow: &Arc<str>, holding: &Arc<Holding>) {
        let origin = &holding.origin;
        let mut holdings = self.holdings.lock().expect("no holder of this lock panics");
        holdings.retain(|_, known| known.strong_count() > 0);
        holdings.insert(holding.cursor, Arc::downgrade(holding));
        drop(holdings);
        let mut topics = self.topics.lock().expect("no holder of this lock panics");
        let key = (Arc::clone(workflow), Arc::clone(&origin.topic));
        let entry = topics.entry(key).or_insert_with(|| (Arc::clone(&origin.topic_id), HashSet::new()));
        entry.0 = Arc::clone(&origin.topic_id);
        entry.1.insert(origin.partition);
    }

    pub fn let_go(&self, workflow: &Arc<str>, origin: &Origin) {
        let mut topics = self.topics.lock().expect("no holder of this lock panics");
        let key = (Arc::clone(workflow), Arc::clone(&origin.topic));
        if let Some(entry) = topics.get_mut(&key) {
            entry.1.remove(&origin.partition);
            if entry.1.is_empty() {
                topics.remove(&key);
            }
        }
    }

    /// Whether a topic of the workflow is another than it was, since this was last asked.
    pub fn take_changed(&self, workflow: &Arc<str>) -> bool {
        self.changed.lock().expect("no holder of this lock panics").remove(workflow)
    }

    fn compare(&self, described: &HashMap<String, native::Topic>) {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        for ((workflow, topic), (id, _)) in topics.iter() {
            if described.get(&**topic).is_some_and(|now| now.id != **id) {
                warn!(workflow = %workflow, topic = %topic, "the topic was deleted and created again");
                self.changed.lock().expect("no holder of this lock panics").insert(Arc::clone(workflow));
            }
        }
    }

    /// A cursor under another epoch was moved by an operator, or taken by another process: what is read is not ours.
    fn compare_epochs(&self, cursors: &[CursorOffset]) {
        let holdings = self.holdings.lock().expect("no holder of this lock panics");
        for cursor in cursors {
            let holding = holdings.get(&cursor.id).and_then(Weak::upgrade);
            if let Some(holding) = holding.filter(|holding| holding.epoch < cursor.owner_epoch) {
                holding.lose();
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        let names: HashSet<String> = topics.keys().map(|(_, topic)| topic.to_string()).collect();
        names.into_iter().collect()
    }
}

pub struct Watch {
    pub kafka: Arc<Kafka>,
    pub cluster: Arc<str>,
    pub watched: Arc<Watched>,
    pub database: Database,
    pub metrics: Arc<Metrics>,
    pub workflows: Vec<Arc<str>>,
    pub runtime: tokio::runtime::Handle,
    pub stopping: tokio::sync::watch::Receiver<bool>,
}

impl Watch {
    /// Runs on a thread of its own until the process stops.
    pub fn run(self) {
        let Ok(client) = super::settings::client(&self.kafka).create::<BaseConsumer>() else { return };
        while !*self.stopping.borrow() {
            let names = self.watched.names();
            if !names.is_empty() {
                match native::describe_topics(client.client(), &names, ASK_KAFKA) {
                    Ok(described) => self.watched.compare(&described),
                    Err(error) => debug!(%error, "topics could not be described"),
                }
            }
            for workflow in &self.workflows {
                self.measure_lag(&client, workflow);
            }
            let mut slept = Duration::ZERO;
            while slept < EVERY && !*self.stopping.borrow() {
                std::thread::sleep(Duration::from_millis(100));
                slept += Duration::from_millis(100);
            }
        }
    }

    /// A log that cannot be asked has no gauge: absent rather than stale.
    fn measure_lag(&self, client: &BaseConsumer<DefaultConsumerContext>, workflow: &Arc<str>) {
        let offsets = self.runtime.block_on(gauges::offsets(&self.database, workflow, &self.cluster));
        let offsets = offsets.unwrap_or_default();
        self.watched.compare_epochs(&offsets);
        for cursor in offsets {
            let partition = cursor.partition.to_string();
            let labels = [&**workflow, &cursor.topic, &partition];
            match client.fetch_watermarks(&cursor.topic, cursor.partition, ASK_KAFKA) {
                Ok((_, high)) => {
                    self.metrics.kafka_lag.with_label_values(&labels).set((high - cursor.next_offset).max(0));
                }
                Err(_) => {
                    let _ = self.metrics.kafka_lag.remove_label_values(&labels);
                }
            }
        }
    }
}
