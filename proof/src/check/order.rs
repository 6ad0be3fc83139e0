//! Order per key: the events of one record key on one partition are first received in the order of their offsets, and none is
//! requested again once a later one was.
//!
//! A failover that loses commits loses the note that an event had been delivered: what it may have lost is not counted.

use std::collections::HashMap;

use super::reference::{self, Expected};
use super::{Case, Report};
use crate::evidence::{Flow, Received};

pub fn check(case: &Case, report: &mut Report) {
    for flow in case.meta.workflows.iter().filter(|flow| flow.ordered) {
        check_flow(case, flow, report);
    }
}

/// An event's lane and its place in it.
type Spot = ((i32, String), (i64, usize));

fn check_flow(case: &Case, flow: &Flow, report: &mut Report) {
    let mut spots: HashMap<String, Spot> = HashMap::new();
    for record in &case.dumped {
        let Some(key) = reference::record_key(record) else { continue };
        if let Expected::Events(events) = reference::expected(&case.meta, flow, record) {
            for (index, event) in events.into_iter().enumerate() {
                spots.insert(event.key, ((record.partition, key.clone()), (record.offset, index)));
            }
        }
    }
    let mut requests: Vec<&Received> = case.received.iter().filter(|request| request.workflow == flow.id).collect();
    requests.sort_by_key(|request| request.seq);
    // The furthest that each lane has come, and whether a failover may have lost what is known of an event.
    let mut furthest: HashMap<&(i32, String), (i64, usize)> = HashMap::new();
    let mut forgotten: HashMap<&str, bool> = HashMap::new();
    for request in requests {
        let Some((lane, place)) = spots.get(&request.key) else { continue };
        let seen_before = forgotten.contains_key(request.key.as_str());
        let lost = forgotten.entry(request.key.as_str()).or_insert(false);
        let was_lost = *lost;
        *lost |= case.may_be_lost(request.at);
        let most = furthest.entry(lane).or_insert(*place);
        let in_order = *place >= *most;
        *most = (*most).max(*place);
        if seen_before {
            report.expect("O2", in_order || was_lost || case.may_be_lost(request.at), || {
                format!("{} ({lane:?} {place:?}) was requested again after {most:?}", request.key)
            });
        } else {
            report.expect("O1", in_order, || {
                format!("{} ({lane:?} {place:?}) was first received after {most:?}", request.key)
            });
        }
    }
}
