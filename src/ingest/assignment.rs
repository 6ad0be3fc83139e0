//! Enters: partitions that the group gave to this process. Leaves: a holding and a start offset for each, from the
//! stored cursor, or the reason why the workflow must halt.
//!
//! The first start on a topic stores all its partitions before any is read. Later partitions start at 0. A re-created
//! topic, a cursor behind the log or beyond it is a loss: `onOffsetLoss` decides, and a gap is recorded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use tracing::{info, warn};

use super::context::Context;
use super::native::{self, DescribeError, Topic};
use crate::config::{StartFrom, Topics, Workflow};
use crate::event::{CursorId, ProcessId};
use crate::outbox::batch::Holding;
use crate::outbox::cursor::{self, Known, Start, Taken, TopicName};
use crate::outbox::direct::{self, Spot};
use crate::outbox::gap::{self, Gap, GapReason};
use crate::outbox::offsets::{self, Log, Standing};
use crate::outbox::{self, Database};
use crate::transform::Origin;

const ASK_KAFKA: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("asking the brokers about topics")]
    Describe(#[source] DescribeError),
    #[error("the brokers know no topic `{0}`")]
    NoTopic(String),
    #[error("asking the brokers for the offsets of {topic}/{partition}")]
    Offsets {
        topic: String,
        partition: i32,
        #[source]
        source: KafkaError,
    },
    #[error("asking the brokers for the offsets that are marked in {topic}")]
    Marks {
        topic: String,
        #[source]
        source: KafkaError,
    },
    #[error("another process reads a partition the other way")]
    OtherPath,
    #[error("reading cursors")]
    Outbox(#[source] outbox::Error),
    /// A person must decide: `onOffsetLoss: halt`.
    #[error("{0}")]
    Halt(String),
}

/// A partition that this process may read now.
pub struct Assigned {
    pub holding: Arc<Holding>,
    pub taken: Taken,
    /// Events ahead that are stored already, on the direct path.
    pub spilled: HashSet<Spot>,
}

/// Keeps the first halt for later: every loss is noted before an operator ends them all with one move.
fn put_off<T>(result: Result<T, Error>, halt: &mut Option<Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Halt(reason)) => {
            halt.get_or_insert(Error::Halt(reason));
            Ok(None)
        }
        result => result.map(Some),
    }
}

pub struct Resolver<'a> {
    pub consumer: &'a BaseConsumer<Context>,
    pub database: &'a Database,
    pub process: ProcessId,
    pub workflow: &'a Arc<Workflow>,
    pub cluster: &'a Arc<str>,
}

impl Resolver<'_> {
    pub async fn resolve(&self, partitions: &TopicPartitionList) -> Result<Vec<Assigned>, Error> {
        let mut by_topic: HashMap<String, Vec<i32>> = HashMap::new();
        for element in partitions.elements() {
            by_topic.entry(element.topic().to_owned()).or_default().push(element.partition());
        }
        let described = self.describe(&by_topic.keys().cloned().collect::<Vec<_>>())?;
        let (mut origins, mut halt): (HashMap<CursorId, Origin>, _) = (HashMap::new(), None);
        for (name, partitions) in &by_topic {
            let topic = described.get(name).ok_or_else(|| Error::NoTopic(name.clone()))?;
            let cursors = put_off(self.ensure(name, topic, partitions).await, &mut halt)?.unwrap_or_default();
            for partition in partitions {
                let id = cursors.get(partition).copied().unwrap_or_else(|| self.new_cursor(topic, *partition));
                let origin = Origin {
                    cluster: Arc::clone(self.cluster),
                    topic: name.as_str().into(),
                    topic_id: topic.id.as_str().into(),
                    partition: *partition,
                };
                origins.insert(id, origin);
            }
        }
        halt.map_or(Ok(()), Err)?;
        let ids: Vec<CursorId> = origins.keys().copied().collect();
        let taken = cursor::take(self.database, &ids, self.process).await.map_err(Error::Outbox)?;
        // Made by a process that reads the other way, at the same moment: the next try switches them.
        if taken.iter().any(|taken| taken.direct != self.workflow.delivery.is_direct()) {
            return Err(Error::OtherPath);
        }
        // Asked once they are taken: nobody else stores any from then on.
        let mut spilled = match self.workflow.delivery.is_direct() {
            true => direct::spilled_ahead(self.database, &ids).await.map_err(Error::Outbox)?,
            false => HashMap::new(),
        };
        let mut assigned = Vec::new();
        for taken in taken {
            let Some(origin) = origins.remove(&taken.id) else { continue };
            let workflow = Arc::clone(self.workflow);
            let holding = Holding::new(workflow, origin, taken.id, taken.epoch, taken.next_offset);
            let spilled = spilled.remove(&taken.id).unwrap_or_default();
            assigned.push(Assigned { holding: Arc::new(holding), taken, spilled });
        }
        Ok(assigned)
    }

    fn describe(&self, names: &[String]) -> Result<HashMap<String, Topic>, Error> {
        if self.cluster.starts_with(native::MOCK_CLUSTER) {
            return native::mock_topics(self.consumer.client(), names, ASK_KAFKA).map_err(Error::Describe);
        }
        native::describe_topics(self.consumer.client(), names, ASK_KAFKA).map_err(Error::Describe)
    }

    /// The id of a cursor that is made now. One that was made before has the one it was made with.
    pub(super) fn new_cursor(&self, topic: &Topic, partition: i32) -> CursorId {
        CursorId::of(&self.workflow.id, self.cluster, &topic.id, partition)
    }

    /// Makes sure that every assigned partition has a cursor, and that it stands inside the log. Answers those that were
    /// there before.
    async fn ensure(&self, name: &str, topic: &Topic, assigned: &[i32]) -> Result<HashMap<i32, CursorId>, Error> {
        let stored = cursor::of_topic(self.database, &self.workflow.id, self.cluster, name).await;
        let stored = stored.map_err(Error::Outbox)?;
        let mut current: Vec<Known> = stored.iter().filter(|known| known.topic_id == topic.id).cloned().collect();
        if current.is_empty() {
            match stored.is_empty() {
                true => self.first_start(name, topic).await?,
                false => self.recreated(name, topic, &stored).await?,
            }
            return Ok(HashMap::new());
        }
        let missing: Vec<i32> = topic
            .partitions
            .iter()
            .copied()
            .filter(|partition| current.iter().all(|known| known.partition != *partition))
            .collect();
        if !missing.is_empty() {
            info!(workflow = %self.workflow.id, topic = name, partitions = ?missing, "new partitions start at 0");
            let mut starts = Vec::new();
            for partition in missing {
                let at_end = crate::mutant!("new-partition-at-end");
                starts.push((partition, if at_end { self.log(name, partition)?.high } else { 0 }));
            }
            self.add(name, topic, starts).await?;
        }
        self.settle_path(name, topic, current.iter_mut().filter(|known| assigned.contains(&known.partition))).await?;
        let mut halt = None;
        for partition in assigned {
            let known = current.iter().find(|known| known.partition == *partition);
            let cursor = known.map_or_else(|| self.new_cursor(topic, *partition), |known| known.id);
            let next = known.map_or(0, |known| known.next_offset);
            put_off(self.check_standing(name, cursor, *partition, next).await, &mut halt)?;
        }
        halt.map_or_else(|| Ok(current.iter().map(|known| (known.partition, known.id)).collect()), Err)
    }

    /// Resolves `startFrom` for all partitions and stores it in one statement, before any of them is read.
    async fn first_start(&self, name: &str, topic: &Topic) -> Result<(), Error> {
        let source = &self.workflow.source;
        let seen_others = match &source.topics {
            Topics::Matching(_) => {
                cursor::any(self.database, &self.workflow.id, self.cluster).await.map_err(Error::Outbox)?
            }
            Topics::Named(_) => false,
        };
        // A topic that a regex matches later is read from its beginning.
        let start_from = if seen_others { StartFrom::Earliest } else { source.start_from };
        self.tell_of_other_clusters(name).await?;
        let marked = self.marked_before(name, topic).await?;
        let start = |partition: &i32| match marked.get(partition) {
            Some(offset) => Ok((*partition, *offset)),
            None => self.start_offset(name, *partition, start_from).map(|offset| (*partition, offset)),
        };
        let starts = topic.partitions.iter().map(start).collect::<Result<Vec<(i32, i64)>, Error>>()?;
        info!(workflow = %self.workflow.id, topic = name, partitions = starts.len(), ?start_from, "first start");
        self.add(name, topic, starts).await
    }

    fn start_offset(&self, name: &str, partition: i32, start_from: StartFrom) -> Result<i64, Error> {
        let log = self.log(name, partition)?;
        match start_from {
            StartFrom::Earliest => Ok(log.low),
            StartFrom::Latest => Ok(log.high),
            StartFrom::Time(millis) => {
                let failed = |source| Error::Offsets { topic: name.to_owned(), partition, source };
                let mut times = TopicPartitionList::new();
                times.add_partition_offset(name, partition, Offset::Offset(millis)).map_err(failed)?;
                let found = self.consumer.offsets_for_times(times, ASK_KAFKA).map_err(failed)?;
                // No record that late yet: the next one is.
                Ok(match found.find_partition(name, partition).map(|element| element.offset()) {
                    Some(Offset::Offset(offset)) => offset,
                    _ => log.high,
                })
            }
        }
    }

    pub(super) fn log(&self, name: &str, partition: i32) -> Result<Log, Error> {
        let (low, high) = self
            .consumer
            .fetch_watermarks(name, partition, ASK_KAFKA)
            .map_err(|source| Error::Offsets { topic: name.to_owned(), partition, source })?;
        Ok(Log { low, high })
    }

    pub(super) async fn add(&self, name: &str, topic: &Topic, starts: Vec<(i32, i64)>) -> Result<(), Error> {
        let start = |(partition, offset)| Start { id: self.new_cursor(topic, partition), partition, offset };
        let starts: Vec<Start> = starts.into_iter().map(start).collect();
        let name = TopicName {
            workflow: &self.workflow.id,
            cluster: self.cluster,
            topic: name,
            topic_id: &topic.id,
            direct: self.workflow.delivery.is_direct(),
        };
        cursor::add(self.database, name, &starts).await.map_err(Error::Outbox)
    }

    /// The topic has the name of one that was read, but is another: nobody knows what was in between.
    async fn recreated(&self, name: &str, topic: &Topic, stored: &[Known]) -> Result<(), Error> {
        let policy = self.workflow.source.on_offset_loss;
        warn!(workflow = %self.workflow.id, topic = name, ?policy, "the topic was deleted and created again");
        // Before anything else is decided: a halt may be ended by an operator, who leaves no word about the old topic.
        for known in stored {
            self.note(known.id, None, GapReason::TopicRecreated).await?;
        }
        let mut starts = Vec::new();
        for partition in &topic.partitions {
            let log = self.log(name, *partition)?;
            let Some(start) = offsets::after_loss(policy, log) else {
                return Err(Error::Halt(format!(
                    "topic `{name}` was deleted and created again; `oncebox offsets set {} --to earliest` reads the \
                     new one from its beginning",
                    self.workflow.id
                )));
            };
            starts.push((*partition, start));
        }
        self.add(name, topic, starts).await
    }

    pub(super) async fn note(&self, id: CursorId, lost: Option<(i64, i64)>, reason: GapReason) -> Result<(), Error> {
        let action = gap::action(self.workflow.source.on_offset_loss);
        gap::record(self.database, id, lost, reason, action).await.map_err(Error::Outbox)
    }

    /// Whether the stored offset is still in the log; if not, moves it as the policy says, or halts.
    async fn check_standing(&self, name: &str, cursor: CursorId, partition: i32, next: i64) -> Result<(), Error> {
        let log = self.log(name, partition)?;
        let (reason, edge) = match offsets::standing(next, log) {
            _ if crate::mutant!("lost-offsets-ignored") => return Ok(()),
            Standing::Readable => return Ok(()),
            Standing::Behind => (GapReason::Retention, log.low),
            Standing::Beyond => (GapReason::BeyondEnd, log.high),
        };
        let policy = self.workflow.source.on_offset_loss;
        let Some(to) = offsets::after_loss(policy, log) else {
            // The move that ends the halt is the operator's: only this says what made it necessary.
            self.note(cursor, Some((next, edge)), reason).await?;
            return Err(Error::Halt(format!(
                "the stored offset {next} of {name}/{partition} is not in the log, which has {} to {}; `oncebox \
                 offsets set {}` moves it",
                log.low, log.high, self.workflow.id
            )));
        };
        warn!(
            workflow = %self.workflow.id, topic = name, partition, from = next, to, ?policy,
            reason = reason.as_str(), "offsets were lost"
        );
        let gap = Gap { cursor, from: Some(next), to, reason };
        gap::move_to(self.database, &gap, gap::action(policy)).await.map_err(Error::Outbox)
    }
}
