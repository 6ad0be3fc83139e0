//! What is decided about a workflow: reading and sending stop for reasons of their own, and time stands still meanwhile.

use std::time::Duration;

use oncebox::outbox::workflow;
use oncebox::receiver::Answer;
use serde_json::json;

use crate::support::process::{Config, command, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const SUSPENDED: &str = "select count(*) from oncebox.workflow where state = 'suspended'";

/// A workflow whose endpoint is gone until its third request, and which has suspended itself.
async fn suspended(more: &str) -> (Topic, TestDatabase, TestReceiver, Config, Relay) {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(410) } else { Answer::Process }).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = "onInvalid: halt".to_owned();
    config.delivery = format!("retries: {{backoff: [100ms], jitter: 0{more}}}");
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    await_count(&database, 1, SUSPENDED).await;
    await_count(&database, 1, "select count(*) from oncebox.retry where state = 'retryable'").await;
    (topic, database, receiver, config, relay)
}

async fn await_count(database: &TestDatabase, wanted: i64, text: &str) {
    let check = async || (database.count(text).await == wanted).then_some(());
    eventually(&format!("{wanted} from {text}"), PATIENCE, check).await;
}

#[tokio::test]
async fn a_halt_of_the_source_does_not_end_a_suspension() {
    let (topic, database, receiver, _, relay) = suspended("").await;
    topic.send(None, "{not json");
    await_count(&database, 1, "select count(*) from oncebox.workflow where halted is not null").await;
    let shown = async || relay.metric("oncebox_workflow_state", "state=\"halted\"").await.filter(|value| *value == 1.0);
    eventually("the halt shows", PATIENCE, shown).await;
    assert_eq!(database.count(SUSPENDED).await, 1);
    assert_eq!(receiver.lines().len(), 1, "nothing was sent since the endpoint was gone");
    // One word of an operator ends both; the record that cannot be read halts it again, the event is delivered.
    let output = oncebox(&["resume", "orders"], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the event is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    await_count(&database, 1, "select count(*) from oncebox.workflow where halted is not null").await;
    assert_eq!(database.count(SUSPENDED).await, 0);
}

#[tokio::test]
async fn give_up_times_stand_still_while_nothing_is_sent() {
    let (_topic, database, receiver, _, relay) = suspended(", giveUpAfter: 5s").await;
    // An hour goes by.
    database.execute("update oncebox.retry set first_attempt_at = first_attempt_at - interval '1 hour'").await;
    database.execute("update oncebox.workflow set stopped_at = stopped_at - interval '1 hour'").await;
    let output = oncebox(&["resume", "orders"], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the event is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
}

#[tokio::test]
async fn a_pause_before_the_first_start_holds() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    migrated(&database);
    topic.send_orders(0..5);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oncebox.yaml");
    std::fs::write(&path, config.yaml(0)).expect("written");
    let paused = oncebox(&["pause", "orders"], &path);
    assert_eq!(String::from_utf8_lossy(&paused.stdout).trim(), "orders: paused", "{paused:?}");
    let relay = Relay::start(&config);
    await_count(&database, 5, "select coalesce(sum(appended), 0)::int8 from oncebox.cursor").await;
    let shown = async || relay.metric("oncebox_workflow_state", "state=\"paused\"").await.filter(|value| *value == 1.0);
    eventually("the pause is known", PATIENCE, shown).await;
    assert_eq!(relay.metric("oncebox_attempts_total", "orders").await, Some(0.0));
    assert!(oncebox(&["resume", "orders"], &path).status.success());
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 5).then_some(())).await;
}

#[tokio::test]
async fn a_restart_sends_nothing_for_a_suspended_workflow() {
    let (_topic, database, receiver, config, mut relay) = suspended("").await;
    await_count(&database, 1, "select count(*) from oncebox.retry where due < clock_timestamp()").await;
    for _ in 0..3 {
        assert_eq!(relay.stop().await, Some(0));
        relay = Relay::start(&config);
        let shown =
            async || relay.metric("oncebox_workflow_state", "state=\"suspended\"").await.filter(|value| *value == 1.0);
        eventually("the suspension is known", PATIENCE, shown).await;
    }
    assert_eq!(receiver.lines().len(), 1);
    assert_eq!(relay.metric("oncebox_attempts_total", "orders").await, Some(0.0));
}

#[tokio::test]
async fn an_event_outlives_its_give_up_time_behind_an_open_circuit() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver =
        TestReceiver::deciding(|seen| if seen.attempt == 1 { Answer::status(503) } else { Answer::Process }).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.circuit = "{failures: 1, openFor: 5s}";
    config.delivery = "retries: {backoff: [100ms], jitter: 0, giveUpAfter: 2s}".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    let open = async || relay.metric("oncebox_circuit_state", "orders").await.filter(|state| *state == 2.0);
    eventually("the circuit opens", PATIENCE, open).await;
    eventually("the event is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
    let stopped = "select floor(extract(epoch from stopped))::bigint from oncebox.workflow";
    assert!(database.count(stopped).await >= 5, "its time stood still");
}

/// The same half minute is not taken off twice, and none of it is forgotten.
#[tokio::test]
async fn a_pause_and_an_open_circuit_that_overlap_count_once() {
    let database = TestDatabase::new().await;
    migrated(&database);
    database.execute("insert into oncebox.workflow (id) values ('within'), ('into'), ('apart')").await;
    // Open for the last 30 s each; paused from 20 s to 10 s ago, since 10 s ago, and long before.
    database
        .execute(
            "update oncebox.workflow set last_stop = tstzrange(clock_timestamp() - interval '20 s', clock_timestamp() - \
             interval '10 s') where id = 'within'",
        )
        .await;
    database
        .execute(
            "update oncebox.workflow set last_stop = tstzrange(clock_timestamp() - interval '90 s', clock_timestamp() - \
             interval '80 s') where id = 'apart'",
        )
        .await;
    database.execute("update oncebox.workflow set state = 'paused', reason = 'a test' where id = 'into'").await;
    database.execute("update oncebox.workflow set stopped_at = stopped_at - interval '10 s' where id = 'into'").await;
    let opened = database.opened();
    for id in ["within", "into", "apart"] {
        // A second process had the same circuit open: that is the same time.
        for _ in 0..2 {
            workflow::account_circuit(&opened, id, Duration::from_secs(30)).await.expect("accounted");
        }
    }
    for (id, seconds) in [("within", 20), ("into", 20), ("apart", 30)] {
        let stopped =
            format!("select round(extract(epoch from stopped))::bigint from oncebox.workflow where id = '{id}'");
        // The clock goes on while this test runs, and with it the end of what is paused still.
        let counted = database.count(&stopped).await;
        assert!((seconds - 5..=seconds).contains(&counted), "{id}: {counted} s, not {seconds}");
    }
}

#[tokio::test]
async fn a_pause_by_the_configuration_ends_there_and_an_operators_own_ends_with_resume() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.extra = "paused: true".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    await_count(&database, 1, "select count(*) from oncebox.outbox").await;
    let by_api = |verb: &str| command().args([verb, "orders", "--url", &relay.url()]).output().expect("oncebox starts");
    let straight = |verb: &str| oncebox(&[verb, "orders"], &relay.config_path());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    // Nobody but its configuration pauses it: nothing that an operator could end.
    let (asked, told) = (by_api("resume"), straight("resume"));
    assert_eq!((asked.status.code(), told.status.code()), (Some(1), Some(1)), "{asked:?} {told:?}");
    assert!(text(&asked.stderr).contains("paused by its configuration"), "{asked:?}");
    assert_eq!(text(&asked.stderr), text(&told.stderr));
    let (status, body) = relay.call("POST", "/v1/workflows/orders/resume", None, Some(json!({}))).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("paused_by_configuration")), "{body}");
    let status = text(&oncebox(&["status"], &relay.config_path()).stdout);
    assert!(status.contains("orders: paused by its configuration"), "{status}");

    // An operator's own pause on top of it goes, and what is left is said.
    let workflow = async || {
        let found = relay.ask("/v1/workflows/orders").await;
        ["state", "sends", "pausedByConfiguration"].map(|name| found[name].clone())
    };
    for verb in [&by_api as &dyn Fn(&str) -> std::process::Output, &straight] {
        assert_eq!(text(&verb("pause").stdout), "orders: paused\n");
        assert_eq!(workflow().await, [json!("paused"), json!(false), json!(true)]);
        let resumed = verb("resume");
        assert!(resumed.status.success(), "{resumed:?}");
        assert!(text(&resumed.stdout).starts_with("orders: resumed, and still paused by its configuration"));
        assert_eq!(workflow().await, [json!("paused"), json!(true), json!(true)]);
    }
    assert_eq!(receiver.lines().len(), 0, "nothing is sent all the while");
}
