//! Leaving the consumer group and coming back, while the group is in no hurry.

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually, kafka};

#[tokio::test]
async fn a_reader_that_leaves_while_the_group_is_rebalancing_reads_on_when_it_is_back() {
    if embedded::lacks("rebalances that wait for a member") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let applied = async |count: usize| {
        eventually(&format!("{count} orders are applied"), PATIENCE, async || {
            (receiver.applied() == count).then_some(())
        })
        .await;
    };
    topic.send_orders(0..50);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(50).await;

    // A member that joins and never asks what it was given: the group waits for it.
    let guest: BaseConsumer = kafka::client()
        .set("group.id", format!("{}.orders", database.schema))
        .set("partition.assignment.strategy", "cooperative-sticky")
        .create()
        .expect("a consumer");
    guest.subscribe(&[&topic.name]).expect("it subscribes");
    eventually("the relay gives a partition up", PATIENCE, async || {
        relay.log().contains("partitions revoked").then_some(())
    })
    .await;
    // The relay loses what it kept, too: it has to leave and come back, all while the group waits.
    database.query("update oncebox.cursor set owner_epoch = owner_epoch + 1", &[]).await;
    topic.send_orders(50..100);
    eventually("the relay is back", PATIENCE, async || {
        (relay.log().matches("joining the consumer group").count() == 2).then_some(())
    })
    .await;
    drop(guest);
    applied(100).await;
}
