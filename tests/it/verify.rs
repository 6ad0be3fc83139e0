//! `oncebox verify`: that nothing was lost is proven, and what is taken away by hand is found and named.

mod beside;
mod by_hand;
mod retention;

use oncebox::receiver::Answer;
use serde_json::Value;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// A workflow with every kind of fate: delivered, refused, waiting for a retry, filtered, tombstones, not readable.
async fn every_fate() -> (Topic, TestDatabase, TestReceiver, Relay) {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        match body["data"]["id"].as_u64() {
            Some(id) if id % 10 == 1 => Answer::status(422),
            Some(id) if id % 10 == 2 => Answer::status(503),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
    config.extra = "filter: '.id % 10 != 3'\n    transform: 'if .id % 10 == 4 then (., .) else . end'".to_owned();
    let relay = Relay::start(&config);
    topic.send_orders(0..100);
    topic.send_raw(None, Some(b"gone"), None, None);
    topic.send(None, "{not json");
    let settled = "select count(*) from oncebox.done";
    // 60 records of one event and 10 of two, all delivered; 10 refused, one not readable.
    eventually("all are settled", PATIENCE, async || (database.count(settled).await == 91).then_some(())).await;
    let retried = "select count(*) from oncebox.retry";
    eventually("ten wait", PATIENCE, async || (database.count(retried).await == 10).then_some(())).await;
    // Behind this an event may be on its way without a row that says so.
    let behind = "select count(*) from oncebox.delivery as d join oncebox.cursor as c on c.id = d.cursor
                   where d.settled_to < c.next_offset";
    eventually("that is known", PATIENCE, async || (database.count(behind).await == 0).then_some(())).await;
    (topic, database, receiver, relay)
}

fn verify(relay: &Relay) -> (Option<i32>, Value) {
    let output = oncebox(&["verify", "orders", "--json"], &relay.config_path());
    let said = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), said)
}

#[tokio::test]
async fn every_record_has_exactly_one_disposition_while_everything_runs() {
    let (topic, _database, _receiver, relay) = every_fate().await;
    // An aborted transaction leaves offsets without a record, a committed one a marker.
    topic.transact(1000..1005, false);
    topic.transact(1010..1015, true);
    let (code, said) = eventually("all of it is accounted for", PATIENCE, async || {
        let (code, said) = verify(&relay);
        let settled = said["partitions"][0]["counts"]["waiting"] == 11;
        (settled
            && said["partitions"][0]["to"].as_i64() >= Some(114)
            && said["partitions"][0]["counts"]["delivered"] == 83)
            .then_some((code, said))
    })
    .await;
    assert_eq!((code, &said["gaps"]), (Some(0), &Value::from(0)), "{said:#}");
    let counts = &said["partitions"][0]["counts"];
    let of = |name: &str| counts[name].as_i64().expect("a number");
    assert_eq!(
        (of("waiting"), of("dead"), of("filtered"), of("tombstones")),
        (10 + 1, 10 + 1 + 1, 10 + 1, 1),
        "{counts:#}"
    );
    // Five aborted records and two markers.
    assert_eq!((of("absent"), of("unknown"), of("skipped"), of("marked")), (7, 0, 0, 0), "{counts:#}");
    let output = oncebox(&["verify", "orders"], &relay.config_path());
    assert!(String::from_utf8_lossy(&output.stdout).contains("every record has exactly one disposition"), "{output:?}");
}

#[tokio::test]
async fn a_row_that_was_deleted_by_hand_is_found_and_named() {
    let (topic, database, _receiver, relay) = every_fate().await;
    assert_eq!(verify(&relay).0, Some(0));
    // Nobody may put back what is taken away.
    let id = |row: &tokio_postgres::Row| row.get::<_, i64>(0);
    for (what, kind) in [
        ("delete from oncebox.retry where ctid = (select ctid from oncebox.retry order by record_offset limit 1) returning record_offset", "stuck"),
        ("delete from oncebox.dead_letter where ctid = (select ctid from oncebox.dead_letter order by record_offset desc limit 1) returning record_offset", "noDeadLetter"),
        (
            "with taken as (delete from oncebox.outbox where (cursor, record_offset) in (select cursor, record_offset from oncebox.retry order by record_offset desc limit 1)
              returning cursor, record_offset), also as (delete from oncebox.retry as r using taken as t where r.cursor = t.cursor and r.record_offset = t.record_offset)
              select record_offset from taken",
            "lost",
        ),
    ] {
        let before = verify(&relay).1["gaps"].as_i64().expect("a number");
        let offset = id(&database.query(what, &[]).await[0]);
        let (code, said) = verify(&relay);
        assert_eq!(code, Some(1), "{said:#}");
        assert!(said["gaps"].as_i64() > Some(before), "{said:#}");
        let source = format!("{}/0/{offset}", topic.name);
        let gaps = said["partitions"][0]["gaps"].as_array().expect("gaps");
        let named = gaps.iter().any(|gap| gap["kind"] == kind && gap["source"] == source.as_str());
        assert!(named, "{kind} of {source}: {gaps:#?}");
        let output = oncebox(&["verify", "orders"], &relay.config_path());
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("GAP  {source}")), "{output:?}");
    }
}

/// What was made of a dead letter is looked at too.
#[tokio::test]
async fn a_replayed_event_that_nothing_will_deliver_is_found() {
    let (_topic, database, _receiver, relay) = every_fate().await;
    relay.call("POST", "/v1/workflows/orders/pause", None, None).await;
    let letters = relay.ask("/v1/dead-letters?reason=rejected").await;
    let id = letters["items"][0]["id"].as_str().expect("an id");
    let (status, _) =
        relay.call("POST", &format!("/v1/dead-letters/{id}/replay"), None, Some(serde_json::json!({}))).await;
    assert_eq!(status, 200);
    let (code, said) = verify(&relay);
    let counts = &said["partitions"][0]["counts"];
    assert_eq!((code, counts["replayed"].as_i64(), counts["dead"].as_i64()), (Some(0), Some(1), Some(10)), "{said:#}");
    database.execute("delete from oncebox.retry where generation = 1").await;
    let (code, said) = verify(&relay);
    let gaps = said["partitions"][0]["gaps"].as_array().expect("gaps");
    let named = gaps.iter().any(|gap| gap["kind"] == "stuck" && gap["event"] == format!("{id}.r1").as_str());
    assert!(code == Some(1) && named, "{said:#}");
}

#[tokio::test]
async fn offsets_that_an_operator_skipped_are_no_gap() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let mut relay = Relay::start(&config);
    topic.send_orders(0..10);
    eventually("ten are delivered", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    topic.send_orders(10..20);
    let set = oncebox(&["offsets", "set", "orders", "--to", "15"], &relay.config_path());
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let relay = Relay::start_migrated(&config);
    eventually("the rest is delivered", PATIENCE, async || (receiver.applied() == 15).then_some(())).await;
    let (code, said) = verify(&relay);
    let counts = &said["partitions"][0]["counts"];
    assert_eq!(
        (code, counts["skipped"].as_i64(), counts["delivered"].as_i64()),
        (Some(0), Some(5), Some(15)),
        "{said:#}"
    );
}

#[tokio::test]
async fn without_the_outbox_the_mark_alone_vouches_and_that_is_said() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "idempotent-keys";
    let mut relay = Relay::start(&config);
    topic.send_orders(0..10);
    eventually("ten are delivered", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    assert_eq!(relay.stop().await, Some(0));
    let output = oncebox(&["verify", "orders"], &relay.config_path());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the mark in Kafka alone"), "{said}");
    // Then through the outbox, and verified from there on.
    config.guarantee = "exactly-once";
    let relay = Relay::start_migrated(&config);
    topic.send_orders(10..15);
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == 15).then_some(())).await;
    let settled = async || {
        let (code, said) = verify(&relay);
        let counts = &said["partitions"][0]["counts"];
        (code == Some(0) && counts["marked"] == 10 && counts["delivered"] == 5).then_some(())
    };
    eventually("both are accounted for", PATIENCE, settled).await;
}
