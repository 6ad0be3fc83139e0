//! Checks one workflow: what it must have, and its source. `endpoint_check.rs` and `delivery_check.rs` check the rest.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::check::Report;
use super::checked::{EventType, Source, StartFrom, Topics, Workflow};
use super::node::Node;
use super::raw_workflow::{Encoding, Format, OnInvalid, OnOffsetLoss, Ordering, RawWorkflow, Tombstones};
use super::{delivery_check, endpoint_check, test_check, unsupported, window_check};

const DAY: Duration = Duration::from_secs(86_400);
const TOPIC: &str = "a topic name ([A-Za-z0-9._-], at most 249), or one ^regex";

pub fn check(raw: &RawWorkflow, index: usize, report: &mut Report<'_>) -> Option<Workflow> {
    let here = format!("/workflows/{index}");
    let id = match &raw.id {
        Some(id) => id.clone(),
        None => {
            report.problem(&here, "a workflow without `id`", "id: name, of [a-z0-9-], at most 63");
            String::new()
        }
    };
    let source = source(raw, &here, report);
    let (guarantee, mechanism) = delivery_check::guarantee(raw, &here, report);
    let endpoint = endpoint_check::endpoint(raw, &here, report);
    let delivery = delivery_check::delivery(raw, &id, (guarantee, mechanism), endpoint.as_ref(), &here, report);
    let event_type = match raw.event_type.as_deref().unwrap_or_default() {
        "" => EventType::Topic,
        jq if jq.starts_with('.') => EventType::Jq(jq.to_owned()),
        text => EventType::Text(text.to_owned()),
    };
    let retention = raw.retention.map_or(30 * DAY, |s| s.0);
    let payload_retention = raw.payload_retention.map_or(3 * DAY, |s| s.0);
    window_check::windows(raw, &delivery, endpoint.as_ref(), (retention, payload_retention), &here, report);
    if retention.is_zero() {
        report.problem(&format!("{here}/retention"), "nothing would be kept at all", "more than 0s");
    }
    for name in raw.labels.keys() {
        let mut letters = name.chars();
        let valid = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with("__")
            && !["workflow", "guarantee"].contains(&name.as_str());
        if !valid {
            report.problem(
                &format!("{here}/labels/{name}"),
                format!("`{name}` cannot be a label"),
                "a Prometheus label name other than workflow and guarantee",
            );
        }
    }
    if raw.source.format == Some(Format::Debezium) && !matches!(raw.delivery.ordering, Some(Ordering::Key)) {
        report.warning(
            &format!("{here}/source/format"),
            "changes of one row may arrive in another order than they were made",
            "ordering: key, or a receiver that compares oncebox-source",
        );
    }
    let unsupported = unsupported::in_workflow(raw, index, report);
    let tests = test_check::tests(raw, &here, report);
    let node = report.tree.nearest(&here);
    let (document, fingerprint) = (document(node), fingerprint(node));
    let program = |text: &Option<String>| text.clone().filter(|t| !t.trim().is_empty() && t.trim() != ".");
    Some(Workflow {
        id: id.into(),
        former_id: raw.former_id.clone().filter(|former| !former.is_empty()),
        index,
        labels: raw.labels.clone(),
        paused: raw.paused.unwrap_or(false),
        source: source?,
        filter: program(&raw.filter),
        transform: program(&raw.transform),
        event_type,
        endpoint: endpoint?,
        delivery,
        retention,
        payload_retention,
        dead_letter_retention: raw.dead_letter_retention.and_then(|k| k.0),
        tests,
        unsupported,
        version: version(&document),
        fingerprint,
        document,
    })
}

/// What is stored of a workflow. Its tests change nothing that runs, and their records may be somebody's data.
fn document(node: &Node) -> String {
    let mut written = node.to_written_json();
    if let Some(keys) = written.as_object_mut() {
        keys.shift_remove("tests");
    }
    written.to_string()
}

/// Differs when anything that runs differs, what references stand for included.
fn fingerprint(node: &Node) -> [u8; 32] {
    let mut resolved = node.without_nulls();
    if let Some(keys) = resolved.as_object_mut() {
        keys.shift_remove("tests");
    }
    Sha256::digest(resolved.to_string().as_bytes()).into()
}

/// 63 bits, so that it fits a bigint and no sequence can hand it out twice.
fn version(document: &str) -> i64 {
    let digest = Sha256::digest(document.as_bytes());
    let head: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    (u64::from_be_bytes(head) >> 1) as i64
}

fn source(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Option<Source> {
    let pointer = format!("{here}/source/topics");
    let names = raw.source.topics.clone().unwrap_or_default();
    let topics = match names.as_slice() {
        [] => {
            report.problem(&pointer, "`source.topics` is missing", "topics: [name], or one ^regex");
            return None;
        }
        [pattern] if pattern.starts_with('^') => {
            if let Err(error) = regex::Regex::new(pattern) {
                let reason =
                    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                report.problem(
                    &format!("{pointer}/0"),
                    format!("`{pattern}` is not a regular expression: {reason}"),
                    TOPIC,
                );
            }
            Topics::Matching(pattern.clone())
        }
        names => {
            for (at, name) in names.iter().enumerate() {
                let valid = !name.is_empty()
                    && name.len() <= 249
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
                if !valid {
                    report.problem(&format!("{pointer}/{at}"), format!("`{name}` is not a topic"), TOPIC);
                }
            }
            Topics::Named(names.to_vec())
        }
    };
    let start_from = match raw.source.start_from.as_deref().unwrap_or("earliest") {
        "earliest" => StartFrom::Earliest,
        "latest" => StartFrom::Latest,
        time => match time.parse::<jiff::Timestamp>() {
            Ok(time) => StartFrom::Time(time.as_millisecond()),
            Err(_) => {
                report.problem(
                    &format!("{here}/source/startFrom"),
                    format!("`{time}` is not a starting point"),
                    "earliest, latest, or an RFC 3339 time such as 2026-01-31T00:00:00Z",
                );
                StartFrom::Earliest
            }
        },
    };
    let format = raw.source.format.unwrap_or(Format::Plain);
    let encoding = raw.source.encoding.unwrap_or(Encoding::Json);
    if format == Format::Debezium && matches!(encoding, Encoding::Text | Encoding::Bytes) {
        report.problem(
            &format!("{here}/source/encoding"),
            "debezium records cannot be text or bytes",
            "json (or avro, protobuf, jsonSchema)",
        );
    }
    if raw.source.max_bytes.is_some_and(|size| size.0 == 0) {
        report.problem(&format!("{here}/source/maxBytes"), "every record would be too large", "1 or more");
    }
    Some(Source {
        topics,
        encoding,
        format,
        start_from,
        on_offset_loss: raw.source.on_offset_loss.unwrap_or(OnOffsetLoss::Halt),
        tombstones: raw.source.tombstones.unwrap_or(Tombstones::Skip),
        on_invalid: raw.source.on_invalid.unwrap_or(OnInvalid::DeadLetter),
        max_bytes: raw.source.max_bytes.map_or(1 << 20, |s| s.0) as usize,
    })
}
