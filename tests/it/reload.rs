//! Life under change: a configuration that is exchanged while it runs, and workflows that are no longer there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox::receiver::Answer;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const HANGUP: i32 = 1;
const TERMINATE: i32 = 15;

/// A second workflow, on the same topic.
fn another(topic: &Topic, receiver: &TestReceiver, id: &str) -> String {
    format!(
        "\n  - id: {id}\n    source: {{topics: [{}]}}\n    endpoint: {{url: \"{}\", timeout: 1s}}\n    delivery: {{guarantee: \
         exactly-once, lease: 3s}}",
        topic.name,
        receiver.url()
    )
}

fn write(config: &Config, relay: &Relay) {
    std::fs::write(relay.config_path(), config.yaml(relay.port)).expect("the configuration is written");
}

async fn reloaded(relay: &Relay, result: &str, times: f64) {
    let label = format!("result=\"{result}\"");
    eventually("the configuration was read", PATIENCE, async || {
        relay.metric("oncebox_config_reloads_total", &label).await.filter(|count| *count == times)
    })
    .await;
}

/// `ONCEBOX_RELOADS` says how often; 3 unless told.
#[tokio::test]
async fn reloads_under_load_lose_nothing_and_repeat_nothing() {
    let (topic, database) = (Topic::new(3).await, TestDatabase::new().await);
    let slowly = std::time::Duration::from_millis(3);
    let answer = move |_: &_| Answer::After(slowly, Box::new(Answer::Process));
    let (receiver, beside) = (TestReceiver::deciding(answer).await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("15s", "30s");
    config.extra = another(&topic, &beside, "beside");
    let mut relay = Relay::start(&config);
    relay.ready().await;
    let reloads: u32 = std::env::var("ONCEBOX_RELOADS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let mut sent = 0;
    for turn in 1..=reloads {
        topic.send_orders(sent..sent + 300);
        sent += 300;
        let wanted = sent as usize - 200;
        eventually("work is under way", PATIENCE, async || (receiver.applied() > wanted).then_some(())).await;
        config.endpoint = format!("headers: {{x-turn: \"{turn}\"}}");
        // The metric that shows labels gets another set of names.
        config.extra = format!("labels: {{turn_{turn}: x}}{}", another(&topic, &beside, "beside"));
        write(&config, &relay);
        if turn % 2 == 0 {
            // Else the change of the file is noticed.
            relay.signal(HANGUP);
        }
        // A signal and the change may each cause a read; the second finds nothing changed.
        eventually("it was read", PATIENCE, async || {
            let applied = relay.metric("oncebox_config_reloads_total", "result=\"applied\"").await;
            applied.filter(|count| *count >= f64::from(turn))
        })
        .await;
    }
    topic.send_orders(sent..sent + 10);
    sent += 10;
    for receiver in [&receiver, &beside] {
        let all = async || (receiver.applied() == sent as usize).then_some(());
        eventually("every order is applied", PATIENCE, all).await;
    }
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!(receiver.seen().len(), sent as usize, "no request twice");
    assert_eq!(beside.seen().len(), sent as usize, "nor of the workflow that did not change");
    let seen = receiver.seen();
    let turn = seen.last().and_then(|last| last.headers.iter().find(|(name, _)| name == "x-turn"));
    assert_eq!(turn.map(|(_, turn)| turn.clone()), Some(reloads.to_string()), "sent as the last configuration says");
}

#[tokio::test]
async fn a_rename_under_load_loses_nothing_and_repeats_nothing() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match seen.attempt {
        // Failures on their way when the name changes.
        1 if seen.key.bytes().map(u32::from).sum::<u32>() % 5 == 0 => Answer::status(503),
        _ => Answer::After(std::time::Duration::from_millis(3), Box::new(Answer::Process)),
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("15s", "30s");
    let relay = Relay::start(&config);
    relay.ready().await;
    topic.send_orders(0..600);
    eventually("work is under way", PATIENCE, async || (receiver.applied() > 100).then_some(())).await;
    config.workflow = "renamed".to_owned();
    config.extra = "formerId: orders".to_owned();
    write(&config, &relay);
    relay.signal(HANGUP);
    reloaded(&relay, "applied", 1.0).await;
    topic.send_orders(600..700);
    eventually("all arrive", PATIENCE, async || (receiver.applied() == 700).then_some(())).await;
    assert_eq!(database.count("select count(*) from oncebox.retry where workflow = 'orders'").await, 0);
    let first_attempts = receiver.seen().iter().filter(|seen| seen.attempt == 1).count();
    assert_eq!(first_attempts, 700, "no request twice");
}

#[tokio::test]
async fn an_invalid_configuration_is_refused_whole_and_the_old_one_stays() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    let mut relay = Relay::start(&config);
    relay.ready().await;
    config.extra = another(&topic, &receiver, "fine") + &another(&topic, &receiver, "NOT an id");
    write(&config, &relay);
    relay.signal(HANGUP);
    reloaded(&relay, "refused", 1.0).await;
    assert_eq!(relay.metric("oncebox_config_last_reload_successful", "").await, Some(0.0));
    assert!(relay.log().contains("NOT an id"), "{}", relay.log());
    topic.send_orders(0..20);
    eventually("the old one goes on", PATIENCE, async || (receiver.applied() == 20).then_some(())).await;
    assert_eq!(receiver.seen().len(), 20, "and nothing of the new one runs");
    // What only a restart can change is refused too, and named.
    config.extra = String::new();
    config.kafka = "client.id: another".to_owned();
    write(&config, &relay);
    relay.signal(HANGUP);
    reloaded(&relay, "refused", 2.0).await;
    assert!(relay.log().contains("kafka cannot change while the process runs"));
    // And what only a restart of all can: another process may still send as before.
    config.kafka = String::new();
    config.guarantee = "at-most-once";
    write(&config, &relay);
    relay.signal(HANGUP);
    reloaded(&relay, "refused", 3.0).await;
    assert!(relay.log().contains("orders: a change to or from `at-most-once`"), "{}", relay.log());
    // Nor does a process start with it beside one that runs.
    let mut beside = Relay::start_migrated(&config);
    assert_eq!(beside.ended(PATIENCE).await.code(), Some(1));
    assert!(beside.log().contains("orders: a change to or from `at-most-once`"), "{}", beside.log());
    relay.kill();
    let alone = Relay::start_migrated(&config);
    alone.ready().await;
}

/// A relay whose workflow `orders` was removed with 30 events that could not be delivered, and whose endpoint is well again.
pub async fn removed() -> (Relay, TestDatabase, TestReceiver) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |_| match is_mended.load(Ordering::Acquire) {
        true => Answer::Process,
        false => Answer::status(503),
    })
    .await;
    let beside = TestReceiver::start().await;
    let mut config = Config::new(&topic, &database, &receiver);
    // Some are tried, and some wait for their first attempt.
    config.delivery = "retries: {backoff: [1s], jitter: 0}\n      concurrency: 4".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..30);
    eventually("attempts", PATIENCE, async || (receiver.seen().len() >= 4).then_some(())).await;
    let waiting = "select count(*) from oncebox.outbox";
    eventually("all is stored", PATIENCE, async || (database.count(waiting).await == 30).then_some(())).await;
    let yaml = config.yaml(relay.port);
    let (head, _) = yaml.split_once("workflows:").expect("workflows");
    let other = another(&topic, &beside, "beside");
    std::fs::write(relay.config_path(), format!("{head}workflows:{other}\n")).expect("it is written");
    relay.signal(HANGUP);
    let is_removed = r#"state="removed",workflow="orders""#;
    eventually("shown as removed", PATIENCE, async || {
        relay.metric("oncebox_workflow_state", is_removed).await.filter(|value| *value == 1.0)
    })
    .await;
    mended.store(true, Ordering::Release);
    eventually("beside", PATIENCE, async || (beside.applied() == 30).then_some(())).await;
    assert_eq!(receiver.applied(), 0, "nobody delivers them");
    (relay, database, receiver)
}

/// The receiver answers while `oncebox drain` waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_removed_workflow_is_drained_with_its_last_configuration() {
    let (relay, database, receiver) = removed().await;
    let drained = oncebox(&["drain", "orders"], &relay.config_path());
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    assert_eq!(receiver.applied(), 30);
    assert_eq!(database.count("select count(*) from oncebox.dead_letter").await, 0);
    eventually("it is not shown any more", PATIENCE, async || {
        let shown = relay.metric("oncebox_workflow_state", r#"state="removed",workflow="orders""#).await;
        shown.is_none().then_some(())
    })
    .await;
    let again = oncebox(&["drain", "orders"], &relay.config_path());
    assert_eq!(String::from_utf8_lossy(&again.stdout), "orders: nothing is left\n");
}

#[tokio::test]
async fn what_is_left_of_a_removed_workflow_can_be_parked() {
    let (relay, database, receiver) = removed().await;
    let event = serde_json::json!({"type": "t", "data": 1});
    let (status, said) = relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
    assert_eq!(status, 404, "nothing new comes in: {said}");
    let parked = oncebox(&["park", "orders"], &relay.config_path());
    assert!(parked.status.success(), "{}", String::from_utf8_lossy(&parked.stderr));
    let printed = String::from_utf8_lossy(&parked.stdout).into_owned();
    assert_eq!(printed, "orders: 30 events are dead letters now (reason parked)\n");
    assert_eq!(database.count("select count(*) from oncebox.dead_letter where reason = 'parked'").await, 30);
    assert_eq!(database.count("select count(*) from oncebox.retry where workflow = 'orders'").await, 0);
    assert_eq!(receiver.applied(), 0);
    let filter = serde_json::json!({"workflow": "orders"});
    let (status, said) = relay.call("POST", "/v1/dead-letters/replay", None, Some(filter)).await;
    assert_eq!(
        (status, &said["error"]["code"]),
        (409, &serde_json::json!("workflow_removed")),
        "nobody would deliver them"
    );
    let running = oncebox(&["park", "beside"], &relay.config_path());
    assert_eq!(running.status.code(), Some(2), "one that runs is not parked");
}

#[tokio::test]
async fn what_a_removed_workflow_has_read_can_be_verified() {
    let (relay, _database, _receiver) = removed().await;
    let verified = oncebox(&["verify", "orders", "--json"], &relay.config_path());
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let straight: serde_json::Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    let asked = relay.ask("/v1/workflows/orders/verify").await;
    for said in [straight, asked] {
        let partitions = said["partitions"].as_array().expect("partitions");
        let waiting: i64 = partitions.iter().filter_map(|one| one["counts"]["waiting"].as_i64()).sum();
        assert_eq!((&said["gaps"], waiting), (&serde_json::json!(0), 30), "{said}");
    }
    let mistyped = oncebox(&["verify", "ordres"], &relay.config_path());
    assert_eq!(mistyped.status.code(), Some(2), "{mistyped:?}");
}

/// One key is blocked by a dead letter: nobody can deliver the rest, and the command says so instead of waiting for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_what_a_dead_letter_blocks_ends_and_says_why() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::status(422)).await;
    let beside = TestReceiver::start().await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "ordering: key".to_owned();
    let relay = Relay::start(&config);
    (0..4).for_each(|n| topic.send(Some("one"), &format!(r#"{{"n":{n}}}"#)));
    topic.flush();
    let held = "select count(*) from oncebox.retry where held = 'order'";
    eventually("three wait behind the first", PATIENCE, async || (database.count(held).await == 3).then_some(())).await;
    let yaml = config.yaml(relay.port);
    let (head, _) = yaml.split_once("workflows:").expect("workflows");
    let other = another(&topic, &beside, "beside");
    std::fs::write(relay.config_path(), format!("{head}workflows:{other}\n")).expect("it is written");
    relay.signal(HANGUP);
    eventually("shown as removed", PATIENCE, async || {
        relay
            .metric("oncebox_workflow_state", r#"state="removed",workflow="orders""#)
            .await
            .filter(|value| *value == 1.0)
    })
    .await;
    let drained = oncebox(&["drain", "orders"], &relay.config_path());
    let said = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert_eq!(drained.status.code(), Some(1), "{said}");
    let why =
        "orders: 3 events are left, and none has moved for a while: they wait behind dead letters of 1 ordering keys";
    assert!(said.contains(why), "{said}");
}

/// Two workflows change; the endpoint of one takes its time, and the other does not wait for it.
#[tokio::test]
async fn a_reload_starts_each_workflow_when_its_own_requests_are_over() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let slowly = std::time::Duration::from_secs(6);
    let slow = TestReceiver::deciding(move |_| Answer::After(slowly, Box::new(Answer::Process))).await;
    let quick = TestReceiver::start().await;
    let mut config = Config::new(&topic, &database, &slow);
    (config.timeout, config.lease) = ("15s", "30s");
    config.extra = another(&topic, &quick, "beside");
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    let under_way = async || (slow.seen().len() == 1 && quick.applied() == 1).then_some(());
    eventually("one is under way", PATIENCE, under_way).await;
    config.endpoint = "headers: {x-turn: \"2\"}".to_owned();
    config.extra = another(&topic, &quick, "beside").replace("timeout: 1s", "timeout: 2s");
    write(&config, &relay);
    relay.signal(HANGUP);
    let joins = "joining the consumer group workflow=beside";
    eventually("the other begins anew", PATIENCE, async || (relay.log().matches(joins).count() == 2).then_some(()))
        .await;
    assert_eq!(slow.applied(), 0, "the slow one is still in its first request");
    let known = "select count(*) from oncebox.process where workflows @> '{orders,beside}'";
    assert_eq!(database.count(known).await, 1, "and counts as running");
    topic.send_orders(1..2);
    eventually("the other goes on", PATIENCE, async || (quick.applied() == 2).then_some(())).await;
    eventually("the slow one goes on", PATIENCE, async || (slow.applied() == 2).then_some(())).await;
    assert_eq!(slow.seen().len(), 2, "each once");
}

/// The others are to take over what has ended, while one last request of another workflow is still under way.
#[tokio::test]
async fn a_process_that_ends_gives_up_its_share_of_each_workflow_when_that_has_ended() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let slowly = std::time::Duration::from_secs(6);
    let slow = TestReceiver::deciding(move |_| Answer::After(slowly, Box::new(Answer::Process))).await;
    let quick = TestReceiver::start().await;
    let mut config = Config::new(&topic, &database, &slow);
    (config.timeout, config.lease) = ("9s", "20s");
    config.extra = another(&topic, &quick, "beside");
    let mut relay = Relay::start(&config);
    topic.send_orders(0..1);
    let under_way = async || (slow.seen().len() == 1 && quick.applied() == 1).then_some(());
    eventually("one is under way", PATIENCE, under_way).await;
    relay.signal(TERMINATE);
    let left = "select count(*) from oncebox.process where workflows = '{orders}'";
    eventually("one is left", PATIENCE, async || (database.count(left).await == 1).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    assert_eq!((slow.applied(), slow.seen().len()), (1, 1));
}
