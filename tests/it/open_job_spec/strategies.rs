//! What the strategies do to events in every state, by the calendar, at the same moment, and within one batch.

use serde_json::{Value, json};

use super::{Case, by_user, event, rounds, together};
use crate::support::{PATIENCE, eventually};

/// What is stored as this id stands as if it were in that state, and stays there.
async fn put_into(case: &Case, id: &str, state: &str) {
    let change = match state {
        "scheduled" => return,
        "active" => "state = 'active', leased_by = gen_random_uuid(), lease_until = now() + interval '1 day'",
        "pending" => "state = 'pending', held = 'in_doubt'",
        "available" => "state = 'available'",
        "retryable" => "state = 'retryable'",
        other => panic!("{other} is an end"),
    };
    let place: oncebox::event::Place = id.parse().expect("an event id");
    let statement = format!(
        "update oncebox.retry set {change} where cursor = {} and record_offset = {}",
        place.cursor.0, place.offset
    );
    case.database.execute(&statement).await;
}

#[tokio::test]
async fn every_strategy_does_to_an_event_in_every_state_what_the_table_says() {
    let case = Case::with("").await;
    let later = "2126-01-01T00:00:00Z";
    let states = ["scheduled", "available", "active", "retryable", "pending", "completed", "cancelled", "discarded"];
    let mut user = 100;
    for state in states {
        for conflict in ["reject", "ignore", "replace", "replace_except_schedule"] {
            user += 1;
            let answer = if state == "discarded" { json!(422) } else { json!(null) };
            let make = |unique: Value, time: Option<&str>| json!({"type": "email.send", "data": {"user_id": user, "answer": answer}, "unique": unique, "scheduled_at": time});
            let policy = |states: &[&str]| json!({"keys": ["args"], "args_keys": ["user_id"], "states": states, "on_conflict": conflict});
            let is_end = ["completed", "cancelled", "discarded"].contains(&state);
            let waits = !is_end || state == "cancelled";
            let first = case.stored(make(policy(&[state]), waits.then_some(later))).await;
            match state {
                "cancelled" => {
                    let path = format!("/v1/events/{first}/cancel");
                    assert_eq!(case.relay.call("POST", &path, None, Some(json!({}))).await.0, 200);
                }
                state if is_end => case.becomes(&first, state).await,
                state => put_into(&case, &first, state).await,
            }
            let told = format!("{conflict} of one that is {state}");
            // A state that the newcomer does not name is in nobody's way.
            let others: Vec<&str> = states.into_iter().filter(|other| *other != state).collect();
            let unnamed = make(policy(&others), Some(later));
            let beside = case.stored(unnamed).await;
            assert_eq!(case.state(&first).await, state, "{told}, unnamed");
            let path = format!("/v1/events/{beside}/cancel");
            assert_eq!(case.relay.call("POST", &path, None, Some(json!({}))).await.0, 200);
            let named = if state == "cancelled" { vec![state, "scheduled"] } else { vec![state] };
            let (status, body) = case.submit(make(policy(&named), Some("2127-01-01T00:00:00Z"))).await;
            let new = body["id"].as_str().unwrap_or_default().to_owned();
            match conflict {
                "reject" => {
                    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("duplicate")), "{told}: {body}");
                    assert_eq!(body["error"]["details"]["state"], state, "{told}");
                }
                "ignore" => {
                    assert_eq!((status, &body["deduplicated"]), (200, &json!(true)), "{told}: {body}");
                }
                _ => {
                    assert_eq!(status, 201, "{told}: {body}");
                    assert_ne!(new, first, "{told}");
                    let (old, stands) = match state {
                        "active" => ("active", "pending"),
                        state if is_end => (state, "scheduled"),
                        _ => ("cancelled", "scheduled"),
                    };
                    assert_eq!(
                        (case.state(&first).await.as_str(), case.state(&new).await.as_str()),
                        (old, stands),
                        "{told}"
                    );
                    let keeps = conflict == "replace_except_schedule" && state == "scheduled";
                    let wanted = if keeps { later } else { "2127-01-01T00:00:00Z" };
                    assert_eq!(body["due"], wanted, "{told}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_period_counts_by_the_calendar_from_the_making_of_the_first() {
    let case = Case::paused("").await;
    for (age, period, is_repeat) in [
        ("27 days", "P1M", true),
        ("32 days", "P1M", false),
        ("364 days", "P1Y", true),
        ("367 days", "P1Y", false),
        ("13 days", "P2W", true),
        ("15 days", "P2W", false),
        ("59 minutes", "PT1H", true),
        ("61 minutes", "PT1H", false),
        ("1 second", "PT0S", false),
    ] {
        let event = |period: Value| {
            let data = json!({"of": format!("{age} {period}")});
            json!({"type": "t", "data": data, "unique": {"keys": ["args"], "args_keys": ["of"], "period": period}})
        };
        let named = json!({"of": format!("{age} {}", json!(period))});
        let first = json!({"type": "t", "data": named, "unique": {"keys": ["args"], "args_keys": ["of"]}});
        case.stored(first).await;
        let aged = format!("update oncebox.unique_event set created_at = clock_timestamp() - interval '{age}'");
        case.database.execute(&aged).await;
        let (status, body) = case.submit(event(json!(period))).await;
        assert_eq!(status, if is_repeat { 409 } else { 201 }, "{age} within {period}: {body}");
    }
}

#[tokio::test]
async fn whoever_looks_while_an_event_is_replaced_sees_one_and_never_none_or_two() {
    let case = std::sync::Arc::new(Case::paused("").await);
    case.stored(event(1, &by_user("replace"))).await;
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let case = std::sync::Arc::clone(&case);
            tokio::spawn(async move {
                for _ in 0..rounds() {
                    case.stored(event(1, &by_user("replace"))).await;
                }
            })
        })
        .collect();
    let mut looks = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        assert_eq!(case.database.count("select count(*) from oncebox.retry").await, 1, "after {looks} looks");
        looks += 1;
    }
    for writer in writers {
        writer.await.expect("all were stored");
    }
    assert!(looks > 10, "{looks} looks");
    let cancelled = "select count(*) from oncebox.done where state = 'cancelled'";
    assert_eq!(case.database.count(cancelled).await, 8 * rounds());
}

#[tokio::test]
async fn events_with_one_key_in_one_batch_are_judged_as_if_they_came_one_after_the_other() {
    let case = std::sync::Arc::new(Case::paused("").await);
    case.stored(event(0, &by_user("ignore"))).await;
    let mut later = event(1, &by_user("reject"));
    later["unique"]["states"] = json!(["scheduled"]);
    later["scheduled_at"] = json!("2125-01-01T00:00:00Z");
    let both = in_one_batch(&case, &[later.clone(), later]).await;
    assert_eq!(both, [201, 409], "whoever shares a transaction");
    // The time of the one that is replaced is kept, also when it is not stored yet.
    let at = |time: &str| {
        let mut one = event(2, &by_user("replace_except_schedule"));
        one["scheduled_at"] = json!(time);
        one
    };
    let all: Vec<Value> = (1..9).map(|hour| at(&format!("2126-01-01T{hour:02}:00:00Z"))).collect();
    let first = case.stored(at("2126-01-01T00:00:00Z")).await;
    assert_eq!(in_one_batch(&case, &all).await, [201; 8]);
    assert_eq!(case.state(&first).await, "cancelled");
    let kept = "select count(*) from oncebox.retry where due = '2126-01-01T00:00:00Z'";
    assert_eq!(
        (case.database.count(kept).await, case.database.count("select count(*) from oncebox.retry").await),
        (1, 3)
    );
}

/// Statuses of requests that come while the transaction of another is held up: they share the next one.
async fn in_one_batch(case: &std::sync::Arc<Case>, events: &[Value]) -> Vec<u16> {
    case.database.execute("begin; select id from oncebox.cursor for update").await;
    let (first, rest) = (std::sync::Arc::clone(case), std::sync::Arc::clone(case));
    let first = tokio::spawn(async move { first.submit(event(0, &by_user("ignore"))).await.0 });
    let is_held = "select count(*) from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))";
    eventually("it is held up", PATIENCE, async || (case.database.count(is_held).await > 0).then_some(())).await;
    let events = events.to_vec();
    let rest = tokio::spawn(async move { together(&rest, &events).await });
    for _ in 0..20 {
        // Answered after those that came before.
        case.relay.ask("/v1/capabilities").await;
    }
    case.database.execute("commit").await;
    assert_eq!(first.await.expect("an answer"), 200);
    rest.await.expect("answers")
}
