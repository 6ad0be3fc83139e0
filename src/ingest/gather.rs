//! Gathers consecutive records per partition and passes them to the workers.
//!
//! What must hold: a batch says where it begins and where it ends, and the next one begins there; nothing between two
//! records is passed over unsaid.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::message::{BorrowedMessage, Message};
use tracing::{info, warn};

use super::consumer::Loop;
use super::context::{Context, Trouble};
use super::native;
use super::workers::Unread;
use crate::event::{Forbidden, Record};
use crate::observe::chain;
use crate::outbox::cursor;

const MOST_BYTES: usize = 8 << 20;

/// Consecutive records of one partition, being gathered.
pub(super) struct Gathered {
    pub expected: i64,
    pub next: i64,
    pub records: Vec<Record>,
    pub bytes: usize,
}

impl Loop<'_> {
    pub(super) fn gather_and_pass_on(&mut self, mut patience: Duration, most_records: usize) {
        let mut gathered: HashMap<(String, i32), Gathered> = HashMap::new();
        // Records come in runs of one partition.
        let mut key = (String::new(), 0);
        let (mut records, mut bytes) = (0, 0);
        while records < most_records && bytes < MOST_BYTES {
            match self.consumer.poll(patience) {
                None => break,
                Some(Ok(message)) => {
                    self.unreadable = 0;
                    self.consumer.context().permitted(&Forbidden::ALL);
                    records += 1;
                    if (key.0.as_str(), key.1) != (message.topic(), message.partition()) {
                        key = (message.topic().to_owned(), message.partition());
                    }
                    bytes += gather(self.consumer.context(), &key, &message, &mut gathered);
                }
                Some(Err(failure)) => {
                    self.heed(&failure);
                    break;
                }
            }
            patience = Duration::ZERO;
        }
        crate::failpoint!("ingest.after_poll");
        for (key, batch) in gathered {
            self.pass_on(&key, batch);
        }
    }

    /// Hands a batch to the workers; alone and noted, when the partition is under suspicion.
    pub(super) fn pass_on(&self, key: &(String, i32), batch: Gathered) {
        let mut partitions = self.consumer.context().partitions();
        let Some(partition) = partitions.get_mut(key) else { return };
        partition.passed_on = batch.next;
        let (holding, alone, convicted, deaths) =
            (Arc::clone(&partition.holding), partition.alone_until, partition.convicted, partition.deaths);
        drop(partitions);
        if batch.records.is_empty() || alone.is_none_or(|until| batch.expected > until) {
            let load = self.pipeline.add(batch.records.len(), batch.bytes);
            let Gathered { expected, next, records, .. } = batch;
            let (convicted, cleared, direct) = (None, None, self.signals.direct.clone());
            self.shared.workers.read(Unread { holding, expected, next, records, convicted, cleared, direct, load });
            return;
        }
        let mut expected = batch.expected;
        for record in batch.records {
            // What is left of the batch is read again by whoever comes next.
            if holding.is_lost() || *self.signals.stopping.borrow() {
                return;
            }
            let (offset, next) = (record.offset, record.offset + 1);
            let note =
                cursor::suspect(&self.shared.database, (holding.cursor, holding.epoch), self.shared.process, expected);
            if let Err(failure) = self.shared.runtime.block_on(note) {
                warn!(workflow = %self.workflow.id, error = %chain(&failure), "noting a suspect record failed");
                self.consumer.context().set_trouble(Trouble::Rejoin);
                return;
            }
            let load = self.pipeline.add(1, record.bytes());
            let convicted = convicted.filter(|at| *at == expected).map(|_| deaths);
            let (suspected, cleared) = std::sync::mpsc::channel();
            let unread = Unread {
                holding: Arc::clone(&holding),
                expected,
                next,
                records: vec![record],
                convicted,
                cleared: Some(cleared),
                direct: self.signals.direct.clone(),
                load,
            };
            self.shared.workers.read(unread);
            let goes_on = || !holding.is_lost() && !*self.signals.stopping.borrow();
            while holding.transformed_to() < next && goes_on() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // From here on the process may die of anything else. Should this fail, the record is only suspected longer.
            let clear = cursor::clear(&self.shared.database, (holding.cursor, holding.epoch), self.shared.process);
            if let Err(failure) = self.shared.runtime.block_on(clear) {
                warn!(workflow = %self.workflow.id, error = %chain(&failure), "ending a suspicion failed");
            }
            drop::<std::sync::mpsc::Sender<()>>(suspected);
            let began = Instant::now();
            // Without the outbox that takes as long as the endpoint does: not waited for beyond one attempt.
            let patient = || self.signals.direct.is_none() || began.elapsed() < self.workflow.endpoint.timeout;
            while holding.stored_to() < next && goes_on() && patient() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Marked before the next one is read: should that one kill, it is the first that is read again.
            self.mark_now(key);
            info!(workflow = %self.workflow.id, topic = %key.0, partition = key.1, offset, "read a suspect record alone");
            expected = next;
        }
    }
}

/// Adds a message to its partition's batch. Answers its size; nothing for a record that is not ours to read.
fn gather(
    context: &Context,
    key: &(String, i32),
    message: &BorrowedMessage<'_>,
    gathered: &mut HashMap<(String, i32), Gathered>,
) -> usize {
    let mut partitions = context.partitions();
    let Some(partition) = partitions.get_mut(key) else { return 0 };
    let offset = message.offset();
    if partition.holding.is_lost() || offset < partition.position {
        return 0;
    }
    let record = Record {
        offset,
        timestamp: message.timestamp().to_millis().filter(|millis| *millis >= 0),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: native::headers(message),
    };
    let bytes = record.bytes();
    let expected = partition.position;
    partition.position = offset + 1;
    partition.position_is_own = true;
    if !gathered.contains_key(key) {
        gathered.insert(key.clone(), Gathered { expected, next: expected, records: Vec::new(), bytes: 0 });
    }
    let batch = gathered.get_mut(key).expect("it was just put there");
    batch.next = offset + 1;
    batch.bytes += bytes;
    batch.records.push(record);
    bytes
}
