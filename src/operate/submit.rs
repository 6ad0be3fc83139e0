//! Enters: an event that a caller gives over HTTP. Leaves: the event, durable, or why not.
//!
//! From here on it is an event like any other: same envelope, same deliveries, same dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::config::raw_delivery::RawUnique;
use crate::config::{EventType, UniquePolicy, Workflow};
use crate::dead_letter::Payload;
use crate::event::{Fingerprint, Place};
use crate::outbox::seen;
use crate::outbox::submit::{Stored, Submission, Submissions, Submitted};
use crate::transform::canonical::Canonical;
use crate::transform::unique::{Dimensions, Meta, fingerprint};
use crate::transform::{decode, enveloped, is_traceparent};

/// Keys that callers give are printed in headers and logs.
const LONGEST_KEY: usize = 200;
const LONGEST_TYPE: usize = 200;

/// An event for callers without Kafka.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent<'a> {
    /// What happened. The workflow's own `eventType` where that is a text and this is left out.
    #[serde(default, rename = "type")]
    pub event_type: Option<String>,
    /// What is delivered, byte for byte.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value)]
    pub data: &'a RawValue,
    /// What stands beside it, for uniqueness.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub meta: Option<&'a RawValue>,
    /// A key of the caller's own: sent again with the same body it makes no second event.
    #[serde(default)]
    pub key: Option<String>,
    /// Not before this time.
    #[serde(default)]
    pub scheduled_at: Option<String>,
    /// The Open Job Spec UniquePolicy, instead of the workflow's.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub unique: Option<RawUnique>,
}

/// An event that was taken, or the one that it repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub id: String,
    pub workflow: String,
    /// scheduled, available, active, retryable, pending, completed, cancelled or discarded. Null, as are the others, only of one that was
    /// there already: when it is past its retention, or cannot be read now.
    pub state: Option<String>,
    pub key: Option<String>,
    pub event_type: Option<String>,
    pub created_at: Option<Timestamp>,
    pub due: Option<Timestamp>,
    /// Whether nothing was stored, because the same was there already.
    pub deduplicated: bool,
}

/// Where events that callers give to a workflow come in.
#[derive(Debug, Clone)]
pub struct Intake {
    pub workflow: Arc<str>,
    /// Whether more is undelivered than may be: what its consumer pauses by, as of the last look.
    pub pressure: Arc<AtomicBool>,
}

/// What a caller sent.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    pub request: &'a [u8],
    /// Of the caller's own trace; one that is none is left out.
    pub traceparent: Option<&'a str>,
}

impl Operator {
    /// Stores an event and answers once it is durable.
    pub async fn submit(&self, way: &Submissions, intake: &Intake, given: &Given<'_>) -> Result<Accepted, Error> {
        let id = &*intake.workflow;
        let flow = self.configured(id).ok_or_else(|| self.no_workflow(id))?;
        let submission = prepared(flow, given, &self.who)?;
        if intake.pressure.load(Ordering::Acquire) && !self.repeats(&submission).await? {
            let message = format!(
                "more is undelivered of `{id}` than its maxWaiting or maxWaitingBytes allows: give it again later"
            );
            return Err(Error::TooManyWaiting(message));
        }
        let (key, event_type) = (submission.key.clone(), submission.event_type.clone());
        match way.submit(submission).await.map_err(Error::Submit)? {
            // What is said of it is what was stored: it need not be read again, which may fail.
            Submitted::Stored(Stored { place, state, due, created_at }) => Ok(Accepted {
                id: place.to_string(),
                workflow: id.to_owned(),
                state: Some(state),
                key: Some(key),
                event_type: Some(event_type),
                created_at: Some(created_at),
                due,
                deduplicated: false,
            }),
            Submitted::Deduplicated(place) => Ok(self.repeated(id, place).await),
            Submitted::Duplicate { place, state } => {
                let message = format!("event {place}, which is {state}, has the same uniqueness key");
                Err(Error::Met { code: "duplicate", message, place, state: Some(state) })
            }
            Submitted::KeyReused(place) => {
                let message = format!("event {place} has this key, and another body");
                Err(Error::Met { code: "key_reused", message, place, state: None })
            }
        }
    }

    /// Whether its caller has given it before: then it does not come on top of what waits.
    async fn repeats(&self, submission: &Submission) -> Result<bool, Error> {
        let Some((key, _)) = &submission.own else { return Ok(false) };
        let given = seen::given(&self.database, &submission.workflow, key).await?;
        Ok(given.is_some_and(|given| given.is_remembered))
    }

    /// The event that was there already.
    async fn repeated(&self, workflow: &str, place: Place) -> Accepted {
        // None when it was delivered so long ago that nothing but its key is remembered. Nor is it known when Postgres does not answer
        // now: the event is stored all the same, and a no would have it sent again.
        let found = self.event(place, Payload::Hidden).await.ok();
        Accepted {
            id: place.to_string(),
            workflow: workflow.to_owned(),
            state: found.as_ref().map(|event| event.state.clone()),
            key: found.as_ref().and_then(|event| event.key.clone()),
            event_type: found.as_ref().and_then(|event| event.event_type.clone()),
            created_at: found.as_ref().and_then(|event| event.created_at),
            due: found.as_ref().and_then(|event| event.due),
            deduplicated: true,
        }
    }
}

fn prepared(flow: &Workflow, given: &Given<'_>, who: &str) -> Result<Submission, Error> {
    let request = given.request;
    if decode::deeper_than(request, decode::DEEPEST) {
        return Err(Error::Invalid(format!("nested deeper than {} levels", decode::DEEPEST)));
    }
    let event: NewEvent<'_> = serde_json::from_slice(request).map_err(|error| Error::Invalid(error.to_string()))?;
    let most = flow.source.max_bytes;
    if event.data.get().len() > most {
        return Err(Error::TooLarge(format!(
            "the data has {} bytes, more than maxBytes ({most})",
            event.data.get().len()
        )));
    }
    if flow.delivery.ordering.is_some() {
        return Err(Error::Invalid("a workflow with `ordering: key` takes events from Kafka only".to_owned()));
    }
    let event_type = event_type(flow, event.event_type.as_deref())?;
    let key = match &event.key {
        Some(key) => checked_key(key)?.to_owned(),
        None => format!("{}-{}", flow.id, URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>())),
    };
    let scheduled = event.scheduled_at.as_deref().map(|text| {
        text.parse::<Timestamp>().map_err(|_| Error::Invalid(format!("scheduled_at `{text}` is not an RFC 3339 time")))
    });
    let meta = event.meta.map_or("{}", RawValue::get);
    if !meta.starts_with('{') {
        return Err(Error::Invalid("meta is not an object".to_owned()));
    }
    let now = Timestamp::now().as_millisecond();
    let (content_type, body) = enveloped(&flow.delivery, &key, &event_type, now, event.data.get());
    Ok(Submission {
        who: who.into(),
        workflow: flow.id.clone(),
        version: flow.version,
        content_type: content_type.as_str(),
        body,
        traceparent: given.traceparent.filter(|text| is_traceparent(text)).map(str::to_owned),
        source_at: now,
        due: scheduled.transpose()?,
        delay: flow.delivery.delay,
        lane: None,
        own: event.key.as_ref().map(|key| (key_fingerprint(key), digest(request))),
        unique: unique(flow, &event, &event_type, meta)?,
        kept: flow.retention,
        key,
        event_type,
    })
}

/// What stands for a key that a caller gave, among all that is remembered of its workflow.
pub(super) fn key_fingerprint(key: &str) -> Fingerprint {
    Sha256::digest(format!("http key {key}")).into()
}

fn event_type(flow: &Workflow, given: Option<&str>) -> Result<String, Error> {
    match (given, &flow.event_type) {
        (Some(text), _) if text.is_empty() || text.len() > LONGEST_TYPE || text.chars().any(char::is_control) => {
            Err(Error::Invalid(format!("type: 1 to {LONGEST_TYPE} bytes without control characters")))
        }
        (Some(text), _) => Ok(text.to_owned()),
        (None, EventType::Text(text)) => Ok(text.clone()),
        (None, EventType::Topic | EventType::Jq(_)) => Err(Error::Invalid("type is missing".to_owned())),
    }
}

fn checked_key(key: &str) -> Result<&str, Error> {
    let fits = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    // A header loses the space at its ends: two keys here would be one at the receiver, and the second event lost there.
    let is_whole = key.trim_matches(' ') == key;
    if key.is_empty() || key.len() > LONGEST_KEY || !key.bytes().all(fits) || !is_whole {
        let allowed = format!(
            "1 to {LONGEST_KEY} printable ASCII characters without quotes and backslashes, and without space at either end"
        );
        return Err(Error::Invalid(format!("key: {allowed}")));
    }
    Ok(key)
}

fn unique(
    flow: &Workflow,
    event: &NewEvent<'_>,
    event_type: &str,
    meta: &str,
) -> Result<Option<(UniquePolicy, Fingerprint)>, Error> {
    let policy = match &event.unique {
        Some(raw) => UniquePolicy::check(raw).map(Some).map_err(|wrong| {
            let each =
                wrong.into_iter().map(|(key, trouble, allowed)| format!("unique.{key}: {trouble}; allowed: {allowed}"));
            Error::Invalid(each.collect::<Vec<String>>().join("\n"))
        })?,
        None => flow.delivery.unique.clone(),
    };
    let Some(policy) = policy else { return Ok(None) };
    let dimensions = Dimensions { event_type, queue: &flow.id, args: event.data.get(), meta: Meta::Json(meta) };
    let found = fingerprint(&policy, &dimensions).map_err(|error| Error::Invalid(error.to_string()))?;
    tracing::debug!(workflow = %flow.id, key = %hex(&found), "uniqueness key");
    Ok(Some((policy, found)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of the request as a value: a caller that sends it again may write it otherwise.
fn digest(request: &[u8]) -> Fingerprint {
    let canonical = std::str::from_utf8(request).ok().and_then(|text| Canonical::of(text).ok());
    match canonical {
        Some(value) => {
            let mut bytes = Vec::with_capacity(request.len());
            value.write(&mut bytes);
            Sha256::digest(bytes).into()
        }
        None => Sha256::digest(request).into(),
    }
}
