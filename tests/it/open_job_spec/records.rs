//! Keys of what comes from Kafka: at the same moment, in replays, and where a record could not be read at first.

use serde_json::{Value, json};

use super::Case;
use crate::support::{PATIENCE, Relay, eventually};

#[tokio::test]
async fn records_with_one_key_are_ignored_refused_or_replaced_as_the_workflow_says() {
    for (policy, wanted) in [("ignore", [1, 0, 0]), ("reject", [1, 2, 0]), ("replace", [1, 0, 2])] {
        let case = Case::paused(&format!("{{keys: [args], args_keys: [id], on_conflict: {policy}}}")).await;
        for amount in 0..3 {
            case.topic.send(None, &json!({"id": 1, "amount": amount}).to_string());
        }
        case.topic.send(None, r#"{"amount": 1}"#);
        case.topic.flush();
        let read = "select coalesce(sum(next_offset), 0)::bigint from oncebox.cursor";
        let check = async || (case.database.count(read).await == 4).then_some(());
        eventually("all records were read", PATIENCE, check).await;
        let counts = [
            "select count(*) from oncebox.retry",
            "select count(*) from oncebox.dead_letter where reason = 'duplicate' and detail like 'the same as event %'",
            "select count(*) from oncebox.done where state = 'cancelled'",
        ];
        for (text, wanted) in counts.into_iter().zip(wanted) {
            assert_eq!(case.database.count(text).await, wanted, "{policy}: {text}");
        }
        let invalid = "select count(*) from oncebox.dead_letter where reason = 'invalid' and detail like '%args_keys%'";
        assert_eq!(case.database.count(invalid).await, 1, "a record that lacks what is compared");
        case.resume().await;
        let check = async || (case.receiver.lines().len() == 1).then_some(());
        eventually("one is delivered", PATIENCE, check).await;
        let amount = if policy == "replace" { 2 } else { 0 };
        let body: Value = serde_json::from_slice(&case.receiver.seen()[0].body).expect("JSON");
        assert_eq!(body["data"]["amount"], amount, "{policy}");
        let verified = case.relay.ask("/v1/workflows/orders/verify").await;
        assert_eq!(verified["gaps"], 0, "{verified}");
    }
}

#[tokio::test]
async fn a_replay_is_refused_while_another_event_has_its_key_and_holds_it_afterwards() {
    let case = Case::with("{keys: [args], args_keys: [id], on_conflict: reject}").await;
    let order = |answer: u16| json!({"type": "OrderChanged", "data": {"id": 1, "answer": answer}});
    let dead = case.stored(order(422)).await;
    case.becomes(&dead, "discarded").await;
    let waiting = case.stored(order(503)).await;
    case.becomes(&waiting, "retryable").await;
    // One that was refused as a duplicate has a letter of its own.
    case.topic.send(None, &json!({"id": 1}).to_string());
    case.topic.flush();
    let refused = async || {
        let letters = case.relay.ask("/v1/dead-letters?workflow=orders&reason=duplicate").await;
        letters["items"][0]["id"].as_str().map(str::to_owned)
    };
    let refused = eventually("a duplicate is refused", PATIENCE, refused).await;
    for letter in [&dead, &refused] {
        let (status, body) =
            case.relay.call("POST", &format!("/v1/dead-letters/{letter}/replay"), None, Some(json!({}))).await;
        assert_eq!((status, body["error"]["code"].as_str()), (409, Some("key_active")), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains(&waiting)), "{body}");
    }
    let (status, body) = case.relay.call("POST", &format!("/v1/events/{waiting}/cancel"), None, Some(json!({}))).await;
    assert_eq!((status, body), (200, json!({"id": waiting, "cancelRequested": false})));
    let (status, body) =
        case.relay.call("POST", &format!("/v1/dead-letters/{refused}/replay"), None, Some(json!({}))).await;
    assert_eq!(status, 200, "{body}");
    case.becomes(&format!("{refused}.r1"), "completed").await;
}

#[tokio::test]
async fn a_record_that_can_be_read_at_last_gets_its_key_with_its_replay() {
    let mut case = Case::with("{keys: [args], args_keys: [id], on_conflict: reject}").await;
    case.topic.send(None, r#"{"order":1,"answer":503}"#);
    case.topic.flush();
    let invalid = async || {
        let letters = case.relay.ask("/v1/dead-letters?workflow=orders&reason=invalid").await;
        letters["items"][0]["id"].as_str().map(str::to_owned)
    };
    let letter = eventually("what lacks its key is a dead letter", PATIENCE, invalid).await;
    assert_eq!(case.relay.stop().await, Some(0));
    case.config.extra = "transform: '{id: .order, answer}'".to_owned();
    case.relay = Relay::start(&case.config);
    case.relay.ready().await;
    let order = json!({"type": "OrderChanged", "data": {"id": 1, "answer": 503}});
    let waiting = case.stored(order.clone()).await;
    case.becomes(&waiting, "retryable").await;
    let path = format!("/v1/dead-letters/{letter}/replay");
    let (status, body) = case.relay.call("POST", &path, None, Some(json!({}))).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("key_active")), "{body}");
    let cancel = format!("/v1/events/{waiting}/cancel");
    assert_eq!(case.relay.call("POST", &cancel, None, Some(json!({}))).await.0, 200);
    let (status, body) = case.relay.call("POST", &path, None, Some(json!({}))).await;
    assert_eq!(status, 200, "{body}");
    case.becomes(&format!("{letter}.r1"), "retryable").await;
    let (status, body) = case.submit(order).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("duplicate")), "{body}");
}
