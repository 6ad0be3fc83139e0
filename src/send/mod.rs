//! Enters: an event that may be sent now. Leaves: the outcome of one attempt, and the verdict on it.
//!
//! One deadline covers a token, connect, TLS, request and answer. The client never sends anything twice by itself: the number of
//! attempts in Postgres is the number of requests that receivers saw.

mod answer;
pub mod backoff;
pub mod connect;
pub mod credentials;
pub mod egress;
pub mod lookup;
pub mod outcome;
pub mod outgoing;
mod proxy;
pub mod request;
pub mod retry_after;
mod secret_files;
pub mod signature;
pub mod tls;
mod token;
mod token_request;
pub mod verdict;
pub mod wire;

use std::time::{Duration, Instant, SystemTime};

use crate::observe::chain;
use answer::Head;
use connect::{Means, Target};
use credentials::Proven;
use outcome::{Outcome, Trouble};
use outgoing::Outgoing;
use wire::{Connection, Failure};

/// At most this much of an answer is read; beyond it the connection is dropped.
const ANSWER_BYTES: usize = 64 << 10;
/// And this much is kept with a failed attempt.
const KEPT_BYTES: usize = 1_024;
/// Once the status is known, the rest of the answer may take this long: it changes nothing any more.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// How long after the deadline an answer is taken that was already on this machine.
const ARRIVED_PATIENCE: Duration = Duration::from_millis(20);

/// One attempt, over.
pub struct Attempt {
    pub outcome: Outcome,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// The first bytes of the answer.
    pub answer: Vec<u8>,
    pub took: Duration,
    /// Fit for another request: everything of this one was read.
    pub connection: Option<Connection>,
}

/// Makes one attempt over `connection`, or over a new one, between `began` and `deadline`.
pub async fn attempt(
    target: &Target,
    connection: Option<Connection>,
    request: Outgoing,
    began: Instant,
    deadline: Instant,
) -> Attempt {
    let deadline = tokio::time::Instant::from_std(deadline);
    let mut attempt = match tokio::time::timeout_at(deadline, target.credentials.prove(request, deadline)).await {
        Ok(Ok(proven)) => proven_exchange(target, connection, proven, deadline).await,
        Ok(Err(error)) => Attempt { connection, ..failed(Outcome::NeverSent(error.trouble()), chain(&error)) },
        Err(_) => Attempt {
            connection,
            ..failed(Outcome::NeverSent(Trouble::Timeout), "no credentials within the timeout".to_owned())
        },
    };
    attempt.took = began.elapsed();
    attempt
}

async fn proven_exchange(
    target: &Target,
    connection: Option<Connection>,
    proven: Proven,
    deadline: tokio::time::Instant,
) -> Attempt {
    let Proven { request, live, token } = proven;
    // What was connected with other certificates or through another proxy is not used again.
    let connection = connection.filter(|kept| kept.generation == live.means.generation);
    let attempt = exchange(target, &live.means, connection, request, deadline).await;
    if let (Outcome::Answered { status: 401, .. }, Some(token)) = (&attempt.outcome, &token) {
        target.credentials.refused(token);
    }
    attempt
}

async fn exchange(
    target: &Target,
    means: &Means,
    connection: Option<Connection>,
    request: Outgoing,
    deadline: tokio::time::Instant,
) -> Attempt {
    if let Some(mut kept) = connection {
        match sent(&mut kept, &request, deadline).await {
            Sent::Answered(head) => return answered(kept, head, deadline).await,
            Sent::Failed(failure) => return failure,
            Sent::Broken(error) => return failed(Outcome::Unknown(Trouble::Broken), chain(&error)),
            // The peer had closed the idle connection, and not one byte of the request was taken: it is still ours.
            Sent::NotTaken(_) => {}
        }
    }
    // On the heap: most attempts have a connection, and would carry the room for making one.
    let mut fresh = match tokio::time::timeout_at(deadline, Box::pin(target.route.open(means))).await {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(error)) => return failed(Outcome::NeverSent(error.trouble()), chain(&error)),
        Err(_) => return failed(Outcome::NeverSent(Trouble::Timeout), "no connection within the timeout".to_owned()),
    };
    let failure = match sent(&mut fresh, &request, deadline).await {
        Sent::Answered(head) => return answered(fresh, head, deadline).await,
        Sent::Failed(failure) => failure,
        // Only a connection's first request can be refused so: later ones follow an accepted certificate.
        Sent::Broken(error) | Sent::NotTaken(error) if tls::refuses_our_certificate(&error) => {
            failed(Outcome::NeverSent(Trouble::Tls), chain(&error))
        }
        Sent::NotTaken(_) => {
            return failed(Outcome::NeverSent(Trouble::Connect), "closed before the request".to_owned());
        }
        Sent::Broken(error) => failed(Outcome::Unknown(Trouble::Broken), chain(&error)),
    };
    if crate::mutant!("hidden-retry") {
        return Box::pin(exchange(target, means, None, request, deadline)).await;
    }
    failure
}

enum Sent {
    Answered(Head),
    Failed(Attempt),
    /// The connection broke after some of the request was taken.
    Broken(std::io::Error),
    NotTaken(std::io::Error),
}

async fn sent(connection: &mut Connection, request: &Outgoing, deadline: tokio::time::Instant) -> Sent {
    // A process that was stopped until its time was up must not send: the lease behind the deadline may be another's by
    // now. The timer alone would not see it, because a timeout tries what it guards once before it looks at the clock.
    if tokio::time::Instant::now() >= deadline {
        return Sent::Failed(failed(Outcome::NeverSent(Trouble::Timeout), "too late to send".to_owned()));
    }
    crate::failpoint!("send.before");
    let mut exchange = std::pin::pin!(connection.exchange(request));
    let answered = match tokio::time::timeout_at(deadline, &mut exchange).await {
        Ok(result) => Ok(result),
        // An answer that has already arrived is known, whatever the timer says: this process may have been stopped.
        Err(_) => tokio::time::timeout(ARRIVED_PATIENCE, exchange).await,
    };
    match answered {
        Ok(Ok(head)) => Sent::Answered(head),
        Ok(Err(Failure::NotTaken(error))) => Sent::NotTaken(error),
        Ok(Err(Failure::Broken(error))) => Sent::Broken(error),
        Err(_) => Sent::Failed(failed(Outcome::Unknown(Trouble::Timeout), "no answer within the timeout".to_owned())),
    }
}

/// The status decides; what follows it is read within bounds, and only a whole answer keeps the connection.
async fn answered(mut connection: Connection, head: Head, deadline: tokio::time::Instant) -> Attempt {
    let Head { status, retry_after, body, keeps } = head;
    let retry_after = retry_after.and_then(|value| retry_after::parse(&value, SystemTime::now()));
    let mut answer = Vec::new();
    let patience = deadline.min(tokio::time::Instant::now() + ANSWER_PATIENCE);
    let read = connection.read_body(body, ANSWER_BYTES, &mut answer, KEPT_BYTES);
    let is_whole = tokio::time::timeout_at(patience, read).await.unwrap_or(false);
    Attempt {
        outcome: Outcome::Answered { status, retry_after },
        error: None,
        answer,
        took: Duration::ZERO,
        connection: (is_whole && keeps).then_some(connection),
    }
}

fn failed(outcome: Outcome, error: String) -> Attempt {
    Attempt { outcome, error: Some(error), answer: Vec::new(), took: Duration::ZERO, connection: None }
}
