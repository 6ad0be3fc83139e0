//! Enters: verdicts on attempts, of all workflows. Leaves: committed outcomes, and word of each to its dispatcher.
//!
//! Two queues, so that a burst of failures cannot hold up deliveries. Each takes what queued while its last commit ran.
//! Nothing is given up: with Postgres away outcomes wait here, bounded by what may be in flight.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tracing::warn;

use super::persist::until_done;
use super::word::{Committed, LaneIs, Reply, Words};
use crate::event::{Lane, Place, ProcessId};
use crate::observe::seldom::Seldom;
use crate::observe::{Metrics, WorkflowMetrics};
use crate::outbox::attempt::{EventRef, Right};
use crate::outbox::failure::{self, Failure};
use crate::outbox::lane::{self, Behind};
use crate::outbox::park::{self, Death, Parked};
use crate::outbox::settle::{self, Completion, Settled};
use crate::outbox::spill::{Burial, Spill};
use crate::outbox::{Database, notify};

const MOST_AT_ONCE: usize = 1_000;
/// How long deliveries that nothing waits for are gathered: few large statements cost a fraction of many small ones.
const GATHER: Duration = Duration::from_millis(10);

pub struct Delivered {
    pub metrics: Arc<WorkflowMetrics>,
    pub completion: Completion,
    pub answered_at: Instant,
    /// Whether something waits for it to be written down.
    pub is_awaited: bool,
    pub reply: Reply,
}

pub enum Undelivered {
    Waits(Failure, Reply),
    Dies(Death, Reply),
    /// Not sent: its lane is busy.
    Behind(Behind, Reply),
    /// Of the direct path.
    Spills(Box<Spill>, Reply),
    Buries(Burial, Reply),
}

impl Undelivered {
    pub(super) fn lane(&self) -> Option<Lane> {
        match self {
            Self::Waits(failure, _) => failure.event.lane,
            Self::Dies(death, _) => death.event.lane,
            Self::Behind(behind, _) => behind.event.lane,
            Self::Spills(..) | Self::Buries(..) => None,
        }
    }
}

/// The senders of both queues. Cheap to clone.
#[derive(Clone)]
pub struct Settler {
    delivered: UnboundedSender<Delivered>,
    undelivered: UnboundedSender<Undelivered>,
}

#[derive(Clone)]
pub(super) struct Desk {
    pub(super) database: Database,
    pub(super) process: ProcessId,
    pub(super) metrics: Arc<Metrics>,
    /// For one outcome that Postgres refuses together with others: it holds up nobody.
    pub(super) is_alone: bool,
    /// Dead letters are not each a line of the log.
    said: Arc<Seldom>,
}

impl Settler {
    /// Starts both queues. They end when every sender is gone and all is written.
    pub fn start(
        database: &Database,
        process: ProcessId,
        metrics: &Arc<Metrics>,
    ) -> (Self, [tokio::task::JoinHandle<()>; 2]) {
        let desk = || {
            let (database, metrics) = (database.clone(), Arc::clone(metrics));
            Desk { database, process, metrics, is_alone: false, said: Arc::default() }
        };
        let (delivered, completions) = unbounded_channel();
        let (undelivered, exceptions) = unbounded_channel();
        let tasks = [tokio::spawn(desk().complete(completions)), tokio::spawn(desk().except(exceptions))];
        (Self { delivered, undelivered }, tasks)
    }

    pub fn delivered(&self, item: Delivered) {
        // The queues outlive every dispatcher.
        let _ = self.delivered.send(item);
    }

    pub fn undelivered(&self, item: Undelivered) {
        let _ = self.undelivered.send(item);
    }
}

impl Desk {
    pub(super) async fn complete(self, mut queue: UnboundedReceiver<Delivered>) {
        let (mut batch, mut apart) = (Vec::new(), JoinSet::new());
        while queue.recv_many(&mut batch, MOST_AT_ONCE).await > 0 {
            gather(&mut queue, &mut batch).await;
            crate::failpoint!("settle.before");
            let completions: Vec<Completion> = batch.iter().map(|item| item.completion.clone()).collect();
            let mut words = Words::default();
            let settle = || settle::completed(&self.database, self.process, &completions);
            let Some(settled) = self.together("settling deliveries", settle).await else {
                self.deliver_apart(batch.drain(..), &mut apart);
                continue;
            };
            crate::failpoint!("settle.after");
            let too_late = self.note_late(&completions, &settled).await;
            for (item, settled) in batch.drain(..).zip(settled) {
                let (place, metrics) = (item.completion.event.place, &item.metrics);
                match settled {
                    Settled::Recorded => metrics.delivered.inc(),
                    Settled::Late => {
                        metrics.delivered.inc();
                        metrics.late_acks.inc();
                    }
                    Settled::AlreadyDone if too_late.contains(&place) => metrics.late_acks.inc(),
                    Settled::AlreadyDone => {}
                }
                metrics.settle_stage.observe(item.answered_at.elapsed().as_secs_f64());
                let committed = Committed {
                    place,
                    right: item.completion.right,
                    due_in: None,
                    is_ours: settled == Settled::Recorded,
                    lane: item.completion.event.lane,
                    lane_is: LaneIs::Free,
                };
                words.add(item.reply, committed);
            }
            words.say();
        }
        while apart.join_next().await.is_some() {}
    }

    /// An answer that came after its event was given up or cancelled changes nothing, but whoever thinks of a replay should know. One
    /// that came after its event was taken over leaves nothing for anybody to decide. Answers which came too late to change anything.
    async fn note_late(&self, completions: &[Completion], settled: &[Settled]) -> HashSet<Place> {
        let of = |kinds: &[Settled]| -> Vec<EventRef> {
            let each = completions.iter().zip(settled);
            each.filter(|(_, settled)| kinds.contains(settled)).map(|(c, _)| c.event.clone()).collect()
        };
        let ended_before = of(&[Settled::AlreadyDone]);
        let too_late = match ended_before.is_empty() {
            true => HashSet::new(),
            false => until_done("noting late answers", || settle::note_late(&self.database, &ended_before)).await,
        };
        let late = of(&[Settled::Late, Settled::AlreadyDone]);
        if !late.is_empty() && !crate::mutant!("late-answers-leave-held-events") {
            until_done("clearing what late answers ended", || settle::clear_done(&self.database, &late)).await;
        }
        too_late
    }

    pub(super) async fn except(self, mut queue: UnboundedReceiver<Undelivered>) {
        let (mut batch, mut apart) = (Vec::new(), JoinSet::new());
        while queue.recv_many(&mut batch, MOST_AT_ONCE).await > 0 {
            if self.record(&batch).await.is_none() {
                self.except_apart(batch.drain(..), &mut apart).await;
                continue;
            }
            let (mut waiting, mut dying) = (Vec::new(), Vec::new());
            let (mut spilling, mut burying, mut behind) = (Vec::new(), Vec::new(), Vec::new());
            for item in batch.drain(..) {
                match item {
                    Undelivered::Waits(failure, reply) => waiting.push((failure, reply)),
                    Undelivered::Dies(death, reply) => dying.push((death, reply)),
                    Undelivered::Behind(one, reply) => behind.push((one, reply)),
                    Undelivered::Spills(spill, reply) => spilling.push((*spill, reply)),
                    Undelivered::Buries(burial, reply) => burying.push((burial, reply)),
                }
            }
            self.wait(waiting, &mut apart).await;
            self.put_behind(behind, &mut apart).await;
            for (death, reply) in dying {
                match self.park(&death).await {
                    Some(committed) => {
                        let _ = reply.send(vec![committed]);
                    }
                    None => self.except_apart([Undelivered::Dies(death, reply)], &mut apart).await,
                }
            }
            self.spill(spilling, &mut apart).await;
            self.bury(burying, &mut apart).await;
        }
        while apart.join_next().await.is_some() {}
    }

    /// What the attempts saw comes first, so that a dead letter has its last attempt.
    async fn record(&self, batch: &[Undelivered]) -> Option<()> {
        self.together("recording attempts", || {
            let attempts = batch.iter().filter_map(|item| match item {
                Undelivered::Waits(failure, _) => {
                    failure.attempt.as_ref().map(|attempt| (&failure.event, failure.sends, failure.right, attempt))
                }
                Undelivered::Dies(death, _) => {
                    death.attempt.as_ref().map(|attempt| (&death.event, death.sends, death.right, attempt))
                }
                Undelivered::Behind(..) | Undelivered::Spills(..) | Undelivered::Buries(..) => None,
            });
            failure::record_attempts(&self.database, attempts.collect::<Vec<_>>())
        })
        .await
    }

    async fn wait(&self, batch: Vec<(Failure, Reply)>, apart: &mut JoinSet<()>) {
        if batch.is_empty() {
            return;
        }
        crate::failpoint!("settle.failure");
        let failures: Vec<Failure> = batch.iter().map(|(failure, _)| failure.clone()).collect();
        let fail = || failure::failed(&self.database, self.process, &failures);
        let Some(written) = self.together("settling failures", fail).await else {
            let items = batch.into_iter().map(|(failure, reply)| Undelivered::Waits(failure, reply));
            return self.except_apart(items, apart).await;
        };
        let mut words = Words::default();
        for (failure, reply) in batch {
            let place = failure.event.place;
            let is_ours = written.contains(&place);
            if !is_ours {
                self.metrics.of(&failure.workflow).fenced_writes.inc();
                warn!(workflow = %failure.workflow, event = %place, "fenced: a failure came after its lease was lost");
            }
            let due_in = failure.next.due_in().filter(|_| is_ours);
            let lane = failure.event.lane;
            let lane_is = LaneIs::Stored;
            words.add(reply, Committed { place, right: failure.right, due_in, is_ours, lane, lane_is });
        }
        words.say();
    }

    async fn put_behind(&self, batch: Vec<(Behind, Reply)>, apart: &mut JoinSet<()>) {
        if batch.is_empty() {
            return;
        }
        let (events, replies): (Vec<Behind>, Vec<Reply>) = batch.into_iter().unzip();
        let put = || lane::put_behind(&self.database, self.process, &events);
        let Some(written) = self.together("putting events behind others", put).await else {
            let items = events.into_iter().zip(replies).map(|(behind, reply)| Undelivered::Behind(behind, reply));
            return self.except_apart(items, apart).await;
        };
        let mut words = Words::default();
        for (behind, reply) in events.into_iter().zip(replies) {
            let (place, lane) = (behind.event.place, behind.event.lane);
            let is_ours = written.contains(&place);
            let right = Right::Range { epoch: behind.epoch };
            words.add(reply, Committed { place, right, due_in: None, is_ours, lane, lane_is: LaneIs::Behind });
        }
        words.say();
    }

    /// Nothing: Postgres refuses it, and it is not written.
    pub(super) async fn park(&self, death: &Death) -> Option<Committed> {
        crate::failpoint!("park.before");
        let parked = self.together("parking an event", || park::park(&self.database, self.process, death)).await?;
        crate::failpoint!("park.after");
        let metrics = self.metrics.of(&death.workflow);
        let place = death.event.place;
        match parked {
            Parked::Written => {
                metrics.dead_lettered(death.reason).inc();
                if let Some(unsaid) = self.said.is_time(&death.workflow, Instant::now()) {
                    warn!(
                        workflow = %death.workflow, event = %place, attempt = death.sends,
                        reason = death.reason.as_str(), unsaid, "dead letter; others within a minute are not logged"
                    );
                }
            }
            Parked::AlreadyDone => {}
            Parked::Fenced => metrics.fenced_writes.inc(),
        }
        let is_ours = parked != Parked::Fenced;
        let lane_is = if death.blocks || !is_ours { LaneIs::Stored } else { LaneIs::Free };
        Some(Committed { place, right: death.right, due_in: None, is_ours, lane: death.event.lane, lane_is })
    }
}

/// Adds what comes within a moment, unless something waits for what is there.
async fn gather(queue: &mut UnboundedReceiver<Delivered>, batch: &mut Vec<Delivered>) {
    let deadline = tokio::time::Instant::now() + GATHER;
    let mut looked_at = 0;
    while batch.len() < MOST_AT_ONCE && !batch[looked_at..].iter().any(|item| item.is_awaited) {
        looked_at = batch.len();
        let more = queue.recv_many(batch, MOST_AT_ONCE - looked_at);
        if !tokio::time::timeout_at(deadline, more).await.is_ok_and(|count| count > 0) {
            return;
        }
    }
}

/// Tells other processes, where failing to is no harm: they poll.
pub fn tell(database: &Database, workflow: &Arc<str>) {
    let (database, workflow) = (database.clone(), Arc::clone(workflow));
    tokio::spawn(async move {
        let _ = notify::tell(&database, &workflow).await;
    });
}
