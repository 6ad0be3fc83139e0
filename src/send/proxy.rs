//! Enters: an address that was checked. Leaves: a tunnel to it through the configured HTTP proxy (CONNECT).
//!
//! The proxy is named an address, never a name: a name that it resolves by itself could be another address than the one
//! that the egress rules permitted.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::connect::{ConnectError, handshake};
use crate::config::Secret;

#[derive(Clone)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    /// Basic, from the URL's userinfo.
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Nothing when the text is no proxy's URL, which a file may come to hold after it was checked.
    pub fn new(url: &Secret) -> Option<Self> {
        let url = url::Url::parse(url.expose()).ok().filter(|url| url.scheme() == "http")?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(basic(&percent_decoded(user), &percent_decoded(password.unwrap_or_default()))),
        };
        Some(Self { host, port: url.port_or_known_default().unwrap_or(80), authorization })
    }

    /// Asks the proxy for a tunnel to `address`.
    pub async fn tunnel(&self, stream: TcpStream, address: SocketAddr) -> Result<TokioIo<Upgraded>, ConnectError> {
        let failed = |source| ConnectError::Tunnel { proxy: self.host.clone(), address, source };
        let mut connection = handshake(stream).await.map_err(failed)?;
        let mut request = Request::new(Full::<Bytes>::default());
        *request.method_mut() = Method::CONNECT;
        let authority = address.to_string();
        *request.uri_mut() = Uri::builder().authority(authority.as_str()).build().expect("an address is an authority");
        let headers = request.headers_mut();
        headers.insert("host", HeaderValue::from_str(&authority).expect("an address is printable"));
        if let Some(authorization) = &self.authorization {
            headers.insert("proxy-authorization", authorization.clone());
        }
        let sent = connection.sender.send_request(request);
        let response = connection.driver.during(sent).await.map_err(failed)?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(ConnectError::Refused { proxy: self.host.clone(), address, status });
        }
        let upgraded = connection.driver.during(hyper::upgrade::on(response)).await;
        upgraded.map(TokioIo::new).map_err(failed)
    }
}

/// A `Basic` credential that no log prints.
pub fn basic(user: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).expect("base64 is printable");
    value.set_sensitive(true);
    value
}

fn percent_decoded(text: &str) -> String {
    // The form decoding of the url crate, without its other rules about plus and ampersand.
    let escaped = text.replace('+', "%2B").replace('&', "%26");
    let value =
        url::form_urlencoded::parse(format!("={escaped}").as_bytes()).next().map(|(_, value)| value.into_owned());
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_becomes_a_basic_credential() {
        let proxy = Proxy::new(&Secret::new("http://us%40er:p+a%3As&s@proxy.internal:3128")).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.internal", 3128));
        let wanted = format!("Basic {}", STANDARD.encode("us@er:p+a:s&s"));
        assert_eq!(proxy.authorization.unwrap().to_str().unwrap(), wanted);
        assert!(Proxy::new(&Secret::new("http://proxy.internal")).unwrap().authorization.is_none());
        assert!(Proxy::new(&Secret::new("socks5://proxy.internal")).is_none());
    }
}
