//! Offsets that are lost on the direct path, where a mark in Kafka says how far it got and the cursor has only a copy of it.
//! What `onOffsetLoss` says is done, and whatever it says a gap is on record; also in a database that has never known the topic
//! whose mark it finds.

use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::direct::{all_applied, all_marked, config};
use crate::loss::{gap, gaps, halted};
use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually, kafka};

struct Case {
    topic: Topic,
    database: TestDatabase,
    receiver: TestReceiver,
    config: Config,
}

impl Case {
    async fn new(policy: &str) -> Self {
        let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
        let mut config = config(&topic, &database, &receiver);
        config.source = format!("onOffsetLoss: {policy}");
        Self { topic, database, receiver, config }
    }

    /// Delivers so many orders, marks them, and dies: the copy of the mark was not brought up to date.
    async fn killed_after(&self, orders: u32) {
        let mut relay = Relay::start(&self.config);
        self.topic.send_orders(0..orders);
        self.delivered(orders as usize, i64::from(orders)).await;
        relay.kill();
    }

    /// The same, and stops, so that the copy is that of the mark.
    async fn stopped_after(&self, orders: u32) {
        let mut relay = Relay::start(&self.config);
        self.topic.send_orders(0..orders);
        self.delivered(orders as usize, i64::from(orders)).await;
        assert_eq!(relay.stop().await, Some(0));
    }

    async fn delivered(&self, applied: usize, mark: i64) {
        all_applied(&self.receiver, applied).await;
        all_marked(&self.topic, &self.database, 1, mark).await;
    }

    async fn delete_before(&self, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic.name, 0, Offset::Offset(offset)).unwrap();
        kafka::admin().delete_records(&list, &AdminOptions::new()).await.expect("records are deleted");
    }

    /// The same name, another topic.
    async fn recreate(&mut self, orders: u32) {
        self.topic.delete().await;
        let name = self.topic.name.clone();
        let made = async || Topic::try_named(&name, 1).await;
        self.topic = eventually("the topic can be made again", PATIENCE, made).await;
        self.topic.send_orders(1000..1000 + orders);
    }

    /// Marks an offset in the workflow's group as it is left by whoever read another topic of this name.
    async fn mark_of_another_topic(&self, offset: i64) {
        let group = format!("{}.orders", self.database.schema);
        let consumer: BaseConsumer = kafka::client().set("group.id", group).create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        {
            let mut element = list.add_partition(&self.topic.name, 0);
            element.set_offset(Offset::Offset(offset)).expect("an offset");
            element.set_metadata("AnotherTopicsOwnIdHere");
        }
        let marked = async || consumer.commit(&list, CommitMode::Sync).ok();
        eventually("the mark is made", PATIENCE, marked).await;
    }

    /// Waits until a cursor that begins here is read.
    async fn starts_at(&self, offset: i64) {
        let asked = format!("select count(*) from oncebox.cursor where start_offset = {offset} and owner is not null");
        let found = async || (self.database.count(&asked).await == 1).then_some(());
        eventually(&format!("the topic is read from {offset}"), PATIENCE, found).await;
    }
}

fn decide(relay: &Relay, words: &[&str]) {
    let output = oncebox(words, &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn read_from_the_beginning(relay: &Relay) {
    decide(relay, &["offsets", "set", "orders", "--to", "earliest"]);
}

#[tokio::test]
async fn retention_past_the_mark_halts_and_an_operator_ends_the_halt() {
    if embedded::lacks("deleted records") {
        return;
    }
    let case = Case::new("halt").await;
    case.killed_after(10).await;
    case.topic.send_orders(10..40);
    case.delete_before(25).await;
    let relay = Relay::start(&case.config);
    let reason = halted(&case.database).await;
    assert!(reason.contains("the stored offset 10") && reason.contains("25 to 40"), "{reason}");
    assert_eq!(case.receiver.applied(), 10, "nothing was passed over in silence");
    let lost = gap(10, 25, "retention", "halt");
    assert_eq!(gaps(&case.database).await, std::slice::from_ref(&lost), "from the mark on, not from its copy");

    read_from_the_beginning(&relay);
    case.delivered(25, 40).await;
    assert_eq!(gaps(&case.database).await, [lost, gap(10, 25, "operator", "set")]);
}

#[tokio::test]
async fn retention_past_the_mark_goes_on_at_the_earliest_with_a_gap_on_record() {
    if embedded::lacks("deleted records") {
        return;
    }
    let case = Case::new("earliest").await;
    case.killed_after(10).await;
    case.topic.send_orders(10..40);
    case.delete_before(25).await;
    let _relay = Relay::start(&case.config);
    case.delivered(25, 40).await;
    assert_eq!(gaps(&case.database).await, [gap(10, 25, "retention", "earliest")]);
}

#[tokio::test]
async fn a_topic_created_again_under_the_direct_path_halts_it() {
    if embedded::lacks("deleted topics") {
        return;
    }
    let mut case = Case::new("halt").await;
    // A member with a name stays in its group for a while, with partitions of a topic that is gone.
    case.config.kafka.clear();
    case.stopped_after(20).await;
    let relay = Relay::start(&case.config);
    relay.ready().await;
    case.recreate(5).await;
    let reason = halted(&case.database).await;
    assert!(reason.contains("deleted and created again"), "{reason}");
    assert_eq!(case.receiver.applied(), 20, "nothing of the new topic was sent");
    let lost = [gap(20, 20, "topic_recreated", "halt")];
    assert_eq!(gaps(&case.database).await, lost, "where the old one was left");

    read_from_the_beginning(&relay);
    case.delivered(25, 5).await;
    assert_eq!(gaps(&case.database).await, lost);
}

#[tokio::test]
async fn a_topic_created_again_is_read_from_its_beginning_and_not_from_the_mark_of_the_old_one() {
    if embedded::lacks("deleted topics") {
        return;
    }
    let mut case = Case::new("earliest").await;
    case.config.kafka.clear();
    case.stopped_after(20).await;
    case.recreate(30).await;
    let mut relay = Relay::start(&case.config);
    case.delivered(50, 30).await;
    assert_eq!(gaps(&case.database).await, [gap(20, 20, "topic_recreated", "earliest")]);
    // From then on the marks are those of the new topic.
    relay.kill();
    let _relay = Relay::start(&case.config);
    case.topic.send_orders(2000..2003);
    case.delivered(53, 33).await;
    assert_eq!(case.receiver.seen().len(), 53, "nothing again");
}

#[tokio::test]
async fn a_new_database_halts_at_the_mark_of_another_topic_with_a_gap_on_record() {
    if embedded::lacks("an operator's requests") {
        return;
    }
    let case = Case::new("halt").await;
    case.topic.send_orders(0..10);
    case.mark_of_another_topic(6).await;
    let relay = Relay::start(&case.config);
    let reason = halted(&case.database).await;
    assert!(reason.contains("another than the one whose offsets are marked in Kafka"), "{reason}");
    let lost = [gap(6, 6, "topic_recreated", "halt")];
    assert_eq!(gaps(&case.database).await, lost);

    // Looked at again without a decision: no second gap, and still nothing is read.
    decide(&relay, &["resume", "orders"]);
    let again = async || (relay.log().matches("halted: reading stops").count() == 2).then_some(());
    eventually("it halts again", PATIENCE, again).await;
    halted(&case.database).await;
    assert_eq!(gaps(&case.database).await, lost, "once");
    assert_eq!(case.receiver.applied(), 0);

    read_from_the_beginning(&relay);
    case.delivered(10, 10).await;
    assert_eq!(gaps(&case.database).await, lost);
}

#[tokio::test]
async fn a_new_database_goes_on_where_the_policy_says_after_the_mark_of_another_topic() {
    for (policy, start, applied) in [("earliest", 0, 12), ("latest", 10, 2)] {
        let case = Case::new(policy).await;
        case.topic.send_orders(0..10);
        case.mark_of_another_topic(6).await;
        let _relay = Relay::start(&case.config);
        case.starts_at(start).await;
        case.topic.send_orders(10..12);
        case.delivered(applied, 12).await;
        assert_eq!(gaps(&case.database).await, [gap(6, 6, "topic_recreated", policy)]);
    }
}
