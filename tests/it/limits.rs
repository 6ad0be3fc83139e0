//! What holds for all processes together, and what comes later than at once: concurrency, rate, too many dead letters, pauses,
//! delays.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncebox::receiver::Answer;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn all_applied(receiver: &TestReceiver, count: usize) {
    eventually("all arrive", PATIENCE, async || (receiver.applied() == count).then_some(())).await;
}

fn ran(arguments: &[&str], relay: &Relay) -> String {
    let output = oncebox(arguments, &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn all_processes_together_keep_to_the_rate() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&arrivals);
    let receiver = TestReceiver::deciding(move |_| {
        noted.lock().unwrap().push(Instant::now());
        Answer::Process
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      rateLimit: {perSecond: 100, burst: 10}");
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..400);
    all_applied(&receiver, 400).await;
    let arrivals = arrivals.lock().unwrap();
    let took = *arrivals.last().unwrap() - arrivals[0];
    // 400 at 100 a second, less what a burst lets through at once; twice as fast would be each for itself.
    assert!(took >= Duration::from_secs(3), "{took:?}");
    let sent = [&relays[0], &relays[1]].map(|relay| relay.log());
    assert!(sent.iter().all(|log| !log.contains("panicked")));
}

#[tokio::test]
async fn all_processes_together_keep_to_the_concurrency() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&now), Arc::clone(&most));
    let held = Duration::from_millis(50);
    let receiver = TestReceiver::deciding(move |_| {
        let (now, most) = (Arc::clone(&counted.0), &counted.1);
        most.fetch_max(now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        // Less than the answer takes, so that what is counted was surely under way.
        tokio::spawn(async move {
            tokio::time::sleep(held / 2).await;
            now.fetch_sub(1, Ordering::AcqRel);
        });
        Answer::After(held, Box::new(Answer::Process))
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      concurrency: 4");
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..200);
    all_applied(&receiver, 200).await;
    assert!(most.load(Ordering::Acquire) <= 4, "{} at once", most.load(Ordering::Acquire));
    assert_eq!(database.count("select count(*) from oncebox.process").await, 2);
    drop(relays);
}

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
async fn a_pause_holds_for_every_process_and_nothing_of_what_comes_in_is_lost() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let relays = [Relay::start(&config), Relay::start(&config)];
    topic.send_orders(0..50);
    all_applied(&receiver, 50).await;
    assert_eq!(ran(&["pause", "orders"], &relays[0]), "orders: paused\n");
    for relay in &relays {
        let paused = r#"state="paused",workflow="orders""#;
        eventually("both know", PATIENCE, async || {
            relay.metric("oncebox_workflow_state", paused).await.filter(|value| *value == 1.0)
        })
        .await;
    }
    topic.send_orders(50..100);
    let stored = "select count(*) from oncebox.outbox";
    eventually("what comes in is stored", PATIENCE, async || (database.count(stored).await == 100).then_some(())).await;
    assert_eq!(receiver.applied(), 50, "and not sent");
    assert_eq!(ran(&["resume", "orders"], &relays[1]), "orders: running\n");
    all_applied(&receiver, 100).await;
    assert_eq!(receiver.seen().len(), 100);
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
    drop(relay);
}

/// As many due at one moment as would make a storm; `ONCEBOX_DUE` says how many, 2,000 unless told.
#[tokio::test]
async fn a_crowd_that_is_due_at_once_is_leased_no_faster_than_it_is_sent() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::After(Duration::from_millis(2), Box::new(Answer::Process))).await;
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
    assert_eq!(receiver.seen().len(), crowd as usize, "each once");
    drop(relay);
}
