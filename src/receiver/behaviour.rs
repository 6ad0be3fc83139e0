//! How the reference receiver answers: well, or as badly as it was told.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A request as the receiver saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub key: String,
    pub workflow: String,
    pub event: String,
    pub source: String,
    pub attempt: u32,
    pub fence: i64,
    pub digest: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn new(head: &Parts, body: &[u8]) -> Self {
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let key = match header("idempotency-key") {
            quoted if !quoted.is_empty() => quoted.trim_matches('"').to_owned(),
            _ => header("webhook-id"),
        };
        let headers = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        Self {
            key,
            workflow: header("oncebox-workflow"),
            event: header("oncebox-event"),
            source: header("oncebox-source"),
            attempt: header("oncebox-attempt").parse().unwrap_or(0),
            fence: header("oncebox-fence").parse().unwrap_or(0),
            digest: STANDARD.encode(Sha256::digest(body)),
            path: head.uri.path().to_owned(),
            headers: headers.collect(),
            body: body.to_vec(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is done with a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Has its effect once, and answers 200.
    Process,
    /// No effect; this status and these headers.
    Status(u16, Vec<(String, String)>),
    /// Has its effect once, and the answer is lost.
    ProcessAndClose,
    /// No effect, no answer.
    Close,
    /// No effect, no answer, and the connection stays open.
    Hang,
    Die,
    After(Duration, Box<Answer>),
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self::Status(status, Vec::new())
    }
}

/// Misbehaviour by shares. Which requests it hits depends on key and attempt, so a run can be repeated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// The share of requests that fail.
    pub fail: f64,
    /// The share of requests that are processed and whose answer is lost.
    pub lose: f64,
    /// The share of requests that are closed without being processed.
    pub close: f64,
    /// The status of a failure; 500 when not given.
    pub status: Option<u16>,
    /// Every answer waits this many milliseconds.
    pub stall: u64,
    /// Die at the request with this number of its key's attempts.
    pub die_at_attempt: Option<u32>,
}

impl Behaviour {
    pub fn decide(&self, seen: &Seen) -> Answer {
        let answer = self.decide_now(seen);
        match self.stall {
            0 => answer,
            millis => Answer::After(Duration::from_millis(millis), Box::new(answer)),
        }
    }

    fn decide_now(&self, seen: &Seen) -> Answer {
        if self.die_at_attempt == Some(seen.attempt) {
            return Answer::Die;
        }
        let dice = dice(&seen.key, seen.attempt);
        if dice < self.fail {
            Answer::status(self.status.unwrap_or(500))
        } else if dice < self.fail + self.lose {
            Answer::ProcessAndClose
        } else if dice < self.fail + self.lose + self.close {
            Answer::Close
        } else {
            Answer::Process
        }
    }
}

/// A number from 0 up to 1 that is always the same for one attempt at one key.
fn dice(key: &str, attempt: u32) -> f64 {
    let digest = Sha256::digest(format!("{key} {attempt}"));
    let head: [u8; 4] = digest[..4].try_into().expect("a digest has 32 bytes");
    f64::from(u32::from_be_bytes(head)) / (f64::from(u32::MAX) + 1.0)
}
