//! Attempts whose outcome is unknown: asked about, or held for an operator; never sent again without a reason.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// A receiver that does not drop repeats: it counts how often it processed each key, loses answers, and can be asked.
struct Forgetful {
    receiver: TestReceiver,
    processed: Arc<Mutex<HashMap<String, usize>>>,
}

/// A number from 0 to 99 that is the same for one attempt at one key.
fn dice(seen: &Seen) -> u8 {
    let sum =
        seen.key.bytes().chain([seen.attempt as u8]).fold(7u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    (sum % 100) as u8
}

impl Forgetful {
    /// `lost` of a hundred answers are lost after processing, and as many requests are closed unprocessed.
    async fn start(lost: u8) -> Self {
        let processed: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&processed);
        let receiver = TestReceiver::deciding(move |seen| {
            let mut counts = counts.lock().unwrap();
            if let Some(key) = seen.path.strip_prefix("/status/") {
                return Answer::status(if counts.contains_key(key) { 200 } else { 404 });
            }
            let dice = dice(seen);
            if dice >= 100 - lost {
                return Answer::Close;
            }
            *counts.entry(seen.key.clone()).or_default() += 1;
            if dice < lost { Answer::ProcessAndClose } else { Answer::Process }
        })
        .await;
        Self { receiver, processed }
    }

    fn config(&self, topic: &Topic, database: &TestDatabase) -> Config {
        let mut config = Config::new(topic, database, &self.receiver);
        let host = self.receiver.receiver.address;
        config.delivery.push_str("\n      onInDoubt: ask");
        config.endpoint = format!("lookup: {{url: \"http://{host}/status/{{idempotencyKey}}\"}}");
        (config.timeout, config.lease) = ("500ms", "1500ms");
        config.kafka = "group.instance.id: only".to_owned();
        config
    }

    fn processed(&self) -> usize {
        self.processed.lock().unwrap().len()
    }

    fn assert_once_each(&self) {
        let counts = self.processed.lock().unwrap();
        let twice: Vec<(&String, &usize)> = counts.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "processed more than once: {twice:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_answers_lookups_processes_each_event_once_without_dropping_repeats() {
    let (topic, database, endpoint) = (Topic::new(2).await, TestDatabase::new().await, Forgetful::start(30).await);
    let relay = Relay::start(&endpoint.config(&topic, &database));
    topic.send_orders(0..400);
    let done = "select count(*) from oncebox.done where state = 'completed'";
    eventually("all are delivered", PATIENCE, async || (database.count(done).await == 400).then_some(())).await;
    assert_eq!(endpoint.processed(), 400);
    endpoint.assert_once_each();
    let asked = endpoint.receiver.seen().iter().filter(|seen| seen.path.starts_with("/status/")).count();
    assert!(asked >= 100, "{asked} questions: too few answers were lost for this to show anything");
    assert!(relay.metric("oncebox_in_doubt_total", "orders").await.is_some_and(|count| count >= 100.0));
}

#[tokio::test]
async fn kills_do_not_make_an_endpoint_that_is_asked_process_anything_twice() {
    let (topic, database, endpoint) = (Topic::new(2).await, TestDatabase::new().await, Forgetful::start(10).await);
    let config = endpoint.config(&topic, &database);
    let mut sent = 0;
    for seam in ["send.after_response", "settle.before", "send.before", "claim.after", "settle.failure"] {
        let mut relay = Relay::start_with(&config, &format!("{seam}=2*off->return"));
        eventually("the relay dies", PATIENCE, async || {
            topic.send_orders(sent..sent + 20);
            sent += 20;
            relay.end()
        })
        .await;
    }
    let _relay = Relay::start(&config);
    let done = "select count(*) from oncebox.done where state = 'completed'";
    eventually("all are delivered", PATIENCE, async || (database.count(done).await == i64::from(sent)).then_some(()))
        .await;
    assert_eq!(endpoint.processed(), sent as usize);
    endpoint.assert_once_each();
}

#[tokio::test]
async fn what_is_held_waits_for_a_word_and_is_not_sent_before() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match seen.attempt {
        1 => Answer::ProcessAndClose,
        _ => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      onInDoubt: hold");
    // Long enough that a slow machine puts nothing in doubt by itself.
    (config.timeout, config.lease) = ("20s", "40s");
    let relay = Relay::start(&config);
    topic.send_orders(0..3);
    let list = || {
        let output =
            oncebox(&["events", "list", "--workflow", "orders", "--state", "pending", "--json"], &relay.config_path());
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a list");
        let ids = list.as_array().expect("a list").iter().map(|event| event["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<String>>()
    };
    let held = eventually("three are held", PATIENCE, async || Some(list()).filter(|ids| ids.len() == 3)).await;
    let resolve = |id: &str, word: &str| {
        let output = oncebox(&["events", "resolve", id, "--to", word], &relay.config_path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    resolve(&held[0], "delivered");
    resolve(&held[1], "redeliver");
    resolve(&held[2], "dead-letter");
    eventually("the second is delivered", PATIENCE, async || {
        let done = database.count("select count(*) from oncebox.done where state = 'completed'").await;
        (done == 2).then_some(())
    })
    .await;
    let requests: Vec<u32> = receiver.seen().iter().filter(|seen| seen.event == held[1]).map(|s| s.attempt).collect();
    assert_eq!(requests, [1, 2]);
    let others: HashSet<String> = receiver.seen().iter().filter(|s| s.attempt > 1).map(|s| s.event.clone()).collect();
    assert_eq!(others, HashSet::from([held[1].clone()]), "nothing else was sent again");
    assert_eq!(database.count("select count(*) from oncebox.dead_letter where reason = 'in_doubt'").await, 1);
    assert_eq!(database.count("select count(*) from oncebox.audit where action = 'event resolved'").await, 3);
    let again = oncebox(&["events", "resolve", &held[0], "--to", "redeliver"], &relay.config_path());
    assert_eq!(again.status.code(), Some(1), "a word counts once");
}

#[tokio::test]
async fn what_a_killed_relay_had_sent_is_held_too() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      onInDoubt: hold");
    config.kafka = "group.instance.id: only".to_owned();
    let mut relay = Relay::start_with(&config, "send.after_response=return");
    topic.send_orders(0..1);
    eventually("the relay dies", PATIENCE, async || relay.end()).await;
    let relay = Relay::start(&config);
    let pending = "select count(*) from oncebox.retry where state = 'pending' and held = 'in_doubt'";
    eventually("it is held", PATIENCE, async || (database.count(pending).await == 1).then_some(())).await;
    topic.send_orders(1..5);
    eventually("others go on", PATIENCE, async || (receiver.applied() == 5).then_some(())).await;
    assert_eq!(receiver.lines().len(), 5, "one request each");
    drop(relay);
}

#[tokio::test]
async fn an_event_that_is_held_and_then_answered_is_held_no_more() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let late = |_: &Seen| Answer::After(Duration::from_secs(3), Box::new(Answer::Process));
    let receiver = TestReceiver::deciding(late).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      onInDoubt: hold");
    (config.timeout, config.lease) = ("4s", "5s");
    let stopped = Relay::start(&config);
    stopped.ready().await;
    topic.send_orders(0..1);
    eventually("the request is under way", PATIENCE, async || (receiver.seen().len() == 1).then_some(())).await;
    stopped.signal(19);
    let other = Relay::start(&config);
    let held = "select count(*) from oncebox.retry where state = 'pending' and held = 'in_doubt'";
    eventually("the other holds it", PATIENCE, async || (database.count(held).await == 1).then_some(())).await;
    stopped.signal(18);
    let done = "select count(*) from oncebox.done where state = 'completed'";
    eventually("the late answer counts", PATIENCE, async || (database.count(done).await == 1).then_some(())).await;
    let left = "select count(*) from oncebox.retry";
    eventually("nothing asks for a word", PATIENCE, async || (database.count(left).await == 0).then_some(())).await;
    assert_eq!(receiver.seen().len(), 1, "and nothing was sent again");
    drop(other);
}
