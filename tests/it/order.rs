//! Order per key: whatever fails, dies or moves, the events of one key on one partition arrive one after the other.

use std::collections::HashMap;

use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

fn config(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.delivery.push_str("\n      ordering: key");
    config
}

/// Key and number of a request's event.
fn step(seen: &Seen) -> (String, u64) {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
    (body["data"]["key"].as_str().unwrap_or("null").to_owned(), body["data"]["n"].as_u64().expect("a number"))
}

fn send(topic: &Topic, keys: u32, numbers: std::ops::Range<u32>) {
    for n in numbers {
        for key in 0..keys {
            let (key, value) = (format!("k{key}"), format!(r#"{{"key":"k{key}","n":{n}}}"#));
            topic.send_raw(None, Some(key.as_bytes()), Some(value.as_bytes()), None);
        }
    }
    topic.flush();
}

/// Each event is first received after the one before it in its lane has been processed.
fn in_order(receiver: &TestReceiver, skipped: &[(&str, u64)]) {
    let mut first: HashMap<String, Vec<u64>> = HashMap::new();
    for seen in receiver.seen() {
        let (key, n) = step(&seen);
        let list = first.entry(key).or_default();
        if !list.contains(&n) {
            list.push(n);
        }
    }
    for (key, list) in first {
        assert!(list.is_sorted(), "{key}: {list:?}");
        let last = list.last().copied().unwrap_or(0);
        let missing = (0..=last).filter(|n| !list.contains(n) && !skipped.contains(&(key.as_str(), *n))).count();
        assert_eq!(missing, 0, "{key}: {list:?}");
    }
}

/// Fails one first attempt in seven, and one in five of all others.
fn flaky(seen: &Seen) -> Answer {
    let (key, n) = step(seen);
    let mix = key.bytes().map(u64::from).sum::<u64>() + 13 * n + 101 * u64::from(seen.attempt);
    match seen.attempt {
        1 if mix % 7 == 0 => Answer::status(500),
        2.. if mix % 5 == 0 => Answer::status(503),
        _ => Answer::Process,
    }
}

#[tokio::test]
async fn failures_and_retries_never_let_a_later_event_of_a_key_overtake() {
    let (topic, database, receiver) =
        (Topic::new(2).await, TestDatabase::new().await, TestReceiver::deciding(flaky).await);
    let relay = Relay::start(&config(&topic, &database, &receiver));
    send(&topic, 20, 0..40);
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 800).then_some(())).await;
    in_order(&receiver, &[]);
    eventually("nothing waits", PATIENCE, async || {
        (database.count("select count(*) from oncebox.retry").await == 0).then_some(())
    })
    .await;
    drop(relay);
}

#[tokio::test]
async fn order_is_kept_over_kills_and_rebalances() {
    let (topic, database, receiver) =
        (Topic::new(3).await, TestDatabase::new().await, TestReceiver::deciding(flaky).await);
    let config = config(&topic, &database, &receiver);
    let mut relays = [Relay::start(&config), Relay::start(&config)];
    let mut sent = 0;
    for turn in 0..6 {
        send(&topic, 15, sent..sent + 10);
        sent += 10;
        let enough = 15 * (sent as usize - 8);
        eventually("some of it", PATIENCE, async || (receiver.applied() >= enough).then_some(())).await;
        match turn % 3 {
            2 => assert_eq!(relays[turn % 2].stop().await, Some(0)),
            _ => relays[turn % 2].kill(),
        }
        relays[turn % 2] = Relay::start(&config);
    }
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 15 * sent as usize).then_some(())).await;
    in_order(&receiver, &[]);
}

#[tokio::test]
async fn a_dead_letter_holds_up_its_own_key_until_it_is_replayed_and_nothing_else() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let mended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_mended = std::sync::Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |seen| match step(seen) {
        (key, 2) if key == "k1" && !is_mended.load(std::sync::atomic::Ordering::Acquire) => Answer::status(422),
        _ => Answer::Process,
    })
    .await;
    let relay = Relay::start(&config(&topic, &database, &receiver));
    send(&topic, 3, 0..10);
    eventually("the other keys go on", PATIENCE, async || (receiver.applied() == 22).then_some(())).await;
    eventually("a blocked key", PATIENCE, async || {
        relay.metric("oncebox_blocked_keys", "workflow=\"orders\"").await.filter(|count| *count == 1.0)
    })
    .await;
    assert_eq!(database.count("select count(*) from oncebox.retry where held = 'order'").await, 7);
    send(&topic, 3, 10..12);
    eventually("and later ones too", PATIENCE, async || (receiver.applied() == 26).then_some(())).await;
    mended.store(true, std::sync::atomic::Ordering::Release);
    let listed = oncebox(&["dead-letters", "list", "--json"], &relay.config_path());
    let letters: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("a list");
    let id = letters[0]["id"].as_str().expect("an id").to_owned();
    let replayed = oncebox(&["dead-letters", "replay", &id], &relay.config_path());
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    eventually("the key goes on", PATIENCE, async || (receiver.applied() == 36).then_some(())).await;
    in_order(&receiver, &[]);
}

#[tokio::test]
async fn on_key_failure_continue_lets_the_later_events_of_a_key_go_on() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match step(seen) {
        (key, 2) if key == "k1" => Answer::status(422),
        (key, 5) if key == "k0" && seen.attempt < 3 => Answer::status(500),
        _ => Answer::Process,
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery.push_str("\n      onKeyFailure: continue");
    let relay = Relay::start(&config);
    send(&topic, 3, 0..10);
    eventually("all but one", PATIENCE, async || (receiver.applied() == 29).then_some(())).await;
    in_order(&receiver, &[("k1", 2)]);
    assert_eq!(relay.metric("oncebox_blocked_keys", "workflow=\"orders\"").await, Some(0.0));
}

#[tokio::test]
async fn the_ordering_key_may_be_a_field_and_null_keeps_no_order() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match step(seen) {
        (_, 60) => Answer::status(503),
        (key, _) if key == "null" => Answer::Process,
        _ => flaky(seen),
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery.push_str("\n      orderingKey: .key");
    let relay = Relay::start(&config);
    for n in 0..60 {
        let value = format!(r#"{{"key":"k{}","n":{}}}"#, n % 3, n / 3);
        topic.send_raw(None, None, Some(value.as_bytes()), None);
    }
    topic.flush();
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 60).then_some(())).await;
    in_order(&receiver, &[]);
    assert_eq!(database.count("select count(*) from oncebox.outbox where lane is null").await, 0);
    // One without a key that fails for ever holds up none of the others without.
    for n in 60..70 {
        let value = format!(r#"{{"key":null,"n":{n}}}"#);
        topic.send_raw(None, None, Some(value.as_bytes()), None);
    }
    topic.flush();
    eventually("all but the first arrive", PATIENCE, async || (receiver.applied() == 69).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.outbox where lane is null").await, 10);
    drop(relay);
}

/// The events of one record, `count` of them, of one key.
fn send_many(topic: &Topic, key: &str, n: u32, count: u32) {
    let value = format!(r#"{{"key":"{key}","n":{n},"count":{count}}}"#);
    topic.send_raw(None, Some(key.as_bytes()), Some(value.as_bytes()), None);
}

#[tokio::test]
async fn a_record_with_more_events_than_may_start_keeps_their_order_at_most_once() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = config(&topic, &database, &receiver);
    config.guarantee = "at-most-once";
    config.delivery = "concurrency: 1\n      ordering: key".to_owned();
    config.extra = "transform: '.key as $k | .n as $n | range(.count) | {key: $k, n: ($n + .)}'".to_owned();
    let relay = Relay::start(&config);
    for n in 0..10 {
        send_many(&topic, "a", 5 * n, 5);
        send_many(&topic, "b", 5 * n, 5);
    }
    topic.flush();
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 100).then_some(())).await;
    in_order(&receiver, &[]);
    assert_eq!(receiver.seen().len(), 100, "each once");
    drop(relay);
}

#[tokio::test]
async fn what_waited_for_its_turn_goes_when_order_is_no_longer_kept() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match step(seen) {
        (key, 0) if key == "k0" => Answer::status(422),
        _ => Answer::Process,
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    let mut relay = Relay::start(&config);
    // More than are let go at once.
    send(&topic, 1, 0..2_100);
    send(&topic, 2, 2_100..2_105);
    eventually("one key goes on", PATIENCE, async || (receiver.applied() == 5).then_some(())).await;
    let waiting = "select count(*) from oncebox.retry where held = 'order'";
    eventually("the other waits", PATIENCE, async || (database.count(waiting).await == 2_104).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    config.delivery = config.delivery.replace("ordering: key", "ordering: none");
    let relay = Relay::start(&config);
    eventually("it goes on", PATIENCE, async || (receiver.applied() == 2_109).then_some(())).await;
    drop(relay);
}

/// The receiver answers while the command line is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_events_of_a_key_go_out_in_order_too() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let mended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_mended = std::sync::Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |seen| match step(seen) {
        (_, 2..6) if !is_mended.load(std::sync::atomic::Ordering::Acquire) => Answer::status(422),
        // So that several would be under way at once, if they could be.
        (_, 2..6) => Answer::After(std::time::Duration::from_millis(200), Box::new(Answer::Process)),
        _ => Answer::Process,
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery.push_str("\n      onKeyFailure: continue");
    // A slow machine is no reason for a second request.
    (config.timeout, config.lease) = ("15s", "30s");
    let relay = Relay::start(&config);
    send(&topic, 1, 0..10);
    let dead = "select count(*) from oncebox.dead_letter";
    eventually("four are dead", PATIENCE, async || (database.count(dead).await == 4).then_some(())).await;
    eventually("the others arrive", PATIENCE, async || (receiver.applied() == 6).then_some(())).await;
    mended.store(true, std::sync::atomic::Ordering::Release);
    let before = receiver.seen().len();
    assert!(oncebox(&["pause", "orders"], &relay.config_path()).status.success());
    eventually("it is paused", PATIENCE, async || {
        relay.metric("oncebox_workflow_state", "state=\"paused\"").await.filter(|value| *value == 1.0)
    })
    .await;
    let listed = oncebox(&["dead-letters", "list", "--json"], &relay.config_path());
    let letters: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).expect("a list");
    for letter in letters {
        let replayed =
            oncebox(&["dead-letters", "replay", letter["id"].as_str().expect("an id")], &relay.config_path());
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    }
    assert!(oncebox(&["resume", "orders"], &relay.config_path()).status.success());
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    let again: Vec<u64> = receiver.seen()[before..].iter().map(|seen| step(seen).1).collect();
    // The list begins with the last of them, and so did the replays.
    assert_eq!(again, [2, 3, 4, 5], "each once, in order");
}

#[tokio::test]
async fn a_delay_keeps_the_order_too() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(flaky).await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery.push_str("\n      delay: 2s");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let began = std::time::Instant::now();
    send(&topic, 5, 0..10);
    let waiting = "select count(*) from oncebox.retry where state in ('pending', 'scheduled')";
    eventually("all wait", PATIENCE, async || (database.count(waiting).await == 50).then_some(())).await;
    assert!(receiver.seen().is_empty() || began.elapsed() >= std::time::Duration::from_secs(2), "not before its time");
    relay.kill();
    let relay = Relay::start(&config);
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 50).then_some(())).await;
    in_order(&receiver, &[]);
    drop(relay);
}
