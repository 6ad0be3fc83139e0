//! The metrics that are promised and that no other test reads, and logs that machines read.

use std::process::Stdio;

use oncebox::event::Reason;
use oncebox::observe::metrics::OUTCOMES;
use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, command, free_port, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const COUNTERS: [&str; 11] = [
    "oncebox_ingested_total",
    "oncebox_filtered_total",
    "oncebox_delivered_total",
    "oncebox_spilled_total",
    "oncebox_retries_total",
    "oncebox_duplicates_suppressed_total",
    "oncebox_key_fallbacks_total",
    "oncebox_in_doubt_total",
    "oncebox_leases_expired_total",
    "oncebox_late_acks_total",
    "oncebox_fenced_writes_total",
];

/// A change of the order `id`, as Debezium's PostgreSQL connector writes it.
fn change(topic: &Topic, key: Option<&str>, id: u32, operation: &str) {
    let value = format!(
        r#"{{"before":null,"after":{{"id":{id}}},"source":{{"connector":"postgresql","db":"sales","schema":"public","table":
        "orders","lsn":{id},"txId":{id},"ts_ms":1700000000000}},"op":"{operation}","ts_ms":1700000000001}}"#
    );
    topic.send(key, &value);
}

/// The first order is taken at once, the second at its second attempt, the third never.
fn decide(seen: &Seen) -> Answer {
    let body = String::from_utf8_lossy(&seen.body);
    match seen.attempt {
        1 if body.contains(r#""id":2}"#) => Answer::status(503),
        _ if body.contains(r#""id":3}"#) => Answer::status(422),
        _ => Answer::Process,
    }
}

async fn await_value(relay: &Relay, name: &str, labels: &str, wanted: f64) {
    let mut last = None;
    eventually(&format!("{name}{{{labels}}} is {wanted}"), PATIENCE, async || {
        last = relay.metric(name, labels).await;
        last.filter(|value| *value == wanted)
    })
    .await;
}

#[tokio::test]
async fn counters_are_there_at_zero_from_the_start_and_count_what_they_say() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(decide).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = "format: debezium".to_owned();
    config.extra = "filter: '.op != \"d\"'\n    labels: {team: erp}".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    for name in COUNTERS {
        assert_eq!(relay.metric(name, "workflow=\"orders\"").await, Some(0.0), "{name}");
    }
    for outcome in OUTCOMES {
        let labels = format!("workflow=\"orders\",outcome=\"{outcome}\"");
        assert_eq!(relay.metric("oncebox_attempts_total", &labels).await, Some(0.0), "{outcome}");
    }
    for reason in Reason::ALL {
        let labels = format!("workflow=\"orders\",reason=\"{}\"", reason.as_str());
        assert_eq!(relay.metric("oncebox_dead_lettered_total", &labels).await, Some(0.0), "{labels}");
    }
    for result in ["applied", "refused"] {
        let labels = format!("result=\"{result}\"");
        assert_eq!(relay.metric("oncebox_config_reloads_total", &labels).await, Some(0.0), "{result}");
    }

    for id in 1..=3 {
        change(&topic, Some(&format!(r#"{{"id":{id}}}"#)), id, "u");
    }
    change(&topic, Some(r#"{"id":4}"#), 4, "d");
    // Without a key there is no primary key to make the event's key of.
    change(&topic, None, 5, "u");
    topic.send_raw(None, Some(br#"{"id":4}"#), None, None);
    topic.flush();
    let counted = [
        ("oncebox_ingested_total", "", 4.0),
        ("oncebox_filtered_total", "", 2.0),
        ("oncebox_key_fallbacks_total", "", 1.0),
        ("oncebox_delivered_total", "", 3.0),
        ("oncebox_retries_total", "", 1.0),
        ("oncebox_attempts_total", ",outcome=\"delivered\"", 3.0),
        ("oncebox_attempts_total", ",outcome=\"http_5xx\"", 1.0),
        ("oncebox_attempts_total", ",outcome=\"rejected\"", 1.0),
        ("oncebox_dead_lettered_total", ",reason=\"rejected\"", 1.0),
        ("oncebox_delivery_latency_seconds_count", "", 3.0),
        ("oncebox_stage_seconds_count", ",stage=\"ingest\"", 4.0),
        ("oncebox_stage_seconds_count", ",stage=\"queue\"", 5.0),
        ("oncebox_stage_seconds_count", ",stage=\"send\"", 5.0),
        ("oncebox_stage_seconds_count", ",stage=\"settle\"", 3.0),
    ];
    for (name, labels, wanted) in counted {
        await_value(&relay, name, &format!("workflow=\"orders\"{labels}"), wanted).await;
    }
    let untouched = ["spilled", "duplicates_suppressed", "in_doubt", "leases_expired", "late_acks", "fenced_writes"];
    for name in untouched {
        assert_eq!(relay.metric(&format!("oncebox_{name}_total"), "").await, Some(0.0), "{name}");
    }
    let latency = relay.metric("oncebox_delivery_latency_seconds_sum", "").await.expect("a sum");
    assert!(latency > 0.0 && latency < 3.0 * PATIENCE.as_secs_f64(), "seconds since the records: {latency}");
}

/// Where each event waits for its time, none has a first attempt of its own: their first requests are retries to Postgres.
#[tokio::test]
async fn the_way_into_the_outbox_is_measured_of_events_that_wait_and_of_those_over_http() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(503) } else { Answer::Process }).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      delay: 200ms");
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..3);
    let event = serde_json::json!({"type": "OrderChanged", "data": {"id": 7}});
    let (status, body) = relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
    assert_eq!(status, 201, "{body}");
    await_value(&relay, "oncebox_delivered_total", "workflow=\"orders\"", 4.0).await;
    // Each was sent twice, and came in once.
    await_value(&relay, "oncebox_stage_seconds_count", "workflow=\"orders\",stage=\"queue\"", 8.0).await;
    await_value(&relay, "oncebox_stage_seconds_count", "workflow=\"orders\",stage=\"ingest\"", 4.0).await;
}

/// More than the gauges count every second: their searches stop at 10,001 of a state.
#[tokio::test]
async fn events_are_counted_by_state_however_many_there_are() {
    const MANY: u32 = 10_500;
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send_orders(0..MANY);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "delay: 1h".to_owned();
    let relay = Relay::start(&config);
    await_value(&relay, "oncebox_events", "workflow=\"orders\",state=\"scheduled\"", f64::from(MANY)).await;
    for state in ["available", "active", "retryable", "pending", "completed", "cancelled", "discarded"] {
        let labels = format!("workflow=\"orders\",state=\"{state}\"");
        assert_eq!(relay.metric("oncebox_events", &labels).await, Some(0.0), "{state}");
    }
}

#[tokio::test]
async fn first_attempts_under_way_are_active_in_every_process_and_the_rest_available() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::Hang).await;
    topic.send_orders(0..9);
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("60s", "90s");
    config.delivery = "concurrency: 4".to_owned();
    let one = Relay::start(&config);
    eventually("four are sent", PATIENCE, async || (receiver.seen().len() == 4).then_some(())).await;
    let other = Relay::start(&config);
    for relay in [&one, &other] {
        await_value(relay, "oncebox_events", "workflow=\"orders\",state=\"active\"", 4.0).await;
        await_value(relay, "oncebox_events", "workflow=\"orders\",state=\"available\"", 5.0).await;
    }
}

#[tokio::test]
async fn gauges_tell_the_build_the_workflow_and_the_state_of_the_database() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.extra = "labels: {team: erp}".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    let info = "workflow=\"orders\",guarantee=\"exactly-once\",team=\"erp\"";
    assert_eq!(relay.metric("oncebox_workflow_info", info).await, Some(1.0));
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(relay.metric("oncebox_build_info", &version).await, Some(1.0));
    assert_eq!(relay.metric("oncebox_config_last_reload_successful", "").await, Some(1.0));
    await_value(&relay, "oncebox_partitions_ahead_days", "", 7.0).await;
    // Somebody's transaction stays open.
    database.execute("begin isolation level repeatable read; select 1").await;
    let held = async || relay.metric("oncebox_postgres_oldest_snapshot_seconds", "").await.filter(|age| *age >= 1.0);
    eventually("the open snapshot shows", PATIENCE, held).await;
    database.execute("rollback").await;
}

#[tokio::test]
async fn a_log_for_machines_is_json_in_every_line() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    // One warning about the configuration, and one halt: what is said before and beside the usual counts too.
    config.source = "onInvalid: halt".to_owned();
    config.extra = "retention: 1d\n    payloadRetention: 3d".to_owned();
    migrated(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let (path, log) = (folder.path().join("oncebox.yaml"), folder.path().join("log"));
    std::fs::write(&path, config.yaml(free_port())).expect("written");
    let mut child = tokio::process::Command::from(command())
        .args(["run", "--log", "json", "--config"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .kill_on_drop(true)
        .spawn()
        .expect("oncebox starts");
    topic.send_orders(0..3);
    topic.send(None, "{not\n\"json\"");
    let text = || std::fs::read_to_string(&log).expect("a log");
    let halted = async || text().contains("halted").then_some(());
    eventually("the record that cannot be read halts it", PATIENCE, halted).await;
    let pid = child.id().expect("it runs").to_string();
    let told = std::process::Command::new("kill").arg(&pid).status().expect("kill runs");
    assert!(told.success());
    assert_eq!(child.wait().await.expect("it ends").code(), Some(0));
    let text = text();
    assert!(text.lines().count() > 3, "{text}");
    for line in text.lines() {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        for field in ["timestamp", "level", "message"] {
            assert!(parsed[field].is_string(), "{field} of {line}");
        }
    }
    assert!(text.contains(r#""workflow":"orders""#), "{text}");
}
