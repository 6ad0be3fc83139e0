//! The endpoint: takes requests, honours the key, and misbehaves as it is told. Logs before it answers, and again when
//! the answer is out. Raw HTTP, because some answers are none.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::check::reference::hex;
use crate::evidence::{Answered, Log, Received, Signature, now};

/// How the next requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Few failures, few lost answers.
    Fair,
    /// 500, unprocessed.
    Failing,
    /// Processed; the answer comes long after the relay's patience.
    Late,
    /// Processed, and closed without a word.
    Closing,
    /// Never answered.
    Stalling,
    /// 200 and a body without end.
    Endless,
    /// Redirects, nonsense statuses, two lengths, no HTTP at all.
    Garbled,
    /// 503 with a Retry-After that means nothing.
    Nonsense,
}

pub const MOODS: [Mood; 7] =
    [Mood::Failing, Mood::Late, Mood::Closing, Mood::Stalling, Mood::Endless, Mood::Garbled, Mood::Nonsense];

pub struct Receiver {
    pub address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    /// Connections to the address that redirects name.
    decoyed: Arc<AtomicU64>,
}

struct Shared {
    log: Log,
    mood: Arc<Mutex<Mood>>,
    seen: Mutex<HashSet<String>>,
    started: AtomicU64,
    elsewhere: String,
    webhook: Webhook,
}

impl Receiver {
    /// Requests that carry a signature are held against this secret.
    pub async fn start(log: &Path, secret: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mood = Arc::new(Mutex::new(Mood::Fair));
        let (decoy, decoyed) = (TcpListener::bind("127.0.0.1:0").await?, Arc::new(AtomicU64::new(0)));
        let (elsewhere, hits) = (format!("http://{}/", decoy.local_addr()?), Arc::clone(&decoyed));
        tokio::spawn(async move {
            while decoy.accept().await.is_ok() {
                hits.fetch_add(1, Ordering::SeqCst);
            }
        });
        let shared = Arc::new(Shared {
            log: Log::create(log)?,
            mood: Arc::clone(&mood),
            seen: Mutex::default(),
            started: AtomicU64::new(0),
            elsewhere,
            webhook: Webhook::new(secret).context("the signing secret")?,
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let mut stream = stream;
                tokio::spawn(async move { while shared.serve(&mut stream).await.is_ok_and(|keep| keep) {} });
            }
        });
        Ok(Self { address, mood, decoyed })
    }

    pub fn decoyed(&self) -> u64 {
        self.decoyed.load(Ordering::SeqCst)
    }

    pub fn set(&self, mood: Mood) {
        *self.mood.lock().expect("no holder panics") = mood;
    }
}

/// Headers whose values are secret or have a field of their own in the evidence, as those of `oncebox-` have.
const UNTOLD: [&str; 3] = ["webhook-timestamp", "webhook-signature", "x-secret"];

pub struct Request {
    /// Method, path and version.
    line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The head as it came, for the evidence.
    fn head(&self) -> String {
        let mut text = self.line.clone();
        for (name, value) in &self.headers {
            text.push('\n');
            text.push_str(name);
            if !UNTOLD.contains(&name.as_str()) && !name.starts_with("oncebox-") {
                text.push_str(": ");
                text.push_str(value);
            }
        }
        text
    }

    /// What the signature of this request is worth, if it has one. A stamp that cannot be read is one of 1970.
    fn signature(&self, webhook: &Webhook) -> Option<Signature> {
        if self.header("webhook-signature").is_empty() {
            return None;
        }
        let mut headers = HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(self.header(name)).ok()?);
        }
        let verified = webhook.verify(&self.body, &headers).is_ok();
        Some(Signature { verified, stamp: self.header("webhook-timestamp").parse().unwrap_or(0) })
    }

    pub async fn read(stream: &mut TcpStream) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                bail!("closed");
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
        let mut lines = head.lines().filter(|line| !line.is_empty());
        let line = lines.next().unwrap_or_default().to_owned();
        // A line that is no header is kept as one without a value, so that it shows.
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
            .collect();
        let length: usize =
            headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, v)| v.parse().ok()).unwrap_or(0);
        let mut body = bytes.split_off(head_end);
        while body.len() < length {
            if stream.read_buf(&mut body).await? == 0 {
                bail!("closed");
            }
        }
        Ok(Self { line, headers, body })
    }
}

/// What is done with one request.
struct Plan {
    name: &'static str,
    processes: bool,
    wait: Duration,
    status: u16,
    answer: Vec<u8>,
    keep: bool,
}

pub fn plain(status: u16, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n{more}\r\nok").into_bytes()
}

impl Plan {
    fn new(mood: Mood, refuse: bool, dice: u64, elsewhere: &str) -> Self {
        let now = Duration::ZERO;
        let plan = |name, processes, wait, status, answer, keep| Self { name, processes, wait, status, answer, keep };
        if refuse {
            return plan("refused", false, now, 422, plain(422, ""), true);
        }
        match mood {
            Mood::Fair if dice.is_multiple_of(50) => plan("failed", false, now, 500, plain(500, ""), true),
            Mood::Fair if dice % 50 == 1 => plan("answer lost", true, now, 200, Vec::new(), false),
            Mood::Fair if dice % 50 == 2 => plan("in progress", false, now, 409, plain(409, ""), true),
            Mood::Fair => plan("processed", true, now, 200, plain(200, ""), true),
            Mood::Failing => plan("failed", false, now, 500, plain(500, ""), true),
            Mood::Late => plan("late", true, Duration::from_millis(2_500), 200, plain(200, ""), true),
            Mood::Closing => plan("closed", true, now, 200, Vec::new(), false),
            Mood::Stalling => plan("stalled", false, Duration::from_secs(10), 200, Vec::new(), false),
            Mood::Endless => {
                let mut answer = b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
                (0..64).for_each(|_| answer.extend([b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat()));
                plan("endless", true, now, 200, answer, false)
            }
            Mood::Garbled => match dice % 5 {
                0 => plan("redirected", false, now, 302, plain(302, &format!("location: {elsewhere}\r\n")), true),
                1 => plan("status 599", false, now, 599, plain(599, ""), true),
                2 => plan("two lengths", false, now, 500, plain(500, "content-length: 7\r\n"), false),
                3 => plan("no HTTP", false, now, 0, b"SSH-2.0-nothing\r\n".to_vec(), false),
                _ => plan("half a status", false, now, 0, b"HTTP/1.1 2".to_vec(), false),
            },
            Mood::Nonsense => {
                let values = ["soon", "-5", "99999999999999999999", "Wed, 99 Foo 1999 00:00:00 GMT", ""];
                let header = format!("retry-after: {}\r\n", values[(dice % 5) as usize]);
                plan("nonsense", false, now, 503, plain(503, &header), true)
            }
        }
    }
}

impl Shared {
    /// One request. Answers whether the connection can take another.
    async fn serve(&self, stream: &mut TcpStream) -> anyhow::Result<bool> {
        let request = Request::read(stream).await?;
        let seq = self.started.fetch_add(1, Ordering::SeqCst);
        let mood = *self.mood.lock().expect("no holder panics");
        // The generator marks what is to be refused; dice are the request's own, so that runs repeat.
        let refuse = request.body.windows(6).any(|window| window == b",true]");
        let digest = Sha256::digest(&request.body);
        let attempt = request.header("oncebox-attempt").parse().unwrap_or(0);
        let dice = (u64::from(digest[0]) << 8) + u64::from(digest[1]) + 7 * u64::from(attempt);
        let plan = Plan::new(mood, refuse, dice, &self.elsewhere);
        let key = request.header("idempotency-key").trim_matches('"').to_owned();
        let applied = plan.processes && self.seen.lock().expect("no holder panics").insert(key.clone());
        self.log.write(&Received {
            seq,
            at: now(),
            workflow: request.header("oncebox-workflow").to_owned(),
            key,
            event: request.header("oncebox-event").to_owned(),
            attempt,
            fence: request.header("oncebox-fence").parse().unwrap_or(-1),
            source: request.header("oncebox-source").to_owned(),
            digest: hex(&digest),
            applied,
            plan: plan.name.to_owned(),
            signature: request.signature(&self.webhook),
            head: Some(request.head()),
        });
        tokio::time::sleep(plan.wait).await;
        // What decides is the head of an answer; what follows may be cut by whoever has read enough.
        let head = plan.answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
        let whole = head > 0 && stream.write_all(&plan.answer[..head]).await.is_ok();
        let rest = stream.write_all(&plan.answer[head..]).await;
        self.log.write(&Answered { seq, at: now(), status: plan.status, whole });
        Ok(whole && rest.is_ok() && plan.keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_c2lnbmVkLXdpdGgtYS1zZWNyZXQtaGVyZQ==";

    fn signed(body: &[u8], by: &str) -> Option<Signature> {
        let (webhook, stamp) = (Webhook::new(SECRET).unwrap(), now() / 1_000);
        let signature = Webhook::new(by).unwrap().sign("key", stamp, b"body").unwrap();
        let headers =
            [("webhook-id", "key"), ("webhook-timestamp", &stamp.to_string()), ("webhook-signature", &signature)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Request { line: String::new(), headers: headers.to_vec(), body: body.to_vec() }.signature(&webhook)
    }

    #[test]
    fn a_signature_holds_for_its_own_bytes_and_secret_alone() {
        assert!(signed(b"body", SECRET).unwrap().verified);
        assert!(!signed(b"other", SECRET).unwrap().verified);
        assert!(!signed(b"body", "whsec_YW5vdGhlci1zZWNyZXQtdGhhbi10aGF0LW9uZQ==").unwrap().verified);
    }

    #[test]
    fn a_head_is_told_as_it_came_but_for_secrets() {
        let headers = [("host", "a"), ("x-secret", "canary"), ("host", "b"), ("no header", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = Request { line: "POST / HTTP/1.1".to_owned(), headers: headers.to_vec(), body: Vec::new() };
        assert_eq!(request.head(), "POST / HTTP/1.1\nhost: a\nx-secret\nhost: b\nno header: ");
    }
}
