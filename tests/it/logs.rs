//! Logs and traces: a line for what a person must know, none for each event; spans for whoever collects them.

use oncebox::receiver::Answer;
use serde_json::Value;

use crate::support::kafka::header;
use crate::support::process::{Config, oncebox};
use crate::support::servers::{Reply, TokenServer};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services};

const BODY: &str = "canary-of-a-body";
const KEY: &str = "canary-of-a-key";

/// 300 events with canaries: some fail once, some are refused.
async fn delivered_with_canaries(level: &str) -> (String, Vec<String>) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let number = seen.body.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        match number % 7 {
            0 => Answer::status(422),
            1 if seen.attempt == 1 => Answer::status(503),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      idempotencyKey: {format: \"{key}\"}");
    let mut relay = Relay::start_in(&config, "", &[("ONCEBOX_LOG", level)]);
    for n in 0..300 {
        let (key, value) = (format!("{KEY}-{n}"), format!(r#"{{"n":{n},"text":"{BODY}"}}"#));
        topic.send_raw(None, Some(key.as_bytes()), Some(value.as_bytes()), None);
    }
    topic.send(None, &format!("{{\"text\": \"{BODY}\" not json"));
    topic.flush();
    let settled = "select count(*) from oncebox.done";
    eventually("all are settled", PATIENCE, async || (database.count(settled).await == 301).then_some(())).await;
    let keys = receiver.seen().into_iter().map(|seen| seen.key).collect();
    assert_eq!(relay.stop().await, Some(0));
    (relay.log(), keys)
}

#[tokio::test]
async fn the_log_has_no_line_for_each_event_and_no_body_or_key() {
    let (log, keys) = delivered_with_canaries("info").await;
    assert!(log.lines().count() < 40, "{} lines:\n{log}", log.lines().count());
    assert!(!log.contains(BODY) && !log.contains(KEY), "{log}");
    assert!(keys.len() > 300 && keys.iter().all(|key| !log.contains(key.as_str())), "keys are for debugging");
}

#[tokio::test]
async fn not_even_the_finest_log_has_a_body() {
    let (log, _) = delivered_with_canaries("oncebox=trace").await;
    assert!(log.contains("not delivered"), "attempts that fail are there:\n{log}");
    assert!(!log.contains(BODY), "{log}");
}

#[tokio::test]
async fn an_event_is_one_trace_from_its_record_to_each_attempt() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(503) } else { Answer::Process }).await;
    let (sent, mut spans) = tokio::sync::mpsc::unbounded_channel();
    let collector = TokenServer::start("127.0.0.1:0", move |asked| {
        let _ = sent.send(asked.form.clone());
        Reply::status(200, "{}")
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.egress = format!("[127.0.0.0/8]}}\ntracing: {{otlp: \"http://{}\"", collector.address);
    let _relay = Relay::start(&config);
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let carried = format!("00-{trace}-{parent}-01");
    topic.send_raw(None, Some(b"1"), Some(br#"{"id":1}"#), Some(header("traceparent", &carried)));
    topic.flush();
    let mut found: Vec<Value> = Vec::new();
    eventually("all spans arrive", PATIENCE, async || {
        while let Ok(text) = spans.try_recv() {
            let body: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "oncebox");
            found.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").iter().cloned());
        }
        (found.len() >= 4).then_some(())
    })
    .await;
    let names: Vec<&str> = found.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(names, ["oncebox ingest", "oncebox queue", "oncebox attempt", "oncebox attempt"]);
    assert!(found.iter().all(|span| span["traceId"] == trace && span["parentSpanId"] == parent), "{found:#?}");
    let time =
        |span: &Value, name: &str| span[name].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
    assert!(found.iter().all(|span| time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano")), "{found:#?}");
    assert_eq!((&found[2]["status"]["code"], &found[3]["status"]["code"]), (&Value::from(2), &Value::from(1)));
    // What the receiver does hangs on the attempt that it belongs to.
    for (seen, span) in receiver.seen().iter().zip(&found[2..]) {
        let expected = format!("00-{trace}-{}-01", span["spanId"].as_str().expect("an id"));
        assert_eq!(seen.header("traceparent"), Some(expected.as_str()));
    }
}

#[tokio::test]
async fn a_collector_that_is_away_holds_up_nothing() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.egress = "[127.0.0.0/8]}\ntracing: {otlp: \"http://127.0.0.1:1\"".to_owned();
    let mut relay = Relay::start(&config);
    topic.send_orders(0..200);
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 200).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
}

#[tokio::test]
async fn validate_asks_the_world_and_names_what_is_missing() {
    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start(&config);
    let output = oncebox(&["validate", "--online"], &relay.config_path());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "ok      postgres: schema",
        "ok      kafka ",
        "3 partitions, may be read as group",
        "ok      orders: endpoint 127.0.0.1",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    // The mock cluster tells nobody's rights.
    assert_eq!(said.contains("the brokers do not tell"), services().embedded, "{said}");
    config.topic = "nobody-made-this".to_owned();
    config.egress = "[10.0.0.0/8]".to_owned();
    config.schema = "nobody_made_this".to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oncebox.yaml");
    std::fs::write(&path, config.yaml(1)).expect("written");
    let output = oncebox(&["validate", "--online"], &path);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "FAILED  postgres: the database has no Oncebox schema yet",
        "FAILED  orders: topic nobody-made-this: there is no such topic",
        "egress: {allow: [127.0.0.1/32]}",
        "3 of 4 failed",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
}
