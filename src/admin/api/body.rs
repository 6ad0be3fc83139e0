//! The body of an event over HTTP. Enters: a request that is still coming in. Leaves: its bytes, or a refusal.
//!
//! What is too large is refused before it is read, where its length says so, and otherwise as soon as it shows. All callers together have
//! so much room and no more: who finds none waits until others' events are stored.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::admin::answer::Refusal;

/// Whatever a workflow's `maxBytes` says, no request is longer than this.
const LONGEST: usize = 16 << 20;
/// What there may be beside the data: its type, its key, its policy, and what that compares.
const BESIDE: usize = 64 << 10;
const KIB: usize = 1 << 10;
/// For requests that are read and not stored yet, in KiB.
static ROOM: Semaphore = Semaphore::const_new(64 << 10);
/// How long somebody waits for room.
const WAIT: Duration = Duration::from_secs(5);
/// Room is not for those who take their time.
const READ: Duration = Duration::from_secs(30);
/// For how long, and how much, is read of what was refused.
const PASS_OVER: Duration = Duration::from_secs(3);
const PASSED_OVER: usize = 4 * LONGEST;

pub struct Incoming {
    body: Body,
    /// As the caller announced it.
    length: Option<usize>,
    /// The caller sends nothing before it is told to go on, which reading does.
    waits: bool,
}

/// A request, whole. The room that it takes is free again when it is dropped.
pub struct Whole {
    pub bytes: Vec<u8>,
    _room: SemaphorePermit<'static>,
}

impl Incoming {
    pub fn new(headers: &HeaderMap, body: Body) -> Self {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            body,
            length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            waits: text(header::EXPECT).is_some_and(|expected| expected.eq_ignore_ascii_case("100-continue")),
        }
    }

    /// Reads what fits a workflow.
    pub async fn read(&mut self, max_bytes: usize) -> Result<Whole, Refusal> {
        let most = max_bytes.saturating_add(BESIDE).min(LONGEST);
        let length = self.length.unwrap_or(most);
        if length > most {
            return Err(too_large(most));
        }
        let needed = u32::try_from(length.div_ceil(KIB).max(1)).expect("no request is longer than 16 MiB");
        let Ok(Ok(room)) = timeout(WAIT, ROOM.acquire_many(needed)).await else {
            return Err(Refusal::unavailable("more events are being given at the same time than there is room for"));
        };
        self.waits = false;
        match timeout(READ, self.collect(most)).await {
            Ok(bytes) => Ok(Whole { bytes: bytes?, _room: room }),
            Err(_) => {
                self.body = Body::empty();
                let message = format!("the request was not there within {} s", READ.as_secs());
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
            }
        }
    }

    async fn collect(&mut self, most: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::with_capacity(self.length.unwrap_or_default());
        while let Some(frame) = self.body.frame().await {
            let Ok(frame) = frame else {
                self.body = Body::empty();
                return Err(Refusal::invalid("the request broke off"));
            };
            // Trailers are nothing to us.
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most {
                return Err(too_large(most));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// Throws away what is still coming of a request that is refused: where a connection is closed under a caller who sends, the answer is
    /// lost with it.
    pub async fn pass_over(&mut self) {
        if self.waits {
            return;
        }
        let mut passed = 0;
        let passing = async {
            while let Some(Ok(frame)) = self.body.frame().await {
                passed += frame.data_ref().map_or(0, bytes::Bytes::len);
                if passed > PASSED_OVER {
                    return;
                }
            }
        };
        // Whoever sends for longer than that does not listen.
        let _ = timeout(PASS_OVER, passing).await;
    }
}

fn too_large(most: usize) -> Refusal {
    let message = format!(
        "a request may have {most} bytes here: maxBytes for the data and 64 KiB for the rest, and 16 MiB in all"
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
}
