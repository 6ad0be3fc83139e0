//! Where a workflow starts to read, and how far Kafka's own tools see that it is.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually, kafka, unique};

async fn applied(receiver: &TestReceiver, count: usize) {
    eventually(&format!("{count} events are applied"), PATIENCE, async || (receiver.applied() == count).then_some(()))
        .await;
}

/// Topic, partition 0, and the offset that it was started at.
async fn starts(database: &TestDatabase) -> Vec<(String, i64)> {
    let rows = database.query("select topic, start_offset from oncebox.cursor order by topic", &[]).await;
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn a_topic_that_a_running_subscription_matches_later_is_read_from_its_beginning() {
    if embedded::lacks("topics that come later") {
        return;
    }
    let family = unique("family");
    let first = Topic::named(format!("{family}.a"), 1, &[]).await;
    let (database, receiver) = (TestDatabase::new().await, TestReceiver::start().await);
    first.send_orders(0..10);
    let mut config = Config::new(&first, &database, &receiver);
    config.topic = format!("'^{family}\\..*'");
    config.source = "startFrom: latest".to_owned();
    let mut relay = Relay::start(&config);
    relay.ready().await;
    first.send_orders(10..15);
    applied(&receiver, 5).await;
    // Its records are there before the subscription has seen it, and `latest` is not about it.
    let later = Topic::named(format!("{family}.b"), 1, &[]).await;
    later.send_orders(100..120);
    applied(&receiver, 25).await;
    assert_eq!(starts(&database).await, [(first.name.clone(), 10), (later.name.clone(), 0)]);
    // One that comes while nobody reads is no different.
    assert_eq!(relay.stop().await, Some(0));
    let last = Topic::named(format!("{family}.c"), 1, &[]).await;
    last.send_orders(200..203);
    let _relay = Relay::start(&config);
    applied(&receiver, 28).await;
    assert_eq!(starts(&database).await.last(), Some(&(last.name.clone(), 0)));
}

#[tokio::test]
async fn a_start_at_a_time_skips_what_is_older_and_nothing_after() {
    if embedded::lacks("offsets by time") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    for (id, hours) in [(0, 5), (1, 4), (2, 3), (3, 1)] {
        topic.send_aged(&format!(r#"{{"id":{id}}}"#), Duration::from_secs(hours * 3600));
    }
    let two_hours_ago = jiff::Timestamp::now() - Duration::from_secs(2 * 3600);
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = format!("startFrom: {two_hours_ago}");
    let mut relay = Relay::start(&config);
    topic.send_orders(4..6);
    applied(&receiver, 3).await;
    assert_eq!(starts(&database).await, [(topic.name.clone(), 3)]);
    // The time is of the first start alone.
    assert_eq!(relay.stop().await, Some(0));
    topic.send_aged(r#"{"id":6}"#, Duration::from_secs(5 * 3600));
    let _relay = Relay::start(&config);
    applied(&receiver, 4).await;
}

#[tokio::test]
async fn a_start_at_a_time_that_no_record_has_reached_is_at_the_end() {
    if embedded::lacks("offsets by time") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send_aged(r#"{"id":0}"#, Duration::from_secs(5 * 3600));
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = format!("startFrom: {}", jiff::Timestamp::now() - Duration::from_secs(3600));
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(1..3);
    applied(&receiver, 2).await;
    assert_eq!(starts(&database).await, [(topic.name.clone(), 1)]);
}

#[tokio::test]
async fn the_consumer_group_shows_how_far_the_outbox_has_read() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let group: BaseConsumer =
        kafka::client().set("group.id", format!("{}.orders", database.schema)).create().expect("a client");
    let committed = async || {
        let mut list = TopicPartitionList::new();
        list.add_partition(&topic.name, 0);
        let list = group.committed_offsets(list, Duration::from_secs(10)).ok()?;
        match list.find_partition(&topic.name, 0)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    };
    let mut relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..20);
    let shown = async |wanted| committed().await.filter(|offset| *offset == wanted);
    eventually("Kafka shows what is stored", PATIENCE, async || shown(20).await).await;
    topic.send_orders(20..25);
    applied(&receiver, 25).await;
    // What was stored last is told on the way out.
    assert_eq!(relay.stop().await, Some(0));
    eventually("Kafka shows the rest", PATIENCE, async || shown(25).await).await;
}
