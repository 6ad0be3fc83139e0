//! Configuration: `validate` and `schema`, as a user meets them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::files::PROPOSAL;
use crate::support::process::oncebox;

fn validate(yaml: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, yaml).unwrap();
    validate_path(&path)
}

fn validate_path(path: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["validate", "--config"])
        .arg(path)
        .env("DATABASE_URL", "postgresql://u@localhost/db")
        .env("KAFKA_BROKERS", "localhost:9092")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// A valid workflow, to be broken in one place.
fn workflow(more: &str) -> String {
    format!(
        "workflows:
  - id: orders
    source: {{topics: [orders]}}
    endpoint: {{url: \"https://erp.example.com/events\"}}
    delivery: {{guarantee: exactly-once}}
{more}"
    )
}

#[test]
fn each_kind_of_mistake_is_named_with_its_position_and_what_is_allowed() {
    let valid = workflow("");
    let cases: [(&str, String, &[&str]); 28] = [
        ("bad indentation", "workflows:\n  - id: a\n bad: [\n".to_owned(), &["c.yaml:", "not valid YAML"]),
        ("unknown key", workflow("    retrys: 3\n"), &["c.yaml:6:5", "unknown key `retrys`", "allowed: id, formerId"]),
        ("misspelt key", workflow("").replace("topics", "topic"), &["c.yaml:3:14", "did you mean `topics`?"]),
        (
            "duplicate key",
            workflow("    paused: true\n    paused: false\n"),
            &["c.yaml:7:5", "duplicate key `paused`", "line 6"],
        ),
        ("wrong type", workflow("    paused: often\n"), &["c.yaml:6:13", "`often`", "allowed: true or false"]),
        (
            "bad enum",
            valid.replace("exactly-once", "exactly"),
            &["c.yaml:5:27", "`exactly`", "at-most-once, at-least-once, idempotent-keys, exactly-once"],
        ),
        ("bad duration", workflow("    retention: 3 weeks\n"), &["c.yaml:6:16", "`3 weeks`", "30d"]),
        ("bad id", valid.replace("id: orders", "id: Orders!"), &["c.yaml:2:9", "`Orders!`", "[a-z0-9]"]),
        ("missing topics", valid.replace("topics: [orders]", ""), &["c.yaml:3:13", "`source.topics` is missing"]),
        (
            "missing url",
            valid.replace("url: \"https://erp.example.com/events\"", ""),
            &["c.yaml:4:15", "`endpoint.url` is missing"],
        ),
        (
            "two workflows of one id",
            format!("{valid}{}", valid.replace("workflows:\n", "")),
            &["c.yaml:6:9", "`orders` is used twice", "c.yaml:2:9"],
        ),
        (
            "guarantee without its mechanism",
            valid.replace("exactly-once}", "exactly-once, mechanism: kafka-offsets}"),
            &["c.yaml:5:52", "`kafka-offsets`", "one transaction", "transactional-outbox"],
        ),
        (
            "lease below timeout",
            valid.replace("exactly-once}", "exactly-once, lease: 5s}"),
            &["c.yaml:5:48", "longer than endpoint.timeout"],
        ),
        (
            "forbidden librdkafka property",
            format!("kafka: {{properties: {{enable.auto.commit: true}}}}\n{valid}"),
            &["c.yaml:1:42", "enable.auto.commit", "guarantee"],
        ),
        (
            "a literal secret",
            valid.replace("events\"}", "events\", auth: {bearer: {token: abc}}}"),
            &["c.yaml:4:78", "${NAME}"],
        ),
        (
            "a literal secret as a default",
            valid.replace("events\"}", "events\", headers: {Authorization: \"${A:-Bearer abc}\"}}"),
            &["c.yaml:4:80", "${NAME}"],
        ),
        (
            "a TLS mode that is none",
            format!("postgres: {{url: \"postgresql://u@h/d?sslmode=verify_full\"}}\n{valid}"),
            &["c.yaml:1:17", "`verify_full`", "verify-ca, verify-full"],
        ),
        (
            "an unknown key in an optional map",
            valid.replace("exactly-once}", "exactly-once, deduplication: {keyfields: [a], ttl: 1d}}"),
            &["c.yaml:5:57", "unknown key `keyfields`, did you mean `keyFields`?"],
        ),
        (
            "one of several shapes",
            valid.replace("exactly-once}", "exactly-once, retries: {backoff: {initial: 5}}}"),
            &["c.yaml:5:70", "`5`", "a duration such as"],
        ),
        (
            "delays that would hammer",
            valid.replace("exactly-once}", "exactly-once, retries: {backoff: [0s]}}"),
            &["c.yaml:5:60", "10ms or more"],
        ),
        (
            "a timeout of nothing",
            valid.replace("events\"}", "events\", timeout: 0s}"),
            &["c.yaml:4:64", "more than 0s"],
        ),
        (
            "the key in a header of another meaning",
            valid.replace("exactly-once}", "exactly-once, idempotencyKey: {header: Content-Length}}"),
            &["c.yaml:5:66", "set by Oncebox for something else"],
        ),
        (
            "two tokens of one name",
            format!(
                "admin: {{tokens: [{{name: a, token: \"${{HOME}}\", role: read}}, {{name: a, token: \"${{HOME}}\", role: read}}]}}\n{valid}"
            ),
            &["c.yaml:1:66", "`a` is empty or used twice", "the audit shows it"],
        ),
        (
            "a token that is empty",
            format!("admin: {{tokens: [{{name: a, token: \"${{ONCEBOX_NONE:-}}\", role: admin}}]}}\n{valid}"),
            &["c.yaml:1:35", "the token is empty"],
        ),
        (
            "a trace collector that is no address",
            format!("tracing: {{otlp: 'collector:4318'}}\n{valid}"),
            &["c.yaml:1:17", "`collector:4318` is not an address", "http://collector:4318"],
        ),
        (
            "a pattern that is none",
            valid.replace("topics: [orders]", "topics: ['^[']"),
            &["c.yaml:3:23", "not a regular expression"],
        ),
        (
            "a program of later work",
            valid.replace("exactly-once}", "exactly-once, ordering: key, orderingKey: '.a |'}"),
            &["c.yaml:5:69"],
        ),
        (
            "a function that differs between runs",
            workflow("    filter: '.at < now'\n"),
            &["c.yaml:6:13", "`now` is refused"],
        ),
    ];
    for (name, yaml, wanted) in cases {
        let (code, text) = validate(&yaml);
        assert_eq!(code, Some(2), "{name}: {text}");
        for part in wanted {
            assert!(text.contains(part), "{name}: no `{part}` in:\n{text}\n--- of\n{yaml}");
        }
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    // Of every stage of the check: shape, meaning, programs.
    let yaml = workflow("    paused: often\n    nonsense: 1\n    filter: '.a |'\n    payloadRetention: 3 weeks\n")
        .replace("exactly-once}", "exactly-once, mechanism: kafka-offsets}");
    let (code, text) = validate(&yaml);
    let lines: Vec<&str> = text.lines().map(|line| line.split(':').nth(1).unwrap_or_default()).collect();
    assert_eq!((code, lines), (Some(2), vec!["5", "6", "7", "8", "9"]), "{text}");
}

#[test]
fn what_a_reference_resolves_to_is_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "htps://user:hunter2@hooks.example.com/token").unwrap();
    let reference = format!("${{file:{}}}", secret.display());
    let yaml = workflow("")
        .replace("\"https://erp.example.com/events\"", &format!("'{reference}'"))
        .replace("exactly-once}", &format!("exactly-once, concurrency: '{reference}'}}"));
    let (code, text) = validate(&yaml);
    assert_eq!(code, Some(2), "{text}");
    assert!(!text.contains("hunter2") && text.matches("${file:").count() == 2, "{text}");
}

#[test]
fn a_workflow_overrides_a_default_in_another_spelling() {
    let yaml = format!(
        "defaults: {{delivery: {{retries: {{backoff: [1s]}}}}}}\n{}",
        workflow("").replace("exactly-once}", "exactly-once, retries: {backoffMs: [500]}}")
    );
    assert_eq!(validate(&yaml).0, Some(0), "{}", validate(&yaml).1);
}

#[test]
fn keys_of_later_work_warn_with_their_position() {
    let more = "schemaRegistry: {url: 'https://registry.example.com'}\n";
    let yaml = workflow(more).replace("topics: [orders]", "topics: [orders], encoding: avro");
    let (code, text) = validate(&yaml);
    assert_eq!(code, Some(0), "{text}");
    for (key, place) in [("this encoding", "c.yaml:3:"), ("schemaRegistry.url", "c.yaml:6:")] {
        let said = format!("{key}: not supported yet");
        let line = text.lines().find(|line| line.contains(&said)).unwrap_or_else(|| panic!("{said}: {text}"));
        assert!(line.contains(place), "{place}: {line}");
    }
    assert_eq!(text.matches("not supported yet").count(), 2, "{text}");
}

#[test]
fn a_ca_that_no_server_is_held_to_is_warned_of() {
    let said = "the CA is not looked at";
    for (tls, query, is_warned) in [
        ("{ca: /ca.pem}", "", true),
        ("{ca: /ca.pem, mode: require}", "", true),
        ("{mode: disable}", "?sslrootcert=/ca.pem", true),
        ("{}", "?sslmode=prefer&sslrootcert=/ca.pem", true),
        ("{ca: /ca.pem, mode: verify-ca}", "", false),
        ("{ca: /ca.pem}", "?sslmode=verify-full", false),
        ("{mode: require}", "", false),
    ] {
        let postgres = format!("postgres: {{url: \"postgresql://u@localhost/db{query}\", tls: {tls}}}\n");
        let (code, text) = validate(&format!("{}{postgres}", workflow("")));
        assert_eq!((code, text.contains(said)), (Some(0), is_warned), "{tls} {query}: {text}");
        assert!(!is_warned || text.contains("c.yaml:6:"), "{tls} {query}: {text}");
    }
}

#[test]
fn a_uniqueness_policy_that_means_nothing_is_refused_where_it_stands() {
    for (policy, said) in [
        ("{keys: [meta]}", "`meta` without `meta_keys`"),
        ("{keys: [args], args_keys: []}", "an empty list would make all events the same"),
        ("{states: []}", "nothing is ever a duplicate"),
        ("{period: 1h}", "`1h` is not a duration"),
        ("{keys: [type, type]}", "a dimension is there twice"),
        ("{keys: [argz]}", "argz"),
    ] {
        let (code, text) =
            validate(&workflow("").replace("exactly-once}", &format!("exactly-once, unique: {policy}}}")));
        assert_eq!(code, Some(2), "{policy}: {text}");
        assert!(text.contains(said) && text.contains("c.yaml:5:"), "{policy}: {text}");
    }
    let (code, text) = validate(&workflow("").replace("exactly-once}", "exactly-once, unique: {}}"));
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_run_refuses_what_it_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    let yaml = workflow("").replace("topics: [orders]", "topics: [orders], encoding: avro");
    std::fs::write(&path, format!("postgres: {{url: \"postgresql://u@localhost/db\"}}\n{yaml}")).unwrap();
    let output = oncebox(&["run"], &path);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("not supported yet"), "{text}");
}

#[test]
fn the_configurations_that_the_product_comes_from_load() {
    let (code, text) = validate(PROPOSAL);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("valid: 4 workflows"), "{text}");
    assert!(text.contains("giveUpAfter") || text.contains("cannot be reached"), "{text}");
}

#[test]
fn a_directory_is_merged_and_a_key_in_two_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), format!("shutdownGrace: 5s\n{}", workflow(""))).unwrap();
    std::fs::write(folder.path().join("b.yaml"), workflow("").replace("id: orders", "id: others")).unwrap();
    let (code, text) = validate_path(folder.path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("valid: 2 workflows"), "{text}");
    std::fs::write(folder.path().join("c.yaml"), "shutdownGrace: 6s\n").unwrap();
    let (code, text) = validate_path(folder.path());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("c.yaml:1:1: `shutdownGrace` stands in two files"), "{text}");
}

#[test]
fn hostile_yaml_is_refused_within_bounds() {
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for level in 0..8 {
        let (from, to) = ((b'a' + level) as char, (b'b' + level) as char);
        bomb.push_str(&format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 9].join(", ")));
    }
    let deep = "[".repeat(100_000);
    for yaml in [bomb, deep] {
        let (code, text) = validate(&yaml);
        assert_eq!(code, Some(2), "{}", &text[..text.len().min(500)]);
    }
}

#[test]
fn the_schema_is_json_and_names_every_top_level_key() {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox")).arg("schema").output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["kafka", "postgres", "admin", "egress", "defaults", "workflows", "shutdownGrace", "tracing"] {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_mistake() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = Command::new(env!("CARGO_BIN_EXE_oncebox")).arg("schema").stdout(writer).stderr(Stdio::piped()).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(1), ""));
}
