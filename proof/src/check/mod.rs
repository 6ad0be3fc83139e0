//! Reads a folder of evidence and says which invariants held. Runs alone, long after the run if need be.
//!
//! Each invariant has its id; a violation names the events. What was looked at is counted too: a check that saw nothing
//! proves nothing.

mod at_most_once;
mod delivery;
mod direct;
mod headers;
mod ingest;
mod order;
mod outcome;
pub mod reference;
mod signature;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::evidence::{
    Answered, Audit, Dumped, Failover, Fault, Flow, Meta, Produced, Received, ReceiverLine, Sample, TableRow,
    count_faults, read,
};

/// Every invariant that is checked, in the report's order.
const IDS: [&str; 33] = [
    "K0", "I1", "I2", "I3", "I4", "I5", "I6", "I7", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9", "D10",
    "ALO-1", "ALO-2", "ALO-3", "AMO-1", "AMO-2", "IDK-1", "O1", "O2", "O3", "L1", "L3", "RB1", "S1", "S2", "S3",
];

/// Who an event is, in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub cursor: i64,
    pub offset: i64,
    pub index: i64,
    pub generation: i64,
}

impl Place {
    pub fn of(row: &Value) -> Self {
        let number = |name: &str| row[name].as_i64().unwrap_or(-1);
        Self {
            cursor: number("cursor"),
            offset: number("record_offset"),
            index: number("event_index"),
            generation: number("generation"),
        }
    }

    /// An event's public id: the cursor in base 32, offset and index, and the generation of a replay.
    pub fn parse(id: &str) -> Option<Self> {
        const DIGITS: &str = "0123456789abcdefghjkmnpqrstvwxyz";
        let (base, generation) = id.split_once(".r").map_or((id, 0), |(base, g)| (base, g.parse().unwrap_or(-1)));
        let mut parts = base.splitn(3, '-');
        let cursor = parts.next()?.chars().try_fold(0i64, |sum, c| Some((sum << 5) | DIGITS.find(c)? as i64))?;
        Some(Self { cursor, offset: parts.next()?.parse().ok()?, index: parts.next()?.parse().ok()?, generation })
    }
}

pub struct Case {
    pub meta: Meta,
    pub produced: Vec<Produced>,
    pub dumped: Vec<Dumped>,
    pub received: Vec<Received>,
    pub answered: HashMap<u64, Answered>,
    pub audit: Vec<Audit>,
    pub tables: HashMap<String, Vec<Value>>,
    pub faults: Vec<Fault>,
    pub samples: Vec<Sample>,
    /// Process logs, for panics and secrets.
    pub logs: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    pub id: &'static str,
    pub what: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How many facts each invariant looked at.
    pub looked_at: BTreeMap<&'static str, usize>,
    pub violations: Vec<Violation>,
    pub figures: BTreeMap<&'static str, f64>,
}

impl Report {
    pub fn look(&mut self, id: &'static str) {
        *self.looked_at.entry(id).or_default() += 1;
    }

    /// Notes a fact, and that it is wrong unless `holds`.
    pub fn expect(&mut self, id: &'static str, holds: bool, what: impl FnOnce() -> String) {
        self.look(id);
        if !holds {
            self.violations.push(Violation { id, what: what() });
        }
    }

    /// Invariants that nothing was held against: they have not held, they were not tried.
    pub fn idle(&self) -> Vec<&'static str> {
        IDS.into_iter().filter(|id| !self.looked_at.contains_key(id)).collect()
    }

    pub fn count(&self, ids: &[&str]) -> usize {
        self.violations.iter().filter(|violation| ids.contains(&violation.id)).count()
    }
}

impl Case {
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let meta = std::fs::read_to_string(folder.join("meta.json")).context("meta.json")?;
        let (mut received, mut answered) = (Vec::new(), HashMap::new());
        for line in read::<ReceiverLine>(&folder.join("receiver.jsonl"))? {
            match line {
                ReceiverLine::Received(one) => received.push(one),
                ReceiverLine::Answered(one) => drop(answered.insert(one.seq, one)),
            }
        }
        let mut tables: HashMap<String, Vec<Value>> = HashMap::new();
        for row in read::<TableRow>(&folder.join("tables.jsonl"))? {
            tables.entry(row.table).or_default().push(row.row);
        }
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(folder)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let text = String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned();
                logs.push((entry.file_name().to_string_lossy().into_owned(), text));
            }
        }
        let mut audit: Vec<Audit> = read(&folder.join("audit.jsonl"))?;
        audit.sort_by_key(|change| change.seq);
        Ok(Self {
            meta: serde_json::from_str(&meta).context("meta.json")?,
            produced: read(&folder.join("produced.jsonl"))?,
            dumped: read(&folder.join("dump.jsonl"))?,
            received,
            answered,
            audit,
            tables,
            faults: read(&folder.join("nemesis.jsonl"))?,
            samples: read(&folder.join("samples.jsonl"))?,
            logs,
        })
    }

    pub fn rows(&self, table: &str) -> &[Value] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    pub fn changes<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a Audit> {
        self.audit.iter().filter(move |change| change.table == table)
    }

    pub fn flow(&self, id: &str) -> Option<&Flow> {
        self.meta.workflows.iter().find(|flow| flow.id == id)
    }

    /// The flow that a cursor belongs to.
    pub fn flow_of(&self, cursor: i64) -> Option<&Flow> {
        let row = self.rows("cursor").iter().find(|row| row["id"].as_i64() == Some(cursor))?;
        self.flow(row["workflow"].as_str()?)
    }

    /// The cursors of flows whose events pass the outbox only when they fail.
    pub fn direct_cursors(&self) -> HashSet<i64> {
        let cursors = self.rows("cursor").iter().filter_map(|row| row["id"].as_i64());
        cursors.filter(|cursor| self.flow_of(*cursor).is_some_and(Flow::is_direct)).collect()
    }

    /// Whether what was committed at this time may have been lost by a failover.
    pub fn may_be_lost(&self, at: i64) -> bool {
        const MARGIN: i64 = 2_000;
        self.meta
            .failovers
            .iter()
            .any(|Failover { lost_from, promoted }| (*lost_from - MARGIN..*promoted + MARGIN).contains(&at))
    }
}

/// Every check, on evidence that is read already.
fn judge(case: &Case) -> Report {
    let mut report = Report::default();
    ingest::check(case, &mut report);
    delivery::check(case, &mut report);
    signature::check(case, &mut report);
    headers::check(case, &mut report);
    at_most_once::check(case, &mut report);
    direct::check(case, &mut report);
    order::check(case, &mut report);
    outcome::check(case, &mut report);
    waits::check(case, &mut report);
    report
}

/// Runs every check on a folder and writes `report.json` into it.
pub fn check(folder: &Path) -> anyhow::Result<(Case, Report)> {
    let case = Case::read(folder)?;
    let report = judge(&case);
    std::fs::write(folder.join("report.json"), serde_json::to_string_pretty(&report)?)?;
    Ok((case, report))
}

/// The report for people, ending in one line.
pub fn summary(case: &Case, report: &Report) -> String {
    let mut out = String::from("invariant   looked at   violations\n");
    for id in IDS {
        let looked = report.looked_at.get(id).copied().unwrap_or(0);
        let _ = writeln!(out, "{id:<11} {looked:>9}   {:>10}", report.count(&[id]));
    }
    for violation in report.violations.iter().take(40) {
        let _ = writeln!(out, "{}: {}", violation.id, violation.what);
    }
    if report.violations.len() > 40 {
        let _ = writeln!(out, "... and {} more, all in report.json", report.violations.len() - 40);
    }
    for (name, value) in &report.figures {
        let _ = writeln!(out, "{name}: {value}");
    }
    let idle = report.idle();
    if !idle.is_empty() {
        let _ = writeln!(out, "saw nothing, and so shows nothing: {}", idle.join(", "));
    }
    let faults = count_faults(&case.faults);
    let _ = writeln!(out, "faults: {}", faults.iter().map(|(f, n)| format!("{f} {n}")).collect::<Vec<_>>().join(", "));
    let _ = write!(
        out,
        "chaos: seed={} faults={} events={} lost={} duplicate_rows={} key_changes={} terminal_flips={} reordered={} \
         violations={}",
        case.meta.seed,
        faults.values().sum::<usize>(),
        report.figures.get("events").copied().unwrap_or(0.0),
        report.count(&["I1", "ALO-1", "ALO-2"]),
        report.count(&["I2"]),
        report.count(&["D7", "D8", "D9", "I7"]),
        report.count(&["D3"]),
        report.count(&["O1", "O2"]),
        report.violations.len()
    );
    out
}
