//! `validate --against`: what a configuration would take back from the receivers of the one that runs.

use oncebox::receiver::Answer;

use crate::support::files::{Files, both, out, run};
use crate::support::process::{Config, Relay, migrated};
use crate::support::{PATIENCE, TestDatabase, TestReceiver, Topic, embedded, eventually, services};

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
    let relay = Relay::start_migrated(&config);
    relay.ready().await;
    let output = run(&["validate", "--against", &relay.url()], &weaker.config());
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    let output = run(&["validate", "--against", &relay.url()], &same.config());
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    let output = run(&["validate", "--against", "mysql://u:hunter2@h/d"], &weaker.config());
    assert_eq!(output.status.code(), Some(2), "{}", both(&output));
    assert!(!both(&output).contains("hunter2"), "{}", both(&output));
}

#[tokio::test]
async fn another_name_of_the_cluster_is_refused_unless_it_is_accepted() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..1);
    eventually("it is read", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    let named = |cluster: &str| changed(&relay, "kafka:\n", &format!("kafka:\n  cluster: \"{cluster}\"\n"));
    let against = |files: &Files, more: &[&str]| {
        let output = run(&[&["validate", "--against", "database"], more].concat(), &files.config());
        (output.status.code(), both(&output))
    };
    let other = named("elsewhere");
    let (code, text) = against(&other, &[]);
    assert_eq!(code, Some(1), "{text}");
    let line = text.lines().find(|line| line.contains("DOWNGRADE")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("c.yaml:3:") && line.contains("kafka.cluster: "), "{line}");
    assert!(line.contains("→ elsewhere; records are read again from `startFrom` under new keys"), "{line}");
    let (code, text) = against(&other, &["--accept"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 downgrade, accepted"), "{text}");

    // The name that the brokers report, written down.
    let known = database.query("select distinct cluster from oncebox.cursor", &[]).await;
    let (code, text) = against(&named(known[0].get(0)), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("nothing that was promised is taken back"), "{text}");
}

#[tokio::test]
async fn a_workflow_whose_cursors_are_all_of_other_clusters_says_so_when_it_starts() {
    if embedded::lacks("a cluster under another name") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    let said = "cursors are all of clusters of other names";
    let mut relay = Relay::start(&config);
    topic.send_orders(0..1);
    eventually("it is read", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    assert!(!relay.log().contains(said), "{}", relay.log());
    // The properties end here; the brace that would end them is in a comment.
    config.kafka = "fetch.wait.max.ms: 100}\n  cluster: elsewhere #".to_owned();
    let relay = Relay::start(&config);
    eventually("it is read again, under another key", PATIENCE, async || (receiver.applied() == 2).then_some(())).await;
    assert!(relay.log().contains(said), "{}", relay.log());
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
