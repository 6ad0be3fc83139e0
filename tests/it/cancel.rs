//! Cancelling: what waits ends at once and is never sent, what is on its way is asked for, and nothing leaves its end again.

use std::time::Duration;

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn cancel(relay: &Relay, id: &str) -> (u16, Value) {
    relay.call("POST", &format!("/v1/events/{id}/cancel"), None, Some(json!({}))).await
}

async fn ids(relay: &Relay) -> Vec<String> {
    let listed = relay.ask("/v1/events?workflow=orders").await;
    let items = listed["items"].as_array().expect("a list");
    items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

async fn becomes(relay: &Relay, id: &str, wanted: &str) {
    let check = async || (relay.ask(&format!("/v1/events/{id}")).await["state"] == wanted).then_some(());
    eventually(&format!("{id} is {wanted}"), PATIENCE, check).await;
}

#[tokio::test]
async fn what_waits_for_its_first_attempt_is_cancelled_at_once_and_never_sent() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    // Claimed one by one, as they start.
    config.guarantee = "at-most-once";
    migrated(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oncebox.yaml");
    std::fs::write(&path, config.yaml(1)).expect("the configuration is written");
    assert!(oncebox(&["pause", "orders"], &path).status.success());
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..10);
    let stored = "select count(*) from oncebox.outbox";
    eventually("all are stored", PATIENCE, async || (database.count(stored).await == 10).then_some(())).await;
    let ids = ids(&relay).await;
    for id in ids.iter().step_by(2) {
        let (status, body) = cancel(&relay, id).await;
        assert_eq!((status, body), (200, json!({"id": id, "cancelRequested": false})));
    }
    // Once more changes nothing.
    assert_eq!(cancel(&relay, &ids[0]).await.0, 200);
    let (status, _) = relay.call("POST", "/v1/workflows/orders/resume", None, Some(json!({}))).await;
    assert_eq!(status, 200);
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 5).then_some(())).await;
    for (at, id) in ids.iter().enumerate() {
        becomes(&relay, id, if at % 2 == 0 { "cancelled" } else { "completed" }).await;
    }
    let (status, body) = cancel(&relay, &ids[1]).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("event_ended")), "{body}");
    assert_eq!(receiver.lines().len(), 5, "nothing else was sent");
    assert_eq!(relay.ask("/v1/workflows/orders/verify").await["gaps"], 0);
    let forgotten = async || (database.count("select count(*) from oncebox.cancel").await == 0).then_some(());
    eventually("requests are forgotten", PATIENCE, forgotten).await;
    let audited = "select count(*) from oncebox.audit where action = 'event cancelled'";
    assert_eq!(database.count(audited).await, 5);
}

#[tokio::test]
async fn what_is_on_its_way_is_completed_by_a_delivery_and_cancelled_by_anything_else() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // The first is delivered, the second refused, the third fails: each after a while, so that it can be cancelled meanwhile.
    let receiver = TestReceiver::deciding(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        let answer = match body["data"]["id"].as_u64() {
            Some(0) => Answer::Process,
            Some(1) => Answer::status(422),
            _ => Answer::status(503),
        };
        Answer::After(Duration::from_secs(2), Box::new(answer))
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("5s", "8s");
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..3);
    topic.flush();
    eventually("all are on their way", PATIENCE, async || (receiver.seen().len() == 3).then_some(())).await;
    let ids = ids(&relay).await;
    for id in &ids {
        let (status, body) = cancel(&relay, id).await;
        assert_eq!((status, body), (202, json!({"id": id, "cancelRequested": true})));
        assert_eq!(relay.ask(&format!("/v1/events/{id}")).await["cancelRequested"], true);
    }
    becomes(&relay, &ids[0], "completed").await;
    becomes(&relay, &ids[1], "cancelled").await;
    becomes(&relay, &ids[2], "cancelled").await;
    assert_eq!(receiver.seen().len(), 3, "none was tried again");
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.retry").await, 0);
}

#[tokio::test]
async fn what_was_claimed_and_not_sent_is_dropped() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::After(Duration::from_secs(1), Box::new(Answer::Process))).await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("5s", "8s");
    // One after the other; the rest is claimed ahead.
    config.delivery.push_str("\n      concurrency: 1");
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..6);
    topic.flush();
    eventually("the first is on its way", PATIENCE, async || (!receiver.seen().is_empty()).then_some(())).await;
    let stored = "select count(*) from oncebox.outbox";
    eventually("all are stored", PATIENCE, async || (database.count(stored).await == 6).then_some(())).await;
    let ids = ids(&relay).await;
    let last = ids.last().expect("six");
    assert!([200, 202].contains(&cancel(&relay, last).await.0));
    becomes(&relay, last, "cancelled").await;
    for id in &ids[..5] {
        becomes(&relay, id, "completed").await;
    }
    assert_eq!(receiver.lines().len(), 5, "the last was not sent");
    assert_eq!(relay.ask("/v1/workflows/orders/verify").await["gaps"], 0);
}

#[tokio::test]
async fn what_was_cancelled_unsent_is_not_sent_by_whoever_takes_the_rest_over() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::After(Duration::from_secs(1), Box::new(Answer::Process))).await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("5s", "8s");
    config.delivery.push_str("\n      concurrency: 1");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..6);
    topic.flush();
    let stored = "select count(*) from oncebox.outbox";
    eventually("all are stored", PATIENCE, async || (database.count(stored).await == 6).then_some(())).await;
    let ids = ids(&relay).await;
    assert!([200, 202].contains(&cancel(&relay, &ids[4]).await.0));
    becomes(&relay, &ids[4], "cancelled").await;
    // What was claimed and not sent is given back, from before the cancelled one on.
    assert_eq!(relay.stop().await, Some(0));
    assert!(receiver.seen().len() < 5, "{} were sent before", receiver.seen().len());
    let second = Relay::start(&config);
    second.ready().await;
    for id in [&ids[3], &ids[5]] {
        becomes(&second, id, "completed").await;
    }
    assert_eq!(receiver.seen().len(), 5);
    assert_eq!(second.ask(&format!("/v1/events/{}", ids[4])).await["state"], "cancelled");
}
