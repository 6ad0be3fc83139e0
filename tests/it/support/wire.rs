//! HTTP/1.1 messages as the bytes that they are, so that a test can keep one, lose one, or send one again.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The next message: its head and as many bytes of body as its content-length says. Nothing at the end of the stream.
pub async fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = header(&bytes, "content-length").map_or(0, |length| length.parse().expect("a length"));
            if bytes.len() >= end + 4 + body {
                return Some(bytes);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A header of a message.
pub fn header(message: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(message);
    let mut headers = text.split("\r\n").take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
    headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    pub retry_after: Option<String>,
}

/// Sends a request on a connection of its own and returns the answer.
pub async fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.expect("the receiver listens");
        stream.write_all(request).await.expect("it reads");
        message(&mut stream).await.expect("it answers")
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("it answers in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Answer { status, text: body, retry_after: header(&answer, "retry-after") }
}
