//! What a receiver gets and what its answers mean, where no other file shows it end to end: how keys and traces travel,
//! what ends an event, what a replay and a reload leave as it was, and that answers mean the same on the direct path.

use std::collections::{HashMap, HashSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use oncebox::receiver::{Answer, Seen};

use crate::direct::{self, all_applied, all_marked, order, rows};
use crate::fleet::ran;
use crate::support::process::{Config, command};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, kafka};

/// Guarantees of both ways that an event can take: through the outbox, and straight.
const PATHS: [&str; 2] = ["exactly-once", "idempotent-keys"];

async fn setup(decide: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> (Topic, TestDatabase, TestReceiver) {
    (Topic::new(1).await, TestDatabase::new().await, TestReceiver::deciding(decide).await)
}

async fn count(database: &TestDatabase, wanted: i64, text: &str) {
    eventually(&format!("{wanted} from {text}"), PATIENCE, async || {
        (database.count(text).await == wanted).then_some(())
    })
    .await;
}

async fn metric(relay: &Relay, name: &str, labels: &str, wanted: f64) {
    eventually(&format!("{name}{{{labels}}} is {wanted}"), PATIENCE, async || {
        relay.metric(name, labels).await.filter(|value| *value == wanted)
    })
    .await;
}

/// Answers so until it is told that all is well.
fn until_mended(status: u16) -> (Arc<AtomicBool>, impl Fn(&Seen) -> Answer + Send + Sync + 'static) {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let decide = move |_: &Seen| match is_mended.load(Ordering::Acquire) {
        true => Answer::Process,
        false => Answer::status(status),
    };
    (mended, decide)
}

/// Waits until the workflow has suspended itself; answers why.
async fn suspended(database: &TestDatabase) -> String {
    eventually("the workflow suspends itself", PATIENCE, async || {
        let rows = database.query("select reason from oncebox.workflow where state = 'suspended'", &[]).await;
        rows.first().map(|row| row.get(0))
    })
    .await
}

#[tokio::test]
async fn an_event_that_is_not_delivered_in_its_time_expires() {
    for guarantee in PATHS {
        let (topic, database, receiver) = setup(|_| Answer::status(503)).await;
        let mut config = Config::new(&topic, &database, &receiver);
        config.guarantee = guarantee;
        config.delivery = "retries: {backoff: [300ms], jitter: 0, giveUpAfter: 2s}".to_owned();
        let relay = Relay::start(&config);
        topic.send_orders(0..1);
        count(&database, 1, "select count(*) from oncebox.dead_letter where reason = 'expired'").await;
        let letter = "select sends, json_array_length(attempts),
                             extract(epoch from created_at - first_attempt_at)::float8 from oncebox.dead_letter";
        let letter = &database.query(letter, &[]).await[0];
        let (sends, attempts, seconds): (i32, i32, f64) = (letter.get(0), letter.get(1), letter.get(2));
        let requests = i32::try_from(receiver.seen().len()).expect("few");
        assert!(requests > 1 && (sends, attempts) == (requests, requests), "{sends}, {attempts} of {requests}");
        assert!(seconds >= 1.5, "given up after {seconds} s");
        metric(&relay, "oncebox_dead_lettered_total", "reason=\"expired\"", 1.0).await;
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_tried_again_and_puts_nothing_in_doubt() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // Longer than a part of a name may be: there is no such name, whichever server is asked and whether one answers.
    let url = format!("http://{}.invalid/events", "n".repeat(64));
    let relay = Relay::start(&Config::posting_to(url, &topic, &database));
    topic.send_orders(0..1);
    eventually("it is tried again", PATIENCE, async || {
        relay.metric("oncebox_attempts_total", "outcome=\"dns\"").await.filter(|attempts| *attempts >= 3.0)
    })
    .await;
    assert_eq!(relay.metric("oncebox_in_doubt_total", "orders").await, Some(0.0));
    assert_eq!(rows(&database, "attempt where outcome <> 'dns' or status is not null").await, 0);
    assert_eq!((rows(&database, "retry").await, rows(&database, "dead_letter").await), (1, 0));
}

#[tokio::test]
async fn with_retries_off_the_first_failure_is_the_last() {
    for guarantee in PATHS {
        let (topic, database, receiver) = setup(|seen| match order(seen) {
            1 => Answer::Process,
            _ => Answer::status(503),
        })
        .await;
        let mut config = Config::new(&topic, &database, &receiver);
        (config.guarantee, config.timeout, config.lease) = (guarantee, "5s", "10s");
        config.delivery = "retries: {enabled: false}".to_owned();
        let relay = Relay::start(&config);
        topic.send_orders(0..3);
        all_applied(&receiver, 1).await;
        count(&database, 2, "select count(*) from oncebox.dead_letter where reason = 'exhausted' and sends = 1").await;
        assert_eq!(receiver.seen().len(), 3, "each was sent once");
        metric(&relay, "oncebox_dead_lettered_total", "reason=\"exhausted\"", 2.0).await;
    }
}

#[tokio::test]
async fn the_key_travels_where_the_workflow_says_and_nowhere_else() {
    let (topic, database, receiver) = setup(|_| Answer::Process).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      idempotencyKey: {header: X-Key, quoted: false, includedInPayload: false}");
    let _relay = Relay::start(&config);
    topic.send_orders(0..1);
    all_applied(&receiver, 1).await;
    let key: String = database.query("select key from oncebox.outbox", &[]).await[0].get(0);
    let seen = receiver.seen().remove(0);
    assert_eq!(seen.header("x-key"), Some(key.as_str()), "as it is, without quotes");
    assert_eq!(seen.header("webhook-id"), Some(key.as_str()));
    assert_eq!(seen.header("idempotency-key"), None);
    let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
    let names: Vec<&str> = body.as_object().expect("a map").keys().map(String::as_str).collect();
    assert_eq!(names, ["eventType", "timestamp", "data"]);
}

#[tokio::test]
async fn a_records_trace_goes_on_and_a_record_without_one_gets_one_of_its_own() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for guarantee in PATHS {
        // Every first attempt fails, so that the second shows what was stored.
        let flaky = |seen: &Seen| if seen.attempt == 1 { Answer::status(503) } else { Answer::Process };
        let (topic, database, receiver) = setup(flaky).await;
        let mut config = Config::new(&topic, &database, &receiver);
        config.guarantee = guarantee;
        let _relay = Relay::start(&config);
        for (id, trace) in [(0, Some(TRACE)), (1, None), (2, Some("no trace"))] {
            let value = format!(r#"{{"id":{id}}}"#);
            let headers = trace.map(|trace| kafka::header("traceparent", trace));
            topic.send_raw(Some(0), None, Some(value.as_bytes()), headers);
        }
        topic.flush();
        all_applied(&receiver, 3).await;
        let mut traces: HashMap<u64, HashSet<String>> = HashMap::new();
        for seen in receiver.seen() {
            traces.entry(order(&seen)).or_default().insert(seen.header("traceparent").expect("a trace").to_owned());
        }
        assert!(traces.values().all(|traces| traces.len() == 1), "one for all attempts: {traces:?}");
        assert!(traces[&0].contains(TRACE), "{traces:?}");
        assert!(traces[&1] != traces[&2] && !traces[&1].contains(TRACE), "{traces:?}");
        for made in traces[&1].iter().chain(&traces[&2]) {
            assert_eq!(made.split('-').map(str::len).collect::<Vec<_>>(), [2, 32, 16, 2], "{made}");
        }
    }
}

#[tokio::test]
async fn what_was_made_before_a_reload_keeps_its_bytes_and_its_key() {
    let (mended, decide) = until_mended(503);
    let (topic, database, receiver) = setup(decide).await;
    let mut config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    eventually("it is tried", PATIENCE, async || (!receiver.seen().is_empty()).then_some(())).await;
    config.extra = "transform: '{number: .id}'".to_owned();
    std::fs::write(relay.config_path(), config.yaml(relay.port)).expect("the configuration is written");
    metric(&relay, "oncebox_config_reloads_total", "result=\"applied\"", 1.0).await;
    mended.store(true, Ordering::Release);
    topic.send_orders(1..2);
    all_applied(&receiver, 2).await;
    let (new, old): (Vec<Seen>, Vec<Seen>) = receiver.seen().into_iter().partition(|seen| seen.source.ends_with("/1"));
    let alike = old.iter().all(|seen| (&seen.key, &seen.body) == (&old[0].key, &old[0].body));
    assert!(old.len() > 1 && alike && order(&old[0]) == 0, "{} requests", old.len());
    let body: serde_json::Value = serde_json::from_slice(&new[0].body).expect("JSON");
    assert_eq!(body["data"], serde_json::json!({"number": 1}), "what came since is made anew");
}

/// The receiver answers while the operators are waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_who_replay_one_dead_letter_at_once_make_one_event() {
    let (mended, decide) = until_mended(422);
    let (topic, database, receiver) = setup(decide).await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..1);
    count(&database, 1, "select count(*) from oncebox.dead_letter").await;
    let letters: serde_json::Value = serde_json::from_str(&ran(&["dead-letters", "list", "--json"], &relay)).unwrap();
    let id = letters[0]["id"].as_str().expect("an id");
    mended.store(true, Ordering::Release);
    let operator = || {
        let mut replay = command();
        replay.args(["dead-letters", "replay", id, "--config"]).arg(relay.config_path());
        replay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("oncebox starts")
    };
    let mut operators = [operator(), operator(), operator()];
    let worked = operators.iter_mut().filter_map(|one| one.wait().ok()).filter(|status| status.success()).count();
    assert_eq!(worked, 1, "the others found nothing");
    all_applied(&receiver, 1).await;
    assert_eq!(rows(&database, "outbox where generation > 0").await, 1);
}

#[tokio::test]
async fn on_the_direct_path_an_endpoint_that_is_gone_suspends_the_workflow_and_nothing_is_lost() {
    let (mended, decide) = until_mended(410);
    let (topic, database, receiver) = setup(decide).await;
    let relay = Relay::start(&direct::config(&topic, &database, &receiver));
    topic.send_orders(0..20);
    let reason = suspended(&database).await;
    assert!(reason.contains("gone"), "{reason}");
    metric(&relay, "oncebox_workflow_state", "state=\"suspended\"", 1.0).await;
    mended.store(true, Ordering::Release);
    ran(&["resume", "orders"], &relay);
    all_applied(&receiver, 20).await;
    all_marked(&topic, &database, 1, 20).await;
    assert_eq!(rows(&database, "dead_letter").await, 0);
}

#[tokio::test]
async fn on_the_direct_path_an_answer_in_progress_is_tried_again_and_not_counted() {
    let busy = |seen: &Seen| if seen.attempt < 3 { Answer::status(409) } else { Answer::Process };
    let (topic, database, receiver) = setup(busy).await;
    let mut config = direct::config(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("5s", "10s");
    config.delivery = "retries: {backoff: [100ms], jitter: 0, maxAttempts: 1}".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    all_applied(&receiver, 1).await;
    count(&database, 1, "select count(*) from oncebox.done where state = 'completed' and sends = 3").await;
    let times: Vec<i64> = receiver.lines().iter().map(|line| line.time).collect();
    // Microseconds; the two clocks may differ by a few thousand of them.
    let waits = times[1] - times[0] > 990_000 && times[2] - times[1] > 1_990_000;
    assert!(times.len() == 3 && waits, "after one second, and after two: {times:?}");
    assert_eq!(rows(&database, "dead_letter").await, 0);
    metric(&relay, "oncebox_attempts_total", "outcome=\"in_progress\"", 2.0).await;
}

#[tokio::test]
async fn on_the_direct_path_nothing_is_sent_before_retry_after() {
    let told: Arc<Mutex<HashMap<u64, SystemTime>>> = Arc::default();
    let noted = Arc::clone(&told);
    let (topic, database, receiver) = setup(move |seen| {
        let now = SystemTime::now();
        let (status, text, until) = match (seen.attempt, order(seen)) {
            (1, 0) => (429, "2".to_owned(), now + Duration::from_secs(2)),
            (1, _) => {
                let date = httpdate::HttpDate::from(now + Duration::from_secs(3));
                (503, date.to_string(), date.into())
            }
            _ => return Answer::Process,
        };
        noted.lock().unwrap().insert(order(seen), until);
        Answer::Status(status, vec![("retry-after".to_owned(), text)])
    })
    .await;
    let relay = Relay::start(&direct::config(&topic, &database, &receiver));
    topic.send_orders(0..2);
    all_applied(&receiver, 2).await;
    for line in receiver.lines().iter().filter(|line| line.attempt == 2) {
        let offset = line.source.rsplit('/').next().and_then(|text| text.parse::<u64>().ok()).expect("an offset");
        let until = told.lock().unwrap()[&offset].duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let early = i64::try_from(until.as_micros()).expect("this century") - line.time;
        assert!(early < 10_000, "order {offset} came {early} microseconds early");
    }
    assert_eq!(receiver.seen().len(), 4, "each was sent twice");
    metric(&relay, "oncebox_attempts_total", "outcome=\"throttled\"", 1.0).await;
}

#[tokio::test]
async fn on_the_direct_path_a_forbidden_address_suspends_and_the_line_that_it_names_helps() {
    let (topic, database, receiver) = setup(|_| Answer::Process).await;
    let mut config = direct::config(&topic, &database, &receiver);
    config.egress = "[10.0.0.0/8]".to_owned();
    let mut relay = Relay::start(&config);
    topic.send_orders(0..3);
    let reason = suspended(&database).await;
    assert!(reason.contains("egress: {allow: [127.0.0.1/32]}"), "{reason}");
    let blocked = relay.metric("oncebox_attempts_total", "outcome=\"blocked\"").await;
    assert!(blocked.is_some_and(|count| count >= 1.0) && receiver.seen().is_empty(), "{blocked:?}");
    assert_eq!(relay.stop().await, Some(0));
    config.egress = "[127.0.0.1/32]".to_owned();
    let relay = Relay::start(&config);
    ran(&["resume", "orders"], &relay);
    all_applied(&receiver, 3).await;
    all_marked(&topic, &database, 1, 3).await;
}
