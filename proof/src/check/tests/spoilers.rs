//! Ways to break each promise in the evidence of a clean run: at least one for each thing that a check expects.

use serde_json::{Value, json};

use super::super::Case;
use super::clean::{
    ATTEMPTS, DIRECT, END, FILTERED, FIRST, INVALID, KEYED, LAST, ONCE, ORDERED, REFUSED, SECOND, TOMBSTONE,
};
use super::facts::with;
use super::find::{
    OTHER, change, cursor_row, cut, in_head, intrude, ledger, letter, new, remove, rename, request, row,
    send_other_bytes, signature,
};
use crate::evidence::{Received, signing_secret};

pub struct Spoiler {
    /// The promise that it breaks, and those that cannot but break with it.
    pub breaks: &'static [&'static str],
    pub how: &'static str,
    pub spoil: fn(&mut Case),
}

pub fn spoilers() -> Vec<Spoiler> {
    let mut all = ingest();
    all.extend(delivery());
    all.extend(requests());
    all.extend(heads());
    all.extend(outcome());
    all
}

macro_rules! spoilers {
    ($($breaks:expr, $how:literal, $spoil:expr;)*) => { vec![$(Spoiler { breaks: &$breaks, how: $how, spoil: $spoil }),*] };
}

fn ingest() -> Vec<Spoiler> {
    spoilers![
        ["K0"], "a confirmed record is not in the topic", |case| case.produced[0].offset = Some(END);
        ["I1"], "a record was never read", |case| cursor_row(case, KEYED)["next_offset"] = TOMBSTONE.into();
        ["I1", "D9"], "a record has no event", |case| remove(case, "outbox", KEYED, SECOND);
        ["I1"], "a filtered record is not in the ledger", |case| ledger(case)["filtered"] = "{}".into();
        ["I1"], "a tombstone is not in the ledger", |case| ledger(case)["tombstones"] = "{}".into();
        ["I1"], "an invalid record is no dead letter", |case| remove(case, "dead_letter", KEYED, INVALID);
        ["I1"], "an invalid record of the direct path is no dead letter",
            |case| remove(case, "dead_letter", DIRECT, INVALID);
        ["I2"], "a place is stored twice", |case| {
            let again = change(case, "outbox", KEYED, 0).clone();
            case.audit.push(again);
        };
        ["I2"], "a stored row is changed", |case| {
            let row = new(case, "outbox", KEYED, 0).clone();
            case.note(300, "outbox", Some(row.clone()), Some(row));
        };
        ["I2"], "a stored row is deleted", |case| {
            let row = new(case, "outbox", KEYED, 0).clone();
            case.note(300, "outbox", Some(row), None);
        };
        ["I3"], "an event is stored in a transaction that does not move its cursor",
            |case| change(case, "outbox", KEYED, 0).xid = "another".to_owned();
        ["I3", "I1"], "an event is stored past its cursor",
            |case| cursor_row(case, KEYED)["next_offset"] = REFUSED.into();
        ["I4"], "a cursor goes back",
            |case| change(case, "cursor", KEYED, 2).old.as_mut().unwrap()["next_offset"] = (END + 1).into();
        ["I5"], "a cursor moves while its owner changes", |case| {
            let new = new(case, "cursor", KEYED, 2);
            (new["owner"], new["owner_epoch"]) = ("b".into(), 2.into());
        };
        ["I5"], "a cursor moves under nobody", |case| {
            let change = change(case, "cursor", KEYED, 2);
            change.old.iter_mut().chain(&mut change.new).for_each(|row| row["owner"] = Value::Null);
        };
        ["I5"], "a cursor is taken without a new epoch", |case| new(case, "cursor", KEYED, 1)["owner_epoch"] = 0.into();
        ["I5"], "an epoch falls", |case| {
            let row = new(case, "cursor", KEYED, 2).clone();
            let fallen = with(&row, json!({"owner_epoch": 0}));
            case.note(300, "cursor", Some(row), Some(fallen));
        };
        ["I6"], "a filtered record made an event", |case| intrude(case, FILTERED, 0);
        ["I6"], "a record made one event too many", |case| intrude(case, SECOND, 1);
        ["I6", "I3"], "an event has no record", |case| intrude(case, END, 0);
        ["I7"], "an event has other bytes than its record makes", |case| {
            row(case, "outbox", KEYED, SECOND)["digest"] = OTHER.into();
            send_other_bytes(case, KEYED, SECOND);
        };
        ["I7"], "the direct path sends other bytes", |case| send_other_bytes(case, DIRECT, SECOND);
        ["D7"], "an event has another key", |case| rename(case, KEYED, SECOND, "other");
        ["D7"], "the direct path sends a key for another record",
            |case| request(case, DIRECT, SECOND, 1).source = "orders/0/0".to_owned();
        ["D7", "ALO-1"], "the direct path sends a key of no record", |case| rename(case, DIRECT, SECOND, "other");
        ["D8", "D7", "D9"], "two events share a key", |case| {
            let other = case.event(ORDERED, SECOND).key;
            row(case, "outbox", KEYED, SECOND)["key"] = other.into();
        };
    ]
}

fn delivery() -> Vec<Spoiler> {
    spoilers![
        ["D1"], "a delivery is taken before its lease has run out",
            |case| change(case, "delivery", KEYED, 2).at = 4_000;
        ["D1"], "a retry is taken before its lease has run out",
            |case| change(case, "retry", KEYED, 4).old.as_mut().unwrap()["lease_until_ms"] = 5_001.into();
        ["D2"], "the epoch of a delivery falls", |case| {
            let row = new(case, "delivery", KEYED, 2).clone();
            let fallen = with(&row, json!({"epoch": 1}));
            case.note(7_000, "delivery", Some(row), Some(fallen));
        };
        ["D2"], "a first attempt fails under an epoch that is not current",
            |case| new(case, "retry", KEYED, 0)["fence"] = 0.into();
        ["D2"], "a first attempt of the direct path fails under an epoch that is not current",
            |case| new(case, "retry", DIRECT, 0)["fence"] = 0.into();
        ["D2"], "the fence of a retry falls", |case| {
            change(case, "retry", KEYED, 4).old.as_mut().unwrap()["fence"] = 5.into();
        };
        ["D2"], "a retry is put back under a fence that is not current",
            |case| change(case, "retry", KEYED, 2).old.as_mut().unwrap()["fence"] = 1.into();
        ["D2"], "a first attempt dies under an epoch that is not current",
            |case| letter(case, KEYED, REFUSED)["fence"] = 1.into();
        ["D2"], "a retry dies under a fence that is not current", |case| {
            let row = with(&case.named(KEYED, REFUSED), json!({"state": "active", "sends": 2, "counted": 2, "fence": 3}));
            let at = case.audit.iter().position(|change| change.at == 6_110).unwrap();
            case.note(6_105, "retry", None, Some(row));
            let claimed = case.audit.pop().unwrap();
            case.audit.insert(at, claimed);
        };
        ["D3"], "an event ends twice", |case| {
            let row = new(case, "done", KEYED, 0).clone();
            case.note(7_000, "done", None, Some(row));
        };
        ["D3"], "an ended event is changed", |case| {
            let row = new(case, "done", KEYED, 0).clone();
            case.note(7_000, "done", Some(row.clone()), Some(with(&row, json!({"state": "discarded"}))));
        };
        ["D3"], "an ended event is deleted", |case| {
            let row = new(case, "done", KEYED, 0).clone();
            case.note(7_000, "done", Some(row), None);
        };
        ["D3", "ALO-2", "IDK-1"], "an event is dead and completed",
            |case| row(case, "done", KEYED, REFUSED)["state"] = "completed".into();
    ]
}

fn requests() -> Vec<Spoiler> {
    spoilers![
        ["D4"], "the receiver saw more requests than were counted", |case| {
            case.request(6_005, KEYED, SECOND, (1, 2), Some(200));
            // Under a number of its own, which the other half of this check would find.
            let leased = with(&case.named(KEYED, SECOND), json!({"state": "active", "sends": 0, "counted": 0, "fence": 2}));
            case.note(6_000, "retry", None, Some(leased));
            case.received.last_mut().unwrap().attempt = 0;
        };
        ["D4"], "one attempt is requested twice", |case| case.request(611, KEYED, FIRST, (3, 3), None);
        ["D4"], "more attempts are counted than are allowed",
            |case| new(case, "retry", KEYED, 4)["counted"] = (ATTEMPTS + 2).into();
        ["D5"], "a request is of no event", |case| request(case, KEYED, SECOND, 1).event = "nothing".to_owned();
        ["D5"], "a first attempt was never claimed", |case| request(case, KEYED, SECOND, 1).fence = 7;
        ["D5"], "a retry was never claimed", |case| request(case, KEYED, FIRST, 2).fence = 7;
        ["D5"], "a first attempt is made before its claim", |case| request(case, ORDERED, SECOND, 1).at = 4_900;
        ["D5"], "a retry is made before its claim", |case| request(case, ORDERED, FIRST, 4).at = 4_900;
        ["D5"], "the direct path sends under an epoch that was never taken",
            |case| request(case, DIRECT, SECOND, 1).fence = 7;
        ["D6"], "an attempt is claimed after the event's end", |case| change(case, "done", KEYED, 0).at = 4_400;
        ["D9"], "a request has other bytes than are stored", |case| send_other_bytes(case, KEYED, SECOND);
        ["D10"], "a request is not signed", |case| request(case, KEYED, SECOND, 1).signature = None;
        ["D10"], "a request is signed with another secret", |case| signature(case, SECOND).verified = false;
        ["D10"], "a request is older than it may be", |case| signature(case, SECOND).stamp = -1;
        ["D10"], "a request is of tomorrow", |case| signature(case, SECOND).stamp = 7;
        ["O1"], "a later event of a key is received first", |case| {
            let early = |request: &Received| request.source.ends_with("/0/0") && request.attempt < 4;
            case.received.retain(|request| request.workflow != ORDERED || !early(request));
            let (first, second) = (request(case, ORDERED, FIRST, 4).seq, request(case, ORDERED, SECOND, 1).seq);
            request(case, ORDERED, FIRST, 4).applied = true;
            request(case, ORDERED, FIRST, 4).seq = second;
            request(case, ORDERED, SECOND, 1).seq = first;
        };
        ["O2"], "an event is requested again after a later one of its key", |case| {
            let (last, second) = (request(case, ORDERED, FIRST, 4).seq, request(case, ORDERED, SECOND, 1).seq);
            request(case, ORDERED, FIRST, 4).seq = second;
            request(case, ORDERED, SECOND, 1).seq = last;
        };
        ["O3"], "a dead event keeps back the later ones of its key",
            |case| row(case, "dead_letter", ORDERED, REFUSED)["blocks"] = true.into();
        ["O3", "ALO-1"], "an event does not go out because another of its key has died", |case| {
            let key = case.event(ORDERED, LAST).key;
            case.received.retain(|request| request.key != key);
            remove(case, "done", ORDERED, LAST);
        };
    ]
}

fn heads() -> Vec<Spoiler> {
    spoilers![
        ["S3"], "a path has more in it than was configured", |case| in_head(case, "/events", "/events/7");
        ["S3"], "a header comes that nobody promised", |case| in_head(case, "\nhost", "\nx-order: 7\nhost");
        ["S3"], "a header comes twice", |case| in_head(case, "\nhost", "\nx-turn: 0\nhost");
        ["S3"], "a header that was promised does not come", |case| in_head(case, "\nx-turn: 0", "");
        ["S3"], "a request that is to be signed has no stamp", |case| in_head(case, "\nwebhook-timestamp", "");
        ["S3"], "a request that is not to be signed is", |case| {
            request(case, ORDERED, SECOND, 1).head.as_mut().unwrap().push_str("\nwebhook-signature");
        };
        ["S3"], "a digest is of other bytes", |case| in_head(case, "sha-256=:", "sha-256=:7");
        ["S3"], "a length is none", |case| in_head(case, "content-length: 99", "content-length: many");
        ["S3"], "a body is said to be something else", |case| in_head(case, "application/json", "text/plain");
        ["S3"], "a request is for another host", |case| in_head(case, "host: 127.0.0.1", "host: 7");
        ["S3"], "a key is not in quotes", |case| in_head(case, "\"", "");
        ["S3"], "the webhook's id is not the key", |case| in_head(case, "webhook-id: ", "webhook-id: 7");
        ["S3"], "a trace is none", |case| in_head(case, "traceparent: 00-", "traceparent: 7-");
        ["S3"], "the sender calls itself by something of the event", |case| in_head(case, "oncebox/", "oncebox/7 ");
        ["S3"], "a configured header has something of the event in it", |case| in_head(case, "x-turn: 0", "x-turn: one");
    ]
}

fn outcome() -> Vec<Spoiler> {
    spoilers![
        ["ALO-1"], "an event has not ended", |case| {
            remove(case, "done", KEYED, SECOND);
        };
        ["ALO-1"], "an event is cancelled, and nobody asked for it",
            |case| row(case, "done", KEYED, SECOND)["state"] = "cancelled".into();
        ["ALO-1"], "a retry still waits", |case| {
            let row = case.named(KEYED, SECOND);
            case.keep("retry", row);
        };
        ["ALO-1"], "an event of the direct path was answered in part and did not end",
            |case| cut(case, DIRECT, SECOND, 1);
        ["ALO-2"], "a completed event was never answered in full", |case| cut(case, KEYED, SECOND, 1);
        ["ALO-2", "ALO-1"], "a completed event of the direct path was never answered in full",
            |case| cut(case, DIRECT, FIRST, 4);
        ["ALO-3"], "an event is dead as rejected, and was not", |case| cut(case, KEYED, REFUSED, 1);
        ["ALO-3"], "an event is dead as exhausted before its attempts were",
            |case| row(case, "dead_letter", KEYED, REFUSED)["reason"] = "exhausted".into();
        ["ALO-3"], "an event is dead as in doubt although it may be repeated",
            |case| row(case, "dead_letter", KEYED, REFUSED)["reason"] = "in_doubt".into();
        ["ALO-3"], "an event is dead for no known reason",
            |case| row(case, "dead_letter", KEYED, REFUSED)["reason"] = "tired".into();
        ["ALO-3"], "an event sent at most once is dead as rejected, and was not", |case| cut(case, ONCE, REFUSED, 1);
        ["ALO-3"], "an event is given up without a dead letter", |case| remove(case, "dead_letter", KEYED, REFUSED);
        ["AMO-1", "D4"], "an event is sent twice", |case| case.request(6_005, ONCE, SECOND, (1, 2), Some(200));
        ["AMO-2", "ALO-1"], "an event has neither arrived nor ended", |case| remove(case, "done", ONCE, SECOND);
        ["AMO-2", "ALO-3"], "an event that was sent is dead as never sent",
            |case| row(case, "dead_letter", ONCE, REFUSED)["reason"] = "exhausted".into();
        ["AMO-2"], "an event is in doubt, and nothing had happened", |case| case.faults.clear();
        ["IDK-1"], "an effect is had twice", |case| request(case, KEYED, FIRST, 4).applied = true;
        ["IDK-1"], "an effect is had never", |case| request(case, KEYED, SECOND, 1).applied = false;
        ["IDK-1"], "an effect of the direct path is had never", |case| request(case, DIRECT, SECOND, 1).applied = false;
        ["L1"], "it is not quiet in time", |case| case.meta.quiet = Some(case.meta.healed + 120_001);
        ["L1"], "it is never quiet", |case| case.meta.quiet = None;
        ["L1"], "a retry is due for long and nobody takes it", |case| {
            let waiting = with(&case.named(KEYED, FIRST), json!({"state": "retryable", "sends": 4, "counted": 4, "fence": 4}));
            let taken = with(&waiting, json!({"state": "active", "sends": 5, "fence": 5}));
            case.note(6_000, "retry", Some(waiting.clone()), Some(waiting.clone()));
            case.note(case.meta.healed + 60_001, "retry", Some(waiting), Some(taken));
        };
        ["L3"], "a retry of a lane is due for long and nobody takes it", |case| {
            let waiting = with(&case.named(ORDERED, FIRST), json!({"state": "retryable", "sends": 4, "counted": 4, "fence": 4}));
            let taken = with(&waiting, json!({"state": "active", "sends": 5, "fence": 5}));
            case.note(6_000, "retry", Some(waiting.clone()), Some(waiting.clone()));
            case.note(case.meta.healed + 60_001, "retry", Some(waiting), Some(taken));
        };
        ["L3"], "the turn of an event has come for long and nobody lets it go",
            |case| change(case, "retry", ORDERED, 7).at = case.meta.healed + 60_001;
        ["L1"], "a relay panics", |case| case.logs[0].1.push_str("thread 'main' panicked at");
        ["RB1"], "a relay uses too much memory", |case| case.samples[0].rss_kib = 1 << 20;
        ["RB1"], "a relay opens too many files", |case| case.samples[0].open_files = 401;
        ["S1"], "a redirect is followed", |case| case.meta.decoyed = 1;
        ["S2"], "a secret is in a log", |case| case.logs[0].1.push_str("canary-1");
        ["S2"], "the signing secret is in a log", |case| {
            let secret = signing_secret(&case.meta.canary);
            case.logs[0].1.push_str(&secret);
        };
        ["S2"], "a secret is in a row", |case| row(case, "done", KEYED, SECOND)["note"] = "canary-1".into();
    ]
}
