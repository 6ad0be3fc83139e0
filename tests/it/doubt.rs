//! Moments at which a process cannot know: a commit without an answer, a right that was lost while it slept.

use std::time::Duration;

use oncebox::receiver::Answer;

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn each_order_once(failpoint: &str) {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let mut relay = Relay::start_with(&config, failpoint);
    for batch in 0..30 {
        topic.send_orders(batch * 10..batch * 10 + 10);
    }
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == 300).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 300);
    assert_eq!(database.count("select sum(next_offset)::bigint from oncebox.cursor").await, 300);
}

#[tokio::test]
async fn a_commit_that_fails_is_made_again_and_nothing_is_lost() {
    each_order_once("ingest.commit_fails=50%return").await;
}

#[tokio::test]
async fn a_commit_that_fails_with_nothing_after_it_is_made_again() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send_orders(0..1);
    let relay = Relay::start_with(&Config::new(&topic, &database, &receiver), "ingest.commit_fails=1*return->off");
    eventually("the order arrives", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert!(relay.log().contains("storing failed"), "the commit was to fail");
    // The look at all cursors that finds one fallen back would mend it too, with everything taken anew.
    assert_eq!(relay.log().matches("joining the consumer group").count(), 1, "made again by whoever made it");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_made_twice() {
    each_order_once("ingest.commit_unanswered=50%return").await;
}

#[tokio::test]
async fn a_reader_that_lost_its_cursor_stores_nothing() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start_with(&config, "ingest.before_commit=1*sleep(4000)->off");
    relay.ready().await;
    let held = "select count(*) from oncebox.cursor where owner is not null";
    eventually("the cursor is held", PATIENCE, async || (database.count(held).await == 1).then_some(())).await;
    topic.send_orders(0..10);
    // While it is about to commit, somebody else becomes the owner, and has stored nothing yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    database
        .execute(
            "update oncebox.cursor set owner = gen_random_uuid(), owner_epoch = owner_epoch + 1, taken_offset = null",
        )
        .await;
    let fenced = async || relay.metric("oncebox_fenced_writes_total", "orders").await.filter(|count| *count >= 1.0);
    let stored_meanwhile = async || database.count("select count(*) from oncebox.outbox").await;
    eventually("the stale write is fenced", Duration::from_secs(20), async || {
        let (fenced, stored) = (fenced().await, stored_meanwhile().await);
        assert!(fenced.is_some() || stored == 0, "a process without the cursor stored {stored} rows");
        fenced
    })
    .await;
    // It takes the cursor anew, and nothing is lost.
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    assert_eq!(stored_meanwhile().await, 10);
}

#[tokio::test]
async fn a_retry_whose_lease_ran_out_before_it_was_sent_is_not_sent() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(500) } else { Answer::Process }).await;
    let config = Config::new(&topic, &database, &receiver);
    // The lease is 3 s: what was claimed before the sleep belongs to nobody after it.
    let _relay = Relay::start_with(&config, "claim.retries=1*sleep(4000)->off");
    topic.send_orders(0..1);
    eventually("the order is applied", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    let requests = receiver.lines();
    let attempts: Vec<u32> = requests.iter().map(|line| line.attempt).collect();
    assert_eq!(attempts, [1, 2], "what was claimed and not sent is not counted");
    // A retry's fence is the time of its claim.
    let held_for = requests[1].time / 1000 - requests[1].fence;
    assert!(held_for < 3_000, "it was sent {held_for} ms after its claim, by whoever did not hold it any more");
}

#[tokio::test]
async fn a_process_that_dies_of_something_else_convicts_no_record() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.kafka = "group.instance.id: only".to_owned();
    topic.send_orders(0..3);
    // Each time the first record is read and made into an event; what kills comes after that.
    for _ in 0..7 {
        let mut relay = Relay::start_with(&config, "ingest.before_commit=return");
        eventually("the relay dies", PATIENCE, async || relay.end()).await;
    }
    let _relay = Relay::start(&config);
    eventually("all are applied", PATIENCE, async || (receiver.applied() == 3).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
}
