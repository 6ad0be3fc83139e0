//! Kill -9 at each seam of an event's life. Whatever the moment: no record without its events, no second row for one
//! place, no key that changes, and everything is delivered in the end.
//!
//! A seam is a failpoint whose action `return` aborts the process. `ONCEBOX_KILLS` says how often each is hit; 3 unless told.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;

use oncebox::receiver::Answer;

use crate::support::process::{Config, command, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const ORDERS_PER_KILL: u32 = 60;

fn kills() -> u32 {
    std::env::var("ONCEBOX_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

/// A relay that dies at this seam, after passing it unharmed so many times. More comes while it lives, so that the seam is
/// reached as often as it takes.
async fn die_at(seam: &str, spared: u32, config: &Config, topic: &Topic, sent: &mut u32) {
    let mut relay = Relay::start_with(config, &format!("{seam}={spared}*off->return"));
    let status = eventually("the relay dies", PATIENCE, async || {
        topic.send_orders(*sent..*sent + 5);
        *sent += 5;
        relay.end()
    })
    .await;
    assert_eq!(status.signal(), Some(6), "the relay was to die at {seam}, not of something else");
}

async fn survives_kills_at(seam: &str) {
    survives_kills_with(seam, TestReceiver::start().await).await;
}

/// A receiver that fails every first attempt, so that everything passes through retry.
async fn failing_first() -> TestReceiver {
    TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(500) } else { Answer::Process }).await
}

/// Answers how many leases of the dead the last relay found run out.
async fn survives_kills_with(seam: &str, receiver: TestReceiver) -> f64 {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let mut config = Config::new(&topic, &database, &receiver);
    // Static membership: a process that comes back gets its partitions without waiting for the old session.
    config.kafka = "group.instance.id: seam".to_owned();
    let mut sent = 0;
    for kill in 0..kills() {
        topic.send_orders(sent..sent + ORDERS_PER_KILL);
        sent += ORDERS_PER_KILL;
        // Dies at a different hit each time, somewhere in the middle of the work; an assignment comes once.
        let spared = if seam == "ingest.assign" { 0 } else { kill % 3 };
        die_at(seam, spared, &config, &topic, &mut sent).await;
    }
    let relay = Relay::start(&config);
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == sent as usize).then_some(())).await;
    eventually("every event is done", PATIENCE, async || {
        let open = database
            .count(
                "select count(*) from oncebox.outbox as o where not exists (select 1 from oncebox.done as d
                  where d.cursor = o.cursor and d.record_offset = o.record_offset and d.event_index = o.event_index
                    and d.generation = o.generation and d.day = o.day)",
            )
            .await;
        (open == 0).then_some(())
    })
    .await;
    let expired = relay.metric("oncebox_leases_expired_total", "orders").await;
    drop(relay);

    // I1, I2: each record has its one event, under one place.
    let rows =
        database.query("select cursor, record_offset, event_index, generation, key from oncebox.outbox", &[]).await;
    let places: HashSet<(i64, i64, i32, i32)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(rows.len(), sent as usize, "rows in the outbox");
    assert_eq!(places.len(), rows.len(), "no place twice");
    let keys: HashSet<String> = rows.iter().map(|row| row.get(4)).collect();
    assert_eq!(keys.len(), rows.len(), "no key twice");
    // I3: nothing is stored at or past its cursor.
    let beyond = "select count(*) from oncebox.outbox as o join oncebox.cursor as c on c.id = o.cursor
                   where o.record_offset >= c.next_offset";
    assert_eq!(database.count(beyond).await, 0);
    // D7, D9: one source, one key, one body, however often it was sent.
    let mut by_source: HashMap<String, (String, String)> = HashMap::new();
    for line in receiver.lines() {
        let first = by_source.entry(line.source.clone()).or_insert_with(|| (line.key.clone(), line.digest.clone()));
        assert_eq!(*first, (line.key.clone(), line.digest.clone()), "{}", line.source);
        assert!(keys.contains(&line.key));
    }
    assert_eq!(by_source.len(), sent as usize);
    expired.expect("the relay shows its metrics")
}

#[tokio::test]
async fn a_kill_after_the_poll_loses_and_doubles_nothing() {
    survives_kills_at("ingest.after_poll").await;
}

#[tokio::test]
async fn a_kill_before_the_commit_loses_and_doubles_nothing() {
    survives_kills_at("ingest.before_commit").await;
}

#[tokio::test]
async fn a_kill_after_the_commit_loses_and_doubles_nothing() {
    survives_kills_at("ingest.after_commit").await;
}

#[tokio::test]
async fn a_kill_after_the_claim_loses_and_doubles_nothing() {
    survives_kills_at("claim.after").await;
}

#[tokio::test]
async fn a_kill_after_the_receiver_accepted_loses_and_doubles_nothing() {
    survives_kills_at("send.after_response").await;
}

#[tokio::test]
async fn a_kill_before_the_settlement_loses_and_doubles_nothing() {
    survives_kills_at("settle.before").await;
}

#[tokio::test]
async fn a_kill_after_the_settlement_loses_and_doubles_nothing() {
    survives_kills_at("settle.after").await;
}

#[tokio::test]
async fn a_kill_during_an_assignment_loses_and_doubles_nothing() {
    survives_kills_at("ingest.assign").await;
}

#[tokio::test]
async fn a_kill_before_a_failure_is_settled_loses_and_doubles_nothing() {
    survives_kills_with("settle.failure", failing_first().await).await;
}

#[tokio::test]
async fn a_kill_before_a_retry_is_claimed_loses_and_doubles_nothing() {
    survives_kills_with("claim.before", failing_first().await).await;
}

/// `claim.after` is passed by a poll that finds nothing too; this one only with retries in hand.
#[tokio::test]
async fn a_kill_with_retries_in_hand_loses_and_doubles_nothing() {
    let expired = survives_kills_with("claim.retries", failing_first().await).await;
    assert!(expired >= 1.0, "what the last one had in hand was found by its lease: {expired}");
}

#[tokio::test]
async fn a_kill_while_replaying_neither_loses_nor_doubles_the_event() {
    for (seam, made) in [("replay.before", 0), ("replay.after", 1)] {
        let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
        let receiver =
            TestReceiver::deciding(
                |seen| if seen.event.contains(".r") { Answer::Process } else { Answer::status(422) },
            )
            .await;
        let relay = Relay::start(&Config::new(&topic, &database, &receiver));
        topic.send_orders(0..1);
        let dead = "select count(*) from oncebox.dead_letter";
        eventually("it is dead", PATIENCE, async || (database.count(dead).await == 1).then_some(())).await;
        let listed = oncebox(&["dead-letters", "list", "--json"], &relay.config_path());
        let letters: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("a list");
        let id = letters[0]["id"].as_str().expect("an id");
        let mut replay = command();
        replay.args(["dead-letters", "replay", id, "--config"]).arg(relay.config_path());
        let killed = replay.env("FAILPOINTS", format!("{seam}=return")).output().expect("oncebox starts");
        assert_eq!(killed.status.signal(), Some(6), "it was to die at {seam}");
        assert_eq!(database.count(dead).await, 1 - made, "the dead letter is there as long as its replay is not");
        let again = oncebox(&["dead-letters", "replay", id], &relay.config_path());
        assert_eq!(again.status.code(), Some(i32::from(made == 1)), "{}", String::from_utf8_lossy(&again.stderr));
        eventually("it is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
        assert_eq!(receiver.lines().len(), 2, "the first request, and one for the replay");
        assert_eq!(database.count(dead).await, 0);
    }
}

#[tokio::test]
async fn a_kill_while_parking_neither_loses_nor_doubles_the_dead_letter() {
    for seam in ["park.before", "park.after"] {
        let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
        let receiver = TestReceiver::deciding(|_| Answer::status(422)).await;
        let config = Config::new(&topic, &database, &receiver);
        let mut sent = 0;
        for kill in 0..kills() {
            die_at(seam, kill % 3, &config, &topic, &mut sent).await;
        }
        let _relay = Relay::start(&config);
        let (sent, dead) = (i64::from(sent), "select count(*) from oncebox.dead_letter where reason = 'rejected'");
        eventually("all are dead", PATIENCE, async || (database.count(dead).await == sent).then_some(())).await;
        assert_eq!(database.count("select count(*) from oncebox.done where state = 'discarded'").await, sent);
        assert_eq!(database.count("select count(*) from oncebox.retry").await, 0);
        assert_eq!(database.count("select sum(discarded)::bigint from oncebox.delivery").await, sent);
    }
}

#[tokio::test]
async fn a_kill_repeats_no_more_than_what_was_in_flight_under_the_same_key_and_bytes() {
    let (topic, database) = (Topic::new(3).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|_| Answer::After(std::time::Duration::from_millis(20), Box::new(Answer::Process)))
            .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      concurrency: 8");
    config.kafka = "group.instance.id: one".to_owned();
    let orders = 1_000;
    topic.send_orders(0..orders);
    for kill in 1..=kills() {
        let relay = Relay::start(&config);
        let under_way = (orders * kill / (kills() + 1)) as usize;
        eventually("work is under way", PATIENCE, async || (receiver.applied() > under_way).then_some(())).await;
        relay.signal(9);
    }
    let relay = Relay::start(&config);
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == orders as usize).then_some(()))
        .await;
    let expired = relay.metric("oncebox_leases_expired_total", "orders").await.expect("the relay shows its metrics");
    assert!((1.0..=16.0).contains(&expired), "{expired} leases of the last one that was killed ran out");
    // At most twice the concurrency each time: requests under way, and outcomes not yet written down.
    let repeats = receiver.lines().len() - orders as usize;
    assert!(repeats <= (kills() * 2 * 8) as usize, "{repeats} repeats in {} kills", kills());
    let mut first: HashMap<String, String> = HashMap::new();
    for line in receiver.lines() {
        assert_eq!(*first.entry(line.key.clone()).or_insert_with(|| line.digest.clone()), line.digest);
    }
}

/// `ONCEBOX_RESTARTS` says how often; 3 unless told.
#[tokio::test]
async fn a_rolling_restart_repeats_nothing() {
    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    // A slow machine is no reason for a repeat.
    (config.timeout, config.lease) = ("15s", "30s");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let mut sent = 0;
    let restarts = std::env::var("ONCEBOX_RESTARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for _ in 0..restarts {
        topic.send_orders(sent..sent + 300);
        sent += 300;
        let wanted = sent as usize - 200;
        eventually("work is under way", PATIENCE, async || (receiver.applied() > wanted).then_some(())).await;
        // The next one starts before the last one goes, as a deployment does it.
        let next = Relay::start(&config);
        assert_eq!(relay.stop().await, Some(0));
        relay = next;
    }
    eventually("every order is applied", PATIENCE, async || (receiver.applied() == sent as usize).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!(receiver.lines().len(), sent as usize, "requests, each order once");
}
