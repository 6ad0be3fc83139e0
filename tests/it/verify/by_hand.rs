//! Each kind of row that somebody may delete: it is found, and named.

use serde_json::{Value, json};

use super::{every_fate, verify};
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// The partition of this topic.
fn of<'a>(said: &'a Value, topic: &str) -> &'a Value {
    let mut partitions = said["partitions"].as_array().expect("partitions").iter();
    partitions.find(|one| one["topic"] == topic).unwrap_or_else(|| panic!("{topic}: {said:#}"))
}

fn has_gap(partition: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    partition["gaps"].as_array().expect("gaps").iter().any(is_it)
}

/// Deletes what this statement says, and answers the offset of the first.
async fn delete(database: &TestDatabase, what: &str) -> i64 {
    database.query(what, &[]).await.first().unwrap_or_else(|| panic!("it deletes something: {what}")).get(0)
}

/// Deletes that, and answers what is said then, which must be that more is amiss than before.
async fn without(database: &TestDatabase, relay: &Relay, what: &str) -> (i64, Value) {
    let before = verify(relay).1["gaps"].as_u64().expect("a number");
    let offset = delete(database, what).await;
    let (code, said) = verify(relay);
    assert_eq!(code, Some(1), "{what}: {said:#}");
    assert!(said["gaps"].as_u64() > Some(before), "{what}: {said:#}");
    (offset, said)
}

#[tokio::test]
async fn the_end_of_an_event_that_counts_as_delivered_then_is_found_and_named() {
    let (topic, database, _receiver, relay) = every_fate().await;
    let waiting = relay.ask("/v1/events?workflow=orders&state=retryable").await;
    let id = waiting["items"][0]["id"].as_str().expect("an id").to_owned();
    let (status, body) = relay.call("POST", &format!("/v1/events/{id}/cancel"), None, Some(json!({}))).await;
    assert_eq!((status, &body["cancelRequested"]), (200, &json!(false)), "{body}");
    let (code, said) = verify(&relay);
    assert_eq!((code, of(&said, &topic.name)["counts"]["cancelled"].as_i64()), (Some(0), Some(1)), "{said:#}");
    // A dead one: its letter tells which.
    let what = "delete from oncebox.remark as m
                 using (select d.cursor, d.record_offset, d.event_index, d.generation from oncebox.dead_letter as d
                         order by d.record_offset limit 1) as d
                 where m.cursor = d.cursor and m.record_offset = d.record_offset and m.event_index = d.event_index
                   and m.generation = d.generation
                returning m.record_offset";
    let (offset, said) = without(&database, &relay, what).await;
    let (partition, source) = (of(&said, &topic.name), format!("{}/0/{offset}", topic.name));
    assert!(has_gap(partition, |gap| gap["kind"] == "twice" && gap["source"] == source.as_str()), "{said:#}");
    let names = |name: &'static str| {
        move |gap: &Value| gap["kind"] == "miscounted" && gap["message"].as_str().is_some_and(|why| why.contains(name))
    };
    assert!(has_gap(partition, names("`discarded`")) && !has_gap(partition, names("`cancelled`")), "{said:#}");
    // Of a cancelled one nothing else is left: the counter tells that there was one.
    let what = "delete from oncebox.remark where state = 'cancelled' returning record_offset";
    let (_, said) = without(&database, &relay, what).await;
    assert!(has_gap(of(&said, &topic.name), names("`cancelled`")), "{said:#}");
    // And of a delivered one, the whole of its end.
    let what = "update oncebox.ended set bits = 0 where (cursor, block) = (select cursor, min(block) from oncebox.ended group by cursor)
                returning block";
    let (_, said) = without(&database, &relay, what).await;
    assert!(has_gap(of(&said, &topic.name), names("`completed`")), "{said:#}");
}

#[tokio::test]
async fn an_event_that_waits_and_is_not_stored_any_more_is_found_and_named() {
    let (topic, database, _receiver, relay) = every_fate().await;
    let event = json!({"type": "OrderTouched", "data": {"id": 2}});
    let (status, body) = relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
    assert_eq!(status, 201, "{body}");
    let id = body["id"].as_str().expect("an id").to_owned();
    let waits = async || (relay.ask(&format!("/v1/events/{id}")).await["state"] == "retryable").then_some(());
    eventually("it is to be tried again", PATIENCE, waits).await;
    let (code, said) = verify(&relay);
    assert_eq!((code, of(&said, "http")["counts"]["waiting"].as_i64()), (Some(0), Some(1)), "{said:#}");
    for (cluster, topic) in [("=", "http"), ("<>", topic.name.as_str())] {
        let what = format!(
            "delete from oncebox.outbox as o
              using (select r.cursor, r.record_offset from oncebox.retry as r join oncebox.cursor as c on c.id = r.cursor
                      where c.cluster {cluster} '' order by r.record_offset limit 1) as r
              where o.cursor = r.cursor and o.record_offset = r.record_offset
             returning o.record_offset"
        );
        let (offset, said) = without(&database, &relay, &what).await;
        let source = format!("{topic}/0/{offset}");
        let is_it = |gap: &Value| gap["kind"] == "stuck" && gap["source"] == source.as_str();
        assert!(has_gap(of(&said, topic), is_it), "{source}: {said:#}");
        assert!(has_gap(of(&said, topic), |gap| gap["message"].as_str().is_some_and(|why| why.contains("`appended`"))));
        let is_named = |gap: &Value| gap["event"] == id.as_str();
        assert!(topic != "http" || has_gap(of(&said, topic), is_named), "{id}: {said:#}");
    }
}

/// Nothing else is left of it then, neither in the outbox nor in retry.
#[tokio::test]
async fn an_event_over_http_that_is_gone_without_a_trace_is_counted() {
    let (_topic, database, _receiver, relay) = every_fate().await;
    let event = json!({"type": "OrderTouched", "data": {"id": 2}});
    assert_eq!(relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await.0, 201);
    let waits = "select count(*) from oncebox.retry where state = 'retryable'";
    eventually("it is to be tried again", PATIENCE, async || (database.count(waits).await == 11).then_some(())).await;
    assert_eq!(verify(&relay).0, Some(0));
    database
        .execute(
            "delete from oncebox.retry as r using oncebox.cursor as c where c.id = r.cursor and c.cluster = '';
             delete from oncebox.outbox as o using oncebox.cursor as c where c.id = o.cursor and c.cluster = ''",
        )
        .await;
    let (code, said) = verify(&relay);
    let is_it = |gap: &Value| gap["message"].as_str().is_some_and(|why| why.contains("`appended`"));
    assert!(code == Some(1) && has_gap(of(&said, "http"), is_it), "{said:#}");
}

#[tokio::test]
async fn the_first_row_of_the_ledger_is_missed_and_so_are_all() {
    let (topic, database, _receiver, relay) = every_fate().await;
    // One more append at the least.
    topic.send_orders(100..101);
    let settled = "select count(*) from oncebox.done";
    eventually("it is settled", PATIENCE, async || (database.count(settled).await == 92).then_some(())).await;
    assert_eq!(verify(&relay).0, Some(0));
    let first = "delete from oncebox.ledger where from_offset = (select min(from_offset) from oncebox.ledger) returning to_offset";
    let all = "delete from oncebox.ledger returning (select next_offset from oncebox.cursor)";
    for what in [first, all] {
        let (to, said) = without_rows(&database, &relay, what).await;
        let partition = of(&said, &topic.name);
        assert_eq!(partition["from"], 0, "{said:#}");
        let is_it = |gap: &Value| gap["kind"] == "neverRead" && gap["from"] == 0 && gap["to"] == to;
        assert!(has_gap(partition, is_it), "0 to {to}: {said:#}");
    }
}

/// As `without`, where one gap may take the place of another.
async fn without_rows(database: &TestDatabase, relay: &Relay, what: &str) -> (i64, Value) {
    let to = delete(database, what).await;
    let (code, said) = verify(relay);
    assert_eq!(code, Some(1), "{what}: {said:#}");
    (to, said)
}

/// On the direct path only what failed is stored.
#[tokio::test]
async fn a_failure_of_the_direct_path_that_is_not_stored_any_more_is_found() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|_| oncebox::receiver::Answer::status(503)).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "idempotent-keys";
    config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..5);
    let stored = "select count(*) from oncebox.retry where state = 'retryable'";
    eventually("all are to be tried again", PATIENCE, async || (database.count(stored).await == 5).then_some(())).await;
    assert_eq!(verify(&relay).0, Some(0));
    let what = "delete from oncebox.outbox where record_offset = 2 returning record_offset";
    let (_, said) = without(&database, &relay, what).await;
    assert!(has_gap(of(&said, &topic.name), |gap| gap["kind"] == "stuck" && gap["from"] == 2), "{said:#}");
}
