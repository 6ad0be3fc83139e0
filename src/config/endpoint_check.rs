//! Checks where a workflow's events go: the URL, extra headers, what answers mean. `credentials_check.rs` checks how the
//! endpoint learns who sends.

use std::time::Duration;

use super::check::Report;
use super::checked::{Answers, Endpoint, Lookup};
use super::credentials::Auth;
use super::credentials_check;
use super::raw_endpoint::RawAnswers;
use super::raw_workflow::{Compression, Method, RawWorkflow};
use super::scalar::StatusMatch;

/// Headers that Oncebox sets, or that frame the request.
const RESERVED_HEADERS: [&str; 14] = [
    "connection",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Where a lookup's URL takes the key.
pub const KEY_IN_URL: &str = "{idempotencyKey}";

pub fn endpoint(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Endpoint> {
    let pointer = format!("{here}/endpoint/url");
    let Some(text) = &raw.endpoint.url else {
        report.problem(&pointer, "`endpoint.url` is missing", "url: https://host/path");
        return None;
    };
    let url = url::Url::parse(text).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
    let Some(url) = url else {
        report.problem(&pointer, format!("`{text}` is not an endpoint"), "http:// or https:// with a host");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        report.problem(&pointer, "credentials in the URL are not sent", "endpoint.auth");
    }
    if url.scheme() == "http" && !is_private(&url) {
        report.warning(&pointer, "http:// to a public host: bodies travel unencrypted", "https://");
    }
    let key_header = raw.delivery.idempotency_key.header.as_deref().unwrap_or("Idempotency-Key").to_lowercase();
    let mut headers = Vec::new();
    for (name, value) in &raw.endpoint.headers {
        let lower = name.to_lowercase();
        let pointer = format!("{here}/endpoint/headers/{}", name.replace('~', "~0").replace('/', "~1"));
        if is_reserved(&lower) || lower == key_header {
            report.problem(&pointer, format!("`{name}` is set by Oncebox"), "another header");
        }
        if hyper::header::HeaderName::from_bytes(lower.as_bytes()).is_err() {
            report.problem(&pointer, format!("`{name}` is not a header name"), "letters, digits and -");
        }
        if hyper::header::HeaderValue::from_str(value).is_err() {
            report.problem(&pointer, format!("the value of `{name}` has control characters"), "printable text");
        }
        headers.push((lower, report.secret(&pointer, value)));
    }
    if raw.endpoint.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        report.problem(&format!("{here}/endpoint/timeout"), "no request ends in no time", "more than 0s");
    }
    let auth = credentials_check::auth(&raw.endpoint.auth, &format!("{here}/endpoint/auth"), report);
    if !matches!(auth, Auth::None) && headers.iter().any(|(name, _)| name == "authorization") {
        report.problem(&format!("{here}/endpoint/auth"), "there is an Authorization header too", "one of the two");
    }
    let tls = credentials_check::tls(&raw.endpoint.tls, &format!("{here}/endpoint/tls"), report);
    let secure =
        url.scheme() == "https" || matches!(&auth, Auth::Oauth2(oauth2) if oauth2.token_url.scheme() == "https");
    if !secure && (tls.ca.is_some() || tls.client.is_some()) {
        report.warning(&format!("{here}/endpoint/tls"), "certificates, and no https:// to use them on", "https://");
    }
    Some(Endpoint {
        url,
        method: raw.endpoint.method.unwrap_or(Method::Post),
        headers,
        timeout: raw.endpoint.timeout.map_or(Duration::from_secs(15), |s| s.0),
        compression: raw.endpoint.compression.unwrap_or(Compression::None),
        auth,
        tls,
        signing: credentials_check::signing(&raw.endpoint.signing, &format!("{here}/endpoint/signing"), report),
        answers: answers(&raw.endpoint.answers),
        lookup: lookup(raw, here, report),
    })
}

fn lookup(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Lookup> {
    let given = &raw.endpoint.lookup;
    let here = format!("{here}/endpoint/lookup");
    let Some(text) = given.url.as_ref().filter(|text| !text.is_empty()) else {
        if given.processed.is_some() || given.not_processed.is_some() {
            report.problem(&here, "`lookup` has no url", "url: https://host/events/{idempotencyKey}");
        }
        return None;
    };
    let url = url::Url::parse(&text.replace(KEY_IN_URL, "key")).ok();
    if url.is_none_or(|u| !matches!(u.scheme(), "http" | "https") || !u.has_host()) || !text.contains(KEY_IN_URL) {
        report.problem(
            &format!("{here}/url"),
            format!("`{text}` cannot be asked about a key"),
            "http:// or https:// with a host, and {idempotencyKey} behind it",
        );
        return None;
    }
    // The host is fixed by the configuration: no key, whatever it holds, may choose who is asked.
    let authority =
        text.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if authority.contains(KEY_IN_URL) {
        report.problem(
            &format!("{here}/url"),
            "the key stands in the host",
            "{idempotencyKey} in the path or the query",
        );
    }
    let exact = |status: u16| vec![StatusMatch::Exact(status)];
    Some(Lookup {
        url: text.clone(),
        processed: given.processed.clone().unwrap_or_else(|| exact(200)),
        not_processed: given.not_processed.clone().unwrap_or_else(|| exact(404)),
    })
}

/// Whether Oncebox sets this header, named in lower case, or will.
pub fn is_reserved(lower: &str) -> bool {
    RESERVED_HEADERS.contains(&lower)
        || ["oncebox-", "webhook-", "proxy-"].iter().any(|prefix| lower.starts_with(prefix))
}

pub fn is_private(url: &url::Url) -> bool {
    match url.host() {
        // What a cluster's own resolver knows, too: `ledger.billing.svc`.
        Some(url::Host::Domain(name)) => {
            name == "localhost" || !name.contains('.') || [".local", ".svc"].iter().any(|end| name.ends_with(end))
        }
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        None => false,
    }
}

fn answers(raw: &RawAnswers) -> Answers {
    let exact = |statuses: &[u16]| statuses.iter().copied().map(StatusMatch::Exact).collect::<Vec<_>>();
    Answers {
        delivered: raw.delivered.clone().unwrap_or_else(|| vec![StatusMatch::Class(2)]),
        in_progress: raw.in_progress.clone().unwrap_or_else(|| exact(&[409])),
        rejected: raw.rejected.clone().unwrap_or_else(|| exact(&[400, 413, 414, 415, 422])),
        gone: raw.gone.clone().unwrap_or_else(|| exact(&[410])),
        in_doubt: raw.in_doubt.clone().unwrap_or_else(|| exact(&[408, 500, 502, 504])),
    }
}
