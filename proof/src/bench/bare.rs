//! The ceiling: a bare hyper client that posts the same bytes over as many keep-alive connections, and does nothing else.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// Host and port.
    #[arg(long)]
    to: String,
    /// A file with the request to send, as it stands on the wire.
    #[arg(long)]
    request: PathBuf,
    #[arg(long)]
    connections: usize,
}

/// Sends until it is killed.
pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let (head, body) = parse(&std::fs::read(&flags.request)?)?;
    let mut tasks = JoinSet::new();
    for _ in 0..flags.connections {
        let stream = TcpStream::connect(&flags.to).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let (head, body) = (head.clone(), body.clone());
        // One task drives the connection and waits for its answers, as in the relay: two would wake each other for every request.
        tasks.spawn(async move {
            tokio::select! {
                biased;
                failure = post_forever(sender, &head, &body) => failure,
                ended = connection => ended.err().map_or_else(|| anyhow!("the receiver closed"), anyhow::Error::from),
            }
        });
    }
    match tasks.join_next().await {
        Some(ended) => Err(ended?),
        None => Ok(true),
    }
}

/// Ends with what went wrong.
async fn post_forever(mut sender: SendRequest<Full<Bytes>>, head: &Head, body: &Bytes) -> anyhow::Error {
    loop {
        if let Err(failure) = post(&mut sender, head, body).await {
            return failure.into();
        }
    }
}

async fn post(sender: &mut SendRequest<Full<Bytes>>, head: &Head, body: &Bytes) -> hyper::Result<()> {
    sender.ready().await?;
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = hyper::Method::POST;
    *request.uri_mut() = head.uri.clone();
    request.headers_mut().clone_from(&head.headers);
    let mut answer = sender.send_request(request).await?.into_body();
    while let Some(frame) = answer.frame().await {
        frame?;
    }
    Ok(())
}

/// All but the body.
#[derive(Clone)]
struct Head {
    uri: hyper::Uri,
    headers: hyper::HeaderMap,
}

fn parse(request: &[u8]) -> anyhow::Result<(Head, Bytes)> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").context("a head")?;
    let text = std::str::from_utf8(&request[..end])?;
    let mut lines = text.lines();
    let uri = lines.next().and_then(|line| line.split(' ').nth(1)).context("a path")?.parse()?;
    let mut headers = hyper::HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').context("a header")?;
        headers.insert(hyper::header::HeaderName::from_bytes(name.as_bytes())?, value.trim().parse()?);
    }
    Ok((Head { uri, headers }, Bytes::copy_from_slice(&request[end + 4..])))
}
