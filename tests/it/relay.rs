//! Relay: several processes, stalls past a lease, and every kind of answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn setup(decide: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> (Topic, TestDatabase, TestReceiver) {
    (Topic::new(4).await, TestDatabase::new().await, TestReceiver::deciding(decide).await)
}

async fn count(database: &TestDatabase, wanted: i64, text: &str) {
    eventually(&format!("{wanted} from {text}"), PATIENCE, async || {
        (database.count(text).await == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn two_processes_share_the_work_and_double_nothing() {
    let (topic, database, receiver) = setup(|_| Answer::Process).await;
    let mut config = Config::new(&topic, &database, &receiver);
    // A slow machine is no reason for a repeat.
    (config.timeout, config.lease) = ("15s", "30s");
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    eventually("both own partitions", PATIENCE, async || {
        let owners = "select count(distinct owner) from oncebox.delivery where owner is not null";
        (database.count(owners).await == 2).then_some(())
    })
    .await;
    topic.send_orders(0..2_000);
    eventually("all is applied", PATIENCE, async || (receiver.applied() == 2_000).then_some(())).await;
    count(&database, 2_000, "select count(*) from oncebox.done where state = 'completed'").await;
    assert_eq!(receiver.lines().len(), 2_000, "each order was sent once");
    for relay in &relays {
        let delivered = relay.metric("oncebox_delivered_total", "orders").await.unwrap_or_default();
        assert!(delivered > 0.0, "both processes delivered");
    }
}

#[tokio::test]
async fn a_process_stopped_past_lease_and_session_is_fenced_and_its_late_answer_counts() {
    // The first request of each of two orders is answered while its sender is stopped: one well, one badly. The second,
    // of whoever took over, is answered long after.
    let (topic, database, receiver) = setup(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let late = |answer| Answer::After(Duration::from_secs(3), Box::new(answer));
        match seen.attempt {
            1 if body.contains("\"id\":0,") => late(Answer::Process),
            1 if body.contains("\"id\":1,") => late(Answer::status(500)),
            2 if body.contains("\"id\":0,") || body.contains("\"id\":1,") => {
                Answer::After(Duration::from_secs(12), Box::new(Answer::Process))
            }
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("20s", "22s");
    let mut slow = Config::new(&topic, &database, &receiver);
    (slow.timeout, slow.lease) = ("4s", "5s");
    let stopped = Relay::start(&slow);
    stopped.ready().await;
    topic.send_orders(0..2);
    eventually("both requests are under way", PATIENCE, async || (receiver.seen().len() == 2).then_some(())).await;
    stopped.signal(19);
    let other = Relay::start(&config);
    // Past lease (5 s) and session (6 s): the other has taken everything over and put both in doubt.
    count(&database, 2, "select count(*) from oncebox.retry where in_doubt").await;
    // Records that the stopped one has in its queue are not its own any more.
    topic.send_orders(2..200);
    eventually("the rest is applied by the other", PATIENCE, async || (receiver.applied() >= 198).then_some(())).await;
    stopped.signal(18);
    eventually("the late success counts as such", PATIENCE, async || {
        (stopped.metric("oncebox_late_acks_total", "orders").await? >= 1.0).then_some(())
    })
    .await;
    eventually("the late failure is fenced", PATIENCE, async || {
        (stopped.metric("oncebox_fenced_writes_total", "orders").await? >= 1.0).then_some(())
    })
    .await;
    count(&database, 200, "select count(*) from oncebox.done where state = 'completed'").await;
    assert_eq!(receiver.applied(), 200);
    drop(other);
}

#[tokio::test]
async fn every_answer_means_what_the_table_says() {
    let (topic, database, receiver) = setup(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let order = |id: u32| body.contains(&format!("\"id\":{id},"));
        match seen.attempt {
            _ if order(1) => Answer::status(422),
            1 if order(2) => Answer::status(500),
            1 if order(3) => Answer::status(301),
            1 if order(4) => Answer::status(409),
            1 if order(5) => Answer::Close,
            1 if order(6) => Answer::ProcessAndClose,
            1 if order(7) => Answer::Hang,
            1 if order(8) => Answer::Status(429, vec![("retry-after".to_owned(), "1".to_owned())]),
            _ if order(9) => Answer::status(404),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [100ms], jitter: 0, maxAttempts: 3}".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..10);
    count(&database, 10, "select count(*) from oncebox.done").await;
    count(&database, 0, "select count(*) from oncebox.retry").await;

    let rows = database
        .query("select encode(body, 'escape'), reason, sends, attempts::text from oncebox.dead_letter", &[])
        .await;
    let dead: HashMap<String, (String, i32, String)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect();
    assert_eq!(dead.len(), 2);
    for (body, (reason, sends, attempts)) in &dead {
        let (wanted, requests) = if body.contains("\"id\":1,") { ("rejected", 1) } else { ("exhausted", 3) };
        assert_eq!((reason.as_str(), *sends), (wanted, requests), "{body}");
        assert_eq!(attempts.matches("\"outcome\"").count(), requests as usize, "{attempts}");
    }
    let mut requests: HashMap<u32, u32> = HashMap::new();
    for seen in receiver.seen() {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let id = u32::try_from(body["data"]["id"].as_u64().unwrap()).unwrap();
        let number = requests.entry(id).or_default();
        *number += 1;
        assert_eq!(seen.attempt, *number, "the header counts the requests of order {id}");
    }
    let expected = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2), (9, 3)];
    assert_eq!(requests, expected.into_iter().collect());
    assert_eq!(receiver.applied(), 8);
    for (outcome, wanted) in
        [("in_progress", 1.0), ("http_3xx", 1.0), ("throttled", 1.0), ("rejected", 1.0), ("timeout", 1.0)]
    {
        let counted = relay.metric("oncebox_attempts_total", &format!("outcome=\"{outcome}\"")).await;
        assert_eq!(counted, Some(wanted), "{outcome}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_suspends_the_workflow_and_resume_starts_it() {
    let gone = Arc::new(AtomicU32::new(1));
    let told = Arc::clone(&gone);
    let (topic, database, receiver) = setup(move |_| match told.load(Ordering::Acquire) {
        1 => Answer::status(410),
        _ => Answer::Process,
    })
    .await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    topic.send_orders(0..20);
    count(&database, 1, "select count(*) from oncebox.workflow where state = 'suspended'").await;
    eventually("the gauge shows it", PATIENCE, async || {
        (relay.metric("oncebox_workflow_state", "state=\"suspended\"").await? == 1.0).then_some(())
    })
    .await;
    let asked = receiver.seen().len();
    assert!(asked <= 20 + 64, "{asked} requests");
    gone.store(0, Ordering::Release);
    let output = oncebox(&["resume", "orders"], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the events that waited are applied", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
}

#[tokio::test]
async fn an_address_that_egress_forbids_suspends_and_is_never_connected_to() {
    let (topic, database, receiver) = setup(|_| Answer::Process).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.url = receiver.url().replace("127.0.0.1", "[::ffff:127.0.0.1]");
    config.egress = "[10.0.0.0/8]".to_owned();
    let _relay = Relay::start(&config);
    topic.send_orders(0..1);
    let reason: String = eventually("the workflow suspends", PATIENCE, async || {
        let rows = database.query("select reason from oncebox.workflow where state = 'suspended'", &[]).await;
        rows.first().map(|row| row.get(0))
    })
    .await;
    assert!(reason.contains("egress: {allow: [::ffff:127.0.0.1/128]}"), "{reason}");
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn a_dead_letter_is_listed_shown_and_replayed_once_with_its_key() {
    let broken = Arc::new(AtomicU32::new(1));
    let told = Arc::clone(&broken);
    let (topic, database, receiver) = setup(move |_| match told.load(Ordering::Acquire) {
        1 => Answer::status(400),
        _ => Answer::Process,
    })
    .await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..1);
    count(&database, 1, "select count(*) from oncebox.dead_letter").await;
    let path = relay.config_path();
    let run = |arguments: &[&str]| {
        let output = oncebox(arguments, &path);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (_, listed) = run(&["dead-letters", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed[0]["reason"], "rejected");
    let (_, shown) = run(&["dead-letters", "show", &id]);
    assert!(
        shown.contains("attempt  1") && shown.contains("rejected 400") && shown.contains("OrderChanged"),
        "{shown}"
    );
    broken.store(0, Ordering::Release);
    assert_eq!(run(&["dead-letters", "replay", &id]).0, Some(0));
    eventually("the replay is applied", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(run(&["dead-letters", "replay", &id]).0, Some(1), "a second click finds nothing");
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].key, seen[1].key);
    assert_eq!(seen[0].digest, seen[1].digest);
    assert_eq!(seen[1].event, format!("{id}.r1"));
    assert!(seen[1].fence > seen[0].fence, "the fence never falls for a key");
    count(&database, 0, "select count(*) from oncebox.dead_letter").await;
}

#[tokio::test]
async fn a_long_backlog_of_first_attempts_does_not_starve_retries() {
    for concurrency in [1, 32] {
        let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
        let receiver = TestReceiver::deciding(|seen| {
            let offset: u64 = seen.source.rsplit('/').next().and_then(|text| text.parse().ok()).expect("an offset");
            match (offset, seen.attempt) {
                (5, 1) => Answer::status(503),
                // Answers come one by one, so that never many slots are free at once.
                _ => Answer::After(Duration::from_millis(5 + offset * 7_919 % 61), Box::new(Answer::Process)),
            }
        })
        .await;
        let mut config = Config::new(&topic, &database, &receiver);
        config.delivery.push_str(&format!("\n      concurrency: {concurrency}"));
        let orders = 500 * concurrency.min(6);
        topic.send_orders(0..orders);
        let _relay = Relay::start(&config);
        eventually("all are applied", PATIENCE, async || (receiver.applied() == orders as usize).then_some(())).await;
        let lines = receiver.lines();
        let again = lines.iter().position(|line| line.attempt == 2).expect("it was tried again");
        assert!(
            again < orders as usize / 2,
            "due after 100 ms, and tried behind {again} others, {concurrency} at a time"
        );
    }
}
