//! Topics that change underneath: every few seconds the ids of all topics in use are compared with those the cursors
//! were taken under, and the logs with the stored offsets: how many records wait, and since when.
//!
//! librdkafka does not notice that a topic was deleted and created again when the new log is longer than the old.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use tracing::{debug, warn};

use super::backlog::{Backlog, TopicPartition};
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
    oldest_unread: Mutex<HashMap<Arc<str>, Duration>>,
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

    /// How old the oldest record is that waits in Kafka for this workflow; zero when none does.
    pub fn oldest_unread(&self, workflow: &str) -> Duration {
        let ages = self.oldest_unread.lock().expect("no holder of this lock panics");
        ages.get(workflow).copied().unwrap_or_default()
    }

    fn set_oldest_unread(&self, workflow: &Arc<str>, age: Duration) {
        self.oldest_unread.lock().expect("no holder of this lock panics").insert(Arc::clone(workflow), age);
    }

    fn compare(&self, workflow: &Arc<str>, described: &HashMap<String, native::Topic>) {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        for ((_, topic), (id, _)) in topics.iter().filter(|((of, _), _)| of == workflow) {
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

    fn names(&self, workflow: &Arc<str>) -> HashSet<String> {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        topics.keys().filter(|(of, _)| of == workflow).map(|(_, topic)| topic.to_string()).collect()
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
        let Ok(mut backlog) = Backlog::new(&self.kafka) else { return };
        while !*self.stopping.borrow() {
            for workflow in &self.workflows {
                self.look_at(&client, &mut backlog, workflow);
            }
            let mut slept = Duration::ZERO;
            while slept < EVERY && !*self.stopping.borrow() {
                std::thread::sleep(Duration::from_millis(100));
                slept += Duration::from_millis(100);
            }
        }
    }

    fn look_at(&self, client: &BaseConsumer, backlog: &mut Backlog, workflow: &Arc<str>) {
        let cursors = self.cursors(workflow);
        self.watched.compare_epochs(&cursors);
        let mut names: HashSet<String> = cursors.iter().map(|cursor| cursor.topic.clone()).collect();
        names.extend(self.watched.names(workflow));
        if names.is_empty() {
            return;
        }
        let names: Vec<String> = names.into_iter().collect();
        let described = native::describe_topics(client.client(), &names, ASK_KAFKA).unwrap_or_else(|error| {
            debug!(%error, "topics could not be described");
            HashMap::new()
        });
        self.watched.compare(workflow, &described);
        // A cursor of a topic's earlier incarnation lags behind nothing.
        let is_current = |cursor: &&CursorOffset| described.get(&cursor.topic).is_none_or(|t| t.id == cursor.topic_id);
        let unread = self.measure_lag(client, workflow, cursors.iter().filter(is_current));
        self.measure_age(backlog, workflow, &unread, &names);
    }

    fn cursors(&self, workflow: &Arc<str>) -> Vec<CursorOffset> {
        self.runtime.block_on(gauges::offsets(&self.database, workflow, &self.cluster)).unwrap_or_default()
    }

    /// Answers the partitions that lag, with the cursor's offset and the log's end. A log that cannot be asked has no
    /// gauge: absent rather than stale.
    fn measure_lag<'a>(
        &self,
        client: &BaseConsumer,
        workflow: &Arc<str>,
        cursors: impl Iterator<Item = &'a CursorOffset>,
    ) -> HashMap<TopicPartition, (i64, i64)> {
        let mut unread = HashMap::new();
        for cursor in cursors {
            let partition = cursor.partition.to_string();
            let labels = [&**workflow, &cursor.topic, &partition];
            let Ok((_, end)) = client.fetch_watermarks(&cursor.topic, cursor.partition, ASK_KAFKA) else {
                let _ = self.metrics.kafka_lag.remove_label_values(&labels);
                continue;
            };
            let lag = (end - cursor.next_offset).max(0);
            self.metrics.kafka_lag.with_label_values(&labels).set(lag);
            if lag > 0 {
                unread.insert((cursor.topic.clone(), cursor.partition), (cursor.next_offset, end));
            }
        }
        unread
    }

    /// How old the oldest record is that waits in Kafka, and how long until Kafka deletes it.
    fn measure_age(
        &self,
        backlog: &mut Backlog,
        workflow: &Arc<str>,
        unread: &HashMap<TopicPartition, (i64, i64)>,
        topics: &[String],
    ) {
        let offsets = unread.iter().map(|(key, (next, _))| (key.clone(), *next)).collect();
        let first = backlog.look(&offsets).clone();
        // What was stored while we looked does not wait in Kafka any more.
        let cursors = self.cursors(workflow);
        let still_waits = |key: &TopicPartition| {
            let cursor = cursors.iter().find(|cursor| cursor.topic == key.0 && cursor.partition == key.1);
            cursor.is_some_and(|cursor| unread.get(key).is_some_and(|(_, end)| cursor.next_offset < *end))
        };
        let now = jiff::Timestamp::now().as_millisecond();
        let mut ages: HashMap<&str, Duration> = topics.iter().map(|topic| (topic.as_str(), Duration::ZERO)).collect();
        for (key, first) in first.iter().filter(|(key, _)| still_waits(key)) {
            let age = Duration::from_millis(u64::try_from(now - first.timestamp).unwrap_or(0));
            let oldest = ages.entry(&key.0).or_default();
            *oldest = age.max(*oldest);
        }
        self.watched.set_oldest_unread(workflow, ages.values().max().copied().unwrap_or_default());
        let kept = ages
            .iter()
            .filter_map(|(topic, age)| Some(backlog.kept(topic, &self.runtime)?.as_secs_f64() - age.as_secs_f64()));
        match kept.reduce(f64::min) {
            Some(seconds) => self.metrics.retention_headroom.with_label_values(&[&**workflow]).set(seconds),
            None => drop(self.metrics.retention_headroom.remove_label_values(&[&**workflow])),
        }
    }
}
