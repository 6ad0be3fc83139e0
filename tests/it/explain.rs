//! `explain`, `preview`, `test` and `validate --against`: the real binary, as a developer of a workflow meets it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, Relay, command, migrated};
use crate::support::{PATIENCE, TestDatabase, TestReceiver, Topic, eventually, services};

/// The three workflows and the default of the proposal, with source and endpoint added.
const PROPOSAL: &str = r#"
postgres: {url: "postgresql://u@localhost/db"}
defaults:
  source: {topics: [sales.public.orders], format: debezium}
  endpoint: {url: "https://erp.example.com/events"}
workflows:
  - id: sales-orders-to-erp
    delivery:
      guarantee: exactly-once
      mechanism: transactional-outbox
      deduplication:
        keyFields: [database, table, primaryKey]
        ttl: 30d
  - id: product-sync-to-search
    delivery:
      guarantee: at-least-once
      mechanism: kafka-offsets
      retries:
        maxAttempts: 5
        backoffMs: [1000, 2000, 5000, 10000, 30000]
  - id: audit-logs-to-warehouse
    delivery:
      guarantee: idempotent-keys
      mechanism: generated-keys
      clientGuidance: true
  - id: the-default
    delivery:
      guarantee: idempotent-keys
      mechanism: generated-keys
      idempotencyKey:
        format: "{database}:{table}:{primaryKey}:{changeVersion}"
        hashAlgorithm: SHA256
        includedInPayload: true
      retries:
        enabled: true
        maxAttempts: 5
        backoffMs: [1000, 2000, 5000, 10000, 30000]
        giveUpAfter: 1h
      documentation:
        deduplicationRequired: true
        sdkAvailable: true
        exampleCode: "https://docs.platform/client-dedup-examples"
"#;

struct Files(tempfile::TempDir);

impl Files {
    fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("c.yaml"), yaml).unwrap();
        Self(folder)
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("c.yaml")
    }

    fn event(&self, event: &str) -> PathBuf {
        let path = self.0.path().join("event.json");
        std::fs::write(&path, event).unwrap();
        path
    }
}

fn run(arguments: &[&str], config: &Path) -> Output {
    command().args(arguments).arg("--config").arg(config).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn both(output: &Output) -> String {
    format!("{}{}", out(output), String::from_utf8_lossy(&output.stderr))
}

fn explained(yaml: &str, workflow: &str) -> Value {
    let files = Files::new(yaml);
    let output = run(&["explain", workflow, "--json"], &files.config());
    assert!(output.status.success(), "{}", both(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn failure<'a>(explained: &'a Value, name: &str) -> &'a Value {
    let rows = explained["failures"].as_array().unwrap();
    rows.iter().find(|row| row["failure"] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn each_workflow_of_the_proposal_is_explained() {
    for (id, guarantee, path) in [
        ("sales-orders-to-erp", "exactly-once", "outbox"),
        ("product-sync-to-search", "at-least-once", "direct"),
        ("audit-logs-to-warehouse", "idempotent-keys", "direct"),
        ("the-default", "idempotent-keys", "direct"),
    ] {
        let said = explained(PROPOSAL, id);
        assert_eq!((&said["guarantee"], &said["path"]), (&json!(guarantee), &json!(path)), "{id}");
        assert!(said["failures"].as_array().unwrap().len() >= 20, "{id}");
        let text = out(&run(&["explain", id], &Files::new(PROPOSAL).config()));
        for heading in
            ["Promise", "What the receiver must do", "Key", "Retries", "Answers", "Windows", "Limits", "Failures"]
        {
            assert!(text.lines().any(|line| line == heading), "{id}: no {heading} in\n{text}");
        }
        assert!(!text.to_lowercase().contains("exactly-once delivery"), "HTTP cannot keep it: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{id} has long lines:\n{text}");
    }
}

#[test]
fn the_schedule_of_the_proposal_ends_after_18_seconds() {
    let said = explained(PROPOSAL, "the-default");
    let retries = &said["retries"];
    assert_eq!(
        (&retries["total"], &retries["span"], &retries["ends"]),
        (&json!(5), &json!("18s"), &json!("exhausted"))
    );
    let delays: Vec<&str> =
        retries["attempts"].as_array().unwrap().iter().map(|a| a["delay"].as_str().unwrap()).collect();
    assert_eq!(delays, ["-", "1s", "2s", "5s", "10s"], "the fifth delay is never used");
    let warnings = said["warnings"].to_string();
    assert!(warnings.contains("cannot be reached: 5 attempts"), "{warnings}");
    assert_eq!(said["documentation"]["exampleCode"], "https://docs.platform/client-dedup-examples");
    assert_eq!(explained(PROPOSAL, "audit-logs-to-warehouse")["clientGuidance"], json!(true));
}

#[test]
fn what_this_build_lacks_is_marked_where_it_is_described() {
    let yaml = r#"
postgres: {url: "postgresql://u@localhost/db"}
workflows:
  - id: orders
    source: {topics: [orders]}
    endpoint: {url: "https://erp.example.com/events"}
    delivery: {guarantee: exactly-once, onInDoubt: hold}
"#;
    // What `validate` warns about is what `explain` marks: when the behaviour is built, both go.
    let warned = both(&run(&["validate"], &Files::new(yaml).config())).contains("not supported yet");
    let said = explained(yaml, "orders");
    assert_eq!(warned, !said["notSupportedYet"].as_array().unwrap().is_empty(), "{said}");
    assert_eq!(failure(&said, "answer-lost")["inThisBuild"], json!(!warned), "{said}");
    assert_eq!(said["inDoubt"]["inThisBuild"], json!(!warned));
    assert_eq!(failure(&said, "connection-refused")["inThisBuild"], json!(true), "not touched by onInDoubt");
}

#[test]
fn windows_that_disagree_are_warned_about_by_validate_and_explain() {
    let yaml = r#"
postgres: {url: "postgresql://u@localhost/db"}
workflows:
  - id: orders
    source: {topics: [orders]}
    endpoint: {url: "https://erp.example.com/events", timeout: 40s}
    delivery:
      guarantee: exactly-once
      lease: 41s
      deduplication: {keyFields: [key], ttl: 1h}
      retries: {maxAttempts: 5000, backoff: [1m], giveUpAfter: 2d, maxRetryAfter: 3d}
      onKeyFailure: continue
    retention: 1d
    payloadRetention: 12h
"#;
    let validated = both(&run(&["validate"], &Files::new(yaml).config()));
    let warnings = explained(yaml, "orders")["warnings"].to_string();
    for (place, part) in [
        ("c.yaml:6:64", "longer than shutdownGrace"),
        ("c.yaml:9:14", "only 1s longer than endpoint.timeout"),
        ("c.yaml:10:46", "a repeat may be taken in while the first is still tried"),
        ("c.yaml:11:30", "cannot be reached: giveUpAfter ends the event after 2d"),
        ("c.yaml:11:83", "told to wait longer than 2d"),
        ("c.yaml:12:21", "has no effect without ordering"),
        ("c.yaml:13:16", "its record may be gone"),
        ("c.yaml:14:23", "its body may be gone"),
    ] {
        let line = validated.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {validated}"));
        assert!(line.contains(place), "{place}: {line}");
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}

#[test]
fn an_unknown_workflow_is_a_usage_error() {
    let files = Files::new(PROPOSAL);
    let event = files.event(r#"{"value": 1}"#);
    let preview = ["preview", "the-defualt", "--event", event.to_str().unwrap()];
    for arguments in [&["explain", "the-defualt"][..], &preview, &["test", "the-defualt"]] {
        let output = run(arguments, &files.config());
        assert_eq!(output.status.code(), Some(2), "{}", both(&output));
        assert!(both(&output).contains("did you mean `the-default`?"), "{}", both(&output));
    }
}

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

/// The configuration of a relay's workflow, changed in one place.
fn changed(relay: &Relay, from: &str, to: &str) -> Files {
    let yaml = std::fs::read_to_string(relay.config_path()).unwrap();
    assert!(yaml.contains(from), "{from}: {yaml}");
    Files::new(&yaml.replace(from, to))
}

#[tokio::test]
async fn what_would_take_back_a_promise_is_refused_unless_it_is_accepted() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    // It fails for ever, so that an event stays undelivered.
    let receiver = TestReceiver::deciding(|_| Answer::status(503)).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
    let mut relay = Relay::start(&config);
    relay.ready().await;
    topic.send(None, r#"{"id":1}"#);
    eventually("the event was tried", PATIENCE, async || (!receiver.seen().is_empty()).then_some(())).await;
    relay.stop().await;

    let against = |files: &Files, more: &[&str]| {
        let output = run(&[&["validate", "--against", "database"], more].concat(), &files.config());
        (output.status.code(), both(&output))
    };
    let same = changed(&relay, "orders", "orders");
    assert_eq!(against(&same, &[]).0, Some(0), "{}", against(&same, &[]).1);
    assert!(against(&same, &[]).1.contains("nothing that was promised is taken back"));

    let weaker =
        changed(&relay, "guarantee: exactly-once", "guarantee: at-least-once\n      mechanism: transactional-outbox");
    let (code, text) = against(&weaker, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("DOWNGRADE") && text.contains("delivery.guarantee: exactly-once → at-least-once"), "{text}");
    let line = 1 + std::fs::read_to_string(weaker.config())
        .unwrap()
        .lines()
        .position(|l| l.contains("at-least-once"))
        .unwrap();
    assert!(text.contains(&format!("c.yaml:{line}:")), "line {line}: {text}");
    let (code, text) = against(&weaker, &["--accept"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 downgrade, accepted"), "{text}");

    let moved = changed(&relay, "eventType: OrderChanged", "eventType: OrderTouched");
    let (code, text) = against(&moved, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("change") && text.contains("OrderChanged → OrderTouched"), "{text}");

    let renamed = changed(&relay, "- id: orders", "- id: sales");
    let (code, text) = against(&renamed, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("removed with 1 undelivered event:") && text.contains("new: it starts"), "{text}");

    let url = services().database_url.clone();
    let output = run(&["validate", "--against", &url], &weaker.config());
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    let output = run(&["validate", "--against", "mysql://u:hunter2@h/d"], &weaker.config());
    assert_eq!(output.status.code(), Some(2), "{}", both(&output));
    assert!(!both(&output).contains("hunter2"), "{}", both(&output));
}

#[tokio::test]
async fn a_database_on_which_nothing_runs_has_nothing_to_take_back() {
    let database = TestDatabase::new().await;
    let yaml = ORDERS.replace("URL", "https://erp.example.com/orders").replace(
        "url: \"postgresql://u@localhost/db\"",
        &format!("url: \"${{DATABASE_URL}}\", schema: {}", database.schema),
    );
    let files = Files::new(&yaml);
    let validate = || {
        let mut command = command();
        command.args(["validate", "--against", "database", "--config"]).arg(files.config()).env("API_KEY", "k");
        command.output().unwrap()
    };
    let output = validate();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(out(&output).contains("nothing runs there yet"), "{}", out(&output));
    migrated(&database);
    assert_eq!(validate().status.code(), Some(0));
}
