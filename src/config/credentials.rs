//! How an endpoint learns who sends: authentication, certificates, signing secrets, as checked.
//!
//! What of it was read from files can be read again; everything here prints as `***`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use super::checked::Endpoint;
use super::secret::{Secret, SecretError};

#[derive(Debug, Clone)]
pub enum Auth {
    None,
    Basic { username: Secret, password: Secret },
    Bearer { token: Secret },
    Oauth2(Oauth2),
}

/// Client credentials, exchanged for tokens at `token_url`.
#[derive(Debug, Clone)]
pub struct Oauth2 {
    pub token_url: url::Url,
    pub client_id: Secret,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
}

/// Files in PEM form, whole.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Trusted instead of the system's.
    pub ca: Option<Secret>,
    /// The client certificate with its chain, and its key.
    pub client: Option<(Secret, Secret)>,
}

/// What the files of `tls` hold.
#[derive(Default)]
pub struct Certificates {
    /// Empty: the system's.
    pub ca: Vec<X509>,
    pub client: Option<Client>,
}

/// A client certificate that its key fits.
pub struct Client {
    pub certificate: X509,
    pub chain: Vec<X509>,
    pub key: PKey<Private>,
}

/// What is wrong with a file of `tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("the file has no CA certificate in PEM form")]
    Ca,
    #[error("the file has no certificate in PEM form")]
    Certificate,
    #[error("the file has no private key in PEM form without a passphrase")]
    Key,
    #[error("the key is not that of the certificate")]
    Misfit,
}

impl Tls {
    pub fn certificates(&self) -> Result<Certificates, TlsError> {
        let ca = match &self.ca {
            Some(pem) => stack(pem).filter(|found| !found.is_empty()).ok_or(TlsError::Ca)?,
            None => Vec::new(),
        };
        let client = match &self.client {
            Some((certificate, key)) => Some(Client::new(certificate, key)?),
            None => None,
        };
        Ok(Certificates { ca, client })
    }
}

impl Client {
    fn new(certificate: &Secret, key: &Secret) -> Result<Self, TlsError> {
        let mut chain = stack(certificate).unwrap_or_default().into_iter();
        let certificate = chain.next().ok_or(TlsError::Certificate)?;
        // Without a callback of its own, OpenSSL would ask the terminal for a passphrase.
        let key = PKey::private_key_from_pem_callback(key.expose().as_bytes(), |_| Ok(0)).map_err(|_| TlsError::Key)?;
        let public = certificate.public_key().map_err(|_| TlsError::Certificate)?;
        if !public.public_eq(&key) {
            return Err(TlsError::Misfit);
        }
        Ok(Self { certificate, chain: chain.collect(), key })
    }
}

fn stack(pem: &Secret) -> Option<Vec<X509>> {
    X509::stack_from_pem(pem.expose().as_bytes()).ok()
}

impl Endpoint {
    /// The files that its secrets were read from, each once.
    pub fn secret_files(&self) -> BTreeSet<PathBuf> {
        let mut copy = self.clone();
        copy.secrets().into_iter().flat_map(|secret| secret.files().map(PathBuf::from).collect::<Vec<_>>()).collect()
    }

    /// The same endpoint with its secrets as their files have them now.
    pub fn read_again(&self) -> Result<Self, SecretError> {
        let mut again = self.clone();
        for secret in again.secrets() {
            *secret = secret.read_again()?;
        }
        Ok(again)
    }

    pub fn has_the_secrets_of(&self, other: &Self) -> bool {
        self.clone().secrets() == other.clone().secrets()
    }

    fn secrets(&mut self) -> Vec<&mut Secret> {
        let mut found: Vec<&mut Secret> = self.headers.iter_mut().map(|(_, value)| value).collect();
        match &mut self.auth {
            Auth::None => {}
            Auth::Basic { username, password } => found.extend([username, password]),
            Auth::Bearer { token } => found.push(token),
            Auth::Oauth2(oauth2) => found.extend([&mut oauth2.client_id, &mut oauth2.client_secret]),
        }
        found.extend(&mut self.tls.ca);
        found.extend(self.tls.client.iter_mut().flat_map(|(certificate, key)| [certificate, key]));
        found.extend(&mut self.signing);
        found
    }
}
