//! A receiver that honours Oncebox's key, on axum and tokio-postgres.
//!
//! Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
//! Must hold: however many copies arrive, in whatever order and at the same time, a key has its effect once.
//! The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//!
//! Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use deadpool_postgres::{Manager, Pool, PoolError, Runtime};
use openssl::{hash::MessageDigest, memcmp, pkey::PKey, sign::Signer};
use sha2::{Digest, Sha256};
use tokio_postgres::{NoTls, error::SqlState};

const LARGEST_BODY: usize = 8 << 20;
const TOLERANCE_SECONDS: u64 = 300;

const TABLES: &str = "
    create table if not exists processed_events (
        key text primary key,
        digest text not null,
        source text,
        fence bigint,
        received_at timestamptz not null default now());
    create table if not exists accounts (name text primary key, balance bigint not null);
";
const INSERT_KEY: &str = "
    insert into processed_events (key, digest, source, fence) values ($1, $2, $3, $4)
    on conflict (key) do nothing
";
const CREDIT: &str = "
    insert into accounts (name, balance) values ($1, $2)
    on conflict (name) do update set balance = accounts.balance + excluded.balance
";

struct Receiver {
    pool: Pool,
    secrets: Vec<Vec<u8>>,
}

struct Delivery {
    key: String,
    digest: String,
    source: Option<String>,
    fence: Option<i64>,
    account: String,
    amount: i64,
}

/// What became of a copy.
enum Receipt {
    Processed,
    SeenBefore { digest: String },
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("another transaction holds the key")]
    InProgress,
    #[error("no connection to the database")]
    Connect(#[from] PoolError),
    #[error("working in the database")]
    Database(#[source] tokio_postgres::Error),
    /// The commit failed, perhaps only its answer: the event is processed, or it is not.
    #[error("committing")]
    OutcomeUnknown(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::InProgress,
            _ => Self::Database(error),
        }
    }
}

/// The key and the effect in one transaction. What is not committed is rolled back when it is dropped.
async fn process_once(pool: &Pool, delivery: &Delivery) -> Result<Receipt, Trouble> {
    let Delivery { key, digest, source, fence, account, amount } = delivery;
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    transaction.batch_execute("set local lock_timeout = '2s'").await?;
    // A concurrent copy waits here for the transaction that holds the key, and then finds the key taken.
    let inserted = transaction.execute(INSERT_KEY, &[key, digest, source, fence]).await?;
    if inserted == 0 {
        let known = transaction.query_one("select digest from processed_events where key = $1", &[key]).await?;
        return Ok(Receipt::SeenBefore { digest: known.get(0) });
    }
    transaction.execute(CREDIT, &[account, amount]).await?;
    transaction.commit().await.map_err(Trouble::OutcomeUnknown)?;
    Ok(Receipt::Processed)
}

/// Asks the unique index, which also knows the keys of transactions that are still under way.
async fn is_processed(pool: &Pool, key: &str) -> Result<bool, Trouble> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    transaction.batch_execute("set local lock_timeout = '100ms'").await?;
    let inserted = transaction.execute(INSERT_KEY, &[&key, &"", &None::<String>, &None::<i64>]).await?;
    transaction.rollback().await?;
    Ok(inserted == 0)
}

fn digest_of(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

/// Standard Webhooks, over the bytes as they came: one of the signatures was made with one of the secrets.
fn is_signed(secrets: &[Vec<u8>], headers: &HeaderMap, body: &[u8], now: u64) -> bool {
    let (key, timestamp) = (text(headers, "webhook-id"), text(headers, "webhook-timestamp"));
    if timestamp.parse::<u64>().map_or(true, |at| at.abs_diff(now) > TOLERANCE_SECONDS) {
        return false;
    }
    let signed = [key.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let wanted: Vec<String> = secrets.iter().map(|secret| format!("v1,{}", hmac(secret, &signed))).collect();
    let is_wanted =
        |one: &str| wanted.iter().any(|other| one.len() == other.len() && memcmp::eq(one.as_bytes(), other.as_bytes()));
    text(headers, "webhook-signature").split(' ').any(is_wanted)
}

fn hmac(secret: &[u8], signed: &[u8]) -> String {
    let key = PKey::hmac(secret).expect("any bytes are a key");
    let mut signer = Signer::new(MessageDigest::sha256(), &key).expect("SHA-256 is built in");
    STANDARD.encode(signer.sign_oneshot_to_vec(signed).expect("signing in memory works"))
}

fn secrets_in(text: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let decoded = text.split_whitespace().map(|secret| STANDARD.decode(secret.trim_start_matches("whsec_")));
    let secrets: Vec<_> = decoded.collect::<Result<_, _>>().context("WEBHOOK_SECRET is not base64")?;
    ensure!(
        text.is_empty() || !secrets.is_empty(),
        "WEBHOOK_SECRET is blank: a secret, or nothing at all for no check"
    );
    Ok(secrets)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The account and the amount; nothing when the body is not such an event.
fn credit_in(body: &[u8]) -> Option<(String, i64)> {
    let event: serde_json::Value = serde_json::from_slice(body).ok()?;
    let account = event["data"]["account"].as_str().filter(|name| !name.contains('\0'))?;
    let amount = event["data"]["amount"].as_i64().filter(|amount| amount.unsigned_abs() < 1 << 53)?;
    Some((account.to_owned(), amount))
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    if !receiver.secrets.is_empty() && !is_signed(&receiver.secrets, &headers, &body, now) {
        return (StatusCode::UNAUTHORIZED, "the signature is not good\n").into_response();
    }
    // `webhook-id` and not `Idempotency-Key`: it is the one that the signature covers.
    let key = text(&headers, "webhook-id").to_owned();
    if key.is_empty() {
        return (StatusCode::BAD_REQUEST, "no webhook-id\n").into_response();
    }
    let Some((account, amount)) = credit_in(&body) else {
        return (StatusCode::UNPROCESSABLE_ENTITY, "no data with account and amount\n").into_response();
    };
    let source = headers.get("oncebox-source").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let fence = text(&headers, "oncebox-fence").parse().ok();
    let delivery = Delivery { key, digest: digest_of(&body), source, fence, account, amount };
    match process_once(&receiver.pool, &delivery).await {
        Ok(Receipt::Processed) => "processed\n".into_response(),
        Ok(Receipt::SeenBefore { digest }) if digest == delivery.digest => "seen before\n".into_response(),
        Ok(Receipt::SeenBefore { .. }) => {
            eprintln!("the key {} came with another body, of digest {}", delivery.key, delivery.digest);
            "seen before with other bytes; the first are kept\n".into_response()
        }
        Err(trouble) => trouble.into_response(),
    }
}

async fn status(State(receiver): State<Arc<Receiver>>, Path(key): Path<String>) -> Response {
    match is_processed(&receiver.pool, &key).await {
        Ok(true) => "processed\n".into_response(),
        Ok(false) => (StatusCode::NOT_FOUND, "not processed\n").into_response(),
        Err(trouble) => trouble.into_response(),
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        match self {
            Self::InProgress => (StatusCode::CONFLICT, "this key is being processed\n").into_response(),
            Self::OutcomeUnknown(error) => {
                eprintln!("commit: {error:?}");
                (StatusCode::INTERNAL_SERVER_ERROR, "perhaps processed\n").into_response()
            }
            Self::Connect(_) | Self::Database(_) => {
                eprintln!("database: {self:?}");
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], "not processed\n").into_response()
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config: tokio_postgres::Config = std::env::var("DATABASE_URL").context("DATABASE_URL")?.parse()?;
    let pool = Pool::builder(Manager::new(config, NoTls))
        .max_size(8)
        .wait_timeout(Some(Duration::from_secs(5)))
        .create_timeout(Some(Duration::from_secs(5)))
        .runtime(Runtime::Tokio1)
        .build()?;
    pool.get().await?.batch_execute(TABLES).await?;
    let secrets = secrets_in(&std::env::var("WEBHOOK_SECRET").unwrap_or_default())?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8082".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let router = Router::new()
        .route("/events", post(receive))
        .route("/events/{key}", get(status))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(Arc::new(Receiver { pool, secrets }));
    Ok(axum::serve(listener, router).await?)
}
