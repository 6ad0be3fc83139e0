//! The API: who may ask, what is answered, and that every change is on record.

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, command, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// A workflow whose endpoint refuses the orders whose number is a multiple of ten, until it is replayed.
async fn refusing() -> (Topic, TestDatabase, TestReceiver, Config) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        let is_refused = body["data"]["id"].as_u64().is_some_and(|id| id % 10 == 0) && !seen.event.contains(".r");
        if is_refused { Answer::status(422) } else { Answer::Process }
    })
    .await;
    let config = Config::new(&topic, &database, &receiver);
    (topic, database, receiver, config)
}

async fn await_count(database: &TestDatabase, wanted: i64, text: &str) {
    let check = async || (database.count(text).await == wanted).then_some(());
    eventually(&format!("{wanted} from {text}"), PATIENCE, check).await;
}

const LETTERS: &str = "select count(*) from oncebox.dead_letter";
const DONE: &str = "select count(*) from oncebox.done";

#[tokio::test]
async fn without_a_known_token_nothing_can_be_read_or_changed() {
    let (_topic, _database, _receiver, mut config) = refusing().await;
    config.admin =
        ", tokens: [{name: ann, token: \"${ANN}\", role: admin}, {name: bob, token: \"${BOB}\", role: read}]"
            .to_owned();
    let relay = Relay::start_in(&config, "", &[("ANN", "a-token-of-anns-own"), ("BOB", "a-token-of-bobs-own")]);
    relay.ready().await;
    let (_, description) = relay.get("/openapi.json").await.expect("a description");
    let description: Value = serde_json::from_str(&description).expect("JSON");
    assert!(
        description["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")),
        "{}",
        description["openapi"]
    );
    let mut asked = 0;
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let path = path.replace("{id}", "orders");
        for method in methods.as_object().expect("methods").keys().map(|method| method.to_uppercase()) {
            for token in [None, Some(""), Some("a-token-of-anns-ow"), Some("a-token-of-anns-own2")] {
                let (status, body) = relay.call(&method, &path, token, Some(json!({}))).await;
                assert_eq!(
                    (status, &body["error"]["code"]),
                    (401, &json!("unauthorized")),
                    "{method} {path} {token:?}"
                );
            }
            if method != "GET" {
                let (status, _) = relay.call(&method, &path, Some("a-token-of-bobs-own"), Some(json!({}))).await;
                assert_eq!(status, 403, "{method} {path}");
            }
            asked += 1;
        }
    }
    assert!(asked >= 19, "{asked} ways to ask");
    let (status, body) = relay.call("GET", "/v1/workflows", Some("a-token-of-bobs-own"), None).await;
    assert_eq!((status, body["items"][0]["id"].as_str()), (200, Some("orders")));
    let (status, _) = relay.call("POST", "/v1/workflows/orders/pause", Some("a-token-of-anns-own"), None).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn what_is_decided_over_the_api_holds_and_is_on_record() {
    let (topic, database, receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    relay.ready().await;
    let (status, body) = relay.call("POST", "/v1/workflows/orders/pause", None, Some(json!({}))).await;
    assert_eq!((status, body), (200, json!({"workflow": "orders", "changed": true})));
    let shown = async || (relay.ask("/v1/workflows/orders").await["state"] == "paused").then_some(());
    eventually("the pause shows", PATIENCE, shown).await;
    topic.send_orders(1..4);
    await_count(&database, 3, "select coalesce(sum(appended), 0)::int8 from oncebox.cursor").await;
    assert_eq!(receiver.lines().len(), 0);
    let (_, again) = relay.call("POST", "/v1/workflows/orders/pause", None, Some(json!({}))).await;
    assert_eq!(again["changed"], false, "it was paused already");
    let (_, resumed) = relay.call("POST", "/v1/workflows/orders/resume", None, Some(json!({}))).await;
    assert_eq!(resumed["changed"], true);
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 3).then_some(())).await;
    let rows = database.query("select who, action from oncebox.audit where workflow = 'orders' order by at", &[]).await;
    let audit: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [("api:local", "paused"), ("api:local", "resumed")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(audit, expected);
    let live = &relay.ask("/v1/workflows/orders").await["live"];
    assert_eq!((&live["attempts"]["delivered"], &live["circuit"]), (&json!(3), &json!("closed")), "{live}");
}

#[tokio::test]
async fn every_no_has_one_shape() {
    let (_topic, _database, _receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    relay.ready().await;
    for (method, path, status, code) in [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("PUT", "/v1/workflows", 405, "method_not_allowed"),
        ("GET", "/v1/workflows/ordres", 404, "unknown_workflow"),
        ("POST", "/v1/workflows/ordres/pause", 404, "unknown_workflow"),
        ("POST", "/v1/workflows/orders/drain", 409, "workflow_running"),
        ("GET", "/v1/events", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=orders&state=lost", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=orders&limit=0", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=orders&limit=many", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=orders&after=nowhere", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=orders&colour=red", 400, "invalid_request"),
        ("GET", "/v1/events?workflow=or%00ders", 400, "invalid_request"),
        ("GET", "/v1/events/none", 400, "invalid_request"),
        ("GET", "/v1/events/0000000000000-1-0", 404, "not_found"),
        ("GET", "/v1/dead-letters?reason=bad", 400, "invalid_request"),
        ("GET", "/v1/dead-letters?from=-009999-01-02T01:59:59Z", 400, "invalid_request"),
        ("DELETE", "/v1/dead-letters/0000000000000-1-0", 404, "not_found"),
        ("GET", "/v1/audit?after=nowhere", 400, "invalid_request"),
        ("GET", "/v1/replays/none", 400, "invalid_request"),
        ("GET", "/v1/replays/00000000-0000-0000-0000-000000000000", 404, "not_found"),
    ] {
        let (found, body) = relay.call(method, path, None, Some(json!({}))).await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{method} {path}: {body}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        assert_eq!(body["error"]["retryable"], false);
        assert!(body["error"]["details"].is_object());
    }
    let (_, near) = relay.call("GET", "/v1/workflows/ordres", None, None).await;
    assert_eq!(near["error"]["message"], "no workflow `ordres`: did you mean `orders`?");
    let (status, body) = relay.call("POST", "/v1/dead-letters/replay", None, Some(json!({"colour": "red"}))).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("invalid_request")));
    let large = "x".repeat(70_000);
    let (status, body) = relay.call("POST", "/v1/dead-letters/replay", None, Some(json!({"workflow": large}))).await;
    assert_eq!((status, &body["error"]["code"]), (413, &json!("payload_too_large")));
}

/// All pages of a list, and how many there were.
async fn pages(relay: &Relay, path: &str) -> (Vec<Value>, usize) {
    let (mut items, mut count, mut next) = (Vec::new(), 0, String::new());
    loop {
        let page = relay.ask(&format!("{path}{next}")).await;
        items.extend(page["items"].as_array().expect("items").iter().cloned());
        count += 1;
        match page["next"].as_str() {
            Some(mark) => next = format!("&after={mark}"),
            None => return (items, count),
        }
    }
}

#[tokio::test]
async fn every_event_is_listed_once_and_shown_whole() {
    let (topic, database, receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    topic.send_orders(0..100);
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 90).then_some(())).await;
    await_count(&database, 100, DONE).await;
    let (events, count) = pages(&relay, "/v1/events?workflow=orders&limit=7").await;
    let ids: std::collections::BTreeSet<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
    assert_eq!((events.len(), ids.len()), (100, 100));
    assert!(count >= 14, "{count} pages");
    let (refused, _) = pages(&relay, "/v1/events?workflow=orders&state=discarded&limit=3").await;
    assert_eq!(refused.len(), 10);
    let (none, _) = pages(&relay, "/v1/events?workflow=orders&state=retryable&limit=3").await;
    assert!(none.is_empty());
    let (letters, count) = pages(&relay, "/v1/dead-letters?workflow=orders&limit=3").await;
    assert_eq!((letters.len(), count), (10, 4));

    let id = refused[0]["id"].as_str().expect("an id");
    let event = relay.ask(&format!("/v1/events/{id}")).await;
    assert_eq!(
        (&event["state"], &event["deadLetter"], &event["body"]),
        (&json!("discarded"), &json!("there"), &Value::Null)
    );
    assert_eq!((&event["attempts"][0]["status"], event["attempts"].as_array().map(Vec::len)), (&json!(422), Some(1)));
    let whole = relay.ask(&format!("/v1/events/{id}?payload=true")).await;
    let body = whole["body"].as_str().expect("a body");
    let body = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).expect("base64");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["data"]["id"].as_u64().map(|id| id % 10), Some(0));

    let source = refused[0]["source"].as_str().expect("a source");
    let (of_record, _) = pages(&relay, &format!("/v1/events?source={source}")).await;
    assert_eq!(of_record.len(), 1);
    let key = event["key"].as_str().expect("a key");
    let (of_key, _) = pages(&relay, &format!("/v1/events?workflow=orders&key={key}")).await;
    assert_eq!(of_key.iter().filter_map(|event| event["id"].as_str()).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn events_that_wait_for_their_first_attempt_are_listed_as_available() {
    let (_, database, receiver, _) = refusing().await;
    // More partitions than one page looks into, most of them empty for each state.
    let topic = Topic::new(12).await;
    let config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start(&config);
    relay.ready().await;
    relay.call("POST", "/v1/workflows/orders/pause", None, None).await;
    let paused =
        async || relay.metric("oncebox_workflow_state", "state=\"paused\"").await.filter(|value| *value == 1.0);
    eventually("the pause is known", PATIENCE, paused).await;
    topic.send_orders(0..50);
    await_count(&database, 50, "select count(*) from oncebox.outbox").await;
    let listed = async || {
        let (available, _) = pages(&relay, "/v1/events?workflow=orders&state=available&limit=9").await;
        (available.len() == 50).then_some(())
    };
    eventually("all are available", PATIENCE, listed).await;
    let (completed, _) = pages(&relay, "/v1/events?workflow=orders&state=completed&limit=9").await;
    assert!(completed.is_empty());
}

#[tokio::test]
async fn a_dead_letter_is_discarded_once_and_its_key_goes_on() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        if body["data"]["n"] == 0 { Answer::status(422) } else { Answer::Process }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      ordering: key");
    let relay = Relay::start(&config);
    (0..3).for_each(|n| topic.send(Some("k"), &format!(r#"{{"n":{n}}}"#)));
    await_count(&database, 1, LETTERS).await;
    await_count(&database, 2, "select count(*) from oncebox.retry where held = 'order'").await;
    let letters = relay.ask("/v1/dead-letters").await;
    assert_eq!(letters["items"][0]["blocks"], true);
    let id = letters["items"][0]["id"].as_str().expect("an id");
    assert_eq!(relay.call("DELETE", &format!("/v1/dead-letters/{id}"), None, None).await.0, 204);
    assert_eq!(relay.call("DELETE", &format!("/v1/dead-letters/{id}"), None, None).await.0, 404);
    eventually("the others go on", PATIENCE, async || (receiver.applied() == 2).then_some(())).await;
    let event = relay.ask(&format!("/v1/events/{id}")).await;
    assert_eq!((&event["state"], &event["deadLetter"]), (&json!("discarded"), &json!("discarded")));
    assert_eq!(database.count("select count(*) from oncebox.audit where action = 'dead letter discarded'").await, 1);
}

#[tokio::test]
async fn a_replay_is_refused_while_its_key_is_under_way() {
    let (topic, database, receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    topic.send_orders(10..11);
    await_count(&database, 1, LETTERS).await;
    let letters = relay.ask("/v1/dead-letters").await;
    let id = letters["items"][0]["id"].as_str().expect("an id").to_owned();
    relay.call("POST", "/v1/workflows/orders/pause", None, None).await;
    // The record is read again on purpose: the same event, of another generation, waits.
    let set = oncebox(&["offsets", "set", "orders", "--to", "earliest"], &relay.config_path());
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    await_count(&database, 1, "select count(*) from oncebox.outbox where generation = 1000").await;
    let (status, body) = relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(json!({}))).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("key_active")), "{body}");
    assert_eq!(database.count(LETTERS).await, 1, "the dead letter stays");
    assert_eq!(receiver.applied(), 0);
}

/// Two letters of one record, read twice on purpose: one at a time may be under way.
#[tokio::test]
async fn of_two_dead_letters_with_one_key_only_one_is_replayed_at_a_time() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::status(422)).await;
    let config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start(&config);
    topic.send_orders(10..11);
    await_count(&database, 1, LETTERS).await;
    let set = oncebox(&["offsets", "set", "orders", "--to", "earliest"], &relay.config_path());
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    await_count(&database, 2, LETTERS).await;
    relay.call("POST", "/v1/workflows/orders/pause", None, None).await;
    let paused =
        async || relay.metric("oncebox_workflow_state", "state=\"paused\"").await.filter(|value| *value == 1.0);
    eventually("the pause is known", PATIENCE, paused).await;
    let letters = relay.ask("/v1/dead-letters").await;
    let ids: Vec<&str> =
        letters["items"].as_array().expect("items").iter().filter_map(|one| one["id"].as_str()).collect();
    // The newest first, and then the one before: whichever is replayed, the other waits.
    for (id, expected) in ids.iter().rev().zip([200, 409]) {
        let (status, body) = relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(json!({}))).await;
        assert_eq!(status, expected, "{id}: {body}");
    }
    assert_eq!(database.count(LETTERS).await, 1);
}

#[tokio::test]
async fn a_replay_with_a_new_key_is_a_new_event_to_its_receiver() {
    let (topic, database, receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    topic.send_orders(10..11);
    await_count(&database, 1, LETTERS).await;
    let id = relay.ask("/v1/dead-letters").await["items"][0]["id"].as_str().expect("an id").to_owned();
    let (status, made) =
        relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(json!({"newKey": true}))).await;
    assert_eq!((status, &made["id"]), (200, &json!(format!("{id}.r1"))));
    eventually("it is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    let seen = receiver.seen();
    assert_eq!(seen[1].key, format!("{}-r1", seen[0].key));
    let body: Value = serde_json::from_slice(&seen[1].body).expect("JSON");
    assert_eq!(body["idempotencyKey"], seen[1].key.as_str(), "the body says it too");
}

/// What the command line says is the same, whichever way it asks.
#[tokio::test]
async fn the_command_line_says_the_same_by_the_api_and_by_postgres() {
    let (topic, database, receiver, config) = refusing().await;
    let relay = Relay::start(&config);
    topic.send_orders(0..20);
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 18).then_some(())).await;
    await_count(&database, 20, DONE).await;
    let id = relay.ask("/v1/dead-letters").await["items"][0]["id"].as_str().expect("an id").to_owned();
    let event = relay.ask(&format!("/v1/events/{id}")).await;
    let key = event["key"].as_str().expect("a key");
    let source = relay.ask("/v1/dead-letters").await["items"][0]["source"].as_str().expect("a source").to_owned();
    let by_api = |verb: &[&str]| command().args(verb).args(["--url", &relay.url()]).output().expect("oncebox starts");
    for verb in [
        vec!["events", "list", "--workflow", "orders", "--key", key],
        vec!["events", "list", "--source", &source],
        vec!["events", "list", "--workflow", "orders", "--source", &source, "--json"],
        vec!["events", "list", "--workflow", "orders", "--key", key, "--state", "discarded"],
        vec!["events", "list", "--source", &source, "--state", "completed"],
        vec!["events", "list", "--source", &source, "--key", key],
        vec!["events", "list", "--workflow", "orders", "--key", key, "--limit", "5"],
        vec!["events", "list", "--source", &source, "--limit", "501"],
        vec!["events", "list", "--workflow", "orders", "--json"],
        vec!["events", "list", "--workflow", "orders", "--state", "discarded"],
        vec!["events", "show", &id],
        vec!["dead-letters", "list", "--json"],
        vec!["dead-letters", "show", &id],
        vec!["dead-letters", "replay", "--workflow", "orders", "--dry-run"],
        vec!["events", "list", "--workflow", "ordres"],
        vec!["dead-letters", "show", "0000000000000-1-0"],
        vec!["events", "resolve", &id, "--to", "delivered"],
    ] {
        let (straight, asked) = (oncebox(&verb, &relay.config_path()), by_api(&verb));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&straight.stdout), text(&asked.stdout), "{verb:?}");
        assert_eq!(
            straight.status.code(),
            asked.status.code(),
            "{verb:?}: {} {}",
            text(&straight.stderr),
            text(&asked.stderr)
        );
        assert_eq!(text(&straight.stderr), text(&asked.stderr), "{verb:?}");
        // By key and by record all are found, and nothing that would narrow them down is taken.
        let finds_all = verb.contains(&"--key") || verb.contains(&"--source");
        let is_narrowed = ["--state", "--limit"].iter().any(|flag| verb.contains(flag));
        let is_both = verb.contains(&"--key") && verb.contains(&"--source");
        if finds_all && (is_narrowed || is_both) {
            assert_eq!(asked.status.code(), Some(2), "{verb:?}");
            assert!(text(&asked.stderr).contains("finds all there are"), "{verb:?}: {}", text(&asked.stderr));
        } else if finds_all {
            assert!(asked.status.success() && text(&asked.stdout).contains(&id), "{verb:?}: {asked:?}");
        }
    }
    let status = String::from_utf8_lossy(&by_api(&["status"]).stdout).into_owned();
    assert!(status.lines().any(|line| line.starts_with("orders") && line.contains("running")), "{status}");
    let paused = by_api(&["pause", "orders"]);
    assert_eq!(String::from_utf8_lossy(&paused.stdout).trim(), "orders: paused", "{paused:?}");
    let status = oncebox(&["status"], &relay.config_path());
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("orders: paused since"), "{status}");
    let wrong = command().args(["status", "--url", "http://127.0.0.1:1"]).output().expect("oncebox starts");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("127.0.0.1:1"), "{wrong:?}");
}
