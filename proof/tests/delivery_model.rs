//! The sending side as a model, every interleaving of it: two processes, an event, leases that run out
//! under a process that does not know, answers that come late, and a standby without the last commits.
//!
//! What must hold: a failure is written only by whoever holds the right; what is passed as settled is
//! done or waits for another attempt. Each guard is shown to be needed by taking it away alone.

use stateright::{Checker, HasDiscoveries, Model, Property};

const EVENTS: usize = 1;
/// Above every epoch and fence from before the failover.
const CLOCK: u8 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Retry {
    fence: u8,
    /// Who holds its lease, while it lasts.
    holder: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Database {
    owner: Option<usize>,
    epoch: u8,
    lease: bool,
    /// Events below are done or in retry.
    settled_to: usize,
    done: [bool; EVENTS],
    retry: [Option<Retry>; EVENTS],
    timeline: u8,
}

/// The right that a request is made under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Right {
    Range(u8),
    Retry(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Process {
    /// Epoch and timeline of the delivery that it believes it holds.
    holds: Option<(u8, u8)>,
    /// Events started, in order.
    started: usize,
    /// A request under way or answered, and not yet written down.
    request: [Option<(Right, Option<bool>)>; EVENTS],
    /// Settled as far as it knows.
    knows: [bool; EVENTS],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    database: Database,
    standby: Database,
    /// Whether the standby has its last state: it hears once, at any moment, and then no more.
    replicated: bool,
    failed_over: bool,
    processes: [Process; 2],
    /// A retry's lease was ended by somebody else's failure.
    revoked: bool,
    late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Take(usize),
    Start(usize),
    ClaimRetry(usize, usize),
    Answer(usize, usize, bool),
    Settle(usize, usize),
    Extend(usize),
    LeaseEnds,
    RetryLeaseEnds(usize),
    Crash(usize),
    Replicate,
    FailOver,
}

#[derive(Clone)]
struct Protocol {
    /// A failure of a first attempt is written only under the current epoch.
    fences_first_attempts: bool,
    /// And one of a retry only under its current fence.
    fences_retries: bool,
    /// Nothing is passed as settled on another history than that in which it was.
    checks_timeline: bool,
    /// Whoever takes over puts what was claimed, and is neither done nor in retry, into retry.
    rescues: bool,
    /// Epochs and fences are never below the clock, so that none comes back after a failover.
    follows_clock: bool,
    max_epoch: u8,
}

impl Protocol {
    const WHOLE: Self = Self {
        fences_first_attempts: true,
        fences_retries: true,
        checks_timeline: true,
        rescues: true,
        follows_clock: true,
        max_epoch: 2,
    };
}

impl Protocol {
    fn settle(&self, state: &mut State, process: usize, event: usize, right: Right, delivered: bool) {
        let database = &mut state.database;
        if delivered {
            // Whoever holds the lease: the first row in done stands.
            let current = match right {
                Right::Retry(fence) => database.retry[event].as_ref().is_some_and(|retry| retry.fence == fence),
                Right::Range(epoch) => database.owner == Some(process) && database.epoch == epoch,
            };
            state.late |= !current && !database.done[event];
            database.done[event] = true;
            database.retry[event] = None;
            return;
        }
        match (right, &mut database.retry[event]) {
            (Right::Retry(fence), Some(retry)) => {
                if retry.fence == fence || !self.fences_retries {
                    state.revoked |= retry.holder.is_some_and(|holder| holder != process);
                    retry.holder = None;
                }
            }
            (Right::Range(epoch), retry @ None) => {
                let current = database.owner == Some(process) && database.epoch == epoch;
                if (current || !self.fences_first_attempts) && !database.done[event] {
                    *retry = Some(Retry { fence: epoch, holder: None });
                }
            }
            (Right::Range(_), Some(retry)) => {
                if !self.fences_first_attempts {
                    state.revoked |= retry.holder.is_some_and(|holder| holder != process);
                    retry.holder = None;
                }
            }
            (Right::Retry(_), None) => {}
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let database = Database {
            owner: None,
            epoch: 0,
            lease: false,
            settled_to: 0,
            done: [false; EVENTS],
            retry: [const { None }; EVENTS],
            timeline: 0,
        };
        vec![State {
            standby: database.clone(),
            database,
            replicated: false,
            failed_over: false,
            processes: Default::default(),
            revoked: false,
            late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let database = &state.database;
        for (number, process) in state.processes.iter().enumerate() {
            let unheld = process.holds.is_none() && database.owner == Some(number);
            let free = database.owner.is_none() || !database.lease || unheld;
            if process.holds.is_none() && free && database.epoch % CLOCK < self.max_epoch {
                actions.push(Action::Take(number));
            }
            if process.holds.is_some() {
                actions.push(Action::Extend(number));
                if process.started < EVENTS {
                    actions.push(Action::Start(number));
                }
            }
            for event in 0..EVENTS {
                let due = database.retry[event].as_ref().is_some_and(|r| r.holder.is_none() && r.fence % CLOCK < 4);
                if due && process.request[event].is_none() {
                    actions.push(Action::ClaimRetry(number, event));
                }
                match process.request[event] {
                    Some((_, None)) => {
                        actions.extend([Action::Answer(number, event, true), Action::Answer(number, event, false)]);
                    }
                    Some((_, Some(_))) => actions.push(Action::Settle(number, event)),
                    None => {}
                }
            }
            if *process != Process::default() {
                actions.push(Action::Crash(number));
            }
        }
        if database.lease {
            actions.push(Action::LeaseEnds);
        }
        for (event, retry) in database.retry.iter().enumerate() {
            if retry.as_ref().is_some_and(|retry| retry.holder.is_some()) {
                actions.push(Action::RetryLeaseEnds(event));
            }
        }
        if !state.failed_over {
            actions.push(if state.replicated { Action::FailOver } else { Action::Replicate });
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let database = &mut state.database;
        match action {
            Action::Take(number) => {
                let clock = if last.failed_over && self.follows_clock { CLOCK + 1 } else { 0 };
                database.epoch = (database.epoch + 1).max(clock);
                database.owner = Some(number);
                database.lease = true;
                for event in database.settled_to..if self.rescues { EVENTS } else { 0 } {
                    // Claimed by the last owner, and nobody knows: in doubt.
                    if !database.done[event] && database.retry[event].is_none() && database.epoch > 1 {
                        database.retry[event] = Some(Retry { fence: database.epoch, holder: None });
                    }
                }
                let process = &mut state.processes[number];
                process.holds = Some((database.epoch, database.timeline));
                let first_take = database.epoch == 1;
                process.started = if first_take { 0 } else { EVENTS };
                process.knows = [!first_take; EVENTS];
            }
            Action::Start(number) => {
                let process = &mut state.processes[number];
                let (epoch, _) = process.holds?;
                process.request[process.started] = Some((Right::Range(epoch), None));
                process.started += 1;
            }
            Action::ClaimRetry(number, event) => {
                let retry = database.retry[event].as_mut()?;
                if database.done[event] {
                    database.retry[event] = None;
                } else {
                    let clock = if last.failed_over && self.follows_clock { CLOCK } else { 0 };
                    retry.fence = (retry.fence + 1).max(clock);
                    retry.holder = Some(number);
                    state.processes[number].request[event] = Some((Right::Retry(retry.fence), None));
                }
            }
            Action::Answer(number, event, delivered) => {
                state.processes[number].request[event].as_mut()?.1 = Some(delivered);
            }
            Action::Settle(number, event) => {
                let (right, delivered) = last.processes[number].request[event]?;
                self.settle(&mut state, number, event, right, delivered?);
                let process = &mut state.processes[number];
                process.request[event] = None;
                // Only what was sent under the delivery that it holds now counts for that delivery.
                process.knows[event] |= process.holds.is_some_and(|(epoch, _)| right == Right::Range(epoch));
            }
            Action::Extend(number) => {
                let process = &mut state.processes[number];
                let (epoch, timeline) = process.holds?;
                let same_history = !self.checks_timeline || timeline == database.timeline;
                if database.owner == Some(number) && database.epoch == epoch && same_history {
                    database.lease = true;
                    let known = process.knows.iter().take_while(|known| **known).count();
                    database.settled_to = database.settled_to.max(known.min(process.started));
                } else {
                    process.holds = None;
                    process.started = EVENTS;
                }
            }
            Action::LeaseEnds => database.lease = false,
            Action::RetryLeaseEnds(event) => database.retry[event].as_mut()?.holder = None,
            Action::Crash(number) => state.processes[number] = Process::default(),
            Action::Replicate => {
                state.standby = state.database.clone();
                state.replicated = true;
            }
            Action::FailOver => {
                state.database = state.standby.clone();
                state.database.timeline += 1;
                state.failed_over = true;
                // What it was before tells states apart that are the same from here on.
                state.standby = self.init_states().remove(0).standby;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing passed as settled is forgotten", |_, state: &State| {
                let database = &state.database;
                (0..database.settled_to).all(|event| database.done[event] || database.retry[event].is_some())
            }),
            Property::always("nobody ends a lease that another holds", |_, state: &State| !state.revoked),
            Property::sometimes("all is delivered", |_, state: &State| state.database.done.iter().all(|done| *done)),
            Property::sometimes("a late answer counts", |_, state: &State| state.late),
            Property::sometimes("all is delivered after a failover", |_, state: &State| {
                state.failed_over && state.database.done.iter().all(|done| *done)
            }),
        ]
    }
}

/// Whether the promise is broken; the walk ends where it is.
fn breaks(protocol: Protocol, property: &'static str) -> bool {
    let found = HasDiscoveries::AnyOf([property].into());
    protocol.checker().threads(2).finish_when(found).spawn_bfs().join().discoveries().contains_key(property)
}

#[test]
fn the_whole_protocol_forgets_nothing_in_any_interleaving() {
    let checker = Protocol::WHOLE.checker().threads(2).spawn_bfs().join();
    println!("delivery model: {} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn without_epochs_a_stale_failure_of_a_first_attempt_ends_a_lease_that_another_holds() {
    let protocol = Protocol { fences_first_attempts: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "nobody ends a lease that another holds"));
}

#[test]
fn without_fences_a_stale_failure_of_a_retry_ends_a_lease_that_another_holds() {
    let protocol = Protocol { fences_retries: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "nobody ends a lease that another holds"));
}

#[test]
fn with_fences_that_come_back_after_a_failover_a_stale_failure_ends_a_lease_that_another_holds() {
    let protocol = Protocol { follows_clock: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "nobody ends a lease that another holds"));
}

#[test]
fn without_a_rescue_what_the_last_owner_claimed_is_forgotten() {
    let protocol = Protocol { rescues: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "nothing passed as settled is forgotten"));
}

#[test]
fn without_the_timeline_a_failover_makes_settled_events_vanish() {
    let protocol = Protocol { checks_timeline: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "nothing passed as settled is forgotten"));
}
