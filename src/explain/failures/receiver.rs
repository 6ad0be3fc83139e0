//! What the endpoint and the network do. Every line is what `send::verdict` makes of the outcome.

use std::time::Duration;

use super::{Failure, Happening};
use crate::config::shown::shown_duration;
use crate::explain::facts::{Doubt, Facts, Path};
use crate::explain::fate::{self, Becomes, Repeat};
use crate::explain::schedule;
use crate::send::outcome::{Outcome, Trouble};

/// What one attempt that ended so does to its event. Nothing for a failure of another kind.
pub fn one_attempt(failure: Failure, facts: &Facts<'_>) -> Option<Happening> {
    let status = |status| Outcome::Answered { status, retry_after: None };
    let wait = Some(Duration::from_secs(30));
    let (when, outcome) = match failure {
        Failure::ReceiverTimesOut => {
            (format!("the receiver does not answer within {}", facts.timeout()), Outcome::Unknown(Trouble::Timeout))
        }
        Failure::AnswerLost => {
            ("the receiver processes the event and its answer is lost".to_owned(), Outcome::Unknown(Trouble::Broken))
        }
        Failure::Answers500 => ("it answers 500".to_owned(), status(500)),
        Failure::Answers503 => ("it answers 503".to_owned(), status(503)),
        Failure::Answers409 => ("it answers 409".to_owned(), status(409)),
        Failure::Answers410 => ("it answers 410".to_owned(), status(410)),
        Failure::Answers422 => ("it answers 422".to_owned(), status(422)),
        Failure::Answers429 => {
            ("it answers 429 with Retry-After: 30".to_owned(), Outcome::Answered { status: 429, retry_after: wait })
        }
        Failure::AnswersRedirect => ("it answers 3xx, which is never followed".to_owned(), status(302)),
        Failure::AnswersOther => ("it answers 401, 403 or 404".to_owned(), status(404)),
        Failure::ConnectionRefused => ("the connection is refused".to_owned(), Outcome::NeverSent(Trouble::Connect)),
        Failure::DnsFails => ("its name does not resolve".to_owned(), Outcome::NeverSent(Trouble::Dns)),
        Failure::TlsFails => ("its certificate is not valid".to_owned(), Outcome::NeverSent(Trouble::Tls)),
        Failure::AddressBlocked => {
            ("its name resolves to an address that egress forbids".to_owned(), Outcome::NeverSent(Trouble::Blocked))
        }
        Failure::ReceiverDownForLong
        | Failure::LookupFails
        | Failure::RelayKilledBeforeSend
        | Failure::RelayKilledAfterSend
        | Failure::RollingRestart
        | Failure::PostgresDown
        | Failure::PostgresLosesCommits
        | Failure::KafkaDown
        | Failure::ConfigurationChanges
        | Failure::SourceRepeats
        | Failure::RecordUndecodable
        | Failure::RecordTooLarge
        | Failure::TopicRecreated
        | Failure::RecordsExpired => return None,
    };
    let fate = fate::of(&outcome, facts);
    Some(Happening {
        when,
        then: fate.in_words(facts),
        event: fate.becomes(),
        sent_again: fate.repeat(&outcome),
        decided_by: fate.decided_by(facts),
    })
}

pub fn down_for_long(facts: &Facts<'_>) -> Happening {
    let circuit = &facts.workflow.delivery.circuit;
    let waiting = match facts.path {
        Path::Outbox => "new events wait in the outbox, up to maxWaiting, and then in Kafka",
        Path::Direct => "partitions pause and new events wait in Kafka",
    };
    let then = format!(
        "{}; after {} failures in a row the circuit opens: {waiting}; one request every {} tries whether it is back. \
         Meanwhile no attempt counts and giveUpAfter stands still; then everything goes on",
        schedule::of(facts).in_words(),
        circuit.failures,
        shown_duration(circuit.open_for)
    );
    Happening {
        when: "the receiver refuses connections for a long time".to_owned(),
        then,
        event: Becomes::Waits,
        sent_again: Repeat::No,
        decided_by: "/delivery/circuitBreaker",
    }
}

/// Only where it is asked.
pub fn lookup_fails(facts: &Facts<'_>) -> Option<Happening> {
    (facts.doubt == Doubt::Ask).then(|| Happening {
        when: "endpoint.lookup fails, or says neither".to_owned(),
        then: format!(
            "nothing is posted; it is asked again on the schedule, until giveUpAfter ({})",
            facts.give_up_after()
        ),
        event: Becomes::Asked,
        sent_again: Repeat::No,
        decided_by: "/endpoint/lookup",
    })
}
