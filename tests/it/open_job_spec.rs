//! Unique jobs as the Open Job Spec asks for them, seen from outside: its eleven scenarios, from Kafka and over HTTP alike. What the
//! strategies do to events in every state is in `strategies`, keys of records are in `records`, its delivery guarantees in
//! `guarantees`; that nothing sets events over HTTP apart, in `given`.

use serde_json::{Value, json};

use crate::support::{PATIENCE, Relay, eventually};

mod case;
mod given;
mod guarantees;
mod records;
mod strategies;

use case::Case;

/// More of them where a long run is asked for.
fn rounds() -> i64 {
    std::env::var("ONCEBOX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

fn event(user: u32, unique: &Value) -> Value {
    json!({"type": "email.send", "data": {"user_id": user, "locale": "en"}, "unique": unique})
}

fn by_user(on_conflict: &str) -> Value {
    json!({"keys": ["type", "args"], "args_keys": ["user_id"], "on_conflict": on_conflict})
}

#[tokio::test]
async fn scenarios_1_2_7_8_9_repeats_are_refused_ignored_and_told_apart_by_their_dimensions() {
    let case = Case::paused("").await;
    // 1. Basic deduplication.
    let first = case.stored(event(1, &by_user("reject"))).await;
    let (status, body) = case.submit(event(1, &by_user("reject"))).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("duplicate")), "{body}");
    assert_eq!(
        (body["error"]["details"]["id"].as_str(), &body["error"]["retryable"]),
        (Some(first.as_str()), &json!(false))
    );
    assert_eq!(body["error"]["details"]["state"], "available");
    // 2. What is not among the keys makes no difference.
    let mut other = event(1, &by_user("reject"));
    other["data"]["locale"] = json!("fr");
    assert_eq!(case.submit(other).await.0, 409);
    assert_eq!(case.submit(event(2, &by_user("reject"))).await.0, 201, "another user");
    // 7. Ignored: the first one is named.
    let (status, body) = case.submit(event(1, &by_user("ignore"))).await;
    assert_eq!(
        (status, body["id"].as_str(), &body["deduplicated"]),
        (200, Some(first.as_str()), &json!(true)),
        "{body}"
    );
    // 8. The queue is the workflow; the type always counts.
    let by_queue = json!({"keys": ["type", "queue"]});
    assert_eq!(case.submit(json!({"type": "a", "data": {}, "unique": by_queue})).await.0, 201);
    assert_eq!(case.submit(json!({"type": "a", "data": {}, "unique": by_queue})).await.0, 409);
    assert_eq!(case.submit(json!({"type": "b", "data": {}, "unique": by_queue})).await.0, 201);
    // 9. A policy that means nothing.
    for unique in [
        json!({"keys": ["meta"]}),
        json!({"keys": ["argz"]}),
        json!({"states": []}),
        json!({"period": "1h"}),
        json!({"keys": ["args"], "args_keys": ["nope"]}),
        json!({"on_conflict": "drop"}),
        json!({"key": ["type"]}),
    ] {
        let (status, body) = case.submit(event(1, &unique)).await;
        assert_eq!((status, body["error"]["code"].as_str()), (400, Some("invalid_request")), "{unique}: {body}");
    }
    // Meta that is named counts, the rest does not.
    let tenant = |name: &str, trace: u32| {
        let unique = json!({"keys": ["meta"], "meta_keys": ["tenant"]});
        json!({"type": "t", "data": 1, "meta": {"tenant": name, "trace": trace}, "unique": unique})
    };
    assert_eq!(case.submit(tenant("acme", 1)).await.0, 201);
    assert_eq!(case.submit(tenant("acme", 2)).await.0, 409);
    assert_eq!(case.submit(tenant("globex", 1)).await.0, 201);
}

#[tokio::test]
async fn scenarios_3_4_5_10_the_newcomers_period_and_states_decide() {
    let case = Case::with("").await;
    // 3. A period counts from the first one's making, and repeats do not extend it.
    let short = json!({"period": "PT3S", "states": ["scheduled", "available", "active", "completed"]});
    let timed = json!({"type": "timed", "data": {}, "unique": short});
    let first = case.stored(timed.clone()).await;
    assert_eq!(case.submit(timed.clone()).await.0, 409);
    let made = "select count(*) from oncebox.unique_event where created_at < clock_timestamp() - interval '3 s'";
    let check = async || (case.database.count(made).await == 1).then_some(());
    eventually("the period is over", PATIENCE, check).await;
    let second = case.stored(timed).await;
    assert_ne!(first, second);
    // 4. What is completed is no duplicate by default; 5. unless the newcomer says so.
    let id = case.stored(event(4, &by_user("reject"))).await;
    case.becomes(&id, "completed").await;
    let again = case.stored(event(4, &by_user("reject"))).await;
    case.becomes(&again, "completed").await;
    let mut also_completed = by_user("reject");
    also_completed["states"] = json!(["available", "active", "completed"]);
    let (status, body) = case.submit(event(4, &also_completed)).await;
    assert_eq!(
        (status, body["error"]["details"]["id"].as_str()),
        (409, Some(again.as_str())),
        "the newest is named: {body}"
    );
    // 10. One that waits for its next attempt holds the key; a dead letter does not.
    let failing = |answer: u16| json!({"type": "email.send", "data": {"user_id": 10, "answer": answer}, "unique": by_user("reject")});
    let id = case.stored(failing(503)).await;
    case.becomes(&id, "retryable").await;
    let (status, body) = case.submit(failing(503)).await;
    assert_eq!((status, body["error"]["details"]["state"].as_str()), (409, Some("retryable")), "{body}");
    let dead = json!({"type": "email.send", "data": {"user_id": 11, "answer": 422}, "unique": by_user("reject")});
    let id = case.stored(dead.clone()).await;
    case.becomes(&id, "discarded").await;
    assert_eq!(case.submit(dead).await.0, 201, "a dead letter releases the key");
}

#[tokio::test]
async fn scenario_6_a_replaced_event_is_cancelled_and_the_new_one_is_delivered() {
    let case = Case::paused("").await;
    let first = case.stored(event(6, &by_user("replace"))).await;
    let second = case.stored(event(6, &by_user("replace"))).await;
    assert_eq!((case.state(&first).await, case.state(&second).await), ("cancelled".to_owned(), "available".to_owned()));
    // One that is scheduled keeps its time where that is asked for, and only then.
    let at = |hour: u32, conflict: &str| {
        let mut one = event(7, &by_user(conflict));
        one["scheduled_at"] = json!(format!("2126-01-01T{hour:02}:00:00Z"));
        one
    };
    let due =
        async |id: &str| case.relay.ask(&format!("/v1/events/{id}")).await["due"].as_str().expect("a time").to_owned();
    let early = case.stored(at(1, "replace")).await;
    assert_eq!(case.state(&early).await, "scheduled");
    let kept = case.stored(at(2, "replace_except_schedule")).await;
    assert_eq!(
        (case.state(&early).await, due(&kept).await),
        ("cancelled".to_owned(), "2126-01-01T01:00:00Z".to_owned())
    );
    let moved = case.stored(at(3, "replace")).await;
    assert_eq!(
        (case.state(&kept).await, due(&moved).await),
        ("cancelled".to_owned(), "2126-01-01T03:00:00Z".to_owned())
    );
    case.resume().await;
    case.becomes(&second, "completed").await;
    assert_eq!(case.receiver.lines().len(), 1, "what was cancelled is not sent");
}

#[tokio::test]
async fn one_that_is_being_sent_is_waited_for_and_never_recalled() {
    let case = Case::with("").await;
    let slow = json!({"type": "email.send", "data": {"user_id": 1, "answer": "slow"}, "unique": by_user("replace")});
    let first = case.stored(slow.clone()).await;
    case.becomes(&first, "active").await;
    let second = case.stored(event(1, &by_user("replace"))).await;
    assert_eq!(case.state(&second).await, "pending");
    let third = case.stored(event(1, &by_user("replace"))).await;
    assert_eq!((case.state(&second).await, case.state(&third).await), ("cancelled".to_owned(), "pending".to_owned()));
    assert_eq!(case.state(&first).await, "active");
    case.becomes(&first, "completed").await;
    case.becomes(&third, "completed").await;
    assert_eq!(case.receiver.lines().len(), 2, "the first and the last");
    // One that fails meanwhile is to be tried in an hour: whoever waits replaces it now.
    let failing = json!({"type": "email.send", "data": {"user_id": 2, "answer": 503}, "unique": by_user("replace")});
    let failed = case.stored(failing).await;
    case.becomes(&failed, "retryable").await;
    let after = case.stored(event(2, &by_user("replace"))).await;
    case.becomes(&after, "completed").await;
    assert_eq!(case.state(&failed).await, "cancelled");
}

#[tokio::test]
async fn scenario_11_of_many_with_one_key_at_the_same_time_one_is_stored() {
    let case = std::sync::Arc::new(Case::paused("{keys: [args], args_keys: [round], on_conflict: ignore}").await);
    let second = std::sync::Arc::new(Relay::start(&case.config));
    second.ready().await;
    let (rounds, connections) = (rounds(), if rounds() > 100 { 64 } else { 16 });
    for round in 0..rounds {
        // Every other key was there before, of an event that is over: nobody waits for whoever makes it then.
        if round % 2 == 1 {
            let earlier = json!({"type": "OrderChanged", "data": {"round": round}, "unique": {"keys": ["args"], "args_keys": ["round"]}});
            let (status, body) = case.submit(earlier).await;
            assert_eq!(status, 201, "{body}");
            let path = format!("/v1/events/{}/cancel", body["id"].as_str().expect("an id"));
            assert_eq!(case.relay.call("POST", &path, None, Some(json!({}))).await.0, 200);
        }
        // From Kafka too, in both partitions.
        for partition in 0..2 {
            let value = json!({"round": round}).to_string();
            case.topic.send_raw(Some(partition), None, Some(value.as_bytes()), None);
        }
        let all = (0..connections).map(|connection| {
            let (case, second) = (std::sync::Arc::clone(&case), std::sync::Arc::clone(&second));
            let event = json!({"type": "OrderChanged", "data": {"round": round}, "unique":
                {"keys": ["args"], "args_keys": ["round"], "on_conflict": "reject"}});
            tokio::spawn(async move {
                let relay = if connection % 2 == 0 { &case.relay } else { &*second };
                relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await.0
            })
        });
        let mut statuses = Vec::new();
        for one in all.collect::<Vec<_>>() {
            statuses.push(one.await.expect("an answer"));
        }
        case.topic.flush();
        assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
        assert!(statuses.iter().filter(|status| **status == 201).count() <= 1, "{statuses:?}");
    }
    let read = "select coalesce(sum(next_offset), 0)::bigint from oncebox.cursor where topic <> 'http'";
    let check = async || (case.database.count(read).await == 2 * rounds).then_some(());
    eventually("all records were read", PATIENCE, check).await;
    let won = "select count(*) from oncebox.outbox as o
                where not exists (select 1 from oncebox.remark as m
                                   where m.cursor = o.cursor and m.record_offset = o.record_offset and m.state = 'cancelled')";
    assert_eq!(case.database.count(won).await, rounds, "one of each round");
    assert_eq!(case.database.count("select count(distinct fingerprint) from oncebox.unique_event").await, rounds);
    let http =
        "select count(*) from oncebox.outbox as o join oncebox.cursor as c on c.id = o.cursor where c.topic = 'http'";
    // Without those that made a key and were cancelled.
    println!("{} of {rounds} rounds were won over HTTP", case.database.count(http).await - rounds / 2);
}

#[tokio::test]
async fn an_event_over_http_is_stored_once_for_each_key_and_delivered_like_any_other() {
    let case = Case::with("").await;
    let order = json!({"type": "order.placed", "data": {"id": 9007199254740993u64}, "key": "order 7"});
    let (status, body) = case.submit(order.clone()).await;
    assert_eq!(status, 201, "{body}");
    let id = body["id"].as_str().expect("an id").to_owned();
    let (status, body) = case.submit(order.clone()).await;
    assert_eq!((status, body["id"].as_str(), &body["deduplicated"]), (200, Some(id.as_str()), &json!(true)));
    let mut other = order;
    other["data"] = json!({"id": 8});
    let (status, body) = case.submit(other).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("key_reused")), "{body}");
    assert_eq!(body["error"]["details"]["id"], id.as_str());
    case.becomes(&id, "completed").await;
    let seen = case.receiver.seen();
    assert_eq!(seen.len(), 1);
    let body = String::from_utf8(seen[0].body.to_vec()).expect("UTF-8");
    assert!(body.starts_with(r#"{"idempotencyKey":"order 7","eventType":"order.placed","timestamp":""#), "{body}");
    assert!(body.ends_with(r#""data":{"id":9007199254740993}}"#), "{body}");
    for (event, wanted) in [
        (json!({"type": "t"}), 400),
        (json!({"type": "", "data": 1}), 400),
        (json!({"type": "t", "data": 1, "key": "a\"b"}), 400),
        (json!({"type": "t", "data": 1, "key": "x".repeat(201)}), 400),
        (json!({"type": "t", "data": 1, "key": " order 7"}), 400),
        (json!({"type": "t", "data": 1, "key": "order 7 "}), 400),
        (json!({"type": "t", "data": 1, "scheduled_at": "tomorrow"}), 400),
        (json!({"type": "t", "data": 1, "meta": [1]}), 400),
        (json!({"type": "t", "data": 1, "more": 1}), 400),
        (json!({"type": "t", "data": "x".repeat(2 << 20)}), 413),
    ] {
        let (status, body) = case.submit(event).await;
        assert_eq!(status, wanted, "{body}");
    }
    let (status, _) = case.relay.call("POST", "/v1/workflows/ordres/events", None, Some(json!({"data": 1}))).await;
    assert_eq!(status, 404);
}

/// Statuses of requests that are made together, sorted.
async fn together(case: &std::sync::Arc<Case>, events: &[Value]) -> Vec<u16> {
    let all = events.iter().cloned().map(|event| {
        let case = std::sync::Arc::clone(case);
        tokio::spawn(async move { case.submit(event).await.0 })
    });
    let mut statuses = Vec::new();
    for one in all.collect::<Vec<_>>() {
        statuses.push(one.await.expect("an answer"));
    }
    statuses.sort_unstable();
    statuses
}
