//! `explain`, and what `validate` warns about: the real binary, as a developer of a workflow meets it.

use serde_json::{Value, json};

use crate::support::files::{Files, PROPOSAL, both, out, run};

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
    source: {topics: [orders], encoding: avro}
    endpoint: {url: "https://erp.example.com/events"}
    delivery: {guarantee: exactly-once, unique: {}}
"#;
    // What `validate` warns about is what `explain` lists.
    let files = Files::new(yaml);
    let validated = both(&run(&["validate"], &files.config()));
    assert!(validated.contains("this encoding: not supported yet"), "{validated}");
    let said = explained(yaml, "orders");
    let lacking = said["notSupportedYet"].as_array().unwrap();
    assert_eq!(lacking.len(), 1, "{said}");
    assert_eq!(lacking[0]["message"], "this encoding: not supported yet");
    let text = out(&run(&["explain", "orders"], &files.config()));
    assert!(text.contains("not supported yet"), "{text}");

    let built = explained(&yaml.replace(", encoding: avro", ""), "orders");
    assert_eq!(built["notSupportedYet"], json!([]), "{built}");
    assert_eq!(failure(&built, "source-repeats")["inThisBuild"], json!(true), "{built}");
    let windows = built["windows"].as_array().unwrap();
    assert!(windows.iter().any(|window| window["name"] == "unique.period"), "{built}");
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
        ("c.yaml:10:46", "Kafka keeps records for 7 days unless"),
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
