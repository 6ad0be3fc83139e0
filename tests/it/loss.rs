//! Offsets that are lost: by retention, by a log that ends early, by a topic that is another than it was. What
//! `onOffsetLoss` says is done, and whatever it says a gap with the cause is on record.

use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually, kafka};

/// From, to, reason and action of every gap, the first first.
pub type Gaps = Vec<(i64, i64, String, String)>;

struct Case {
    topic: Topic,
    database: TestDatabase,
    receiver: TestReceiver,
    config: Config,
}

/// A workflow that has applied so many orders and is stopped.
async fn stopped(policy: &str, orders: u32) -> Case {
    let topic = Topic::new(1).await;
    topic.send_orders(0..orders);
    stopped_on(topic, policy, orders).await
}

async fn stopped_on(topic: Topic, policy: &str, orders: u32) -> Case {
    let (database, receiver) = (TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = format!("onOffsetLoss: {policy}");
    let case = Case { topic, database, receiver, config };
    let mut relay = Relay::start(&case.config);
    case.applied(orders as usize).await;
    assert_eq!(relay.stop().await, Some(0));
    case
}

impl Case {
    async fn applied(&self, count: usize) {
        let what = format!("{count} events are applied");
        eventually(&what, PATIENCE, async || (self.receiver.applied() == count).then_some(())).await;
    }

    async fn delete_before(&self, offset: i64) {
        let mut list = TopicPartitionList::new();
        let partitions = self.database.query("select partition from oncebox.cursor", &[]).await;
        for partition in partitions {
            list.add_partition_offset(&self.topic.name, partition.get(0), Offset::Offset(offset)).unwrap();
        }
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

    /// As if the log had been restored from an older copy: it ends before what was read.
    async fn read_past_the_end(&self, offset: i64) {
        self.database
            .execute(&format!("update oncebox.cursor set next_offset = {offset}, claimed_to = {offset}"))
            .await;
        self.database.execute(&format!("update oncebox.delivery set settled_to = {offset}")).await;
    }

    /// Waits until the workflow has a cursor that starts here, and nothing but the new topic has.
    async fn starts_anew_at(&self, offset: i64) {
        let asked = format!("select count(*) from oncebox.cursor where start_offset = {offset} and owner is not null");
        let found = async || (self.database.count(&asked).await == 1).then_some(());
        eventually(&format!("the new topic is read from {offset}"), PATIENCE, found).await;
        assert_eq!(self.database.count("select count(distinct topic_id) from oncebox.cursor").await, 2);
    }
}

/// Waits until the workflow halts; answers why it does.
pub async fn halted(database: &TestDatabase) -> String {
    let asked = "select halted from oncebox.workflow where halted is not null";
    let halted = async || database.query(asked, &[]).await.first().map(|row| row.get(0));
    eventually("the workflow halts", PATIENCE, halted).await
}

/// What is on record as lost, in the order it was noticed.
pub async fn gaps(database: &TestDatabase) -> Gaps {
    let asked = "select from_offset, to_offset, reason, action from oncebox.gap order by at";
    let rows = database.query(asked, &[]).await;
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

pub fn gap(from: i64, to: i64, reason: &str, action: &str) -> (i64, i64, String, String) {
    (from, to, reason.to_owned(), action.to_owned())
}

fn set(relay: &Relay, to: &str) {
    let output = oncebox(&["offsets", "set", "orders", "--to", to], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Looks again at what it halted for: `resume` ends a halt without a decision.
async fn halts_again(case: &Case, relay: &Relay) {
    let output = oncebox(&["resume", "orders"], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = async || (relay.log().matches("halted: reading stops").count() == 2).then_some(());
    eventually("it halts again", PATIENCE, again).await;
    halted(&case.database).await;
}

#[tokio::test]
async fn retention_past_the_cursor_halts_and_an_operator_ends_the_halt() {
    if embedded::lacks("deleted records") {
        return;
    }
    let case = stopped("halt", 10).await;
    case.topic.send_orders(10..40);
    case.delete_before(25).await;
    let relay = Relay::start(&case.config);
    let reason = halted(&case.database).await;
    assert!(reason.contains("the stored offset 10") && reason.contains("25 to 40"), "{reason}");
    assert_eq!(case.receiver.applied(), 10, "nothing was skipped in silence");
    halts_again(&case, &relay).await;
    let lost = gap(10, 25, "retention", "halt");
    assert_eq!(gaps(&case.database).await, std::slice::from_ref(&lost), "the cause, once");

    set(&relay, "earliest");
    case.applied(25).await;
    assert_eq!(gaps(&case.database).await, [lost, gap(10, 25, "operator", "set")]);
}

#[tokio::test]
async fn every_partition_that_lost_records_is_on_record_before_the_one_halt() {
    if embedded::lacks("deleted records") {
        return;
    }
    let topic = Topic::new(3).await;
    let send = |topic: &Topic, ids: std::ops::Range<i32>| {
        for (id, partition) in ids.flat_map(|id| (0..3).map(move |partition| (id, partition))) {
            let value = format!(r#"{{"id":"{partition}-{id}"}}"#);
            topic.send_raw(Some(partition), Some(b"k"), Some(value.as_bytes()), None);
        }
        topic.flush();
    };
    send(&topic, 0..5);
    let case = stopped_on(topic, "halt", 15).await;
    send(&case.topic, 5..10);
    case.delete_before(8).await;
    let relay = Relay::start(&case.config);
    halted(&case.database).await;
    assert_eq!(gaps(&case.database).await, vec![gap(5, 8, "retention", "halt"); 3]);
    set(&relay, "earliest");
    case.applied(21).await;
}

#[tokio::test]
async fn retention_past_the_cursor_goes_on_at_the_earliest_with_a_gap_on_record() {
    if embedded::lacks("deleted records") {
        return;
    }
    let case = stopped("earliest", 10).await;
    case.topic.send_orders(10..40);
    case.delete_before(25).await;
    let _relay = Relay::start(&case.config);
    case.applied(25).await;
    assert_eq!(gaps(&case.database).await, [gap(10, 25, "retention", "earliest")]);
}

#[tokio::test]
async fn retention_past_the_cursor_goes_on_at_the_latest_with_a_gap_on_record() {
    if embedded::lacks("deleted records") {
        return;
    }
    let case = stopped("latest", 10).await;
    case.topic.send_orders(10..40);
    case.delete_before(25).await;
    let _relay = Relay::start(&case.config);
    let noted = async || Some(gaps(&case.database).await).filter(|gaps| !gaps.is_empty());
    let gaps = eventually("the gap is on record", PATIENCE, noted).await;
    assert_eq!(gaps, [gap(10, 40, "retention", "latest")], "what was still there is passed over too");
    case.topic.send_orders(40..45);
    case.applied(15).await;
}

/// The new log may be shorter or longer than the old one: librdkafka alone sees only the first.
async fn a_recreated_topic_halts(orders: u32) {
    let mut case = stopped("halt", 20).await;
    let relay = Relay::start(&case.config);
    relay.ready().await;
    case.recreate(orders).await;
    let reason = halted(&case.database).await;
    assert!(reason.contains("deleted and created again"), "{reason}");
    halts_again(&case, &relay).await;
    // Until the change is noticed, a longer log is read on as if it were the old one.
    let left_at = case.database.count("select next_offset from oncebox.cursor").await;
    assert!(left_at == 20 || left_at <= i64::from(orders), "{left_at}");
    let lost = [gap(left_at, left_at, "topic_recreated", "halt")];
    assert_eq!(gaps(&case.database).await, lost, "where the old one was left, once");

    set(&relay, "earliest");
    // Each record of the new topic has an event under the new topic's id.
    eventually("the new topic is read whole", PATIENCE, async || {
        let stored = "select count(*) from oncebox.outbox as o join oncebox.cursor as c on c.id = o.cursor
                       where c.topic_id = (select topic_id from oncebox.cursor order by start_offset, owner_epoch desc limit 1)";
        (case.database.count(stored).await == i64::from(orders)).then_some(())
    })
    .await;
    assert_eq!(gaps(&case.database).await, lost);
}

#[tokio::test]
async fn a_topic_created_again_with_a_shorter_log_halts() {
    if embedded::lacks("deleted topics") {
        return;
    }
    a_recreated_topic_halts(5).await;
}

#[tokio::test]
async fn a_topic_created_again_with_a_longer_log_halts() {
    if embedded::lacks("deleted topics") {
        return;
    }
    a_recreated_topic_halts(60).await;
}

#[tokio::test]
async fn a_topic_created_again_is_read_from_its_beginning_with_a_gap_on_record() {
    if embedded::lacks("deleted topics") {
        return;
    }
    let mut case = stopped("earliest", 20).await;
    case.recreate(5).await;
    let _relay = Relay::start(&case.config);
    case.starts_anew_at(0).await;
    let read = async || (case.receiver.lines().len() == 25).then_some(());
    eventually("all of the new topic is sent", PATIENCE, read).await;
    assert_eq!(gaps(&case.database).await, [gap(20, 20, "topic_recreated", "earliest")]);
}

#[tokio::test]
async fn a_topic_created_again_is_read_from_its_end_with_a_gap_on_record() {
    if embedded::lacks("deleted topics") {
        return;
    }
    let mut case = stopped("latest", 20).await;
    case.recreate(5).await;
    let _relay = Relay::start(&case.config);
    case.starts_anew_at(5).await;
    case.topic.send_orders(2000..2003);
    let read = async || (case.receiver.lines().len() == 23).then_some(());
    eventually("what came after the start is sent", PATIENCE, read).await;
    assert_eq!(gaps(&case.database).await, [gap(20, 20, "topic_recreated", "latest")]);
}

#[tokio::test]
async fn a_cursor_beyond_the_end_halts_with_the_cause_on_record() {
    let case = stopped("halt", 20).await;
    case.read_past_the_end(50).await;
    let relay = Relay::start(&case.config);
    let reason = halted(&case.database).await;
    assert!(reason.contains("the stored offset 50") && reason.contains("0 to 20"), "{reason}");
    halts_again(&case, &relay).await;
    assert_eq!(gaps(&case.database).await, [gap(50, 20, "beyond_end", "halt")]);
}

#[tokio::test]
async fn a_cursor_beyond_the_end_goes_on_where_the_policy_says_with_a_gap_on_record() {
    for (policy, to, again) in [("earliest", 0, 20), ("latest", 20, 0)] {
        let case = stopped(policy, 20).await;
        case.read_past_the_end(50).await;
        let _relay = Relay::start(&case.config);
        let noted = async || Some(gaps(&case.database).await).filter(|gaps| !gaps.is_empty());
        let gaps = eventually("the gap is on record", PATIENCE, noted).await;
        assert_eq!(gaps, [gap(50, to, "beyond_end", policy)]);
        case.topic.send_orders(20..25);
        case.applied(25).await;
        assert_eq!(case.receiver.lines().len(), 25 + again, "what is read again comes under the same keys");
    }
}
