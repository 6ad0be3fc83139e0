//! Bad input: whatever comes in, the process lives, and what goes out stays in its slot. No services needed.
//!
//! Properties try what nobody thought of; the tables below them hold what was found once, and faults C1 to C20 as far as
//! they are about input. `hostile_table.rs` says of each of the twenty where it is shown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use oncebox::config::{Backoff, Workflow};
use oncebox::event::{CursorId, Event, Place, Record, SourcePosition};
use oncebox::send::egress::Rules;
use oncebox::send::request::Template;
use oncebox::send::{backoff, retry_after};
use oncebox::transform::{Disposition, Origin, Transformer};
use proptest::prelude::*;

fn read(yaml: &str) -> (Option<oncebox::config::Loaded>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, yaml).expect("written");
    let (loaded, problems) = oncebox::config::read(&path);
    (loaded, problems.to_string())
}

fn workflow(more: &str) -> Result<Arc<Workflow>, String> {
    let (loaded, problems) = read(&format!(
        "postgres: {{url: \"postgresql://localhost/x\"}}\nworkflows:\n  - id: w\n    endpoint: {{url: \"https://example.com/a\"}}\n{more}"
    ));
    match loaded.and_then(|loaded| loaded.config.workflows.first().cloned()) {
        Some(workflow) if problems.is_empty() => match oncebox::transform::problems(&workflow).into_iter().next() {
            Some((_, message)) => Err(message),
            None => Ok(workflow),
        },
        _ => Err(problems),
    }
}

fn origin() -> Origin {
    Origin { cluster: "c".into(), topic: "t".into(), topic_id: "i".into(), partition: 0 }
}

fn event(key: String, event_type: String, content_type: String, traceparent: Option<String>, topic: &str) -> Event {
    Event {
        place: Place { cursor: CursorId(1), offset: 1, index: 0, generation: 0 },
        day: "2026-01-01".parse().expect("a day"),
        source: SourcePosition { topic: topic.into(), partition: 0, offset: 1 },
        key,
        event_type,
        content_type,
        traceparent,
        lane: None,
        record_at: None,
        stored_at: 0,
        body: Bytes::from_static(b"{}"),
    }
}

/// Kinds of sources, each compiled once.
fn transformers() -> Vec<Transformer> {
    let sources = [
        "    source: {topics: [t]}\n",
        "    source: {topics: [t], format: debezium}\n",
        "    source: {topics: [t], encoding: text}\n",
        "    source: {topics: [t], encoding: bytes}\n",
        "    source: {topics: [t]}\n    filter: .a\n    transform: '.. | scalars'\n    eventType: .a.type\n",
        "    source: {topics: [t], tombstones: deliver}\n    transform: '[$record.key, $record.headers, .]'\n",
    ];
    sources.iter().map(|s| Transformer::new(workflow(s).expect("valid")).expect("programs compile")).collect()
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let json = prop::string::string_regex(r#"[\[\]{}:,"\\ua0-9.eE+\- tfnul]{0,60}"#)
        .expect("a pattern")
        .prop_map(String::into_bytes);
    prop_oneof![json, prop::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #[test]
    fn any_record_has_a_disposition(
        records in prop::collection::vec((prop::option::of(bytes()), prop::option::of(bytes()), bytes(), prop::option::of(bytes())), 1..4),
    ) {
        thread_local!(static ALL: Vec<Transformer> = transformers());
        for (key, value, name, header) in records {
            let record = Record { offset: 1, timestamp: Some(-1), key, value, headers: vec![(name, header)] };
            ALL.with(|all| {
                for transformer in all {
                    if let Disposition::Events { drafts, .. } = transformer.apply(&record, &origin()) {
                        // The same record always makes the same bytes under the same keys.
                        let Disposition::Events { drafts: again, .. } = transformer.apply(&record, &origin()) else {
                            panic!("another disposition the second time");
                        };
                        assert_eq!(drafts, again);
                        assert!(drafts.iter().all(|draft| draft.key.len() <= 63 && draft.key.is_ascii()));
                    }
                }
            });
        }
    }

    #[test]
    fn any_retry_after_is_a_bounded_wait_or_nothing(value in bytes()) {
        let wait = retry_after::parse(&value, SystemTime::now());
        prop_assert!(wait.is_none_or(|wait| wait <= Duration::from_secs(10 * 366 * 86_400)));
    }

    #[test]
    fn no_text_leaves_its_header(key in ".{0,40}", kind in ".{0,40}", content in ".{0,40}", trace in ".{0,60}", topic in ".{0,40}") {
        thread_local!(static TEMPLATE: Template = Template::new(&workflow("    source: {topics: [t]}\n").expect("valid")));
        let request = TEMPLATE.with(|template| template.request(&event(key, kind, content, Some(trace), &topic), 1, 1));
        for (name, value) in request.headers() {
            prop_assert!(value.iter().all(|byte| *byte >= b' ' || *byte == b'\t'), "{name}: {value:?}");
        }
    }

    #[test]
    fn no_form_of_a_special_address_passes(octets in any::<[u8; 4]>(), rest in any::<[u16; 4]>()) {
        let plain = Ipv4Addr::from(octets);
        let rules = Rules::new(Vec::new());
        if !rules.permit(IpAddr::V4(plain)) {
            let [a, b, c, d] = octets;
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let forms = [
                plain.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, rest[0], rest[1], rest[2], rest[3], 1),
                Ipv6Addr::new(0x64, 0xff9b, 1, rest[0], rest[1], rest[2], high, low),
            ];
            for form in forms {
                prop_assert!(!rules.permit(IpAddr::V6(form)), "{form} is a form of {plain}");
            }
        }
    }
}

proptest! {
    // Each of these checks a whole configuration.
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_key_format_is_a_format_or_an_error(format in "[{}/a-z.0-9:\\\\\"]{0,40}") {
        let quoted = format.replace('\'', "''");
        let _ = workflow(&format!("    source: {{topics: [t]}}\n    delivery: {{idempotencyKey: {{format: '{quoted}'}}}}\n"));
    }

    #[test]
    fn any_endpoint_that_loads_makes_a_request(path in "[ -~]{0,30}", query in "[ -~]{0,30}") {
        let url = format!("https://example.com/{path}?{query}").replace('\'', "''").replace("${", "$$");
        let yaml = format!("workflows:\n  - id: w\n    source: {{topics: [t]}}\n    endpoint: {{url: '{url}'}}\n");
        if let (Some(loaded), _) = read(&format!("postgres: {{url: \"postgresql://localhost/x\"}}\n{yaml}")) {
            for workflow in &loaded.config.workflows {
                let _ = Template::new(workflow).request(&event("k".into(), "t".into(), "c".into(), None, "t"), 1, 1);
            }
        }
    }

    #[test]
    fn any_text_is_a_configuration_or_a_list_of_problems(text in "[a-zA-Z0-9:\\-\\[\\]{}\"'&*!|>%#$ \n.,/^]{0,300}") {
        let (loaded, problems) = read(&text);
        prop_assert!(loaded.is_some() || !problems.is_empty());
    }

    #[test]
    fn any_damage_to_a_configuration_is_survived(at in 0usize..900, with in "[\\PC\n]{0,3}") {
        let text = include_str!("../config/oncebox.yaml");
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let rest = text[at..].char_indices().nth(2).map_or("", |(next, _)| &text[at + next..]);
        let _ = read(&format!("{}{with}{rest}", &text[..at]));
    }
}

#[test]
fn what_was_found_once_stays_found() {
    // A delay of nothing, doubled a thousand times, was no number.
    let none = Backoff::Growing { initial: Duration::ZERO, multiplier: 2.0, max: Duration::from_secs(600) };
    assert!(backoff::scheduled(&none, 1_100) <= Duration::from_secs(600));
    // An event type that no column holds stopped every workflow of the process.
    let typed = workflow("    source: {topics: [t]}\n    eventType: .type\n").expect("valid");
    let record = Record { value: Some(br#"{"type":"\u0000"}"#.to_vec()), ..Record::default() };
    let disposition = Transformer::new(typed).expect("compiles").apply(&record, &origin());
    assert!(matches!(disposition, Disposition::Rejected(_)), "{disposition:?}");
}

#[test]
fn hostile_configurations_are_refused_with_a_reason() {
    let flow =
        |id: &str| format!("  - id: {id}\n    source: {{topics: [t]}}\n    endpoint: {{url: \"https://e.com/\"}}\n");
    let deep = format!("workflows: {}", "[".repeat(5_000));
    let cases: [(&str, String, &str); 9] = [
        ("C1 unknown key", format!("workflow:\n{}", flow("a")), "unknown key"),
        ("C1 duplicate key", "kafka: {}\nkafka: {}\n".to_owned(), "duplicate key"),
        ("C1 depth", deep, "c.yaml:"),
        ("C1 two documents", "kafka: {}\n---\nkafka: {}\n".to_owned(), "second YAML document"),
        ("C3 one id twice", format!("workflows:\n{}{}", flow("a"), flow("a")), "used twice"),
        ("C3 another case", format!("workflows:\n{}", flow("A")), "is not a value for `id`"),
        (
            "C9 a header that ends its line",
            format!("workflows:\n{}", flow("a").replace("com/\"}", "com/\", headers: {x: \"a\\r\\nb: c\"}}")),
            "control characters",
        ),
        (
            "C9 a header of the connection",
            format!("workflows:\n{}", flow("a").replace("com/\"}", "com/\", headers: {Host: x}}")),
            "set by Oncebox",
        ),
        (
            "C11 a secret in the file",
            format!("workflows:\n{}", flow("a").replace("com/\"}", "com/\", auth: {bearer: {token: s3cr3t}}}")),
            "reference",
        ),
    ];
    for (name, yaml, wanted) in cases {
        let (_, problems) = read(&yaml);
        assert!(problems.contains(wanted), "{name}: no `{wanted}` in `{problems}`");
        assert!(!problems.contains("s3cr3t"), "{name}: {problems}");
    }
}

#[test]
fn hostile_records_are_refused_and_nothing_breaks() {
    let plain = Transformer::new(workflow("    source: {topics: [t]}\n").expect("valid")).expect("compiles");
    let looping = Transformer::new(
        workflow("    source: {topics: [t]}\n    transform: '[range(1000000)] | map([.]) | .[]'\n").expect("valid"),
    );
    let looping = looping.expect("compiles");
    let cases: [(&str, Vec<u8>); 6] = [
        ("C2 a million brackets", vec![b'['; 1_000_000]),
        ("C2 brackets both ways", [vec![b'['; 100_000], vec![b']'; 100_000]].concat()),
        ("K21 no UTF-8", b"\xff\xfe{}".to_vec()),
        ("nothing", Vec::new()),
        ("a lone surrogate", br#"{"a":"\ud800"}"#.to_vec()),
        ("C23 too large", vec![b'1'; 2 << 20]),
    ];
    for (name, value) in cases {
        let record = Record { offset: 1, value: Some(value), ..Record::default() };
        let disposition = plain.apply(&record, &origin());
        // A lone surrogate passes through as bytes; everything else is refused.
        let passes = matches!(disposition, Disposition::Events { .. });
        assert!(!passes || name == "a lone surrogate", "{name}: {disposition:?}");
    }
    let record = Record { offset: 1, value: Some(b"{}".to_vec()), ..Record::default() };
    assert!(matches!(looping.apply(&record, &origin()), Disposition::Rejected(_)), "K30 outputs without end");
}
