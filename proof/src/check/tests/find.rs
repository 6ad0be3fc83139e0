//! Where things stand in the evidence of the clean run, to be changed there. Each panics where the clean run has no such thing.

use serde_json::{Value, json};

use super::super::{Case, Place};
use super::clean::{ATTEMPTS, KEYED, SECOND};
use super::facts::{head, with};
use crate::evidence::{Audit, Received, Signature};

pub fn row<'a>(case: &'a mut Case, table: &str, flow: &str, offset: i64) -> &'a mut Value {
    let place = case.place(flow, offset);
    let rows = case.tables.get_mut(table).expect("a table of the clean run");
    rows.iter_mut().find(|row| Place::of(row) == place).expect("a row of the clean run")
}

pub fn remove(case: &mut Case, table: &str, flow: &str, offset: i64) {
    let place = case.place(flow, offset);
    case.tables.get_mut(table).expect("a table of the clean run").retain(|row| Place::of(row) != place);
}

pub fn cursor_row<'a>(case: &'a mut Case, flow: &str) -> &'a mut Value {
    let rows = case.tables.get_mut("cursor").expect("there are cursors");
    rows.iter_mut().find(|row| row["workflow"] == flow).expect("each flow has one")
}

/// The nth change of a flow's rows in a table.
pub fn change<'a>(case: &'a mut Case, table: &str, flow: &str, nth: usize) -> &'a mut Audit {
    let own = |change: &&mut Audit| {
        change.table == table && change.old.iter().chain(&change.new).any(|row| row["workflow"] == flow)
    };
    case.audit.iter_mut().filter(own).nth(nth).expect("a change of the clean run")
}

pub fn new<'a>(case: &'a mut Case, table: &str, flow: &str, nth: usize) -> &'a mut Value {
    change(case, table, flow, nth).new.as_mut().expect("a row was written")
}

/// A dead letter as it was written.
pub fn letter<'a>(case: &'a mut Case, flow: &str, offset: i64) -> &'a mut Value {
    let place = case.place(flow, offset);
    let written = case.audit.iter_mut().filter(|change| change.table == "dead_letter").filter_map(|c| c.new.as_mut());
    written.into_iter().find(|row| Place::of(row) == place).expect("a dead letter of the clean run")
}

pub fn request<'a>(case: &'a mut Case, flow: &str, offset: i64, attempt: u32) -> &'a mut Received {
    let source = format!("{}/0/{offset}", case.meta.topic);
    let own =
        |request: &&mut Received| request.workflow == flow && request.source == source && request.attempt == attempt;
    case.received.iter_mut().find(own).expect("a request of the clean run")
}

/// A row in the outbox, well stored and well ended, at a place where none must be.
pub fn intrude(case: &mut Case, offset: i64, index: i64) {
    let base = case.named(KEYED, offset);
    let stored = with(&base, json!({"event_index": index, "key": "intruder", "digest": ""}));
    let ended = with(&base, json!({"event_index": index, "state": "discarded", "sends": 0}));
    let letter = with(&base, json!({"event_index": index, "reason": "exhausted", "sends": ATTEMPTS}));
    case.keep("dead_letter", letter);
    case.keep("outbox", stored);
    case.keep("done", ended);
}

/// A key, wherever it stands.
pub fn rename(case: &mut Case, flow: &str, offset: i64, to: &str) {
    let before = case.event(flow, offset).key;
    for request in case.received.iter_mut().filter(|request| request.key == before) {
        to.clone_into(&mut request.key);
        request.head = Some(head(request));
    }
    case.tables
        .values_mut()
        .flatten()
        .filter(|row| row["key"] == before.as_str())
        .for_each(|row| row["key"] = to.into());
}

/// An answer, as if it had been cut off.
pub fn cut(case: &mut Case, flow: &str, offset: i64, attempt: u32) {
    let seq = request(case, flow, offset, attempt).seq;
    case.answered.get_mut(&seq).expect("each is answered").whole = false;
}

pub fn ledger(case: &mut Case) -> &mut Value {
    &mut case.tables.get_mut("ledger").expect("there are ledgers")[0]
}

pub fn signature(case: &mut Case, offset: i64) -> &mut Signature {
    request(case, KEYED, offset, 1).signature.as_mut().expect("this flow is signed")
}

/// The digest of bytes that no record makes.
pub const OTHER: &str = "00000000000000000000000000000000ffffffffffffffffffffffffffffffff";

/// A request, as if it had been sent with other bytes.
pub fn send_other_bytes(case: &mut Case, flow: &str, offset: i64) {
    let request = request(case, flow, offset, 1);
    OTHER.clone_into(&mut request.digest);
    request.head = Some(head(request));
}

/// A piece of the head of a signed request, and what stands there instead.
pub fn in_head(case: &mut Case, piece: &str, instead: &str) {
    let head = request(case, KEYED, SECOND, 1).head.as_mut().expect("heads are kept");
    assert!(head.contains(piece), "`{piece}` is in the head of the clean run");
    *head = head.replace(piece, instead);
}
