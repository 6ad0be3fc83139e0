//! The reference receiver: logs every request before it answers, applies each key once, and misbehaves when told to.
//! What the demo, the tests and the benchmark deliver to; what a client's endpoint should do, in small.
//!
//! A repeat is answered 2xx without a second effect. What was applied is known from the log, so a receiver that was
//! killed and started again still drops repeats. With signing secrets, only what one of them signed is believed.

pub mod behaviour;
pub mod fast;
pub mod log;
mod port;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::config::SigningKey;
use crate::send::signature::{self, Refusal, Signed};

pub use behaviour::{Answer, Behaviour, Seen};
pub use log::{Line, Log};
pub use port::free_port;

/// Decides how a request is answered.
pub type Decide = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    log: Log,
    applied: Mutex<HashSet<String>>,
    decide: Decide,
    /// Set by `POST /_behaviour`; goes before `decide`.
    told: Mutex<Option<Behaviour>>,
    /// What none of these signed is answered 401; empty: signatures are not looked at.
    keys: Vec<SigningKey>,
}

impl Receiver {
    /// Listens and serves until it is dropped or stopped. Keys applied in an earlier life are read from the log.
    pub async fn start(listen: SocketAddr, log: &Path, decide: Decide) -> io::Result<Self> {
        Self::verifying(listen, log, decide, Vec::new()).await
    }

    /// The same, and only what one of the keys signed is believed.
    pub async fn verifying(listen: SocketAddr, log: &Path, decide: Decide, keys: Vec<SigningKey>) -> io::Result<Self> {
        let applied = log::read(log)?.into_iter().filter(|line| line.applied).map(|line| line.key).collect();
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            log: Log::open(log)?,
            applied: Mutex::new(applied),
            decide,
            told: Mutex::default(),
            keys,
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// How many different keys had an effect.
    pub fn applied(&self) -> usize {
        self.shared.applied.lock().expect("no holder of this lock panics").len()
    }

    pub async fn wait(self) {
        let _ = (&mut { self }.task).await;
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Aborting the server closes its connections too.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| handle(Arc::clone(&shared), request));
                    // An error here is how a connection is closed without an answer.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Ends the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed without an answer, as told")]
struct Closed;

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Closed> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else { return Err(Closed) };
    if head.uri.path() == "/_behaviour" {
        return Ok(shared.told(&head.method, &body));
    }
    let seen = Seen::new(&head, &body);
    if let Err(refusal) = shared.verify(&seen) {
        tracing::warn!(key = seen.key, %refusal, "not believed, answered 401");
        return shared.answer(&seen, Answer::status(401)).await;
    }
    let told = shared.told.lock().expect("no holder of this lock panics").clone();
    let mut answer = match told {
        Some(behaviour) => behaviour.decide(&seen),
        None => (shared.decide)(&seen),
    };
    let mut unlogged = Unlogged { shared: &shared, seen: &seen, waits: true };
    if let Answer::After(delay, next) = answer {
        tokio::time::sleep(delay).await;
        answer = *next;
    }
    unlogged.waits = false;
    shared.answer(&seen, answer).await
}

/// A request that waits for its answer. Whoever sent it may not wait as long: it is logged all the same.
struct Unlogged<'a> {
    shared: &'a Shared,
    seen: &'a Seen,
    waits: bool,
}

impl Drop for Unlogged<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.shared.log.write(&Line::new(self.seen, &Answer::Hang, false));
        }
    }
}

impl Shared {
    fn verify(&self, seen: &Seen) -> Result<(), Refusal> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let signed = Signed {
            id: seen.header("webhook-id"),
            timestamp: seen.header("webhook-timestamp"),
            signature: seen.header("webhook-signature"),
        };
        signature::verify(&self.keys, signed, &seen.body, jiff::Timestamp::now().as_second())
    }

    fn told(&self, method: &Method, body: &[u8]) -> Response<Full<Bytes>> {
        match serde_json::from_slice::<Behaviour>(body) {
            Ok(behaviour) if method == Method::POST => {
                *self.told.lock().expect("no holder of this lock panics") = Some(behaviour);
                text(StatusCode::OK, "as you say\n")
            }
            _ => text(
                StatusCode::BAD_REQUEST,
                "POST {\"fail\": 0.05, \"lose\": 0.02, \"status\": 503, \"stall\": 250}\n",
            ),
        }
    }

    /// Logs, has the effect if there is one to have, and answers.
    async fn answer(&self, seen: &Seen, answer: Answer) -> Result<Response<Full<Bytes>>, Closed> {
        let processed = matches!(answer, Answer::Process | Answer::ProcessAndClose);
        let applied = processed && self.applied.lock().expect("no holder of this lock panics").insert(seen.key.clone());
        self.log.write(&Line::new(seen, &answer, applied));
        match answer {
            Answer::Process if applied => Ok(text(StatusCode::OK, "processed\n")),
            Answer::Process => Ok(text(StatusCode::OK, "seen before\n")),
            Answer::Status(status, headers) => {
                let mut response = text(StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT), "as told\n");
                for (name, value) in headers {
                    if let (Ok(name), Ok(value)) =
                        (hyper::header::HeaderName::from_bytes(name.as_bytes()), value.parse())
                    {
                        response.headers_mut().insert(name, value);
                    }
                }
                Ok(response)
            }
            Answer::ProcessAndClose | Answer::Close => Err(Closed),
            Answer::Hang => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(Closed)
            }
            Answer::Die => std::process::abort(),
            Answer::After(_, next) => Box::pin(self.answer(seen, *next)).await,
        }
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response
}

impl From<Infallible> for Closed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
