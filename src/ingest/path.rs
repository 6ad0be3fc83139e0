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
use crate::outbox::cursor::Known;
use crate::outbox::direct;
use crate::outbox::offsets;

const ASK_KAFKA: Duration = Duration::from_secs(5);

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
                direct::enter(self.database, known.id).await.map_err(Error::Outbox)?;
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
    pub(super) fn marked_before(&self, name: &str, topic: &Topic) -> Result<HashMap<i32, i64>, Error> {
        if !self.workflow.delivery.is_direct() {
            return Ok(HashMap::new());
        }
        let mut starts = HashMap::new();
        for (partition, mark) in self.marks(name, topic.partitions.iter().copied())? {
            if mark.topic_id == topic.id {
                starts.insert(partition, mark.offset);
                continue;
            }
            let start = offsets::after_loss(self.workflow.source.on_offset_loss, self.log(name, partition)?);
            let Some(start) = start else {
                return Err(Error::Halt(format!(
                    "topic `{name}` is another than the one whose offsets are marked in Kafka; `oncebox offsets set {} \
                     --to earliest` reads it from its beginning",
                    self.workflow.id
                )));
            };
            warn!(workflow = %self.workflow.id, topic = name, partition, start, "the topic was deleted and created again");
            starts.insert(partition, start);
        }
        Ok(starts)
    }

    fn marks(&self, name: &str, partitions: impl Iterator<Item = i32>) -> Result<HashMap<i32, Mark>, Error> {
        let wanted = partitions.map(|partition| (name.to_owned(), partition));
        let found = marks::fetch(self.consumer, wanted, ASK_KAFKA)
            .map_err(|source| Error::Marks { topic: name.to_owned(), source })?;
        Ok(found.into_iter().map(|((_, partition), mark)| (partition, mark)).collect())
    }
}
