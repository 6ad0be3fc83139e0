//! At most once goes with no other guarantee: processes of which some run a workflow so and others not send nothing of it, however they
//! came to run at the same time, and whatever their configurations are written like.

use oncebox::config::Guarantee;
use oncebox::event::{ProcessId, Roles};
use oncebox::outbox::fleet::{self, Word};

use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const HANGUP: i32 = 1;
const SUSPENDED: &str =
    "select count(*) from oncebox.workflow where state = 'suspended' and reason like '%at-most-once%'";

/// Each side says in its requests which it is.
fn side(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver, guarantee: &'static str) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.guarantee = guarantee;
    config.endpoint = format!("headers: {{x-side: {guarantee}}}");
    config
}

/// The sides that requests came from, once each.
fn sides(receiver: &TestReceiver) -> Vec<String> {
    let header =
        |headers: &[(String, String)]| headers.iter().find(|(name, _)| name == "x-side").map(|one| one.1.clone());
    let mut sides: Vec<String> = receiver.seen().iter().filter_map(|seen| header(&seen.headers)).collect();
    sides.sort();
    sides.dedup();
    sides
}

async fn suspended(database: &TestDatabase) {
    eventually("the workflow is suspended", PATIENCE, async || (database.count(SUSPENDED).await == 1).then_some(()))
        .await;
}

fn ran(arguments: &[&str], relay: &Relay) -> String {
    let output = oncebox(arguments, &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn two_that_start_at_once_with_different_guarantees_do_not_both_send() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    migrated(&database);
    // Both have looked for the other before either can say that it is there.
    database.execute("begin; lock table oncebox.process in share mode").await;
    let once = Relay::start_migrated(&side(&topic, &database, &receiver, "at-most-once"));
    let mut often = Relay::start_migrated(&side(&topic, &database, &receiver, "exactly-once"));
    eventually("both have started", PATIENCE, async || {
        [&once, &often].iter().all(|relay| relay.log().contains("roles")).then_some(())
    })
    .await;
    database.execute("commit").await;
    topic.send_orders(0..50);
    suspended(&database).await;
    let status = ran(&["status"], &once);
    assert!(status.contains("orders: suspended") && status.contains("others without"), "{status}");
    assert!(sides(&receiver).len() < 2, "{:?} have sent", sides(&receiver));
    // Resolved, which a person has to say.
    assert_eq!(often.stop().await, Some(0));
    ran(&["resume", "orders"], &once);
    let done = "select count(*) from oncebox.done where state = 'completed'";
    eventually("all are delivered", PATIENCE, async || (database.count(done).await == 50).then_some(())).await;
    assert_eq!(receiver.seen().len(), 50, "each was sent once");
}

/// As after an outage of its network: nobody took it for running meanwhile.
#[tokio::test]
async fn one_that_comes_back_with_another_guarantee_stops_both_until_it_is_resolved() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&side(&topic, &database, &receiver, "exactly-once"));
    topic.send_orders(0..20);
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    database
        .execute(
            "insert into oncebox.process (id, workflows, guarantees, seen_at)
             values (gen_random_uuid(), '{orders}', '{at-most-once}', clock_timestamp() + interval '1 hour')",
        )
        .await;
    suspended(&database).await;
    topic.send_orders(20..40);
    // An operator who is in a hurry changes nothing.
    ran(&["resume", "orders"], &relay);
    suspended(&database).await;
    assert_eq!(receiver.seen().len(), 20);
    database.execute("delete from oncebox.process where seen_at > clock_timestamp()").await;
    eventually("it goes on", PATIENCE, async || {
        // A look of before may have been the last.
        if database.count(SUSPENDED).await == 1 {
            ran(&["resume", "orders"], &relay);
        }
        (receiver.applied() == 40).then_some(())
    })
    .await;
    assert_eq!(receiver.seen().len(), 40, "each was sent once");
}

#[tokio::test]
async fn each_process_tells_the_guarantees_that_it_runs_under_and_hears_of_those_that_do_not_go_with_them() {
    let database = TestDatabase::new().await;
    migrated(&database);
    let opened = database.opened();
    let clashes = async |guarantee, theirs: &str, silent_for: u32| {
        database
            .execute(&format!(
                "delete from oncebox.process; insert into oncebox.process (id, workflows, guarantees, seen_at)
                 values (gen_random_uuid(), '{{other,orders}}', {theirs}, clock_timestamp() - interval '{silent_for} s')"
            ))
            .await;
        let word = [Word { workflow: "orders", guarantee, under_way: 0, firsts: 0, takes: true }];
        let me = (ProcessId::new_v4(), Roles::ALL);
        fleet::beat(&opened, me, &word).await.expect("Postgres answers").clash_over("orders")
    };
    let (once, often) = ("'{exactly-once,at-most-once}'", "'{at-most-once,exactly-once}'");
    assert!(clashes(Guarantee::ExactlyOnce, once, 0).await && clashes(Guarantee::AtMostOnce, often, 0).await);
    assert!(clashes(Guarantee::IdempotentKeys, once, 9).await, "it may still be there");
    assert!(!clashes(Guarantee::IdempotentKeys, once, 11).await, "it is gone");
    assert!(!clashes(Guarantee::AtMostOnce, once, 0).await && !clashes(Guarantee::AtLeastOnce, often, 0).await);
    assert!(!clashes(Guarantee::AtMostOnce, "null", 0).await, "a binary of before does not tell");
    let told = "select count(*) from oncebox.process where guarantees = '{at-most-once}' and workflows = '{orders}'";
    assert_eq!(database.count(told).await, 1);
}

#[tokio::test]
async fn a_guarantee_given_by_reference_lets_a_second_replica_start() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "\"${ONCEBOX_TEST_GUARANTEE:-at-most-once}\"";
    let relays = [Relay::start(&config), Relay::start(&config)];
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..50);
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 50).then_some(())).await;
    // What the reference stands for is what counts, not how it is written.
    let mut beside = side(&topic, &database, &receiver, "exactly-once");
    beside.guarantee = "\"${ONCEBOX_TEST_GUARANTEE:-exactly-once}\"";
    let mut beside = Relay::start_migrated(&beside);
    assert_eq!(beside.ended(PATIENCE).await.code(), Some(1));
    assert!(beside.log().contains("orders: a change to or from `at-most-once`"), "{}", beside.log());
}

#[tokio::test]
async fn a_guarantee_given_by_reference_whose_file_changes_is_refused_on_reload() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("guarantee");
    std::fs::write(&file, "at-most-once\n").expect("written");
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "";
    config.delivery.push_str(&format!("\n      guarantee: \"${{file:{}}}\"", file.display()));
    let relay = Relay::start(&config);
    relay.ready().await;
    std::fs::write(&file, "exactly-once\n").expect("written");
    relay.signal(HANGUP);
    eventually("the reload is refused", PATIENCE, async || {
        relay.metric("oncebox_config_reloads_total", "result=\"refused\"").await.filter(|count| *count == 1.0)
    })
    .await;
    assert!(relay.log().contains("orders: a change to or from `at-most-once`"), "{}", relay.log());
    topic.send_orders(0..20);
    eventually("it goes on as it was", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
}
