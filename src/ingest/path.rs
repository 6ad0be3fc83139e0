//! Which way partitions are read, and from as far as they got on it: through the outbox the cursor is the truth, without it
//! the offset that is marked in Kafka, of which the cursor has a copy.
//!
//! What must hold: whatever a cursor has still to deliver is delivered after a switch, and nothing that was delivered or
//! stored is started from before the copy.

use std::collections::HashMap;
use std::time::Duration;

use tracing::{info, warn};

use super::assignment::{Error, Resolver};
use super::marks::{self, Mark};
use super::native::Topic;
use crate::event::CursorId;
use crate::outbox::cursor::{self, Known};
use crate::outbox::direct;
use crate::outbox::gap::GapReason;
use crate::outbox::offsets;

const ASK_KAFKA: Duration = Duration::from_secs(5);
/// How many events one step of a switch moves: a second's work for Postgres, and more than one record can make.
const AT_ONCE: i64 = 20_000;

impl Resolver<'_> {
    /// Brings the copies of assigned cursors up to date, and has each read the way that the workflow asks for.
    pub(super) async fn settle_path<'a>(
        &self,
        name: &str,
        topic: &Topic,
        cursors: impl Iterator<Item = &'a mut Known>,
    ) -> Result<(), Error> {
        let (mut direct, outbox): (Vec<&mut Known>, Vec<&mut Known>) = cursors.partition(|known| known.direct);
        self.catch_up(name, topic, &mut direct).await?;
        if self.workflow.delivery.is_direct() {
            for known in outbox {
                info!(workflow = %self.workflow.id, topic = name, partition = known.partition, "reading on without the outbox");
                while !direct::enter(self.database, known.id, AT_ONCE).await.map_err(Error::Outbox)? {}
            }
        } else if !direct.is_empty() {
            info!(workflow = %self.workflow.id, topic = name, partitions = direct.len(), "reading on through the outbox");
            let ids: Vec<CursorId> = direct.iter().map(|known| known.id).collect();
            direct::leave(self.database, &ids).await.map_err(Error::Outbox)?;
        }
        Ok(())
    }

    /// Moves copies up to what is marked in Kafka, where that can be believed.
    async fn catch_up(&self, name: &str, topic: &Topic, cursors: &mut [&mut Known]) -> Result<(), Error> {
        if cursors.is_empty() {
            return Ok(());
        }
        let lost: Vec<CursorId> = cursors.iter().filter(|known| known.failed_over).map(|known| known.id).collect();
        if !lost.is_empty() {
            warn!(
                workflow = %self.workflow.id, topic = name, partitions = lost.len(),
                "the database failed over: what was delivered since the last copies of the offsets is sent again"
            );
            direct::distrust_marks(self.database, &lost).await.map_err(Error::Outbox)?;
        }
        let found = self.marks(name, cursors.iter().map(|known| known.partition))?;
        let mut believed = Vec::new();
        for known in cursors.iter_mut().filter(|known| !known.failed_over) {
            let Some(mark) = found.get(&known.partition) else { continue };
            if mark.topic_id == topic.id && mark.era == known.mark_era && mark.offset > known.next_offset {
                known.next_offset = mark.offset;
                believed.push(direct::Mark { cursor: known.id, offset: mark.offset, era: mark.era });
            }
        }
        direct::catch_up(self.database, &believed).await.map_err(Error::Outbox)
    }

    /// Where partitions of a topic stand that no cursor is known of, because the database is new: what Kafka has then counts.
    /// Where that was marked in another topic of this name, the topic is one that was created again, as a whole.
    pub(super) async fn marked_before(&self, name: &str, topic: &Topic) -> Result<HashMap<i32, i64>, Error> {
        if !self.workflow.delivery.is_direct() {
            return Ok(HashMap::new());
        }
        let found = self.marks(name, topic.partitions.iter().copied())?;
        let (own, gone): (HashMap<i32, Mark>, HashMap<i32, Mark>) =
            found.into_iter().partition(|(_, mark)| mark.topic_id == topic.id);
        let mut starts: HashMap<i32, i64> = own.into_iter().map(|(partition, mark)| (partition, mark.offset)).collect();
        if gone.is_empty() {
            return Ok(starts);
        }
        self.note_gone(name, gone).await?;
        for partition in &topic.partitions {
            if starts.contains_key(partition) {
                continue;
            }
            let log = self.log(name, *partition)?;
            let Some(start) = offsets::after_loss(self.workflow.source.on_offset_loss, log) else {
                return Err(Error::Halt(format!(
                    "topic `{name}` is another than the one whose offsets are marked in Kafka; `oncebox offsets set {} \
                     --to earliest` reads it from its beginning",
                    self.workflow.id
                )));
            };
            warn!(workflow = %self.workflow.id, topic = name, partition, start, "the topic was deleted and created again");
            starts.insert(*partition, start);
        }
        Ok(starts)
    }

    /// A gap is on record at the cursor of the topic that is gone. This database has never known it, so it is made: from
    /// then on all is as if it had been known, also for whoever looks again after a halt, or after an end half way.
    async fn note_gone(&self, name: &str, marks: HashMap<i32, Mark>) -> Result<(), Error> {
        let mut left_at: HashMap<String, Vec<(i32, i64)>> = HashMap::new();
        for (partition, mark) in marks {
            left_at.entry(mark.topic_id).or_default().push((partition, mark.offset));
        }
        for (id, starts) in left_at {
            let gone = Topic { id, partitions: starts.iter().map(|(partition, _)| *partition).collect() };
            self.add(name, &gone, starts).await?;
            for partition in &gone.partitions {
                self.note(self.new_cursor(&gone, *partition), None, GapReason::TopicRecreated).await?;
            }
        }
        Ok(())
    }

    /// Cursors are of a cluster, by its name: under another name a workflow starts as if it had never read anything. Perhaps
    /// nobody meant that.
    pub(super) async fn tell_of_other_clusters(&self, name: &str) -> Result<(), Error> {
        let clusters = cursor::clusters(self.database, &self.workflow.id).await.map_err(Error::Outbox)?;
        if !clusters.is_empty() && !clusters.iter().any(|known| known.as_str() == &**self.cluster) {
            warn!(
                workflow = %self.workflow.id, topic = name, cluster = %self.cluster, before = clusters.join(", "),
                "this workflow's cursors are all of clusters of other names (kafka.cluster): none of them counts here"
            );
        }
        Ok(())
    }

    fn marks(&self, name: &str, partitions: impl Iterator<Item = i32>) -> Result<HashMap<i32, Mark>, Error> {
        let wanted = partitions.map(|partition| (name.to_owned(), partition));
        let found = marks::fetch(self.consumer, wanted, ASK_KAFKA)
            .map_err(|source| Error::Marks { topic: name.to_owned(), source })?;
        Ok(found.into_iter().map(|((_, partition), mark)| (partition, mark)).collect())
    }
}
