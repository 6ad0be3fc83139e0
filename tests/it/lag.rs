//! What the gauges say about records that are still in Kafka.

use std::time::Duration;

use oncebox::receiver::Answer;

use crate::support::embedded::MockBroker;
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually};

async fn applied(receiver: &TestReceiver, count: usize) {
    eventually(&format!("{count} events are applied"), PATIENCE, async || (receiver.applied() == count).then_some(()))
        .await;
}

#[tokio::test]
async fn a_topic_of_transactions_lags_by_nothing_when_all_is_read() {
    if embedded::lacks("transactions") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.transact(0..5, true);
    topic.transact(100..103, false);
    let mut relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 5).await;
    // Five records, a marker, three records that were taken back, a marker.
    let passed = async || (database.count("select next_offset from oncebox.cursor").await == 10).then_some(());
    eventually("the cursor is past the markers", PATIENCE, passed).await;
    let no_lag = async || relay.metric("oncebox_kafka_lag_records", "").await.filter(|lag| *lag == 0.0);
    eventually("no lag is reported", PATIENCE, no_lag).await;
    // What comes after a marker is read, also by a process that starts behind one.
    topic.transact(200..203, true);
    applied(&receiver, 8).await;
    assert_eq!(relay.stop().await, Some(0));
    topic.transact(300..301, false);
    topic.transact(400..402, true);
    let _relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 10).await;
}

#[tokio::test]
async fn a_record_that_waits_in_kafka_shows_in_the_delivery_lag() {
    if embedded::lacks("retention") {
        return;
    }
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::Status(500, Vec::new())).await;
    topic.send_orders(0..10);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      maxWaiting: 2");
    let relay = Relay::start(&config);
    eventually("events are tried", PATIENCE, async || (receiver.seen().len() > 10).then_some(())).await;
    // Reading is held back by what waits, so what comes now stays where it is.
    let old = Duration::from_secs(3600);
    eventually("old records wait in Kafka", PATIENCE, async || {
        topic.send_aged(r#"{"id":"old"}"#, old);
        relay.metric("oncebox_kafka_lag_records", "").await.filter(|lag| *lag >= 5.0)
    })
    .await;
    let lag = async || relay.metric("oncebox_delivery_lag_seconds", "").await.filter(|lag| *lag >= 3600.0);
    eventually("the lag shows their age", PATIENCE, lag).await;
    assert!(relay.metric("oncebox_undelivered_age_seconds", "").await.is_some_and(|age| age >= 3600.0));
    // Kafka keeps records for seven days unless told otherwise.
    let headroom = relay.metric("oncebox_kafka_retention_headroom_seconds", "").await;
    assert!(headroom.is_some_and(|seconds| seconds < 7.0 * 86_400.0 - 3600.0), "{headroom:?}");
}

/// Whether anything waits in Kafka is not known then: no lag is not the same as not knowing of any.
#[tokio::test]
async fn with_kafka_away_no_lag_is_absent_rather_than_zero() {
    const GAUGES: [&str; 3] =
        ["oncebox_kafka_lag_records", "oncebox_delivery_lag_seconds", "oncebox_undelivered_age_seconds"];
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let broker = MockBroker::start();
    broker.create_topic(&topic.name, 1);
    let mut config = Config::new(&topic, &database, &receiver);
    config.brokers.clone_from(&broker.address);
    let relay = Relay::start(&config);
    relay.ready().await;
    for gauge in GAUGES {
        eventually(gauge, PATIENCE, async || relay.metric(gauge, "").await.filter(|value| *value == 0.0)).await;
    }
    broker.with(|cluster| cluster.broker_down(-1).expect("it goes"));
    for gauge in GAUGES {
        eventually(&format!("{gauge} is absent"), PATIENCE, async || {
            let (status, text) = relay.get("/metrics").await?;
            (status == 200 && !text.contains(&format!("\n{gauge}{{"))).then_some(())
        })
        .await;
    }
    broker.with(|cluster| cluster.broker_up(-1).expect("it comes"));
    for gauge in GAUGES {
        eventually(gauge, PATIENCE, async || relay.metric(gauge, "").await.filter(|value| *value == 0.0)).await;
    }
}
