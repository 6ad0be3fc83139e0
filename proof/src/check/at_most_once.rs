//! At most once: no event is requested twice, and each that did not arrive is dead for a reason that says so.
//!
//! A failover that loses commits loses the note that an attempt was made. What was sent in that window may be sent again,
//! and then somebody must have been told.

use std::collections::{HashMap, HashSet};

use super::{Case, Place, Report};
use crate::evidence::{AT_MOST_ONCE, Received};

pub fn check(case: &Case, report: &mut Report) {
    let flows: HashSet<&str> =
        case.meta.workflows.iter().filter(|flow| flow.guarantee == AT_MOST_ONCE).map(|flow| flow.id.as_str()).collect();
    let mut requests: HashMap<&str, Vec<&Received>> = HashMap::new();
    for request in case.received.iter().filter(|request| flows.contains(request.workflow.as_str())) {
        requests.entry(request.key.as_str()).or_default().push(request);
    }
    let told: HashSet<&str> = case
        .rows("audit")
        .iter()
        .filter(|row| row["action"] == "failover")
        .filter_map(|row| row["workflow"].as_str())
        .collect();
    let mut again = 0;
    for (key, requests) in &requests {
        let lost = requests.iter().filter(|request| case.may_be_lost(request.at)).count();
        again += requests.len() - 1;
        report.expect("AMO-1", requests.len() - lost.min(requests.len() - 1) <= 1, || {
            format!("{key} was requested {} times, {lost} of them in a window that a failover lost", requests.len())
        });
        let unsaid = requests.len() > 1 && !told.contains(requests[0].workflow.as_str());
        report.expect("AMO-1", !unsaid, || format!("{key} was requested again after a failover, and nobody was told"));
    }
    report.figures.insert("at_most_once_again_after_lost_commits", again as f64);
    ends(case, &flows, &requests, report);
    doubts(case, &requests, report);
}

/// Whether requests under way can be lost by a fault: it ends or stops a relay, or comes between it and Postgres or the receiver.
fn loses_attempts(fault: &str) -> bool {
    matches!(fault, "killrelay" | "pauserelay" | "killbackend" | "crashpostgres" | "failover")
        || fault.ends_with("-postgres")
        || fault.ends_with("-receiver")
        || fault.starts_with("receiver-")
}

/// AMO-2: no more is in doubt than can have been under way when something broke, twice the concurrency each time. Where the
/// receiver itself did not answer in full no fault is needed; it loses some of its answers all the time.
fn doubts(case: &Case, requests: &HashMap<&str, Vec<&Received>>, report: &mut Report) {
    let faults = case.faults.iter().filter(|fault| fault.phase != "end" && loses_attempts(&fault.fault)).count();
    let is_answered = |request: &Received| case.answered.get(&request.seq).is_some_and(|answer| answer.whole);
    for flow in case.meta.workflows.iter().filter(|flow| flow.guarantee == AT_MOST_ONCE) {
        let letters = case.rows("dead_letter").iter().filter(|row| row["workflow"] == flow.id);
        let keys = letters.filter(|row| row["reason"] == "in_doubt").map(|row| row["key"].as_str().unwrap_or_default());
        let lost = keys
            .filter(|key| requests.get(key).is_none_or(|requests| requests.iter().all(|request| is_answered(request))))
            .count();
        let most = faults * 2 * flow.concurrency as usize;
        report.expect("AMO-2", lost <= most, || {
            format!("{} has {lost} in doubt that the receiver answered or never saw, and {faults} faults", flow.id)
        });
        report.figures.insert("at_most_once_in_doubt_by_faults", lost as f64);
    }
}

/// AMO-2: completed, or dead as rejected, in doubt, or never sent.
fn ends(case: &Case, flows: &HashSet<&str>, requests: &HashMap<&str, Vec<&Received>>, report: &mut Report) {
    let cursors: HashSet<i64> = case
        .rows("cursor")
        .iter()
        .filter(|row| row["workflow"].as_str().is_some_and(|flow| flows.contains(flow)))
        .filter_map(|row| row["id"].as_i64())
        .collect();
    let reasons: HashMap<Place, &str> = case
        .rows("dead_letter")
        .iter()
        .map(|row| (Place::of(row), row["reason"].as_str().unwrap_or_default()))
        .collect();
    let completed: HashSet<Place> =
        case.rows("done").iter().filter(|row| row["state"] == "completed").map(Place::of).collect();
    let mut in_doubt = 0;
    for row in case.rows("outbox") {
        let (place, key) = (Place::of(row), row["key"].as_str().unwrap_or_default());
        if !cursors.contains(&place.cursor) || completed.contains(&place) {
            continue;
        }
        let reason = reasons.get(&place).copied().unwrap_or_default();
        in_doubt += usize::from(reason == "in_doubt");
        let fits = match reason {
            "in_doubt" => true,
            "rejected" => requests.contains_key(key),
            "exhausted" | "expired" => !requests.contains_key(key),
            _ => false,
        };
        report.expect("AMO-2", fits, || format!("{place:?} ({key}) is neither delivered nor rightly dead: `{reason}`"));
    }
    report.figures.insert("at_most_once_in_doubt", in_doubt as f64);
}
