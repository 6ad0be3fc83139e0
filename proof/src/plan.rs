//! Which faults come, and in which order: all of it from the seed, so that a run can be repeated.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::proxy::Mode;
use crate::receiver::{MOODS, Mood};

/// Between which two parties a connection misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Kafka,
    Postgres,
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// kill -9, and started again.
    KillRelay,
    /// SIGSTOP past lease and session.
    PauseRelay,
    /// Each relay replaced by another, politely.
    RollingRestart,
    /// A new configuration in the file, and SIGHUP.
    Reload,
    /// One more relay comes and goes: the group shares its partitions anew, twice.
    Rebalance,
    /// kill -9 of one backend, so that the server restarts as a whole.
    KillBackend,
    /// Everything of the server killed at once.
    CrashPostgres,
    KillBroker,
    PauseBroker,
    AddPartition,
    /// A standby without the last commits takes over.
    Failover,
    /// Connections reset.
    Cut(Link),
    /// Connections misbehave for a while.
    Disturb(Link, Mode),
    Mood(Mood),
}

impl Fault {
    pub fn name(self) -> String {
        match self {
            Self::Cut(link) => format!("cut-{link:?}").to_lowercase(),
            Self::Disturb(link, mode) => format!("{mode:?}-{link:?}").to_lowercase(),
            Self::Mood(mood) => format!("receiver-{mood:?}").to_lowercase(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// A fault, and how long nothing else happens after it.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub fault: Fault,
    pub rest: Duration,
}

fn disturbances() -> Vec<Fault> {
    use Link::{Kafka, Postgres, Receiver};
    use Mode::{BlackHole, Slow, SwallowAnswers};
    vec![
        Fault::Cut(Kafka),
        Fault::Cut(Postgres),
        Fault::Cut(Receiver),
        Fault::Disturb(Kafka, BlackHole),
        Fault::Disturb(Kafka, Slow),
        Fault::Disturb(Postgres, BlackHole),
        Fault::Disturb(Postgres, Slow),
        Fault::Disturb(Postgres, SwallowAnswers),
        Fault::Disturb(Receiver, BlackHole),
        Fault::Disturb(Receiver, Slow),
        Fault::Disturb(Receiver, SwallowAnswers),
    ]
}

/// The faults of one round of a full run, or of the short one.
pub fn plan(seed: u64, short: bool, rounds: u32) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for round in 0..rounds.max(1) {
        let mut faults: Vec<Fault> = Vec::new();
        let counts: [(Fault, usize, usize); 9] = [
            (Fault::KillRelay, 20, 4),
            (Fault::PauseRelay, 4, 1),
            (Fault::RollingRestart, 3, 1),
            (Fault::Rebalance, 10, 1),
            (Fault::Reload, 3, 1),
            (Fault::KillBackend, 2, 1),
            (Fault::CrashPostgres, 2, 1),
            (Fault::KillBroker, 2, 0),
            (Fault::PauseBroker, 1, 0),
        ];
        for (fault, full, few) in counts {
            faults.extend(std::iter::repeat_n(fault, if short { few } else { full }));
        }
        faults.push(Fault::Failover);
        let (mut moods, mut links) = (MOODS.map(Fault::Mood).to_vec(), disturbances());
        moods.shuffle(&mut random);
        links.shuffle(&mut random);
        faults.extend(moods.into_iter().take(if short { 2 } else { MOODS.len() }));
        faults.extend(links.into_iter().take(if short { 3 } else { usize::MAX }));
        if round == 0 {
            faults.push(Fault::AddPartition);
        }
        faults.shuffle(&mut random);
        let rest = if short { 200..1_200 } else { 300..2_500 };
        steps.extend(
            faults
                .into_iter()
                .map(|fault| Step { fault, rest: Duration::from_millis(random.random_range(rest.clone())) }),
        );
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_each_time_and_another_seed_others() {
        let names = |seed| plan(seed, false, 1).into_iter().map(|step| step.fault.name()).collect::<Vec<_>>();
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
    }

    #[test]
    fn a_full_round_has_what_it_promises() {
        let steps = plan(1, false, 1);
        let count = |fault| steps.iter().filter(|step| step.fault == fault).count();
        assert!(count(Fault::KillRelay) >= 20 && count(Fault::KillBackend) + count(Fault::CrashPostgres) >= 4);
        assert!(count(Fault::KillBroker) >= 2 && count(Fault::PauseRelay) >= 4 && count(Fault::Rebalance) >= 10);
        assert!(
            count(Fault::RollingRestart) >= 3
                && count(Fault::Reload) >= 3
                && count(Fault::Failover) == 1
                && steps.len() == 67
        );
    }
}
