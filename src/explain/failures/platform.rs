//! What happens to the relay, to Postgres and to Kafka.

use std::time::Duration;

use super::Happening;
use crate::config::shown::shown_duration;
use crate::explain::facts::{Doubt, Facts, Path};
use crate::explain::fate::{Becomes, Repeat};
use crate::send::verdict::{self, Tries};

/// What is done about events that a relay had claimed and not settled.
struct TakenOver {
    then: &'static str,
    event: Becomes,
    sent_again: Repeat,
    decided_by: &'static str,
}

fn taken_over(facts: &Facts<'_>) -> TakenOver {
    // The attempt that is in doubt counts; the next would be the second.
    let second = Tries { sends: 2, counted: 2, age: Duration::ZERO };
    let may_try = verdict::may_try(second, &facts.workflow.delivery.retries).is_ok();
    match facts.doubt {
        Doubt::Redeliver if !may_try => TakenOver {
            then: "dead letters `exhausted`: their one attempt counts, whatever became of it",
            event: Becomes::DeadLetter,
            sent_again: Repeat::ByOperator,
            decided_by: "/delivery/retries",
        },
        Doubt::Redeliver => TakenOver {
            then: "sent again with the same key and the same bytes",
            event: Becomes::Retried,
            sent_again: Repeat::SameKey,
            decided_by: "/delivery/onInDoubt",
        },
        Doubt::Ask => TakenOver {
            then: "asked about at endpoint.lookup, and sent again only if they were not processed",
            event: Becomes::Asked,
            sent_again: Repeat::IfNotProcessed,
            decided_by: "/delivery/onInDoubt",
        },
        Doubt::Hold => TakenOver {
            then: "held as `pending` until an operator resolves them",
            event: Becomes::Held,
            sent_again: Repeat::ByOperator,
            decided_by: "/delivery/onInDoubt",
        },
        Doubt::Never => TakenOver {
            then: "dead letters `in_doubt`, never sent again by themselves",
            event: Becomes::DeadLetter,
            sent_again: Repeat::ByOperator,
            decided_by: "/delivery/guarantee",
        },
    }
}

pub fn killed_before_send(facts: &Facts<'_>) -> Happening {
    let when = "the relay is killed before a byte of the request leaves".to_owned();
    if facts.path == Path::Direct {
        let then = "its offset was not marked: another process reads the record again, makes it again by the \
                    configuration of that moment, and sends it; an event that waited for a retry is taken over after \
                    its lease"
            .to_owned();
        let decided_by = "/delivery/mechanism";
        return Happening { when, then, event: Becomes::ReadAgain, sent_again: Repeat::No, decided_by };
    }
    let over = taken_over(facts);
    let lease = facts.lease();
    let then = match facts.doubt {
        Doubt::Redeliver => format!(
            "another process takes over when the lease ({lease}) ends; what was claimed counts as one attempt, because \
             nobody can tell: {}",
            over.then
        ),
        Doubt::Ask | Doubt::Hold | Doubt::Never => format!(
            "an event whose attempt was not committed yet is simply sent later; one whose attempt was is in doubt when \
             the lease ({lease}) ends, because nobody can tell: {}",
            over.then
        ),
    };
    // The receiver saw nothing, so nothing is repeated, whatever is done.
    Happening { when, then, event: over.event, sent_again: Repeat::No, decided_by: over.decided_by }
}

pub fn killed_after_send(facts: &Facts<'_>) -> Happening {
    let when = "the relay is killed after the request left, or after the answer and before it is recorded".to_owned();
    if facts.path == Path::Direct {
        let then =
            "every record from the marked offset on is read again and its events are sent again, delivered ones \
                    among them, with the same keys; their bytes are made again by the configuration of that moment. \
                    Events that were being retried are taken over after their lease, with the same bytes"
                .to_owned();
        let decided_by = "/delivery/mechanism";
        return Happening { when, then, event: Becomes::ReadAgain, sent_again: Repeat::SameKey, decided_by };
    }
    let over = taken_over(facts);
    let most = 2 * facts.workflow.delivery.concurrency;
    let then = format!(
        "when the lease ({}) ends, what was under way is in doubt (at most {most} events per process): {}",
        facts.lease(),
        over.then
    );
    Happening { when, then, event: over.event, sent_again: over.sent_again, decided_by: over.decided_by }
}

pub fn rolling_restart(facts: &Facts<'_>) -> Happening {
    let slow = match facts.path {
        Path::Outbox => taken_over(facts).then,
        Path::Direct => "sent again with the same key",
    };
    let settled = match facts.path {
        Path::Outbox => "settled, and what was never sent is given back",
        Path::Direct => "settled, and offsets are marked",
    };
    Happening {
        when: "the relay is restarted, or deployed process by process".to_owned(),
        then: format!(
            "nothing is repeated: reading and claiming stop, requests under way are waited for (shutdownGrace, {}) and \
             {settled}; requests that take longer are in doubt: {slow}",
            shown_duration(facts.shutdown_grace)
        ),
        event: Becomes::Unaffected,
        sent_again: Repeat::No,
        decided_by: if facts.path == Path::Direct { "/delivery/mechanism" } else { "" },
    }
}

pub fn postgres_down(facts: &Facts<'_>) -> Happening {
    let when = "Postgres is down".to_owned();
    if facts.path == Path::Direct {
        let then = "deliveries that succeed go on, and their offsets are marked in Kafka; failed ones wait in memory, \
                    bounded, with their partition paused; nothing is lost"
            .to_owned();
        let decided_by = "/delivery/mechanism";
        return Happening { when, then, event: Becomes::Waits, sent_again: Repeat::No, decided_by };
    }
    let over = taken_over(facts);
    let then = format!(
        "nothing is read and nothing new is sent; Kafka keeps what comes. Answers to requests under way are recorded \
         once it is back; if their process ends before that, they are in doubt: {}",
        over.then
    );
    Happening { when, then, event: Becomes::Waits, sent_again: over.sent_again, decided_by: over.decided_by }
}

pub fn postgres_loses_commits(facts: &Facts<'_>) -> Happening {
    let when = "Postgres fails over and loses its last commits".to_owned();
    let (then, event, sent_again, decided_by) = match (facts.path, facts.doubt) {
        (Path::Direct, _) => (
            "failed events that were stored in the lost commits are gone with them, so what is marked in Kafka is not \
             believed any more: within 10s reading goes back to the last copy of the offsets that the server has kept, \
             and every record since is sent again, with the same keys. Nothing is lost",
            Becomes::ReadAgain,
            Repeat::SameKey,
            "/delivery/mechanism",
        ),
        (Path::Outbox, Doubt::Never) => (
            "the promise does not hold: events and offset go back together, the records are read again, and what was \
             sent in the lost commits is sent a second time, with the same key. Only synchronous replication prevents it",
            Becomes::ReadAgain,
            Repeat::SameKey,
            "/delivery/guarantee",
        ),
        (Path::Outbox, Doubt::Redeliver | Doubt::Ask | Doubt::Hold) => (
            "events and offset go back together, the records are read again and give the same events with the same ids \
             and keys; what had been delivered in the lost commits is sent again. Nothing is lost",
            Becomes::ReadAgain,
            Repeat::SameKey,
            "",
        ),
    };
    Happening { when, then: then.to_owned(), event, sent_again, decided_by }
}

pub fn kafka_down(facts: &Facts<'_>) -> Happening {
    let (then, sent_again, decided_by) = match facts.path {
        Path::Outbox => ("nothing new is read; what is in the outbox is delivered", Repeat::No, ""),
        Path::Direct => (
            "nothing new is read and no offset is marked; retries go on. A process that ends meanwhile leaves what it \
             delivered since the last mark to be sent again, with the same keys",
            Repeat::SameKey,
            "/delivery/mechanism",
        ),
    };
    Happening { when: "Kafka is down".to_owned(), then: then.to_owned(), event: Becomes::Waits, sent_again, decided_by }
}

pub fn configuration_changes(facts: &Facts<'_>) -> Happening {
    let made_again = match facts.path {
        Path::Outbox => "",
        Path::Direct => {
            ". A record that is read again after a crash is made anew: its bytes, and with another key format its key, \
             may then differ from the copy sent before"
        }
    };
    Happening {
        when: "the configuration is redeployed between two attempts of an event".to_owned(),
        then: format!(
            "an event that is stored keeps its key and its bytes; url, headers, signature, timeout, answers and retries \
             are those of the configuration that runs{made_again}"
        ),
        event: Becomes::Unaffected,
        sent_again: Repeat::No,
        decided_by: if facts.path == Path::Direct { "/delivery/mechanism" } else { "" },
    }
}
