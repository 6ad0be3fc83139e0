//! A workflow under a new id: it keeps its cursors, its keys and its events.

use std::collections::{HashMap, HashSet};

use oncebox::receiver::Answer;

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

#[tokio::test]
async fn a_renamed_workflow_goes_on_where_it_was_with_its_keys_and_its_events() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match seen.workflow.as_str() {
        "orders" if seen.source.ends_with('7') => Answer::status(503),
        "orders" if seen.source.ends_with('3') => Answer::status(422),
        _ => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [1s], jitter: 0}".to_owned();
    let mut old = Relay::start(&config);
    topic.send_orders(0..100);
    let requests = || receiver.lines().iter().map(|line| line.source.clone()).collect::<HashSet<String>>().len();
    eventually("each was tried", PATIENCE, async || (requests() == 100).then_some(())).await;
    assert_eq!(old.stop().await, Some(0));
    let dead = database.count("select count(*) from oncebox.dead_letter where workflow = 'orders'").await;
    assert!(dead > 0 && receiver.applied() < 100);

    let mut renamed = Config::new(&topic, &database, &receiver);
    (renamed.workflow, renamed.extra) = ("sales".to_owned(), "formerId: orders".to_owned());
    let relay = Relay::start(&renamed);
    let alive = 100 - usize::try_from(dead).expect("few");
    eventually("what waited is delivered", PATIENCE, async || (receiver.applied() == alive).then_some(())).await;
    topic.send_orders(100..150);
    eventually("and what came since", PATIENCE, async || (receiver.applied() == alive + 50).then_some(())).await;
    // Nothing was read again, and every event that was sent under both names had one key.
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 150);
    let mut keys: HashMap<String, HashSet<String>> = HashMap::new();
    for line in receiver.lines() {
        keys.entry(line.source).or_default().insert(line.key);
    }
    assert!(keys.values().all(|keys| keys.len() == 1), "one key per record");
    assert_eq!(database.count("select count(*) from oncebox.dead_letter where workflow = 'sales'").await, dead);

    // The old configuration, started again by mistake, reads nothing.
    let stale = Relay::start(&config);
    eventually("it says why", PATIENCE, async || stale.log().contains("renamed to `sales`").then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.cursor where workflow = 'orders'").await, 0);
    drop(relay);
}
