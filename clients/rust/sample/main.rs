//! A receiver on the kit, axum and tokio-postgres; it behaves as docs/receivers/rust/main.rs does.
//!
//! Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
//! The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//!
//! Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use deadpool_postgres::{Manager, Pool, Runtime};
use oncebox_receiver::{Answer, Once, Refused, Secret, TABLE, Trouble, lookup, read_signed, verify};
use tokio_postgres::NoTls;

const LARGEST_BODY: usize = 8 << 20;
const ACCOUNTS: &str = "create table if not exists accounts (name text primary key, balance bigint not null)";
const CREDIT: &str = "
    insert into accounts (name, balance) values ($1, $2)
    on conflict (name) do update set balance = accounts.balance + excluded.balance
";

struct Receiver {
    pool: Pool,
    secrets: Vec<Secret>,
    once: Once,
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let Receiver { pool, secrets, once } = &*receiver;
    if !secrets.is_empty() && verify(secrets, &headers, &body, SystemTime::now()).is_err() {
        return (StatusCode::UNAUTHORIZED, "the signature is not good\n").into_response();
    }
    let event = match read_signed(&headers, &body) {
        Ok(event) => event,
        Err(refused) => return refusal(refused),
    };
    let Some((account, amount)) = credit_in(&body) else {
        return (StatusCode::UNPROCESSABLE_ENTITY, "no data with account and amount\n").into_response();
    };
    let mut client = match pool.get().await {
        Ok(client) => client,
        Err(error) => return response(Trouble::NotProcessed(error.into()).into()),
    };
    let effect = async |transaction: &tokio_postgres::Transaction<'_>| {
        transaction.execute(CREDIT, &[&account, &amount]).await?;
        Ok(())
    };
    response(once.process(&mut client, &event, effect).await)
}

async fn status(State(receiver): State<Arc<Receiver>>, Path(key): Path<String>) -> Response {
    response(match receiver.pool.get().await {
        Ok(mut client) => lookup(&mut client, &key).await,
        Err(error) => Trouble::NotProcessed(error.into()).into(),
    })
}

fn refusal(refused: Refused) -> Response {
    let text = if refused == Refused::NoKey { "no webhook-id\n".to_owned() } else { format!("{refused}\n") };
    written(refused.status(), text)
}

fn response(answer: Answer) -> Response {
    if let Some(cause) = answer.cause.filter(|_| answer.status != StatusCode::CONFLICT) {
        // With what caused the cause.
        eprintln!("{}: {:#}", answer.status, anyhow::Error::from(cause));
    }
    written(answer.status, answer.text.to_owned())
}

fn written(status: StatusCode, text: String) -> Response {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => (status, [(header::RETRY_AFTER, "1")], text).into_response(),
        _ => (status, text).into_response(),
    }
}

/// The account and the amount; nothing when the body is not such an event.
fn credit_in(body: &[u8]) -> Option<(String, i64)> {
    let event: serde_json::Value = serde_json::from_slice(body).ok()?;
    let account = event["data"]["account"].as_str().filter(|name| !name.contains('\0'))?;
    let amount = event["data"]["amount"].as_i64().filter(|amount| amount.unsigned_abs() < 1 << 53)?;
    Some((account.to_owned(), amount))
}

fn secrets_in(text: &str) -> anyhow::Result<Vec<Secret>> {
    let secrets = text.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(text.is_empty() || !secrets.is_empty(), "it is blank: a secret, or nothing at all for no check");
    Ok(secrets)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let secrets = secrets_in(&std::env::var("WEBHOOK_SECRET").unwrap_or_default()).context("WEBHOOK_SECRET")?;
    let config: tokio_postgres::Config = std::env::var("DATABASE_URL").context("DATABASE_URL")?.parse()?;
    let pool = Pool::builder(Manager::new(config, NoTls))
        .max_size(8)
        .wait_timeout(Some(Duration::from_secs(5)))
        .create_timeout(Some(Duration::from_secs(5)))
        .runtime(Runtime::Tokio1)
        .build()?;
    let client = pool.get().await?;
    client.batch_execute(TABLE).await?;
    client.batch_execute(ACCOUNTS).await?;
    drop(client);
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8082".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let router = Router::new()
        .route("/events", post(receive))
        .route("/events/{key}", get(status))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(Arc::new(Receiver { pool, secrets, once: Once::default() }));
    Ok(axum::serve(listener, router).await?)
}
