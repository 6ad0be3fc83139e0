//! When a change takes something back: each is weighed by what stood there before and what is to stand there.

use serde_json::Value;

use super::Document;
use super::Weight::{self, Change as Noticed, Downgrade, Upgrade};

pub fn guarantee(old: &Document<'_>, new: &Document<'_>) -> (Weight, &'static str) {
    let rank = |document: &Document<'_>| match document.guarantee().as_str() {
        "exactly-once" => 3,
        "idempotent-keys" => 2,
        _ => 1,
    };
    match (old.guarantee().as_str(), new.guarantee().as_str()) {
        ("at-most-once", _) => (Downgrade, "receivers were never sent an event twice, and now may be"),
        (_, "at-most-once") => (Downgrade, "events that were sent until they arrived are now given up when in doubt"),
        _ if rank(new) < rank(old) => (Downgrade, "less is promised than receivers were told"),
        _ => (Upgrade, "more is promised than before"),
    }
}

pub fn deduplication(old: &Document<'_>, new: &Document<'_>) -> (Weight, &'static str) {
    let ttl = |document: &Document<'_>| document.duration("/delivery/deduplication/ttl");
    let fields = |document: &Document<'_>| document.whole("/delivery/deduplication/keyFields", "");
    let there = |document: &Document<'_>| document.get("/delivery/deduplication").is_some();
    match (there(old), there(new)) {
        (true, false) => (Downgrade, "changes that the source repeats are no longer suppressed"),
        (true, true) if fields(old) != fields(new) => (
            Downgrade,
            "what was remembered is forgotten: a change that was delivered before this may be taken in again",
        ),
        (true, true) if ttl(new) < ttl(old) => {
            (Downgrade, "changes that the source repeats are suppressed for less long")
        }
        (false, _) | (true, true) => (Upgrade, "changes that the source repeats are suppressed, or for longer"),
    }
}

pub fn unique(document: &Document<'_>) -> String {
    // An empty policy is one with all its defaults, so it is not the same as none.
    match document.get("/delivery/unique") {
        Some(_) => document.whole("/delivery/unique", "the default policy"),
        None => "off".to_owned(),
    }
}

pub fn uniqueness(_: &Document<'_>, new: &Document<'_>) -> (Weight, &'static str) {
    match new.get("/delivery/unique") {
        None => (Downgrade, "events that would have been duplicates are delivered"),
        Some(_) => (Noticed, "which events count as duplicates, and what becomes of them, changes"),
    }
}

pub fn signing(old: &Document<'_>, new: &Document<'_>) -> (Weight, &'static str) {
    let secrets = |document: &Document<'_>| match document.get("/endpoint/signing/secrets") {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let (before, after) = (secrets(old), secrets(new));
    match (before.is_empty(), after.is_empty()) {
        (false, true) => (Downgrade, "requests are no longer signed: receivers that verify them refuse all"),
        (true, _) => (Upgrade, "requests are signed from now on"),
        (false, false) if before.iter().any(|secret| after.contains(secret)) => {
            (Noticed, "a secret stays: receivers can move from one to the other")
        }
        (false, false) => (Downgrade, "no secret stays: receivers that verify with the old ones refuse all"),
    }
}

pub fn doubt_rank(document: &Document<'_>) -> u8 {
    match document.text("/delivery/onInDoubt", "redeliver").as_str() {
        "hold" => 2,
        "ask" => 1,
        _ => 0,
    }
}
