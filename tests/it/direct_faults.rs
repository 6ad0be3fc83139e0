//! The direct path when something fails: the endpoint, Postgres, the process, or the operator's mind about the mechanism.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oncebox::event::CursorId;
use oncebox::outbox::direct;
use oncebox::receiver::Answer;

use crate::direct::{all_applied, all_marked, config, order, rows};
use crate::support::gate::Gate;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// For how long a server is away at least: `ONCEBOX_OUTAGE` in seconds, for those who have the patience.
fn outage() -> Duration {
    let seconds = std::env::var("ONCEBOX_OUTAGE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

#[tokio::test]
async fn an_endpoint_that_is_down_opens_the_circuit_and_floods_nothing() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let receiver = TestReceiver::deciding(move |_| match is_down.load(Ordering::Acquire) {
        true => Answer::Close,
        false => Answer::Process,
    })
    .await;
    let (concurrency, failures) = (16, 10);
    let mut config = config(&topic, &database, &receiver);
    config.circuit = "{failures: 10, openFor: 700ms}";
    config.delivery.push_str(&format!("\n      concurrency: {concurrency}"));
    let relay = Relay::start(&config);
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    down.store(true, Ordering::Release);
    let (before, since) = (receiver.seen().len(), Instant::now());
    topic.send_orders(100..4000);
    let circuit = async || relay.metric("oncebox_circuit_state", "workflow=\"orders\"").await;
    eventually("the circuit opens", PATIENCE, async || circuit().await.filter(|state| *state == 2.0)).await;
    // Several times its probe fails and it stays open.
    eventually("probes", PATIENCE + outage(), async || {
        (receiver.seen().len() >= before + 16 + 10 + 4 && since.elapsed() >= outage()).then_some(())
    })
    .await;
    let spilled = rows(&database, "spilled").await;
    // The last failure that it takes opens the circuit while every other slot may have a request under way, which fails too. A
    // probe is not stored, and nothing else starts.
    let most = failures + concurrency - 1;
    assert!(
        (1..=most).contains(&spilled),
        "{spilled} spilled: more than the {failures} failures that open the circuit and the {} requests that can be under \
         way besides the last of them",
        concurrency - 1
    );
    assert_eq!(relay.metric("oncebox_spilled_total", "workflow=\"orders\"").await, Some(spilled as f64));
    let counted = "select coalesce(max(counted), 0)::bigint from oncebox.retry where sends > 3";
    assert!(database.count(counted).await <= 2, "probes do not count");
    down.store(false, Ordering::Release);
    all_applied(&receiver, 4000).await;
    all_marked(&topic, &database, 2, 4000).await;
    eventually("the circuit closes", PATIENCE, async || circuit().await.filter(|state| *state == 0.0)).await;
    let stopped = "select extract(epoch from stopped)::bigint from oncebox.workflow";
    assert!(database.count(stopped).await >= 1, "the open time is on the account of stopped time");
}

// The gate must go on while the test waits for a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_postgres_away_successes_go_on_and_failures_are_stored_when_it_is_back() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match (order(seen) % 100, seen.attempt) {
        (50, 1) => Answer::status(500),
        _ => Answer::Process,
    })
    .await;
    let (gate, through) = Gate::to_postgres().await;
    let config = config(&topic, &database, &receiver);
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", through.as_str())]);
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    gate.shut();
    topic.send_orders(100..1000);
    // All but those that failed once.
    all_applied(&receiver, 991).await;
    tokio::time::sleep(outage()).await;
    assert_eq!(rows(&database, "spilled").await, 1, "of before");
    gate.open();
    all_applied(&receiver, 1000).await;
    all_marked(&topic, &database, 2, 1000).await;
    assert_eq!(rows(&database, "spilled").await, 10);
    drop(relay);
}

/// Kills at one seam, several times, and then counts.
async fn survives_kills_at(seam: &str) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match (order(seen) % 10, seen.attempt) {
        (5, 1) => Answer::status(500),
        (7, _) => Answer::status(422),
        _ => Answer::Process,
    })
    .await;
    let config = config(&topic, &database, &receiver);
    let kills = std::env::var("ONCEBOX_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let mut sent = 0;
    for kill in 0..kills {
        let mut relay = Relay::start_with(&config, &format!("{seam}={}*off->return", kill % 4));
        let status = eventually("the relay dies", PATIENCE, async || {
            topic.send_orders(sent..sent + 20);
            sent += 20;
            relay.end()
        })
        .await;
        assert_eq!(status.signal(), Some(6), "the relay was to die at {seam}");
    }
    let relay = Relay::start(&config);
    let refused = i64::from(sent / 10);
    all_applied(&receiver, sent as usize - refused as usize).await;
    all_marked(&topic, &database, 2, i64::from(sent)).await;
    eventually("every refusal is a dead letter, and nothing waits", PATIENCE, async || {
        let letters = rows(&database, "dead_letter").await;
        (letters == refused && rows(&database, "retry").await == 0).then_some(())
    })
    .await;
    let mut keys: HashMap<u64, String> = HashMap::new();
    for seen in receiver.seen() {
        let known = keys.entry(order(&seen)).or_insert_with(|| seen.key.clone());
        assert_eq!(*known, seen.key, "a key changed");
    }
    drop(relay);
}

#[tokio::test]
async fn a_kill_after_the_answer_of_a_direct_delivery_loses_nothing() {
    survives_kills_at("send.after_response").await;
}

#[tokio::test]
async fn a_kill_before_a_failure_is_stored_loses_nothing() {
    survives_kills_at("spill.before").await;
}

#[tokio::test]
async fn a_kill_after_a_failure_is_stored_loses_nothing() {
    survives_kills_at("spill.after").await;
}

#[tokio::test]
async fn a_kill_before_a_refused_direct_event_is_parked_loses_nothing() {
    survives_kills_at("park.before").await;
}

/// A backlog of a million is not moved in one transaction, and a process that dies between two of them leaves nothing behind.
#[tokio::test]
async fn a_switch_that_ends_half_way_loses_and_repeats_nothing() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::start().await;
    let mut config = config(&topic, &database, &receiver);
    (config.guarantee, config.extra) = ("exactly-once", "paused: true".to_owned());
    let mut relay = Relay::start(&config);
    topic.send_orders(0..100);
    eventually("all is stored", PATIENCE, async || (rows(&database, "outbox").await == 100).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    let cursor = CursorId(database.count("select id from oncebox.cursor").await);
    for moved in [40, 80] {
        assert!(!direct::enter(&database.opened(), cursor, 40).await.expect("a step"), "there is more to move");
        assert_eq!(rows(&database, "retry").await, moved);
    }
    // Whoever still reads through the outbox goes on with what is left.
    config.extra.clear();
    let mut relay = Relay::start(&config);
    all_applied(&receiver, 100).await;
    assert_eq!(relay.stop().await, Some(0));
    config.guarantee = "idempotent-keys";
    let _relay = Relay::start(&config);
    topic.send_orders(100..120);
    all_applied(&receiver, 120).await;
    all_marked(&topic, &database, 1, 120).await;
    assert_eq!(receiver.seen().len(), 120, "each once");
    assert_eq!(rows(&database, "spilled").await, 0);
}

#[tokio::test]
async fn a_switch_between_the_paths_under_load_loses_nothing() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match (order(seen) % 10, seen.attempt) {
        (5, 1) => Answer::status(500),
        _ => Answer::After(Duration::from_millis(3), Box::new(Answer::Process)),
    })
    .await;
    let mut config = config(&topic, &database, &receiver);
    let mut sent = 0;
    for (turn, guarantee) in
        ["idempotent-keys", "exactly-once", "at-least-once", "exactly-once", "at-least-once"].iter().enumerate()
    {
        config.guarantee = guarantee;
        let mut relay = Relay::start(&config);
        topic.send_orders(sent..sent + 400);
        sent += 400;
        eventually("some of it", PATIENCE, async || (receiver.applied() > sent as usize - 300).then_some(())).await;
        match turn % 2 {
            0 => relay.kill(),
            _ => assert_eq!(relay.stop().await, Some(0)),
        }
    }
    let relay = Relay::start(&config);
    all_applied(&receiver, sent as usize).await;
    eventually("nothing waits", PATIENCE, async || (rows(&database, "retry").await == 0).then_some(())).await;
    let rejected = database.count("select count(*) from oncebox.dead_letter").await;
    assert_eq!(rejected, 0);
    drop(relay);
}
