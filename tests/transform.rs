//! Transform: records in, drafts or dispositions out. Pure, so it needs no services.

use std::sync::Arc;

use oncebox::config::Workflow;
use oncebox::event::{ContentType, Draft, Record};
use oncebox::transform::{Disposition, Origin, Rejection, Transformer};

fn workflow(more: &str) -> Result<Arc<Workflow>, String> {
    let source = if more.contains("source:") { "" } else { "\n    source: {topics: [t]}" };
    let yaml = format!(
        "postgres: {{url: \"postgresql://localhost/x\"}}
workflows:
  - id: orders{source}
    endpoint: {{url: \"https://example.com/\"}}
{more}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, yaml).expect("written");
    let loaded = oncebox::config::load(&path).map_err(|problems| problems.to_string())?;
    let workflow = Arc::clone(&loaded.config.workflows[0]);
    match oncebox::transform::problems(&workflow).into_iter().next() {
        Some((_, message)) => Err(message),
        None => Ok(workflow),
    }
}

fn origin() -> Origin {
    Origin { cluster: "c".into(), topic: "t".into(), topic_id: "id".into(), partition: 2 }
}

fn record(value: &[u8]) -> Record {
    Record { offset: 7, timestamp: Some(1_700_000_000_000), value: Some(value.to_vec()), ..Record::default() }
}

fn apply(more: &str, record: &Record) -> Disposition {
    let workflow = workflow(more).expect("a valid workflow");
    Transformer::new(workflow).expect("programs compile").apply(record, &origin())
}

fn drafts(more: &str, record: &Record) -> Vec<Draft> {
    match apply(more, record) {
        Disposition::Events { drafts, .. } => drafts,
        other => panic!("{other:?}"),
    }
}

fn data(draft: &Draft) -> String {
    let body: serde_json::Value = serde_json::from_slice(&draft.body).expect("a keyed envelope");
    body["data"].to_string()
}

#[test]
fn what_passes_through_keeps_its_bytes() {
    // Key order, number writing, a duplicate key, an escaped NUL: all of it is the sender's.
    let value = r#"{"b": 1.10, "a": 12345678901234567890, "b": "\u0000", "e": 1e3}"#;
    let draft = &drafts("", &record(value.as_bytes()))[0];
    let body = std::str::from_utf8(&draft.body).expect("UTF-8");
    assert!(body.ends_with(&format!("\"data\":{value}}}")), "{body}");
    assert!(body.contains(r#""timestamp":"2023-11-14T22:13:20.000Z""#), "{body}");
    assert_eq!(drafts("    delivery: {envelope: none}\n", &record(value.as_bytes()))[0].body, value.as_bytes());
}

#[test]
fn each_output_is_one_event_with_a_key_of_its_own() {
    let made = drafts("    transform: '.lines[] | {sku}'\n", &record(br#"{"lines":[{"sku":"a"},{"sku":"b"}]}"#));
    assert_eq!(made.iter().map(data).collect::<Vec<_>>(), [r#"{"sku":"a"}"#, r#"{"sku":"b"}"#]);
    assert_eq!((made[0].index, made[1].index), (0, 1));
    assert_ne!(made[0].key, made[1].key);
    assert!(drafts("    transform: empty\n", &record(b"1")).is_empty());
}

#[test]
fn the_same_record_always_gives_the_same_bytes() {
    let programs = "    filter: '.id > 1'\n    transform: '{id, r: $record.offset, h: $record.headers.a}'\n";
    let mut one = record(br#"{"id":2}"#);
    one.headers = vec![(b"a".to_vec(), Some(b"x".to_vec())), (b"\xff".to_vec(), None)];
    let (first, second) = (drafts(programs, &one), drafts(programs, &one));
    assert_eq!(first, second);
    assert_eq!(data(&first[0]), r#"{"id":2,"r":7,"h":"x"}"#);
}

#[test]
fn false_null_and_nothing_are_filtered() {
    for value in [b"null".as_slice(), b" false "] {
        assert!(matches!(apply("", &record(value)), Disposition::Filtered), "the value itself is the default filter");
    }
    for filter in ["false", "null", "empty", ".id == 2", ".missing"] {
        let disposition = apply(&format!("    filter: '{filter}'\n"), &record(br#"{"id":1}"#));
        assert!(matches!(disposition, Disposition::Filtered), "{filter}: {disposition:?}");
    }
    assert_eq!(drafts("    filter: '.id'\n", &record(br#"{"id":0}"#)).len(), 1, "0 is true in jq");
}

#[test]
fn a_tombstone_is_skipped_or_delivered_as_asked() {
    let tombstone = Record { offset: 7, ..Record::default() };
    assert!(matches!(apply("", &tombstone), Disposition::Tombstone));
    let workflow = workflow("").expect("valid");
    let mut delivering = (*workflow).clone();
    delivering.source.tombstones = oncebox::config::Tombstones::Deliver;
    let transformer = Transformer::new(Arc::new(delivering)).expect("compiles");
    match transformer.apply(&tombstone, &origin()) {
        Disposition::Events { drafts, .. } => {
            assert_eq!(data(&drafts[0]), "null");
            assert!(
                !String::from_utf8_lossy(&drafts[0].body).contains("timestamp"),
                "a record without a time has none"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn envelopes_and_content_types_fit_the_encoding() {
    let with = |encoding: &str, envelope: &str, value: &[u8]| {
        let workflow = workflow(&format!("    delivery: {{envelope: {envelope}}}\n")).expect("valid");
        let mut workflow = (*workflow).clone();
        workflow.source.encoding = serde_json::from_value(encoding.into()).expect("an encoding");
        let transformer = Transformer::new(Arc::new(workflow)).expect("compiles");
        match transformer.apply(&record(value), &origin()) {
            Disposition::Events { mut drafts, .. } => drafts.remove(0),
            other => panic!("{other:?}"),
        }
    };
    let text = with("text", "none", "grüße".as_bytes());
    assert_eq!((text.content_type, &*text.body), (ContentType::Text, "grüße".as_bytes()));
    let bytes = with("bytes", "none", b"\x00\xff");
    assert_eq!((bytes.content_type, &*bytes.body), (ContentType::Bytes, &b"\x00\xff"[..]));
    assert_eq!(data(&with("text", "keyed", b"a \"b\"")), r#""a \"b\"""#);
    assert_eq!(data(&with("bytes", "keyed", b"\x00\xff")), r#""AP8=""#);
    let event = with("json", "cloudevents", br#"{"id":1}"#);
    let body: serde_json::Value = serde_json::from_slice(&event.body).expect("JSON");
    assert_eq!(event.content_type, ContentType::CloudEvents);
    assert_eq!((&body["id"], &body["source"], &body["type"]), (&event.key.clone().into(), &"/c/t".into(), &"t".into()));
    assert_eq!(body["data"], serde_json::json!({"id": 1}));
    assert_eq!(body["time"], "2023-11-14T22:13:20.000Z");
    let binary = with("bytes", "cloudevents", b"\xff");
    let body: serde_json::Value = serde_json::from_slice(&binary.body).expect("JSON");
    assert_eq!(body["data_base64"], "/w==");
}

#[test]
fn a_program_that_fails_or_overflows_rejects_the_record() {
    let rejected = |program: &str| match apply(&format!("    transform: '{program}'\n"), &record(br#"{"id":1}"#)) {
        Disposition::Rejected(rejection) => rejection,
        other => panic!("{program}: {other:?}"),
    };
    assert!(matches!(rejected(".id + {}"), Rejection::Program { .. }));
    assert!(matches!(rejected("error(\"no\")"), Rejection::Program { .. }));
    assert!(matches!(rejected("range(20000)"), Rejection::TooManyOutputs { .. }));
    assert!(matches!(rejected("range(9) | [range(300000)]"), Rejection::OutputTooLarge { .. }));
    assert!(matches!(rejected("nan"), Rejection::OutputNotJson));
    assert!(matches!(rejected("1, error(\"late\")"), Rejection::Program { .. }), "all or nothing");
}

#[test]
fn functions_that_differ_between_runs_or_reach_outside_are_refused() {
    for program in
        ["now", "env", "$ENV", "input", "[inputs]", "debug", "halt", "now | todate", "\"\\(now)\"", "localtime"]
    {
        let result = workflow(&format!("    transform: '{program}'\n"));
        assert!(result.is_err(), "{program} was accepted");
    }
    for program in [".now", "{now: 1}", ".env.input", "ascii_downcase?", "\"now\""] {
        let result = workflow(&format!("    transform: '{program}'\n"));
        assert!(result.is_ok(), "{program}: {result:?}");
    }
}

#[test]
fn hostile_json_rejects_the_record_and_nothing_else() {
    // The public suite of JSON parsing tests, where it is at hand: what must be refused is refused.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/json-parsing/test_parsing");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        use std::io::Write;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let name = "hostile_json_rejects_the_record_and_nothing_else";
        let _ = file.and_then(|mut file| writeln!(file, "skipped: {name}: no JSON parsing vectors here"));
        return;
    };
    let mut checked = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let value = std::fs::read(entry.path()).expect("a vector");
        for program in ["", "    transform: '[.]'\n"] {
            let disposition = apply(program, &record(&value));
            match name.chars().next() {
                Some('n') => assert!(matches!(disposition, Disposition::Rejected(_)), "{name}: {disposition:?}"),
                // Read, and filtered for what it is.
                Some('y') if matches!(value.trim_ascii(), b"null" | b"false") => {
                    assert!(matches!(disposition, Disposition::Filtered), "{name}: {disposition:?}");
                }
                Some('y') => assert!(matches!(disposition, Disposition::Events { .. }), "{name}: {disposition:?}"),
                _ => {}
            }
        }
        checked += 1;
    }
    assert!(checked > 300);
}

#[test]
fn an_event_type_that_no_column_holds_is_refused() {
    let disposition = apply("    eventType: .type\n", &record(br#"{"type":"a\u0000b"}"#));
    assert!(matches!(disposition, Disposition::Rejected(Rejection::EventTypeHasNul)), "{disposition:?}");
}

#[test]
fn the_body_tells_the_sources_time_and_the_lag_counts_from_the_records() {
    let value = br#"{"after":{"id":1},"source":{"connector":"postgresql","db":"d","table":"t","lsn":1,"ts_ms":1600000000000},"op":"c"}"#;
    let draft = &drafts("    source: {topics: [t], format: debezium}\n", &record(value))[0];
    assert_eq!(draft.record_at, Some(1_700_000_000_000));
    let body = std::str::from_utf8(&draft.body).expect("UTF-8");
    assert!(body.contains(r#""timestamp":"2020-09-13T12:26:40.000Z""#), "{body}");
}
