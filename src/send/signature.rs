//! Standard Webhooks: signs the bytes that are sent, once per secret, and checks what others signed. Pure: the time is an
//! argument.
//!
//! What is signed is `id.timestamp.body`. Ids that we make hold no dot, but a key that a caller over HTTP chose may, and a body
//! does: the same text can be cut into other parts. That does no harm: the time of such a request must stand in the id or the
//! body, between dots, and whoever can put it there can have a body of theirs signed as an event anyway.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::config::SigningKey;

/// How far the clocks of sender and receiver may be apart, and how long a request may be under way.
pub const TOLERANCE_SECONDS: i64 = 300;

/// The value of `webhook-signature`: one signature per key, space separated.
pub fn sign(keys: &[SigningKey], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures = keys.iter().map(|key| {
        let signature = mac(key, id, timestamp, body).finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(signature))
    });
    signatures.collect::<Vec<String>>().join(" ")
}

fn mac(key: &SigningKey, id: &str, timestamp: i64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose()).expect("a key of any length fits");
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    mac
}

/// The three headers of a signed request, as they arrived.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signed<'a> {
    pub id: Option<&'a str>,
    pub timestamp: Option<&'a str>,
    pub signature: Option<&'a str>,
}

/// Why a request is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the header {0} is missing")]
    Missing(&'static str),
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    #[error("webhook-timestamp is too far from now")]
    Time,
    #[error("no signature fits")]
    Signature,
}

/// Whether one of the keys made one of the signatures, within the tolerance around `now`, in unix seconds. Compares in
/// constant time.
pub fn verify(keys: &[SigningKey], signed: Signed<'_>, body: &[u8], now: i64) -> Result<(), Refusal> {
    let id = signed.id.filter(|id| !id.is_empty()).ok_or(Refusal::Missing("webhook-id"))?;
    let timestamp = signed.timestamp.ok_or(Refusal::Missing("webhook-timestamp"))?;
    let signatures = signed.signature.ok_or(Refusal::Missing("webhook-signature"))?;
    let timestamp: i64 = timestamp.parse().map_err(|_| Refusal::Timestamp)?;
    if timestamp.checked_sub(now).is_none_or(|apart| apart.saturating_abs() > TOLERANCE_SECONDS) {
        return Err(Refusal::Time);
    }
    // Other versions, such as v1a, are somebody else's to check.
    let offered = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
    let fits = offered
        .filter_map(|text| STANDARD.decode(text).ok())
        .any(|signature| keys.iter().any(|key| mac(key, id, timestamp, body).verify_slice(&signature).is_ok()));
    if fits { Ok(()) } else { Err(Refusal::Signature) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const NOW: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn key(fill: u8) -> SigningKey {
        SigningKey::read(&Secret::new(STANDARD.encode([fill; 32]))).unwrap()
    }

    fn check(keys: &[SigningKey], signature: &str, now: i64) -> Result<(), Refusal> {
        let timestamp = NOW.to_string();
        let signed = Signed { id: Some("msg_1"), timestamp: Some(&timestamp), signature: Some(signature) };
        verify(keys, signed, BODY, now)
    }

    #[test]
    fn every_secret_signs_and_any_one_of_them_verifies() {
        let both = sign(&[key(1), key(2)], "msg_1", NOW, BODY);
        assert_eq!(both.split(' ').filter(|one| one.starts_with("v1,")).count(), 2);
        assert_eq!(check(&[key(1)], &both, NOW), Ok(()));
        assert_eq!(check(&[key(2)], &both, NOW), Ok(()));
        assert_eq!(check(&[key(3), key(2)], &both, NOW), Ok(()));
        assert_eq!(check(&[key(3)], &both, NOW), Err(Refusal::Signature));
        assert_eq!(check(&[], &both, NOW), Err(Refusal::Signature));
    }

    #[test]
    fn a_request_is_believed_for_five_minutes_either_way() {
        let signature = sign(&[key(1)], "msg_1", NOW, BODY);
        for now in [NOW - 300, NOW + 300] {
            assert_eq!(check(&[key(1)], &signature, now), Ok(()), "{now}");
        }
        for now in [NOW - 301, NOW + 301, i64::MAX, i64::MIN] {
            assert_eq!(check(&[key(1)], &signature, now), Err(Refusal::Time), "{now}");
        }
    }

    #[test]
    fn what_is_not_a_whole_v1_signature_is_refused() {
        let whole = sign(&[key(1)], "msg_1", NOW, BODY);
        let part = STANDARD.encode(&STANDARD.decode(&whole[3..]).unwrap()[..8]);
        for signature in ["", "v1,", &whole[..11], &format!("v1,{part}"), &whole.replace("v1,", "v2,"), &whole[3..]] {
            assert_eq!(check(&[key(1)], signature, NOW), Err(Refusal::Signature), "{signature}");
        }
        assert_eq!(check(&[key(1)], &format!("v2,abc v1,abcd {whole}"), NOW), Ok(()));
    }

    #[test]
    fn a_missing_header_is_named_and_a_body_cannot_pass_for_a_timestamp() {
        let signature = sign(&[key(1)], "msg_1", NOW, BODY);
        let timestamp = NOW.to_string();
        let whole = Signed { id: Some("msg_1"), timestamp: Some(&timestamp), signature: Some(&signature) };
        let refused = |signed| verify(&[key(1)], signed, BODY, NOW);
        assert_eq!(refused(whole), Ok(()));
        assert_eq!(refused(Signed { id: None, ..whole }), Err(Refusal::Missing("webhook-id")));
        assert_eq!(refused(Signed { timestamp: None, ..whole }), Err(Refusal::Missing("webhook-timestamp")));
        assert_eq!(refused(Signed { signature: None, ..whole }), Err(Refusal::Missing("webhook-signature")));
        assert_eq!(refused(Signed { timestamp: Some("soon"), ..whole }), Err(Refusal::Timestamp));
        assert_eq!(refused(Signed { id: Some("msg_2"), ..whole }), Err(Refusal::Signature));
    }
}
