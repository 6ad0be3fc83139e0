//! What librdkafka calls back into: partitions given and taken away, its own logs and errors.
//!
//! On assignment each partition starts at its stored cursor, taken under a new epoch, inside the assign call: a seek
//! afterwards would race. If that cannot be done, nothing is read: the partitions are assigned and every record of them
//! dropped until the consumer has left the group and come back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tracing::{debug, error, info, warn};

use super::assignment::{self, Assigned, Resolver};
use super::{Shared, Signals};
use crate::config::Workflow;
use crate::direct::{Opening, Parcel};
use crate::event::{CursorId, Forbidden};
use crate::observe::chain;
use crate::outbox::batch::Holding;
use crate::outbox::cursor;

/// A rebalance waits this long for Postgres; the group waits with it.
const TAKE_LIMIT: Duration = Duration::from_secs(20);
/// And this long for what was read of a revoked partition to be stored, so that it is not read twice.
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// A partition that this process reads.
pub struct Partition {
    pub holding: Arc<Holding>,
    /// The offset after the last record that was read.
    pub position: i64,
    /// The offset up to which records were passed on to be stored.
    pub passed_on: i64,
    /// Whether librdkafka's position can only be that of this assignment.
    pub position_is_own: bool,
    /// Read one record at a time until past this offset: one of them may be killing the process.
    pub alone_until: Option<i64>,
    /// The record at this offset was being read alone when the process died.
    pub convicted: Option<i64>,
    pub deaths: i32,
    /// Which era its marks in Kafka are of.
    pub mark_era: i64,
}

/// Why reading cannot go on as it is.
#[derive(Debug)]
pub enum Trouble {
    /// Leave the group, wait, come back.
    Rejoin,
    /// A person must decide.
    Halt(String),
}

pub struct Context {
    pub workflow: Arc<Workflow>,
    pub shared: Shared,
    pub signals: Signals,
    pub partitions: Mutex<HashMap<(String, i32), Partition>>,
    pub trouble: Mutex<Option<Trouble>>,
    /// An offset was not committed: all are told again.
    pub untold: AtomicBool,
    /// Partitions came since this was last asked.
    pub assigned_anew: AtomicBool,
}

impl Context {
    pub fn new(workflow: &Arc<Workflow>, shared: &Shared, signals: &Signals) -> Self {
        Self {
            workflow: Arc::clone(workflow),
            shared: shared.clone(),
            signals: signals.clone(),
            partitions: Mutex::default(),
            trouble: Mutex::default(),
            untold: AtomicBool::new(false),
            assigned_anew: AtomicBool::new(false),
        }
    }

    pub fn partitions(&self) -> std::sync::MutexGuard<'_, HashMap<(String, i32), Partition>> {
        self.partitions.lock().expect("no holder of this lock panics")
    }

    pub fn set_trouble(&self, trouble: Trouble) {
        *self.trouble.lock().expect("no holder of this lock panics") = Some(trouble);
    }

    pub fn take_trouble(&self) -> Option<Trouble> {
        self.trouble.lock().expect("no holder of this lock panics").take()
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: &mut TopicPartitionList) {
        crate::failpoint!("ingest.assign");
        // Nothing new needs nothing of Postgres, which may be away.
        let assigned = if partitions.count() == 0 { Vec::new() } else { self.take(consumer, partitions) };
        self.hold(assigned, partitions);
        let result = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(partitions),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(partitions),
        };
        // librdkafka remembers a pause of a partition that was here before.
        if let Err(failure) = result.and_then(|()| consumer.resume(partitions)) {
            error!(workflow = %self.workflow.id, error = %failure, "librdkafka refused the assignment");
            self.set_trouble(Trouble::Rejoin);
        }
        self.assigned_anew.store(true, Ordering::Release);
        self.signals.joining.done();
        // With nothing given to it, it was let into the group all the same; not so with a topic.
        self.permitted(if partitions.count() > 0 { &Forbidden::ALL } else { &[Forbidden::Group] });
        self.signals.assigned.notify_one();
    }

    /// What Kafka may have forbidden it does no more.
    pub fn permitted(&self, permitted: &[Forbidden]) {
        if self.signals.joining.permit(permitted) {
            info!(workflow = %self.workflow.id, "Kafka permits reading again");
        }
    }

    /// Takes the cursors of partitions, or says why that cannot be.
    fn take(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) -> Vec<Assigned> {
        let resolver = Resolver {
            consumer,
            database: &self.shared.database,
            process: self.shared.process,
            workflow: &self.workflow,
            cluster: &self.shared.cluster,
        };
        let resolved = self
            .shared
            .runtime
            .block_on(async { tokio::time::timeout(TAKE_LIMIT, resolver.resolve(partitions)).await });
        match resolved {
            Ok(Ok(assigned)) => assigned,
            Ok(Err(assignment::Error::Halt(reason))) => {
                self.set_trouble(Trouble::Halt(reason));
                Vec::new()
            }
            Ok(Err(failure)) => {
                warn!(workflow = %self.workflow.id, error = %chain(&failure), "partitions cannot be taken; trying again");
                self.set_trouble(Trouble::Rejoin);
                Vec::new()
            }
            Err(_) => {
                warn!(workflow = %self.workflow.id, "partitions cannot be taken in time; trying again");
                self.set_trouble(Trouble::Rejoin);
                Vec::new()
            }
        }
    }

    /// Writes start offsets into the list. A partition that could not be taken starts nowhere: its records are dropped.
    fn hold(&self, assigned: Vec<Assigned>, list: &mut TopicPartitionList) {
        let mut held = self.partitions();
        for mut element in list.elements() {
            let found = assigned.iter().find(|a| {
                *a.holding.origin.topic == *element.topic() && a.holding.origin.partition == element.partition()
            });
            let offset = match found {
                Some(assigned) => Offset::Offset(assigned.taken.next_offset),
                None => {
                    self.trouble.lock().expect("no holder of this lock panics").get_or_insert(Trouble::Rejoin);
                    Offset::End
                }
            };
            if let Err(failure) = element.set_offset(offset) {
                error!(workflow = %self.workflow.id, error = %failure, "a start offset cannot be set");
                self.set_trouble(Trouble::Rejoin);
            }
        }
        for Assigned { holding, taken, spilled } in assigned {
            if let Some(desk) = &self.signals.direct {
                let (holding, from, generation) = (Arc::clone(&holding), taken.next_offset, taken.generation);
                let _ = desk.send(Parcel::Open(Opening { holding, from, generation, spilled }));
            }
            let key = (holding.origin.topic.to_string(), holding.origin.partition);
            self.shared.watched.hold(&self.workflow.id, &holding);
            debug!(
                workflow = %self.workflow.id, topic = %key.0, partition = key.1, offset = taken.next_offset,
                epoch = taken.epoch, "partition taken"
            );
            // Twice: a process may die of something else while a record is under suspicion.
            let suspected = taken.suspect_offset == Some(taken.next_offset) && taken.suspect_times >= 2;
            held.insert(
                key,
                Partition {
                    holding,
                    position: taken.next_offset,
                    passed_on: taken.next_offset,
                    position_is_own: false,
                    alone_until: (taken.taken_times >= 3).then_some(taken.next_offset),
                    convicted: suspected.then_some(taken.next_offset),
                    deaths: taken.taken_times - 1,
                    mark_era: taken.mark_era,
                },
            );
        }
        let total = held.len();
        drop(held);
        info!(workflow = %self.workflow.id, added = list.count(), total, "partitions assigned");
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let removed: Vec<Partition> = {
            let mut held = self.partitions();
            let keys = partitions.elements().into_iter().map(|e| (e.topic().to_owned(), e.partition()));
            keys.filter_map(|key| held.remove(&key)).collect()
        };
        // A member that was put out of its group no longer has the time, nor the right.
        match (&self.signals.direct, consumer.assignment_lost()) {
            (_, true) => removed.iter().for_each(|partition| partition.holding.lose()),
            (Some(desk), false) => self.finish_directly(consumer, desk, &removed),
            (None, false) => wait_until_stored(&removed),
        }
        self.give_up(removed);
        let result = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(partitions),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
        };
        if let Err(failure) = result {
            error!(workflow = %self.workflow.id, error = %failure, "librdkafka refused the revocation");
            self.set_trouble(Trouble::Rejoin);
        }
        // Whoever reads them from now on is to send what they have.
        self.signals.assigned.notify_one();
        info!(workflow = %self.workflow.id, removed = partitions.count(), "partitions revoked");
    }

    /// Ends holdings: their batches are dropped from now on, and their cursors are free for others.
    pub fn give_up(&self, removed: Vec<Partition>) {
        let mut ids: Vec<(CursorId, i64)> = Vec::new();
        for partition in removed {
            partition.holding.lose();
            self.shared.watched.let_go(&self.workflow.id, &partition.holding.origin);
            ids.push((partition.holding.cursor, partition.holding.epoch));
        }
        if ids.is_empty() {
            return;
        }
        let released = self.shared.runtime.block_on(async {
            let release = cursor::release(&self.shared.database, &ids, self.shared.process);
            tokio::time::timeout(DRAIN_LIMIT, release).await
        });
        if !matches!(released, Ok(Ok(()))) {
            // Whoever comes next takes them all the same; only the clean end is not on record.
            warn!(workflow = %self.workflow.id, "cursors could not be released");
        }
    }
}

fn wait_until_stored(partitions: &[Partition]) {
    let deadline = std::time::Instant::now() + DRAIN_LIMIT;
    let stored = |p: &Partition| p.holding.is_lost() || p.holding.stored_to() >= p.passed_on;
    while !partitions.iter().all(stored) && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(workflow = %self.workflow.id, ?level, facility, "librdkafka: {message}");
    }

    fn error(&self, failure: KafkaError, reason: &str) {
        match failure.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure) => {
                warn!(workflow = %self.workflow.id, reason, "waiting for Kafka");
            }
            _ => warn!(workflow = %self.workflow.id, error = %failure, reason, "Kafka reports an error"),
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, partitions),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => self.revoke(consumer, partitions),
            other => {
                error!(workflow = %self.workflow.id, code = ?other, "the group cannot agree on an assignment");
                self.revoke(consumer, partitions);
                self.set_trouble(Trouble::Rejoin);
            }
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(failure) = result {
            self.untold.store(true, Ordering::Release);
            debug!(workflow = %self.workflow.id, error = %failure, "an offset was not committed to Kafka");
        }
    }
}
