//! The audit: no change without a record of it, events by the ids that people know, newest first.

use oncebox::event::{CursorId, Place};
use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually};

/// Nothing more can be put on record, until that is undone.
const REFUSES: &str = "
    create function oncebox.refuse() returns trigger language plpgsql as $$
    begin
        raise exception 'nothing can be put on record';
    end $$;
    create trigger refuse before insert on oncebox.audit for each row execute function oncebox.refuse()";
const TAKES_AGAIN: &str = "drop trigger refuse on oncebox.audit";

async fn refused(relay: &Relay, path: &str, body: Value) {
    let (status, said) = relay.call("POST", path, None, Some(body)).await;
    assert_eq!((status, said["error"]["code"].as_str()), (503, Some("unavailable")), "{path}: {said}");
}

async fn await_count(database: &TestDatabase, wanted: i64, text: &str) {
    let check = async || (database.count(text).await == wanted).then_some(());
    eventually(&format!("{wanted} from {text}"), PATIENCE, check).await;
}

async fn becomes(relay: &Relay, id: &str, wanted: &str) {
    let check = async || {
        let (status, event) = relay.call("GET", &format!("/v1/events/{id}"), None, None).await;
        (status == 200 && event["state"] == wanted).then_some(())
    };
    eventually(&format!("{id} is {wanted}"), PATIENCE, check).await;
}

#[tokio::test]
async fn a_word_on_an_event_in_doubt_counts_only_with_a_record_of_it() {
    const HELD: &str = "select count(*) from oncebox.retry where state = 'pending' and held = 'in_doubt'";
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match seen.attempt {
        1 => Answer::ProcessAndClose,
        _ => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      onInDoubt: hold");
    // Long enough that a slow machine puts nothing in doubt by itself.
    (config.timeout, config.lease) = ("20s", "40s");
    let relay = Relay::start(&config);
    topic.send_orders(0..3);
    await_count(&database, 3, HELD).await;
    let listed = relay.ask("/v1/events?workflow=orders&state=pending").await;
    let held = listed["items"].as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id"));
    let words: Vec<(String, &str)> =
        held.map(|id| format!("/v1/events/{id}/resolve")).zip(["delivered", "redeliver", "dead-letter"]).collect();
    assert_eq!(words.len(), 3);
    database.execute(REFUSES).await;
    for (path, word) in &words {
        refused(&relay, path, json!({"to": word})).await;
        assert_eq!(database.count(HELD).await, 3, "{word}");
    }
    let ended = "select (select count(*) from oncebox.done) + (select count(*) from oncebox.dead_letter)";
    assert_eq!(database.count(ended).await, 0);
    database.execute(TAKES_AGAIN).await;
    for (path, word) in &words {
        let (status, said) = relay.call("POST", path, None, Some(json!({"to": word}))).await;
        assert_eq!(status, 200, "{word}: {said}");
    }
    assert_eq!(database.count("select count(*) from oncebox.audit where action = 'event resolved'").await, 3);
    await_count(&database, 2, "select count(*) from oncebox.done where state = 'completed'").await;
}

#[tokio::test]
async fn all_partitions_are_moved_with_a_record_of_it_or_none_is() {
    if embedded::lacks("a cluster that describes its topics") {
        return;
    }
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..20);
    await_count(&database, 20, "select count(*) from oncebox.done").await;
    database.execute("update oncebox.workflow set halted = 'a test'").await;
    database.execute(REFUSES).await;
    let wanted = json!({"to": "earliest"});
    refused(&relay, "/v1/workflows/orders/offsets", wanted.clone()).await;
    assert_eq!(database.count("select sum(next_offset)::bigint from oncebox.cursor").await, 20, "none has moved");
    assert_eq!(database.count("select count(*) from oncebox.cursor where generation <> 0").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.gap").await, 0);
    assert_eq!(database.count("select count(*) from oncebox.workflow where halted is not null").await, 1);
    database.execute(TAKES_AGAIN).await;
    let (status, said) = relay.call("POST", "/v1/workflows/orders/offsets", None, Some(wanted)).await;
    assert_eq!(status, 200, "{said}");
    let audit = database.query("select detail from oncebox.audit where action = 'offsets set'", &[]).await;
    let details: Vec<&str> = audit.iter().map(|row| row.get(0)).collect();
    assert_eq!(details, ["to earliest (2 partitions)"]);
    eventually("all come again", PATIENCE, async || (receiver.lines().len() == 40).then_some(())).await;
    assert_eq!(receiver.applied(), 20, "under the same keys");
}

#[tokio::test]
async fn nothing_is_parked_before_that_is_on_record() {
    let (relay, database, _receiver) = crate::reload::removed().await;
    let letters = "select count(*) from oncebox.dead_letter where reason = 'parked'";
    database.execute(REFUSES).await;
    refused(&relay, "/v1/workflows/orders/park", json!({})).await;
    assert_eq!(database.count(letters).await, 0);
    database.execute(TAKES_AGAIN).await;
    let (status, said) = relay.call("POST", "/v1/workflows/orders/park", None, Some(json!({}))).await;
    assert_eq!((status, &said["changed"]), (202, &json!(true)), "{said}");
    await_count(&database, 30, letters).await;
    let noted = "select count(*) from oncebox.audit where (action, detail) in (('park', ''), ('parked', '30 events'))";
    await_count(&database, 2, noted).await;
}

#[tokio::test]
async fn every_event_on_record_is_named_by_its_id() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| Answer::status(422)).await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let later = json!({"type": "t", "data": 1, "scheduled_at": "2999-01-01T00:00:00Z"});
    let (status, stored) = relay.call("POST", "/v1/workflows/orders/events", None, Some(later)).await;
    assert_eq!(status, 201, "{stored}");
    let later = stored["id"].as_str().expect("an id").to_owned();
    assert_eq!(relay.call("POST", &format!("/v1/events/{later}/cancel"), None, Some(json!({}))).await.0, 200);
    topic.send_orders(0..1);
    await_count(&database, 1, "select count(*) from oncebox.dead_letter").await;
    let refused = relay.ask("/v1/dead-letters").await["items"][0]["id"].as_str().expect("an id").to_owned();
    let again = format!("{refused}.r1");
    let replay = format!("/v1/dead-letters/{refused}/replay");
    assert_eq!(relay.call("POST", &replay, None, Some(json!({}))).await.0, 200);
    becomes(&relay, &again, "discarded").await;
    assert_eq!(relay.call("DELETE", &format!("/v1/dead-letters/{again}"), None, None).await.0, 204);
    // One by one, and so over the ends of pages.
    let (mut noted, mut next) = (Vec::new(), String::new());
    loop {
        let page = relay.ask(&format!("/v1/audit?limit=1{next}")).await;
        noted.extend(page["items"].as_array().expect("a list").iter().cloned());
        match page["next"].as_str() {
            Some(mark) => next = format!("&after={mark}"),
            None => break,
        }
    }
    let said: Vec<(&str, &str)> = noted
        .iter()
        .map(|one| (one["action"].as_str().unwrap_or_default(), one["detail"].as_str().unwrap_or_default()))
        .collect();
    let wanted = [
        ("dead letter discarded", again.as_str()),
        ("dead letter replayed", refused.as_str()),
        ("event cancelled", later.as_str()),
        ("events submitted", "1 event"),
    ];
    assert_eq!(said, wanted);
    assert!(noted.iter().all(|one| one["who"] == "api:local" && one["workflow"] == "orders"), "{noted:#?}");
    for id in [&later, &refused, &again] {
        assert_eq!(relay.ask(&format!("/v1/events/{id}")).await["id"], id.as_str());
    }
}

#[tokio::test]
async fn postgres_and_the_process_write_an_id_alike() {
    let database = TestDatabase::new().await;
    migrated(&database);
    for place in [
        Place { cursor: CursorId(i64::MAX), offset: i64::MAX, index: 9_999, generation: 3 },
        Place { cursor: CursorId(0), offset: 0, index: 0, generation: 0 },
        Place { cursor: CursorId::of("w", "c", "t", 1), offset: 42, index: 1, generation: 1000 },
    ] {
        let Place { cursor: CursorId(cursor), offset, index, generation } = place;
        let text = "select oncebox.event_id($1, $2, $3, $4)";
        let written: String = database.query(text, &[&cursor, &offset, &index, &generation]).await[0].get(0);
        assert_eq!(written, place.to_string());
    }
}
