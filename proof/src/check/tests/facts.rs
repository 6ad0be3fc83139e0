//! How facts get into evidence that is written by hand: one function for each kind, so that what belongs together is written
//! together.

use serde_json::{Value, json};

use super::super::headers::content_digest;
use super::super::reference::{self, Event, Expected};
use super::super::{Case, Place};
use super::clean::KEYED;
use crate::evidence::{Answered, Audit, Received, Signature};

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

/// The head of a request as it must be, in the way that the receiver writes it down.
pub fn head(request: &Received) -> String {
    let signed = if request.signature.is_some() { "\nwebhook-timestamp\nwebhook-signature" } else { "" };
    format!(
        "POST /events HTTP/1.1\nx-secret\nx-turn: 0\nhost: 127.0.0.1:8080\nuser-agent: oncebox/0.1.0\n\
         oncebox-workflow\noncebox-event\noncebox-attempt\noncebox-fence\noncebox-source\n\
         idempotency-key: \"{key}\"\nwebhook-id: {key}\n\
         content-type: application/json\ncontent-digest: {digest}\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01{signed}\ncontent-length: 99",
        key = request.key,
        digest = content_digest(&request.digest)
    )
}

/// How a retry stands, and who has leased it until when.
pub fn retry(state: &str, sends: u32, fence: i64, holder: Option<(&str, i64)>) -> Value {
    json!({"state": state, "sends": sends, "counted": sends, "fence": fence,
           "leased_by": holder.map(|(who, _)| who), "lease_until_ms": holder.map(|(_, until)| until)})
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
        let mut received = Received {
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
            head: None,
        };
        received.head = Some(head(&received));
        self.received.push(received);
        let (status, whole) = (answer.unwrap_or(200), answer.is_some());
        self.answered.insert(seq, Answered { seq, at: at + 1, status, whole });
    }

    /// Stores an event in the outbox, in a transaction of this name.
    pub fn store(&mut self, at: i64, flow: &str, offset: i64, transaction: &str) {
        let event = self.event(flow, offset);
        let row = with(&self.named(flow, offset), json!({"key": event.key, "digest": event.digest}));
        self.keep("outbox", row.clone());
        transaction.clone_into(&mut self.note(at, "outbox", None, Some(row)).xid);
    }

    pub fn end(&mut self, at: i64, flow: &str, offset: i64, state: &str, sends: u32) {
        let row = with(&self.named(flow, offset), json!({"state": state, "sends": sends}));
        self.keep("done", row.clone());
        self.note(at, "done", None, Some(row));
    }

    pub fn bury(&mut self, at: i64, flow: &str, offset: i64, reason: &str, fence: i64) {
        let key = if reason == "invalid" { Value::Null } else { Value::from(self.event(flow, offset).key) };
        let more = json!({"reason": reason, "key": key, "sends": 1, "fence": fence});
        let row = with(&self.named(flow, offset), more);
        self.keep("dead_letter", row.clone());
        self.note(at, "dead_letter", None, Some(row));
        if reason != "invalid" {
            self.end(at, flow, offset, "discarded", 1);
        }
    }

    /// What became of a row of `retry`, one change after the other; answers how it stood at last.
    pub fn pass_through(&mut self, named: &Value, steps: impl IntoIterator<Item = (i64, Value)>) -> Option<Value> {
        let mut old = None;
        for (at, step) in steps {
            let new = with(named, step);
            self.note(at, "retry", old, Some(new.clone()));
            old = Some(new);
        }
        old
    }
}
