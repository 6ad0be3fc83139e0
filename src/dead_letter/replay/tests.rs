//! What is replayed of a record, and under which key.

use super::*;

/// What is left of a record's two events with one key, by what they say; nothing when the replay is refused.
fn left(unique: &str) -> Option<Vec<&'static str>> {
    let document = format!(
        r#"{{"id": "orders", "source": {{"topics": ["orders"]}}, "endpoint": {{"url": "https://a.example/"}},
             "delivery": {{"guarantee": "exactly-once", "unique": {unique}}}}}"#
    );
    let workflow = crate::config::stored(&document).expect("a workflow");
    let draft = |index, said: &'static str, key| Draft {
        offset: 1,
        index,
        key: format!("k{index}"),
        event_type: "t".to_owned(),
        content_type: crate::event::ContentType::Json,
        traceparent: None,
        record_at: None,
        lane: None,
        unique: Some([key; 32]),
        fingerprint: None,
        body: said.as_bytes().into(),
    };
    let drafts = vec![draft(0, "first", 1), draft(1, "other", 2), draft(2, "last", 1)];
    let said = |draft: Draft| ["first", "other", "last"].into_iter().find(|said| said.as_bytes() == draft.body);
    one_after_the_other(drafts, &workflow).map(|left| left.into_iter().filter_map(said).collect())
}

#[test]
fn events_of_one_record_with_one_key_are_judged_as_when_it_is_read() {
    let all = Some(vec!["first", "other", "last"]);
    assert_eq!(left(r#"{"on_conflict": "reject"}"#), None);
    assert_eq!(left(r#"{"on_conflict": "ignore"}"#), Some(vec!["first", "other"]));
    assert_eq!(left(r#"{"on_conflict": "replace"}"#), Some(vec!["other", "last"]));
    assert_eq!(left(r#"{"on_conflict": "replace_except_schedule"}"#), Some(vec!["other", "last"]));
    assert_eq!(left(r#"{"on_conflict": "reject", "states": ["completed"]}"#), all);
    assert_eq!(left(r#"{"on_conflict": "reject", "period": "PT0S"}"#), all);
    assert_eq!(left(r#"{"on_conflict": "reject", "period": "PT1S"}"#), None);
}

#[test]
fn a_new_key_stands_in_the_body_too_and_nothing_else_changes() {
    let event = |body: &str| Again {
        index: 0,
        key: "orders-abc".to_owned(),
        event_type: String::new(),
        content_type: String::new(),
        traceparent: None,
        source_at: None,
        lane: None,
        unique: None,
        fingerprint: None,
        body: body.as_bytes().to_vec(),
    };
    for (before, after) in [
        (
            r#"{"idempotencyKey":"orders-abc","data":"orders-abc"}"#,
            r#"{"idempotencyKey":"orders-abc-r2","data":"orders-abc"}"#,
        ),
        (
            r#"{"specversion":"1.0","id":"orders-abc","data":1}"#,
            r#"{"specversion":"1.0","id":"orders-abc-r2","data":1}"#,
        ),
        (
            r#"{"eventType":"x","data":{"idempotencyKey":"orders-abc"}}"#,
            r#"{"eventType":"x","data":{"idempotencyKey":"orders-abc"}}"#,
        ),
    ] {
        let mut again = event(before);
        again.rekey(2);
        assert_eq!((again.key.as_str(), String::from_utf8(again.body).unwrap().as_str()), ("orders-abc-r2", after));
    }
}
