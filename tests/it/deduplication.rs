//! Changes that the source publishes again: suppressed where that is asked for, under one key everywhere.

use std::collections::HashSet;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually};

/// The change number `lsn` of the order `id`, as Debezium's PostgreSQL connector writes it.
fn change(topic: &Topic, partition: i32, id: u32, lsn: u32) {
    let key = format!(r#"{{"id":{id}}}"#);
    let value = format!(
        r#"{{"before":null,"after":{{"id":{id},"amount":{lsn}}},"source":{{"connector":"postgresql","db":"sales","schema":
        "public","table":"orders","lsn":{lsn},"txId":{lsn},"ts_ms":1700000000000}},"op":"u","ts_ms":1700000000001}}"#
    );
    topic.send_raw(Some(partition), Some(key.as_bytes()), Some(value.as_bytes()), None);
}

fn config(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver, ttl: &str) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.source = "format: debezium".to_owned();
    config
        .delivery
        .push_str(&format!("\n      deduplication: {{keyFields: [database, table, primaryKey], ttl: {ttl}}}"));
    config
}

async fn suppressed(relay: &Relay, wanted: f64) {
    eventually("repeats are suppressed", PATIENCE, async || {
        relay.metric("oncebox_duplicates_suppressed_total", "orders").await.filter(|count| *count == wanted)
    })
    .await;
}

#[tokio::test]
async fn a_change_that_the_source_repeats_is_delivered_once_wherever_it_comes_again() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = config(&topic, &database, &receiver, "1h");
    let mut relay = Relay::start(&config);
    // Three updates of each of fifty rows: different changes of one row are never taken for repeats.
    let all =
        |partition| (0..50).for_each(|id| (1..=3).for_each(|step| change(&topic, partition, id, 100 * step + id)));
    all(0);
    topic.flush();
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 150).then_some(())).await;
    // A connector that starts again publishes them anew; a mirror publishes them to another partition.
    all(0);
    all(1);
    topic.flush();
    suppressed(&relay, 300.0).await;
    // Also after the first ones are long delivered and purged.
    database.execute("delete from oncebox.outbox").await;
    database.execute("delete from oncebox.ended").await;
    assert_eq!(relay.stop().await, Some(0));
    relay = Relay::start(&config);
    all(1);
    topic.flush();
    suppressed(&relay, 150.0).await;
    assert_eq!(receiver.lines().len(), 150, "one request each");
    // Every record has its disposition, and nothing waits.
    let covered =
        "select sum(upper(r) - lower(r))::bigint from (select unnest(suppressed) as r from oncebox.ledger) as x";
    assert_eq!(database.count(covered).await, 450);
    assert_eq!(relay.metric("oncebox_events", "state=\"available\"").await, Some(0.0));
}

#[tokio::test]
async fn a_repeat_within_one_batch_is_suppressed_too() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    for _ in 0..3 {
        (0..20).for_each(|id| change(&topic, 0, id, id + 1));
    }
    topic.flush();
    let relay = Relay::start(&config(&topic, &database, &receiver, "1h"));
    suppressed(&relay, 40.0).await;
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    assert_eq!(receiver.lines().len(), 20);
}

#[tokio::test]
async fn a_change_is_forgotten_after_its_time_and_then_delivered_again() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&config(&topic, &database, &receiver, "2s"));
    change(&topic, 0, 1, 1);
    topic.flush();
    eventually("it is delivered", PATIENCE, async || (receiver.lines().len() == 1).then_some(())).await;
    let over = "select count(*) from oncebox.seen where expires_at <= clock_timestamp()";
    eventually("its time is up", PATIENCE, async || (database.count(over).await == 1).then_some(())).await;
    change(&topic, 0, 1, 1);
    topic.flush();
    eventually("it is delivered again", PATIENCE, async || (receiver.lines().len() == 2).then_some(())).await;
    let keys: HashSet<String> = receiver.lines().into_iter().map(|line| line.key).collect();
    assert_eq!(keys.len(), 1, "under the same key");
    assert_eq!(relay.metric("oncebox_duplicates_suppressed_total", "orders").await, Some(0.0));
}

#[tokio::test]
async fn a_window_that_is_shorter_than_the_topics_is_told() {
    if embedded::lacks("a topic's retention") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&config(&topic, &database, &receiver, "1h"));
    change(&topic, 0, 1, 1);
    topic.flush();
    let told = "deduplication.ttl is shorter than the topic keeps records";
    eventually("it is told", PATIENCE, async || relay.log().contains(told).then_some(())).await;
    assert_eq!(relay.log().matches(told).count(), 1, "once");
}

#[tokio::test]
async fn reading_again_on_an_operators_word_is_not_a_repeat() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&config(&topic, &database, &receiver, "1h"));
    (0..10).for_each(|id| change(&topic, 0, id, id + 1));
    topic.flush();
    eventually("all are delivered", PATIENCE, async || (receiver.lines().len() == 10).then_some(())).await;
    let moved = oncebox(&["offsets", "set", "orders", "--to", "earliest"], &relay.config_path());
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    eventually("all are delivered again", PATIENCE, async || (receiver.lines().len() == 20).then_some(())).await;
    assert_eq!(receiver.applied(), 10, "under the same keys");
}

#[tokio::test]
async fn without_suppression_a_repeat_carries_the_same_key_and_two_changes_never_do() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "idempotent-keys";
    config.source = "format: debezium".to_owned();
    config.delivery.push_str("\n      mechanism: transactional-outbox");
    let _relay = Relay::start(&config);
    for partition in 0..2 {
        (0..10).for_each(|id| (1..=3).for_each(|step| change(&topic, partition, id, 100 * step + id)));
    }
    topic.flush();
    eventually("every record is delivered", PATIENCE, async || (receiver.lines().len() == 60).then_some(())).await;
    assert_eq!(receiver.applied(), 30, "one key per change");
}

/// A change that was remembered and is forgotten, whose row still stands: read again, it is dead at first, and its replay is remembered.
#[tokio::test]
async fn a_change_that_is_replayed_is_remembered_and_its_repeats_are_suppressed() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = config(&topic, &database, &receiver, "1h");
    let mut relay = Relay::start(&config);
    change(&topic, 0, 1, 1);
    topic.flush();
    eventually("it is delivered", PATIENCE, async || (receiver.lines().len() == 1).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    config.extra = "transform: 'error(\"not yet\")'".to_owned();
    relay = Relay::start(&config);
    change(&topic, 0, 1, 1);
    topic.flush();
    let dead = async || (database.count("select count(*) from oncebox.dead_letter").await == 1).then_some(());
    eventually("it cannot be read again", PATIENCE, dead).await;
    assert_eq!(relay.stop().await, Some(0));
    config.extra = String::new();
    relay = Relay::start(&config);
    relay.ready().await;
    let forgotten = "with forgotten as (update oncebox.seen set expires_at = now() - interval '1 h' returning 1)
                     select count(*) from forgotten";
    assert_eq!(database.count(forgotten).await, 1);
    let replay = ["dead-letters", "replay", "--workflow", "orders"];
    let replayed = oncebox(&replay, &relay.config_path());
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    eventually("it is delivered again", PATIENCE, async || (receiver.lines().len() == 2).then_some(())).await;
    change(&topic, 0, 1, 1);
    change(&topic, 0, 2, 2);
    topic.flush();
    eventually("the next one is delivered", PATIENCE, async || (receiver.lines().len() == 3).then_some(())).await;
    suppressed(&relay, 1.0).await;
    assert_eq!(receiver.applied(), 2, "the repeat is not");
}

/// What cannot be read goes another way into the database, and takes with it whatever is stored in the same moment.
#[tokio::test]
async fn repeats_are_suppressed_beside_records_that_cannot_be_read() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = config(&topic, &database, &receiver, "1h");
    change(&topic, 0, 1, 1);
    topic.send_raw(Some(0), None, Some(b"not JSON"), None);
    change(&topic, 0, 1, 1);
    change(&topic, 0, 2, 2);
    topic.flush();
    let relay = Relay::start(&config);
    eventually("both are delivered", PATIENCE, async || (receiver.lines().len() == 2).then_some(())).await;
    suppressed(&relay, 1.0).await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 1);
    let covered = "select count(*) from oncebox.ledger where suppressed = '{[2,3)}'";
    assert_eq!(database.count(covered).await, 1, "and the ledger says so");
}
