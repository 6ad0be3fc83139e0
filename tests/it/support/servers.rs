//! Small servers that endpoints need around them: one that gives out tokens, and an HTTP proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request for a token: its Authorization header and its form.
#[derive(Debug, Clone)]
pub struct Asked {
    pub number: usize,
    pub authorization: Option<String>,
    pub form: String,
}

/// Status, headers and body of an answer, and how long it takes.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub after: Duration,
}

impl Reply {
    /// Gives out `token`.
    pub fn token(token: &str, expires_in: u64) -> Self {
        let body = format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{expires_in}}}"#);
        Self { status: 200, headers: Vec::new(), body, after: Duration::ZERO }
    }

    pub fn status(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: body.to_owned(), after: Duration::ZERO }
    }
}

/// A token endpoint, until it is dropped.
pub struct TokenServer {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TokenServer {
    pub async fn start(listen: &str, reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(listen).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let reply: Arc<dyn Fn(&Asked) -> Reply + Send + Sync> = Arc::new(reply);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                let service = service_fn(move |request| answer(request, Arc::clone(&seen), Arc::clone(&reply)));
                connections.spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, asked, task }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Asked>>>,
    reply: Arc<dyn Fn(&Asked) -> Reply + Send + Sync>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = request.into_body().collect().await?.to_bytes();
    let form = String::from_utf8_lossy(&body).into_owned();
    let asked = {
        let mut seen = seen.lock().unwrap();
        let asked = Asked { number: seen.len() + 1, authorization, form };
        seen.push(asked.clone());
        asked
    };
    let reply = reply(&asked);
    tokio::time::sleep(reply.after).await;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(Bytes::from(reply.body))).expect("a response"))
}

/// An HTTP proxy that answers CONNECT with this status, and tunnels when it is 200.
pub struct ProxyServer {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ProxyServer {
    pub async fn start(listen: &str, status: u16) -> Self {
        let listener = TcpListener::bind(listen).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(tunnel(stream, status, Arc::clone(&seen)));
            }
        });
        Self { address, heads, task }
    }

    /// The head of every request, in order.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn tunnel(mut client: TcpStream, status: u16, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let authority = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(head);
    let answer = format!("HTTP/1.1 {status} as told\r\ncontent-length: 0\r\n\r\n");
    let answer = if status == 200 { answer.replace("content-length: 0\r\n", "") } else { answer };
    if client.write_all(answer.as_bytes()).await.is_err() || status != 200 {
        return;
    }
    if let Ok(mut server) = TcpStream::connect(authority).await {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
