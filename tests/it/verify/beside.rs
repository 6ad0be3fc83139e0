//! Proofs beside everything else: while records are read, events fail, are replayed and cancelled, nothing is reported that is not so.

use std::collections::HashSet;
use std::sync::Mutex;

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use super::verify;
use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const ROUNDS: u32 = 8;
const AT_ONCE: u32 = 100;

#[tokio::test]
async fn nothing_is_reported_while_events_come_and_go() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    // Of ten events one is refused whenever it comes, one fails once, and one fails always.
    let failed = Mutex::new(HashSet::new());
    let receiver = TestReceiver::deciding(move |seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        match body["data"]["id"].as_u64().map(|id| id % 10) {
            Some(1) => Answer::status(422),
            Some(2) if failed.lock().unwrap().insert(seen.event.clone()) => Answer::status(503),
            Some(4) => Answer::status(503),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [100ms, 1h], jitter: 0}
      deadLetterLimit: {count: 1000000, per: 1s}"
        .to_owned();
    config.extra = "filter: '.id % 10 != 3'\n    transform: 'if .id % 10 == 5 then (., .) else . end'".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    for round in 0..ROUNDS {
        topic.send_orders(round * AT_ONCE..(round + 1) * AT_ONCE);
        for id in 0..5 {
            let event = json!({"type": "OrderTouched", "data": {"id": id}});
            assert_eq!(relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await.0, 201);
        }
        let replay = json!({"workflow": "orders"});
        assert_eq!(relay.call("POST", "/v1/dead-letters/replay", None, Some(replay)).await.0, 202);
        let waiting = relay.ask("/v1/events?workflow=orders&state=retryable&limit=10").await;
        for event in waiting["items"].as_array().expect("a list") {
            let id = event["id"].as_str().expect("an id");
            let (status, body) = relay.call("POST", &format!("/v1/events/{id}/cancel"), None, Some(json!({}))).await;
            assert!([200, 202, 409].contains(&status), "{body}");
        }
        if round % 4 == 2 {
            let set = oncebox(&["offsets", "set", "orders", "--to", "earliest"], &relay.config_path());
            assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        }
        let (code, said) = verify(&relay);
        assert_eq!((code, &said["gaps"]), (Some(0), &json!(0)), "round {round}: {said:#}");
    }
    let cancelled = "select count(*) from oncebox.remark where state = 'cancelled'";
    assert!(database.count(cancelled).await > 0, "some were cancelled");
    // And once only what always fails is left.
    let failing = "select count(*) from oncebox.retry as r
                     join oncebox.outbox as o on o.cursor = r.cursor and o.record_offset = r.record_offset
                                             and o.event_index = r.event_index and o.generation = r.generation
                    where convert_from(o.body, 'utf8') !~ '\"id\": ?[0-9]*4[,}]'";
    let left = "select (sum(c.appended) - sum(d.completed + d.cancelled + d.discarded))::bigint - (select count(*) from oncebox.retry)
                  from oncebox.delivery as d join oncebox.cursor as c on c.id = d.cursor";
    eventually("the rest has ended", PATIENCE, async || {
        (database.count(failing).await == 0 && database.count(left).await == 0).then_some(())
    })
    .await;
    let (code, said) = verify(&relay);
    assert_eq!((code, &said["gaps"]), (Some(0), &json!(0)), "{said:#}");
}
