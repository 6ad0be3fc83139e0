//! Receivers with the flaws that the guide warns of, under the same tests: these must find them, or prove nothing. And one
//! that looks first under a lock, which they must let pass.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use deadpool_postgres::{Manager, Pool};
use serde_json::Value;
use tokio_postgres::{GenericClient, NoTls};

use super::books::Books;
use super::delivery::Delivery;
use crate::support::lossy::Mode;

#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Looks whether the key is there, has the effect, writes the key down.
    ChecksThenActs,
    /// Writes the key down, has the effect in another transaction, and sometimes dies in between.
    RecordsThenActs,
    /// Looks, acts and records in one transaction that holds a lock on the key.
    ChecksUnderALock,
}

const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 0))";
const IS_KNOWN: &str = "select count(*) from processed_events where key = $1";
const RECORD: &str = "insert into processed_events (key, digest) values ($1, '') on conflict (key) do nothing";
const ACT: &str = "insert into accounts (name, balance) values ($1, $2)
                   on conflict (name) do update set balance = accounts.balance + excluded.balance";

async fn receive(State((pool, manner)): State<(Pool, Manner)>, headers: HeaderMap, body: String) -> StatusCode {
    let mut client = pool.get().await.expect("a connection");
    let key = headers["webhook-id"].to_str().expect("text").to_owned();
    match manner {
        Manner::ChecksThenActs => {
            let known: i64 = client.query_one(IS_KNOWN, &[&key]).await.expect("it is read").get(0);
            if known == 0 {
                act(&**client, &body).await;
                client.execute(RECORD, &[&key]).await.expect("it is written");
            }
        }
        Manner::RecordsThenActs => {
            if client.execute(RECORD, &[&key]).await.expect("it is written") == 1 {
                if key.ends_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', '0', '5']) {
                    return StatusCode::INTERNAL_SERVER_ERROR;
                }
                act(&**client, &body).await;
            }
        }
        Manner::ChecksUnderALock => {
            let transaction = client.transaction().await.expect("it begins");
            transaction.execute(LOCK, &[&key]).await.expect("it is locked");
            let known: i64 = transaction.query_one(IS_KNOWN, &[&key]).await.expect("it is read").get(0);
            if known == 0 {
                act(&*transaction, &body).await;
                transaction.execute(RECORD, &[&key]).await.expect("it is written");
            }
            transaction.commit().await.expect("it is committed");
        }
    }
    StatusCode::OK
}

async fn act(client: &impl GenericClient, body: &str) {
    let event: Value = serde_json::from_str(body).expect("JSON");
    let (account, amount) = (event["data"]["account"].as_str(), event["data"]["amount"].as_i64());
    client.execute(ACT, &[&account, &amount]).await.expect("it is written");
}

async fn start(manner: Manner, books: &Books) -> SocketAddr {
    books
        .database
        .execute(
            "create table processed_events (key text primary key, digest text not null);
             create table accounts (name text primary key, balance bigint not null)",
        )
        .await;
    let manager = Manager::new(books.url().parse().expect("a URL"), NoTls);
    let pool = Pool::builder(manager).max_size(8).build().expect("a pool");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/events", post(receive)).with_state((pool, manner));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn differences(manner: Manner) -> Vec<String> {
    let books = Books::open().await;
    let address = start(manner, &books).await;
    let delivery = Delivery::start(address).await;
    delivery.send(0..40);
    delivery.post_copies(address, 40).await;
    delivery.proxy.set(Mode::Lossy);
    delivery.settled(40, 0).await;
    delivery.differences(&books, 0..40).await
}

#[tokio::test]
async fn a_receiver_that_checks_and_then_acts_is_found_out() {
    let differences = differences(Manner::ChecksThenActs).await;
    assert!(!differences.is_empty(), "copies at the same time were applied once each");
}

#[tokio::test]
async fn a_receiver_that_records_and_then_acts_is_found_out() {
    let differences = differences(Manner::RecordsThenActs).await;
    assert!(!differences.is_empty(), "nothing was lost between the two transactions");
}

#[tokio::test]
async fn a_receiver_that_checks_under_a_lock_is_not_faulted() {
    assert_eq!(differences(Manner::ChecksUnderALock).await, Vec::<String>::new());
}
