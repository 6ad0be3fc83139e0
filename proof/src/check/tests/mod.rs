//! The checker is alive: it finds nothing in a clean run, sees a fact for every invariant, and each way to break a promise is
//! found, under the promise's own name and under no other than those that break with it.

mod clean;
mod facts;
mod find;
mod spoilers;

use std::collections::BTreeSet;

use super::{Case, IDS, judge};
use spoilers::{Spoiler, spoilers};

fn violated(case: &Case) -> BTreeSet<&'static str> {
    judge(case).violations.iter().map(|violation| violation.id).collect()
}

#[test]
fn a_clean_run_breaks_no_promise_and_gives_every_check_something_to_look_at() {
    let report = judge(&clean::case());
    assert_eq!(report.violations.iter().map(|v| format!("{}: {}", v.id, v.what)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(report.idle(), [""; 0], "these looked at nothing");
}

#[test]
fn every_broken_promise_is_found_under_its_own_name() {
    let mut wrong = Vec::new();
    for Spoiler { breaks, how, spoil } in spoilers() {
        let mut case = clean::case();
        spoil(&mut case);
        let (found, expected) = (violated(&case), breaks.iter().copied().collect());
        if found != expected {
            wrong.push(format!("{how}: found {found:?} instead of {expected:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn no_promise_is_without_a_way_to_break_it() {
    let broken: BTreeSet<&str> = spoilers().iter().map(|spoiler| spoiler.breaks[0]).collect();
    assert_eq!(broken, IDS.into_iter().collect());
}

#[test]
fn an_invariant_that_nothing_was_held_against_is_named() {
    let mut case = clean::case();
    (case.samples, case.produced) = (Vec::new(), Vec::new());
    assert_eq!(judge(&case).idle(), ["K0", "RB1"]);
}

#[test]
fn a_signature_may_be_older_by_as_long_as_a_fault_held_its_request_up() {
    let fault = |at, phase: &str| crate::evidence::Fault {
        at,
        fault: "pauserelay".to_owned(),
        target: "relay-1".to_owned(),
        phase: phase.to_owned(),
    };
    let mut case = clean::case();
    let late = case.received.iter_mut().find(|request| request.at == 6_000).expect("one of the signed flow");
    late.signature.as_mut().expect("it is signed").stamp = -3;
    assert!(violated(&case).contains("D10"));
    case.faults = vec![fault(0, "begin"), fault(2_900, "end")];
    assert!(violated(&case).contains("D10"), "it is older by more than that");
    case.faults[1].at = 3_000;
    assert!(violated(&case).is_empty());
}

#[test]
fn as_many_may_be_in_doubt_as_were_under_way_at_each_fault_and_those_that_the_receiver_did_not_answer() {
    let mut case = clean::case();
    let letter = find::row(&mut case, "dead_letter", clean::ONCE, clean::FIRST).clone();
    case.keep("dead_letter", letter.clone());
    assert!(violated(&case).is_empty(), "one fault, and twice a concurrency of one");
    case.keep("dead_letter", letter);
    assert_eq!(violated(&case), BTreeSet::from(["AMO-2"]));
    find::cut(&mut case, clean::ONCE, clean::FIRST, 1);
    case.faults.clear();
    assert!(violated(&case).is_empty());
}

#[test]
fn what_a_failover_may_have_lost_is_excused_where_it_was_told() {
    let mut case = clean::case();
    case.request(6_050, clean::ONCE, clean::SECOND, (1, 2), Some(200));
    case.meta.failovers.push(crate::evidence::Failover { lost_from: 5_500, promoted: 6_040 });
    assert!(violated(&case).contains("AMO-1"), "nobody was told");
    case.keep("audit", serde_json::json!({"action": "failover", "workflow": clean::ONCE}));
    assert!(!violated(&case).contains("AMO-1"));
}
