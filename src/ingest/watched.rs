//! What the process reads at the moment, and what was found out about it: shared by consumers, `watch` and `upkeep`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tracing::warn;

use super::native;
use crate::event::CursorId;
use crate::outbox::batch::Holding;
use crate::outbox::gauges::CursorOffset;
use crate::transform::Origin;

/// The topics that this process reads, by workflow, with the id each was taken under.
#[derive(Debug, Default)]
pub struct Watched {
    topics: Mutex<HashMap<WorkflowTopic, HeldTopic>>,
    changed: Mutex<HashSet<Arc<str>>>,
    holdings: Mutex<HashMap<CursorId, Weak<Holding>>>,
    oldest_unread: Mutex<HashMap<Arc<str>, Option<Duration>>>,
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

    /// How old the oldest record is that waits in Kafka for this workflow; zero when none does, nothing when not known.
    pub fn oldest_unread(&self, workflow: &str) -> Option<Duration> {
        self.oldest_unread.lock().expect("no holder of this lock panics").get(workflow).copied().flatten()
    }

    pub(super) fn set_oldest_unread(&self, workflow: &Arc<str>, age: Option<Duration>) {
        self.oldest_unread.lock().expect("no holder of this lock panics").insert(Arc::clone(workflow), age);
    }

    pub(super) fn compare(&self, workflow: &Arc<str>, described: &HashMap<String, native::Topic>) {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        for ((_, topic), (id, _)) in topics.iter().filter(|((of, _), _)| of == workflow) {
            if described.get(&**topic).is_some_and(|now| now.id != **id) {
                warn!(workflow = %workflow, topic = %topic, "the topic was deleted and created again");
                self.changed.lock().expect("no holder of this lock panics").insert(Arc::clone(workflow));
            }
        }
    }

    /// What is held at this moment, and how far each was stored.
    pub(super) fn held(&self) -> Vec<(Arc<Holding>, i64)> {
        let holdings = self.holdings.lock().expect("no holder of this lock panics");
        holdings.values().filter_map(Weak::upgrade).map(|holding| (Arc::clone(&holding), holding.stored_to())).collect()
    }

    /// A cursor under another epoch was moved by an operator, or taken by another process: what is read is not ours. One that is
    /// behind what this process had stored is on a server that took over without its last commits: it is read again, also when
    /// no record comes that would show it; so is one that is not there at all. `held` is of before the cursors were read.
    pub(super) fn compare_cursors(&self, workflow: &str, held: &[(Arc<Holding>, i64)], cursors: &[CursorOffset]) {
        for (holding, stored_to) in held.iter().filter(|(holding, _)| *holding.workflow.id == *workflow) {
            let Some(cursor) = cursors.iter().find(|cursor| cursor.id == holding.cursor) else {
                holding.lose();
                continue;
            };
            // Without the outbox the row is a copy, and behind.
            let is_behind = !cursor.direct && (cursor.next_offset < *stored_to || cursor.owner_epoch < holding.epoch);
            if holding.epoch < cursor.owner_epoch || is_behind {
                holding.lose();
            }
        }
    }

    pub(super) fn partitions(&self, workflow: &Arc<str>) -> Vec<(Arc<str>, i32)> {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        let of = topics.iter().filter(|((of, _), _)| of == workflow);
        of.flat_map(|((_, topic), (_, held))| held.iter().map(|partition| (Arc::clone(topic), *partition))).collect()
    }

    pub(super) fn names(&self, workflow: &Arc<str>) -> HashSet<String> {
        let topics = self.topics.lock().expect("no holder of this lock panics");
        topics.keys().filter(|(of, _)| of == workflow).map(|(_, topic)| topic.to_string()).collect()
    }
}
