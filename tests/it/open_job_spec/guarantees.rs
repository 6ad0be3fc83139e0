//! The delivery guarantees that the Open Job Spec numbers DG-001 to DG-015, each seen from outside. What needs a nemesis is proven at length
//! elsewhere; here is that each number means something.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use super::case::becomes;
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn services() -> (Topic, TestDatabase, TestReceiver) {
    (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await)
}

async fn submit(relay: &Relay, event: Value) -> String {
    let (status, body) = relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
    assert_eq!(status, 201, "{body}");
    body["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn dg_001_dg_008_without_a_guarantee_in_the_yaml_every_event_arrives_over_a_kill() {
    let (topic, database, receiver) = services().await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "";
    let mut relay = Relay::start(&config);
    topic.send_orders(0..200);
    topic.flush();
    eventually("some are delivered", PATIENCE, async || (receiver.applied() > 20).then_some(())).await;
    relay.kill();
    let _second = Relay::start(&config);
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 200).then_some(())).await;
}

#[tokio::test]
async fn dg_002_an_event_that_was_answered_201_outlives_a_kill_right_after_it() {
    let (topic, database, receiver) = services().await;
    let config = Config::new(&topic, &database, &receiver);
    let mut kept = HashSet::new();
    for round in 0..3 {
        let mut relay = Relay::start(&config);
        relay.ready().await;
        let later = json!({"type": "t", "data": round, "scheduled_at": "2126-01-01T00:00:00Z"});
        kept.insert(submit(&relay, later).await);
        relay.kill();
    }
    let relay = Relay::start(&config);
    relay.ready().await;
    for id in kept {
        assert_eq!(relay.ask(&format!("/v1/events/{id}")).await["state"], "scheduled");
    }
}

#[tokio::test]
async fn dg_003_dg_004_dg_005_dg_006_a_dead_holders_event_is_sent_again_after_its_lease_and_not_before_with_the_same_bytes()
 {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // The first request is never answered.
    let first = std::sync::atomic::AtomicBool::new(true);
    let receiver = TestReceiver::deciding(move |_| match first.swap(false, std::sync::atomic::Ordering::SeqCst) {
        true => Answer::Hang,
        false => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("4s", "5s");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let id = submit(&relay, json!({"type": "t", "data": {"n": 1}})).await;
    eventually("it is sent", PATIENCE, async || (receiver.seen().len() == 1).then_some(())).await;
    let sent = Instant::now();
    relay.kill();
    let second = Relay::start(&config);
    second.ready().await;
    becomes(&second, &id, "completed").await;
    // The lease was taken a moment before the request was seen.
    assert!(sent.elapsed() > Duration::from_secs(4), "after {:?}", sent.elapsed());
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2, "one live lease at a time");
    assert_eq!((&seen[0].body, &seen[0].key), (&seen[1].body, &seen[1].key), "DG-005, DG-010");
}

#[tokio::test]
async fn dg_007_dg_011_what_has_ended_stays_so_and_what_was_written_is_read_at_once() {
    let (topic, database, receiver) = services().await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let mut last = String::new();
    for n in 0..100 {
        last = submit(&relay, json!({"type": "t", "data": n})).await;
        let (status, _) = relay.call("GET", &format!("/v1/events/{last}"), None, None).await;
        assert_eq!(status, 200, "DG-011: event {n}");
    }
    becomes(&relay, &last, "completed").await;
    for (path, body) in [("cancel", json!({})), ("resolve", json!({"to": "redeliver"}))] {
        let (status, answer) = relay.call("POST", &format!("/v1/events/{last}/{path}"), None, Some(body)).await;
        assert_eq!(status, 409, "{path}: {answer}");
    }
    assert_eq!(relay.ask(&format!("/v1/events/{last}")).await["state"], "completed");
}

#[tokio::test]
async fn dg_009_an_endpoint_that_answers_late_in_its_time_is_asked_once() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::After(Duration::from_secs(3), Box::new(Answer::Process))).await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("4s", "4100ms");
    let relay = Relay::start(&config);
    relay.ready().await;
    let id = submit(&relay, json!({"type": "t", "data": 1})).await;
    becomes(&relay, &id, "completed").await;
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn dg_010_the_key_is_a_structured_string_in_its_header_and_the_same_in_the_body() {
    let (topic, database, receiver) = services().await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let id = submit(&relay, json!({"type": "t", "data": 1, "key": "order-17"})).await;
    becomes(&relay, &id, "completed").await;
    let seen = receiver.seen();
    let key = (seen[0].header("idempotency-key"), seen[0].header("webhook-id"));
    assert_eq!(key, (Some("\"order-17\""), Some("order-17")));
    let body: Value = serde_json::from_slice(&seen[0].body).expect("JSON");
    assert_eq!(body["idempotencyKey"], "order-17");
}

#[tokio::test]
async fn dg_012_a_success_that_comes_after_the_lease_counts_and_the_failure_after_it_changes_nothing() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // The first request succeeds while its sender stands still; the second, of whoever took over, fails long after.
    let receiver = TestReceiver::deciding(|seen| match seen.attempt {
        1 => Answer::After(Duration::from_secs(3), Box::new(Answer::Process)),
        _ => Answer::After(Duration::from_secs(10), Box::new(Answer::status(500))),
    })
    .await;
    let mut slow = Config::new(&topic, &database, &receiver);
    (slow.timeout, slow.lease) = ("4s", "5s");
    let stopped = Relay::start(&slow);
    stopped.ready().await;
    let id = submit(&stopped, json!({"type": "t", "data": 1})).await;
    eventually("it is sent", PATIENCE, async || (receiver.seen().len() == 1).then_some(())).await;
    stopped.signal(19);
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("20s", "22s");
    let other = Relay::start(&config);
    other.ready().await;
    eventually("it is sent again", PATIENCE, async || (receiver.seen().len() == 2).then_some(())).await;
    stopped.signal(18);
    becomes(&other, &id, "completed").await;
    eventually("it counts as late", PATIENCE, async || {
        (stopped.metric("oncebox_late_acks_total", "orders").await? >= 1.0).then_some(())
    })
    .await;
    // Written down, it is ignored: were it to be tried again, that would be due in 100 ms.
    eventually("the failure is written down", PATIENCE, async || {
        (other.metric("oncebox_fenced_writes_total", "orders").await? >= 1.0
            || database.count("select count(*) from oncebox.attempt where status = 500").await == 1)
            .then_some(())
    })
    .await;
    // An event after it takes 3 s to be answered: a retry of this one would have gone out meanwhile.
    let after = submit(&other, json!({"type": "t", "data": 2})).await;
    becomes(&other, &after, "completed").await;
    assert_eq!(other.ask(&format!("/v1/events/{id}")).await["state"], "completed");
    assert_eq!(receiver.seen().iter().filter(|seen| seen.event == id).count(), 2);
}

#[tokio::test]
async fn dg_013_at_most_once_loses_rather_than_repeats_and_says_which() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::Hang).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "at-most-once";
    (config.timeout, config.lease) = ("4s", "5s");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let id = submit(&relay, json!({"type": "t", "data": 1})).await;
    eventually("it is sent", PATIENCE, async || (receiver.seen().len() == 1).then_some(())).await;
    relay.kill();
    let second = Relay::start(&config);
    second.ready().await;
    becomes(&second, &id, "discarded").await;
    assert_eq!(second.ask(&format!("/v1/dead-letters/{id}")).await["reason"], "in_doubt");
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn dg_014_the_events_of_a_key_go_out_one_after_the_other_over_failures() {
    let topic = Topic::new(1).await;
    let database = TestDatabase::new().await;
    let receiver = TestReceiver::deciding(|seen| match seen.attempt {
        1 if String::from_utf8_lossy(&seen.body).contains("\"n\":3") => Answer::status(503),
        _ => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      ordering: key");
    (config.timeout, config.lease) = ("10s", "12s");
    let _relay = Relay::start(&config);
    for n in 0..10 {
        topic.send_raw(None, Some(b"one"), Some(format!("{{\"n\":{n}}}").as_bytes()), None);
    }
    topic.flush();
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    let numbers = receiver.seen().into_iter().map(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        body["data"]["n"].as_i64().expect("a number")
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn dg_015_the_guarantees_that_are_offered_are_told() {
    let (topic, database, receiver) = services().await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let told = relay.ask("/v1/capabilities").await;
    assert_eq!(told["guarantees"], json!(["at-most-once", "at-least-once", "idempotent-keys", "exactly-once"]));
    assert_eq!(told["ordering"], json!(["none", "key"]));
    assert_eq!(told["uniqueness"]["strength"], "strong");
    assert!(told["uniqueness"]["mechanism"].as_str().is_some_and(|text| text.contains("locked")), "{told}");
}
