//! How far a consumer is: told to Kafka, and to cursors that no record moves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use tracing::{debug, warn};

use super::consumer::Loop;
use super::context::{Context, DRAIN_LIMIT, Partition};
use super::gather::Gathered;
use super::marks;
use crate::direct::{Closing, Desk, Parcel};
use crate::observe::chain;
use crate::outbox::batch::Holding;
use crate::outbox::direct::{self, Reached};

const TELL_EVERY: Duration = Duration::from_secs(1);
/// What is delivered and not marked is sent again after a crash.
const MARK_EVERY: Duration = Duration::from_millis(200);
const COPY_EVERY: Duration = Duration::from_secs(10);

impl Loop<'_> {
    pub(super) fn tell_progress(&mut self) {
        let is_direct = self.signals.direct.is_some();
        if self.told_at.elapsed() >= if is_direct { MARK_EVERY } else { TELL_EVERY } {
            self.told_at = Instant::now();
            self.pass_markers();
            self.commit();
        }
        if is_direct && self.copied_at.elapsed() >= COPY_EVERY {
            self.copied_at = Instant::now();
            self.copy();
        }
    }

    /// Tells Kafka how far is stored or, without the outbox, delivered. Only the latter is ever read back.
    pub(super) fn commit(&mut self) {
        if self.consumer.context().untold.swap(false, Ordering::AcqRel) {
            self.committed.clear();
        }
        let mut list = TopicPartitionList::new();
        for (key, partition) in self.consumer.context().partitions().iter() {
            let Partition { holding, mark_era, .. } = partition;
            let stored = holding.stored_to();
            if holding.is_lost() || self.committed.insert(key.clone(), stored) == Some(stored) {
                continue;
            }
            match self.signals.direct {
                Some(_) => marks::add(&mut list, &key.0, key.1, (&holding.origin.topic_id, *mark_era), stored),
                None => drop(list.add_partition_offset(&key.0, key.1, Offset::Offset(stored))),
            }
        }
        if list.count() > 0 {
            let _ = self.consumer.commit(&list, CommitMode::Async);
        }
    }

    /// Marks one partition, and waits until that is done. Only the direct path has marks.
    pub(super) fn mark_now(&self, key: &(String, i32)) {
        if self.signals.direct.is_none() {
            return;
        }
        let mut list = TopicPartitionList::new();
        if let Some(Partition { holding, mark_era, .. }) = self.consumer.context().partitions().get(key) {
            marks::add(&mut list, &key.0, key.1, (&holding.origin.topic_id, *mark_era), holding.stored_to());
        }
        if let Err(failure) = self.consumer.commit(&list, CommitMode::Sync) {
            warn!(workflow = %self.workflow.id, error = %failure, "an offset could not be marked in Kafka");
        }
    }

    /// Keeps a copy of the marked offsets, beside the loop: with Postgres away reading goes on.
    fn copy(&self) {
        let partitions = self.consumer.context().partitions();
        let held: Vec<Arc<Holding>> = partitions.values().map(|partition| Arc::clone(&partition.holding)).collect();
        drop(partitions);
        let (database, process, id) =
            (self.shared.database.clone(), self.shared.process, Arc::clone(&self.workflow.id));
        self.shared.runtime.spawn(async move {
            let reached = |holding: &Arc<Holding>| Reached {
                cursor: holding.cursor,
                epoch: holding.epoch,
                offset: holding.stored_to(),
            };
            let reached: Vec<Reached> = held.iter().filter(|holding| !holding.is_lost()).map(reached).collect();
            match direct::copy(&database, process, &reached).await {
                Ok(ours) => {
                    let lost = held.iter().filter(|holding| !ours.contains(&holding.cursor));
                    lost.for_each(|holding| holding.lose());
                }
                Err(failure) => {
                    debug!(workflow = %id, error = %chain(&failure), "no copy of the marked offsets could be kept");
                }
            }
        });
    }

    /// Moves cursors over the markers that end transactions. They are no records, so without this a topic of
    /// transactions would seem to lag by one for ever.
    ///
    /// librdkafka's own position is moved inside `poll` alone, by what was given out and by markers in between. Between
    /// two polls it is past our own position only by markers. It may still be that of an earlier assignment until a
    /// record came in, or until it was seen empty; before that it is not believed.
    fn pass_markers(&mut self) {
        let Ok(positions) = self.consumer.position() else { return };
        self.unheld = false;
        for element in positions.elements() {
            let key = (element.topic().to_owned(), element.partition());
            let mut partitions = self.consumer.context().partitions();
            let Some(partition) = partitions.get_mut(&key) else {
                self.unheld = true;
                continue;
            };
            let Offset::Offset(position) = element.offset() else {
                partition.position_is_own = true;
                continue;
            };
            if !partition.position_is_own || partition.holding.is_lost() || position <= partition.position {
                continue;
            }
            let expected = std::mem::replace(&mut partition.position, position);
            drop(partitions);
            self.pass_on(&key, Gathered { expected, next: position, records: Vec::new(), bytes: 0 });
        }
    }
}

impl Context {
    /// Waits for the requests under way, marks how far that went, and keeps a copy of it.
    pub(super) fn finish_directly(&self, consumer: &BaseConsumer<Self>, desk: &Desk, partitions: &[Partition]) {
        let (finished, all_finished) = std::sync::mpsc::channel();
        for partition in partitions.iter().filter(|partition| !partition.holding.is_lost()) {
            let closing = Closing { holding: Arc::clone(&partition.holding), finished: finished.clone() };
            let _ = desk.send(Parcel::Close(closing));
        }
        drop(finished);
        // Nothing is ever sent: it ends when the last window is dropped. One that is late is read again by the next owner.
        let _ = all_finished.recv_timeout(self.workflow.endpoint.timeout + DRAIN_LIMIT);
        let mut list = TopicPartitionList::new();
        let mut reached = Vec::new();
        for Partition { holding, mark_era, .. } in partitions.iter().filter(|p| !p.holding.is_lost()) {
            let (origin, offset) = (&holding.origin, holding.stored_to());
            marks::add(&mut list, &origin.topic, origin.partition, (&origin.topic_id, *mark_era), offset);
            reached.push(Reached { cursor: holding.cursor, epoch: holding.epoch, offset });
        }
        if reached.is_empty() {
            return;
        }
        if let Err(failure) = consumer.commit(&list, CommitMode::Sync) {
            warn!(workflow = %self.workflow.id, error = %failure, "offsets could not be marked in Kafka");
        }
        let copied = self.shared.runtime.block_on(async {
            let copy = direct::copy(&self.shared.database, self.shared.process, &reached);
            tokio::time::timeout(DRAIN_LIMIT, copy).await
        });
        if !matches!(copied, Ok(Ok(_))) {
            warn!(workflow = %self.workflow.id, "no copy of the marked offsets could be kept");
        }
    }
}
