//! A proxy that understands messages: it keeps every request that it saw, and loses some of them or of their answers.
//!
//! Which ones depends on their number alone. A request lost is never seen by the receiver; an answer lost is one whose
//! work was done; a late request arrives when its sender has given it up and perhaps sent it again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every request is kept, and none passed on.
    Withhold,
    /// One in three goes wrong.
    Lossy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passed,
    RequestLost,
    AnswerLost,
    Late,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    upstream: SocketAddr,
    mode: Mode,
    requests: Vec<Vec<u8>>,
    answers_lost: usize,
}

impl Proxy {
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let shared = Shared { upstream, mode: Mode::Withhold, requests: Vec::new(), answers_lost: 0 };
        let proxy = Self { address: listener.local_addr().expect("an address"), shared: Arc::new(Mutex::new(shared)) };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(client));
            }
        });
        proxy
    }

    pub fn set(&self, mode: Mode) {
        self.shared.lock().unwrap().mode = mode;
    }

    /// What comes from now on goes there.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.shared.lock().unwrap().upstream = upstream;
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.shared.lock().unwrap().requests.clone()
    }

    pub fn answers_lost(&self) -> usize {
        self.shared.lock().unwrap().answers_lost
    }

    /// One exchange after the other. Returning closes the connection without an answer.
    async fn serve(self, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        while let Some(request) = wire::message(&mut client).await {
            let (fate, upstream) = self.fate(&request);
            match fate {
                Fate::Passed | Fate::AnswerLost => {
                    let Some(answer) = exchange(upstream, &request).await else { return };
                    if fate == Fate::AnswerLost {
                        self.shared.lock().unwrap().answers_lost += 1;
                        return;
                    }
                    if client.write_all(&answer).await.is_err() {
                        return;
                    }
                }
                Fate::RequestLost => return,
                Fate::Late => {
                    drop(client);
                    // About when its sender tries again: the two race.
                    tokio::time::sleep(Duration::from_millis(110)).await;
                    exchange(upstream, &request).await;
                    return;
                }
            }
        }
    }

    fn fate(&self, request: &[u8]) -> (Fate, SocketAddr) {
        let mut shared = self.shared.lock().unwrap();
        shared.requests.push(request.to_vec());
        let fate = match shared.mode {
            Mode::Withhold => Fate::RequestLost,
            Mode::Lossy => match shared.requests.len() % 12 {
                2 | 8 => Fate::AnswerLost,
                5 => Fate::RequestLost,
                10 => Fate::Late,
                _ => Fate::Passed,
            },
        };
        (fate, shared.upstream)
    }
}

async fn exchange(upstream: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect(upstream).await.ok()?;
    server.set_nodelay(true).ok()?;
    server.write_all(request).await.ok()?;
    wire::message(&mut server).await
}
