//! Replays of many dead letters: each once, whatever dies on the way.

use std::process::Stdio;
use std::time::Duration;

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, command, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const LETTERS: &str = "select count(*) from oncebox.dead_letter";

/// A workflow with so many dead letters, whose endpoint takes what is replayed.
async fn with_letters(count: u32, more: &str) -> (Topic, TestDatabase, TestReceiver, Config, Relay) {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.event.contains(".r") { Answer::Process } else { Answer::status(422) })
            .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      deadLetterLimit: {count: 1000000, per: 1s}");
    config.delivery.push_str(more);
    let relay = Relay::start(&config);
    topic.send_orders(0..count);
    let all = async || (database.count(LETTERS).await == i64::from(count)).then_some(());
    eventually("all are dead letters", Duration::from_secs(180), all).await;
    (topic, database, receiver, config, relay)
}

async fn begin(relay: &Relay, wanted: Value) -> String {
    let (status, body) = relay.call("POST", "/v1/dead-letters/replay", None, Some(wanted)).await;
    assert_eq!(status, 202, "{body}");
    body["id"].as_str().expect("an id").to_owned()
}

async fn replayed(database: &TestDatabase, id: &str) -> (String, i64, i64) {
    let rows =
        database.query("select state, replayed, skipped from oncebox.replay where id = $1::text::uuid", &[&id]).await;
    (rows[0].get(0), rows[0].get(1), rows[0].get(2))
}

/// `make replays` has ten thousand of them.
#[tokio::test]
async fn two_kills_during_a_replay_and_each_dead_letter_is_replayed_once() {
    let count: u32 = std::env::var("ONCEBOX_LETTERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let (_topic, database, receiver, config, mut relay) = with_letters(count, "").await;
    let id = begin(&relay, json!({"workflow": "orders", "perSecond": f64::from(count) / 5.0})).await;
    // Asked for again by a caller whose answer was lost: it is the same one.
    assert_eq!(begin(&relay, json!({"workflow": "orders", "id": id})).await, id);
    for part in [4, 2] {
        let far = async || (replayed(&database, &id).await.1 >= i64::from(count / part)).then_some(());
        eventually("it is under way", PATIENCE, far).await;
        relay.kill();
        relay = Relay::start_migrated(&config);
    }
    let over = async || (replayed(&database, &id).await.0 == "completed").then_some(());
    eventually("it is over", Duration::from_secs(120), over).await;
    assert_eq!(replayed(&database, &id).await, ("completed".to_owned(), i64::from(count), 0));
    assert_eq!(database.count(LETTERS).await, 0);
    let all = async || (receiver.applied() == count as usize).then_some(());
    eventually("all are delivered", PATIENCE, all).await;
    assert_eq!(database.count("select count(*) from oncebox.outbox where generation = 1").await, i64::from(count));
    assert_eq!(database.count("select count(*) from oncebox.outbox where generation > 1").await, 0);
    let once = "select count(*) from (select 1 from oncebox.audit where action = 'dead letter replayed' group by detail having count(*) > 1) as twice";
    assert_eq!(database.count(once).await, 0);
}

/// One page of letters takes longer than a lease: it is kept all the same, and nobody else begins.
#[tokio::test]
async fn a_replay_whose_letters_take_long_stays_with_the_process_that_has_it() {
    let (_topic, database, _receiver, config, mut relay) = with_letters(5, "").await;
    assert_eq!(relay.stop().await, Some(0));
    let slow = "replay.before=sleep(4000)";
    let relays = [Relay::start_with(&config, slow), Relay::start_with(&config, slow)];
    for relay in &relays {
        relay.ready().await;
    }
    let id = begin(&relays[0], json!({"workflow": "orders"})).await;
    let over = async || (replayed(&database, &id).await.0 == "completed").then_some(());
    eventually("it is over", PATIENCE, over).await;
    assert_eq!(replayed(&database, &id).await, ("completed".to_owned(), 5, 0));
    let begun = relays.iter().map(|relay| relay.log().matches("replaying dead letters").count());
    assert_eq!(begun.sum::<usize>(), 1, "times that somebody took it up");
}

#[tokio::test]
async fn a_replay_is_paused_resumed_and_cancelled() {
    let (_topic, database, _receiver, _config, relay) = with_letters(200, "").await;
    let id = begin(&relay, json!({"reason": "rejected", "perSecond": 10})).await;
    let begun = async || (replayed(&database, &id).await.1 > 0).then_some(());
    eventually("it is under way", PATIENCE, begun).await;
    let (status, body) = relay.call("POST", &format!("/v1/replays/{id}/pause"), None, None).await;
    assert_eq!((status, &body["state"]), (200, &json!("paused")));
    assert_eq!(relay.call("POST", &format!("/v1/replays/{id}/pause"), None, None).await.0, 200, "said twice");
    // What was under way at that moment ends; then nothing moves.
    let mut last = -1;
    let still = async || {
        let now = replayed(&database, &id).await.1;
        let is_still = now == std::mem::replace(&mut last, now);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        is_still.then_some(now)
    };
    let at_rest = eventually("it is at rest", PATIENCE, still).await;
    assert!(at_rest < 200, "{at_rest}");
    relay.call("POST", &format!("/v1/replays/{id}/resume"), None, None).await;
    let on = async || (replayed(&database, &id).await.1 > at_rest).then_some(());
    eventually("it goes on", PATIENCE, on).await;
    let (_, body) = relay.call("POST", &format!("/v1/replays/{id}/cancel"), None, None).await;
    assert_eq!(body["state"], "cancelled");
    let (status, body) = relay.call("POST", &format!("/v1/replays/{id}/resume"), None, None).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("replay_over")));
    assert!(database.count(LETTERS).await > 0, "what it had not reached stays");
}

#[tokio::test]
async fn a_command_whose_replay_is_cancelled_fails_and_says_how_far_it_was() {
    let (_topic, database, _receiver, _config, relay) = with_letters(20, "").await;
    let mut replay = command();
    replay.args(["dead-letters", "replay", "--all", "--rate", "1", "--url", &relay.url()]);
    replay.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = tokio::process::Command::from(replay).kill_on_drop(true).spawn().expect("oncebox starts");
    let begun = async || {
        let ids = database.query("select id::text from oncebox.replay", &[]).await;
        ids.first().map(|row| row.get::<_, String>(0))
    };
    let id = eventually("it is begun", PATIENCE, begun).await;
    let (status, body) = relay.call("POST", &format!("/v1/replays/{id}/cancel"), None, None).await;
    assert_eq!((status, &body["state"]), (200, &json!("cancelled")));
    let output = waiting.wait_with_output().await.expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("it was cancelled after") && errors.contains("of 20 dead letters"), "{errors}");
}

#[tokio::test]
async fn what_cannot_be_replayed_stays_and_is_counted() {
    let (topic, database, receiver, config, relay) = with_letters(3, "").await;
    topic.send(None, "{not json");
    let four = async || (database.count(LETTERS).await == 4).then_some(());
    eventually("the fourth is a dead letter", PATIENCE, four).await;
    // Straight on Postgres, with no process that runs: the command carries it out itself.
    drop(relay);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oncebox.yaml");
    std::fs::write(&path, config.yaml(0)).expect("written");
    let output = oncebox(&["dead-letters", "replay", "--all", "--json"], &path);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "not all were replayed: {errors}");
    assert!(errors.contains("1 of 4 dead letters were skipped and stay"), "{errors}");
    assert!(errors.contains("still cannot be made into events"), "and why: {errors}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&said["state"], &said["replayed"], &said["skipped"]), (&json!("completed"), &json!(3), &json!(1)));
    assert!(said["problem"].as_str().is_some_and(|why| why.contains("still cannot be made into events")), "{said}");
    assert_eq!(database.count(LETTERS).await, 1);
    let _relay = Relay::start_migrated(&config);
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 3).then_some(())).await;
}

/// A record whose program never ends: the relay lives on, delivers on, and the dead letter stays.
#[tokio::test]
async fn a_record_that_a_program_never_ends_with_is_not_replayed_and_holds_up_nothing() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    let mut relay = Relay::start(&config);
    topic.send(None, "{not json");
    topic.send_orders(0..1);
    let one = async || (database.count(LETTERS).await == 1).then_some(());
    eventually("one is a dead letter", PATIENCE, one).await;
    eventually("the other is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    // The letter's record is one that can be read, and that keeps the new program busy for ever.
    database.execute("update oncebox.dead_letter set body = convert_to('{\"id\": -1}', 'utf8')").await;
    config.extra = "transform: 'if .id == -1 then last(range(1e18)) else . end'".to_owned();
    let relay = Relay::start_migrated(&config);
    relay.ready().await;
    let id = relay.ask("/v1/dead-letters").await["items"][0]["id"].as_str().expect("an id").to_owned();
    for _ in 0..2 {
        let (status, body) = relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(json!({}))).await;
        assert_eq!((status, &body["error"]["code"]), (409, &json!("still_invalid")), "{body}");
    }
    topic.send_orders(1..20);
    eventually("deliveries go on", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    assert_eq!(database.count(LETTERS).await, 1);
}

/// The thread that it runs on cannot be ended: others have threads of their own.
#[tokio::test]
async fn a_record_that_a_program_never_ends_with_holds_up_no_other_replay() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    let mut relay = Relay::start(&config);
    for _ in 0..2 {
        topic.send(None, "{not json");
    }
    let both = async || (database.count(LETTERS).await == 2).then_some(());
    eventually("both are dead letters", PATIENCE, both).await;
    assert_eq!(relay.stop().await, Some(0));
    // Records that can be read: one keeps the new program busy for ever, the other does not.
    database
        .execute(
            "update oncebox.dead_letter
                set body = convert_to(case record_offset when 0 then '{\"id\": -1}' else '{\"id\": 7}' end, 'utf8')",
        )
        .await;
    config.extra = "transform: 'if .id == -1 then last(range(1e18)) else . end'".to_owned();
    let relay = Relay::start_migrated(&config);
    relay.ready().await;
    let letters = relay.ask("/v1/dead-letters").await;
    let letters = letters["items"].as_array().expect("a list");
    let id = |offset: u32| {
        let source = format!("{}/0/{offset}", topic.name);
        let letter = letters.iter().find(|letter| letter["source"] == source.as_str()).expect("a letter");
        letter["id"].as_str().expect("an id")
    };
    let replay =
        async |id: &str| relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(json!({}))).await;
    let (status, body) = replay(id(0)).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("still_invalid")), "{body}");
    let (status, body) = replay(id(1)).await;
    assert_eq!((status, &body["events"]), (200, &json!(1)), "{body}");
    eventually("it is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    let (status, body) = replay(id(0)).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("still_invalid")), "{body}");
}

#[tokio::test]
async fn many_of_one_key_are_replayed_in_order() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.event.contains(".r") { Answer::Process } else { Answer::status(422) })
            .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      ordering: key\n      onKeyFailure: continue");
    let relay = Relay::start(&config);
    for n in 0..40 {
        topic.send_raw(None, Some(b"k"), Some(format!(r#"{{"n":{n}}}"#).as_bytes()), None);
    }
    topic.flush();
    let all = async || (database.count(LETTERS).await == 40).then_some(());
    eventually("all are dead letters", PATIENCE, all).await;
    begin(&relay, json!({})).await;
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 40).then_some(())).await;
    let order: Vec<u64> = receiver
        .seen()
        .iter()
        .filter(|seen| seen.event.contains(".r"))
        .map(|seen| serde_json::from_slice::<Value>(&seen.body).expect("JSON")["data"]["n"].as_u64().expect("a number"))
        .collect();
    assert!(order.is_sorted(), "{order:?}");
}
