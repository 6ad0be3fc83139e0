//! Checks one workflow: what it must have, values that exclude each other, and limits that cannot be reached.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::check::Report;
use super::checked::{
    Answers, Backoff, Delivery, Endpoint, EventType, IdempotencyKey, Retries, Source, StartFrom, Topics, Workflow,
};
use super::raw_workflow::{
    Encoding, Envelope, Format, Guarantee, Mechanism, Method, OnInDoubt, OnInvalid, OnOffsetLoss, Ordering, RawAnswers,
    RawBackoff, RawRetries, RawWorkflow, Tombstones,
};
use super::scalar::StatusMatch;
use super::secret::Secret;
use super::unsupported;

const DAY: Duration = Duration::from_secs(86_400);
const TOPIC: &str = "a topic name ([A-Za-z0-9._-], at most 249), or one ^regex";

/// Headers that Oncebox sets, or that frame the request.
const RESERVED_HEADERS: [&str; 14] = [
    "connection",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

pub fn check(raw: &RawWorkflow, index: usize, report: &mut Report<'_>) -> Option<Workflow> {
    let here = format!("/workflows/{index}");
    let id = match &raw.id {
        Some(id) => id.clone(),
        None => {
            report.problem(&here, "a workflow without `id`", "id: name, of [a-z0-9-], at most 63");
            String::new()
        }
    };
    let source = source(raw, &here, report);
    let (guarantee, mechanism) = guarantee(raw, &here, report);
    let endpoint = endpoint(raw, &here, report);
    let delivery = delivery(raw, &id, (guarantee, mechanism), endpoint.as_ref(), &here, report);
    let event_type = match raw.event_type.as_deref().unwrap_or_default() {
        "" => EventType::Topic,
        jq if jq.starts_with('.') => EventType::Jq(jq.to_owned()),
        text => EventType::Text(text.to_owned()),
    };
    let retention = raw.retention.map_or(30 * DAY, |s| s.0);
    let payload_retention = raw.payload_retention.map_or(3 * DAY, |s| s.0);
    if payload_retention > retention {
        report.warning(
            &format!("{here}/payloadRetention"),
            "bodies are kept longer than the records of their events",
            "at most `retention`",
        );
    }
    let unsupported = unsupported::in_workflow(raw, mechanism, index, report);
    let document = report.tree.nearest(&here).to_written_json().to_string();
    let program = |text: &Option<String>| text.clone().filter(|t| !t.trim().is_empty() && t.trim() != ".");
    Some(Workflow {
        id: id.into(),
        labels: raw.labels.clone(),
        paused: raw.paused.unwrap_or(false),
        source: source?,
        filter: program(&raw.filter),
        transform: program(&raw.transform),
        event_type,
        endpoint: endpoint?,
        delivery,
        retention,
        payload_retention,
        dead_letter_retention: raw.dead_letter_retention.and_then(|k| k.0),
        unsupported,
        version: version(&document),
        document,
    })
}

/// 63 bits, so that it fits a bigint and no sequence can hand it out twice.
fn version(document: &str) -> i64 {
    let digest = Sha256::digest(document.as_bytes());
    let head: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    (u64::from_be_bytes(head) >> 1) as i64
}

fn source(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Source> {
    let pointer = format!("{here}/source/topics");
    let names = raw.source.topics.clone().unwrap_or_default();
    let topics = match names.as_slice() {
        [] => {
            report.problem(&pointer, "`source.topics` is missing", "topics: [name], or one ^regex");
            return None;
        }
        [pattern] if pattern.starts_with('^') => Topics::Matching(pattern.clone()),
        names => {
            for (at, name) in names.iter().enumerate() {
                let valid = !name.is_empty()
                    && name.len() <= 249
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
                if !valid {
                    report.problem(&format!("{pointer}/{at}"), format!("`{name}` is not a topic"), TOPIC);
                }
            }
            Topics::Named(names.to_vec())
        }
    };
    let start_from = match raw.source.start_from.as_deref().unwrap_or("earliest") {
        "earliest" => StartFrom::Earliest,
        "latest" => StartFrom::Latest,
        time => match time.parse::<jiff::Timestamp>() {
            Ok(time) => StartFrom::Time(time.as_millisecond()),
            Err(_) => {
                report.problem(
                    &format!("{here}/source/startFrom"),
                    format!("`{time}` is not a starting point"),
                    "earliest, latest, or an RFC 3339 time such as 2026-01-31T00:00:00Z",
                );
                StartFrom::Earliest
            }
        },
    };
    let format = raw.source.format.unwrap_or(Format::Plain);
    let encoding = raw.source.encoding.unwrap_or(Encoding::Json);
    if format == Format::Debezium && matches!(encoding, Encoding::Text | Encoding::Bytes) {
        report.problem(
            &format!("{here}/source/encoding"),
            "debezium records cannot be text or bytes",
            "json (or avro, protobuf, jsonSchema)",
        );
    }
    Some(Source {
        topics,
        encoding,
        format,
        start_from,
        on_offset_loss: raw.source.on_offset_loss.unwrap_or(OnOffsetLoss::Halt),
        tombstones: raw.source.tombstones.unwrap_or(Tombstones::Skip),
        on_invalid: raw.source.on_invalid.unwrap_or(OnInvalid::DeadLetter),
        max_bytes: raw.source.max_bytes.map_or(1 << 20, |s| s.0) as usize,
    })
}

/// Which mechanism a guarantee gets, and which keys need which mechanism.
fn guarantee(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> (Guarantee, Mechanism) {
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
        report.problem(&format!("{here}/delivery/mechanism"), reason, allowed);
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

fn endpoint(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Endpoint> {
    let pointer = format!("{here}/endpoint/url");
    let Some(text) = &raw.endpoint.url else {
        report.problem(&pointer, "`endpoint.url` is missing", "url: https://host/path");
        return None;
    };
    let url = url::Url::parse(text).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
    let Some(url) = url else {
        report.problem(&pointer, format!("`{text}` is not an endpoint"), "http:// or https:// with a host");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        report.problem(&pointer, "credentials in the URL are not sent", "endpoint.auth");
    }
    if url.scheme() == "http" && !is_private(&url) {
        report.warning(&pointer, "http:// to a public host: bodies travel unencrypted", "https://");
    }
    let key_header = raw.delivery.idempotency_key.header.as_deref().unwrap_or("Idempotency-Key").to_lowercase();
    let mut headers = Vec::new();
    for (name, value) in &raw.endpoint.headers {
        let lower = name.to_lowercase();
        let pointer = format!("{here}/endpoint/headers/{}", name.replace('~', "~0").replace('/', "~1"));
        let reserved = RESERVED_HEADERS.contains(&lower.as_str())
            || lower == key_header
            || ["oncebox-", "webhook-", "proxy-"].iter().any(|prefix| lower.starts_with(prefix));
        if reserved {
            report.problem(&pointer, format!("`{name}` is set by Oncebox"), "another header");
        }
        if hyper::header::HeaderName::from_bytes(lower.as_bytes()).is_err() {
            report.problem(&pointer, format!("`{name}` is not a header name"), "letters, digits and -");
        }
        if hyper::header::HeaderValue::from_str(value).is_err() {
            report.problem(&pointer, format!("the value of `{name}` has control characters"), "printable text");
        }
        headers.push((lower, Secret::new(value.clone())));
    }
    Some(Endpoint {
        url,
        method: raw.endpoint.method.unwrap_or(Method::Post),
        headers,
        timeout: raw.endpoint.timeout.map_or(Duration::from_secs(15), |s| s.0),
        answers: answers(&raw.endpoint.answers),
    })
}

fn is_private(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || !name.contains('.') || name.ends_with(".local"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        None => false,
    }
}

fn answers(raw: &RawAnswers) -> Answers {
    let exact = |statuses: &[u16]| statuses.iter().copied().map(StatusMatch::Exact).collect::<Vec<_>>();
    Answers {
        delivered: raw.delivered.clone().unwrap_or_else(|| vec![StatusMatch::Class(2)]),
        in_progress: raw.in_progress.clone().unwrap_or_else(|| exact(&[409])),
        rejected: raw.rejected.clone().unwrap_or_else(|| exact(&[400, 413, 414, 415, 422])),
        gone: raw.gone.clone().unwrap_or_else(|| exact(&[410])),
        in_doubt: raw.in_doubt.clone().unwrap_or_else(|| exact(&[408, 500, 502, 504])),
    }
}

fn delivery(
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
    let timeout = endpoint.map_or(Duration::from_secs(15), |e| e.timeout);
    let lease = raw.delivery.lease.and_then(|l| l.0).unwrap_or(timeout + Duration::from_secs(30));
    if lease <= timeout {
        report.problem(
            &format!("{here}/delivery/lease"),
            "the lease would end while a request may still run",
            "longer than endpoint.timeout",
        );
    }
    Delivery {
        guarantee,
        mechanism,
        envelope: raw.delivery.envelope.unwrap_or(Envelope::Keyed),
        key: IdempotencyKey {
            format: given(&key.format),
            namespace: given(&key.namespace).unwrap_or_else(|| id.to_owned()),
            header,
            quoted: key.quoted.unwrap_or(true),
            included_in_payload: key.included_in_payload.unwrap_or(true),
        },
        retries: retries(&raw.delivery.retries, here, report),
        concurrency: raw.delivery.concurrency.unwrap_or(64) as usize,
        lease,
        max_waiting: raw.delivery.max_waiting.unwrap_or(1_000_000),
        max_waiting_bytes: raw.delivery.max_waiting_bytes.map_or(4 << 30, |s| s.0),
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
        give_up_after: raw.give_up_after.map_or(DAY, |s| s.0),
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
