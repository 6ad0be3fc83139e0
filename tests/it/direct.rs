//! The path without the outbox: a delivery leaves nothing behind but a mark in Kafka, and what fails is stored.

use std::collections::HashMap;
use std::time::Duration;

use oncebox::receiver::{Answer, Seen};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, kafka};

pub fn config(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.guarantee = "idempotent-keys";
    config.kafka = "group.instance.id: only".to_owned();
    config
}

/// The number of the order in a request.
pub fn order(seen: &Seen) -> u64 {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
    body["data"]["id"].as_u64().expect("an order")
}

/// What is marked in Kafka: offsets and what is written beside them, by partition.
pub fn marked(topic: &Topic, database: &TestDatabase, partitions: i32) -> Vec<(i64, String)> {
    let group = format!("{}.orders", database.schema);
    let consumer: BaseConsumer = kafka::client().set("group.id", group).create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition_range(&topic.name, 0, partitions - 1);
    let found = consumer.committed_offsets(list, Duration::from_secs(10)).expect("offsets");
    let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
    found.elements().iter().map(|element| (offset(element.offset()), element.metadata().to_owned())).collect()
}

pub async fn all_marked(topic: &Topic, database: &TestDatabase, partitions: i32, records: i64) {
    eventually("all is marked in Kafka", PATIENCE, async || {
        let sum: i64 = marked(topic, database, partitions).iter().map(|(offset, _)| offset).sum();
        (sum == records).then_some(())
    })
    .await;
}

pub async fn all_applied(receiver: &TestReceiver, count: usize) {
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == count).then_some(())).await;
}

pub async fn rows(database: &TestDatabase, table: &str) -> i64 {
    database.count(&format!("select count(*) from oncebox.{table}")).await
}

#[tokio::test]
async fn a_delivery_leaves_no_row_and_a_mark_with_the_topics_id() {
    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..500);
    all_applied(&receiver, 500).await;
    all_marked(&topic, &database, 3, 500).await;
    let ids = database.query("select distinct topic_id from oncebox.cursor", &[]).await;
    let id: String = ids[0].get(0);
    assert!(marked(&topic, &database, 3).iter().all(|(_, text)| *text == id), "the mark carries the id");
    for table in ["outbox", "done", "retry", "attempt", "spilled", "ledger", "dead_letter"] {
        assert_eq!(rows(&database, table).await, 0, "{table}");
    }
    assert_eq!(relay.metric("oncebox_delivered_total", "workflow=\"orders\"").await, Some(500.0));
    assert_eq!(relay.metric("oncebox_spilled_total", "workflow=\"orders\"").await, Some(0.0));
    assert_eq!(relay.stop().await, Some(0));
    let copied = database.count("select sum(next_offset)::bigint from oncebox.cursor where direct").await;
    assert_eq!(copied, 500, "a copy is kept when partitions are given up");
    let keys: HashMap<String, usize> = receiver.seen().into_iter().fold(HashMap::new(), |mut keys, seen| {
        *keys.entry(seen.key).or_default() += 1;
        keys
    });
    assert!(keys.values().all(|count| *count == 1), "each once");
}

#[tokio::test]
async fn an_event_in_a_thousand_that_always_fails_holds_up_nothing_and_ends_as_a_dead_letter() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match order(seen) {
        number if number % 1000 == 500 => Answer::status(500),
        number if number % 1000 == 700 => Answer::status(422),
        _ => Answer::Process,
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [300ms], jitter: 0, maxAttempts: 4}".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..3000);
    all_applied(&receiver, 2994).await;
    all_marked(&topic, &database, 2, 3000).await;
    eventually("dead letters", PATIENCE, async || (rows(&database, "dead_letter").await == 6).then_some(())).await;
    let letters =
        database.query("select reason, sends, json_array_length(attempts) from oncebox.dead_letter", &[]).await;
    for letter in letters {
        let (reason, sends, attempts): (String, i32, i32) = (letter.get(0), letter.get(1), letter.get(2));
        let expected = if reason == "rejected" { 1 } else { 4 };
        assert_eq!((sends, attempts), (expected, expected), "{reason}");
    }
    assert_eq!(rows(&database, "retry").await, 0);
    assert_eq!(rows(&database, "outbox").await, 6, "only what failed was stored");
    assert_eq!(relay.metric("oncebox_spilled_total", "workflow=\"orders\"").await, Some(6.0));
    let open =
        "select sum(c.appended - d.completed - d.discarded)::bigint from oncebox.cursor c join oncebox.delivery d
                on d.cursor = c.id";
    assert_eq!(database.count(open).await, 0, "the account closes");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_dead_letter_and_the_mark_passes_it() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..10);
    topic.send(Some("bad"), "{not json");
    topic.send_orders(10..20);
    all_applied(&receiver, 20).await;
    all_marked(&topic, &database, 1, 21).await;
    assert_eq!(rows(&database, "dead_letter").await, 1);
    let listed = oncebox(&["dead-letters", "list", "--json"], &relay.config_path());
    let letters: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("a list");
    assert_eq!(letters[0]["reason"], "invalid");
    assert_eq!(relay.stop().await, Some(0));
    let mut again = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(20..21);
    all_applied(&receiver, 21).await;
    assert_eq!(rows(&database, "dead_letter").await, 1, "once");
    assert_eq!(again.stop().await, Some(0));
}

#[tokio::test]
async fn rolling_restarts_of_the_direct_path_repeat_nothing() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let slowly = Duration::from_millis(5);
    let receiver = TestReceiver::deciding(move |_| Answer::After(slowly, Box::new(Answer::Process))).await;
    let mut config = config(&topic, &database, &receiver);
    config.kafka = String::new();
    let mut relays = [Relay::start(&config), Relay::start(&config)];
    let mut sent = 0;
    for turn in 0..4 {
        relays[turn % 2].ready().await;
        topic.send_orders(sent..sent + 500);
        sent += 500;
        eventually("half of it", PATIENCE, async || (receiver.applied() > sent as usize - 250).then_some(())).await;
        assert_eq!(relays[turn % 2].stop().await, Some(0));
        relays[turn % 2] = Relay::start(&config);
    }
    all_applied(&receiver, sent as usize).await;
    assert_eq!(receiver.seen().len(), sent as usize, "no request twice");
}

#[tokio::test]
async fn an_operators_offset_counts_and_not_the_mark_before_it() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    all_marked(&topic, &database, 1, 100).await;
    let set = oncebox(&["offsets", "set", "orders", "--to", "40"], &relay.config_path());
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    eventually("sixty again", PATIENCE, async || (receiver.seen().len() == 160).then_some(())).await;
    all_marked(&topic, &database, 1, 100).await;
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!(receiver.applied(), 100, "with the keys that they had");
}

#[tokio::test]
async fn with_no_mark_in_kafka_reading_starts_from_the_copy() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..50);
    all_applied(&receiver, 50).await;
    assert_eq!(relay.stop().await, Some(0));
    let group = format!("{}.orders", database.schema);
    eventually("the group is forgotten", PATIENCE, async || {
        let deleted = kafka::admin().delete_groups(&[&group], &rdkafka::admin::AdminOptions::new()).await;
        deleted.expect("an answer").into_iter().all(|result| result.is_ok()).then_some(())
    })
    .await;
    topic.send_orders(50..60);
    let relay = Relay::start(&config(&topic, &database, &receiver));
    all_applied(&receiver, 60).await;
    assert_eq!(receiver.seen().len(), 60, "nothing again");
    drop(relay);
}

#[tokio::test]
async fn after_a_failover_what_it_may_have_lost_is_sent_again() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..50);
    all_applied(&receiver, 50).await;
    assert_eq!(relay.stop().await, Some(0));
    // As a server would have it that took over without the last copy.
    database.execute("update oncebox.cursor set timeline = '00000000', next_offset = 20, claimed_to = 20").await;
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    eventually("thirty again", PATIENCE, async || (receiver.seen().len() == 80).then_some(())).await;
    // The marks of before are not believed later either.
    relay.kill();
    let mut relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(50..55);
    all_applied(&receiver, 55).await;
    assert_eq!(relay.stop().await, Some(0));
}

/// The change number `lsn` of the order `id`, as Debezium's PostgreSQL connector writes it.
fn change(id: u32, lsn: u32) -> (String, String) {
    let key = format!(r#"{{"id":{id}}}"#);
    let value = format!(
        r#"{{"before":null,"after":{{"id":{id},"amount":{lsn}}},"op":"u","ts_ms":1,"source":{{"connector":"postgresql","db":"sales",
        "schema":"public","table":"orders","lsn":{lsn},"txId":7,"ts_ms":1}}}}"#
    );
    (key, value)
}

#[tokio::test]
async fn a_change_that_the_source_repeats_carries_the_same_key_and_another_change_another() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = config(&topic, &database, &receiver);
    config.source = "format: debezium".to_owned();
    let relay = Relay::start(&config);
    for (id, lsn) in [(1, 100), (1, 101), (1, 100), (2, 100)] {
        let (key, value) = change(id, lsn);
        topic.send(Some(&key), &value);
    }
    eventually("four requests", PATIENCE, async || (receiver.seen().len() == 4).then_some(())).await;
    let mut seen = receiver.seen();
    seen.sort_by_key(|one| one.source.rsplit('/').next().and_then(|offset| offset.parse::<i64>().ok()));
    let keys: Vec<&str> = seen.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys[0], keys[2], "the same change at another offset");
    assert!(keys[0] != keys[1] && keys[0] != keys[3] && keys[1] != keys[3], "{keys:?}");
    drop(relay);
}
