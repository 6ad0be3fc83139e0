//! Order per key: the events of one record key on one partition are first received in the order of their offsets, none is
//! requested again once a later one was, and one that died holds up none of the later ones.
//!
//! A failover that loses commits loses the note that an event had been delivered: what it may have lost is not counted.

use std::collections::{HashMap, HashSet};

use super::reference::{self, Expected};
use super::{Case, Place, Report};
use crate::evidence::{Flow, Received};

pub fn check(case: &Case, report: &mut Report) {
    for flow in case.meta.workflows.iter().filter(|flow| flow.ordered) {
        let spots = spots(case, flow);
        receipts(case, flow, &spots, report);
        deaths(case, flow, &spots, report);
    }
}

/// An event's lane and its place in it.
type Spot = ((i32, String), (i64, usize));

/// Where every event of a flow that keeps order belongs, by its key.
fn spots(case: &Case, flow: &Flow) -> HashMap<String, Spot> {
    let mut spots = HashMap::new();
    for record in &case.dumped {
        let Some(key) = reference::record_key(record) else { continue };
        if let Expected::Events(events) = reference::expected(&case.meta, flow, record) {
            for (index, event) in events.into_iter().enumerate() {
                spots.insert(event.key, ((record.partition, key.clone()), (record.offset, index)));
            }
        }
    }
    spots
}

/// The events of one lane, in order, with their keys.
type Lane<'a> = Vec<(Place, &'a str)>;

fn lanes<'a>(case: &Case, flow: &Flow, spots: &'a HashMap<String, Spot>) -> Vec<Lane<'a>> {
    let mut lanes: HashMap<&(i32, String), Lane<'a>> = HashMap::new();
    for (key, (lane, (offset, index))) in spots {
        let cursor = reference::cursor(&case.meta, flow, lane.0);
        let place = Place { cursor, offset: *offset, index: *index as i64, generation: 0 };
        lanes.entry(lane).or_default().push((place, key.as_str()));
    }
    let mut lanes: Vec<Lane<'a>> = lanes.into_values().collect();
    lanes.iter_mut().for_each(|lane| lane.sort_unstable());
    lanes
}

/// When each event's turn came: when the last of those before it in its lane had ended. Of events behind one that never
/// ended there is nothing to tell.
pub fn turns(case: &Case) -> HashMap<Place, i64> {
    let ended: HashMap<Place, i64> =
        case.changes("done").filter_map(|change| Some((Place::of(change.new.as_ref()?), change.at))).collect();
    let mut turns = HashMap::new();
    for flow in case.meta.workflows.iter().filter(|flow| flow.ordered) {
        let spots = spots(case, flow);
        for lane in lanes(case, flow, &spots) {
            // The first of a lane waits for nobody.
            let mut turn = i64::MIN;
            for (place, _) in lane {
                turns.insert(place, turn);
                let Some(at) = ended.get(&place) else { break };
                turn = turn.max(*at);
            }
        }
    }
    turns
}

/// O3: runs let a key go on when one of its events has died (`onKeyFailure: continue`). So no dead letter keeps its lane shut, and
/// whatever comes after it in the lane arrives or ends.
fn deaths(case: &Case, flow: &Flow, spots: &HashMap<String, Spot>, report: &mut Report) {
    let mut dead: HashSet<Place> = HashSet::new();
    for row in case.rows("dead_letter").iter().filter(|row| row["workflow"] == flow.id) {
        let place = Place::of(row);
        dead.insert(place);
        report.expect("O3", row["blocks"] != true, || format!("{place:?} is dead, and its key's later events wait"));
    }
    let ended: HashSet<Place> = case.rows("done").iter().map(Place::of).collect();
    let requests = case.received.iter().filter(|request| request.workflow == flow.id);
    let requested: HashSet<&str> = requests.map(|request| request.key.as_str()).collect();
    for lane in lanes(case, flow, spots) {
        for (place, key) in lane.into_iter().skip_while(|(place, _)| !dead.contains(place)).skip(1) {
            report.expect("O3", requested.contains(key) || ended.contains(&place), || {
                format!("{place:?} ({key}) neither arrived nor ended after an event of its key had died")
            });
        }
    }
}

/// O1, O2: first receipts in order, and none again after a later one.
fn receipts(case: &Case, flow: &Flow, spots: &HashMap<String, Spot>, report: &mut Report) {
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
