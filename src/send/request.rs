//! Enters: an event and the number of its attempt. Leaves: the request that a receiver gets, but for what proves the
//! sender: `credentials.rs` adds that when it leaves.
//!
//! Nothing here depends on the attempt but the attempt's own headers: the body's bytes were fixed when the event was made.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::GzBuilder;
use http_body_util::Full;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method as HttpMethod, Request, Uri};
use sha2::{Digest, Sha256};

use crate::config::{Compression, Endpoint, IdempotencyKey, Method, Workflow};
use crate::event::Event;

/// What all requests of a workflow share.
pub struct Template {
    method: HttpMethod,
    path: Uri,
    fixed: HeaderMap,
    compression: Compression,
    key_header: HeaderName,
    key_quoted: bool,
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
        }
    }

    pub fn request(&self, event: &Event, attempt: u32, fence: i64) -> Request<Full<Bytes>> {
        let body = match self.compression {
            Compression::None => event.body.clone(),
            Compression::Gzip => gzipped(&event.body),
        };
        let digest = STANDARD.encode(Sha256::digest(&body));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.fixed);
        let key = if self.key_quoted { quoted(&event.key) } else { event.key.clone() };
        headers.insert(self.key_header.clone(), header_value(&key));
        headers.insert("webhook-id", header_value(&event.key));
        headers.insert("oncebox-event", header_value(&event.place.to_string()));
        headers.insert("oncebox-attempt", HeaderValue::from(attempt));
        headers.insert("oncebox-fence", HeaderValue::from(fence));
        headers.insert("oncebox-source", header_value(&event.source.to_string()));
        headers.insert("content-type", header_value(&event.content_type));
        headers.insert("content-digest", header_value(&format!("sha-256=:{digest}:")));
        let trace = event.traceparent.clone().unwrap_or_else(|| made_traceparent(&event.key));
        headers.insert("traceparent", header_value(&trace));
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

/// A structured-field string (RFC 8941). Keys hold no quote and no backslash, but a caller's might one day.
fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A trace of its own for an event whose record had none: the same for every attempt.
fn made_traceparent(key: &str) -> String {
    let digest = Sha256::digest(format!("traceparent {key}"));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(&digest[..16]), hex(&digest[16..24]))
}

/// The same bytes for every attempt: the header names no time and no system.
fn gzipped(body: &[u8]) -> Bytes {
    let mut encoder =
        GzBuilder::new().mtime(0).write(Vec::with_capacity(body.len() / 2 + 64), flate2::Compression::new(6));
    encoder.write_all(body).expect("memory takes all");
    encoder.finish().expect("memory takes all").into()
}

pub(super) fn user_agent() -> HeaderValue {
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

pub(super) fn host(url: &url::Url) -> String {
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
