//! `preview` and `test`: one record, the exact request, without servers.

use std::io::Write;
use std::process::{Output, Stdio};

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::TestReceiver;
use crate::support::files::{Files, both, out, run};
use crate::support::process::command;

const ORDERS: &str = r#"
postgres: {url: "postgresql://u@localhost/db"}
egress: {allow: [127.0.0.0/8]}
workflows:
  - id: orders
    source: {topics: [sales.public.orders], format: debezium}
    filter: '.op != "d"'
    transform: '.after | {orderId: .id, amount}'
    eventType: OrderChanged
    endpoint:
      url: URL
      headers: {X-Tenant: acme, X-Api-Key: "${API_KEY}", Authorization: "Bearer ${API_KEY}"}
    delivery: {guarantee: exactly-once, retries: {giveUpAfter: 1h}}
"#;

const CHANGE: &str = r#"{
  "key": {"id": 7},
  "headers": {"trace": "x"},
  "timestamp": 1700000000000,
  "value": {"before": null, "after": {"id": 7, "amount": 12.50}, "op": "c",
    "source": {"connector": "postgresql", "db": "sales", "schema": "public", "table": "orders", "lsn": 1, "txId": 2, "ts_ms": 1700000000123}}
}"#;

fn preview(url: &str, event: &str, flags: &[&str]) -> Output {
    let files = Files::new(&ORDERS.replace("URL", url));
    let path = files.event(event);
    command()
        .args(["preview", "orders", "--event"])
        .arg(&path)
        .args(flags)
        .arg("--config")
        .arg(files.config())
        .env("API_KEY", "s3cret-key")
        .output()
        .unwrap()
}

#[test]
fn a_preview_shows_every_step_and_the_exact_request() {
    let output = preview("https://erp.example.com/orders", CHANGE, &[]);
    let text = both(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "sales.public.orders/0/0, 2023-11-14T22:13:20.000Z, key {\"id\": 7}, 1 headers",
        "change of sales.public.orders, op c, lsn=1 txId=2",
        ".op != \"d\"",
        "kept",
        "1 event",
        "primaryKey = {\"id\":7}",
        "namespace = orders",
        "keyed, application/json",
        "curl -X POST 'https://erp.example.com/orders'",
        "-H 'x-tenant: acme'",
        "-H 'x-api-key: ***'",
        "-H 'authorization: ***'",
        r#""data":{"orderId":7,"amount":12.50}}'"#,
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("s3cret-key"), "{text}");
    assert!(text.contains("`oncebox-event` will differ"), "the topic's id is not known: {text}");
    assert!(!text.contains("made of coordinates"), "the key is the source's own: {text}");
}

#[test]
fn a_preview_as_json_has_the_published_shape() {
    let output = preview("https://erp.example.com/orders", CHANGE, &["--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", both(&output)));
    assert_eq!(printed.as_object().unwrap().keys().collect::<Vec<_>>(), ["disposition", "events"]);
    assert_eq!(printed["disposition"], "delivered");
    let event = &printed["events"][0];
    let names: Vec<&String> = event.as_object().unwrap().keys().collect();
    assert_eq!(names, ["idempotencyKey", "eventType", "method", "url", "headers", "body"]);
    assert_eq!((&event["eventType"], &event["method"]), (&json!("OrderChanged"), &json!("POST")));
    assert_eq!(event["url"], "https://erp.example.com/orders");
    assert_eq!(event["headers"]["x-api-key"], "***");
    let key = event["idempotencyKey"].as_str().unwrap();
    assert!(key.starts_with("sales-orders-"), "{key}");
    assert_eq!(event["headers"]["idempotency-key"], format!("\"{key}\""));
    assert_eq!(
        event["body"],
        json!({"idempotencyKey": key, "eventType": "OrderChanged", "timestamp": "2023-11-14T22:13:20.123Z",
               "data": {"orderId": 7, "amount": 12.5}})
    );
    assert!(out(&output).contains("12.50"), "digit for digit: {}", out(&output));
    assert!(!both(&output).contains("s3cret-key"));
}

#[test]
fn a_preview_says_why_a_record_makes_no_event() {
    let delete = CHANGE.replace(r#""op": "c""#, r#""op": "d""#);
    let broken = CHANGE.replace(r#""after": {"id": 7, "amount": 12.50}"#, r#""after": "text""#);
    for (event, disposition, why) in [
        (delete.as_str(), "filtered", "gave false, null or nothing"),
        (r#"{"value": null}"#, "tombstone", "source.tombstones is skip"),
        (broken.as_str(), "invalid", "transform failed"),
        (r#"{"value": {"id": 1}}"#, "invalid", "not a Debezium change"),
    ] {
        let output = preview("https://erp.example.com/orders", event, &["--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", both(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed, json!({"disposition": disposition, "events": []}));
        assert!(both(&output).contains(why), "{disposition}: {}", both(&output));
        assert!(both(&preview("https://erp.example.com/orders", event, &[])).contains(why), "{disposition}");
    }
    for event in ["{}", "nonsense", r#"{"value": 1, "vlaue": 2}"#] {
        assert_eq!(preview("https://erp.example.com/orders", event, &[]).status.code(), Some(2), "{event}");
    }
}

#[test]
fn a_preview_reads_standard_input_and_tells_of_coordinates() {
    let yaml = ORDERS.replace("URL", "https://erp.example.com/orders").replace(", format: debezium", "");
    let files = Files::new(
        &yaml.replace("filter:", "labels: {}\n    eventType: x\n    #").replace("eventType: OrderChanged", ""),
    );
    let mut child = command()
        .args(["preview", "orders", "--event", "-", "--config"])
        .arg(files.config())
        .env("API_KEY", "k")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(br#"{"value": {"after": {"id": 1, "amount": 2}}}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    assert!(out(&output).contains("which is made of coordinates"), "{}", out(&output));
    assert!(out(&output).contains("topicId = preview"), "{}", out(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_that_sends_sends_once_and_fails_when_it_is_not_delivered() {
    let receiver = TestReceiver::start().await;
    let output = preview(&receiver.url(), CHANGE, &["--send", "--json"]);
    assert!(output.status.success(), "{}", both(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["events"][0]["sent"]["status"], 200, "{printed}");
    let seen = receiver.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("x-api-key"), Some("s3cret-key"), "masked when shown, not when sent");
    assert_eq!(seen[0].header("webhook-id"), printed["events"][0]["idempotencyKey"].as_str());

    let failing = TestReceiver::deciding(|_| Answer::status(500)).await;
    let output = preview(&failing.url(), CHANGE, &["--send"]);
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    assert!(both(&output).contains("not delivered, 500"), "{}", both(&output));
    assert_eq!(failing.seen().len(), 1, "never again");

    let blocked = preview("http://10.0.0.1/", CHANGE, &["--send"]);
    assert_eq!(blocked.status.code(), Some(1), "{}", both(&blocked));
    assert!(both(&blocked).contains("egress: {allow: [10.0.0.1/32]}"), "{}", both(&blocked));
}

const TESTED: &str = r#"
postgres: {url: "postgresql://u@localhost/db"}
workflows:
  - id: orders
    source: {topics: [orders]}
    filter: '.op != "d"'
    transform: '.lines[] | {sku, price: (.price | tonumber)}'
    eventType: OrderLine
    endpoint: {url: "https://erp.example.com/events"}
    delivery: {guarantee: exactly-once}
    tests:
      - name: two lines
        record: {value: {op: c, lines: [{sku: a, price: 1.50}, {sku: b, price: "2"}]}, key: order-1}
        expect:
          - {data: {sku: a, price: 1.5}, eventType: OrderLine}
          - {data: {sku: b, price: 2}, headers: {oncebox-source: orders/0/0, x-none: null}, method: POST}
      - {name: a deletion, record: {value: {op: d}}, expect: []}
      - {name: also a deletion, record: {value: {op: d}}, expect: filtered}
      - {name: a tombstone, record: {value: null}, expect: tombstone}
      - {name: no price, record: {value: {lines: [{sku: a, price: x}]}}, expect: invalid}
  - id: lines
    source: {topics: [lines], encoding: text}
    endpoint: {url: "https://erp.example.com/events"}
    delivery: {guarantee: exactly-once, envelope: none}
    tests:
      - {name: a line, record: {value: hello}, expect: [{body: hello, headers: {Content-Type: text/plain; charset=utf-8}}]}
"#;

#[test]
fn the_tests_of_workflows_pass_or_say_where_they_differ() {
    let files = Files::new(TESTED);
    let output = run(&["test"], &files.config());
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(out(&output).ends_with("6 passed, 0 failed\n"), "{}", out(&output));
    assert!(out(&run(&["test", "lines"], &files.config())).ends_with("1 passed, 0 failed\n"));

    let wrong = TESTED
        .replace(
            "{data: {sku: a, price: 1.5}, eventType: OrderLine}",
            "{data: {sku: z, price: 1.5, note: n}, eventType: X}",
        )
        .replace(
            "name: a deletion, record: {value: {op: d}}",
            "name: a deletion, record: {value: {op: c, lines: [{sku: 1, price: x}]}}",
        )
        .replace("x-none: null", "traceparent: null");
    let output = run(&["test"], &Files::new(&wrong).config());
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "FAILED  two lines (",
        "c.yaml:12:9)",
        r#"/events/0/data/sku: expected "z", got "a""#,
        r#"/events/0/data/note: expected "n", got nothing"#,
        r#"/events/0/eventType: expected "X", got "OrderLine""#,
        "/events/1/headers/traceparent: expected nothing, got",
        r#"/disposition: expected "filtered", got "invalid""#,
        "invalid: transform failed",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(text.ends_with("4 passed, 2 failed\n"), "{text}");
}

#[test]
fn the_tests_of_the_example_configuration_pass() {
    let example = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/config/oncebox.yaml"));
    let output = run(&["test"], example);
    assert!(out(&output).ends_with("1 passed, 0 failed\n"), "{}", both(&output));
}

#[test]
fn the_shape_of_tests_is_checked_with_positions() {
    let one = |test: &str| TESTED.replace("{name: a deletion, record: {value: {op: d}}, expect: []}", test);
    for (test, place, part) in [
        ("{name: x, record: {key: 1}, expect: []}", "c.yaml:17:27", "`value` is missing"),
        ("{name: x, record: {value: 1}, expect: gone}", "c.yaml:17:47", "filtered, tombstone, invalid"),
        ("{name: x, record: {value: 1}, expect: [{date: 1}]}", "c.yaml:17:49", "did you mean `data`?"),
        ("{name: x, record: {value: 1, ofset: 1}, expect: []}", "c.yaml:17:38", "did you mean `offset`?"),
        ("{name: x, record: {value: 1, timestamp: noon}, expect: []}", "c.yaml:17:49", "`noon` is not a time"),
        ("{record: {value: 1}, expect: []}", "c.yaml:17:9", "`name` is missing"),
    ] {
        let output = run(&["test"], &Files::new(&one(test)).config());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(2), "{test}: {text}");
        assert!(text.contains(place) && text.contains(part), "{place} {part}: {text}");
    }
}
