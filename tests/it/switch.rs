//! A workflow whose guarantee changes from one start to the next, with work under way: nothing is lost in between, and after
//! an orderly stop nothing that was sent at most once is sent again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox::receiver::Answer;

use crate::direct::{order, rows};
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// Keys of events that were made while the workflow ran at most once.
async fn made_at_most_once(database: &TestDatabase) -> HashSet<String> {
    let asked = "select o.key from oncebox.outbox as o join oncebox.configuration as c on c.version = o.config_version
                  where c.document like '%at-most-once%'";
    database.query(asked, &[]).await.iter().map(|row| row.get(0)).collect()
}

/// How often each key was received.
fn requests(receiver: &TestReceiver) -> HashMap<String, usize> {
    receiver.seen().into_iter().fold(HashMap::new(), |mut counts, seen| {
        *counts.entry(seen.key).or_default() += 1;
        counts
    })
}

#[tokio::test]
async fn a_switch_to_at_most_once_and_back_under_load_loses_nothing_and_repeats_nothing_of_it() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let turn = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&turn);
    // Failures that the one guarantee mends and the other ends. None in the last turn: what is sent first by then is sent until
    // it arrives.
    let receiver = TestReceiver::deciding(move |seen| {
        let turn = now.load(Ordering::Acquire);
        match (turn, order(seen) % 10, seen.attempt) {
            (0, 5, 1) | (1, 7, _) => Answer::status(503),
            (1, 3, _) => Answer::ProcessAndClose,
            _ => Answer::After(Duration::from_millis(3), Box::new(Answer::Process)),
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.kafka = "group.instance.id: only".to_owned();
    let mut sent = 0;
    let mut send = |count: u32| {
        topic.send_orders(sent..sent + count);
        sent += count;
        sent
    };

    let mut relay = Relay::start(&config);
    send(400);
    eventually("some of it is sent", PATIENCE, async || (receiver.seen().len() > 100).then_some(())).await;
    send(200);
    // With requests under way: what is in doubt now is taken over by a guarantee that gives it up.
    relay.kill();

    turn.store(1, Ordering::Release);
    config.guarantee = "at-most-once";
    let mut relay = Relay::start(&config);
    send(400);
    eventually("some of what is made at most once is sent", PATIENCE, async || {
        let (made, requests) = (made_at_most_once(&database).await, requests(&receiver));
        (made.iter().filter(|key| requests.contains_key(*key)).count() > 100).then_some(())
    })
    .await;
    send(200);
    // Finishes what is under way: killed, it would leave doubt to a guarantee that sends again.
    assert_eq!(relay.stop().await, Some(0));

    turn.store(2, Ordering::Release);
    config.guarantee = "exactly-once";
    // No answer is taken for lost because the machine is slow.
    (config.timeout, config.lease) = ("5s", "8s");
    let relay = Relay::start(&config);
    let sent = i64::from(send(400));
    eventually("every event has ended", PATIENCE, async || (rows(&database, "done").await == sent).then_some(())).await;

    let completed = database.count("select count(*) from oncebox.done where state = 'completed'").await;
    let dead = rows(&database, "dead_letter").await;
    assert_eq!((rows(&database, "outbox").await, completed + dead), (sent, sent), "delivered or dead, each once");
    eventually("nothing waits", PATIENCE, async || (rows(&database, "retry").await == 0).then_some(())).await;
    let processed: HashSet<String> =
        receiver.lines().into_iter().filter(|line| line.processed()).map(|line| line.key).collect();
    let asked = "select o.key from oncebox.outbox as o
                   join oncebox.done as d using (cursor, record_offset, event_index, generation, day)
                  where d.state = 'completed'";
    let delivered = database.query(asked, &[]).await;
    let keys = delivered.iter().map(|row| row.get::<_, &str>(0));
    let unprocessed: Vec<&str> = keys.filter(|key| !processed.contains(*key)).collect();
    assert!(unprocessed.is_empty(), "delivered, and never processed: {unprocessed:?}");

    let (made, requests) = (made_at_most_once(&database).await, requests(&receiver));
    let twice: Vec<&String> = made.iter().filter(|key| requests.get(*key).is_some_and(|count| *count > 1)).collect();
    assert!(made.len() > 100 && twice.is_empty(), "of {} made at most once, sent twice: {twice:?}", made.len());
    drop(relay);
}
