//! Who may ask. Enters: a request. Leaves: the same with whose it is, or a refusal.
//!
//! Host and Origin are checked so that a page of somebody else's in a browser on this machine cannot ask: neither by a name that it
//! makes point here, nor across origins. Tokens are compared in constant time and are read again when their files change.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::Desk;
use super::answer::Refusal;
use crate::config::{Admin, Role, Token};

const READ_TOKENS_EVERY: Duration = Duration::from_secs(1);

/// Whose request it is, as the audit shows it.
#[derive(Debug, Clone)]
pub struct Who(pub String);

pub struct Guard {
    listen: SocketAddr,
    tokens: Mutex<(Instant, Vec<Token>)>,
}

impl Guard {
    pub fn new(admin: &Admin) -> Self {
        Self { listen: admin.listen, tokens: Mutex::new((Instant::now(), admin.tokens.clone())) }
    }

    /// The tokens as their files have them now; one that cannot be read stays as it was.
    fn tokens(&self) -> Vec<Token> {
        let mut tokens = self.tokens.lock().expect("no holder of this lock panics");
        if tokens.0.elapsed() >= READ_TOKENS_EVERY {
            tokens.0 = Instant::now();
            for token in &mut tokens.1 {
                if let Ok(secret) = token.secret.read_again() {
                    token.secret = secret;
                }
            }
        }
        tokens.1.clone()
    }

    fn check(&self, request: &Request) -> Result<Who, Refusal> {
        let headers = request.headers();
        let host = text(headers, header::HOST).or_else(|| request.uri().host()).unwrap_or_default();
        if !self.is_ours(host) {
            let message = format!("the Host `{host}` is not this listener's");
            return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden_host", message));
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let own = ["http", "https"].map(|scheme| format!("{scheme}://{host}"));
            if !own.iter().any(|own| own.as_bytes() == origin.as_bytes()) {
                return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden_origin", "the Origin is another site's"));
            }
        }
        if request.uri().query().unwrap_or_default().contains("%00") {
            return Err(Refusal::invalid("the query holds a NUL character"));
        }
        if !is_data(request.uri().path()) {
            return Ok(Who("api".to_owned()));
        }
        let (who, role) = self.who(headers)?;
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        if reads && (role == Role::Admin || !FOR_ADMINS.contains(&request.uri().path())) {
            return Ok(who);
        }
        if role != Role::Admin && !crate::mutant!("readers-may-change") {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "this needs the role `admin`: the token's is `read`",
            ));
        }
        let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case("application/json")) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "a change needs content-type: application/json",
            ));
        }
        Ok(who)
    }

    /// The listener's own address, or a loopback name. Of a listener on all addresses any of them may be named, but no name: one
    /// could be made to point here.
    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            Some(_) | None => (host, None),
        };
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() else { return false };
        let fits = port.is_none_or(|port| port.parse() == Ok(self.listen.port()));
        address.is_loopback() || fits && (address == self.listen.ip() || self.listen.ip().is_unspecified())
    }

    fn who(&self, headers: &HeaderMap) -> Result<(Who, Role), Refusal> {
        let tokens = self.tokens();
        if tokens.is_empty() || crate::mutant!("tokens-ignored") {
            // Then the listener is on loopback: the configuration is refused otherwise.
            return Ok((Who("api:local".to_owned()), Role::Admin));
        }
        let given = text(headers, header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let refused =
            || Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", "a bearer token that is known is needed");
        let given = Sha256::digest(given.ok_or_else(refused)?);
        // Every one is compared, and of digests, so that the time tells nothing.
        let mut found = None;
        for token in &tokens {
            if openssl::memcmp::eq(&given, &Sha256::digest(token.secret.expose())) {
                found = Some((Who(token.name.clone()), token.role));
            }
        }
        found.ok_or_else(refused)
    }
}

/// What not everybody is to see: configurations as they were written, with headers of somebody's own, and who did what.
const FOR_ADMINS: [&str; 2] = ["/v1/configurations", "/v1/audit"];

/// Whether it is data that is asked for. The page itself holds none.
fn is_data(path: &str) -> bool {
    path.starts_with("/v1/") || path == "/v1"
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub async fn guard(State(desk): State<Desk>, mut request: Request, next: Next) -> Response {
    match desk.guard.check(&request) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            let mut answer = next.run(request).await;
            // What an operator sees belongs to them, not to a cache on the way.
            answer.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
            answer
        }
        Err(refusal) => {
            let is_unknown = refusal.status() == StatusCode::UNAUTHORIZED;
            let mut answer = refusal.into_response();
            if is_unknown {
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            }
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn guard(listen: &str, tokens: &[(&str, &str, Role)]) -> Guard {
        let tokens = tokens.iter().map(|(name, secret, role)| Token {
            name: (*name).to_owned(),
            secret: Secret::new(*secret),
            role: *role,
        });
        Guard::new(&Admin { listen: listen.parse().unwrap(), tokens: tokens.collect() })
    }

    fn ask(guard: &Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        guard.check(&request).map(|who| who.0).map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn a_name_that_could_be_made_to_point_here_is_refused() {
        let own = guard("127.0.0.1:9464", &[]);
        for host in ["127.0.0.1:9464", "localhost:9464", "localhost", "[::1]:9464", "127.0.0.1:8080", "LOCALHOST:1"] {
            assert!(ask(&own, "GET", "/v1/workflows", &[("host", host)]).is_ok(), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9464", "", "localhost.evil.example:9464"] {
            assert_eq!(ask(&own, "GET", "/", &[("host", host)]), Err(403), "{host}");
        }
        let all = guard("0.0.0.0:9464", &[("a", "t", Role::Admin)]);
        let known = ("authorization", "Bearer t");
        assert!(ask(&all, "GET", "/v1/workflows", &[("host", "10.0.0.1:9464"), known]).is_ok());
        assert_eq!(ask(&all, "GET", "/v1/workflows", &[("host", "10.0.0.1:80"), known]), Err(403));
        assert_eq!(ask(&all, "GET", "/v1/workflows", &[("host", "evil.example:9464"), known]), Err(403));
    }

    #[test]
    fn another_origin_is_refused() {
        let own = guard("127.0.0.1:9464", &[]);
        let host = ("host", "localhost:9464");
        assert!(ask(&own, "GET", "/v1/workflows", &[host, ("origin", "http://localhost:9464")]).is_ok());
        for origin in ["http://evil.example", "null", "http://localhost:9465", "http://localhost"] {
            assert_eq!(ask(&own, "GET", "/v1/workflows", &[host, ("origin", origin)]), Err(403), "{origin}");
        }
    }

    #[test]
    fn a_token_says_who_asks_and_what_they_may() {
        let both = guard("127.0.0.1:9464", &[("ann", "first", Role::Admin), ("bob", "second", Role::Read)]);
        let host = ("host", "localhost");
        let json = ("content-type", "application/json; charset=utf-8");
        assert_eq!(ask(&both, "GET", "/v1/workflows", &[host]), Err(401));
        for wrong in ["Bearer third", "Bearer ", "Bearer first2", "Basic first", "first", "Bearer"] {
            assert_eq!(ask(&both, "GET", "/v1/workflows", &[host, ("authorization", wrong)]), Err(401), "{wrong}");
        }
        let (ann, bob) = (("authorization", "bearer first"), ("authorization", "Bearer second"));
        assert_eq!(ask(&both, "POST", "/v1/workflows/a/pause", &[host, ann, json]).as_deref(), Ok("ann"));
        assert_eq!(ask(&both, "GET", "/v1/workflows", &[host, bob]).as_deref(), Ok("bob"));
        assert_eq!(ask(&both, "POST", "/v1/workflows/a/pause", &[host, bob, json]), Err(403));
        for path in FOR_ADMINS {
            assert_eq!(ask(&both, "GET", path, &[host, bob]), Err(403), "{path}");
            assert_eq!(ask(&both, "GET", path, &[host, ann]).as_deref(), Ok("ann"), "{path}");
        }
        assert_eq!(ask(&both, "DELETE", "/v1/dead-letters/a", &[host, ann]), Err(415));
        assert_eq!(ask(&both, "POST", "/v1/workflows/a/pause", &[host, ann, ("content-type", "text/plain")]), Err(415));
        // The page itself holds nothing.
        assert!(ask(&both, "GET", "/", &[host]).is_ok());
    }
}
