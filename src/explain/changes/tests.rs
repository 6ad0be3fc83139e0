//! What a redeployment would do to receivers.

use serde_json::json;

use super::*;

fn base() -> Value {
    json!({
        "id": "orders",
        "source": {"topics": ["orders"], "format": "debezium"},
        "endpoint": {"url": "${ERP_URL}"},
        "delivery": {"guarantee": "exactly-once", "deduplication": {"keyFields": ["database", "table"], "ttl": "30d"}},
    })
}

/// The base with one key set, or taken out.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = base();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let mut here = &mut document;
    for part in parent.split('/').skip(1) {
        here = &mut here[part];
    }
    here[name] = value;
    document
}

/// The workflow that runs, on the cluster `main`.
fn running(document: Value, undelivered: i64) -> [Running; 1] {
    [Running { id: "orders".to_owned(), document, undelivered, clusters: vec!["main".to_owned()] }]
}

/// The workflow that is to run, on a cluster that the brokers name.
fn planned(id: &str, document: Value) -> [Planned; 1] {
    [Planned { id: id.to_owned(), document, cluster: None }]
}

fn between(old: Value, new: Value) -> Vec<(String, Weight)> {
    let changes = compare(&running(old, 0), &planned("orders", new));
    changes.into_iter().map(|change| (change.pointer, change.weight)).collect()
}

#[test]
fn suppressing_repeats_of_a_plain_source_is_known_to_change_its_keys() {
    let plain = |deduplication: Value| {
        json!({
            "id": "orders", "source": {"topics": ["orders"]}, "endpoint": {"url": "${ERP_URL}"},
            "delivery": {"guarantee": "exactly-once", "deduplication": deduplication},
        })
    };
    let changes = between(plain(Value::Null), plain(json!({"keyFields": ["/id"], "ttl": "30d"})));
    let format = ("/delivery/idempotencyKey/format".to_owned(), Weight::Downgrade);
    assert!(changes.contains(&format), "{changes:?}");
    let named = with("/delivery/idempotencyKey", json!({"format": "{database}-{table}"}));
    assert_eq!(between(base(), named), [], "only the fields count, and those that every key has");
}

fn weight(old: Value, new: Value) -> Weight {
    let changes = between(old, new);
    assert_eq!(changes.len(), 1, "{changes:?}");
    changes[0].1
}

#[test]
fn writing_a_default_down_or_another_way_changes_nothing() {
    for (pointer, value) in [
        ("/delivery/mechanism", json!("transactional-outbox")),
        ("/delivery/deduplication/ttl", json!("P30D")),
        ("/delivery/retries", json!({"giveUpAfter": "1440m", "backoff": {"initial": "1000ms", "multiplier": 2.0}})),
        ("/delivery/idempotencyKey", json!({"namespace": "orders", "header": "idempotency-key", "quoted": true})),
        ("/delivery/idempotencyKey", json!({"format": "{database}:{table}:{primaryKey}:{changeVersion}"})),
        ("/delivery/onInDoubt", json!("redeliver")),
        ("/endpoint/answers", json!({"rejected": [422, 415, 414, 413, 400], "inDoubt": null})),
        ("/source/maxBytes", json!(1_048_576)),
        ("/labels", json!({"team": "erp"})),
        ("/tests", json!([{"name": "x"}])),
        ("/delivery/documentation", json!({"sdkAvailable": true})),
    ] {
        assert_eq!(between(base(), with(pointer, value.clone())), [], "{pointer} {value}");
    }
    let listed = with("/delivery/retries", json!({"backoff": ["1s", "2s"]}));
    assert_eq!(between(listed, with("/delivery/retries", json!({"backoffMs": [1000, 2000]}))), []);
}

#[test]
fn what_takes_back_a_promise_is_a_downgrade() {
    let ordered = |value: Value| with("/delivery/ordering", value);
    let doubt = |value: &str| with("/delivery/onInDoubt", json!(value));
    let signed = |secrets: &[&str]| with("/endpoint/signing", json!({"secrets": secrets}));
    for (name, old, new) in [
        ("guarantee", base(), with("/delivery/guarantee", json!("at-least-once"))),
        ("to at most once", base(), with("/delivery/guarantee", json!("at-most-once"))),
        ("namespace", base(), with("/delivery/idempotencyKey", json!({"namespace": "other"}))),
        ("format", base(), with("/delivery/idempotencyKey", json!({"format": "{key}"}))),
        ("header", base(), with("/delivery/idempotencyKey", json!({"header": "X-Key"}))),
        ("quotes", base(), with("/delivery/idempotencyKey", json!({"quoted": false}))),
        ("payload", base(), with("/delivery/idempotencyKey", json!({"includedInPayload": false}))),
        ("no deduplication", base(), with("/delivery/deduplication", Value::Null)),
        ("shorter deduplication", base(), with("/delivery/deduplication/ttl", json!("7d"))),
        ("other fields", base(), with("/delivery/deduplication/keyFields", json!(["table"]))),
        ("ordering", ordered(json!("key")), base()),
        ("hold to ask", doubt("hold"), doubt("ask")),
        ("ask to redeliver", doubt("ask"), base()),
        ("unique", with("/delivery/unique", json!({})), base()),
        ("unsigned", signed(&["${A}"]), base()),
        ("no common secret", signed(&["${A}"]), signed(&["${B}"])),
    ] {
        let changes = between(old, new);
        assert!(changes.iter().any(|(_, weight)| *weight == Weight::Downgrade), "{name}: {changes:?}");
    }
}

#[test]
fn what_promises_more_is_an_upgrade() {
    let mut weaker = with("/delivery/guarantee", json!("idempotent-keys"));
    weaker["delivery"]["mechanism"] = json!("transactional-outbox");
    assert_eq!(weight(weaker, base()), Weight::Upgrade);
    assert_eq!(weight(base(), with("/delivery/ordering", json!("key"))), Weight::Upgrade);
    assert_eq!(weight(base(), with("/delivery/onInDoubt", json!("hold"))), Weight::Upgrade);
    assert_eq!(weight(base(), with("/delivery/deduplication/ttl", json!("60d"))), Weight::Upgrade);
}

#[test]
fn what_receivers_notice_is_told_and_not_refused() {
    for (pointer, value) in [
        ("/endpoint/url", json!("https://new.example.com/")),
        ("/transform", json!(".after")),
        ("/filter", json!(".op != \"d\"")),
        ("/eventType", json!("OrderChanged")),
        ("/delivery/envelope", json!("none")),
        ("/endpoint/answers", json!({"rejected": [422]})),
        ("/delivery/retries", json!({"maxAttempts": 3})),
        ("/endpoint/headers", json!({"X-Tenant": "a"})),
        ("/delivery/circuitBreaker", json!({"failures": 3})),
    ] {
        let changes = between(base(), with(pointer, value));
        assert!(!changes.is_empty(), "{pointer}");
        assert!(changes.iter().all(|(at, weight)| *weight == Weight::Change && at.starts_with(pointer)), "{changes:?}");
    }
}

#[test]
fn the_format_of_the_source_is_part_of_the_key() {
    let changes = between(base(), with("/source/format", json!("plain")));
    assert!(changes.contains(&("/delivery/idempotencyKey/format".to_owned(), Weight::Downgrade)), "{changes:?}");
}

#[test]
fn a_workflow_may_go_only_when_nothing_of_it_is_left() {
    assert_eq!(compare(&running(base(), 0), &[])[0].weight, Weight::Change);
    let left = &compare(&running(base(), 12), &[])[0];
    assert_eq!(left.weight, Weight::Downgrade);
    assert!(left.message.contains("12 undelivered events"), "{}", left.message);
    let added = compare(&[], &planned("orders", base()));
    assert!(added[0].weight == Weight::Change && added[0].message.starts_with("new"), "{added:?}");
}

#[test]
fn a_renamed_workflow_keeps_its_keys_and_is_not_a_removal() {
    let running = running(base(), 12);
    let mut renamed = with("/formerId", json!("orders"));
    renamed["id"] = json!("sales");
    let changes = compare(&running, &planned("sales", renamed.clone()));
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].weight == Weight::Change && changes[0].message.contains("takes over"), "{changes:?}");
    renamed["formerId"] = Value::Null;
    let changes = compare(&running, &planned("sales", renamed));
    assert!(changes.iter().any(|change| change.weight == Weight::Downgrade && change.workflow == "orders"));
}

#[test]
fn another_name_of_the_cluster_is_a_downgrade_for_whoever_has_read_from_it() {
    let plain = |guarantee: &str| {
        json!({
            "id": "orders", "source": {"topics": ["orders"]}, "endpoint": {"url": "${ERP_URL}"},
            "delivery": {"guarantee": guarantee},
        })
    };
    let named = |document: Value, cluster: &str| {
        let [plan] = planned("orders", document.clone());
        compare(&running(document, 0), &[Planned { cluster: Some(cluster.to_owned()), ..plan }])
    };
    assert_eq!(named(base(), "main"), [], "the name that it has");
    for (document, means) in [
        (plain("exactly-once"), "main → other; records are read again from `startFrom` under new keys"),
        (plain("idempotent-keys"), "read from where Kafka has a mark, else again from `startFrom`, under new keys"),
        (base(), "under new keys where those are Kafka coordinates"),
    ] {
        let changes = named(document, "other");
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!((changes[0].pointer.as_str(), changes[0].weight), (CLUSTER, Weight::Downgrade));
        assert!(changes[0].message.ends_with(means), "{}", changes[0].message);
    }
    let fresh = running(base(), 0).map(|run| Running { clusters: Vec::new(), ..run });
    let [plan] = planned("orders", base());
    let plan = Planned { cluster: Some("other".to_owned()), ..plan };
    assert_eq!(compare(&fresh, &[plan]), [], "nothing was read yet");
}
