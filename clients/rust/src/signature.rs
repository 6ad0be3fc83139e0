//! Signatures as Standard Webhooks has them: HMAC-SHA256 over `webhook-id.webhook-timestamp.body`.
//!
//! Enters: the headers, the body's bytes as they came, the secrets, and the time. Must hold: one signature that was made
//! with one of the secrets is enough, and comparing takes the same time whatever it finds.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;

use crate::headers::values;

/// How far the clocks may be apart, and how long a request may be on its way.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Parsed from base64, behind `whsec_` or bare.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

#[derive(Debug, thiserror::Error)]
#[error("the secret is not base64")]
pub struct BadSecret;

/// Answer 401: it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header is missing or is none.
    #[error("the request is not signed")]
    Unsigned,
    #[error("the signature is too old or too new")]
    Expired,
    #[error("the signature was made with another secret or for another request")]
    Wrong,
}

impl Secret {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let secret = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(|_| BadSecret)?;
        if secret.is_empty() { Err(BadSecret) } else { Ok(Self(secret)) }
    }
}

pub fn verify(secrets: &[Secret], headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), Unverified> {
    let key = one(headers, "webhook-id")?;
    let timestamp = one(headers, "webhook-timestamp")?;
    let given = one(headers, "webhook-signature")?;
    // `parse` would take a sign.
    if timestamp.len() > 12 || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unverified::Unsigned);
    }
    let at: u64 = timestamp.parse().map_err(|_| Unverified::Unsigned)?;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now.abs_diff(at) > TOLERANCE.as_secs() {
        return Err(Unverified::Expired);
    }
    let given: Vec<Vec<u8>> =
        given.split(' ').filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok()).collect();
    let mut matches = 0;
    for secret in secrets {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("any bytes are a key");
        mac.update(format!("{key}.{timestamp}.").as_bytes());
        mac.update(body);
        matches += given.iter().filter(|one| mac.clone().verify_slice(one).is_ok()).count();
    }
    if matches == 0 { Err(Unverified::Wrong) } else { Ok(()) }
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Unverified> {
    match values(headers, name)[..] {
        [Some(value)] if !value.is_empty() => Ok(value),
        _ => Err(Unverified::Unsigned),
    }
}
