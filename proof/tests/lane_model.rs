//! Order per key as a model, every interleaving of it: two processes, two events of one lane, leases that run out under a process
//! that does not know, failures, answers that come late.
//!
//! What must hold: the second event is not sent before the first is settled, and the first not any more once the second was.
//! Each guard is shown to be needed by taking it away alone.

use stateright::{Checker, HasDiscoveries, Model, Property};

const FIRST: usize = 0;
const SECOND: usize = 1;
/// Claims of one event: enough for one by each process, and one more by whichever.
const MOST_CLAIMS: u8 = 3;

/// An event's row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Row {
    done: bool,
    fence: u8,
    /// Who holds its lease, as far as the database knows.
    holder: Option<usize>,
}

/// An attempt as its process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Attempt {
    event: usize,
    fence: u8,
    /// Whether its time has not run out; the process sees that only if it looks.
    leased: bool,
    sent: bool,
    delivered: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct State {
    rows: [Row; 2],
    attempts: [Option<Attempt>; 2],
    second_was_sent: bool,
    overtaken: bool,
    repeated: bool,
    /// An answer counted that came after its attempt's lease had gone to another.
    late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Claim(usize, usize),
    Send(usize),
    /// It saw that its time was over before it sent.
    GiveUp(usize),
    Answer(usize, bool),
    Settle(usize),
    LeaseEnds(usize),
    Crash(usize),
}

#[derive(Clone)]
struct Protocol {
    /// The second event is claimed only when the first is settled.
    waits_for_the_first: bool,
    /// A late answer does not end the lease of another attempt, and nothing overtakes that one.
    keeps_held_rows: bool,
    /// A failure is written only under the current fence.
    fences_failures: bool,
    /// A process looks at its lease before it sends.
    looks_at_its_lease: bool,
}

impl Protocol {
    const WHOLE: Self =
        Self { waits_for_the_first: true, keeps_held_rows: true, fences_failures: true, looks_at_its_lease: true };

    fn may_claim(&self, state: &State, event: usize) -> bool {
        let [first, _] = &state.rows;
        let turn = event == FIRST || !self.waits_for_the_first || (first.done && first.holder.is_none());
        let row = &state.rows[event];
        turn && !row.done && row.holder.is_none() && row.fence < MOST_CLAIMS
    }

    fn settle(&self, state: &mut State, attempt: Attempt, delivered: bool) {
        let row = &mut state.rows[attempt.event];
        let is_current = row.fence == attempt.fence;
        if delivered {
            state.late |= !is_current && !row.done;
            row.done = true;
        }
        let ends_the_lease = if delivered { !self.keeps_held_rows } else { !self.fences_failures };
        if is_current || ends_the_lease {
            row.holder = None;
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (process, attempt) in state.attempts.iter().enumerate() {
            let Some(attempt) = attempt else {
                let events = [FIRST, SECOND].into_iter().filter(|event| self.may_claim(state, *event));
                actions.extend(events.map(|event| Action::Claim(process, event)));
                continue;
            };
            match (attempt.sent, attempt.delivered) {
                (false, _) if self.looks_at_its_lease && !attempt.leased => actions.push(Action::GiveUp(process)),
                (false, _) => actions.push(Action::Send(process)),
                (true, None) => actions.extend([Action::Answer(process, true), Action::Answer(process, false)]),
                (true, Some(_)) => actions.push(Action::Settle(process)),
            }
            actions.push(Action::Crash(process));
        }
        let held = state.rows.iter().enumerate().filter(|(_, row)| row.holder.is_some());
        actions.extend(held.map(|(event, _)| Action::LeaseEnds(event)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Claim(process, event) => {
                let row = &mut state.rows[event];
                row.fence += 1;
                row.holder = Some(process);
                let attempt = Attempt { event, fence: row.fence, leased: true, sent: false, delivered: None };
                state.attempts[process] = Some(attempt);
            }
            Action::Send(process) => {
                let attempt = state.attempts[process].as_mut()?;
                attempt.sent = true;
                if attempt.event == SECOND {
                    state.overtaken |= !state.rows[FIRST].done;
                    state.second_was_sent = true;
                } else {
                    state.repeated |= state.second_was_sent;
                }
            }
            Action::Answer(process, delivered) => state.attempts[process].as_mut()?.delivered = Some(delivered),
            Action::Settle(process) => {
                let attempt = state.attempts[process].take()?;
                self.settle(&mut state, attempt, attempt.delivered?);
            }
            Action::LeaseEnds(event) => {
                let fence = state.rows[event].fence;
                state.rows[event].holder = None;
                // Time is over for whoever has that lease, and for whoever had an earlier one.
                let over = |attempt: &&mut Attempt| attempt.event == event && attempt.fence <= fence;
                state.attempts.iter_mut().flatten().filter(over).for_each(|attempt| attempt.leased = false);
            }
            Action::GiveUp(process) | Action::Crash(process) => state.attempts[process] = None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the second is never sent before the first is settled", |_, state: &State| {
                !state.overtaken
            }),
            Property::always("the first is never sent once the second was", |_, state: &State| !state.repeated),
            Property::sometimes("both are delivered", |_, state: &State| state.rows.iter().all(|row| row.done)),
            Property::sometimes("the second is sent after a late answer for the first", |_, state: &State| {
                state.late && state.second_was_sent
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
fn the_whole_protocol_keeps_the_order_of_a_lane_in_any_interleaving() {
    let checker = Protocol::WHOLE.checker().threads(2).spawn_bfs().join();
    println!("lane model: {} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn without_waiting_for_the_first_the_second_overtakes_it() {
    let protocol = Protocol { waits_for_the_first: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "the second is never sent before the first is settled"));
}

#[test]
fn a_late_answer_that_ended_the_lease_of_another_attempt_would_let_the_second_overtake_it() {
    let protocol = Protocol { keeps_held_rows: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "the first is never sent once the second was"));
}

#[test]
fn without_fences_a_stale_failure_lets_the_first_be_sent_after_the_second() {
    let protocol = Protocol { fences_failures: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "the first is never sent once the second was"));
}

#[test]
fn without_a_look_at_its_lease_a_stopped_process_sends_the_first_after_the_second() {
    let protocol = Protocol { looks_at_its_lease: false, ..Protocol::WHOLE };
    assert!(breaks(protocol, "the first is never sent once the second was"));
}
