//! The loop of one workflow's consumer: poll, and heed whatever asks it to pause, leave or come back.
//!
//! It keeps polling whatever happens, because a member that does not poll is put out of its group. Records of a
//! partition whose epoch is not held are dropped; they are read again by whoever holds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tracing::{error, info, warn};

use super::context::{Context, Partition, Trouble};
use super::{Shared, Signals, settings};
use crate::config::Workflow;
use crate::event::{Forbidden, Refusal};
use crate::observe::chain;
use crate::outbox::load::Pipeline;
use crate::outbox::{notify, workflow};

const POLL: Duration = Duration::from_millis(100);
/// Records of one turn; what is gathered is passed on at once when nothing more is there.
const MOST_RECORDS: usize = 1_000;
/// How long the deliveries are waited for before more is stored than they take.
const PACE_PATIENCE: Duration = Duration::from_millis(250);
const REJOIN_AFTER: Duration = Duration::from_secs(1);
/// A holding that was fenced is normally revoked soon; if not, all are taken anew.
const FENCED_PATIENCE: Duration = Duration::from_secs(2);
/// After this many errors in a row a batch is taken for corrupt.
const UNREADABLE_LIMIT: u32 = 3;
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

pub fn run(workflow: &Arc<Workflow>, shared: &Shared, signals: &Signals) {
    while !*signals.stopping.borrow() {
        let context = Context::new(workflow, shared, signals);
        let created: Result<BaseConsumer<Context>, KafkaError> =
            settings::consumer(&shared.kafka, &workflow.id, &shared.budget).create_with_context(context);
        match created {
            Ok(consumer) => Loop::new(workflow, shared, signals, consumer).run(),
            Err(failure) => {
                error!(workflow = %workflow.id, error = %failure, "the Kafka settings cannot be used");
                std::thread::sleep(REJOIN_AFTER);
            }
        }
    }
}

pub(super) struct Loop<'a> {
    pub(super) workflow: &'a Arc<Workflow>,
    pub(super) shared: &'a Shared,
    pub(super) signals: &'a Signals,
    pub(super) consumer: BaseConsumer<Context>,
    pub(super) pipeline: Arc<Pipeline>,
    subscribed: bool,
    /// It has left its group, and is not used again: librdkafka may put leaving off, and a new subscription calls it off.
    has_left: bool,
    /// A partition was assigned to this client and is not held here.
    pub(super) unheld: bool,
    paused: bool,
    pub(super) committed: HashMap<(String, i32), i64>,
    pub(super) told_at: Instant,
    pub(super) copied_at: Instant,
    fenced_since: Option<Instant>,
    /// Errors in a row about a batch that cannot be read.
    pub(super) unreadable: u32,
}

impl<'a> Loop<'a> {
    fn new(
        workflow: &'a Arc<Workflow>,
        shared: &'a Shared,
        signals: &'a Signals,
        consumer: BaseConsumer<Context>,
    ) -> Self {
        Self {
            workflow,
            shared,
            signals,
            consumer,
            pipeline: Pipeline::new(&shared.budget),
            subscribed: false,
            has_left: false,
            unheld: false,
            paused: false,
            committed: HashMap::new(),
            told_at: Instant::now(),
            copied_at: Instant::now(),
            fenced_since: None,
            unreadable: 0,
        }
    }

    /// Ends when the process stops, or when the consumer must be made anew.
    fn run(mut self) {
        while !*self.signals.stopping.borrow() {
            if self.consumer.client().fatal_error().is_some() {
                error!(workflow = %self.workflow.id, "Kafka's client gave up; making a new one");
                break;
            }
            if self.has_left && self.signals.reads() && !crate::mutant!("client-comes-back") {
                break;
            }
            self.follow_state();
            self.follow_pressure();
            self.poll();
            self.tell_progress();
            self.look_for_fenced();
            if let Some(trouble) = self.consumer.context().take_trouble() {
                self.cope(trouble);
            }
        }
        self.close();
    }

    fn follow_state(&mut self) {
        if self.signals.share.processes() == 0 {
            // Whether it is to read at all is known in a moment.
            return;
        }
        let reads = self.signals.reads();
        if reads && !self.subscribed && (!self.has_left || crate::mutant!("client-comes-back")) {
            match self.consumer.subscribe(&self.workflow.source.topics.subscription()) {
                Ok(()) => {
                    self.subscribed = true;
                    info!(workflow = %self.workflow.id, "joining the consumer group");
                }
                Err(failure) => warn!(workflow = %self.workflow.id, error = %failure, "subscribing failed"),
            }
        }
        if !reads {
            // There is nothing to join.
            self.signals.joining.done();
        }
        if !reads && self.subscribed {
            info!(workflow = %self.workflow.id, "not reading while halted, or while others do");
            self.leave();
        }
    }

    fn follow_pressure(&mut self) {
        let wanted = self.signals.pressure.load(Ordering::Acquire);
        // New partitions are not paused, so a pause is applied again whenever it is wanted.
        if self.consumer.context().assigned_anew.swap(false, Ordering::AcqRel) {
            self.paused = false;
        }
        if wanted || (self.paused && self.pipeline.wait_for_room(Duration::ZERO)) {
            self.set_paused(wanted);
        }
    }

    fn set_paused(&mut self, paused: bool) {
        let Ok(assignment) = self.consumer.assignment() else { return };
        let result = if paused { self.consumer.pause(&assignment) } else { self.consumer.resume(&assignment) };
        if result.is_ok() {
            self.paused = paused;
        }
    }

    /// One turn: waits for a first record, takes what else is there, passes it on.
    fn poll(&mut self) {
        // A short wait is cheaper than a pause, which throws prefetched records away.
        if !self.paused && !self.pipeline.wait_for_room(Duration::from_millis(200)) {
            self.set_paused(true);
            // One that slipped through before the pause is taken like any other.
            self.gather_and_pass_on(Duration::ZERO, 1);
            let room = self.pipeline.wait_for_room(Duration::from_millis(500));
            if room && !self.signals.pressure.load(Ordering::Acquire) {
                self.set_paused(false);
            }
            return;
        }
        // Without the outbox nothing is read back.
        let records = match self.signals.direct.is_some() {
            true => MOST_RECORDS,
            false => self.signals.pace.wait(|| self.pipeline.records(), PACE_PATIENCE, MOST_RECORDS),
        };
        self.gather_and_pass_on(POLL, records);
    }

    pub(super) fn heed(&mut self, failure: &KafkaError) {
        match failure.rdkafka_error_code() {
            // The stored offset is not in the log. Assigning again finds out why and does what onOffsetLoss says.
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                warn!(workflow = %self.workflow.id, "an offset is not in the log any more");
                self.consumer.context().set_trouble(Trouble::Rejoin);
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                warn!(workflow = %self.workflow.id, error = %failure, "waiting for the topic");
            }
            // A checksum or a compression that does not fit. Reading it again may help; skipping it would be a loss.
            Some(
                RDKafkaErrorCode::BadMessage | RDKafkaErrorCode::BadCompression | RDKafkaErrorCode::InvalidMessage,
            ) => {
                warn!(workflow = %self.workflow.id, error = %failure, "a batch of records cannot be read");
                self.unreadable += 1;
                if self.unreadable >= UNREADABLE_LIMIT {
                    self.unreadable = 0;
                    let reason = format!("Kafka returns a batch of records that cannot be read: {failure}");
                    self.consumer.context().set_trouble(Trouble::Halt(reason));
                }
            }
            // librdkafka goes on asking: nothing is to be done here once somebody grants it.
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                let group = format!("{}.{}", self.shared.kafka.group_prefix, self.workflow.id);
                self.refused(Forbidden::Group, &format!("Kafka forbids the group `{group}`: it needs Read on it"));
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                self.refused(Forbidden::Topic, "Kafka forbids a topic: it needs Read and Describe on it");
            }
            Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown) => {}
            _ => warn!(workflow = %self.workflow.id, error = %failure, "Kafka reports an error"),
        }
    }

    /// Said once: it is shown until it is over. The other workflows go on, and the process is ready without this one.
    fn refused(&self, forbidden: Forbidden, reason: &str) {
        let refusal = Refusal { forbidden, reason: reason.to_owned(), since: jiff::Timestamp::now() };
        if self.signals.joining.refuse(refusal) {
            error!(workflow = %self.workflow.id, reason, "nothing is read until Kafka permits it");
        }
    }

    fn look_for_fenced(&mut self) {
        if self.has_left {
            return;
        }
        let changed = self.shared.watched.take_changed(&self.workflow.id);
        let fenced = self.unheld || self.consumer.context().partitions().values().any(|p| p.holding.is_lost());
        if changed {
            self.consumer.context().set_trouble(Trouble::Rejoin);
        }
        match (fenced, self.fenced_since) {
            (true, None) => self.fenced_since = Some(Instant::now()),
            (true, Some(since)) if since.elapsed() > FENCED_PATIENCE => {
                self.fenced_since = None;
                self.consumer.context().set_trouble(Trouble::Rejoin);
            }
            (true, Some(_)) => {}
            (false, _) => self.fenced_since = None,
        }
    }

    fn cope(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Rejoin => {
                self.leave();
                std::thread::sleep(REJOIN_AFTER);
            }
            Trouble::Halt(reason) => {
                self.leave();
                self.halt(&reason);
            }
        }
    }

    fn halt(&self, reason: &str) {
        error!(workflow = %self.workflow.id, reason, "halted: reading stops until an operator decides");
        let database = &self.shared.database;
        let written = self.shared.runtime.block_on(workflow::halt(database, &self.workflow.id, reason));
        if let Err(failure) = written {
            warn!(workflow = %self.workflow.id, error = %chain(&failure), "writing the halt failed; trying again");
        }
        let _ = self.shared.runtime.block_on(notify::tell(database, &self.workflow.id));
        std::thread::sleep(REJOIN_AFTER);
    }

    /// Leaves the group and gives every partition up. Whoever comes back does so with a new client.
    fn leave(&mut self) {
        self.consumer.unsubscribe();
        (self.subscribed, self.has_left) = (false, true);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && self.consumer.assignment().is_ok_and(|list| list.count() > 0) {
            let _ = self.consumer.poll(Duration::from_millis(50));
        }
        let left: Vec<Partition> = self.consumer.context().partitions().drain().map(|(_, p)| p).collect();
        self.consumer.context().give_up(left);
    }

    /// Stores what was read, then leaves. Closing can hang inside librdkafka, so it gets a deadline.
    fn close(mut self) {
        if !self.has_left {
            self.set_paused(true);
            // Without the outbox what was not started is not waited for: it is read again.
            if self.signals.direct.is_none() {
                self.pipeline.wait_until_empty(Duration::from_secs(5));
            }
            self.commit();
            self.leave();
        }
        let (done, closed) = std::sync::mpsc::channel();
        let consumer = self.consumer;
        std::thread::spawn(move || {
            drop(consumer);
            let _ = done.send(());
        });
        if closed.recv_timeout(CLOSE_LIMIT).is_err() {
            warn!(workflow = %self.workflow.id, "Kafka's client did not close in time; leaving it");
        }
    }
}
