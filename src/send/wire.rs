//! Enters: a request and an open connection. Leaves: the answer's head, then as much of its body as is kept.
//!
//! HTTP/1.1 in the task that waits for it: a general client costs twice as much for each request, which is most of what a
//! delivery costs. What must hold: nothing is sent twice; whether any byte may have left is known; only a connection whose
//! answer was read to its very end, and behind which nothing came, takes another request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::answer::{self, Framing, Head};
use super::outgoing::Outgoing;

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open connection, straight, through TLS or through a tunnel.
pub type Stream = Box<dyn Duplex>;

/// What is read in one go: most answers fit.
const READ_BYTES: usize = 1 << 10;

/// A connection for deliveries. Dropping it closes it, whatever is under way.
pub struct Connection {
    stream: Stream,
    /// Came, and is not looked at yet.
    came: Vec<u8>,
    /// That of the means it was made with.
    pub generation: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// Not one byte was taken: the connection was over before.
    NotTaken(io::Error),
    /// The connection broke after some of the request was taken, or what came is no answer.
    Broken(io::Error),
}

impl Connection {
    pub fn new(stream: Stream, generation: u64) -> Self {
        Self { stream, came: Vec::new(), generation }
    }

    /// Sends a request, and reads the head of its answer.
    pub async fn exchange(&mut self, request: &Outgoing) -> Result<Head, Failure> {
        let (first, second) = request.pieces();
        let mut unsent = first.chain(second);
        let (mut is_taken, mut broken) = (false, None);
        std::future::poll_fn(|context| {
            // On a connection that waited something may have come meanwhile: its end, as a rule.
            if !is_taken && let Poll::Ready(came) = self.poll_more(context) {
                let error = came.err().unwrap_or_else(|| io::Error::other("an answer to nothing"));
                return Poll::Ready(Err(Failure::NotTaken(error)));
            }
            while broken.is_none() && unsent.has_remaining() {
                match Pin::new(&mut self.stream).poll_write(context, unsent.chunk()) {
                    Poll::Ready(Ok(0)) => broken = Some(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(written)) => unsent.advance(written),
                    Poll::Ready(Err(error)) if !is_taken => return Poll::Ready(Err(Failure::NotTaken(error))),
                    Poll::Ready(Err(error)) => broken = Some(error),
                    Poll::Pending => {
                        is_taken = true;
                        break;
                    }
                }
                is_taken = true;
            }
            if broken.is_none() && !unsent.has_remaining() {
                // Neither TCP nor TLS holds anything back; a tunnel may.
                if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(context) {
                    broken = Some(error);
                }
            }
            match self.poll_head(context) {
                // Some answer before they have heard all.
                Poll::Ready(Ok(head)) => Poll::Ready(Ok(Head { keeps: head.keeps && !unsent.has_remaining(), ..head })),
                // What the peer said before it went says more than that it is gone.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Err(Failure::Broken(broken.take().unwrap_or(error))))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(Failure::Broken(error))),
                Poll::Pending => match broken.take() {
                    Some(error) => Poll::Ready(Err(Failure::Broken(error))),
                    None => Poll::Pending,
                },
            }
        })
        .await
    }

    /// Reads the body of an answer, at most `most` of its bytes, and keeps the first `room` of them in `kept`. Answers whether
    /// that was all, with nothing behind it.
    pub async fn read_body(&mut self, mut body: Framing, most: usize, kept: &mut Vec<u8>, room: usize) -> bool {
        // What chunks say about themselves is not the body's.
        let (mut read, mut raw) = (0, 0);
        loop {
            while !body.is_over() {
                let Ok((taken, part)) = body.take(&self.came) else { return false };
                if taken == 0 {
                    break;
                }
                read += part.len();
                raw += taken;
                let keep = room.saturating_sub(kept.len()).min(part.len());
                kept.extend_from_slice(&self.came[part.start..part.start + keep]);
                self.came.drain(..taken);
                if read > most || raw > 2 * most {
                    return false;
                }
            }
            if body.is_over() {
                return self.came.is_empty();
            }
            if std::future::poll_fn(|context| self.poll_more(context)).await.is_err() {
                return false;
            }
        }
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Head>> {
        loop {
            if let Some((head, length)) = answer::head(&self.came)? {
                self.came.drain(..length);
                return Poll::Ready(Ok(head));
            }
            ready!(self.poll_more(context))?;
        }
    }

    /// Reads on. The end is an error: whoever asks waits for more.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.came.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
