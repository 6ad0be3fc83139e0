//! Topics that change underneath: every few seconds the ids of all topics in use are compared with those the cursors
//! were taken under, and the logs with the stored offsets: how many records wait, and since when.
//!
//! librdkafka does not notice that a topic was deleted and created again when the new log is longer than the old.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use tracing::{debug, warn};

use super::backlog::{Backlog, Unread};
use super::watched::Watched;
use super::{marks, native};
use crate::config::{Kafka, Workflow};
use crate::observe::Metrics;
use crate::outbox::Database;
use crate::outbox::gauges::{self, CursorOffset};
use crate::outbox::load::Budget;

const EVERY: Duration = Duration::from_secs(5);
const ASK_KAFKA: Duration = Duration::from_secs(3);

pub struct Watch {
    pub kafka: Arc<Kafka>,
    pub cluster: Arc<str>,
    pub watched: Arc<Watched>,
    pub budget: Arc<Budget>,
    pub database: Database,
    pub metrics: Arc<Metrics>,
    /// What runs, as it changes.
    pub workflows: tokio::sync::watch::Receiver<Vec<Arc<Workflow>>>,
    pub runtime: tokio::runtime::Handle,
    pub stopping: tokio::sync::watch::Receiver<bool>,
}

/// How the brokers are asked.
struct Client {
    plain: BaseConsumer,
    /// One in the group of each workflow that has the direct path. None ever joins: they ask what is marked.
    groups: HashMap<Arc<str>, BaseConsumer>,
    /// Topics and partitions whose lag is shown, by workflow.
    shown: HashMap<Arc<str>, HashSet<(String, i32)>>,
    /// Configurations whose window for repeats is known to be shorter than a topic's.
    told: HashSet<i64>,
}

impl Watch {
    /// Runs on a thread of its own until the process stops.
    pub fn run(self) {
        let Ok(client) = super::settings::client(&self.kafka).create::<BaseConsumer>() else { return };
        let mut client = Client { plain: client, groups: HashMap::new(), shown: HashMap::new(), told: HashSet::new() };
        let Ok(mut backlog) = Backlog::new(&self.kafka) else { return };
        let mut before: Vec<Arc<Workflow>> = Vec::new();
        while !*self.stopping.borrow() {
            let workflows = self.workflows.borrow().clone();
            for gone in before.iter().filter(|one| !workflows.iter().any(|now| now.id == one.id)) {
                self.forget_all(&mut client, &gone.id);
            }
            before.clone_from(&workflows);
            for workflow in &workflows {
                self.look_at(&mut client, &mut backlog, workflow);
            }
            let mut slept = Duration::ZERO;
            while slept < EVERY && !*self.stopping.borrow() {
                std::thread::sleep(Duration::from_millis(100));
                slept += Duration::from_millis(100);
            }
        }
    }

    fn look_at(&self, client: &mut Client, backlog: &mut Backlog, configured: &Workflow) {
        let workflow = &configured.id;
        let held = self.watched.held();
        let Some(cursors) = self.cursors(client, workflow) else {
            self.forget(workflow);
            return;
        };
        self.watched.compare_cursors(workflow, &held, &cursors);
        let mut names: HashSet<String> = cursors.iter().map(|cursor| cursor.topic.clone()).collect();
        names.extend(self.watched.names(workflow));
        if names.is_empty() {
            // It was never read: nothing in Kafka is late yet.
            self.watched.set_oldest_unread(workflow, Some(Duration::ZERO));
            return;
        }
        let names: Vec<String> = names.into_iter().collect();
        self.compare_windows(client, backlog, configured, &names);
        let described = native::describe_topics(client.plain.client(), &names, ASK_KAFKA).unwrap_or_else(|error| {
            debug!(%error, "topics could not be described");
            HashMap::new()
        });
        self.watched.compare(workflow, &described);
        // A cursor of a topic's earlier incarnation lags behind nothing.
        let is_current = |cursor: &CursorOffset| described.get(&cursor.topic).is_none_or(|t| t.id == cursor.topic_id);
        let current: Vec<CursorOffset> = cursors.into_iter().filter(is_current).collect();
        let shown = client.shown.entry(Arc::clone(workflow)).or_default();
        shown.extend(current.iter().map(|cursor| (cursor.topic.clone(), cursor.partition)));
        match self.measure_lag(&client.plain, workflow, &current) {
            Some(unread) => self.measure_age(client, backlog, workflow, (&unread, &names)),
            None => self.forget_age(workflow),
        }
    }

    /// A record that is read again after its change was forgotten is taken in again: worth a word, once.
    fn compare_windows(&self, client: &mut Client, backlog: &mut Backlog, workflow: &Workflow, topics: &[String]) {
        let Some(deduplication) = &workflow.delivery.deduplication else { return };
        for topic in topics {
            let Some(kept) = backlog.kept(topic, &self.runtime).filter(|kept| *kept > deduplication.ttl) else {
                continue;
            };
            if client.told.insert(workflow.version) {
                let (kept_seconds, ttl_seconds) = (kept.as_secs(), deduplication.ttl.as_secs());
                warn!(
                    workflow = %workflow.id, topic, kept_seconds, ttl_seconds,
                    "deduplication.ttl is shorter than the topic keeps records: one that is read again later is taken in again"
                );
            }
        }
    }

    /// Where the workflow's cursors stand; without the outbox, as far as is marked in Kafka.
    fn cursors(&self, client: &mut Client, workflow: &Arc<str>) -> Option<Vec<CursorOffset>> {
        let mut cursors = self.runtime.block_on(gauges::offsets(&self.database, workflow, &self.cluster)).ok()?;
        let direct: Vec<(String, i32)> =
            cursors.iter().filter(|cursor| cursor.direct).map(|c| (c.topic.clone(), c.partition)).collect();
        if direct.is_empty() {
            return Some(cursors);
        }
        if !client.groups.contains_key(workflow) {
            let group: BaseConsumer = super::settings::consumer(&self.kafka, workflow, &self.budget).create().ok()?;
            client.groups.insert(Arc::clone(workflow), group);
        }
        let marked = marks::fetch(client.groups.get(workflow)?, direct, ASK_KAFKA).ok()?;
        for cursor in cursors.iter_mut().filter(|cursor| cursor.direct) {
            let mark = marked.get(&(cursor.topic.clone(), cursor.partition));
            let own = mark.filter(|mark| mark.topic_id == cursor.topic_id && mark.era == cursor.mark_era);
            cursor.next_offset = own.map_or(cursor.next_offset, |mark| mark.offset.max(cursor.next_offset));
        }
        Some(cursors)
    }

    /// Answers the cursors that lag; nothing when a log could not be asked. Absent rather than stale.
    fn measure_lag(&self, client: &BaseConsumer, workflow: &Arc<str>, cursors: &[CursorOffset]) -> Option<Vec<Unread>> {
        let (mut unread, mut all_known) = (Vec::new(), true);
        for cursor in cursors {
            if *self.stopping.borrow() {
                return None;
            }
            let partition = cursor.partition.to_string();
            let labels = [&**workflow, &cursor.topic, &partition];
            // With one log out of reach the others may be too: asking each would take long.
            let ends = all_known.then(|| client.fetch_watermarks(&cursor.topic, cursor.partition, ASK_KAFKA).ok());
            let Some((_, end)) = ends.flatten() else {
                all_known = false;
                let _ = self.metrics.kafka_lag.remove_label_values(&labels);
                continue;
            };
            let lag = (end - cursor.next_offset).max(0);
            self.metrics.kafka_lag.with_label_values(&labels).set(lag);
            if lag > 0 {
                unread.push(Unread {
                    cursor: cursor.id,
                    topic: cursor.topic.clone(),
                    partition: cursor.partition,
                    next_offset: cursor.next_offset,
                    end,
                });
            }
        }
        all_known.then_some(unread)
    }

    /// How old the oldest record is that waits in Kafka, and how long until Kafka deletes it.
    fn measure_age(
        &self,
        client: &mut Client,
        backlog: &mut Backlog,
        workflow: &Arc<str>,
        (unread, topics): (&[Unread], &[String]),
    ) {
        let first = backlog.look(unread);
        // What was stored while we looked does not wait in Kafka any more.
        let Some(cursors) = self.cursors(client, workflow) else { return self.forget_age(workflow) };
        let waits = |one: &&Unread| cursors.iter().any(|now| now.id == one.cursor && now.next_offset < one.end);
        let now = jiff::Timestamp::now().as_millisecond();
        let mut ages: HashMap<&str, Duration> = topics.iter().map(|topic| (topic.as_str(), Duration::ZERO)).collect();
        for one in unread.iter().filter(waits) {
            let Some(timestamp) = first.get(&one.cursor) else { continue };
            let age = Duration::from_millis(u64::try_from(now - timestamp).unwrap_or(0));
            let oldest = ages.entry(&one.topic).or_default();
            *oldest = age.max(*oldest);
        }
        self.watched.set_oldest_unread(workflow, ages.values().max().copied());
        let left = |(topic, age): (&&str, &Duration)| {
            Some(backlog.kept(topic, &self.runtime)?.as_secs_f64() - age.as_secs_f64())
        };
        match ages.iter().filter_map(left).reduce(f64::min) {
            Some(seconds) => self.metrics.retention_headroom.with_label_values(&[&**workflow]).set(seconds),
            None => drop(self.metrics.retention_headroom.remove_label_values(&[&**workflow])),
        }
    }

    /// A workflow that does not run any more.
    fn forget_all(&self, client: &mut Client, workflow: &Arc<str>) {
        client.groups.remove(workflow);
        for (topic, partition) in client.shown.remove(workflow).unwrap_or_default() {
            let _ = self.metrics.kafka_lag.remove_label_values(&[&**workflow, &topic, &partition.to_string()]);
        }
        self.forget_age(workflow);
    }

    fn forget(&self, workflow: &Arc<str>) {
        for (topic, partition) in self.watched.partitions(workflow) {
            let _ = self.metrics.kafka_lag.remove_label_values(&[&**workflow, &*topic, &partition.to_string()]);
        }
        self.forget_age(workflow);
    }

    fn forget_age(&self, workflow: &Arc<str>) {
        self.watched.set_oldest_unread(workflow, None);
        let _ = self.metrics.retention_headroom.remove_label_values(&[&**workflow]);
    }
}
