//! The ceiling: a bare hyper client that posts the same bytes over as many keep-alive connections, and does nothing else.

use std::path::PathBuf;

use anyhow::Context as _;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

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
    let mut tasks = Vec::new();
    for _ in 0..flags.connections {
        let stream = TcpStream::connect(&flags.to).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let (head, body) = (head.clone(), body.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                sender.ready().await?;
                let mut request = Request::new(Full::new(body.clone()));
                *request.method_mut() = hyper::Method::POST;
                *request.uri_mut() = head.uri.clone();
                request.headers_mut().clone_from(&head.headers);
                let mut answer = sender.send_request(request).await?.into_body();
                while let Some(frame) = answer.frame().await {
                    frame?;
                }
            }
            #[expect(unreachable_code, reason = "it says what fails")]
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(true)
}

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
