//! A run in which everything went as promised, written by hand: six records, four flows, and of each kind of fact that the
//! checker looks at at least one. Every flow fails, retries, refuses and is taken over once, so that no check is idle.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::reference::{self, Event, Expected};
use super::super::{Case, Place};
use crate::evidence::{
    AT_MOST_ONCE, Answered, Audit, Dumped, Flow, Meta, OUTBOX, Produced, Received, Sample, Signature,
};

pub const KEYED: &str = "keyed";
pub const ONCE: &str = "once";
pub const ORDERED: &str = "ordered";
pub const DIRECT: &str = "direct";

/// What the records are, by offset.
pub const FIRST: i64 = 0;
pub const SECOND: i64 = 1;
pub const REFUSED: i64 = 2;
pub const FILTERED: i64 = 3;
pub const INVALID: i64 = 4;
pub const TOMBSTONE: i64 = 5;
pub const END: i64 = 6;

pub const ATTEMPTS: u32 = 10;

fn flow(id: &str, guarantee: &str, mechanism: &str) -> Flow {
    Flow {
        id: id.to_owned(),
        event_type: "OrderChanged".to_owned(),
        guarantee: guarantee.to_owned(),
        mechanism: mechanism.to_owned(),
        ordered: id == ORDERED,
        envelope: "keyed".to_owned(),
        concurrency: 1,
        max_attempts: ATTEMPTS,
        signed: id == KEYED,
    }
}

fn records() -> Vec<Dumped> {
    let text = |n: i64, keep: bool, refuse: bool| {
        json!({"n": n, "fan": 1, "keep": keep, "refuse": refuse, "pad": "", "key": "one"}).to_string()
    };
    let values = [
        Some(text(FIRST, true, false)),
        Some(text(SECOND, true, false)),
        Some(text(REFUSED, true, true)),
        Some(text(FILTERED, false, false)),
        Some("no JSON".to_owned()),
        None,
    ];
    let record = |(offset, value)| Dumped { partition: 0, offset: offset as i64, timestamp: 1_000, value };
    values.into_iter().enumerate().map(record).collect()
}

/// The public id of an event.
pub fn id(place: Place) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let digit = |shift: u32| char::from(DIGITS[(place.cursor >> (5 * shift) & 31) as usize]);
    format!("{}-{}-{}", (0..13).rev().map(digit).collect::<String>(), place.offset, place.index)
}

/// Fields of one row, and those that another adds or replaces.
pub fn with(row: &Value, more: Value) -> Value {
    let (mut row, Value::Object(more)) = (row.clone(), more) else { panic!("rows are objects") };
    row.as_object_mut().expect("rows are objects").extend(more);
    row
}

impl Case {
    pub fn cursor_of(&self, flow: &str) -> i64 {
        reference::cursor(&self.meta, self.flow(flow).expect("a known flow"), 0)
    }

    pub fn place(&self, flow: &str, offset: i64) -> Place {
        Place { cursor: self.cursor_of(flow), offset, index: 0, generation: 0 }
    }

    /// The fields that name a place in every table.
    pub fn named(&self, flow: &str, offset: i64) -> Value {
        json!({"cursor": self.cursor_of(flow), "record_offset": offset, "event_index": 0, "generation": 0, "workflow": flow})
    }

    pub fn event(&self, flow: &str, offset: i64) -> Event {
        let flow = self.flow(flow).expect("a known flow");
        match reference::expected(&self.meta, flow, &self.dumped[offset as usize]) {
            Expected::Events(mut events) => events.remove(0),
            other => panic!("offset {offset} makes no event: {other:?}"),
        }
    }

    /// A change of a row in a transaction of its own, unless it is given another's name afterwards.
    pub fn note(&mut self, at: i64, table: &str, old: Option<Value>, new: Option<Value>) -> &mut Audit {
        let op = if old.is_none() { "INSERT" } else { "UPDATE" };
        let op = if new.is_none() { "DELETE" } else { op };
        let (seq, table, op) = (self.audit.len() as i64, table.to_owned(), op.to_owned());
        self.audit.push(Audit { seq, at, xid: format!("own-{seq}"), table, op, old, new });
        self.audit.last_mut().expect("it was just pushed")
    }

    pub fn keep(&mut self, table: &str, row: Value) {
        self.tables.entry(table.to_owned()).or_default().push(row);
    }

    /// A request and its answer. Processed unless refused or failed; `None` is an answer that was lost.
    pub fn request(&mut self, at: i64, flow: &str, offset: i64, (attempt, fence): (u32, i64), answer: Option<u16>) {
        let (seq, event) = (self.received.len() as u64, self.event(flow, offset));
        let processes = answer.is_none_or(|status| status < 300);
        let applied = processes && !self.received.iter().any(|known| known.key == event.key && known.applied);
        self.received.push(Received {
            seq,
            at,
            workflow: flow.to_owned(),
            key: event.key,
            event: id(self.place(flow, offset)),
            attempt,
            fence,
            source: format!("{}/0/{offset}", self.meta.topic),
            digest: event.digest,
            applied,
            plan: String::new(),
            signature: (flow == KEYED).then_some(Signature { verified: true, stamp: at / 1_000 }),
        });
        let (status, whole) = (answer.unwrap_or(200), answer.is_some());
        self.answered.insert(seq, Answered { seq, at: at + 1, status, whole });
    }

    /// Stores an event in the outbox, in a transaction of this name.
    fn store(&mut self, at: i64, flow: &str, offset: i64, transaction: &str) {
        let event = self.event(flow, offset);
        let row = with(&self.named(flow, offset), json!({"key": event.key, "digest": event.digest}));
        self.keep("outbox", row.clone());
        transaction.clone_into(&mut self.note(at, "outbox", None, Some(row)).xid);
    }

    fn end(&mut self, at: i64, flow: &str, offset: i64, state: &str, sends: u32) {
        let row = with(&self.named(flow, offset), json!({"state": state, "sends": sends}));
        self.keep("done", row.clone());
        self.note(at, "done", None, Some(row));
    }

    fn bury(&mut self, at: i64, flow: &str, offset: i64, reason: &str, fence: i64) {
        let key = if reason == "invalid" { Value::Null } else { Value::from(self.event(flow, offset).key) };
        let more = json!({"reason": reason, "key": key, "sends": 1, "fence": fence});
        let row = with(&self.named(flow, offset), more);
        self.keep("dead_letter", row.clone());
        self.note(at, "dead_letter", None, Some(row));
        if reason != "invalid" {
            self.end(at, flow, offset, "discarded", 1);
        }
    }

    /// Everything is read by one owner of the partition.
    fn read_all(&mut self, flow: &str) {
        let direct = flow == DIRECT;
        let free = json!({"id": self.cursor_of(flow), "workflow": flow, "next_offset": 0, "owner": null, "owner_epoch": 0, "direct": direct});
        let taken = with(&free, json!({"owner": "a", "owner_epoch": 1}));
        let moved = with(&taken, json!({"next_offset": END}));
        self.note(100, "cursor", None, Some(free.clone()));
        self.note(110, "cursor", Some(free), Some(taken.clone()));
        let transaction = format!("append-{flow}");
        transaction.clone_into(&mut self.note(200, "cursor", Some(taken), Some(moved.clone())).xid);
        self.keep("cursor", moved);
        if !direct {
            [FIRST, SECOND, REFUSED].into_iter().for_each(|offset| self.store(200, flow, offset, &transaction));
            let ledger = json!({"cursor": self.cursor_of(flow), "filtered": "{[3,4)}", "tombstones": "{[5,6)}"});
            self.keep("ledger", ledger);
        }
        self.bury(200, flow, INVALID, "invalid", 1);
    }

    /// The right to send first attempts: one process has it until its lease runs out, then another.
    fn lease_range(&mut self, at: i64, flow: &str, epoch: i64) {
        let free = json!({"cursor": self.cursor_of(flow), "workflow": flow, "owner": null, "epoch": 0});
        let held = |owner: &str, epoch: i64, until: i64| {
            with(&free, json!({"owner": owner, "epoch": epoch, "lease_until_ms": until}))
        };
        match epoch {
            1 => {
                self.note(at, "delivery", None, Some(free.clone()));
                self.note(at, "delivery", Some(free.clone()), Some(held("a", 1, 4_300)));
            }
            _ => drop(self.note(at, "delivery", Some(held("a", 1, 4_300)), Some(held("b", epoch, 9_000))).at),
        }
    }

    /// An event that fails twice, whose third answer is lost with its process, and that another process delivers.
    fn retried(&mut self, flow: &str, offset: i64) {
        let row = |state: &str, sends: u32, fence: i64, holder: Option<(&str, i64)>| {
            json!({"state": state, "sends": sends, "counted": sends, "fence": fence,
                   "leased_by": holder.map(|(who, _)| who), "lease_until_ms": holder.map(|(_, until)| until)})
        };
        let named = self.named(flow, offset);
        let steps = [
            (410, row("retryable", 1, 1, None)),
            (500, row("active", 2, 2, Some(("a", 4_500)))),
            (520, row("retryable", 2, 2, None)),
            (600, row("active", 3, 3, Some(("a", 4_600)))),
            (5_000, row("active", 4, 4, Some(("b", 9_000)))),
        ];
        let mut old = None;
        for (at, step) in steps {
            let new = with(&named, step);
            self.note(at, "retry", old, Some(new.clone()));
            old = Some(new);
        }
        self.request(400, flow, offset, (1, 1), Some(500));
        self.request(510, flow, offset, (2, 2), Some(500));
        self.request(610, flow, offset, (3, 3), None);
        self.request(5_010, flow, offset, (4, 4), Some(200));
        self.end(5_020, flow, offset, "completed", 4);
        self.note(5_020, "retry", old, None);
    }

    fn through_the_outbox(&mut self, flow: &str) {
        self.read_all(flow);
        self.lease_range(300, flow, 1);
        if flow == ONCE {
            self.request(400, flow, FIRST, (1, 1), None);
        } else {
            self.retried(flow, FIRST);
        }
        self.lease_range(5_050, flow, 2);
        if flow == ONCE {
            self.bury(5_050, flow, FIRST, "in_doubt", 2);
        }
        self.request(6_000, flow, SECOND, (1, 2), Some(200));
        self.end(6_010, flow, SECOND, "completed", 1);
        self.request(6_100, flow, REFUSED, (1, 2), Some(422));
        self.bury(6_110, flow, REFUSED, "rejected", 2);
    }

    /// Without the outbox: only what fails is stored.
    fn directly(&mut self) {
        self.read_all(DIRECT);
        self.store(405, DIRECT, FIRST, "failure");
        self.retried(DIRECT, FIRST);
        self.request(420, DIRECT, SECOND, (1, 1), Some(200));
        self.request(430, DIRECT, REFUSED, (1, 1), Some(422));
        self.store(435, DIRECT, REFUSED, "refusal");
        self.bury(435, DIRECT, REFUSED, "rejected", 1);
    }
}

pub fn case() -> Case {
    let workflows = vec![
        flow(KEYED, "exactly-once", OUTBOX),
        flow(ONCE, AT_MOST_ONCE, OUTBOX),
        flow(ORDERED, "exactly-once", OUTBOX),
        flow(DIRECT, "idempotent-keys", "generated-keys"),
    ];
    let meta = Meta {
        seed: 1,
        cluster: "cluster".to_owned(),
        topic: "orders".to_owned(),
        topic_id: "topic".to_owned(),
        workflows,
        started: 0,
        healed: 7_000,
        quiet: Some(8_000),
        failovers: Vec::new(),
        decoyed: 0,
        canary: "canary-1".to_owned(),
    };
    let confirmed = |record: &Dumped| {
        let n = record.offset as u64;
        Produced { n, outcome: "ok".to_owned(), partition: Some(record.partition), offset: Some(record.offset) }
    };
    let dumped = records();
    let mut case = Case {
        meta,
        produced: dumped.iter().map(confirmed).collect(),
        dumped,
        received: Vec::new(),
        answered: HashMap::new(),
        audit: Vec::new(),
        tables: HashMap::new(),
        faults: Vec::new(),
        samples: vec![Sample { at: 0, relay: "relay-1".to_owned(), rss_kib: 1, open_files: 1 }],
        logs: vec![("relay-1.log".to_owned(), "started".to_owned())],
    };
    [KEYED, ONCE, ORDERED].into_iter().for_each(|flow| case.through_the_outbox(flow));
    case.directly();
    case
}
