//! The rest of what a workflow's keys mean: the key, the order, what is done about doubt, windows and limits. Each names the
//! configuration key it comes from, so that what this build lacks can be marked.

use super::facts::{Doubt, Facts, Path};
use crate::config::raw_workflow::{OnKeyFailure, UniqueConflict};
use crate::config::shown::{shown_duration, shown_size};

/// One value and what it means.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub means: String,
    /// The configuration key, as a JSON pointer within the workflow.
    #[serde(skip)]
    pub pointer: &'static str,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub formula: &'static str,
    pub header: String,
    pub quoted: bool,
    pub namespace: String,
    pub included_in_payload: bool,
    /// As configured; empty: the default of source.format.
    pub format: String,
    pub components: Vec<Component>,
    pub fallback: &'static str,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Component {
    pub name: String,
    pub from: String,
}

pub fn key(facts: &Facts<'_>) -> Key {
    let key = &facts.workflow.delivery.key;
    let mut components = vec![Component { name: "namespace".to_owned(), from: format!("`{}`", key.namespace) }];
    let sources = facts.key.sources();
    let made_of_fields = sources.first().is_some_and(|(name, _)| name != "cluster");
    components.extend(sources.into_iter().map(|(name, from)| Component { name, from: from.to_owned() }));
    components.push(Component { name: "index".to_owned(), from: "the event's number within its record".to_owned() });
    Key {
        formula: "{readable}-{hash}: database and table, or the topic; then the first 22 characters of \
                  base64url(SHA-256(components))",
        header: key.header.clone(),
        quoted: key.quoted,
        namespace: key.namespace.clone(),
        included_in_payload: key.included_in_payload,
        format: key.format.clone().unwrap_or_default(),
        components,
        fallback: if made_of_fields {
            "when one of them is missing, the Kafka coordinates (cluster, topic id, partition, offset) stand in for all, \
             counted in oncebox_key_fallbacks_total"
        } else {
            "none is needed: every record has its coordinates"
        },
    }
}

pub fn ordering(facts: &Facts<'_>) -> Setting {
    let (value, means) = if facts.is_ordered() {
        let by = match &facts.workflow.delivery.ordering_key {
            Some(program) => format!("`{program}`"),
            None => "the Kafka key".to_owned(),
        };
        let failure = match facts.raw.delivery.on_key_failure.unwrap_or(OnKeyFailure::Block) {
            OnKeyFailure::Block => "a dead letter blocks its key's later events until it is replayed or discarded",
            OnKeyFailure::Continue => "after a dead letter its key's later events go on without it",
        };
        let means =
            format!("one event at a time per source partition and {by}, in the order of the offsets; {failure}");
        ("key".to_owned(), means)
    } else {
        let means =
            "none is promised: requests run side by side, and a retry comes after what was read later".to_owned();
        ("none".to_owned(), means)
    };
    Setting { name: "ordering", value, means, pointer: "/delivery/ordering" }
}

pub fn in_doubt(facts: &Facts<'_>) -> Setting {
    let what = "an attempt whose outcome is unknown (timeout or broken connection after bytes were sent, an `inDoubt` \
                answer, a relay that died meanwhile)";
    let (value, then) = match facts.doubt {
        Doubt::Redeliver => ("redeliver", "is posted again with the same key"),
        Doubt::Ask => ("ask", "is asked about at endpoint.lookup before anything is posted again"),
        Doubt::Hold => ("hold", "waits as `pending` until an operator resolves it"),
        Doubt::Never => ("never again", "becomes a dead letter `in_doubt`; it takes no onInDoubt"),
    };
    let pointer = if facts.doubt == Doubt::Never { "/delivery/guarantee" } else { "/delivery/onInDoubt" };
    Setting { name: "onInDoubt", value: value.to_owned(), means: format!("{what} {then}"), pointer }
}

pub fn windows(facts: &Facts<'_>) -> Vec<Setting> {
    let workflow = facts.workflow;
    let setting = |name, value: String, means: &str, pointer| Setting { name, value, means: means.to_owned(), pointer };
    let mut windows = vec![
        setting("timeout", facts.timeout(), "one deadline for connect, TLS, request and answer", "/endpoint/timeout"),
        setting(
            "lease",
            facts.lease(),
            "how long a claim lasts; a dead relay's events are taken over after it",
            "/delivery/lease",
        ),
        setting(
            "giveUpAfter",
            facts.give_up_after(),
            "from an event's first attempt to its dead letter; stands still while nothing is sent",
            "/delivery/retries",
        ),
        match facts.deduplication_ttl() {
            Some(ttl) => setting(
                "deduplication.ttl",
                shown_duration(ttl),
                "how long a key is remembered: a copy within it makes no event",
                "/delivery/deduplication",
            ),
            None => setting("deduplication", "off".to_owned(), "no copy is suppressed on this side", ""),
        },
    ];
    if let Some(unique) = &facts.raw.delivery.unique {
        let conflict = unique.on_conflict.or(unique.on_conflict_camel).unwrap_or(UniqueConflict::Reject);
        let means = match conflict {
            UniqueConflict::Reject => "a conflict becomes a dead letter `duplicate`",
            UniqueConflict::Ignore => "a conflict is dropped and counted",
            UniqueConflict::Replace => "a conflict replaces the event that waits",
            UniqueConflict::ReplaceExceptSchedule => "a conflict replaces the event that waits, at its due time",
        };
        let period = unique.period.clone().unwrap_or_else(|| "no end".to_owned());
        windows.push(setting("unique.period", period, means, "/delivery/unique"));
    }
    if let Some(delay) = facts.raw.delivery.delay.filter(|delay| !delay.0.is_zero()) {
        windows.push(setting("delay", shown_duration(delay.0), "after the record's timestamp", "/delivery/delay"));
    }
    let kept = match facts.path {
        Path::Outbox => "how long the records of delivered events stay queryable",
        Path::Direct => "the same for events that were retried; what is delivered at once leaves no record",
    };
    let dead = workflow.dead_letter_retention.map_or_else(|| "never removed".to_owned(), shown_duration);
    windows.extend([
        setting("retention", shown_duration(workflow.retention), kept, "/retention"),
        setting(
            "payloadRetention",
            shown_duration(workflow.payload_retention),
            "and their bodies",
            "/payloadRetention",
        ),
        setting("deadLetterRetention", dead, "dead letters", "/deadLetterRetention"),
        setting(
            "shutdownGrace",
            shown_duration(facts.shutdown_grace),
            "how long a restart waits for requests under way",
            "",
        ),
    ]);
    windows
}

pub fn limits(facts: &Facts<'_>) -> Vec<Setting> {
    let (delivery, raw) = (&facts.workflow.delivery, &facts.raw.delivery);
    let breaker = raw.circuit_breaker.as_ref();
    let failures = breaker.and_then(|b| b.failures).unwrap_or(20);
    let open_for = breaker.and_then(|b| b.open_for).map_or_else(|| "30s".to_owned(), |span| shown_duration(span.0));
    let dead = raw.dead_letter_limit.as_ref();
    let dead_count = dead.and_then(|d| d.count).unwrap_or(1000);
    let dead_per = dead.and_then(|d| d.per).map_or_else(|| "10m".to_owned(), |span| shown_duration(span.0));
    let rate = match (raw.rate_limit.per_second, raw.rate_limit.burst) {
        (Some(rate), Some(burst)) => format!("{rate} per second, bursts of {burst}"),
        (Some(rate), None) => format!("{rate} per second"),
        (None, _) => "none".to_owned(),
    };
    let full = match facts.path {
        Path::Outbox => "undelivered events above which reading pauses; below 80% it goes on",
        Path::Direct => "events that wait for a retry, above which reading pauses",
    };
    let setting = |name, value: String, means: &str, pointer| Setting { name, value, means: means.to_owned(), pointer };
    vec![
        setting(
            "concurrency",
            delivery.concurrency.to_string(),
            "requests in flight, all processes together",
            "/delivery/concurrency",
        ),
        setting("rateLimit", rate, "requests, all processes together", "/delivery/rateLimit"),
        setting(
            "circuitBreaker",
            format!("{failures} failures, open for {open_for}"),
            "an endpoint that only fails is left alone; while it is open no attempt counts",
            "/delivery/circuitBreaker",
        ),
        setting(
            "deadLetterLimit",
            format!("{dead_count} per {dead_per}"),
            "more refused or exhausted events than this suspend the workflow",
            "/delivery/deadLetterLimit",
        ),
        setting("maxWaiting", delivery.max_waiting.to_string(), full, "/delivery/maxWaiting"),
        setting(
            "maxWaitingBytes",
            shown_size(delivery.max_waiting_bytes),
            "the same for their bodies",
            "/delivery/maxWaitingBytes",
        ),
        setting(
            "maxBytes",
            shown_size(facts.workflow.source.max_bytes as u64),
            "a larger record becomes a dead letter `too_large`",
            "/source/maxBytes",
        ),
    ]
}
