//! Enters: one output of the transform with its key. Leaves: the request body's bytes and their content type.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Origin;
use super::decode::Output;
use crate::config::{Delivery, Envelope};
use crate::event::{ContentType, Record};

pub struct Parts<'a> {
    pub key: &'a str,
    pub event_type: &'a str,
    pub source_at: Option<i64>,
    pub origin: &'a Origin,
    pub output: &'a Output,
}

pub fn wrap(delivery: &Delivery, parts: &Parts<'_>) -> (ContentType, Vec<u8>) {
    match delivery.envelope {
        Envelope::None => match parts.output {
            Output::Json(text) => (ContentType::Json, text.clone().into_bytes()),
            Output::Text(text) => (ContentType::Text, text.clone().into_bytes()),
            Output::Bytes(bytes) => (ContentType::Bytes, bytes.clone()),
        },
        Envelope::Keyed => (ContentType::Json, keyed(parts, delivery.key.included_in_payload)),
        Envelope::Cloudevents => (ContentType::CloudEvents, cloudevent(parts)),
    }
}

fn keyed(parts: &Parts<'_>, with_key: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + size(parts.output));
    out.push(b'{');
    if with_key {
        field(&mut out, "idempotencyKey", parts.key);
    }
    field(&mut out, "eventType", parts.event_type);
    if let Some(time) = parts.source_at.and_then(rfc3339) {
        field(&mut out, "timestamp", &time);
    }
    out.extend_from_slice(b"\"data\":");
    data(&mut out, parts.output);
    out.push(b'}');
    out
}

fn cloudevent(parts: &Parts<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + size(parts.output));
    out.push(b'{');
    field(&mut out, "specversion", "1.0");
    field(&mut out, "id", parts.key);
    field(&mut out, "source", &format!("/{}/{}", parts.origin.cluster, parts.origin.topic));
    field(&mut out, "type", parts.event_type);
    if let Some(time) = parts.source_at.and_then(rfc3339) {
        field(&mut out, "time", &time);
    }
    match parts.output {
        Output::Json(_) => {
            field(&mut out, "datacontenttype", ContentType::Json.as_str());
            out.extend_from_slice(b"\"data\":");
        }
        Output::Text(_) => {
            field(&mut out, "datacontenttype", ContentType::Text.as_str());
            out.extend_from_slice(b"\"data\":");
        }
        Output::Bytes(_) => {
            field(&mut out, "datacontenttype", ContentType::Bytes.as_str());
            out.extend_from_slice(b"\"data_base64\":");
        }
    }
    data(&mut out, parts.output);
    out.push(b'}');
    out
}

/// An output as JSON, as the keyed envelope has it.
pub fn json(output: &Output) -> std::borrow::Cow<'_, str> {
    match output {
        Output::Json(text) => text.into(),
        Output::Text(_) | Output::Bytes(_) => {
            let mut out = Vec::new();
            data(&mut out, output);
            String::from_utf8(out).expect("JSON is UTF-8").into()
        }
    }
}

fn size(output: &Output) -> usize {
    match output {
        Output::Json(text) | Output::Text(text) => text.len(),
        Output::Bytes(bytes) => bytes.len() * 4 / 3,
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    string(out, name);
    out.push(b':');
    string(out, value);
    out.push(b',');
}

fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing text to memory cannot fail");
}

fn data(out: &mut Vec<u8>, output: &Output) {
    match output {
        Output::Json(text) => out.extend_from_slice(text.as_bytes()),
        Output::Text(text) => string(out, text),
        Output::Bytes(bytes) => string(out, &STANDARD.encode(bytes)),
    }
}

/// UTC with milliseconds and a Z; nothing for a time that no calendar has.
pub fn rfc3339(millis: i64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(millis).ok()?;
    Some(format!("{time:.3}"))
}

/// The record's own trace context, when it has the shape of one.
pub fn traceparent(record: &Record) -> Option<String> {
    let (_, value) = record.headers.iter().find(|(name, _)| name == b"traceparent")?;
    let text = std::str::from_utf8(value.as_deref()?).ok()?;
    is_traceparent(text).then(|| text.to_owned())
}

/// Whether a text has the shape of a trace context.
pub fn is_traceparent(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    lengths == [2, 32, 16, 2] && hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_a_z() {
        assert_eq!(rfc3339(1_700_000_000_000).as_deref(), Some("2023-11-14T22:13:20.000Z"));
        assert_eq!(rfc3339(1_700_000_000_123).as_deref(), Some("2023-11-14T22:13:20.123Z"));
        assert_eq!(rfc3339(i64::MAX), None);
    }
}
