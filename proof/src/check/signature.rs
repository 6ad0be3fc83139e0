//! D10: every request of a signed flow is signed with the secret that both sides know, at its own time.
//!
//! The stamp tells a receiver how old a request is, so a request must not be old when it comes. What the run itself held up does not
//! count: a relay that was stopped between signing and sending, and a connection to the receiver that was made slow or silent.

use std::collections::HashMap;

use super::{Case, Report};

/// The stamp is in whole seconds, so up to one more was over when it was made.
const OLDEST: i64 = 5_000 + 1_000;
/// Both clocks are one.
const CLOCK: i64 = 50;

pub fn check(case: &Case, report: &mut Report) {
    let windows = windows(case);
    for request in &case.received {
        if !case.flow(&request.workflow).is_some_and(|flow| flow.signed) {
            continue;
        }
        let verified = request.signature.filter(|signature| signature.verified);
        report.expect("D10", verified.is_some(), || {
            format!("attempt {} of {} has no valid signature: {:?}", request.attempt, request.key, request.signature)
        });
        let Some(signature) = verified else { continue };
        let signed = signature.stamp * 1_000;
        let held_up: i64 = windows
            .iter()
            .map(|(from, to)| request.at.min(*to) - signed.max(*from))
            .filter(|overlap| *overlap > 0)
            .sum();
        let age = request.at - signed;
        report.expect("D10", age >= -CLOCK && age - held_up <= OLDEST, || {
            format!(
                "attempt {} of {} came {age} ms after its stamp, {held_up} of them held up",
                request.attempt, request.key
            )
        });
    }
}

/// When faults held requests up, each from its beginning to its end. One that has no end lasted until all was healed.
fn windows(case: &Case) -> Vec<(i64, i64)> {
    let holds_up = |fault: &str| fault == "pauserelay" || (fault.ends_with("-receiver") && !fault.starts_with("cut"));
    let (mut open, mut windows) = (HashMap::new(), Vec::new());
    for fault in case.faults.iter().filter(|fault| holds_up(&fault.fault)) {
        let name = (fault.fault.as_str(), fault.target.as_str());
        match fault.phase.as_str() {
            "begin" => drop(open.insert(name, fault.at)),
            _ => windows.extend(open.remove(&name).map(|from| (from, fault.at))),
        }
    }
    windows.extend(open.into_values().map(|from| (from, case.meta.healed)));
    windows
}
