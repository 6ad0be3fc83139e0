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
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method as HttpMethod, Request, Uri};
use sha2::{Digest, Sha256};

use super::Outgoing;
use crate::config::{Compression, Endpoint, IdempotencyKey, Method, Workflow};
use crate::event::Event;
use crate::observe::trace::Context;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const ONCEBOX_EVENT: HeaderName = HeaderName::from_static("oncebox-event");
const ONCEBOX_ATTEMPT: HeaderName = HeaderName::from_static("oncebox-attempt");
const ONCEBOX_FENCE: HeaderName = HeaderName::from_static("oncebox-fence");
const ONCEBOX_SOURCE: HeaderName = HeaderName::from_static("oncebox-source");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// How many headers an event adds to those that all share.
const OWN_HEADERS: usize = 12;

/// What all requests of a workflow share.
pub struct Template {
    method: HttpMethod,
    path: Uri,
    fixed: HeaderMap,
    compression: Compression,
    key_header: HeaderName,
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
        Self {
            method: match endpoint.method {
                Method::Post => HttpMethod::POST,
                Method::Put => HttpMethod::PUT,
                Method::Patch => HttpMethod::PATCH,
            },
            path: path(&endpoint.url),
            fixed,
            compression: endpoint.compression,
            key_header: header_name(&header.to_lowercase()),
            key_quoted: *quoted,
            traces: false,
        }
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
        let mut digest = String::with_capacity(64);
        digest.push_str("sha-256=:");
        STANDARD.encode_string(Sha256::digest(&body), &mut digest);
        digest.push(':');
        let mut request = Box::new(Request::new(Full::new(body)));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.reserve(self.fixed.len() + OWN_HEADERS);
        headers.extend(self.fixed.iter().map(|(name, value)| (name.clone(), value.clone())));
        let key = header_value(&event.key);
        let written_key = if self.key_quoted { header_value(&quoted(&event.key)) } else { key.clone() };
        headers.insert(self.key_header.clone(), written_key);
        headers.insert(WEBHOOK_ID, key);
        headers.insert(ONCEBOX_EVENT, header_value(&event.place.to_string()));
        headers.insert(ONCEBOX_ATTEMPT, HeaderValue::from(attempt));
        headers.insert(ONCEBOX_FENCE, HeaderValue::from(fence));
        headers.insert(ONCEBOX_SOURCE, header_value(&event.source.to_string()));
        headers.insert(CONTENT_TYPE, content_type(&event.content_type));
        headers.insert(CONTENT_DIGEST, header_value(&digest));
        let carried = trace_context(event);
        let trace = match Context::read(&carried) {
            Some(context) if self.traces => header_value(&context.of_attempt(attempt)),
            Some(_) | None => header_value(&carried),
        };
        headers.insert(TRACEPARENT, trace);
        request
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

/// The usual ones are not made anew.
fn content_type(text: &str) -> HeaderValue {
    match text {
        "application/json" => HeaderValue::from_static("application/json"),
        "application/cloudevents+json" => HeaderValue::from_static("application/cloudevents+json"),
        other => header_value(other),
    }
}

/// A structured-field string (RFC 8941). Keys hold no quote and no backslash, but a caller's might one day.
fn quoted(key: &str) -> String {
    let mut text = String::with_capacity(key.len() + 2);
    text.push('"');
    for piece in key.chars() {
        if matches!(piece, '\\' | '"') {
            text.push('\\');
        }
        text.push(piece);
    }
    text.push('"');
    text
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
