//! What comes later than at once, and how much at once: delays, crowds, too many dead letters, too many bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncebox::receiver::Answer;

use crate::fleet::{AtOnce, all_applied, ran};
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

#[tokio::test]
async fn more_dead_letters_than_the_limit_suspend_and_a_resume_counts_anew() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |_| match is_mended.load(Ordering::Acquire) {
        true => Answer::Process,
        false => Answer::After(Duration::from_millis(5), Box::new(Answer::status(422))),
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      deadLetterLimit: {count: 20, per: 10m}\n      concurrency: 2");
    let relay = Relay::start(&config);
    topic.send_orders(0..600);
    let suspended =
        "select count(*) from oncebox.workflow where state = 'suspended' and reason like '%deadLetterLimit%'";
    eventually("suspended", PATIENCE, async || (database.count(suspended).await == 1).then_some(())).await;
    mended.store(true, Ordering::Release);
    ran(&["resume", "orders"], &relay);
    let dead = eventually("all others arrive", PATIENCE, async || {
        let dead = database.count("select count(*) from oncebox.dead_letter").await;
        (receiver.applied() + usize::try_from(dead).unwrap() == 600).then_some(dead)
    })
    .await;
    assert!((21..300).contains(&dead), "{dead} dead letters: it stops soon after 20");
}

#[tokio::test]
async fn a_delayed_event_is_sent_when_it_is_due_and_not_before() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&arrivals);
    let receiver = TestReceiver::deciding(move |_| {
        noted.lock().unwrap().push(Instant::now());
        Answer::Process
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      delay: 4s");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let began = Instant::now();
    topic.send_orders(0..60);
    let scheduled = "select count(*) from oncebox.retry where state = 'scheduled'";
    eventually("all wait", PATIENCE, async || (database.count(scheduled).await == 60).then_some(())).await;
    // A crash while they wait changes nothing.
    relay.kill();
    let relay = Relay::start(&config);
    all_applied(&receiver, 60).await;
    let first = *arrivals.lock().unwrap().iter().min().unwrap();
    // A record's time is in whole milliseconds.
    assert!(first + Duration::from_millis(2) >= began + Duration::from_secs(4), "{:?} after", first - began);
    assert_eq!(receiver.seen().len(), 60, "each once");
    // In due time: what is due is looked for four times a second, and a slow machine gets some more.
    let again = Instant::now();
    topic.send_orders(60..61);
    all_applied(&receiver, 61).await;
    let took = again.elapsed();
    assert!((Duration::from_millis(3_998)..Duration::from_secs(8)).contains(&took), "it came after {took:?}");
    let queued = relay.metric("oncebox_stage_seconds_count", "stage=\"queue\"").await;
    assert!(queued.is_some_and(|count| count >= 1.0), "what was due is counted from then: {queued:?}");
}

/// As many due at one moment as would make a storm; `ONCEBOX_DUE` says how many, 2,000 unless told.
#[tokio::test]
async fn a_crowd_that_is_due_at_once_is_leased_no_faster_than_it_is_sent() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let at_once = AtOnce::default();
    let counted = at_once.clone();
    let receiver = TestReceiver::deciding(move |_| counted.answer(Duration::from_millis(10))).await;
    let crowd: u32 = std::env::var("ONCEBOX_DUE").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let patience = PATIENCE + Duration::from_millis(20) * crowd;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      delay: 1h\n      concurrency: 16");
    let relay = Relay::start(&config);
    topic.send_orders(0..crowd);
    let scheduled = "select count(*) from oncebox.retry where state = 'scheduled'";
    eventually("all wait", patience, async || (database.count(scheduled).await == i64::from(crowd)).then_some(()))
        .await;
    database.execute("update oncebox.retry set due = clock_timestamp()").await;
    let mut most = 0;
    eventually("all arrive", patience, async || {
        most = most.max(database.count("select count(*) from oncebox.retry where state = 'active'").await);
        (receiver.applied() == crowd as usize).then_some(())
    })
    .await;
    assert!(most <= 32, "{most} leased at once, where 16 may be under way and as many settled");
    assert!(at_once.most() <= 16, "{} requests at once", at_once.most());
    assert_eq!(receiver.seen().len(), crowd as usize, "each once");
    drop(relay);
}

#[tokio::test]
async fn reading_pauses_while_too_many_bytes_wait() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |_| match is_mended.load(Ordering::Acquire) {
        true => Answer::Process,
        false => Answer::status(503),
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [100ms], jitter: 0}\n      maxWaitingBytes: 64KiB".to_owned();
    let relay = Relay::start(&config);
    let send = |count: usize| {
        let value = format!(r#"{{"text":"{}"}}"#, "x".repeat(20_000));
        (0..count).for_each(|_| topic.send(None, &value));
        topic.flush();
    };
    send(10);
    let pauses = async || relay.log().contains("too much waits; reading pauses").then_some(());
    eventually("reading pauses", PATIENCE, pauses).await;
    // What came before the pause took hold may still have been read.
    let mut sent = 10;
    eventually("the rest stays in Kafka", PATIENCE, async || {
        send(1);
        sent += 1;
        relay.metric("oncebox_kafka_lag_records", "").await.filter(|lag| *lag >= 5.0)
    })
    .await;
    let stored = database.count("select count(*) from oncebox.outbox").await;
    assert!(stored < sent, "{stored} of {sent} are stored");
    mended.store(true, Ordering::Release);
    all_applied(&receiver, sent as usize).await;
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, sent);
}
