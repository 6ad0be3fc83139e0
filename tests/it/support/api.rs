//! Questions to the API of a relay.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Relay;

impl Relay {
    /// Status and body of one request, null where there is none.
    pub async fn call(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> (u16, Value) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        if let Some(token) = token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        if method != "GET" {
            head.push_str("content-type: application/json\r\n");
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.expect("the relay listens");
        stream.write_all(head.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// What is there, with status 200.
    pub async fn ask(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, None, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The address for `--url`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
