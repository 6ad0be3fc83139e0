//! A way to a server that can be shut: connections break, and new ones are refused, until it is open again.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::services;

pub struct Gate {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Gate {
    pub async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (open, state) = watch::channel(true);
        let state = Arc::new(state);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = (*state).clone();
                if !*state.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { address, open }
    }

    /// The gate to Postgres, and the URL that leads through it.
    pub async fn to_postgres() -> (Self, String) {
        let mut url = url::Url::parse(&services().database_url).expect("a URL");
        let upstream = (url.host_str().unwrap_or("127.0.0.1"), url.port().unwrap_or(5432));
        let upstream = tokio::net::lookup_host(upstream).await.expect("an address").next().expect("an address");
        let gate = Self::to(upstream).await;
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(gate.address.port())).expect("a port");
        (gate, url.into())
    }

    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
