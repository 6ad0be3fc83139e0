//! A run in which everything went as promised, written by hand: seven records, four flows, and of each kind of fact that the
//! checker looks at at least one. Every flow fails, retries, refuses and is taken over once, so that no check is idle.

use std::collections::HashMap;

use serde_json::json;

use super::super::Case;
use super::facts::{retry, with};
use crate::evidence::{AT_MOST_ONCE, Dumped, Fault, Flow, Meta, OUTBOX, Produced, Sample};

pub const KEYED: &str = "keyed";
pub const ONCE: &str = "once";
pub const ORDERED: &str = "ordered";
pub const DIRECT: &str = "direct";

/// What the records are, by offset.
pub const FIRST: i64 = 0;
pub const SECOND: i64 = 1;
pub const REFUSED: i64 = 2;
/// After one that dies.
pub const LAST: i64 = 3;
pub const FILTERED: i64 = 4;
pub const INVALID: i64 = 5;
pub const TOMBSTONE: i64 = 6;
pub const END: i64 = 7;

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
        Some(text(LAST, true, false)),
        Some(text(FILTERED, false, false)),
        Some("no JSON".to_owned()),
        None,
    ];
    let record = |(offset, value)| Dumped { partition: 0, offset: offset as i64, timestamp: 1_000, value };
    values.into_iter().enumerate().map(record).collect()
}

impl Case {
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
            [FIRST, SECOND, REFUSED, LAST].into_iter().for_each(|offset| self.store(200, flow, offset, &transaction));
            let ledger = json!({"cursor": self.cursor_of(flow), "filtered": "{[4,5)}", "tombstones": "{[6,7)}"});
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
        let steps = [
            (410, retry("retryable", 1, 1, None)),
            (500, retry("active", 2, 2, Some(("a", 4_500)))),
            (520, retry("retryable", 2, 2, None)),
            (600, retry("active", 3, 3, Some(("a", 4_600)))),
            (5_000, retry("active", 4, 4, Some(("b", 9_000)))),
        ];
        let old = self.pass_through(&self.named(flow, offset), steps);
        self.request(400, flow, offset, (1, 1), Some(500));
        self.request(510, flow, offset, (2, 2), Some(500));
        self.request(610, flow, offset, (3, 3), None);
        self.request(5_010, flow, offset, (4, 4), Some(200));
        self.end(5_020, flow, offset, "completed", 4);
        self.note(5_020, "retry", old, None);
    }

    /// An event behind another of its key: it waits for its turn, is let go when that has come, and then leased by itself.
    fn in_turn(&mut self, flow: &str, offset: i64) {
        let steps = [
            (420, with(&retry("pending", 0, 1, None), json!({"held": "order"}))),
            (5_060, retry("available", 0, 1, None)),
            (5_100, retry("active", 1, 2, Some(("b", 9_000)))),
        ];
        let old = self.pass_through(&self.named(flow, offset), steps);
        self.note(6_010, "retry", old, None);
    }

    fn through_the_outbox(&mut self, flow: &str) {
        self.read_all(flow);
        self.lease_range(300, flow, 1);
        if flow == ONCE {
            // Answered, and nobody lives to write that down.
            self.request(615, flow, FIRST, (1, 1), Some(200));
        } else {
            self.retried(flow, FIRST);
        }
        self.lease_range(5_050, flow, 2);
        if flow == ONCE {
            self.bury(5_050, flow, FIRST, "in_doubt", 2);
        }
        if flow == ORDERED {
            self.in_turn(flow, SECOND);
        }
        self.request(6_000, flow, SECOND, (1, 2), Some(200));
        self.end(6_010, flow, SECOND, "completed", 1);
        self.request(6_100, flow, REFUSED, (1, 2), Some(422));
        self.bury(6_110, flow, REFUSED, "rejected", 2);
        self.request(6_200, flow, LAST, (1, 2), Some(200));
        self.end(6_210, flow, LAST, "completed", 1);
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
        self.request(440, DIRECT, LAST, (1, 1), Some(200));
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
    let (at, fault, target, phase) = (620, "killrelay".to_owned(), "relay-1".to_owned(), "once".to_owned());
    let dumped = records();
    let mut case = Case {
        meta,
        produced: dumped.iter().map(confirmed).collect(),
        dumped,
        received: Vec::new(),
        answered: HashMap::new(),
        audit: Vec::new(),
        tables: HashMap::new(),
        faults: vec![Fault { at, fault, target, phase }],
        samples: vec![Sample { at: 0, relay: "relay-1".to_owned(), rss_kib: 1, open_files: 1 }],
        logs: vec![("relay-1.log".to_owned(), "started".to_owned())],
    };
    [KEYED, ONCE, ORDERED].into_iter().for_each(|flow| case.through_the_outbox(flow));
    case.directly();
    case
}
