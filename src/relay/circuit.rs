//! Whether an endpoint is left alone: after so many failures in a row nothing is sent for a while, then one request tries.
//! Pure: the time is an argument.

use std::time::{Duration, Instant};

use crate::config::CircuitBreaker;
use crate::send::outcome::{Outcome, Trouble};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Closed,
    /// One request at a time: its outcome decides.
    HalfOpen,
    Open,
}

impl State {
    /// As `oncebox_circuit_state` shows it.
    pub fn number(self) -> i64 {
        match self {
            Self::Closed => 0,
            Self::HalfOpen => 1,
            Self::Open => 2,
        }
    }
}

#[derive(Debug)]
pub struct Circuit {
    policy: CircuitBreaker,
    state: State,
    /// Failures since the last sign of life.
    in_row: u32,
    opened_at: Instant,
    /// Its time is up and being accounted for.
    ending: bool,
}

/// What one request says about the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Alive,
    Failing,
    /// Nothing: egress forbids it.
    None,
}

/// An answer that is no server error shows that the endpoint lives, whatever it thinks of the event.
pub fn sign(outcome: &Outcome) -> Sign {
    match outcome {
        Outcome::Answered { status: 500..=599, .. } => Sign::Failing,
        Outcome::Answered { .. } => Sign::Alive,
        Outcome::NeverSent(Trouble::Blocked) => Sign::None,
        Outcome::Unknown(_) | Outcome::NeverSent(_) => Sign::Failing,
    }
}

impl Circuit {
    pub fn new(policy: CircuitBreaker, now: Instant) -> Self {
        Self { policy, state: State::Closed, in_row: 0, opened_at: now, ending: false }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Takes in what a request showed. Answers whether the state is another.
    pub fn note(&mut self, sign: Sign, now: Instant) -> bool {
        let before = self.state;
        match (sign, self.state) {
            (Sign::None, _) | (Sign::Failing, State::Open) => {}
            (Sign::Alive, _) => {
                self.in_row = 0;
                self.state = State::Closed;
            }
            (Sign::Failing, State::HalfOpen) => self.open(now),
            (Sign::Failing, State::Closed) => {
                self.in_row += 1;
                if self.in_row >= self.policy.failures && !crate::mutant!("circuit-never-opens") {
                    self.open(now);
                }
            }
        }
        self.state != before
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open;
        self.opened_at = now;
        self.ending = false;
    }

    /// Answers for how long it was open, once, when its time is up.
    pub fn ends(&mut self, now: Instant) -> Option<Duration> {
        let open_for = now.saturating_duration_since(self.opened_at);
        let is_up = self.state == State::Open && !self.ending && open_for >= self.policy.open_for;
        self.ending |= is_up;
        is_up.then_some(open_for)
    }

    /// Lets one request through.
    pub fn half_open(&mut self) {
        if self.state == State::Open && self.ending {
            self.state = State::HalfOpen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: CircuitBreaker = CircuitBreaker { failures: 3, open_for: Duration::from_secs(30) };

    #[test]
    fn failures_in_a_row_open_it_and_one_answer_starts_the_count_again() {
        let now = Instant::now();
        let mut circuit = Circuit::new(POLICY, now);
        for sign in [Sign::Failing, Sign::Failing, Sign::Alive, Sign::Failing, Sign::None, Sign::Failing] {
            assert!(!circuit.note(sign, now));
        }
        assert!(circuit.note(Sign::Failing, now));
        assert_eq!(circuit.state(), State::Open);
    }

    #[test]
    fn its_probe_decides() {
        let mut now = Instant::now();
        let mut circuit = Circuit::new(POLICY, now);
        for _ in 0..3 {
            circuit.note(Sign::Failing, now);
        }
        assert_eq!(circuit.ends(now + Duration::from_secs(29)), None);
        now += Duration::from_secs(30);
        assert_eq!(circuit.ends(now), Some(Duration::from_secs(30)));
        assert_eq!(circuit.ends(now), None, "said once");
        circuit.half_open();
        assert_eq!(circuit.state(), State::HalfOpen);
        assert!(circuit.note(Sign::Failing, now));
        circuit.half_open();
        assert_eq!(circuit.state(), State::Open, "its time is not up");
        now += Duration::from_secs(31);
        assert_eq!(circuit.ends(now), Some(Duration::from_secs(31)));
        circuit.half_open();
        assert!(circuit.note(Sign::Alive, now));
        assert_eq!(circuit.state(), State::Closed);
        assert!(!circuit.note(Sign::Failing, now), "the count begins anew");
    }

    #[test]
    fn a_refusal_is_a_sign_of_life_and_a_server_error_is_not() {
        let answered = |status| sign(&Outcome::Answered { status, retry_after: None });
        assert_eq!([200, 404, 422, 429, 302].map(answered), [Sign::Alive; 5]);
        assert_eq!([500, 503, 599].map(answered), [Sign::Failing; 3]);
        assert_eq!(sign(&Outcome::Unknown(Trouble::Timeout)), Sign::Failing);
        assert_eq!(sign(&Outcome::NeverSent(Trouble::Connect)), Sign::Failing);
        assert_eq!(sign(&Outcome::NeverSent(Trouble::Blocked)), Sign::None);
    }
}
