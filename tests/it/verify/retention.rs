//! What is past its retention is not missed, and what is deleted behind it is.

use oncebox::observe::Metrics;
use oncebox::outbox::partitions;
use oncebox::receiver::Answer;
use serde_json::{Value, json};

use super::verify;
use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// Lets the database believe that it is so many days ago.
async fn go_back(database: &TestDatabase, days: u32) {
    database
        .execute(&format!(
            "create or replace function oncebox.today() returns date language sql volatile as
             $$ select timezone('utc', clock_timestamp())::date - {days} $$;
             select oncebox.make_partitions(3)"
        ))
        .await;
}

/// A workflow that suppresses repeats: of ten orders the second is refused, unless it is replayed, the third fails, and the fourth is
/// filtered.
async fn start(topic: &Topic, database: &TestDatabase) -> (TestReceiver, Relay) {
    let receiver = TestReceiver::deciding(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        match body["data"]["after"]["id"].as_u64() {
            Some(id) if id % 10 == 1 && !seen.event.contains(".r") => Answer::status(422),
            Some(id) if id % 10 == 2 => Answer::status(503),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(topic, database, &receiver);
    config.source = "format: debezium".to_owned();
    config.delivery = "retries: {backoff: [1h], jitter: 0}
      deduplication: {keyFields: [database, table, primaryKey], ttl: 1h}"
        .to_owned();
    config.extra = "filter: '.after.id % 10 != 3'".to_owned();
    migrated(database);
    go_back(database, 40).await;
    (receiver, Relay::start(&config))
}

fn send(topic: &Topic, ids: std::ops::Range<u32>) {
    for id in ids {
        let (key, change) = (format!(r#"{{"id":{id}}}"#), id + 1);
        let value = format!(
            r#"{{"before":null,"after":{{"id":{id}}},"source":{{"connector":"postgresql","db":"sales","schema":"public",
            "table":"orders","lsn":{change},"txId":{change},"ts_ms":1700000000000}},"op":"c","ts_ms":1700000000001}}"#
        );
        topic.send_raw(None, Some(key.as_bytes()), Some(value.as_bytes()), None);
    }
    topic.flush();
}

/// Waits until so many events have ended and so many wait, and everybody knows.
async fn settled(database: &TestDatabase, ended: i64, waiting: i64) {
    let ends = "select coalesce(sum(completed + cancelled + discarded), 0)::bigint from oncebox.delivery";
    eventually("events end", PATIENCE, async || (database.count(ends).await == ended).then_some(())).await;
    let waits = "select count(*) from oncebox.retry";
    eventually("others wait", PATIENCE, async || (database.count(waits).await == waiting).then_some(())).await;
    let behind = "select count(*) from oncebox.delivery as d join oncebox.cursor as c on c.id = d.cursor
                   where d.settled_to < c.next_offset";
    eventually("that is known", PATIENCE, async || (database.count(behind).await == 0).then_some(())).await;
}

async fn replay(relay: &Relay, id: &str) {
    let path = format!("/v1/dead-letters/{id}/replay");
    let (status, body) = relay.call("POST", &path, None, Some(json!({}))).await;
    assert_eq!(status, 200, "{body}");
}

async fn cancel_all_that_wait(relay: &Relay) {
    let waiting = relay.ask("/v1/events?workflow=orders&state=retryable").await;
    for event in waiting["items"].as_array().expect("a list") {
        let id = event["id"].as_str().expect("an id");
        assert_eq!(relay.call("POST", &format!("/v1/events/{id}/cancel"), None, Some(json!({}))).await.0, 200);
    }
}

fn counts(said: &Value) -> [i64; 6] {
    let of = |name: &str| said["partitions"][0]["counts"][name].as_i64().expect("a number");
    ["delivered", "dead", "replayed", "cancelled", "waiting", "suppressed"].map(of)
}

#[tokio::test]
async fn what_went_with_a_day_is_not_missed_and_what_is_deleted_behind_it_is() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let (_receiver, relay) = start(&topic, &database).await;
    // Forty days ago: two are refused, of which one is replayed, two fail and are cancelled, two are filtered, and the first ten come again.
    send(&topic, 0..20);
    settled(&database, 16, 2).await;
    let letters = relay.ask("/v1/dead-letters").await;
    let letters: Vec<&str> =
        letters["items"].as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id")).collect();
    assert_eq!(letters.len(), 2);
    replay(&relay, letters[0]).await;
    cancel_all_that_wait(&relay).await;
    send(&topic, 0..10);
    let read = "select next_offset from oncebox.cursor";
    eventually("repeats are read", PATIENCE, async || (database.count(read).await == 30).then_some(())).await;
    settled(&database, 19, 0).await;
    let (code, said) = verify(&relay);
    assert_eq!((code, counts(&said)), (Some(0), [14, 1, 1, 2, 0, 9]), "{said:#}");
    // Today the same without repeats, both letters stay, and one more fails and waits.
    go_back(&database, 0).await;
    send(&topic, 20..40);
    settled(&database, 19 + 16, 2).await;
    cancel_all_that_wait(&relay).await;
    send(&topic, 42..43);
    settled(&database, 19 + 16 + 2, 1).await;
    let (code, said) = verify(&relay);
    assert_eq!((code, counts(&said)), (Some(0), [28, 3, 1, 4, 1, 9]), "{said:#}");
    // First the bodies go, then what became of them.
    for _ in 0..2 {
        let metrics = Metrics::new();
        partitions::maintain(&database.opened(), &[], &metrics).await.expect("it runs");
    }
    let old = "select count(*) from oncebox.ledger where day < timezone('utc', clock_timestamp())::date - 30";
    assert_eq!(database.count(old).await, 0);
    assert_eq!(database.count("select count(*) from oncebox.kept_day where is_gone").await, 9);
    let (code, said) = verify(&relay);
    assert_eq!((code, counts(&said)), (Some(0), [14, 2, 0, 2, 1, 0]), "{said:#}");
    assert_eq!(said["partitions"][0]["from"], 30, "{said:#}");
    // An event that no append tells of any more waits again.
    let (status, _) = relay.call("POST", "/v1/workflows/orders/pause", None, None).await;
    assert_eq!(status, 200);
    replay(&relay, letters[1]).await;
    let (code, said) = verify(&relay);
    assert_eq!((code, &said["gaps"]), (Some(0), &json!(0)), "{said:#}");
    // Behind what is gone nothing may be missing.
    let cancelled = "delete from oncebox.remark where state = 'cancelled'";
    let read = "delete from oncebox.ledger";
    for (what, wanted) in [(cancelled, "`cancelled`"), (read, "nothing says that it was read")] {
        database.execute(what).await;
        let (code, said) = verify(&relay);
        let gaps = said["partitions"][0]["gaps"].as_array().expect("gaps");
        let mut messages = gaps.iter().map(|gap| gap["message"].as_str().expect("a message"));
        assert!(code == Some(1) && messages.any(|message| message.contains(wanted)), "{wanted}: {said:#}");
    }
}

/// A day that a binary of before has dropped is on nobody's list: then only what is known is asked for.
#[tokio::test]
async fn a_day_that_went_unnoted_is_not_missed_either() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let (_receiver, relay) = start(&topic, &database).await;
    send(&topic, 4..10);
    settled(&database, 6, 0).await;
    go_back(&database, 0).await;
    send(&topic, 14..20);
    settled(&database, 12, 0).await;
    assert_eq!(verify(&relay).0, Some(0));
    for parent in ["ledger", "ended", "remark", "attempt", "outbox"] {
        let name = format!("'{parent}_' || to_char(timezone('utc', clock_timestamp())::date - 40, 'YYYY_MM_DD')");
        database.execute(&format!("do $$ begin execute format('drop table oncebox.%I', {name}); end $$")).await;
    }
    let (code, said) = verify(&relay);
    assert_eq!((code, counts(&said)), (Some(0), [6, 0, 0, 0, 0, 0]), "{said:#}");
}

/// What is read again is to be on record again.
#[tokio::test]
async fn after_a_rewind_before_the_first_offset_all_of_it_is_asked_for() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send_orders(0..10);
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = "startFrom: latest".to_owned();
    let relay = Relay::start(&config);
    let known = "select count(*) from oncebox.cursor where start_offset = 10";
    eventually("it stands behind them", PATIENCE, async || (database.count(known).await == 1).then_some(())).await;
    topic.send_orders(10..15);
    eventually("the rest is delivered", PATIENCE, async || (receiver.applied() == 5).then_some(())).await;
    let set = oncebox(&["offsets", "set", "orders", "--to", "5"], &relay.config_path());
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    eventually("five more are delivered", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    let all = async || {
        let (code, said) = verify(&relay);
        (code == Some(0) && said["partitions"][0]["counts"]["delivered"] == 15).then_some(said)
    };
    let said = eventually("it is settled", PATIENCE, all).await;
    assert_eq!(said["partitions"][0]["from"], 5, "{said:#}");
    database.execute("delete from oncebox.ledger where from_offset < 10").await;
    let (code, said) = verify(&relay);
    let gaps = said["partitions"][0]["gaps"].as_array().expect("gaps");
    assert!(code == Some(1) && gaps.iter().any(|gap| gap["from"] == 5), "{said:#}");
}
