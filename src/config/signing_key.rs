//! A secret of Standard Webhooks: `whsec_` and the base64 of 24 to 64 random bytes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::secret::Secret;

#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

/// Why a text is no signing secret. Says nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    #[error("a signing secret that is not base64")]
    NotBase64,
    #[error("a signing secret of {0} bytes")]
    Length(usize),
}

impl SigningKey {
    /// The prefix may be left out, as the reference libraries allow.
    pub fn read(secret: &Secret) -> Result<Self, SigningKeyError> {
        let text = secret.expose();
        let bytes =
            STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(|_| SigningKeyError::NotBase64)?;
        match bytes.len() {
            24..=64 => Ok(Self(bytes)),
            length => Err(SigningKeyError::Length(length)),
        }
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SigningKey, SigningKeyError> {
        SigningKey::read(&Secret::new(text))
    }

    #[test]
    fn a_secret_has_24_to_64_bytes_with_or_without_its_prefix() {
        for length in [24, 32, 64] {
            let text = STANDARD.encode(vec![7; length]);
            assert_eq!(read(&text), read(&format!("whsec_{text}")));
            assert_eq!(read(&text).map(|key| key.expose().to_vec()), Ok(vec![7; length]));
        }
        for length in [0, 23, 65] {
            assert_eq!(read(&STANDARD.encode(vec![7; length])), Err(SigningKeyError::Length(length)));
        }
        for text in ["whsec_not base64", "whsk_AAAA", "whsec_whsec_AAAA"] {
            assert_eq!(read(text), Err(SigningKeyError::NotBase64), "{text}");
        }
    }
}
