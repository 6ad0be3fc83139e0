//! Enters: an endpoint's host. Leaves: an HTTP/1.1 connection to an address that the egress rules permit.
//!
//! Resolve, check every address, connect to one that was checked. TLS verification has no off switch.

use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use openssl::ssl::{SslConnector, SslMethod, SslVersion};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::egress::Rules;
use super::outcome::Trouble;

/// Answers whose headers are longer than this are not HTTP that we read.
const HEADER_BYTES: usize = 64 << 10;

/// Where a workflow's requests go.
#[derive(Clone)]
pub struct Target {
    host: String,
    port: u16,
    tls: Option<SslConnector>,
    rules: Rules,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the name `{host}` has no address")]
    Dns {
        host: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{host}` resolves to {0}, which egress forbids; to allow it: egress: {{allow: [{0}/{1}]}}", .address.ip(), if .address.is_ipv4() { 32 } else { 128 })]
    Blocked { host: String, address: SocketAddr },
    #[error("no connection to {address}")]
    Tcp {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("TLS with `{host}` failed")]
    Tls {
        host: String,
        #[source]
        source: openssl::ssl::Error,
    },
    #[error("TLS cannot be set up")]
    TlsSetup(#[source] openssl::error::ErrorStack),
    #[error("no HTTP with {address}")]
    Http {
        address: SocketAddr,
        #[source]
        source: hyper::Error,
    },
}

impl ConnectError {
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Dns { .. } => Trouble::Dns,
            Self::Blocked { .. } => Trouble::Blocked,
            Self::Tcp { .. } | Self::Http { .. } => Trouble::Connect,
            Self::Tls { .. } | Self::TlsSetup(_) => Trouble::Tls,
        }
    }
}

/// An open connection. Dropping it closes it, whatever is under way.
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Target {
    pub fn new(url: &url::Url, rules: Rules) -> Result<Self, ConnectError> {
        let tls = match url.scheme() {
            "https" => Some(connector().map_err(ConnectError::TlsSetup)?),
            _ => None,
        };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: url.port_or_known_default().unwrap_or(80), tls, rules })
    }

    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<SocketAddr> = match found {
            Ok(addresses) => addresses.collect(),
            Err(source) => return Err(ConnectError::Dns { host: self.host.clone(), source }),
        };
        let mut last = None;
        for address in &addresses {
            if !self.rules.permit(address.ip()) {
                last.get_or_insert(ConnectError::Blocked { host: self.host.clone(), address: *address });
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return self.speak(stream, *address).await,
                Err(source) => last = Some(ConnectError::Tcp { address: *address, source }),
            }
        }
        Err(last.unwrap_or_else(|| ConnectError::Dns {
            host: self.host.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        }))
    }

    async fn speak(&self, stream: TcpStream, address: SocketAddr) -> Result<Connection, ConnectError> {
        // A request is one write; waiting to fill a packet only adds delay.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => handshake(stream, address).await,
            Some(connector) => {
                let failed = |source| ConnectError::Tls { host: self.host.clone(), source };
                let session = connector
                    .configure()
                    .and_then(|configuration| configuration.into_ssl(&self.host))
                    .map_err(ConnectError::TlsSetup)?;
                let mut stream = tokio_openssl::SslStream::new(session, stream).map_err(ConnectError::TlsSetup)?;
                Pin::new(&mut stream).connect().await.map_err(failed)?;
                handshake(stream, address).await
            }
        }
    }
}

fn connector() -> Result<SslConnector, openssl::error::ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    // The linked OpenSSL is our own build and knows no certificates: the system's are named to it.
    if let Some(file) = openssl_probe::probe().cert_file {
        builder.set_ca_file(file)?;
    }
    builder.set_alpn_protos(b"\x08http/1.1")?;
    Ok(builder.build())
}

async fn handshake<S>(stream: S, address: SocketAddr) -> Result<Connection, ConnectError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|source| ConnectError::Http { address, source })?;
    // Its errors are those of the request under way, which gets them too.
    let driver = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Connection { sender, driver: driver.abort_handle() })
}
