//! What the headers say of an event: its key, and which attempt this is.
//!
//! Enters: headers and the body's bytes. Leaves: an [`Event`], or [`Refused`]. Must hold: a request whose key can be read in
//! two ways is refused, never guessed at.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use crate::headers::values;

const LONGEST_KEY: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    /// Of the body as it came, in the form of `content-digest`.
    pub digest: String,
    pub event: Option<String>,
    pub attempt: Option<i32>,
    pub fence: Option<i64>,
    /// `topic/partition/offset`
    pub source: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is no key")]
    NoKey,
    #[error("the key is none")]
    BadKey,
    #[error("webhook-id and Idempotency-Key differ")]
    KeysDiffer,
    #[error("the attempt or the fence is no number")]
    BadNumber,
    #[error("the body is not the one that content-digest tells of")]
    DigestDiffers,
}

impl Refused {
    /// What to answer. Bytes that were damaged on the way may come whole the next time; the others will not change.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoKey | Self::BadKey | Self::KeysDiffer | Self::BadNumber => StatusCode::BAD_REQUEST,
            Self::DigestDiffers => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The key from `webhook-id`, from `Idempotency-Key`, or from both when they say the same.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
    let plain = at_most_one(headers, "webhook-id")?.map(plain_key).transpose()?;
    let quoted = at_most_one(headers, "idempotency-key")?.map(quoted_key).transpose()?;
    match (&plain, &quoted) {
        (Some(one), Some(other)) if one != other => Err(Refused::KeysDiffer),
        _ => event_of(plain.or(quoted), headers, body),
    }
}

/// After [`verify`](crate::verify): the key from `webhook-id` alone, since the signature does not cover the other header.
pub fn read_signed(headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
    event_of(at_most_one(headers, "webhook-id")?.map(plain_key).transpose()?, headers, body)
}

pub fn digest_of(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

fn event_of(key: Option<String>, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
    let key = key.ok_or(Refused::NoKey)?;
    let attempt: Option<i32> = number(headers, "oncebox-attempt")?;
    let fence = number(headers, "oncebox-fence")?;
    if attempt == Some(0) {
        return Err(Refused::BadNumber);
    }
    let digest = digest_of(body);
    let lines = values(headers, "content-digest");
    let mut parts = lines.iter().flatten().flat_map(|line| line.split(',')).map(str::trim);
    if parts.any(|part| part.starts_with("sha-256=") && part != digest) {
        return Err(Refused::DigestDiffers);
    }
    Ok(Event {
        key,
        digest,
        event: text(headers, "oncebox-event"),
        attempt,
        fence,
        source: text(headers, "oncebox-source"),
    })
}

fn at_most_one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refused> {
    match values(headers, name)[..] {
        [] => Ok(None),
        [Some(value)] => Ok(Some(value)),
        _ => Err(Refused::BadKey),
    }
}

fn plain_key(text: &str) -> Result<String, Refused> {
    if (1..=LONGEST_KEY).contains(&text.len()) { Ok(text.to_owned()) } else { Err(Refused::BadKey) }
}

/// A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash.
fn quoted_key(text: &str) -> Result<String, Refused> {
    let inner =
        text.trim_matches(' ').strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(Refused::BadKey)?;
    let mut key = String::new();
    let mut characters = inner.chars();
    while let Some(one) = characters.next() {
        match one {
            '"' => return Err(Refused::BadKey),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\')).ok_or(Refused::BadKey)?),
            other => key.push(other),
        }
    }
    plain_key(&key)
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Refused> {
    match values(headers, name)[..] {
        [] => Ok(None),
        // `parse` would take a sign.
        [Some(text)] if text.len() <= 19 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map(Some).map_err(|_| Refused::BadNumber)
        }
        _ => Err(Refused::BadNumber),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<&str> = values(headers, name).into_iter().flatten().collect();
    if values.is_empty() { None } else { Some(values.join(", ")) }
}
