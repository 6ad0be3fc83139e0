//! From the outbox to the endpoint: one lease at a time, under the fence it was made with, counted, and never after the
//! end.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Case, Place, Report};
use crate::evidence::{Audit, Received};

/// The receiver's clock and the database's are one, but a statement is older than its row's note by a moment.
const CLOCK: i64 = 50;
/// A transaction is seen by others when its commit is on disk, which comes after its last change; and a statement looks before
/// its first change. On a busy machine both take their time, and the evidence has neither.
const UNSEEN: i64 = 500;

pub fn check(case: &Case, report: &mut Report) {
    leases(case, report);
    fences(case, report);
    terminal(case, report);
    requests(case, report);
    bodies(case, report);
}

fn number(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or(-1)
}

/// Postgres writes times as text in the row's JSON; the triggers add each as milliseconds.
fn millis(row: &Value, name: &str) -> Option<i64> {
    row[format!("{name}_ms")].as_i64()
}

/// D1: a lease is taken only when there is none, or it has run out.
fn leases(case: &Case, report: &mut Report) {
    for change in case.changes("delivery").chain(case.changes("retry")) {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { continue };
        let (holder, right) = if change.table == "delivery" { ("owner", "epoch") } else { ("leased_by", "fence") };
        let taken = !new[holder].is_null() && (old[holder] != new[holder] || old[right] != new[right]);
        // A process that does not know that it holds a delivery may take its own anew.
        let own = change.table == "delivery" && old[holder] == new[holder];
        if taken && !own && !old[holder].is_null() {
            let over = millis(old, "lease_until").is_none_or(|until| until <= change.at);
            report.expect("D1", over, || {
                format!(
                    "a {} was taken {} ms before its lease ran out: {new}",
                    change.table,
                    millis(old, "lease_until").unwrap_or(0) - change.at
                )
            });
        }
    }
}

/// The right that an event's retry was last written under, and the transaction that removed it.
type LastFence<'a> = HashMap<Place, (i64, Option<&'a str>)>;

/// D2: fences never fall, and a failure or a death is written only under the current one.
fn fences(case: &Case, report: &mut Report) {
    let direct = case.direct_cursors();
    let mut epochs: HashMap<i64, i64> = HashMap::new();
    let mut fences: LastFence<'_> = HashMap::new();
    for change in &case.audit {
        if let Some(row) = change.new.as_ref().or(change.old.as_ref()).filter(|_| change.table == "retry") {
            let removed = change.new.is_none().then_some(change.xid.as_str());
            fences.insert(Place::of(row), (number(row, "fence"), removed));
        }
        let Some(new) = &change.new else { continue };
        match change.table.as_str() {
            // Without the outbox it is the reader that sends.
            "cursor" if direct.contains(&number(new, "id")) => {
                epochs.insert(number(new, "id"), number(new, "owner_epoch"));
            }
            "delivery" if direct.contains(&number(new, "cursor")) => {}
            "delivery" => {
                let (cursor, epoch) = (number(new, "cursor"), number(new, "epoch"));
                let before = epochs.insert(cursor, epoch);
                report.expect("D2", before.is_none_or(|before| before <= epoch), || {
                    format!("the epoch of {cursor} fell")
                });
            }
            "retry" => retried(change, new, &epochs, report),
            "dead_letter" if change.old.is_none() => died(change, new, &epochs, &fences, report),
            _ => {}
        }
    }
}

/// A retry dies under its own fence, also where its row goes in the same statement; a first attempt under the epoch.
fn died(change: &Audit, new: &Value, epochs: &HashMap<i64, i64>, fences: &LastFence<'_>, report: &mut Report) {
    // No event came of these, and nobody had to have a right to send it.
    if new["reason"] == "invalid" || new["reason"] == "too_large" {
        return;
    }
    let place = Place::of(new);
    let retry = fences.get(&place).filter(|(_, removed)| removed.is_none_or(|xid| xid == change.xid));
    let current = retry.map(|(fence, _)| fence).or_else(|| epochs.get(&place.cursor)).copied();
    report.expect("D2", Some(number(new, "fence")) == current, || {
        format!("{place:?} died under fence {}, with {current:?} current", new["fence"])
    });
}

fn retried(change: &Audit, new: &Value, epochs: &HashMap<i64, i64>, report: &mut Report) {
    let place = Place::of(new);
    match &change.old {
        None if number(new, "sends") == 1 => {
            let epoch = epochs.get(&place.cursor).copied().unwrap_or(-1);
            report.expect("D2", number(new, "fence") == epoch, || {
                format!("a first attempt of {place:?} failed under epoch {}, with {epoch} current", new["fence"])
            });
        }
        None => {}
        Some(old) => {
            report
                .expect("D2", number(new, "fence") >= number(old, "fence"), || format!("the fence of {place:?} fell"));
            if old["state"] == "active" && new["state"] == "retryable" {
                report.expect("D2", old["fence"] == new["fence"], || {
                    format!("{place:?} was put back under fence {}, with {} current", new["fence"], old["fence"])
                });
            }
        }
    }
}

/// D3: an event ends once, and stays as it ended.
fn terminal(case: &Case, report: &mut Report) {
    let mut ended: HashSet<Place> = HashSet::new();
    for change in case.changes("done") {
        match (&change.old, &change.new) {
            (None, Some(new)) => {
                let place = Place::of(new);
                report.expect("D3", ended.insert(place), || format!("{place:?} ended twice"));
            }
            (old, _) => report.expect("D3", false, || format!("an ended event was changed: {old:?}")),
        }
    }
    let states: HashMap<Place, &str> =
        case.rows("done").iter().map(|row| (Place::of(row), row["state"].as_str().unwrap_or_default())).collect();
    for row in case.rows("dead_letter").iter().filter(|row| row["reason"] != "invalid" && row["reason"] != "too_large")
    {
        let place = Place::of(row);
        report
            .expect("D3", states.get(&place) == Some(&"discarded"), || format!("{place:?} is dead and not discarded"));
    }
}

/// When a transaction made its first and its last change. It is of one statement, so it saw nothing that was committed
/// after the first, and nobody saw anything of it before the last.
#[derive(Clone, Copy)]
struct Span {
    first: i64,
    last: i64,
}

fn transactions(case: &Case) -> HashMap<&str, Span> {
    let mut spans: HashMap<&str, Span> = HashMap::new();
    for change in &case.audit {
        let span = spans.entry(&change.xid).or_insert(Span { first: change.at, last: change.at });
        *span = Span { first: span.first.min(change.at), last: span.last.max(change.at) };
    }
    spans
}

/// When each right to send came to be: of a range by its epoch, of a retry by its fence.
struct Claims {
    epochs: HashMap<(i64, i64), Span>,
    fences: HashMap<(Place, i64, i64), Span>,
}

impl Claims {
    fn of(case: &Case) -> Self {
        let (mut epochs, mut fences) = (HashMap::new(), HashMap::new());
        let transactions = transactions(case);
        for change in &case.audit {
            let Some((new, span)) = change.new.as_ref().zip(transactions.get(change.xid.as_str()).copied()) else {
                continue;
            };
            if change.table == "delivery" {
                epochs.entry((number(new, "cursor"), number(new, "epoch"))).or_insert(span);
            } else if change.table == "cursor" && new["direct"] == true {
                epochs.entry((number(new, "id"), number(new, "owner_epoch"))).or_insert(span);
            } else if change.table == "retry" && new["state"] == "active" {
                let key = (Place::of(new), number(new, "fence"), number(new, "sends"));
                fences.entry(key).or_insert(span);
            }
        }
        Self { epochs, fences }
    }

    fn of_request(&self, request: &Received, place: Place) -> Option<Span> {
        let leased = self.fences.get(&(place, request.fence, i64::from(request.attempt))).copied();
        match request.attempt {
            // Of a record with many events, first attempts too may be leased one by one.
            1 => self.epochs.get(&(place.cursor, request.fence)).copied().or(leased),
            _ => leased,
        }
    }
}

/// D4, D5, D6: the database knows of every request, before it is made, and none is claimed after the end.
fn requests(case: &Case, report: &mut Report) {
    let claims = Claims::of(case);
    // A late answer ends an event under its own number, with a later attempt on the books already.
    let mut counted: HashMap<Place, i64> = HashMap::new();
    for new in case.changes("retry").filter_map(|change| change.new.as_ref()) {
        let most = counted.entry(Place::of(new)).or_default();
        *most = number(new, "sends").max(*most);
    }
    let transactions = transactions(case);
    let ended = |change: &Audit| transactions.get(change.xid.as_str()).map_or(change.at, |span| span.last);
    let done: HashMap<Place, (i64, i64)> = case
        .changes("done")
        .filter_map(|change| Some((change.new.as_ref()?, ended(change))))
        .map(|(new, ended)| (Place::of(new), (number(new, "sends"), ended)))
        .collect();
    let mut seen: HashMap<Place, Vec<&Received>> = HashMap::new();
    for request in &case.received {
        match Place::parse(&request.event) {
            Some(place) => seen.entry(place).or_default().push(request),
            None => report.expect("D5", false, || format!("`{}` is no event id", request.event)),
        }
    }
    let direct = case.direct_cursors();
    for (place, mut requests) in seen {
        let by_reader = direct.contains(&place.cursor);
        // Of what a failover lost, the database cannot know.
        let known: Vec<&&Received> = requests.iter().filter(|request| !case.may_be_lost(request.at)).collect();
        for request in &known {
            // Without the outbox a probe of an open circuit that failed is put back, and sent again by whoever reads.
            let of_reader = claims.epochs.get(&(place.cursor, request.fence)).copied().filter(|_| by_reader);
            let claimed = claims.of_request(request, place).or(of_reader);
            report.expect("D5", claimed.is_some_and(|claim| claim.last <= request.at + CLOCK), || {
                format!("attempt {} of {place:?} was made without a claim before it", request.attempt)
            });
            if let (Some(claimed), Some((_, ended)), true) = (claimed, done.get(&place), request.attempt > 1) {
                report.expect("D6", claimed.first <= *ended + UNSEEN, || {
                    format!("attempt {} of {place:?} was claimed after the event's end", request.attempt)
                });
            }
        }
        let all_known = known.len() == requests.len();
        // What was read again is sent again, as a first attempt; what was stored is counted as always.
        if by_reader {
            requests.retain(|request| request.attempt > 1);
        }
        if let (Some((sends, _)), true) = (done.get(&place), all_known) {
            let sends = counted.get(&place).copied().unwrap_or(0).max(*sends);
            report.expect("D4", requests.len() as i64 <= sends, || {
                format!("{place:?} was requested {} times, the database counted {sends}", requests.len())
            });
            let mut attempts: Vec<u32> = requests.iter().map(|request| request.attempt).collect();
            attempts.sort_unstable();
            attempts.dedup();
            report.expect("D4", attempts.len() == requests.len(), || {
                format!("{place:?} was requested twice under one attempt number: a hidden retry")
            });
        }
    }
    for change in case.changes("retry") {
        let Some(new) = &change.new else { continue };
        let limit = case.flow(new["workflow"].as_str().unwrap_or_default()).map_or(0, |flow| flow.max_attempts);
        // A claim beyond the limit is made, and then ends the event instead of being sent.
        report.expect("D4", number(new, "counted") <= i64::from(limit) + 1, || {
            format!("{:?} has {} counted attempts", Place::of(new), new["counted"])
        });
    }
}

/// D9: whatever is sent under a key has the bytes of its event.
fn bodies(case: &Case, report: &mut Report) {
    let stored: HashMap<&str, &str> =
        case.rows("outbox").iter().filter_map(|row| Some((row["key"].as_str()?, row["digest"].as_str()?))).collect();
    let direct: HashSet<&str> =
        case.meta.workflows.iter().filter(|flow| flow.is_direct()).map(|flow| flow.id.as_str()).collect();
    for request in case.received.iter().filter(|request| !direct.contains(request.workflow.as_str())) {
        report.expect("D9", stored.get(request.key.as_str()) == Some(&request.digest.as_str()), || {
            format!("{} was sent with other bytes than are stored", request.key)
        });
    }
}
