//! L1, L3: once all is healed, nothing that could go out waits for long because nobody takes it: a retry that is due, and in a flow
//! that keeps order also the next event of a lane whose turn has come. What is never taken is not quiet in time.

use std::collections::HashMap;

use super::{Case, Place, Report, order};

const LONGEST_WAIT: i64 = 60_000;

pub fn check(case: &Case, report: &mut Report) {
    let turns = order::turns(case);
    let mut changed: HashMap<Place, i64> = HashMap::new();
    for change in case.changes("retry") {
        let Some(new) = &change.new else { continue };
        let place = Place::of(new);
        let before = changed.insert(place, change.at);
        let Some(old) = &change.old else { continue };
        // Nothing waits for longer than it has stood as it does, whatever its time.
        let waited_since = |from: Option<i64>| {
            let since = [from, before, Some(case.meta.healed)].into_iter().flatten().max();
            since.map_or(0, |since| change.at - since)
        };
        if old["held"] == "order" && new["held"] != "order" {
            let waited = waited_since(turns.get(&place).copied());
            report.expect("L3", waited <= LONGEST_WAIT, || {
                format!("{place:?} was let go {waited} ms after its turn had come")
            });
        }
        if old["state"] != "active" && new["state"] == "active" {
            let waited = waited_since(old["due_ms"].as_i64());
            let flow = new["workflow"].as_str().and_then(|id| case.flow(id));
            let id = if flow.is_some_and(|flow| flow.ordered) { "L3" } else { "L1" };
            report.expect(id, waited <= LONGEST_WAIT, || {
                format!("{place:?} was due for {waited} ms before anybody took it")
            });
        }
    }
}
