//! Enters: batches of all partitions of this process. Leaves: commits, and hand-offs to the relay.
//!
//! One writer merges whatever queued while the last commit ran into one statement: group commit without a timer. A
//! batch is kept until its outcome is known: stored, or fenced. Batches of one partition are written in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tracing::{error, warn};

use super::append::{self, Resolved, Stored};
use super::batch::{Batch, Holding};
use super::handoff::{Desks, HandOff};
use super::notify::Bell;
use super::{Database, Error, delivery};
use crate::event::{CursorId, Draft, Event, Filed, ProcessId, Reason};
use crate::observe::Metrics;

const MOST_EVENTS: usize = 1_000;
const MOST_BYTES: usize = 16 << 20;
/// How long batches that are being made are waited for: one large statement costs less than two small ones. Not waiting while
/// statements are small was tried: at 5,000/s so many more were sent that the median rose from 3 to 6 ms.
const GATHER: Duration = Duration::from_millis(2);

/// Batches that are being made for the writer and are not in its queue yet.
pub type Coming = Arc<AtomicUsize>;

pub struct Writer {
    pub database: Database,
    pub process: ProcessId,
    pub desks: Desks,
    pub metrics: Arc<Metrics>,
    pub coming: Coming,
    /// Where to tell that events wait that another process is to send.
    pub bell: Bell,
    /// Where to tell that a workflow must halt.
    pub halts: UnboundedSender<(Arc<Holding>, String)>,
}

impl Writer {
    /// Runs until every sender is gone, so that what was read is stored before the process ends.
    pub async fn run(self, mut queue: Receiver<Batch>) {
        while let Some(first) = queue.recv().await {
            let mut merged = Merged::default();
            merged.add(first);
            self.gather(&mut queue, &mut merged).await;
            self.store(merged.batches).await;
        }
    }

    /// Adds what has queued, and what is about to.
    async fn gather(&self, queue: &mut Receiver<Batch>, merged: &mut Merged) {
        let deadline = tokio::time::Instant::now() + GATHER;
        while merged.has_room() {
            let next = match queue.try_recv() {
                Ok(batch) => Some(batch),
                Err(_) if self.coming.load(Ordering::Acquire) == 0 => None,
                Err(_) => tokio::time::timeout_at(deadline, queue.recv()).await.ok().flatten(),
            };
            let Some(batch) = next else { return };
            merged.add(batch);
        }
    }

    /// Tries until each batch is stored or fenced. Waiting here is the backpressure when Postgres is away.
    async fn store(&self, mut batches: Vec<Batch>) {
        let mut delays = pauses();
        loop {
            batches.retain(|batch| !batch.holding.is_lost());
            if batches.is_empty() {
                return;
            }
            crate::failpoint!("ingest.before_commit");
            let claims = self.claims(&batches);
            match append::append(&self.database, self.process, &batches, &claims).await {
                Ok(stored) => {
                    crate::failpoint!("ingest.after_commit");
                    for batch in batches {
                        match stored.get(&batch.holding.cursor) {
                            Some(stored) => self.stored(batch, stored, &claims),
                            None => self.fenced(&batch),
                        }
                    }
                    return;
                }
                Err(error) if error.is_about_data() && batches.len() > 1 => {
                    // One of them; each alone shows which.
                    for batch in batches {
                        Box::pin(self.store(vec![batch])).await;
                    }
                    return;
                }
                Err(error) if error.is_about_data() => {
                    let batch = batches.swap_remove(0);
                    let reason = format!(
                        "a record of {}/{} from {} to {} cannot be stored: {}",
                        batch.holding.origin.topic,
                        batch.holding.origin.partition,
                        batch.expected,
                        batch.next - 1,
                        crate::observe::chain(&error)
                    );
                    batch.holding.lose();
                    let _ = self.halts.send((Arc::clone(&batch.holding), reason));
                    return;
                }
                Err(error) => {
                    self.complain(&error, &batches);
                    if crate::mutant!("failed-commit-taken-for-made") {
                        batches.iter().for_each(|batch| batch.holding.note_stored(batch.next));
                        return;
                    }
                    let pause = delays.next().unwrap_or(Duration::from_secs(5));
                    tokio::time::sleep(pause).await;
                    batches = self.resolve(batches, &claims).await;
                }
            }
        }
    }

    /// Which batches may be claimed with the append: those whose delivery this process holds, with room.
    fn claims(&self, batches: &[Batch]) -> HashMap<CursorId, i64> {
        let desk = |batch: &Batch| {
            let desk = self.desks.get(batch.holding.cursor).filter(|desk| desk.has_room())?;
            Some((batch.holding.cursor, desk.epoch))
        };
        batches.iter().filter_map(desk).collect()
    }

    fn stored(&self, mut batch: Batch, stored: &Stored, claims: &HashMap<CursorId, i64>) {
        batch.holding.note_stored(batch.next);
        if !stored.suppressed.is_empty() {
            batch.drafts.retain(|draft| !stored.suppressed.contains(&(draft.offset, draft.index)));
            let metrics = self.metrics.of(&batch.holding.workflow.id);
            metrics.duplicates_suppressed.inc_by(stored.suppressed.len() as u64);
        }
        self.count(&batch);
        if !stored.scheduled.is_empty() {
            batch.drafts.retain(|draft| !stored.scheduled.contains(&(draft.offset, draft.index)));
        }
        let metrics = self.metrics.of(&batch.holding.workflow.id);
        metrics.dead_lettered(Reason::Duplicate).inc_by(stored.duplicates);
        let Some(desk) = self.desks.get(batch.holding.cursor) else {
            if !batch.drafts.is_empty() {
                let _ = self.bell.send((Arc::clone(&batch.holding.workflow.id), batch.holding.cursor));
            }
            return;
        };
        if batch.holding.workflow.delivery.unique.is_some() {
            desk.tell_due();
        }
        let claimed_under = claims.get(&batch.holding.cursor).filter(|_| stored.claimed);
        match claimed_under {
            Some(epoch) => {
                let hand_off = HandOff {
                    cursor: batch.holding.cursor,
                    epoch: *epoch,
                    from: batch.expected,
                    to: batch.next,
                    events: events(batch, stored),
                };
                desk.hand_off(hand_off);
            }
            None => desk.tell_waiting(batch.holding.cursor),
        }
    }

    /// A batch that was committed without our knowing may be claimed too. It was never handed off, so never sent: the
    /// claim is given back, and the relay finds the events waiting. Should this fail, they are found in doubt.
    async fn unclaim(&self, batch: &Batch, claims: &HashMap<CursorId, i64>) {
        let cursor = batch.holding.cursor;
        if let Some(epoch) = claims.get(&cursor)
            && let Err(error) = delivery::give_back(&self.database, cursor, *epoch, batch.expected).await
        {
            warn!(error = %crate::observe::chain(&error), "giving back a claim failed");
        }
        if let Some(desk) = self.desks.get(cursor) {
            desk.tell_waiting(cursor);
        }
    }

    fn fenced(&self, batch: &Batch) {
        // It may have been stored and claimed by an earlier try whose commit came late: the relay is to look.
        if let Some(desk) = self.desks.get(batch.holding.cursor) {
            desk.tell_waiting(batch.holding.cursor);
        }
        if batch.holding.is_lost() {
            // Given up before the answer came: nothing of it was meant to be stored any more.
            return;
        }
        batch.holding.lose();
        self.metrics.of(&batch.holding.workflow.id).fenced_writes.inc();
        warn!(
            workflow = %batch.holding.workflow.id, topic = %batch.holding.origin.topic,
            partition = batch.holding.origin.partition, expected = batch.expected,
            "fenced: the cursor has another owner or stands elsewhere; nothing was stored"
        );
    }

    fn count(&self, batch: &Batch) {
        let metrics = self.metrics.of(&batch.holding.workflow.id);
        let records = batch.filtered.len() + batch.tombstones.len();
        metrics.ingested.inc_by(batch.drafts.len() as u64);
        metrics.filtered.inc_by(records as u64);
        for dead in &batch.dead {
            metrics.dead_lettered(dead.reason).inc();
        }
    }

    fn complain(&self, error: &Error, batches: &[Batch]) {
        let events: usize = batches.iter().map(|b| b.drafts.len()).sum();
        let report = crate::observe::chain(error);
        if error.may_pass() {
            warn!(partitions = batches.len(), events, error = %report, "storing failed; trying again");
        } else {
            error!(partitions = batches.len(), events, error = %report, "storing failed; trying again");
        }
    }

    /// After a failure the outcome is unknown: the cursors tell. What is not committed is returned for another try.
    async fn resolve(&self, batches: Vec<Batch>, claims: &HashMap<CursorId, i64>) -> Vec<Batch> {
        let mut delays = pauses();
        let answers = loop {
            match append::resolve(&self.database, self.process, &batches).await {
                Ok(answers) => break answers,
                Err(error) => {
                    self.complain(&error, &batches);
                    tokio::time::sleep(delays.next().unwrap_or(Duration::from_secs(5))).await;
                }
            }
        };
        let mut again = Vec::new();
        for batch in batches {
            match answers.get(&batch.holding.cursor) {
                Some(Resolved::NotCommitted) => again.push(batch),
                Some(Resolved::Committed) => {
                    batch.holding.note_stored(batch.next);
                    self.count(&batch);
                    self.unclaim(&batch, claims).await;
                }
                Some(Resolved::Fenced) | None => self.fenced(&batch),
            }
        }
        again
    }
}

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times()
        .with_jitter()
        .build()
}

fn events(batch: Batch, stored: &Stored) -> Vec<Event> {
    let (origin, cursor) = (&batch.holding.origin, batch.holding.cursor);
    let stored_at = jiff::Timestamp::now().as_microsecond();
    let filed = Filed { generation: stored.generation, day: stored.day, stored_at };
    let event = |draft: Draft| draft.into_event(cursor, &origin.topic, origin.partition, filed);
    batch.drafts.into_iter().map(event).collect()
}

/// Batches of several partitions on their way into one statement; one per partition.
#[derive(Default)]
struct Merged {
    batches: Vec<Batch>,
    events: usize,
    bytes: usize,
}

impl Merged {
    fn add(&mut self, batch: Batch) {
        if batch.holding.is_lost() {
            return;
        }
        self.events += batch.drafts.len() + batch.dead.len();
        self.bytes += batch.bytes();
        match self.batches.iter_mut().find(|b| Arc::ptr_eq(&b.holding, &batch.holding)) {
            Some(earlier) => earlier.extend(batch),
            None => self.batches.push(batch),
        }
    }

    fn has_room(&self) -> bool {
        self.events < MOST_EVENTS && self.bytes < MOST_BYTES
    }
}
