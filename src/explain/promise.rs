//! What is promised, in the product's own words, and what a receiver must do for its part. Never more than HTTP can keep.

use super::facts::{Doubt, Facts, Path};
use crate::config::Guarantee;
use crate::config::shown::shown_duration;

/// The promise, and what of it this workflow's own keys change.
pub fn promise(facts: &Facts<'_>) -> Vec<String> {
    let mut said = vec![in_general(facts.workflow.delivery.guarantee).to_owned()];
    let guarantee = facts.workflow.delivery.guarantee;
    let of_place = facts.key.is_coordinates();
    match guarantee {
        Guarantee::ExactlyOnce => said.push(match (facts.deduplication_ttl(), of_place) {
            (Some(ttl), false) => {
                format!("The deduplication window is {}: what the source repeats later is sent again.", shown_duration(ttl))
            }
            (Some(_), true) => "The key is made of the record's place in Kafka: a change that the source publishes again \
                                stands at another offset, has another key, and `deduplication` does not see it."
                .to_owned(),
            (None, false) => "There is no deduplication window: a change that the source repeats is sent again, with the \
                              same key."
                .to_owned(),
            (None, true) => "There is no deduplication window, and the key is made of the record's place in Kafka: a \
                             change that the source repeats is another event, with another key."
                .to_owned(),
        }),
        Guarantee::IdempotentKeys if of_place => said.push(
            "In this workflow the key is made of the record's place in Kafka: a change that the source publishes again \
             at another offset is another event, with another key. source.format debezium, or an \
             idempotencyKey.format of the record's own fields, gives it the same one."
                .to_owned(),
        ),
        Guarantee::AtMostOnce if facts.deduplication_ttl().is_none() => said.push(
            "A change that the source publishes again is an event of its own, and is sent; `deduplication` suppresses it."
                .to_owned(),
        ),
        Guarantee::AtMostOnce | Guarantee::AtLeastOnce | Guarantee::IdempotentKeys => {}
    }
    if facts.path == Path::Direct {
        said.push(
            "A record that is read again after a crash is made again by the configuration of that moment, so its bytes \
             may differ from the first copy's; an event that waits for a retry keeps its bytes."
                .to_owned(),
        );
    }
    said
}

fn in_general(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::AtMostOnce => {
            "The endpoint never sees an event twice, as long as Postgres keeps what it committed (with failover: \
             synchronous replication). The attempt is committed before the first byte leaves; one whose outcome is \
             unknown becomes a dead letter with reason `in_doubt`, and an answer other than 2xx one with reason \
             `rejected`; neither is sent again by itself. Only a request that surely never left (refused, DNS, TLS or \
             connect failure, blocked) is tried again."
        }
        Guarantee::AtLeastOnce => "Never lost: delivered one or more times, or a dead letter.",
        Guarantee::IdempotentKeys => {
            "At least once, and every copy carries the same key, made from the source's own identifiers, so that the \
             receiver can drop copies, also when the source publishes the same change again at another offset."
        }
        Guarantee::ExactlyOnce => {
            "Every record enters the outbox exactly once (offset and rows commit together, stale writers are fenced \
             out), a change that the source repeats inside the deduplication window is suppressed, every event is \
             settled exactly once, and a second POST happens only when the one before was answered with a failure or \
             its outcome is unknown, with the same key and the same bytes. With a receiver that honours the key, or \
             that answers a `lookup`, the effect is exactly once."
        }
    }
}

pub fn path(facts: &Facts<'_>) -> &'static str {
    match facts.path {
        Path::Outbox => {
            "One transaction holds the events of a batch and the partition's next offset; relay workers lease events, \
             POST them and settle them."
        }
        Path::Direct => {
            "Consume, transform, POST, then mark the offset in Kafka. An event whose first attempt fails is stored in \
             the outbox and its partition goes on; the offset only advances over records whose events are delivered or \
             durably in Postgres."
        }
    }
}

/// What the receiver must do for its part, in order of weight.
pub fn receiver(facts: &Facts<'_>) -> Vec<String> {
    let header = &facts.workflow.delivery.key.header;
    let mut duties = Vec::new();
    match facts.workflow.delivery.guarantee {
        Guarantee::AtMostOnce => duties.push(
            "Nothing against copies of an event. Events can be missing instead: look at the dead letters `in_doubt` and `rejected`, \
             find out what became of each, and replay those that are wanted."
                .to_owned(),
        ),
        Guarantee::AtLeastOnce => duties.push(format!(
            "Stand copies: either its effect is the same however often it is applied, or it drops a key ({header}) that \
             it has seen."
        )),
        Guarantee::IdempotentKeys | Guarantee::ExactlyOnce => duties.push(format!(
            "Honour the key: insert it ({header}) first, in the transaction of the effect; when it is there already, \
             change nothing and answer 2xx. Checking first and recording afterwards lets two copies through at once."
        )),
    }
    if facts.doubt != Doubt::Never {
        duties.push(format!(
            "Remember keys for at least {} (giveUpAfter), and for as long as dead letters may be replayed or offsets set \
             back: both send old keys again.",
            facts.give_up_after()
        ));
        let busy: Vec<String> = facts.workflow.endpoint.answers.in_progress.iter().map(ToString::to_string).collect();
        if !busy.is_empty() {
            duties.push(format!("Answer {} while another request with the same key is at work.", busy.join(" or ")));
        }
    }
    if facts.doubt == Doubt::Ask {
        duties.push("Answer endpoint.lookup truthfully, also for a key whose request is still at work.".to_owned());
    }
    if !facts.is_ordered() {
        duties.push(
            "Expect another order than the source's: an older change may come after a newer one, also as a retry. \
             Compare `oncebox-source` (topic/partition/offset) before overwriting."
                .to_owned(),
        );
    }
    if !facts.raw.endpoint.signing.secrets.is_empty() {
        duties.push("Verify `webhook-signature` over the bytes as they came, and refuse old timestamps.".to_owned());
    }
    duties.push(format!("Answer within {}: a later answer counts as none.", facts.timeout()));
    duties
}
