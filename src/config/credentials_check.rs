//! Checks how an endpoint learns who sends: that secrets have their form, that certificates are some, that a key fits.
//!
//! No message holds a value: it may be a secret.

use hyper::header::HeaderValue;

use super::check::Report;
use super::credentials::{Auth, Oauth2, Tls, TlsError};
use super::endpoint_check::is_private;
use super::raw_endpoint::{RawAuth, RawEndpointTls, RawOauth2, RawSigning};
use super::secret::{Secret, SecretError};
use super::signing_key::{SigningKey, SigningKeyError};

pub fn auth(raw: &RawAuth, here: &str, report: &mut Report<'_>) -> Auth {
    match raw {
        RawAuth { basic: None, bearer: None, oauth2: None } => Auth::None,
        RawAuth { basic: Some(basic), bearer: None, oauth2: None } => {
            let (username, password) = (format!("{here}/basic/username"), format!("{here}/basic/password"));
            if basic.username.contains(':') {
                report.problem(&username, "a user name with a colon cannot be told from its password", "no colon");
            }
            for (pointer, text) in [(&username, &basic.username), (&password, &basic.password)] {
                if text.chars().any(char::is_control) {
                    report.problem(pointer, "it has control characters", "printable text");
                }
            }
            Auth::Basic {
                username: report.secret(&username, &basic.username),
                password: report.secret(&password, &basic.password),
            }
        }
        RawAuth { basic: None, bearer: Some(bearer), oauth2: None } => {
            let pointer = format!("{here}/bearer/token");
            if !is_token(&bearer.token) {
                report.problem(&pointer, "a token that is empty, or has spaces or control characters", "a token");
            }
            Auth::Bearer { token: report.secret(&pointer, &bearer.token) }
        }
        RawAuth { basic: None, bearer: None, oauth2: Some(raw) } => oauth2(raw, here, report),
        RawAuth { .. } => {
            report.problem(here, "two ways to authenticate", "one of basic, bearer, oauth2");
            Auth::None
        }
    }
}

/// Whether a text can stand after `Bearer `.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) && HeaderValue::from_str(text).is_ok()
}

fn oauth2(raw: &RawOauth2, here: &str, report: &mut Report<'_>) -> Auth {
    let pointer = format!("{here}/oauth2/tokenUrl");
    let url = url::Url::parse(&raw.token_url).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
    let Some(token_url) = url else {
        let message = format!("`{}` is not a token endpoint", raw.token_url);
        report.problem(&pointer, message, "http:// or https:// with a host");
        return Auth::None;
    };
    if !token_url.username().is_empty() || token_url.password().is_some() {
        report.problem(&pointer, "credentials in the URL are not sent", "clientId and clientSecret");
    }
    if token_url.scheme() == "http" && !is_private(&token_url) {
        report.warning(&pointer, "http:// to a public host: the client secret travels unencrypted", "https://");
    }
    for (name, text) in [("clientId", &raw.client_id), ("clientSecret", &raw.client_secret)] {
        if text.is_empty() {
            report.problem(&format!("{here}/oauth2/{name}"), format!("`{name}` is empty"), "what the server gave out");
        }
    }
    for (index, scope) in raw.scopes.iter().enumerate() {
        if !is_token(scope) {
            report.problem(&format!("{here}/oauth2/scopes/{index}"), "not a scope", "printable text without spaces");
        }
    }
    Auth::Oauth2(Oauth2 {
        token_url,
        client_id: report.secret(&format!("{here}/oauth2/clientId"), &raw.client_id),
        client_secret: report.secret(&format!("{here}/oauth2/clientSecret"), &raw.client_secret),
        scopes: raw.scopes.clone(),
    })
}

pub fn tls(raw: &RawEndpointTls, here: &str, report: &mut Report<'_>) -> Tls {
    let mut file = |name: &str, path: &Option<String>| {
        let path = path.as_ref().filter(|path| !path.is_empty())?;
        match Secret::file(path) {
            Ok(read) => Some(read),
            Err(error) => {
                let message = match &error {
                    SecretError::Unreadable { source, .. } => format!("{error}: {source}"),
                    SecretError::Empty(_) | SecretError::Reference(_) => error.to_string(),
                };
                report.problem(&format!("{here}/{name}"), message, "a file in PEM form that can be read");
                None
            }
        }
    };
    let (ca, cert, key) = (file("ca", &raw.ca), file("cert", &raw.cert), file("key", &raw.key));
    let given = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    if given(&raw.cert) != given(&raw.key) {
        let (name, lacks) = if given(&raw.cert) { ("cert", "key") } else { ("key", "cert") };
        report.problem(&format!("{here}/{name}"), format!("`{name}` without `{lacks}`"), "both, or neither");
    }
    let tls = Tls { ca, client: cert.zip(key) };
    if let Err(error) = tls.certificates() {
        let name = match error {
            TlsError::Ca => "ca",
            TlsError::Certificate => "cert",
            TlsError::Key | TlsError::Misfit => "key",
        };
        report.problem(&format!("{here}/{name}"), error.to_string(), "PEM files; the key that of the certificate");
    }
    tls
}

pub fn signing(raw: &RawSigning, here: &str, report: &mut Report<'_>) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for (index, text) in raw.secrets.iter().enumerate() {
        let pointer = format!("{here}/secrets/{index}");
        let secret = report.secret(&pointer, text);
        match SigningKey::read(&secret) {
            Ok(_) => {}
            Err(error @ (SigningKeyError::NotBase64 | SigningKeyError::Length(_))) => {
                let allowed = "whsec_ and the base64 of 24 to 64 random bytes (Standard Webhooks)";
                report.problem(&pointer, error.to_string(), allowed);
            }
        }
        secrets.push(secret);
    }
    secrets
}

/// The proxy that deliveries go through, when one is set.
pub fn proxy(raw: Option<&str>, report: &mut Report<'_>) -> Option<Secret> {
    let text = raw.filter(|text| !text.is_empty())?;
    let fits = |url: &url::Url| url.scheme() == "http" && url.has_host() && matches!(url.path(), "" | "/");
    if !url::Url::parse(text).is_ok_and(|url| fits(&url) && url.query().is_none() && url.fragment().is_none()) {
        report.problem("/egress/proxy", "not an HTTP proxy", "http://host:port, or http://user:password@host:port");
    }
    Some(report.secret("/egress/proxy", text))
}
