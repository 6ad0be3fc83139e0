//! Bad starts: each ends in one clear sentence, or in waiting that says what it waits for.

use std::time::Duration;

use crate::support::process::{Config, command};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services};

async fn config() -> (Config, TestDatabase, Topic, TestReceiver) {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    (Config::new(&topic, &database, &receiver), database, topic, receiver)
}

/// Runs to its end; the exit code and what it said.
async fn run(yaml: &str) -> (Option<i32>, String) {
    run_on(yaml, &services().database_url).await
}

pub async fn run_on(yaml: &str, database_url: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, yaml).unwrap();
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["run", "--config"])
        .arg(&path)
        .env("DATABASE_URL", database_url)
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    match tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await {
        Ok(output) => {
            let output = output.unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        }
        Err(_) => (None, "still running".to_owned()),
    }
}

#[tokio::test]
async fn without_a_schema_the_start_says_to_migrate() {
    let (config, _database, _topic, _receiver) = config().await;
    let (code, text) = run(&config.yaml(0)).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no Oncebox schema yet: run `oncebox migrate`"), "{text}");
}

#[tokio::test]
async fn a_schema_that_has_moved_past_the_binary_refuses_it() {
    let (config, database, _topic, _receiver) = config().await;
    let mut relay = Relay::start(&config);
    relay.ready().await;
    relay.stop().await;
    database.execute("update oncebox.schema_version set version = 99, oldest_binary = 98").await;
    let (code, text) = run(&config.yaml(0)).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("needs a binary of version 98 or newer"), "{text}");
    database.execute("update oncebox.schema_version set version = 0, oldest_binary = 0").await;
    let (code, text) = run(&config.yaml(0)).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("run `oncebox migrate`"), "{text}");
}

/// As after a dump of the tables alone.
#[tokio::test]
async fn a_start_on_a_schema_whose_functions_are_missing_is_refused() {
    let (config, database, _topic, _receiver) = config().await;
    crate::support::process::migrated(&database);
    database
        .execute("drop function oncebox.turn_of; alter function oncebox.settle_held rename to settle_by_hand")
        .await;
    let (code, text) = run(&config.yaml(0)).await;
    assert_eq!(code, Some(1), "{text}");
    for name in ["turn_of(text, text, integer, bigint)", "settle_held(bigint[]"] {
        assert!(text.contains(&format!("{}.{name}", database.schema)), "{name}: {text}");
    }
    assert!(text.contains("lacks functions") && !text.contains("append_alike"), "{text}");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let (config, _database, _topic, _receiver) = config().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, text) = run(&config.yaml(port)).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("admin.listen 127.0.0.1:{port} cannot be used")), "{text}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named() {
    let (config, _database, _topic, _receiver) = config().await;
    let url = services().database_url.replace("/postgres", "/nowhere");
    let (code, text) = run_on(&config.yaml(0), &url).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Postgres refuses") && text.contains("nowhere"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    let (config, _database, _topic, _receiver) = config().await;
    let url: url::Url = services().database_url.parse().expect("a URL");
    let mut wrong = url.clone();
    wrong.set_password(Some("wr0ng-canary")).expect("a URL with a password");
    let (code, text) = run_on(&config.yaml(0), wrong.as_str()).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Postgres refuses") && text.contains("password authentication failed"), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn without_postgres_or_kafka_it_waits_and_says_for_what() {
    let (config, _database, _topic, _receiver) = config().await;
    let folder = tempfile::tempdir().unwrap();
    let yaml = config.yaml(0);
    let database = yaml.lines().find(|line| line.starts_with("postgres:")).unwrap().to_owned();
    let no_postgres = yaml.replace(&database, "postgres: {url: \"postgresql://u@127.0.0.1:1/db\"}");
    let brokers = yaml.lines().find(|line| line.contains("brokers:")).unwrap().to_owned();
    let no_kafka = yaml.replace(&brokers, "  brokers: 127.0.0.1:1");
    for (name, yaml, wanted) in [("p", no_postgres, "waiting for Postgres"), ("k", no_kafka, "waiting for Kafka")] {
        let path = folder.path().join(name);
        std::fs::write(&path, yaml).unwrap();
        let log = folder.path().join(format!("{name}.log"));
        if name == "k" {
            let migrated = crate::support::process::oncebox(&["migrate"], &path);
            assert!(migrated.status.success());
        }
        let mut child = command()
            .args(["run", "--config"])
            .arg(&path)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        eventually(wanted, PATIENCE, async || std::fs::read_to_string(&log).unwrap().contains(wanted).then_some(()))
            .await;
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[tokio::test]
async fn a_postgres_that_is_lost_during_the_start_is_waited_for() {
    let (config, database, _topic, _receiver) = config().await;
    crate::support::process::migrated(&database);
    // What it asks about its workflow waits for this lock, and then loses its connection.
    database.execute("begin; lock table oncebox.workflow in access exclusive mode").await;
    let mut relay = Relay::start_migrated(&config);
    let lost =
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and query like $1";
    let query = format!("%{}.workflow%", database.schema);
    // A session in a transaction sees the same activity all the time.
    let other = TestDatabase::new().await;
    eventually("it asks", PATIENCE, async || (!other.query(lost, &[&query]).await.is_empty()).then_some(())).await;
    eventually("it waits", PATIENCE, async || relay.log().contains("waiting for Postgres").then_some(())).await;
    database.execute("commit").await;
    relay.ready().await;
    assert!(!relay.has_ended());
    assert_eq!(relay.stop().await, Some(0));
}
