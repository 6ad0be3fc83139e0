//! Which keys receivers notice, what a change of each means to them, and when it takes back a promise.

use super::others::others;
use super::weigh::{deduplication, doubt_rank, guarantee, signing, unique, uniqueness};
use super::{Change, Document, Weight};

/// One key: how to read it, and what a change of it means.
struct Rule {
    pointer: &'static str,
    read: fn(&Document<'_>) -> String,
    weigh: Weigh,
}

enum Weigh {
    /// Always the same.
    Always(Weight, &'static str),
    /// By the values before and after.
    By(fn(&Document<'_>, &Document<'_>) -> (Weight, &'static str)),
}

use Weigh::{Always, By};
use Weight::{Change as Noticed, Downgrade, Upgrade};

const KEYS_CHANGE: &str = "keys change: an event that is sent again after this has another key than before, and receivers \
                           cannot tell it from a new one; nothing may be replayed or read again across it";
const KEY_MOVES: &str = "receivers that look for the key where it was find none there, and drop no copies";
const BODIES: &str = "bodies change for records that are read from now on; events that are stored keep their bytes";
const PACE: &str = "how fast requests come changes";
const KEPT: &str = "how long things are kept changes";

/// In the order in which they are told.
const RULES: [Rule; 49] = [
    Rule { pointer: "/delivery/guarantee", read: |d| d.guarantee(), weigh: By(guarantee) },
    Rule {
        pointer: "/delivery/mechanism",
        read: |d| d.mechanism(),
        weigh: Always(Noticed, "the path changes; what the guarantee promises holds on both"),
    },
    Rule {
        pointer: "/delivery/idempotencyKey/format",
        read: |d| d.key_format(),
        weigh: Always(Downgrade, KEYS_CHANGE),
    },
    Rule {
        pointer: "/delivery/idempotencyKey/namespace",
        read: |d| d.namespace(),
        weigh: Always(Downgrade, KEYS_CHANGE),
    },
    Rule {
        pointer: "/delivery/idempotencyKey/header",
        read: |d| d.text("/delivery/idempotencyKey/header", "Idempotency-Key").to_lowercase(),
        weigh: Always(Downgrade, KEY_MOVES),
    },
    Rule {
        pointer: "/delivery/idempotencyKey/quoted",
        read: |d| d.text("/delivery/idempotencyKey/quoted", "true"),
        weigh: Always(Downgrade, "receivers that compare the header's text take every key for a new one"),
    },
    Rule {
        pointer: "/delivery/idempotencyKey/includedInPayload",
        read: |d| d.text("/delivery/idempotencyKey/includedInPayload", "true"),
        weigh: By(|_, new| match new.text("/delivery/idempotencyKey/includedInPayload", "true").as_str() {
            "false" => (Downgrade, KEY_MOVES),
            _ => (Noticed, BODIES),
        }),
    },
    Rule {
        pointer: "/delivery/deduplication",
        read: |d| match d.get("/delivery/deduplication") {
            Some(_) => format!(
                "{} by {}",
                d.span("/delivery/deduplication/ttl", "a window"),
                d.whole("/delivery/deduplication/keyFields", "nothing")
            ),
            None => "off".to_owned(),
        },
        weigh: By(deduplication),
    },
    Rule { pointer: "/delivery/unique", read: |d| unique(d), weigh: By(uniqueness) },
    Rule {
        pointer: "/delivery/ordering",
        read: |d| d.text("/delivery/ordering", "none"),
        weigh: By(|_, new| match new.text("/delivery/ordering", "none").as_str() {
            "key" => (Upgrade, "the events of one key come in order from now on"),
            _ => {
                (Downgrade, "the events of one key no longer come in order: an older change may overwrite a newer one")
            }
        }),
    },
    Rule {
        pointer: "/delivery/orderingKey",
        read: |d| d.text("/delivery/orderingKey", "the Kafka key"),
        weigh: Always(Noticed, "order is kept among other events than before"),
    },
    Rule {
        pointer: "/delivery/onKeyFailure",
        read: |d| d.text("/delivery/onKeyFailure", "block"),
        weigh: By(|_, new| match new.text("/delivery/onKeyFailure", "block").as_str() {
            "continue" => (Downgrade, "after a dead letter its key's later events no longer wait: they overtake it"),
            _ => (Upgrade, "a dead letter blocks its key's later events from now on"),
        }),
    },
    Rule {
        pointer: "/delivery/onInDoubt",
        read: |d| d.text("/delivery/onInDoubt", "redeliver"),
        weigh: By(|old, new| match doubt_rank(new) < doubt_rank(old) {
            true => (Downgrade, "an event that may have been processed is sent again where it was not before"),
            false => (Upgrade, "an event that may have been processed is not sent again at once"),
        }),
    },
    Rule {
        pointer: "/endpoint/lookup",
        read: |d| d.whole("/endpoint/lookup", "none"),
        weigh: Always(Noticed, "what is asked about events in doubt changes"),
    },
    Rule {
        pointer: "/delivery/envelope",
        read: |d| d.text("/delivery/envelope", "keyed"),
        weigh: Always(Noticed, BODIES),
    },
    Rule { pointer: "/source/format", read: |d| d.text("/source/format", "plain"), weigh: Always(Noticed, BODIES) },
    Rule { pointer: "/source/encoding", read: |d| d.text("/source/encoding", "json"), weigh: Always(Noticed, BODIES) },
    Rule {
        pointer: "/filter",
        read: |d| d.text("/filter", "."),
        weigh: Always(Noticed, "other records make events from now on"),
    },
    Rule { pointer: "/transform", read: |d| d.text("/transform", "."), weigh: Always(Noticed, BODIES) },
    Rule { pointer: "/eventType", read: |d| d.text("/eventType", "the topic"), weigh: Always(Noticed, BODIES) },
    Rule {
        pointer: "/source/tombstones",
        read: |d| d.text("/source/tombstones", "skip"),
        weigh: Always(Noticed, "records without a value make, or no longer make, events"),
    },
    Rule {
        pointer: "/endpoint/url",
        read: |d| d.text("/endpoint/url", ""),
        weigh: Always(
            Noticed,
            "another receiver, perhaps, which has not seen the keys of before; waiting events go there too",
        ),
    },
    Rule {
        pointer: "/endpoint/method",
        read: |d| d.text("/endpoint/method", "POST"),
        weigh: Always(Noticed, "requests change, also those of waiting events"),
    },
    Rule {
        pointer: "/endpoint/headers",
        read: |d| d.whole("/endpoint/headers", "none"),
        weigh: Always(Noticed, "requests change, also those of waiting events"),
    },
    Rule {
        pointer: "/endpoint/compression",
        read: |d| d.text("/endpoint/compression", "none"),
        weigh: Always(Noticed, "requests change, also those of waiting events"),
    },
    Rule {
        pointer: "/endpoint/auth",
        read: |d| d.whole("/endpoint/auth", "none"),
        weigh: Always(Noticed, "requests prove in another way who sends them"),
    },
    Rule {
        pointer: "/endpoint/tls",
        read: |d| d.whole("/endpoint/tls", "the system's"),
        weigh: Always(Noticed, "other certificates are trusted or shown"),
    },
    Rule { pointer: "/endpoint/signing", read: |d| d.whole("/endpoint/signing/secrets", "none"), weigh: By(signing) },
    answers("/endpoint/answers/delivered", |d| d.statuses("/endpoint/answers/delivered", "2xx")),
    answers("/endpoint/answers/inProgress", |d| d.statuses("/endpoint/answers/inProgress", "409")),
    answers("/endpoint/answers/rejected", |d| d.statuses("/endpoint/answers/rejected", "400, 413, 414, 415, 422")),
    answers("/endpoint/answers/gone", |d| d.statuses("/endpoint/answers/gone", "410")),
    answers("/endpoint/answers/inDoubt", |d| d.statuses("/endpoint/answers/inDoubt", "408, 500, 502, 504")),
    retries("/delivery/retries/maxAttempts", |d| d.max_attempts()),
    retries("/delivery/retries/giveUpAfter", |d| d.span("/delivery/retries/giveUpAfter", "24h")),
    retries("/delivery/retries/backoff", |d| d.backoff()),
    retries("/delivery/retries/maxRetryAfter", |d| d.span("/delivery/retries/maxRetryAfter", "1h")),
    Rule {
        pointer: "/delivery/delay",
        read: |d| d.span("/delivery/delay", "0s"),
        weigh: Always(Noticed, "events come earlier or later than before"),
    },
    pace("/delivery/concurrency", |d| d.text("/delivery/concurrency", "64")),
    pace("/delivery/rateLimit", |d| d.whole("/delivery/rateLimit", "none")),
    pace("/endpoint/timeout", |d| d.span("/endpoint/timeout", "15s")),
    Rule {
        pointer: "/source/topics",
        read: |d| d.whole("/source/topics", "none"),
        weigh: Always(Noticed, "other topics are read; what was read of the others stays and is delivered"),
    },
    Rule {
        pointer: "/source/onOffsetLoss",
        read: |d| d.text("/source/onOffsetLoss", "halt"),
        weigh: Always(Noticed, "what happens when records are gone before they were read changes"),
    },
    Rule {
        pointer: "/source/onInvalid",
        read: |d| d.text("/source/onInvalid", "deadLetter"),
        weigh: Always(Noticed, "what happens to records that cannot be read changes"),
    },
    Rule {
        pointer: "/source/maxBytes",
        read: |d| d.size("/source/maxBytes", "1MiB"),
        weigh: Always(Noticed, "which records are too large changes"),
    },
    Rule {
        pointer: "/paused",
        read: |d| d.text("/paused", "false"),
        weigh: Always(Noticed, "sending stops, or goes on unless an operator says otherwise"),
    },
    kept("/retention", |d| d.span("/retention", "30d")),
    kept("/payloadRetention", |d| d.span("/payloadRetention", "3d")),
    kept("/deadLetterRetention", |d| d.span("/deadLetterRetention", "never")),
];

/// What no receiver notices.
const UNNOTICED: [&str; 12] = [
    "/id",
    "/formerId",
    "/labels",
    "/tests",
    "/delivery/documentation",
    "/delivery/clientGuidance",
    "/delivery/idempotencyKey/hashAlgorithm",
    "/delivery/retries/enabled",
    "/delivery/retries/jitter",
    "/delivery/retries/backoffMs",
    "/source/startFrom",
    "/delivery/lease",
];

const fn answers(pointer: &'static str, read: fn(&Document<'_>) -> String) -> Rule {
    Rule { pointer, read, weigh: Always(Noticed, "what a receiver's answer means changes") }
}

const fn retries(pointer: &'static str, read: fn(&Document<'_>) -> String) -> Rule {
    Rule { pointer, read, weigh: Always(Noticed, "when and how often a failed event is tried again changes") }
}

const fn pace(pointer: &'static str, read: fn(&Document<'_>) -> String) -> Rule {
    Rule { pointer, read, weigh: Always(Noticed, PACE) }
}

const fn kept(pointer: &'static str, read: fn(&Document<'_>) -> String) -> Rule {
    Rule { pointer, read, weigh: Always(Noticed, KEPT) }
}

pub fn compare(old: &Document<'_>, new: &Document<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut push = |pointer: &str, weight, message| {
        changes.push(Change { workflow: new.id().to_owned(), pointer: pointer.to_owned(), weight, message });
    };
    for rule in &RULES {
        let (before, after) = ((rule.read)(old), (rule.read)(new));
        if before == after {
            continue;
        }
        let (weight, means) = match rule.weigh {
            Always(weight, means) => (weight, means),
            By(weigh) => weigh(old, new),
        };
        let name = rule.pointer.trim_start_matches('/').replace('/', ".");
        push(rule.pointer, weight, format!("{name}: {} → {}; {means}", short(&before), short(&after)));
    }
    for pointer in others(old.value(), new.value()).into_iter().filter(|pointer| !is_known(pointer)) {
        let name = pointer.trim_start_matches('/').replace('/', ".");
        push(&pointer, Noticed, format!("{name} changes"));
    }
    changes
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 60 { format!("{}…", line.chars().take(60).collect::<String>()) } else { line }
}

fn is_known(pointer: &str) -> bool {
    let covers =
        |prefix: &str| pointer.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    RULES.iter().any(|rule| covers(rule.pointer)) || UNNOTICED.iter().any(|prefix| covers(prefix))
}
