//! The path without the outbox: what came of each record shows at the receiver alone, or in the rows of what failed.
//!
//! Nothing is asked of the relay's word: every event that a record makes must have been answered 2xx in full, or have ended
//! in the database.

use std::collections::{HashMap, HashSet};

use super::reference::{self, Event, Expected};
use super::{Case, Place, Report};
use crate::evidence::Flow;

pub fn check(case: &Case, report: &mut Report) {
    let direct = case.direct_cursors();
    let mut events = case.rows("outbox").iter().filter(|row| !direct.contains(&Place::of(row).cursor)).count();
    for flow in case.meta.workflows.iter().filter(|flow| flow.is_direct()) {
        events += Direct::of(case, flow).check(report);
    }
    report.figures.insert("events", events as f64);
}

struct Direct<'a> {
    case: &'a Case,
    flow: &'a Flow,
    /// Keys that were answered 2xx in full.
    delivered: HashSet<&'a str>,
    /// Places by how they ended, where they did.
    ended: HashMap<Place, &'a str>,
    /// Records that no event could be made of.
    unreadable: HashSet<(i64, i64)>,
}

impl<'a> Direct<'a> {
    fn of(case: &'a Case, flow: &'a Flow) -> Self {
        let whole = |seq: &u64| case.answered.get(seq).is_some_and(|a| a.whole && (200..300).contains(&a.status));
        let own = case.received.iter().filter(|request| request.workflow == flow.id);
        let letters = case.rows("dead_letter").iter().filter(|row| row["reason"] == "invalid").map(Place::of);
        Self {
            case,
            flow,
            delivered: own.filter(|request| whole(&request.seq)).map(|request| request.key.as_str()).collect(),
            ended: case
                .rows("done")
                .iter()
                .map(|row| (Place::of(row), row["state"].as_str().unwrap_or_default()))
                .collect(),
            unreadable: letters.map(|place| (place.cursor, place.offset)).collect(),
        }
    }

    /// Answers how many events there had to be.
    fn check(&self, report: &mut Report) -> usize {
        let meta = &self.case.meta;
        let mut expected: HashMap<String, (String, Event)> = HashMap::new();
        for record in &self.case.dumped {
            let cursor = reference::cursor(meta, self.flow, record.partition);
            let source = format!("{}/{}/{}", meta.topic, record.partition, record.offset);
            match reference::expected(meta, self.flow, record) {
                Expected::Events(events) => {
                    for (index, event) in events.into_iter().enumerate() {
                        let place = Place { cursor, offset: record.offset, index: index as i64, generation: 0 };
                        self.ended(place, &source, &event, report);
                        expected.insert(event.key.clone(), (source.clone(), event));
                    }
                }
                Expected::Dead => {
                    let kept = self.unreadable.contains(&(cursor, record.offset));
                    report.expect("I1", kept, || format!("{} {source} is no dead letter", self.flow.id));
                }
                Expected::Filtered | Expected::Tombstone => {}
            }
        }
        self.requests(&expected, report);
        self.effects(&expected, report);
        expected.len()
    }

    /// ALO-1, ALO-2: delivered by the receiver's own log, or dead.
    fn ended(&self, place: Place, source: &str, event: &Event, report: &mut Report) {
        let delivered = self.delivered.contains(event.key.as_str());
        let ended = self.ended.get(&place).copied();
        report.expect("ALO-1", delivered || ended == Some("discarded"), || {
            format!("{} {source} ({}) is neither delivered nor dead: {ended:?}", self.flow.id, event.key)
        });
        if ended == Some("completed") {
            report.expect("ALO-2", delivered, || format!("{source} is completed, and was never answered 2xx in full"));
        }
    }

    /// I6, I7, D7: nothing is sent but what a record makes, under its key, with its bytes.
    fn requests(&self, expected: &HashMap<String, (String, Event)>, report: &mut Report) {
        let mut count = 0;
        for request in self.case.received.iter().filter(|request| request.workflow == self.flow.id) {
            count += 1;
            let Some((source, event)) = expected.get(&request.key) else {
                report.expect("D7", false, || {
                    format!("{} was sent under a key of no record: {}", request.source, request.key)
                });
                continue;
            };
            report.expect("D7", *source == request.source, || {
                format!("{} is the key of {source}, sent for {}", request.key, request.source)
            });
            report
                .expect("I7", event.digest == request.digest, || format!("{} was sent with other bytes", request.key));
        }
        report.figures.insert("direct_requests", f64::from(count));
        report.figures.insert("direct_events", expected.len() as f64);
    }

    /// IDK-1: a receiver that honours the key has each effect once.
    fn effects(&self, expected: &HashMap<String, (String, Event)>, report: &mut Report) {
        let mut applied: HashMap<&str, usize> = HashMap::new();
        for request in self.case.received.iter().filter(|request| request.applied) {
            *applied.entry(request.key.as_str()).or_default() += 1;
        }
        for key in expected.keys().filter(|key| self.delivered.contains(key.as_str())) {
            let times = applied.get(key.as_str()).copied().unwrap_or(0);
            report.expect("IDK-1", times == 1, || format!("{key} had {times} effects"));
        }
    }
}
