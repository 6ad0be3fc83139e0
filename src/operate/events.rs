//! One event: what became of it, what is sent of it (`request`), and an operator's word on one in doubt. `listing` finds them.

mod request;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::config::OnKeyFailure;
use crate::dead_letter::{Attempt, Payload};
use crate::event::{CursorId, Place};
use crate::outbox::audit::Entry;
use crate::outbox::cancel::{self, Cancelled};
use crate::outbox::resolve::Said;
use crate::outbox::sql::{int4, int8};
use crate::outbox::{Purpose, notify, resolve};

pub use request::Request;

/// All of them, in the order of an event's life.
pub const STATES: [&str; 8] =
    ["scheduled", "available", "active", "retryable", "pending", "completed", "cancelled", "discarded"];

/// An event in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventSummary)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: String,
    pub workflow: String,
    /// scheduled, available, active, retryable, pending, completed, cancelled or discarded.
    pub state: String,
    /// What a pending one waits for: order, in_doubt or unique.
    pub held: Option<String>,
    /// The outcome of its last request is not known.
    pub in_doubt: bool,
    /// Requests that were made.
    pub attempts: i32,
    pub key: String,
    pub event_type: String,
    /// topic/partition/offset.
    pub source: String,
    pub created_at: Timestamp,
    /// When it may be sent again, or when its lease ends.
    pub due: Option<Timestamp>,
    pub first_attempt_at: Option<Timestamp>,
}

/// An event, whole, as far as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    pub id: String,
    pub workflow: String,
    pub state: String,
    pub held: Option<String>,
    pub in_doubt: bool,
    /// Requests that were made.
    pub sends: i32,
    /// Null when its body is past its retention; so are the others of what was stored with it.
    pub key: Option<String>,
    pub event_type: Option<String>,
    pub content_type: Option<String>,
    pub traceparent: Option<String>,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub created_at: Option<Timestamp>,
    pub due: Option<Timestamp>,
    pub first_attempt_at: Option<Timestamp>,
    /// When it was completed, cancelled or discarded, and by which answer.
    pub ended_at: Option<Timestamp>,
    pub status: Option<i32>,
    /// What became of the dead letter that it ended as: there, replayed, discarded or expired.
    pub dead_letter: Option<String>,
    /// Somebody asked for it to be cancelled while it was claimed: it is not tried again.
    pub cancel_requested: bool,
    /// Requests that did not deliver; the one that did is not kept.
    pub attempts: Vec<Attempt>,
    /// The request that is made of it, but for its body. Null where its workflow is not configured, and when its body is past its retention.
    pub request: Option<Request>,
    pub body_bytes: Option<usize>,
    /// base64; only when asked for.
    pub body: Option<String>,
}

/// An operator's word on an event in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[schema(as = EventWord)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The endpoint has processed it: it is completed, without another request.
    Delivered,
    /// The endpoint has not processed it: it is sent again, with the same key.
    Redeliver,
    /// It stays unknown: a dead letter with reason `in_doubt`.
    DeadLetter,
}

impl Word {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Redeliver => "redeliver",
            Self::DeadLetter => "dead-letter",
        }
    }
}

impl Operator {
    pub async fn event(&self, place: Place, payload: Payload) -> Result<Shown, Error> {
        let Place { cursor: CursorId(cursor), offset, index, generation } = place;
        let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation)];
        let file = include_str!("../../sql/operate/event.sql");
        let rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        let Some(row) = rows.first() else {
            return Err(Error::NotFound(format!("no event {place}: no workflow has read that partition")));
        };
        let (is_letter, letter): (bool, Option<String>) = (row.get("is_letter"), row.get("letter"));
        let state: Option<String> = row.get("state");
        let Some(state) = state.or_else(|| is_letter.then(|| "discarded".to_owned())) else {
            let workflow: &str = row.get("workflow");
            return Err(Error::NotFound(match row.get("direct") {
                true => format!(
                    "no event {place}: `{workflow}` delivers without the outbox, and what was delivered leaves no row there"
                ),
                false => format!("no event {place}: it never was, or it is past the retention of `{workflow}`"),
            }));
        };
        let is_shown = payload == Payload::Shown;
        let body: Option<&[u8]> = row.get("body");
        let attempts: Option<serde_json::Value> = row.get("attempts");
        let mut attempts: Vec<Attempt> =
            attempts.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default();
        for attempt in &mut attempts {
            attempt.answer = attempt.answer.take().filter(|_| is_shown).map(|text| text.replace('\n', ""));
        }
        let mut shown = Shown {
            id: place.to_string(),
            workflow: row.get("workflow"),
            state,
            held: row.get("held"),
            in_doubt: row.get("in_doubt"),
            sends: row.get("sends"),
            key: row.get("key"),
            event_type: row.get("event_type"),
            content_type: row.get("content_type"),
            traceparent: row.get("traceparent"),
            topic: row.get("topic"),
            partition: row.get("partition"),
            offset,
            created_at: row.get("created_at"),
            due: row.get("due"),
            first_attempt_at: row.get("first_attempt_at"),
            ended_at: row.get("ended_at"),
            status: row.get("status"),
            dead_letter: letter.or_else(|| is_letter.then(|| "there".to_owned())),
            cancel_requested: row.get("cancel_requested"),
            attempts,
            request: None,
            body_bytes: body.map(<[u8]>::len),
            body: body.filter(|_| is_shown).map(|body| STANDARD.encode(body)),
        };
        shown.request = self.configured(&shown.workflow).and_then(|flow| Request::of(flow, &shown));
        Ok(shown)
    }

    /// Has an event never sent again: at once when it waits, as a request when it is claimed. Answers whether it is over.
    pub async fn cancel(&self, place: Place) -> Result<bool, Error> {
        let outcome = cancel::cancel(&self.database, place, &self.who).await?;
        let event = match &outcome {
            Cancelled::Now | Cancelled::Requested => self.event(place, Payload::Hidden).await?,
            Cancelled::Ended(state) => {
                return Err(Error::conflict("event_ended", format!("{place} has ended: it is {state}")));
            }
            Cancelled::Unknown => {
                // It says why there is none.
                self.event(place, Payload::Hidden).await?;
                return Err(Error::NotFound(format!("no event {place}")));
            }
        };
        let _ = notify::tell(&self.database, &event.workflow).await;
        Ok(outcome == Cancelled::Now)
    }

    /// Says what became of an event that is held because its outcome is unknown. Once, and only while it is held. Answers whose it is.
    pub async fn resolve(&self, place: Place, word: Word) -> Result<Arc<str>, Error> {
        let not_held = || Error::conflict("not_held", format!("{place} is not held: nothing asks for a word on it"));
        let held = resolve::held(&self.database, place).await?.ok_or_else(not_held)?;
        let said = match word {
            Word::Delivered => Said::Delivered,
            Word::Redeliver => Said::NotDelivered,
            Word::DeadLetter => {
                let flow = self.configured(&held.workflow);
                let blocks = flow.is_some_and(|flow| flow.delivery.ordering == Some(OnKeyFailure::Block));
                Said::Unknown { blocks }
            }
        };
        let (workflow, detail) = (Arc::clone(&held.workflow), format!("{place} to {}", word.as_str()));
        let entry = Entry { who: &self.who, action: "event resolved", workflow: Some(&workflow), detail: &detail };
        if !resolve::resolve(&self.database, &held, said, &entry).await? {
            return Err(Error::conflict("settled", format!("{place} was settled meanwhile: nothing was changed")));
        }
        let _ = notify::tell(&self.database, &workflow).await;
        Ok(workflow)
    }
}
