//! Enters: an endpoint's host. Leaves: a connection to an address that the egress rules permit: for deliveries, or one that
//! hyper speaks HTTP/1.1 over, for everything that is rare.
//!
//! Resolve, check every address, connect to one that was checked, straight or through the configured proxy. TLS
//! verification has no off switch.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use openssl::ssl::SslConnector;
use openssl::x509::X509VerifyResult;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use super::credentials::{self, Credentials};
use super::egress::Rules;
use super::outcome::Trouble;
use super::proxy::Proxy;
use super::{answer, wire};
use crate::config::Workflow;

/// Where a workflow's requests go, and how the endpoint learns who sends them.
pub struct Target {
    pub(super) route: Route,
    pub(super) credentials: Arc<Credentials>,
}

impl Target {
    pub fn new(workflow: &Workflow, rules: &Rules) -> Result<Self, credentials::Error> {
        let route = Route::new(&workflow.endpoint.url, rules);
        Ok(Self { route, credentials: Arc::new(Credentials::new(workflow, rules)?) })
    }

    /// Another URL of the same endpoint, which may learn as much about the sender.
    pub(super) fn beside(&self, url: &url::Url, rules: &Rules) -> Self {
        Self { route: Route::new(url, rules), credentials: Arc::clone(&self.credentials) }
    }
}

/// The way to one host.
pub struct Route {
    host: String,
    port: u16,
    secure: bool,
    rules: Rules,
}

/// What connections are made with, as of now.
#[derive(Clone)]
pub struct Means {
    /// Grows when any of it changes: a connection made with older means is not used again.
    pub generation: u64,
    /// There when any of the workflow's URLs is https.
    pub tls: Option<SslConnector>,
    pub proxy: Option<Proxy>,
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
    #[error("TLS with `{host}` failed{}", found(*.certificate))]
    Tls {
        host: String,
        /// What was found out about the server's certificate.
        certificate: X509VerifyResult,
        #[source]
        source: openssl::ssl::Error,
    },
    #[error("TLS cannot be set up")]
    TlsSetup(#[source] openssl::error::ErrorStack),
    #[error("no tunnel to {address} through the proxy `{proxy}`")]
    Tunnel {
        proxy: String,
        address: SocketAddr,
        #[source]
        source: hyper::Error,
    },
    #[error("the proxy `{proxy}` answered {status} when asked for a tunnel to {address}")]
    Refused { proxy: String, address: SocketAddr, status: u16 },
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
            Self::Tcp { .. } | Self::Http { .. } | Self::Tunnel { .. } | Self::Refused { .. } => Trouble::Connect,
            Self::Tls { .. } | Self::TlsSetup(_) => Trouble::Tls,
        }
    }
}

fn found(certificate: X509VerifyResult) -> String {
    if certificate == X509VerifyResult::OK { String::new() } else { format!(" ({certificate})") }
}

/// An open connection that hyper speaks over. Dropping it closes it, whatever is under way.
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    pub driver: Driver,
}

/// Moves a connection's bytes while somebody waits for them, in the task that waits: a task of its own for each connection
/// would cost two switches a request. Nothing moves while the connection is idle.
pub struct Driver(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Driver {
    pub async fn during<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| {
            if self.0.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
                self.0 = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Route {
    pub fn new(url: &url::Url, rules: &Rules) -> Self {
        Self {
            host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().unwrap_or(80),
            secure: url.scheme() == "https",
            rules: rules.clone(),
        }
    }

    /// A connection for deliveries.
    pub async fn open(&self, means: &Means) -> Result<wire::Connection, ConnectError> {
        let (stream, _) = self.stream(means).await?;
        Ok(wire::Connection::new(stream, means.generation))
    }

    /// A connection for everything else.
    pub async fn connect(&self, means: &Means) -> Result<Connection, ConnectError> {
        let (stream, address) = self.stream(means).await?;
        handshake(stream).await.map_err(|source| ConnectError::Http { address, source })
    }

    async fn stream(&self, means: &Means) -> Result<(wire::Stream, SocketAddr), ConnectError> {
        match &means.proxy {
            None => {
                let (stream, address) = reach(&self.host, self.port, &self.rules).await?;
                Ok((self.secured(stream, means).await?, address))
            }
            Some(proxy) => self.through(proxy, means).await,
        }
    }

    /// By way of a proxy, which connects for us: every address that the name has must be permitted.
    async fn through(&self, proxy: &Proxy, means: &Means) -> Result<(wire::Stream, SocketAddr), ConnectError> {
        let addresses = resolve(&self.host, self.port).await?;
        if let Some(address) = addresses.iter().find(|address| !self.rules.permit(address.ip())) {
            return Err(ConnectError::Blocked { host: self.host.clone(), address: *address });
        }
        let mut last = no_address(&self.host);
        for address in addresses {
            let (stream, _) = reach(&proxy.host, proxy.port, &self.rules).await?;
            match proxy.tunnel(stream, address).await {
                Ok(tunnel) => return Ok((self.secured(tunnel, means).await?, address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn secured<S>(&self, stream: S, means: &Means) -> Result<wire::Stream, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if !self.secure {
            return Ok(Box::new(stream));
        }
        let connector = means.tls.as_ref().expect("means for https are made where a URL is https");
        let session = connector
            .configure()
            .and_then(|configuration| configuration.into_ssl(&self.host))
            .map_err(ConnectError::TlsSetup)?;
        let mut stream = SslStream::new(session, stream).map_err(ConnectError::TlsSetup)?;
        if let Err(source) = Pin::new(&mut stream).connect().await {
            let certificate = stream.ssl().verify_result();
            return Err(ConnectError::Tls { host: self.host.clone(), certificate, source });
        }
        Ok(Box::new(stream))
    }
}

/// The addresses of a URL's host, if all of them are permitted. Nothing is connected to.
pub async fn permitted(url: &url::Url, rules: &Rules) -> Result<Vec<SocketAddr>, ConnectError> {
    let Route { host, port, rules, .. } = Route::new(url, rules);
    let addresses = resolve(&host, port).await?;
    match addresses.iter().find(|address| !rules.permit(address.ip())) {
        Some(address) => Err(ConnectError::Blocked { host, address: *address }),
        None if addresses.is_empty() => Err(no_address(&host)),
        None => Ok(addresses),
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(source) => Err(ConnectError::Dns { host: host.to_owned(), source }),
    }
}

fn no_address(host: &str) -> ConnectError {
    ConnectError::Dns { host: host.to_owned(), source: std::io::ErrorKind::NotFound.into() }
}

/// A connection to the first address of a host that is permitted and answers.
async fn reach(host: &str, port: u16, rules: &Rules) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut last = None;
    for address in resolve(host, port).await? {
        if !rules.permit(address.ip()) {
            last.get_or_insert(ConnectError::Blocked { host: host.to_owned(), address });
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A request is one write; waiting to fill a packet only adds delay.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Err(source) => last = Some(ConnectError::Tcp { address, source }),
        }
    }
    Err(last.unwrap_or_else(|| no_address(host)))
}

pub(super) async fn handshake<S>(stream: S) -> Result<Connection, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::Builder::new().max_buf_size(answer::HEADER_BYTES).writev(false).handshake(TokioIo::new(stream)).await?;
    // Its errors are those of the request under way, which gets them too.
    let driver = async move {
        let _ = connection.with_upgrades().await;
    };
    Ok(Connection { sender, driver: Driver(Some(Box::pin(driver))) })
}
