//! From Kafka to the outbox: every record accounted for, once, with the right bytes, under an owner.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::reference::{self, Expected};
use super::{Case, Place, Report};
use crate::evidence::{Dumped, Flow};

pub fn check(case: &Case, report: &mut Report) {
    dump_is_whole(case, report);
    for flow in case.meta.workflows.iter().filter(|flow| !flow.is_direct()) {
        dispositions(case, flow, report);
    }
    rows_and_cursors(case, report);
    ownership(case, report);
    keys(case, report);
}

/// K0: what the broker confirmed is in the dump; otherwise the dump proves nothing.
fn dump_is_whole(case: &Case, report: &mut Report) {
    let dumped: HashSet<(i32, i64)> = case.dumped.iter().map(|record| (record.partition, record.offset)).collect();
    for produced in case.produced.iter().filter(|produced| produced.outcome == "ok") {
        let place = produced.partition.zip(produced.offset);
        report.expect("K0", place.is_some_and(|place| dumped.contains(&place)), || {
            format!("record {} was confirmed at {place:?} and is not in the topic", produced.n)
        });
    }
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

/// The offsets of a multirange such as `{[3,5),[9,10)}`.
fn offsets(multirange: &str) -> Vec<i64> {
    let inner = multirange.trim_matches(|c| c == '{' || c == '}');
    let ranges = inner.split("),").map(|range| range.trim_matches(|c| "[]()".contains(c)));
    let bounds = ranges.filter_map(|range| range.split_once(','));
    bounds.flat_map(|(from, to)| from.parse().unwrap_or(0)..to.parse().unwrap_or(0)).collect()
}

/// I1, I6, I7, D7: each visible record below the cursor has exactly its events, or its recorded disposition.
fn dispositions(case: &Case, flow: &Flow, report: &mut Report) {
    let mut next: HashMap<i64, i64> = HashMap::new();
    for row in case.rows("cursor").iter().filter(|row| text(row, "workflow") == flow.id) {
        next.insert(row["id"].as_i64().unwrap_or(-1), row["next_offset"].as_i64().unwrap_or(-1));
    }
    let mut rows: HashMap<(i64, i64), Vec<&Value>> = HashMap::new();
    for row in case.rows("outbox") {
        let place = Place::of(row);
        if next.contains_key(&place.cursor) && place.generation == 0 {
            rows.entry((place.cursor, place.offset)).or_default().push(row);
        }
    }
    let mut filtered: HashSet<(i64, i64)> = HashSet::new();
    let mut tombstones: HashSet<(i64, i64)> = HashSet::new();
    for row in case.rows("ledger") {
        let cursor = row["cursor"].as_i64().unwrap_or(-1);
        filtered.extend(offsets(text(row, "filtered")).into_iter().map(|offset| (cursor, offset)));
        tombstones.extend(offsets(text(row, "tombstones")).into_iter().map(|offset| (cursor, offset)));
    }
    let dead: HashSet<(i64, i64)> = case
        .rows("dead_letter")
        .iter()
        .filter(|row| text(row, "reason") == "invalid")
        .map(|row| (Place::of(row).cursor, Place::of(row).offset))
        .collect();
    for record in &case.dumped {
        let cursor = reference::cursor(&case.meta, flow, record.partition);
        let at = (cursor, record.offset);
        let name = format!("{} {}/{}/{}", flow.id, case.meta.topic, record.partition, record.offset);
        let read = next.get(&cursor).is_some_and(|next| record.offset < *next);
        report.expect("I1", read, || format!("{name} was never read"));
        let found = rows.remove(&at).unwrap_or_default();
        match reference::expected(&case.meta, flow, record) {
            Expected::Events(events) => compare(&name, &events, &found, report),
            other => {
                let disposed = match other {
                    Expected::Filtered => filtered.contains(&at),
                    Expected::Tombstone => tombstones.contains(&at),
                    Expected::Dead | Expected::Events(_) => dead.contains(&at),
                };
                report.expect("I1", disposed || !read, || format!("{name} has no disposition; expected {other:?}"));
                report.expect("I6", found.is_empty(), || format!("{name} made events although it must not"));
            }
        }
    }
    for ((cursor, offset), _) in rows {
        report.expect("I6", false, || {
            format!("{} has events of cursor {cursor}, offset {offset}: no such record", flow.id)
        });
    }
}

fn compare(name: &str, events: &[reference::Event], found: &[&Value], report: &mut Report) {
    let by_index: HashMap<i64, &&Value> = found.iter().map(|row| (Place::of(row).index, row)).collect();
    for (index, event) in events.iter().enumerate() {
        let row = by_index.get(&(index as i64));
        report.expect("I1", row.is_some(), || format!("{name} has no event {index}"));
        if let Some(row) = row {
            report.expect("I7", text(row, "digest") == event.digest, || {
                format!("{name} event {index} has other bytes than its record makes")
            });
            report.expect("D7", text(row, "key") == event.key, || {
                format!("{name} event {index} has key {} instead of {}", text(row, "key"), event.key)
            });
        }
    }
    report.expect("I6", found.len() <= events.len(), || {
        format!("{name} has {} events too many", found.len() - events.len())
    });
}

/// I2, I3: a place is stored once in all history, below its cursor, and in the cursor's own transaction.
fn rows_and_cursors(case: &Case, report: &mut Report) {
    let mut stored: HashMap<Place, usize> = HashMap::new();
    let direct = case.direct_cursors();
    let moved: HashSet<(&str, i64)> = case
        .changes("cursor")
        .filter(|change| changed(change.old.as_ref(), change.new.as_ref(), "next_offset"))
        .filter_map(|change| Some((change.xid.as_str(), change.new.as_ref()?["id"].as_i64()?)))
        .collect();
    for change in case.changes("outbox") {
        let Some(new) = change.new.as_ref().filter(|_| change.op == "INSERT") else {
            report.expect("I2", false, || format!("an outbox row was changed or deleted: {:?}", change.old));
            continue;
        };
        let place = Place::of(new);
        *stored.entry(place).or_default() += 1;
        if place.generation == 0 && !direct.contains(&place.cursor) {
            report.expect("I3", moved.contains(&(change.xid.as_str(), place.cursor)), || {
                format!("{place:?} was stored in a transaction that did not move its cursor")
            });
        }
    }
    for (place, times) in stored {
        report.expect("I2", times == 1, || format!("{place:?} was stored {times} times"));
    }
    let next: HashMap<i64, i64> = case
        .rows("cursor")
        .iter()
        .map(|row| (row["id"].as_i64().unwrap_or(-1), row["next_offset"].as_i64().unwrap_or(-1)))
        .collect();
    for row in case.rows("outbox") {
        let place = Place::of(row);
        let below = next.get(&place.cursor).is_some_and(|next| place.offset < *next);
        report.expect("I3", below, || format!("{place:?} is stored at or past its cursor"));
    }
}

fn changed(old: Option<&Value>, new: Option<&Value>, field: &str) -> bool {
    old.zip(new).is_some_and(|(old, new)| old[field] != new[field])
}

/// I4, I5: a cursor never goes back, and moves only under the owner and epoch that hold it.
fn ownership(case: &Case, report: &mut Report) {
    // Without the outbox a cursor is a copy, and anybody may bring it up to what is marked in Kafka.
    let direct = case.direct_cursors();
    for change in case.changes("cursor") {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { continue };
        let number = |row: &Value, name: &str| row[name].as_i64().unwrap_or(-1);
        let id = number(new, "id");
        if old["next_offset"] != new["next_offset"] {
            report.expect("I4", number(new, "next_offset") > number(old, "next_offset"), || {
                format!("cursor {id} went back from {} to {}", old["next_offset"], new["next_offset"])
            });
            let held =
                !new["owner"].is_null() && old["owner"] == new["owner"] && old["owner_epoch"] == new["owner_epoch"];
            report.expect("I5", held || direct.contains(&id), || {
                format!("cursor {id} moved while its owner or epoch changed")
            });
        }
        if old["owner"] != new["owner"] && !new["owner"].is_null() {
            report.expect("I5", number(new, "owner_epoch") > number(old, "owner_epoch"), || {
                format!("cursor {id} was taken without a new epoch")
            });
        }
        report.expect("I5", number(new, "owner_epoch") >= number(old, "owner_epoch"), || {
            format!("the epoch of cursor {id} fell")
        });
    }
}

/// D8: different events never share a key.
fn keys(case: &Case, report: &mut Report) {
    let mut first: HashMap<&str, Place> = HashMap::new();
    for row in case.rows("outbox").iter().filter(|row| Place::of(row).generation == 0) {
        let place = Place::of(row);
        let other = first.insert(text(row, "key"), place);
        report.expect("D8", other.is_none(), || format!("{place:?} and {other:?} share key {}", text(row, "key")));
    }
}

/// Records that a reader found twice would hide a hole elsewhere.
pub fn distinct(records: &[Dumped]) -> usize {
    records.iter().map(|record| (record.partition, record.offset)).collect::<HashSet<_>>().len()
}
