//! What holds for all processes together: requests at once, requests a second, a pause; and processes of two minds during a
//! rollout.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncebox::config::Guarantee;
use oncebox::event::{ProcessId, Roles};
use oncebox::outbox::fleet::{self, Peers, Word};
use oncebox::receiver::Answer;

use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// Requests that a receiver has at once, and the most it ever had.
#[derive(Clone, Default)]
pub struct AtOnce {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl AtOnce {
    /// Counts a request, and answers it after `held`.
    pub fn answer(&self, held: Duration) -> Answer {
        let now = Arc::clone(&self.now);
        self.most.fetch_max(now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        // Less than the answer takes, so that what is counted was surely under way. The time runs from here, not from whenever the
        // task gets its turn.
        let over = tokio::time::sleep(held - (held / 2).min(Duration::from_millis(200)));
        tokio::spawn(async move {
            over.await;
            now.fetch_sub(1, Ordering::AcqRel);
        });
        Answer::After(held, Box::new(Answer::Process))
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::Acquire)
    }
}

async fn slow_receiver(held: Duration) -> (TestReceiver, AtOnce) {
    let at_once = AtOnce::default();
    let counted = at_once.clone();
    (TestReceiver::deciding(move |_| counted.answer(held)).await, at_once)
}

pub async fn all_applied(receiver: &TestReceiver, count: usize) {
    eventually("all arrive", PATIENCE, async || (receiver.applied() == count).then_some(())).await;
}

pub fn ran(arguments: &[&str], relay: &Relay) -> String {
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
    let (receiver, at_once) = slow_receiver(Duration::from_millis(50)).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      concurrency: 4");
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..200);
    all_applied(&receiver, 200).await;
    assert!(at_once.most() <= 4, "{} at once", at_once.most());
    assert_eq!(database.count("select count(*) from oncebox.process").await, 2);
    drop(relays);
}

/// An endpoint that can take one at a time has one at a time, and somebody is there when its sender dies.
#[tokio::test]
async fn three_processes_make_one_request_at_a_time_where_one_is_allowed() {
    let (topic, database) = (Topic::new(3).await, TestDatabase::new().await);
    let (receiver, at_once) = slow_receiver(Duration::from_millis(30)).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      concurrency: 1");
    let mut relays = [Relay::start(&config), Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..60);
    eventually("half arrive", PATIENCE, async || (receiver.applied() >= 30).then_some(())).await;
    let mut sent = Vec::new();
    for relay in &relays {
        sent.push(relay.metric("oncebox_attempts_total", "orders").await.unwrap_or(0.0));
    }
    assert_eq!(sent.iter().filter(|sent| **sent > 0.0).count(), 1, "one process sends: {sent:?}");
    relays[sent.iter().position(|sent| *sent > 0.0).expect("one sends")].kill();
    topic.send_orders(60..90);
    all_applied(&receiver, 90).await;
    assert_eq!(at_once.most(), 1);
}

/// Retries are anybody's: a newcomer could begin some at once, while the others still have more than their new shares.
#[tokio::test]
async fn a_newcomer_waits_for_what_is_under_way() {
    let (topic, database, at_once) = (Topic::new(2).await, TestDatabase::new().await, AtOnce::default());
    let counted = at_once.clone();
    let receiver = TestReceiver::deciding(move |seen| match seen.attempt {
        1 => Answer::status(503),
        _ => counted.answer(Duration::from_secs(8)),
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("15s", "30s");
    config.delivery = "retries: {backoff: [1s], jitter: 0}\n      concurrency: 8".to_owned();
    topic.send_orders(0..14);
    let first = Relay::start(&config);
    eventually("retries are under way", PATIENCE, async || (at_once.most() >= 6).then_some(())).await;
    let second = Relay::start(&config);
    eventually("the newcomer sends too", PATIENCE, async || {
        second.metric("oncebox_attempts_total", "orders").await.filter(|sent| *sent > 0.0)
    })
    .await;
    all_applied(&receiver, 14).await;
    assert!(at_once.most() <= 8, "{} at once", at_once.most());
    drop(first);
}

/// A kill leaves its last word behind for some seconds: nobody is to hold back for requests that died with it.
#[tokio::test]
async fn what_a_killed_process_had_under_way_keeps_nobody_waiting() {
    let database = TestDatabase::new().await;
    migrated(&database);
    let opened = database.opened();
    let guarantee = Guarantee::ExactlyOnce;
    let word = [Word { workflow: "orders", guarantee, under_way: 0, firsts: 0, takes: true }];
    for (silent_for, counted) in [(0, 16), (3, 0)] {
        database
            .execute(&format!(
                "delete from oncebox.process; insert into oncebox.process (id, workflows, seen_at, under_way) values (\
                 gen_random_uuid(), '{{orders}}', clock_timestamp() - interval '{silent_for} s', '{{16}}')"
            ))
            .await;
        let others = fleet::beat(&opened, (ProcessId::new_v4(), Roles::ALL), &word).await.expect("Postgres answers");
        assert_eq!(
            others.of("orders"),
            Peers { under_way: vec![counted], older: 1, are_apart: false },
            "silent for {silent_for} s"
        );
    }
}

#[tokio::test]
async fn a_pause_holds_for_every_process_and_nothing_of_what_comes_in_is_lost() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let relays = [Relay::start(&config), Relay::start(&config)];
    topic.send_orders(0..50);
    all_applied(&receiver, 50).await;
    assert_eq!(ran(&["pause", "orders"], &relays[0]), "orders: paused\n");
    both_pause(&relays).await;
    topic.send_orders(50..100);
    let stored = "select count(*) from oncebox.outbox";
    eventually("what comes in is stored", PATIENCE, async || (database.count(stored).await == 100).then_some(())).await;
    assert_eq!(receiver.applied(), 50, "and not sent");
    assert_eq!(ran(&["resume", "orders"], &relays[1]), "orders: running\n");
    all_applied(&receiver, 100).await;
    assert_eq!(receiver.seen().len(), 100);
}

async fn both_pause(relays: &[Relay; 2]) {
    for relay in relays {
        let paused = r#"state="paused",workflow="orders""#;
        eventually("both know", PATIENCE, async || {
            relay.metric("oncebox_workflow_state", paused).await.filter(|value| *value == 1.0)
        })
        .await;
    }
}

/// Both have work, and neither begins any of it once both say that they know; after it they go on as before, not all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_every_process_and_its_end_is_no_stampede() {
    const RATE: u32 = 100;
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&arrivals);
    let receiver = TestReceiver::deciding(move |_| {
        noted.lock().unwrap().push(Instant::now());
        Answer::After(Duration::from_millis(20), Box::new(Answer::Process))
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = format!("concurrency: 8\n      rateLimit: {{perSecond: {RATE}, burst: 10}}");
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..600);
    eventually("work is under way", PATIENCE, async || (receiver.applied() >= 100).then_some(())).await;
    ran(&["pause", "orders"], &relays[0]);
    let paused_at = Instant::now();
    both_pause(&relays).await;
    // Within a second; a machine that is busy with other tests gets some more.
    assert!(paused_at.elapsed() < Duration::from_secs(4), "both knew after {:?}", paused_at.elapsed());
    for relay in &relays {
        eventually("none is under way", PATIENCE, async || {
            relay.metric("oncebox_in_flight", "orders").await.filter(|under_way| *under_way == 0.0)
        })
        .await;
    }
    let before = arrivals.lock().unwrap().len();
    let last = arrivals.lock().unwrap().last().expect("some arrived").saturating_duration_since(paused_at);
    println!("the last came {last:?} after the pause");
    assert!(before < 600, "there is work left");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(arrivals.lock().unwrap().len(), before, "and it is left alone");
    // What two seconds would allow has not gathered meanwhile.
    ran(&["resume", "orders"], &relays[1]);
    let resumed_at = Instant::now();
    all_applied(&receiver, 600).await;
    let arrivals = arrivals.lock().unwrap();
    let took = arrivals.last().expect("all").saturating_duration_since(resumed_at);
    let fewest = Duration::from_millis(u64::from(600 - before as u32 - 20) * 1000 / u64::from(RATE));
    assert!(took >= fewest, "{} came in {took:?}", 600 - before);
}

/// In the middle of a rollout one process keeps order and the other does not, one delays and the other does not.
#[tokio::test]
async fn processes_with_different_orders_and_delays_lose_nothing_and_repeat_nothing() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let configured = |delivery: &str| {
        let mut config = Config::new(&topic, &database, &receiver);
        (config.timeout, config.lease) = ("10s", "20s");
        config.delivery = delivery.to_owned();
        config
    };
    let (old, new) = (configured("delay: 1s"), configured("ordering: key"));
    let mut relays = vec![Relay::start(&old), Relay::start(&new)];
    let mut sent = 0;
    for turn in 0..4 {
        topic.send_orders(sent..sent + 100);
        sent += 100;
        eventually("some arrive", PATIENCE, async || (receiver.applied() > sent as usize - 60).then_some(())).await;
        // Partitions change hands between the two kinds while there is work.
        let mut gone = relays.remove(0);
        assert_eq!(gone.stop().await, Some(0));
        relays.push(Relay::start(if turn % 2 == 0 { &old } else { &new }));
    }
    all_applied(&receiver, sent as usize).await;
    assert_eq!(receiver.seen().len(), sent as usize, "each once");
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
    eventually("nothing is left", PATIENCE, async || {
        (database.count("select count(*) from oncebox.retry").await == 0).then_some(())
    })
    .await;
}
