//! Events over HTTP are like those from Kafka afterwards: delayed, traced, counted, proven, and on record.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::case::{self, Case};
use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Gives an event as part of a trace. Answers the status.
async fn traced(relay: &Relay, event: &Value) -> u16 {
    let body = event.to_string();
    let head = format!(
        "POST /v1/workflows/orders/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         traceparent: {TRACE}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", relay.port)).await.expect("the relay listens");
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[tokio::test]
async fn an_event_over_http_is_delayed_traced_counted_and_on_record() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "delay: 2s".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    let event = json!({"type": "OrderTouched", "data": {"id": 7}, "key": "order-7"});
    assert_eq!(traced(&relay, &event).await, 201);
    assert_eq!(traced(&relay, &event).await, 200, "the same again");
    eventually("it is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    let listed = relay.ask("/v1/events?workflow=orders").await;
    let id = listed["items"][0]["id"].as_str().expect("an id").to_owned();
    case::becomes(&relay, &id, "completed").await;
    let shown = relay.ask(&format!("/v1/events/{id}")).await;
    let seen = receiver.seen();
    let body: Value = serde_json::from_slice(&seen[0].body).expect("JSON");
    let at = |value: &Value| value.as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok()).expect("a time");
    // Ends are kept to a tenth of a second.
    let waited = at(&shown["endedAt"]).duration_since(at(&body["timestamp"]));
    assert!(waited.as_millis() > 1_800, "{shown:#}");
    let carried = seen[0].headers.iter().find(|(name, _)| name == "traceparent").map(|(_, value)| value.as_str());
    assert_eq!(carried, Some(TRACE));
    assert_eq!(relay.metric("oncebox_ingested_total", "orders").await, Some(1.0));
    assert_eq!(relay.metric("oncebox_duplicates_suppressed_total", "orders").await, Some(1.0));
    let audit = "select who, detail from oncebox.audit where action = 'events submitted' and workflow = 'orders'";
    let audit: Vec<(String, String)> =
        database.query(audit, &[]).await.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(audit, [("api:local".to_owned(), "1 event".to_owned())]);
}

#[tokio::test]
async fn an_event_over_http_that_nothing_will_deliver_is_found_and_named() {
    let case = Case::with("").await;
    case.stored(json!({"type": "t", "data": {"n": 1}})).await;
    let refused = case.stored(json!({"type": "t", "data": {"answer": 422}})).await;
    let waiting = case.stored(json!({"type": "t", "data": {"answer": 503}})).await;
    case.becomes(&refused, "discarded").await;
    case.becomes(&waiting, "retryable").await;
    eventually("one is delivered", PATIENCE, async || (case.receiver.applied() == 1).then_some(())).await;
    let verify = || {
        let output = oncebox(&["verify", "orders", "--json"], &case.relay.config_path());
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), said)
    };
    let settled = "select count(*) from oncebox.done";
    eventually("two have ended", PATIENCE, async || (case.database.count(settled).await == 2).then_some(())).await;
    let (code, said) = verify();
    let counts = |said: &Value| {
        let partitions = said["partitions"].as_array().expect("partitions").iter();
        let given = partitions.clone().find(|one| one["topic"] == "http").expect("events over HTTP");
        ["delivered", "dead", "waiting"].map(|name| given["counts"][name].as_i64().expect("a number"))
    };
    assert_eq!((code, counts(&said)), (Some(0), [1, 1, 1]), "{said:#}");
    case.database.execute("delete from oncebox.retry").await;
    let (code, said) = verify();
    assert_eq!((code, said["gaps"].as_i64()), (Some(1), Some(1)), "{said:#}");
    assert!(said.to_string().contains(&waiting), "{said:#}");
    case.database.execute("delete from oncebox.dead_letter").await;
    let (code, said) = verify();
    assert_eq!((code, said["gaps"].as_i64()), (Some(1), Some(2)), "{said:#}");
    assert!(said.to_string().contains(&refused), "{said:#}");
}

/// The default guarantee: records go without the outbox, and events over HTTP into it.
#[tokio::test]
async fn a_workflow_without_an_outbox_takes_events_over_http_too() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "";
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..10);
    topic.flush();
    for n in 0..10 {
        let event = json!({"type": "t", "data": {"id": 100 + n}});
        let (status, body) = relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
        assert_eq!(status, 201, "{body}");
    }
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 10);
}
