//! Warns where the times of a workflow disagree: one that can never be reached because of another, or that ends before
//! what it is there for. Each is allowed; together they are rarely meant.

use std::time::Duration;

use super::check::Report;
use super::checked::{Delivery, Endpoint};
use super::raw_workflow::{Ordering, RawWorkflow};
use super::shown::shown_duration;
use crate::send::backoff;

/// How long a topic keeps records unless it is told otherwise. What it is told, only the brokers know: a process that runs says
/// when that is longer.
const KAFKA_KEEPS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub fn windows(
    raw: &RawWorkflow,
    delivery: &Delivery,
    endpoint: Option<&Endpoint>,
    (retention, payload_retention): (Duration, Duration),
    here: &str,
    report: &mut Report<'_>,
) {
    let give_up_after = delivery.retries.give_up_after;
    let given_up = shown_duration(give_up_after);
    let mut warn = |key: &str, message: String, allowed: &str| {
        report.warning(&format!("{here}/{key}"), message, allowed);
    };
    if payload_retention > retention {
        let message = "bodies are kept longer than the records of their events";
        warn("payloadRetention", message.to_owned(), "at most `retention`");
    }
    // Both count from the day an event was stored, and giveUpAfter may end that much later.
    for (kept, key, what) in
        [(retention, "retention", "its record"), (payload_retention, "payloadRetention", "its body")]
    {
        if kept < give_up_after {
            let message = format!("{what} may be gone as soon as it is delivered: an event is tried for {given_up}");
            warn(key, message, "at least delivery.retries.giveUpAfter");
        }
    }
    if let Some(deduplication) = &raw.delivery.deduplication
        && deduplication.ttl.0 < give_up_after
    {
        let message = format!("a repeat may be taken in while the first is still tried, which lasts {given_up}");
        warn("delivery/deduplication/ttl", message, "at least delivery.retries.giveUpAfter");
    }
    if let Some(deduplication) = &raw.delivery.deduplication
        && deduplication.ttl.0 < KAFKA_KEEPS
    {
        let message = "a record that is read again later than this is taken in again, and Kafka keeps records for 7 days \
                       unless the topic says otherwise";
        warn("delivery/deduplication/ttl", message.to_owned(), "at least the topic's retention.ms");
    }
    retries(raw, delivery, &mut warn);
    if let Some(endpoint) = endpoint {
        against_timeout(raw, delivery, endpoint, &mut warn);
    }
    ordering(raw, delivery, &mut warn);
}

fn retries(raw: &RawWorkflow, delivery: &Delivery, warn: &mut impl FnMut(&str, String, &str)) {
    let retries = &delivery.retries;
    let given_up = shown_duration(retries.give_up_after);
    if let Some(limit) = retries.max_attempts.filter(|limit| *limit > 1)
        && raw.delivery.retries.max_attempts.is_some()
        && backoff::shortest_span(retries, limit) > retries.give_up_after
    {
        let message = format!("cannot be reached: giveUpAfter ends the event after {given_up}, before attempt {limit}");
        warn("delivery/retries/maxAttempts", message, "");
    }
    if raw.delivery.retries.max_retry_after.is_some_and(|longest| longest.0 > retries.give_up_after) {
        let message = format!("an event that is told to wait longer than {given_up} (giveUpAfter) is not tried again");
        warn("delivery/retries/maxRetryAfter", message, "at most giveUpAfter");
    }
}

fn against_timeout(
    raw: &RawWorkflow,
    delivery: &Delivery,
    endpoint: &Endpoint,
    warn: &mut impl FnMut(&str, String, &str),
) {
    let timeout = endpoint.timeout;
    if delivery.retries.give_up_after <= timeout && delivery.retries.max_attempts != Some(1) {
        let message = "one attempt may use it up: it is no longer than endpoint.timeout".to_owned();
        warn("delivery/retries/giveUpAfter", message, "several timeouts and the delays between them");
    }
    // A request starts only while a whole timeout of its lease is left; the rest is for waiting, sending and settling.
    let spare = delivery.lease.saturating_sub(timeout);
    if raw.delivery.lease.is_some() && delivery.lease > timeout && spare < (timeout / 4).max(Duration::from_secs(1)) {
        let message =
            format!("only {} longer than endpoint.timeout: little of it is left to send in", shown_duration(spare));
        warn("delivery/lease", message, "timeout and some seconds more; empty: timeout + 30s");
    }
}

fn ordering(raw: &RawWorkflow, delivery: &Delivery, warn: &mut impl FnMut(&str, String, &str)) {
    let ordered = matches!(raw.delivery.ordering, Some(Ordering::Key));
    if ordered && delivery.ordering_key.is_some() {
        let message =
            "order is kept within a partition: where this is not the Kafka key, one key's events may be in two";
        warn("delivery/orderingKey", message.to_owned(), "the field that the producer takes as Kafka key, or empty");
    }
    for (used, key) in
        [(delivery.ordering_key.is_some(), "orderingKey"), (raw.delivery.on_key_failure.is_some(), "onKeyFailure")]
    {
        if used && !ordered {
            warn(&format!("delivery/{key}"), "has no effect without ordering".to_owned(), "ordering: key");
        }
    }
}
