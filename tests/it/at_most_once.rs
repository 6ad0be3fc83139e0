//! At most once: whatever dies, and whenever, no endpoint sees an event twice, and every one that it may have missed is
//! listed as in doubt.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use oncebox::receiver::{Answer, Seen};

use crate::support::gate::Gate;
use crate::support::process::{Config, free_port, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const CONCURRENCY: usize = 8;

fn config(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.guarantee = "at-most-once";
    config.delivery.push_str(&format!("\n      concurrency: {CONCURRENCY}"));
    (config.timeout, config.lease) = ("1s", "2500ms");
    config.kafka = "group.instance.id: only".to_owned();
    config
}

/// Keys by how often the receiver got a request with them.
fn requests(receiver: &TestReceiver) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for seen in receiver.seen() {
        *counts.entry(seen.key).or_default() += 1;
    }
    counts
}

async fn dead(database: &TestDatabase, reason: &str) -> HashSet<String> {
    let rows = database.query("select key from oncebox.dead_letter where reason = $1", &[&reason]).await;
    rows.iter().map(|row| row.get(0)).collect()
}

async fn everything_ends(database: &TestDatabase, sent: u32) {
    let done = "select count(*) from oncebox.done";
    // Many kills leave a long backlog to the last relay.
    let patience = PATIENCE + Duration::from_millis(20) * sent;
    eventually("every event has ended", patience, async || {
        (database.count(done).await == i64::from(sent)).then_some(())
    })
    .await;
}

/// `ONCEBOX_KILLS` says how often at each seam; 5 unless told, 50 for the campaign of 200.
#[tokio::test]
async fn a_kill_between_claim_and_answer_never_makes_a_second_request() {
    let kills = std::env::var("ONCEBOX_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = config(&topic, &database, &receiver);
    let mut sent = 0;
    for seam in ["claim.after", "send.before", "send.after_response", "settle.before"] {
        for kill in 0..kills {
            let mut relay = Relay::start_with(&config, &format!("{seam}={}*off->return", kill % 4));
            let status = eventually("the relay dies", PATIENCE, async || {
                topic.send_orders(sent..sent + 5);
                sent += 5;
                relay.end()
            })
            .await;
            assert_eq!(status.signal(), Some(6), "the relay was to die at {seam}");
        }
    }
    let relay = Relay::start(&config);
    everything_ends(&database, sent).await;
    let (received, in_doubt) = (requests(&receiver), dead(&database, "in_doubt").await);
    let twice: Vec<&String> = received.iter().filter(|(_, count)| **count > 1).map(|(key, _)| key).collect();
    assert!(twice.is_empty(), "sent twice: {twice:?}");
    let rows = database.query("select key from oncebox.outbox", &[]).await;
    let unaccounted: Vec<String> = rows
        .iter()
        .map(|row| row.get(0))
        .filter(|key| !received.contains_key(key) && !in_doubt.contains(key))
        .collect();
    assert!(unaccounted.is_empty(), "neither received nor in doubt: {unaccounted:?}");
    assert_eq!(rows.len(), sent as usize);
    let bound = kills as usize * 4 * 2 * CONCURRENCY;
    assert!(in_doubt.len() <= bound, "{} in doubt after {} kills", in_doubt.len(), 4 * kills);
    assert_eq!(database.count("select count(*) from oncebox.dead_letter where reason <> 'in_doubt'").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.retry").await, 0);
    drop(relay);
}

#[tokio::test]
async fn every_answer_is_final_and_a_lost_one_is_in_doubt() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let number = |seen: &Seen| serde_json::from_slice::<serde_json::Value>(&seen.body).unwrap()["data"]["id"].as_u64();
    let receiver = TestReceiver::deciding(move |seen| match number(seen) {
        Some(0) => Answer::status(500),
        Some(1) => Answer::status(409),
        Some(2) => Answer::Status(503, vec![("retry-after".to_owned(), "1".to_owned())]),
        Some(3) => Answer::ProcessAndClose,
        Some(4) => Answer::Hang,
        Some(5) => Answer::status(301),
        _ => Answer::Process,
    })
    .await;
    let relay = Relay::start(&config(&topic, &database, &receiver));
    topic.send_orders(0..10);
    everything_ends(&database, 10).await;
    assert!(requests(&receiver).values().all(|count| *count == 1), "one request each");
    assert_eq!(dead(&database, "rejected").await.len(), 4);
    assert_eq!(dead(&database, "in_doubt").await.len(), 2);
    assert_eq!(database.count("select sum(completed)::bigint from oncebox.delivery").await, 4);
    assert_eq!(relay.metric("oncebox_dead_lettered_total", "reason=\"in_doubt\"").await, Some(2.0));

    // A replay could be a second effect, so it needs a word more.
    let id = oncebox(&["dead-letters", "list", "--json"], &relay.config_path());
    let letters: serde_json::Value = serde_json::from_slice(&id.stdout).expect("a list");
    let id = letters[0]["id"].as_str().expect("an id");
    let refused = oncebox(&["dead-letters", "replay", id], &relay.config_path());
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    let forced = oncebox(&["dead-letters", "replay", "--force", id], &relay.config_path());
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
}

#[tokio::test]
async fn what_surely_never_left_is_tried_again() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = config(&topic, &database, &receiver);
    let port = free_port();
    config.url = format!("http://127.0.0.1:{port}/events");
    let relay = Relay::start(&config);
    topic.send_orders(0..20);
    eventually("refused attempts", PATIENCE, async || {
        relay.metric("oncebox_attempts_total", "outcome=\"connect\"").await.filter(|count| *count >= 20.0)
    })
    .await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let late = oncebox::receiver::Receiver::start(address, &log, std::sync::Arc::new(|_| Answer::Process)).await;
    let late = late.expect("a receiver");
    eventually("all arrive", PATIENCE, async || (late.applied() == 20).then_some(())).await;
    let lines = oncebox::receiver::log::read(&log).expect("a log");
    assert_eq!(lines.len(), 20, "each once");
}

#[tokio::test]
async fn a_record_that_was_split_up_without_an_answer_is_not_sent_as_a_whole_too() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|_| Answer::After(Duration::from_millis(30), Box::new(Answer::Process))).await;
    let mut config = config(&topic, &database, &receiver);
    // More events than the slots that are always free, and few enough to be claimed together when all are.
    config.extra = "transform: 'range(5) as $n | {id, $n}'".to_owned();
    let _relay = Relay::start_with(&config, "claim.spread_unanswered=50%return");
    topic.send_orders(0..40);
    everything_ends(&database, 200).await;
    let twice: Vec<(String, usize)> = requests(&receiver).into_iter().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "sent twice: {twice:?}");
    assert_eq!(database.count("select sum(completed)::bigint from oncebox.delivery").await, 200);
}

#[tokio::test]
async fn a_record_with_more_events_than_may_start_together_sends_each_once() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|_| Answer::After(Duration::from_millis(20), Box::new(Answer::Process))).await;
    let mut config = config(&topic, &database, &receiver);
    config.extra = "transform: 'range(100) as $n | {id, $n}'".to_owned();
    let mut relay = Relay::start(&config);
    topic.send_orders(0..3);
    eventually("work is under way", PATIENCE, async || (receiver.applied() > 100).then_some(())).await;
    relay.kill();
    relay = Relay::start(&config);
    everything_ends(&database, 300).await;
    assert!(requests(&receiver).values().all(|count| *count == 1), "one request each");
    let in_doubt = dead(&database, "in_doubt").await.len();
    assert!(in_doubt <= 2 * CONCURRENCY, "{in_doubt} in doubt, more than were under way");
    drop(relay);
}

/// While it is to be seen whether the endpoint lives there is one slot, and a claim may take longer than retries are left alone.
#[tokio::test]
async fn a_slow_claim_while_the_circuit_is_half_open_does_not_wait_for_itself() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let requests = std::sync::atomic::AtomicUsize::new(0);
    let receiver = TestReceiver::deciding(move |_| {
        let number = requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if number < 12 { Answer::status(503) } else { Answer::Process }
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    config.circuit = "{failures: 2, openFor: 300ms}";
    let relay = Relay::start_with(&config, "claim.waiting=sleep(1300)");
    topic.send_orders(0..20);
    everything_ends(&database, 20).await;
    assert_eq!(receiver.seen().len(), 20, "each once");
    drop(relay);
}

// The gate must go on while the test waits for a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_away_is_not_asked_as_fast_as_it_can_refuse() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|_| Answer::After(Duration::from_millis(20), Box::new(Answer::Process))).await;
    let mut config = config(&topic, &database, &receiver);
    config.lease = "10s";
    let (gate, through) = Gate::to_postgres().await;
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", through.as_str())]);
    topic.send_orders(0..500);
    eventually("work is under way", PATIENCE, async || (receiver.applied() > 50).then_some(())).await;
    let refused = || relay.log().matches("claiming waiting events failed").count();
    let since = Instant::now();
    gate.shut();
    let times = eventually("claims fail", PATIENCE, async || Some(refused()).filter(|times| *times >= 10)).await;
    let least = Duration::from_millis(100) * u32::try_from(times - 1).expect("few");
    assert!(since.elapsed() >= least, "refused {times} times in {:?}", since.elapsed());
    gate.open();
    everything_ends(&database, 500).await;
    assert!(requests(&receiver).values().all(|count| *count == 1), "one request each");
}
