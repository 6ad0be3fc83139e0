//! One exchange with a token endpoint (RFC 6749, section 4.4): client credentials in, a bearer token out.
//!
//! Under the same egress rules, certificates and proxy as deliveries. Redirects are not followed, at most 64 KiB are read.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, Uri};
use serde::Deserialize;
use url::form_urlencoded;

use super::connect::{Means, Route};
use super::credentials::bearer;
use super::proxy::basic;
use super::request;
use super::token::TokenError;
use crate::config::Oauth2;

const ANSWER_BYTES: usize = 64 << 10;
/// How long a token is good whose answer does not say.
const LIFETIME: Duration = Duration::from_secs(300);
/// A token is asked for again at least this often, and no more often than every second.
const LONGEST_LIFETIME: Duration = Duration::from_secs(86_400);
/// The errors that the standard names. No other text of an answer is repeated: it may echo what was sent.
const CODES: [&str; 6] = [
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// Where the client's secret stands in the request. Servers must take the first, and some take only the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    #[default]
    Header,
    Body,
}

impl Style {
    fn other(self) -> Self {
        match self {
            Self::Header => Self::Body,
            Self::Body => Self::Header,
        }
    }
}

/// A token as it was given out.
pub struct Grant {
    pub header: HeaderValue,
    pub lifetime: Duration,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Complaint {
    error: String,
}

pub struct Endpoint {
    route: Route,
    path: Uri,
    host: HeaderValue,
}

impl Endpoint {
    pub fn new(route: Route, url: &url::Url) -> Self {
        Self { route, path: request::path(url), host: request::header_value(&request::host(url)) }
    }

    /// Asks in the style that worked last, then in the other when the client itself was turned down.
    pub async fn ask(&self, oauth2: &Oauth2, means: &Means, style: Style) -> Result<(Grant, Style), TokenError> {
        match self.exchange(oauth2, means, style).await {
            Ok(grant) => Ok((grant, style)),
            Err(refused @ TokenError::Refused { status: 400 | 401, .. }) => {
                let again = self.exchange(oauth2, means, style.other()).await;
                again.map(|grant| (grant, style.other())).map_err(|_| refused)
            }
            Err(error) => Err(error),
        }
    }

    async fn exchange(&self, oauth2: &Oauth2, means: &Means, style: Style) -> Result<Grant, TokenError> {
        let mut connection = self.route.connect(means).await.map_err(TokenError::Connect)?;
        let request = self.request(oauth2, style);
        let sent = connection.sender.send_request(request);
        let response = connection.driver.during(sent).await.map_err(TokenError::Broken)?;
        let status = response.status();
        let read = Limited::new(response.into_body(), ANSWER_BYTES).collect();
        let body = connection.driver.during(read).await;
        let body = body.map_err(|_| TokenError::Unreadable)?.to_bytes();
        if !status.is_success() {
            let complaint = serde_json::from_slice::<Complaint>(&body).ok();
            let code = complaint.and_then(|said| CODES.into_iter().find(|code| *code == said.error));
            return Err(TokenError::Refused { status: status.as_u16(), code });
        }
        // The reader's own error would quote the answer.
        granted(&serde_json::from_slice(&body).map_err(|_| TokenError::NoToken)?).ok_or(TokenError::NoToken)
    }

    fn request(&self, oauth2: &Oauth2, style: Style) -> Request<Full<Bytes>> {
        let (id, secret) = (oauth2.client_id.expose(), oauth2.client_secret.expose());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !oauth2.scopes.is_empty() {
            form.append_pair("scope", &oauth2.scopes.join(" "));
        }
        if style == Style::Body {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        let mut request = Request::new(Full::new(Bytes::from(form.finish())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.insert("host", self.host.clone());
        headers.insert("user-agent", request::user_agent());
        headers.insert("accept", HeaderValue::from_static("application/json"));
        headers.insert("content-type", HeaderValue::from_static("application/x-www-form-urlencoded"));
        if style == Style::Header {
            // The standard has both encoded as a form would before they are joined.
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            headers.insert(AUTHORIZATION, basic(&encoded(id), &encoded(secret)));
        }
        request
    }
}

fn granted(answer: &Answer) -> Option<Grant> {
    let is_bearer = answer.token_type.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let header = bearer(&answer.access_token).filter(|_| is_bearer)?;
    // Some servers write the number as text.
    let seconds = answer.expires_in.as_ref().and_then(|value| match value {
        serde_json::Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    });
    let lifetime = seconds.map_or(LIFETIME, |seconds: f64| {
        Duration::try_from_secs_f64(seconds.max(1.0)).unwrap_or(LONGEST_LIFETIME).min(LONGEST_LIFETIME)
    });
    Some(Grant { header, lifetime })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(answer: &str) -> Option<u64> {
        granted(&serde_json::from_str(answer).ok()?).map(|grant| grant.lifetime.as_secs())
    }

    #[test]
    fn a_token_lives_as_long_as_its_answer_says_within_bounds() {
        for (expires, seconds) in [
            (r#","expires_in":3600"#, 3600),
            (r#","expires_in":"120""#, 120),
            (r#","expires_in":59.5"#, 59),
            (r#","expires_in":0"#, 1),
            (r#","expires_in":-5"#, 1),
            (r#","expires_in":1e300"#, 86_400),
            (r#","expires_in":null"#, 300),
            (r#","expires_in":"soon""#, 300),
            ("", 300),
        ] {
            let answer = format!(r#"{{"access_token":"abc","token_type":"Bearer"{expires}}}"#);
            assert_eq!(lifetime(&answer), Some(seconds), "{answer}");
        }
    }

    #[test]
    fn what_is_no_bearer_token_is_none() {
        for answer in [
            r#"{"access_token":""}"#,
            r#"{"access_token":"a b"}"#,
            r#"{"access_token":"a\r\nx: y"}"#,
            r#"{"access_token":"abc","token_type":"mac"}"#,
            r#"{"token":"abc"}"#,
            r#"{"access_token":7}"#,
            "<html>",
        ] {
            assert_eq!(lifetime(answer), None, "{answer}");
        }
        assert_eq!(lifetime(r#"{"access_token":"abc","token_type":"bearer"}"#), Some(300));
        let header = granted(&serde_json::from_str(r#"{"access_token":"abc"}"#).unwrap()).unwrap().header;
        assert_eq!(format!("{header:?}"), "Sensitive");
    }
}
