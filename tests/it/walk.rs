//! The walk of one event, end to end, as a tour: what each stage leaves behind that the next one takes up.

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

#[tokio::test]
async fn one_event_walks_from_kafka_to_the_endpoint() {
    // A topic with one record, a schema of our own, and an endpoint that keeps a log.
    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send(Some("42"), r#"{"id": 42, "amount": 19.90, "note": "as written"}"#);

    // The workflow reshapes it and asks for exactly-once.
    let mut config = Config::new(&topic, &database, &receiver);
    config.extra = "transform: '{orderId: .id, amount}'".to_owned();
    let relay = Relay::start(&config);

    // ingest: the group is joined, every partition has a cursor.
    relay.ready().await;
    let cursors = database.count("select count(*) from oncebox.cursor where workflow = 'orders'").await;
    assert_eq!(cursors, 3);

    // send: the endpoint gets one request.
    let seen = eventually("the request arrives", PATIENCE, async || receiver.seen().into_iter().next()).await;
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(body["eventType"], "OrderChanged");
    assert_eq!(body["data"], serde_json::json!({"orderId": 42, "amount": 19.90}));
    assert_eq!(body["idempotencyKey"], seen.key.as_str());
    assert_eq!(seen.header("idempotency-key"), Some(format!("\"{}\"", seen.key).as_str()));
    assert_eq!(seen.header("webhook-id"), Some(seen.key.as_str()));
    assert_eq!(seen.attempt, 1);
    assert!(seen.source.starts_with(&format!("{}/", topic.name)) && seen.source.ends_with("/0"));
    assert_eq!(seen.header("content-digest"), Some(format!("sha-256=:{}:", seen.digest).as_str()));

    // settle: the event is in done, and nowhere else.
    eventually("the delivery is settled", PATIENCE, async || {
        (database.count("select count(*) from oncebox.done where state = 'completed'").await == 1).then_some(())
    })
    .await;
    assert_eq!(database.count("select count(*) from oncebox.retry").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 1);

    // observe: the counters moved, and nothing is late.
    eventually("the metrics show it", PATIENCE, async || {
        let delivered = relay.metric("oncebox_delivered_total", "workflow=\"orders\"").await? == 1.0;
        let lag = relay.metric("oncebox_delivery_lag_seconds", "workflow=\"orders\"").await? == 0.0;
        (delivered && lag).then_some(())
    })
    .await;

    // A clean end gives everything back.
    let mut relay = relay;
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!(database.count("select count(*) from oncebox.delivery where owner is not null").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.cursor where owner is not null").await, 0);
}
