//! A TCP proxy that misbehaves on demand. Stands between the relays and Kafka, Postgres and the receiver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Pass = 0,
    /// Nothing arrives anywhere, and nobody is told.
    BlackHole = 1,
    /// Every piece is late.
    Slow = 2,
    /// Requests arrive and are worked on; answers do not come back.
    SwallowAnswers = 3,
}

impl Mode {
    fn of(number: u8) -> Self {
        [Self::Pass, Self::BlackHole, Self::Slow, Self::SwallowAnswers][usize::from(number.min(3))]
    }
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    mode: Arc<AtomicU8>,
    upstream: watch::Sender<SocketAddr>,
    /// Raised to cut every connection there is.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await?, upstream)
    }

    pub fn start_on(listener: TcpListener, upstream: SocketAddr) -> anyhow::Result<Self> {
        let proxy = Self {
            address: listener.local_addr()?,
            mode: Arc::default(),
            upstream: watch::channel(upstream).0,
            cuts: watch::channel(0).0,
        };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().connect(client));
            }
        });
        Ok(proxy)
    }

    pub fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// New connections go here; those there are, are cut.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.upstream.send_replace(upstream);
        self.cut();
    }

    /// Resets every connection there is.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    async fn connect(self, client: TcpStream) {
        let mut cuts = self.cuts.subscribe();
        cuts.mark_unchanged();
        let upstream = *self.upstream.borrow();
        let Ok(server) = TcpStream::connect(upstream).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        // A reset, not a polite end: set before the streams are split.
        let _ = (client.set_zero_linger(), server.set_zero_linger());
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::select! {
            () = self.pump(client_in, server_out, false) => {}
            () = self.pump(server_in, client_out, true) => {}
            _ = cuts.changed() => {}
        }
    }

    async fn pump(
        &self,
        mut from: tokio::net::tcp::OwnedReadHalf,
        mut to: tokio::net::tcp::OwnedWriteHalf,
        is_answer: bool,
    ) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let Ok(length) = from.read(&mut buffer).await else { return };
            if length == 0 {
                return;
            }
            loop {
                match Mode::of(self.mode.load(Ordering::SeqCst)) {
                    Mode::Pass => break,
                    Mode::Slow => {
                        tokio::time::sleep(Duration::from_millis(40)).await;
                        break;
                    }
                    Mode::SwallowAnswers if !is_answer => break,
                    Mode::BlackHole | Mode::SwallowAnswers => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            if to.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    }
}
