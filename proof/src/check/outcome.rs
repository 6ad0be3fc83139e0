//! How it ended: everything delivered or dead for a reason, each effect once, and in time.

use std::collections::{HashMap, HashSet};

use super::{Case, Place, Report};
use crate::evidence::{AT_MOST_ONCE, Received, signing_secret};

const REFUSALS: [u16; 5] = [400, 413, 414, 415, 422];
const DRAIN_LIMIT: i64 = 120_000;
/// Twice what a relay with both workflows at full load was seen to use.
const MOST_RSS_KIB: u64 = 400 << 10;
const MOST_FILES: usize = 400;

pub fn check(case: &Case, report: &mut Report) {
    let answers = Answers::of(case);
    ends(case, &answers, report);
    letters(case, report);
    effects(case, &answers, report);
    liveness(case, report);
    bounds(case, report);
    repeats(case, &answers, report);
}

/// What the receiver answered, by key.
struct Answers<'a> {
    requests: HashMap<&'a str, Vec<&'a Received>>,
    /// Statuses whose every byte went out.
    whole: HashMap<&'a str, Vec<u16>>,
}

impl<'a> Answers<'a> {
    fn of(case: &'a Case) -> Self {
        let (mut requests, mut whole): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = (HashMap::new(), HashMap::new());
        for request in &case.received {
            requests.entry(request.key.as_str()).or_default().push(request);
            if let Some(answer) = case.answered.get(&request.seq).filter(|answer| answer.whole) {
                whole.entry(request.key.as_str()).or_default().push(answer.status);
            }
        }
        Self { requests, whole }
    }

    fn has(&self, key: &str, wanted: impl Fn(u16) -> bool) -> bool {
        self.whole.get(key).is_some_and(|statuses| statuses.iter().any(|status| wanted(*status)))
    }
}

/// ALO-1, ALO-2, ALO-3: every event ended, and the receiver's own log bears its end out.
fn ends(case: &Case, answers: &Answers<'_>, report: &mut Report) {
    let done: HashMap<Place, &str> =
        case.rows("done").iter().map(|row| (Place::of(row), row["state"].as_str().unwrap_or_default())).collect();
    for row in case.rows("outbox") {
        let (place, key) = (Place::of(row), row["key"].as_str().unwrap_or_default());
        // An operator may cancel; there is none in a run.
        let ended = done.get(&place).copied();
        report.expect("ALO-1", matches!(ended, Some("completed" | "discarded")), || {
            format!("{place:?} ({key}) has not ended as it may: {ended:?}")
        });
        if done.get(&place) == Some(&"completed") {
            report.expect("ALO-2", answers.has(key, |status| (200..300).contains(&status)), || {
                format!("{place:?} ({key}) is completed, and the receiver never answered 2xx in full")
            });
        }
    }
    for row in case.rows("retry") {
        report.expect("ALO-1", false, || format!("{:?} still waits", Place::of(row)));
    }
    for row in case.rows("dead_letter") {
        let (key, sends) = (row["key"].as_str().unwrap_or_default(), row["sends"].as_u64().unwrap_or(0));
        let flow = case.flow(row["workflow"].as_str().unwrap_or_default());
        let limit = flow.map_or(0, |flow| u64::from(flow.max_attempts));
        let at_most_once = flow.is_some_and(|flow| flow.guarantee == AT_MOST_ONCE);
        let justified = match row["reason"].as_str() {
            // At most once takes every answer but 2xx for final, also one that made no sense.
            Some("rejected") if at_most_once => answers.has(key, |status| !(200..300).contains(&status)),
            Some("in_doubt") => at_most_once,
            Some("rejected") => answers.has(key, |status| REFUSALS.contains(&status)),
            Some("exhausted") => sends >= limit,
            // Checked against the record itself, with the dispositions.
            Some("invalid") => true,
            _ => false,
        };
        report
            .expect("ALO-3", justified, || format!("{:?} is dead as {} without cause", Place::of(row), row["reason"]));
    }
}

/// ALO-3: nothing is given up without a letter that says so.
fn letters(case: &Case, report: &mut Report) {
    let letters: HashSet<Place> = case.rows("dead_letter").iter().map(Place::of).collect();
    for row in case.rows("done").iter().filter(|row| row["state"] == "discarded") {
        let place = Place::of(row);
        report.expect("ALO-3", letters.contains(&place), || format!("{place:?} was discarded without a dead letter"));
    }
}

/// IDK-1: a receiver that honours the key has each effect once.
fn effects(case: &Case, answers: &Answers<'_>, report: &mut Report) {
    let mut applied: HashMap<&str, usize> = HashMap::new();
    for request in case.received.iter().filter(|request| request.applied) {
        *applied.entry(request.key.as_str()).or_default() += 1;
    }
    let completed: HashSet<Place> =
        case.rows("done").iter().filter(|row| row["state"] == "completed").map(Place::of).collect();
    for row in case.rows("outbox").iter().filter(|row| completed.contains(&Place::of(row))) {
        let key = row["key"].as_str().unwrap_or_default();
        let times = applied.get(key).copied().unwrap_or(0);
        report.expect("IDK-1", times == 1, || {
            format!("{key} had {times} effects in {:?}", answers.requests.get(key).map(Vec::len))
        });
    }
}

/// L1, S2: quiet in time, no panic, no secret in a log or a row.
fn liveness(case: &Case, report: &mut Report) {
    let took = case.meta.quiet.map(|quiet| quiet - case.meta.healed);
    report.expect("L1", took.is_some_and(|took| took <= DRAIN_LIMIT), || format!("not quiet in time: {took:?} ms"));
    report.figures.insert("drained_ms", took.unwrap_or(-1) as f64);
    let secrets = [case.meta.canary.clone(), signing_secret(&case.meta.canary)];
    let tells = |text: &str| secrets.iter().any(|secret| text.contains(secret));
    for (name, text) in &case.logs {
        report.expect("L1", !text.contains("panicked at"), || format!("{name} has a panic"));
        report.expect("S2", !tells(text), || format!("{name} has a secret in it"));
    }
    for (table, rows) in &case.tables {
        let found = rows.iter().any(|row| tells(&row.to_string()));
        report.expect("S2", !found, || format!("table {table} has a secret in it"));
    }
}

/// RB1, S1: memory and files stay within bounds, and nobody follows a redirect.
fn bounds(case: &Case, report: &mut Report) {
    for sample in &case.samples {
        let fits = sample.rss_kib <= MOST_RSS_KIB && sample.open_files <= MOST_FILES;
        report.expect("RB1", fits, || format!("{sample:?}"));
    }
    let most = case.samples.iter().map(|sample| sample.rss_kib).max().unwrap_or(0);
    report.figures.insert("most_rss_mib", (most / 1024) as f64);
    report.expect("S1", case.meta.decoyed == 0, || format!("{} redirects were followed", case.meta.decoyed));
}

/// How often a request came again although its key had been processed, and how much of that no lost answer explains.
fn repeats(case: &Case, answers: &Answers<'_>, report: &mut Report) {
    let (mut repeated, mut after_answer) = (0usize, 0usize);
    for requests in answers.requests.values() {
        let mut processed = false;
        let mut answered = false;
        for request in requests {
            repeated += usize::from(processed);
            after_answer += usize::from(answered);
            processed |= request.applied;
            let answer = case.answered.get(&request.seq);
            answered |= answer.is_some_and(|answer| answer.whole && (200..300).contains(&answer.status));
        }
    }
    report.figures.insert("requests", case.received.len() as f64);
    report.figures.insert("records", case.dumped.len() as f64);
    report.figures.insert("records_distinct", super::ingest::distinct(&case.dumped) as f64);
    report.figures.insert("repeated_requests", repeated as f64);
    report.figures.insert("repeated_after_a_whole_2xx", after_answer as f64);
}
