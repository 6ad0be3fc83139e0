//! `validate --against`: what a configuration would take back from the receivers of the one that runs.

use oncebox::receiver::Answer;

use crate::support::files::{Files, both, out, run};
use crate::support::process::{Config, Relay, migrated};
use crate::support::{PATIENCE, TestDatabase, TestReceiver, Topic, eventually, services};

/// The configuration of a relay's workflow, changed in one place.
fn changed(relay: &Relay, from: &str, to: &str) -> Files {
    let yaml = std::fs::read_to_string(relay.config_path()).unwrap();
    assert!(yaml.contains(from), "{from}: {yaml}");
    Files::new(&yaml.replace(from, to))
}

#[tokio::test]
async fn what_would_take_back_a_promise_is_refused_unless_it_is_accepted() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // It fails for ever, so that an event stays undelivered.
    let receiver = TestReceiver::deciding(|_| Answer::status(503)).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
    let mut relay = Relay::start(&config);
    relay.ready().await;
    topic.send(None, r#"{"id":1}"#);
    eventually("the event was tried", PATIENCE, async || (!receiver.seen().is_empty()).then_some(())).await;
    relay.stop().await;

    let against = |files: &Files, more: &[&str]| {
        let output = run(&[&["validate", "--against", "database"], more].concat(), &files.config());
        (output.status.code(), both(&output))
    };
    let same = changed(&relay, "orders", "orders");
    assert_eq!(against(&same, &[]).0, Some(0), "{}", against(&same, &[]).1);
    assert!(against(&same, &[]).1.contains("nothing that was promised is taken back"));

    let weaker =
        changed(&relay, "guarantee: exactly-once", "guarantee: at-least-once\n      mechanism: transactional-outbox");
    let (code, text) = against(&weaker, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("DOWNGRADE") && text.contains("delivery.guarantee: exactly-once → at-least-once"), "{text}");
    let line = 1 + std::fs::read_to_string(weaker.config())
        .unwrap()
        .lines()
        .position(|l| l.contains("at-least-once"))
        .unwrap();
    assert!(text.contains(&format!("c.yaml:{line}:")), "line {line}: {text}");
    let (code, text) = against(&weaker, &["--accept"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 downgrade, accepted"), "{text}");

    let moved = changed(&relay, "eventType: OrderChanged", "eventType: OrderTouched");
    let (code, text) = against(&moved, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("change") && text.contains("OrderChanged → OrderTouched"), "{text}");

    let renamed = changed(&relay, "- id: orders", "- id: sales");
    let (code, text) = against(&renamed, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("removed with 1 undelivered event:") && text.contains("new: it starts"), "{text}");

    let url = services().database_url.clone();
    let output = run(&["validate", "--against", &url], &weaker.config());
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    let output = run(&["validate", "--against", "mysql://u:hunter2@h/d"], &weaker.config());
    assert_eq!(output.status.code(), Some(2), "{}", both(&output));
    assert!(!both(&output).contains("hunter2"), "{}", both(&output));
}

#[tokio::test]
async fn a_database_on_which_nothing_runs_has_nothing_to_take_back() {
    let database = TestDatabase::new().await;
    let yaml = format!(
        "postgres: {{url: \"${{DATABASE_URL}}\", schema: {}}}
workflows:
  - id: orders
    source: {{topics: [orders]}}
    endpoint: {{url: \"https://erp.example.com/events\"}}
    delivery: {{guarantee: exactly-once}}
",
        database.schema
    );
    let files = Files::new(&yaml);
    let validate = || run(&["validate", "--against", "database"], &files.config());
    let output = validate();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(out(&output).contains("nothing runs there yet"), "{}", out(&output));
    migrated(&database);
    assert_eq!(validate().status.code(), Some(0));
}
