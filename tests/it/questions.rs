//! Questions that read much: they hold up nothing else, and end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services};

/// Less than a question that waits may take.
const SOON: Duration = Duration::from_secs(5);

async fn relay() -> (Topic, TestDatabase, TestReceiver, Relay) {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    (topic, database, receiver, relay)
}

/// Nobody reads these tables, until it is rolled back.
async fn locked(database: &TestDatabase, tables: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&services().database_url, NoTls).await.expect("Postgres answers");
    tokio::spawn(connection);
    let text = format!("begin; lock table {tables} in access exclusive mode");
    client.batch_execute(&text.replace("oncebox.", &format!("{}.", database.schema))).await.expect("a lock");
    client
}

/// How many wait for a lock, of those that ask this.
fn waiting(database: &TestDatabase, asked: &str) -> String {
    format!(
        "select count(*) from pg_locks as l join pg_stat_activity as a using (pid)
          where not l.granted and a.query like '%{asked}%' and a.query like '%{}.%'",
        database.schema
    )
}

async fn await_count(database: &TestDatabase, wanted: i64, text: &str) {
    let check = async || (database.count(text).await == wanted).then_some(());
    eventually(&format!("{wanted} from {text}"), PATIENCE, check).await;
}

/// What is answered while others wait.
async fn soon(relay: &Relay, method: &str, path: &str, body: Value) -> (u16, Value) {
    let began = Instant::now();
    let answer = relay.call(method, path, None, Some(body)).await;
    assert!(began.elapsed() < SOON, "{method} {path} took {:?}: {answer:?}", began.elapsed());
    answer
}

#[tokio::test]
async fn a_search_that_finds_no_end_holds_up_nothing_and_is_told_from_what_may_help_later() {
    let (_topic, database, _receiver, relay) = relay().await;
    // Only the search reads it.
    let lock = locked(&database, "oncebox.remark").await;
    let waiting = waiting(&database, "with one idempotency key");
    let search = relay.call("GET", "/v1/events?workflow=orders&key=none", None, None);
    let others = async {
        await_count(&database, 1, &waiting).await;
        for (method, path) in [
            ("POST", "/v1/workflows/orders/pause"),
            ("GET", "/v1/workflows"),
            ("GET", "/v1/workflows/orders"),
            ("GET", "/v1/audit"),
            ("POST", "/v1/workflows/orders/resume"),
        ] {
            let (status, said) = soon(&relay, method, path, json!({})).await;
            assert_eq!(status, 200, "{method} {path}: {said}");
        }
        assert_eq!(database.count(&waiting).await, 1, "it is still searching");
    };
    let ((status, said), ()) = tokio::join!(search, others);
    let error = &said["error"];
    assert_eq!(
        (status, &error["code"], &error["retryable"]),
        (422, &json!("too_much_to_search"), &json!(false)),
        "{said}"
    );
    await_count(&database, 0, &waiting).await;
    lock.batch_execute("rollback").await.expect("it is open again");
    let found = relay.ask("/v1/events?workflow=orders&key=none").await;
    assert_eq!(found["items"], json!([]));
}

#[tokio::test]
async fn an_event_is_taken_and_found_by_its_key_while_a_proof_is_under_way() {
    let (_topic, database, _receiver, relay) = relay().await;
    let path = "/v1/workflows/orders/events";
    let event = |key: &str| json!({"type": "t", "data": {"n": 1}, "key": key});
    let (status, first) = relay.call("POST", path, None, Some(event("order-7"))).await;
    assert_eq!(status, 201, "{first}");
    // The proof reads the one; whoever looks at an event, the other.
    let lock = locked(&database, "oncebox.ledger, oncebox.attempt").await;
    let proof = relay.call("GET", "/v1/workflows/orders/verify", None, None);
    let others = async {
        await_count(&database, 1, &waiting(&database, "what is on record of their offsets")).await;
        let (status, found) = soon(&relay, "GET", "/v1/events?workflow=orders&key=order-7", json!({})).await;
        assert_eq!((status, &found["items"][0]["id"]), (200, &first["id"]), "{found}");
        let (status, second) = soon(&relay, "POST", path, event("order-8")).await;
        assert_eq!(
            (status, &second["state"], &second["key"]),
            (201, &json!("available"), &json!("order-8")),
            "{second}"
        );
        assert!(second["createdAt"].is_string() && second["eventType"] == "t", "{second}");
        lock.batch_execute("rollback").await.expect("it is open again");
    };
    let ((status, proven), ()) = tokio::join!(proof, others);
    assert_eq!((status, &proven["gaps"]), (200, &json!(0)), "{proven}");
}

/// It outlives a question by a moment, for the next one.
#[tokio::test]
async fn the_connection_for_slow_questions_is_closed_when_nobody_asks() {
    let (_topic, database, _receiver, relay) = relay().await;
    let asked = format!(
        "select count(*) from pg_stat_activity where query like '%with one idempotency key%' and query like '%{}.%' \
         and pid <> pg_backend_pid()",
        database.schema
    );
    assert_eq!(relay.ask("/v1/events?workflow=orders&key=none").await["items"], json!([]));
    await_count(&database, 1, &asked).await;
    await_count(&database, 0, &asked).await;
    // And is there again.
    assert_eq!(relay.ask("/v1/events?workflow=orders&key=none").await["items"], json!([]));
}
