//! How far a consumer is: told to Kafka, and to cursors that no record moves.

use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::consumer::Loop;
use super::gather::Gathered;

const TELL_EVERY: Duration = Duration::from_secs(1);

impl Loop<'_> {
    pub(super) fn tell_progress(&mut self) {
        if self.told_at.elapsed() >= TELL_EVERY {
            self.told_at = Instant::now();
            self.pass_markers();
            self.commit();
        }
    }

    /// Tells Kafka how far is stored, for the operators' lag tools. Never read back.
    pub(super) fn commit(&mut self) {
        let mut list = TopicPartitionList::new();
        for (key, partition) in self.consumer.context().partitions().iter() {
            let stored = partition.holding.stored_to();
            if self.committed.insert(key.clone(), stored) != Some(stored) {
                let _ = list.add_partition_offset(&key.0, key.1, Offset::Offset(stored));
            }
        }
        if list.count() > 0 {
            let _ = self.consumer.commit(&list, CommitMode::Async);
        }
    }

    /// Moves cursors over the markers that end transactions. They are no records, so without this a topic of
    /// transactions would seem to lag by one for ever.
    ///
    /// librdkafka's own position is moved inside `poll` alone, by what was given out and by markers in between. Between
    /// two polls it is past our own position only by markers. It may still be that of an earlier assignment until a
    /// record came in, or until it was seen empty; before that it is not believed.
    fn pass_markers(&self) {
        let Ok(positions) = self.consumer.position() else { return };
        for element in positions.elements() {
            let key = (element.topic().to_owned(), element.partition());
            let mut partitions = self.consumer.context().partitions();
            let Some(partition) = partitions.get_mut(&key) else { continue };
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
