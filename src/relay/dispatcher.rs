//! The loop of one workflow's relay: take in what happened, then start what may start. All state is here, in one task.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::circuit::{Circuit, State};
use super::direct::Key;
use super::flood::Flood;
use super::inbox::Message;
use super::rate::Rate;
use super::window::Window;
use super::word::{Committed, Reply};
use super::{Shared, Signals};
use crate::config::Workflow;
use crate::direct::Parcel;
use crate::direct::window::Window as DirectWindow;
use crate::event::{CursorId, Lane, Place, Standing};
use crate::observe::WorkflowMetrics;
use crate::outbox::fleet::Share;
use crate::outbox::handoff::News;
use crate::outbox::notify;
use crate::outbox::pace::{Ahead, Pace};
use crate::send::connect::Target;
use crate::send::lookup::Question;
use crate::send::request::Template;
use crate::send::wire::Connection;

/// The poll is the truth; wake-ups only make it faster.
pub(super) const POLL: Duration = Duration::from_millis(250);
/// While partitions change hands; a rebalance is over long before.
const RESTLESS_FOR: Duration = Duration::from_secs(15);
const RESTLESS_BEAT: Duration = Duration::from_millis(500);

pub(super) struct Dispatcher {
    pub workflow: Arc<Workflow>,
    pub shared: Shared,
    pub target: Arc<Target>,
    pub template: Arc<Template>,
    /// How to ask about an event in doubt, where that can be asked.
    pub question: Option<Arc<Question>>,
    pub metrics: Arc<WorkflowMetrics>,
    signals: Option<Signals>,
    pub share: Arc<Share>,
    pub state: Standing,
    pub stopping: bool,

    pub windows: HashMap<CursorId, Window>,
    /// Cursors with queued events, in turn, each once.
    pub turns: VecDeque<CursorId>,
    pub has_room: Arc<AtomicBool>,
    pace: Arc<Pace>,
    /// Partitions of the direct path.
    pub direct: HashMap<Key, DirectWindow>,
    /// Those with queued events, in turn, each once.
    pub direct_turns: VecDeque<Key>,
    /// Events of the direct path that failed and are not stored yet.
    pub storing: usize,
    pub circuit: Circuit,
    pub rate: Rate,
    pub flood: Flood,
    /// Lanes of which something has ended.
    pub lanes_to_open: HashSet<(CursorId, Lane)>,
    /// Lanes in which something is stored, and whose turn to be looked at comes.
    pub lanes_to_look_at: Vec<(CursorId, Lane)>,
    pub opening_lanes: bool,
    pub next_lanes_at: Instant,
    pub next_learn_at: Instant,
    /// Where the last look for lanes ended, if there are more.
    pub learned_to: Option<(CursorId, Lane)>,

    /// Requests under way.
    pub in_flight: usize,
    /// Events started whose outcome is not committed yet, the requests under way included.
    pub unsettled: usize,
    /// Of them, requests that are not an event's first, questions included.
    pub retries_in_flight: usize,
    /// Whether the last request was an event's first: with one slot they take turns.
    pub first_went: bool,
    /// Retries under way or being settled, with the fence of each lease.
    pub retries: HashMap<Place, i64>,
    /// Slots that a claim of retries under way has reserved.
    pub reserved: usize,
    /// Slots that claims of waiting events under way have reserved, where a claim covers only what starts.
    pub reserved_for_firsts: usize,
    /// Connections without a request, the longest unused first.
    pub idle: VecDeque<(Instant, Connection)>,
    pub next_retry_at: Instant,
    /// The last claim of retries failed: until Postgres answers again no slot is kept for one.
    pub claims_fail: bool,
    pub next_look_at: Instant,
    pub next_sweep_at: Instant,
    pub next_beat_at: Instant,
    /// Until then partitions change hands: their deliveries are asked for at every short beat.
    pub restless_until: Instant,
    pub looking: bool,
    /// Since when no look has succeeded.
    pub failing_since: Option<Instant>,
    /// Until then nothing is taken over from others, or given back for them: Postgres was away.
    pub unsure_until: Instant,

    pub messages: UnboundedSender<Message>,
    inbox: Option<UnboundedReceiver<Message>>,
    pub news: UnboundedSender<News>,
    news_inbox: Option<UnboundedReceiver<News>>,
    pub reply: Reply,
    committed_inbox: Option<UnboundedReceiver<Vec<Committed>>>,
}

impl Dispatcher {
    pub fn new(
        workflow: Arc<Workflow>,
        shared: Shared,
        signals: Signals,
        target: Target,
        question: Option<Question>,
    ) -> Self {
        let (messages, inbox) = unbounded_channel();
        let (news, news_inbox) = unbounded_channel();
        let (reply, committed_inbox) = unbounded_channel();
        let now = Instant::now();
        let state = *signals.state.borrow();
        Self {
            metrics: shared.metrics.of(&workflow.id),
            template: Arc::new(Template::new(&workflow).traced(shared.tracer.is_some())),
            target: Arc::new(target),
            question: question.map(Arc::new),
            share: Arc::clone(&signals.share),
            pace: Arc::clone(&signals.pace),
            state,
            signals: Some(signals),
            stopping: false,
            windows: HashMap::new(),
            turns: VecDeque::new(),
            has_room: Arc::new(AtomicBool::new(true)),
            direct: HashMap::new(),
            direct_turns: VecDeque::new(),
            storing: 0,
            circuit: Circuit::new(workflow.delivery.circuit, now),
            rate: Rate::new(workflow.delivery.rate, now),
            flood: Flood::new(workflow.delivery.dead_letter_limit, now),
            lanes_to_open: HashSet::new(),
            lanes_to_look_at: Vec::new(),
            opening_lanes: false,
            next_lanes_at: now,
            next_learn_at: now,
            learned_to: None,
            in_flight: 0,
            unsettled: 0,
            retries_in_flight: 0,
            first_went: false,
            retries: HashMap::new(),
            reserved: 0,
            reserved_for_firsts: 0,
            idle: VecDeque::new(),
            next_retry_at: now,
            claims_fail: false,
            next_look_at: now,
            next_sweep_at: now,
            next_beat_at: now,
            restless_until: now,
            looking: false,
            failing_since: None,
            unsure_until: now,
            messages,
            inbox: Some(inbox),
            news,
            news_inbox: Some(news_inbox),
            reply,
            committed_inbox: Some(committed_inbox),
            workflow,
            shared,
        }
    }

    pub async fn run(mut self) {
        let mut signals = self.signals.take().expect("run is called once");
        let mut inbox = self.inbox.take().expect("run is called once");
        let mut news = self.news_inbox.take().expect("run is called once");
        let mut committed = self.committed_inbox.take().expect("run is called once");
        let mut parcels = signals.parcels.take();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut messages, mut tidings, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        // The one before this may have ended in the middle of something.
        self.metrics.in_flight.set(0);
        self.show_circuit();
        let mut received = Vec::new();
        let id = Arc::clone(&self.workflow.id);
        loop {
            let wake = self.next_wake();
            tokio::select! {
                _ = inbox.recv_many(&mut messages, 256) => messages.drain(..).for_each(|m| self.take_in(m)),
                _ = news.recv_many(&mut tidings, 64) => tidings.drain(..).for_each(|n| self.hear(n)),
                _ = committed.recv_many(&mut settled, 1024) => settled.drain(..).flatten().for_each(|c| self.settled(c)),
                _ = receive(&mut parcels, &mut received) => received.drain(..).for_each(|p| self.receive(p)),
                _ = poll.tick() => {}
                () = tokio::time::sleep_until(wake.into()) => {}
                () = signals.assigned.notified() => self.reassigned(Instant::now()),
                notice = notify::about(&mut signals.heard, &id) => self.heard(notice),
                Ok(()) = signals.state.changed() => self.state = *signals.state.borrow(),
                Ok(()) = signals.stopping.changed(), if !self.stopping => self.stop(),
            }
            // What else is there already is taken in with it: what follows costs the same for one as for many.
            while let Ok(message) = inbox.try_recv() {
                self.take_in(message);
            }
            while let Ok(word) = committed.try_recv() {
                word.into_iter().for_each(|c| self.settled(c));
            }
            while let Ok(tiding) = news.try_recv() {
                self.hear(tiding);
            }
            self.work();
            let idle = self.windows.is_empty() && self.direct.is_empty() && self.unsettled == 0 && self.storing == 0;
            let idle = idle && self.reserved == 0 && !self.looking;
            if self.stopping && idle {
                return;
            }
        }
    }

    /// Everything that time or room allows now.
    fn work(&mut self) {
        let now = Instant::now();
        if now >= self.next_beat_at {
            self.next_beat_at = now + self.beat(now);
            self.extend();
        }
        if self.share.stands_by() {
            self.stand_by();
        } else if now >= self.next_look_at && !self.stopping {
            self.next_look_at = now + POLL;
            self.look_for_deliveries();
        }
        self.sweep(now);
        self.rate.fill(self.senders(), now);
        self.follow_circuit(now);
        self.watch_dead_letters(now);
        self.shelve(now);
        self.learn_lanes(now);
        self.open_lanes(now);
        self.claim_retries(now);
        self.claim_waiting();
        self.start_attempts();
        self.start_direct();
        self.let_go();
        self.drop_spent();
        self.close_idle(now);
        let (events, bytes) = self.ahead();
        // An append claims what it stores ahead of its turn. The reader is asked to keep to half of what there may be, so that what it
        // has read meanwhile still fits.
        let hands_on = self.may_send() && !self.workflow.delivery.in_doubt.claims_only_what_starts();
        let room = events < 2 * self.most_ahead() && bytes < self.shared.budget.bytes();
        self.has_room.store(hands_on && room, Ordering::Release);
        self.pace.tell(match hands_on && !self.windows.is_empty() {
            false => Ahead::Unknown,
            true if self.windows.values().any(|window| window.reads_back) => Ahead::Behind,
            // What is under way is not ahead: a reader that waited for it would let the queue run dry before it reads on.
            true => Ahead::By { events: events.saturating_sub(self.unsettled_firsts()), most: self.most_ahead() },
        });
    }

    /// First attempts that were started and whose outcome is not committed yet.
    pub fn unsettled_firsts(&self) -> usize {
        self.unsettled.saturating_sub(self.retries.len())
    }

    /// Claimed and not settled: events, and the bytes of their bodies.
    pub fn ahead(&self) -> (usize, usize) {
        self.windows.values().map(Window::outstanding).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn next_wake(&self) -> Instant {
        // Without a slot for them nothing can be claimed: one that comes free wakes the loop, and so does the claim under way.
        let may_claim = self.may_send() && self.reserved == 0 && (self.claims_fail || self.slots_for_retries() > 0);
        let wake = if may_claim { self.next_beat_at.min(self.next_retry_at) } else { self.next_beat_at };
        if !self.may_send() {
            return wake;
        }
        let now = Instant::now();
        let claims = self.windows.values().filter_map(Window::next_claim).filter(|at| *at > now);
        claims.chain(self.rate.next_at()).fold(wake, Instant::min)
    }

    /// Often enough that a lease always outlasts an attempt that starts now; and that who reads a partition by now need not wait long
    /// for its delivery.
    fn beat(&self, now: Instant) -> Duration {
        let lease = self.workflow.delivery.lease;
        let slack = lease.saturating_sub(self.workflow.endpoint.timeout) / 2;
        let beat = (lease / 3).min(slack).max(Duration::from_millis(100));
        if now < self.restless_until { beat.min(RESTLESS_BEAT) } else { beat }
    }

    /// This process reads other partitions than before.
    fn reassigned(&mut self, now: Instant) {
        self.restless_until = now + RESTLESS_FOR;
        (self.next_look_at, self.next_beat_at) = (now, now);
    }

    pub fn may_send(&self) -> bool {
        let is_wanted = self.state.sends() && !self.workflow.paused && !self.stopping;
        // Without a share, or one that is not known yet, the others have what this process would take.
        is_wanted && self.share.slots() > 0 && self.circuit.state() != State::Open
    }

    /// SIGTERM: nothing new starts; what was started is finished, settled, and the rest given back.
    fn stop(&mut self) {
        self.stopping = true;
        let cursors: Vec<CursorId> = self.windows.keys().copied().collect();
        cursors.into_iter().for_each(|cursor| self.release(cursor));
    }
}

/// What came from the consumer, if the workflow has the direct path and its consumer is still there.
async fn receive(parcels: &mut Option<UnboundedReceiver<Parcel>>, received: &mut Vec<Parcel>) {
    let Some(open) = parcels else { return std::future::pending().await };
    if open.recv_many(received, 64).await == 0 {
        *parcels = None;
    }
}
