//! Enters: the key of an event in doubt. Leaves: whether its endpoint has processed it.
//!
//! One GET under the same egress rules and deadline as a delivery; it changes nothing at the receiver. Only the statuses
//! that the configuration lists are an answer: anything else leaves the event in doubt.

use std::time::Instant;

use bytes::Bytes;
use hyper::header::HeaderMap;
use tracing::debug;

use super::connect::Target;
use super::egress::Rules;
use super::outcome::Outcome;
use super::outgoing::{Outgoing, first_line, write_header};
use super::{attempt, credentials, request};
use crate::config::{Auth, KEY_IN_URL, Lookup, Workflow};

/// What the endpoint says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Processed { status: u16 },
    NotProcessed,
    Unclear,
}

/// How one workflow asks.
pub struct Question {
    workflow: std::sync::Arc<str>,
    target: Target,
    lookup: Lookup,
    headers: HeaderMap,
}

impl Question {
    /// Nothing for a workflow without a lookup.
    pub fn new(workflow: &Workflow, endpoint: &Target, rules: &Rules) -> Result<Option<Self>, credentials::Error> {
        let Some(lookup) = workflow.endpoint.lookup.clone() else { return Ok(None) };
        let url = url_of(&lookup, "key");
        let is_endpoint = url.origin() == workflow.endpoint.url.origin();
        let (target, mut headers) = match is_endpoint {
            true => (endpoint.beside(&url, rules), request::configured(&workflow.endpoint)),
            // What proves who we are to the endpoint is shown to nobody else.
            false => (Target::new(&without_secrets(workflow, &url), rules)?, HeaderMap::new()),
        };
        headers.insert("host", request::header_value(&request::host(&url)));
        headers.insert("user-agent", request::user_agent());
        headers.insert("oncebox-workflow", request::header_value(&workflow.id));
        Ok(Some(Self { workflow: workflow.id.clone(), target, lookup, headers }))
    }

    pub async fn ask(&self, key: &str, deadline: Instant) -> Known {
        let mut head = first_line("GET", &request::path(&url_of(&self.lookup, key)).to_string());
        for (name, value) in &self.headers {
            write_header(&mut head, name.as_str(), value.as_bytes());
        }
        // A signature is over this id, the time and an empty body.
        let mut question = Outgoing::new(head, Bytes::new());
        question.set("webhook-id", key.as_bytes());
        let answered = attempt(&self.target, None, question, Instant::now(), deadline).await;
        let known = match answered.outcome {
            Outcome::Answered { status, .. } => meaning(&self.lookup, status),
            Outcome::Unknown(_) | Outcome::NeverSent(_) => Known::Unclear,
        };
        debug!(workflow = %self.workflow, ?known, error = answered.error.as_deref(), "asked about an event in doubt");
        known
    }
}

fn without_secrets(workflow: &Workflow, url: &url::Url) -> Workflow {
    let mut other = workflow.clone();
    other.endpoint.url = url.clone();
    other.endpoint.auth = Auth::None;
    other.endpoint.headers.clear();
    other.endpoint.signing.clear();
    other
}

fn meaning(lookup: &Lookup, status: u16) -> Known {
    if lookup.processed.iter().any(|m| m.matches(status)) {
        Known::Processed { status }
    } else if lookup.not_processed.iter().any(|m| m.matches(status)) {
        Known::NotProcessed
    } else {
        Known::Unclear
    }
}

/// The URL that asks about one key, which stands in it as one path segment or query value whatever it holds.
fn url_of(lookup: &Lookup, key: &str) -> url::Url {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    url::Url::parse(&lookup.url.replace(KEY_IN_URL, &encoded)).expect("the lookup's URL was checked at load")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scalar::StatusMatch;

    fn lookup() -> Lookup {
        Lookup {
            url: "https://erp.example.com/events/{idempotencyKey}?full=1".to_owned(),
            processed: vec![StatusMatch::Exact(200)],
            not_processed: vec![StatusMatch::Exact(404)],
        }
    }

    #[test]
    fn only_listed_statuses_are_an_answer() {
        assert_eq!(meaning(&lookup(), 200), Known::Processed { status: 200 });
        assert_eq!(meaning(&lookup(), 404), Known::NotProcessed);
        for status in [201, 204, 301, 400, 401, 403, 409, 410, 429, 500, 503] {
            assert_eq!(meaning(&lookup(), status), Known::Unclear, "{status}");
        }
    }

    #[test]
    fn a_key_cannot_leave_its_place_in_the_url() {
        let url = url_of(&lookup(), "../a?b=c#d%/ü");
        assert_eq!(url.path(), "/events/%2E%2E%2Fa%3Fb%3Dc%23d%25%2F%C3%BC");
        assert_eq!((url.host_str(), url.query()), (Some("erp.example.com"), Some("full=1")));
        assert_eq!(request::path(&url).query(), Some("full=1"));
    }
}
