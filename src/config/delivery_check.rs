//! Checks what a workflow promises and how it tries: values that exclude each other, limits that cannot be reached.

use std::time::Duration;

use super::check::Report;
use super::checked::{Backoff, Deduplication, Delivery, Endpoint, IdempotencyKey, InDoubt, Retries};
use super::raw_delivery::{RawBackoff, RawRetries};
use super::raw_workflow::{Envelope, Guarantee, Mechanism, OnInDoubt, OnKeyFailure, Ordering, RawWorkflow};
use super::unique::UniquePolicy;
use super::{endpoint_check, limits};

const SHORTEST_DELAY: Duration = Duration::from_millis(10);
const GIVE_UP_AFTER: Duration = Duration::from_secs(86_400);

/// Which mechanism a guarantee gets, and which keys need which mechanism.
pub fn guarantee(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> (Guarantee, Mechanism) {
    let delivery = &raw.delivery;
    let guarantee = delivery.guarantee.unwrap_or(Guarantee::IdempotentKeys);
    let (default, other) = match guarantee {
        Guarantee::AtMostOnce | Guarantee::ExactlyOnce => (Mechanism::TransactionalOutbox, None),
        Guarantee::AtLeastOnce => (Mechanism::KafkaOffsets, Some(Mechanism::TransactionalOutbox)),
        Guarantee::IdempotentKeys => (Mechanism::GeneratedKeys, Some(Mechanism::TransactionalOutbox)),
    };
    let mechanism = delivery.mechanism.unwrap_or(default);
    if mechanism != default && Some(mechanism) != other {
        let reason = match guarantee {
            Guarantee::ExactlyOnce => "exactly-once needs rows and offset in one transaction",
            Guarantee::AtMostOnce => "at-most-once needs the attempt committed before it is made",
            Guarantee::AtLeastOnce | Guarantee::IdempotentKeys => "this guarantee has other mechanisms",
        };
        let allowed = match guarantee {
            Guarantee::AtMostOnce | Guarantee::ExactlyOnce => "transactional-outbox",
            Guarantee::AtLeastOnce => "kafka-offsets, transactional-outbox",
            Guarantee::IdempotentKeys => "generated-keys, transactional-outbox",
        };
        let message = format!("`{}`: {reason}", mechanism.as_str());
        report.problem(&format!("{here}/delivery/mechanism"), message, allowed);
    }
    let outbox = mechanism == Mechanism::TransactionalOutbox;
    let in_doubt = matches!(delivery.on_in_doubt, Some(OnInDoubt::Ask | OnInDoubt::Hold));
    let needs_outbox = [
        (delivery.deduplication.is_some(), "deduplication"),
        (delivery.unique.is_some(), "unique"),
        (matches!(delivery.ordering, Some(Ordering::Key)), "ordering"),
        (delivery.delay.is_some_and(|d| !d.0.is_zero()), "delay"),
        (in_doubt, "onInDoubt"),
    ];
    for (used, key) in needs_outbox {
        if used && !outbox {
            report.problem(
                &format!("{here}/delivery/{key}"),
                format!("`{key}` needs the outbox: without it nothing remembers the event"),
                "mechanism: transactional-outbox",
            );
        }
    }
    if delivery.deduplication.is_some() && delivery.unique.is_some() {
        report.problem(
            &format!("{here}/delivery/deduplication"),
            "`deduplication` beside `unique`: an event that takes another's place could itself be suppressed as a repeat, and both be lost",
            "one of them; unique: {keys: [args], states: [.., completed], period: ..} suppresses repeats too",
        );
    }
    if matches!(delivery.on_in_doubt, Some(OnInDoubt::Ask)) && raw.endpoint.lookup.url.is_none() {
        report.problem(
            &format!("{here}/delivery/onInDoubt"),
            "`ask` has nothing to ask",
            "endpoint.lookup with url, processed, notProcessed",
        );
    }
    if guarantee == Guarantee::AtMostOnce && delivery.on_in_doubt.is_some() {
        report.problem(
            &format!("{here}/delivery/onInDoubt"),
            "at-most-once never sends again, whatever the doubt",
            "no onInDoubt",
        );
    }
    (guarantee, mechanism)
}

pub fn delivery(
    raw: &RawWorkflow,
    id: &str,
    (guarantee, mechanism): (Guarantee, Mechanism),
    endpoint: Option<&Endpoint>,
    here: &str,
    report: &mut Report<'_>,
) -> Delivery {
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let key = &raw.delivery.idempotency_key;
    let header = given(&key.header).unwrap_or_else(|| "Idempotency-Key".to_owned());
    if hyper::header::HeaderName::from_bytes(header.as_bytes()).is_err() {
        report.problem(
            &format!("{here}/delivery/idempotencyKey/header"),
            format!("`{header}` is not a header name"),
            "letters, digits and -",
        );
    }
    let own = header.eq_ignore_ascii_case("idempotency-key");
    if !own && endpoint_check::is_reserved(&header.to_lowercase()) {
        report.problem(
            &format!("{here}/delivery/idempotencyKey/header"),
            format!("`{header}` is set by Oncebox for something else"),
            "Idempotency-Key, or a header of the receiver's own",
        );
    }
    for (given, key) in [
        (raw.delivery.max_waiting_bytes.is_some_and(|size| size.0 == 0), "maxWaitingBytes"),
        (raw.delivery.retries.give_up_after.is_some_and(|span| span.0.is_zero()), "retries/giveUpAfter"),
    ] {
        if given {
            report.problem(&format!("{here}/delivery/{key}"), "nothing could ever be delivered", "more than 0");
        }
    }
    let timeout = endpoint.map_or(Duration::from_secs(15), |e| e.timeout);
    let lease = raw.delivery.lease.and_then(|l| l.0).unwrap_or(timeout + Duration::from_secs(30));
    if lease <= timeout && !crate::mutant!("lease-shorter-than-timeout") {
        report.problem(
            &format!("{here}/delivery/lease"),
            format!("a lease of {}s would end while a request may still run", lease.as_secs_f64()),
            "longer than endpoint.timeout",
        );
    }
    Delivery {
        guarantee,
        mechanism,
        envelope: raw.delivery.envelope.unwrap_or(Envelope::Keyed),
        key: IdempotencyKey {
            format: given(&key.format),
            // A renamed workflow goes on making the keys that it made under its former id.
            namespace: given(&key.namespace).or(given(&raw.former_id)).unwrap_or_else(|| id.to_owned()),
            header,
            quoted: key.quoted.unwrap_or(true),
            included_in_payload: key.included_in_payload.unwrap_or(true),
        },
        deduplication: deduplication(raw, here, report),
        unique: unique(raw, here, report),
        retries: retries(&raw.delivery.retries, here, report),
        in_doubt: match (guarantee, raw.delivery.on_in_doubt) {
            (Guarantee::AtMostOnce, _) => InDoubt::End,
            (_, None | Some(OnInDoubt::Redeliver)) => InDoubt::Redeliver,
            (_, Some(OnInDoubt::Ask)) => InDoubt::Ask,
            (_, Some(OnInDoubt::Hold)) => InDoubt::Hold,
        },
        ordering: match raw.delivery.ordering {
            Some(Ordering::Key) => Some(raw.delivery.on_key_failure.unwrap_or(OnKeyFailure::Block)),
            Some(Ordering::None) | None => None,
        },
        ordering_key: given(&raw.delivery.ordering_key),
        concurrency: raw.delivery.concurrency.unwrap_or(64) as usize,
        rate: limits::rate(raw, here, report),
        circuit: limits::circuit(raw, here, report),
        dead_letter_limit: limits::dead_letters(raw, here, report),
        lease,
        delay: raw.delivery.delay.map_or(Duration::ZERO, |span| span.0),
        max_waiting: raw.delivery.max_waiting.unwrap_or(1_000_000),
        max_waiting_bytes: raw.delivery.max_waiting_bytes.map_or(4 << 30, |s| s.0),
    }
}

fn deduplication(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Deduplication> {
    let given = raw.delivery.deduplication.as_ref()?;
    let here = format!("{here}/delivery/deduplication");
    if given.key_fields.is_empty() {
        report.problem(&format!("{here}/keyFields"), "nothing tells one change from another", "at least one field");
    }
    if given.ttl.0.is_zero() {
        report.problem(&format!("{here}/ttl"), "nothing would be remembered", "more than 0s");
    }
    Some(Deduplication { fields: given.key_fields.clone(), ttl: given.ttl.0 })
}

fn unique(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<UniquePolicy> {
    match UniquePolicy::check(raw.delivery.unique.as_ref()?) {
        Ok(policy) => Some(policy),
        Err(wrong) => {
            for (key, trouble, allowed) in wrong {
                report.problem(&format!("{here}/delivery/unique/{key}"), trouble, allowed);
            }
            None
        }
    }
}

fn retries(raw: &RawRetries, here: &str, report: &mut Report<'_>) -> Retries {
    let here = format!("{here}/delivery/retries");
    let backoff = match (&raw.backoff, &raw.backoff_ms) {
        (Some(_), Some(_)) => {
            report.problem(&format!("{here}/backoffMs"), "both `backoff` and `backoffMs`", "one of them");
            Backoff::Listed(vec![Duration::from_secs(1)])
        }
        (None, Some(list)) => Backoff::Listed(list.iter().copied().map(Duration::from_millis).collect()),
        (Some(RawBackoff::Listed(list)), None) => Backoff::Listed(list.iter().map(|s| s.0).collect()),
        (Some(RawBackoff::Growing(growing)), None) => Backoff::Growing {
            initial: growing.initial.map_or(Duration::from_secs(1), |s| s.0),
            multiplier: growing.multiplier.unwrap_or(2.0),
            max: growing.max.map_or(Duration::from_secs(600), |s| s.0),
        },
        (None, None) => {
            Backoff::Growing { initial: Duration::from_secs(1), multiplier: 2.0, max: Duration::from_secs(600) }
        }
    };
    match &backoff {
        Backoff::Listed(list) if list.iter().any(|delay| *delay < SHORTEST_DELAY) => {
            let key = if raw.backoff_ms.is_some() { "backoffMs" } else { "backoff" };
            report.problem(&format!("{here}/{key}"), "a delay that would hammer the endpoint", "10ms or more");
        }
        Backoff::Growing { initial, .. } if *initial < SHORTEST_DELAY => {
            report.problem(
                &format!("{here}/backoff/initial"),
                "a delay that would hammer the endpoint",
                "10ms or more",
            );
        }
        Backoff::Listed(list) if list.is_empty() => {
            report.problem(&format!("{here}/backoff"), "an empty list of delays", "at least one delay");
        }
        Backoff::Growing { initial, multiplier, max } if *multiplier < 1.0 || max < initial => {
            report.problem(&format!("{here}/backoff"), "delays that shrink", "multiplier from 1, max from initial");
        }
        Backoff::Listed(_) | Backoff::Growing { .. } => {}
    }
    let max_attempts = match (raw.enabled.unwrap_or(true), raw.max_attempts) {
        (false, _) => Some(1),
        (true, limit) => limit.and_then(|l| l.0),
    };
    let retries = Retries {
        max_attempts,
        backoff,
        jitter: raw.jitter.unwrap_or(0.2),
        give_up_after: raw.give_up_after.map_or(GIVE_UP_AFTER, |s| s.0),
        max_retry_after: raw.max_retry_after.map_or(Duration::from_secs(3600), |s| s.0),
    };
    if let (Some(limit), Some(given)) = (retries.max_attempts, raw.give_up_after) {
        let span = crate::send::backoff::longest_span(&retries, limit);
        if span < given.0 && limit > 1 {
            report.warning(
                &format!("{here}/giveUpAfter"),
                format!("cannot be reached: {limit} attempts end after at most {}s", span.as_secs()),
                "",
            );
        }
    }
    retries
}
