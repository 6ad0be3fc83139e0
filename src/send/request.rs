//! Enters: an event and the number of its attempt. Leaves: the request that a receiver gets, but for what proves the
//! sender: `credentials.rs` adds that when it leaves.
//!
//! Nothing here depends on the attempt but the attempt's own headers: the body's bytes were fixed when the event was made.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::GzBuilder;
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::outgoing::{self, Outgoing, write_header, write_number, write_value};
use crate::config::{Compression, Endpoint, IdempotencyKey, Method, Workflow};
use crate::event::Event;
use crate::observe::trace::Context;

/// What an event's own headers take, as a rule: one allocation holds the request.
const OWN_BYTES: usize = 640;
/// Set for each event, whatever the configuration says.
const OWN: [&str; 8] = [
    "webhook-id",
    "oncebox-event",
    "oncebox-attempt",
    "oncebox-fence",
    "oncebox-source",
    "content-type",
    "content-digest",
    "traceparent",
];

/// What all requests of a workflow share.
pub struct Template {
    /// The request line and the headers that are the same for all.
    fixed: Vec<u8>,
    compression: Compression,
    key_header: String,
    key_quoted: bool,
    /// What receivers do belongs to the attempt's own span.
    traces: bool,
}

impl Template {
    pub fn new(workflow: &Workflow) -> Self {
        let Workflow { id, endpoint, .. } = workflow;
        let mut fixed = configured(endpoint);
        fixed.insert("host", header_value(&host(&endpoint.url)));
        fixed.insert("user-agent", user_agent());
        match endpoint.compression {
            Compression::None => {}
            Compression::Gzip => drop(fixed.insert("content-encoding", HeaderValue::from_static("gzip"))),
        }
        fixed.insert("oncebox-workflow", header_value(id));
        let IdempotencyKey { header, quoted, .. } = &workflow.delivery.key;
        let key_header = header.to_lowercase();
        let method = match endpoint.method {
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
        };
        let mut head = outgoing::first_line(method, &path(&endpoint.url).to_string());
        for (name, value) in
            fixed.iter().filter(|(name, _)| *name != key_header.as_str() && !OWN.contains(&name.as_str()))
        {
            write_header(&mut head, name.as_str(), value.as_bytes());
        }
        Self { fixed: head, compression: endpoint.compression, key_header, key_quoted: *quoted, traces: false }
    }

    /// The same requests, as parts of traces that somebody collects.
    #[must_use]
    pub fn traced(self, traces: bool) -> Self {
        Self { traces, ..self }
    }

    pub fn request(&self, event: &Event, attempt: u32, fence: i64) -> Outgoing {
        let body = match self.compression {
            Compression::None => event.body.clone(),
            Compression::Gzip => gzipped(&event.body),
        };
        let mut head = Vec::with_capacity(self.fixed.len() + OWN_BYTES);
        head.extend_from_slice(&self.fixed);
        self.write_key(&mut head, &event.key);
        write_header(&mut head, "webhook-id", event.key.as_bytes());
        head.extend_from_slice(b"oncebox-event: ");
        write!(head, "{}\r\noncebox-attempt: {attempt}\r\noncebox-fence: {fence}\r\n", event.place)
            .expect("memory takes all");
        head.extend_from_slice(b"oncebox-source: ");
        write_value(&mut head, event.source.topic.as_bytes());
        write!(head, "/{}/", event.source.partition).expect("memory takes all");
        write_number(&mut head, event.source.offset.unsigned_abs());
        head.extend_from_slice(b"\r\n");
        write_header(&mut head, "content-type", event.content_type.as_bytes());
        head.extend_from_slice(b"content-digest: sha-256=:");
        let mut digest = [0; 44];
        let length = STANDARD.encode_slice(Sha256::digest(&body), &mut digest).expect("32 bytes are 44 in base64");
        head.extend_from_slice(&digest[..length]);
        head.extend_from_slice(b":\r\n");
        let carried = trace_context(event);
        match Context::read(&carried) {
            Some(context) if self.traces => {
                write_header(&mut head, "traceparent", context.of_attempt(attempt).as_bytes());
            }
            Some(_) | None => write_header(&mut head, "traceparent", carried.as_bytes()),
        }
        Outgoing::new(head, body)
    }

    /// As a structured-field string (RFC 8941), unless told otherwise. Keys hold no quote and no backslash, but a caller's might one day.
    fn write_key(&self, head: &mut Vec<u8>, key: &str) {
        if !self.key_quoted {
            return write_header(head, &self.key_header, key.as_bytes());
        }
        head.extend_from_slice(self.key_header.as_bytes());
        head.extend_from_slice(b": \"");
        if key.contains(['\\', '"']) {
            write_value(head, key.replace('\\', "\\\\").replace('"', "\\\"").as_bytes());
        } else {
            write_value(head, key.as_bytes());
        }
        head.extend_from_slice(b"\"\r\n");
    }
}

/// The headers that the configuration adds.
pub(super) fn configured(endpoint: &Endpoint) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &endpoint.headers {
        let mut value = header_value(value.expose());
        value.set_sensitive(true);
        headers.insert(header_name(name), value);
    }
    headers
}

/// The trace that an event belongs to: its record's, or one of its own.
pub fn trace_context(event: &Event) -> Cow<'_, str> {
    match &event.traceparent {
        Some(carried) => Cow::Borrowed(carried),
        None => Cow::Owned(made_traceparent(&event.key)),
    }
}

/// A trace of its own for an event whose record had none: the same for every attempt.
fn made_traceparent(key: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha256::new().chain_update("traceparent ").chain_update(key).finalize();
    let mut text = String::with_capacity(55);
    let mut hex = |prefix: &str, bytes: &[u8]| {
        text.push_str(prefix);
        for byte in bytes {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    };
    hex("00-", &digest[..16]);
    hex("-", &digest[16..24]);
    hex("-01", &[]);
    text
}

/// The same bytes for every attempt: the header names no time and no system.
fn gzipped(body: &[u8]) -> Bytes {
    let mut encoder =
        GzBuilder::new().mtime(0).write(Vec::with_capacity(body.len() / 2 + 64), flate2::Compression::new(6));
    encoder.write_all(body).expect("memory takes all");
    encoder.finish().expect("memory takes all").into()
}

pub fn user_agent() -> HeaderValue {
    HeaderValue::from_static(concat!("oncebox/", env!("CARGO_PKG_VERSION")))
}

/// Path and query, as a request line has them.
pub(super) fn path(url: &url::Url) -> Uri {
    let text = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    text.parse().expect("the url crate writes valid paths")
}

pub fn host(url: &url::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("header names are checked at load")
}

/// What comes from data is cleaned, never dropped and never able to end its line.
pub(super) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| {
        let clean: String = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
        HeaderValue::from_str(&clean).expect("printable ASCII is a header value")
    })
}
