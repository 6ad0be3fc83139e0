//! Enters: the tests of a workflow, which have the right shape. Leaves: the same with every null as it was written.

use serde_json::{Map, Value};

use super::check::Report;
use super::node::Node;
use super::problem::Place;
use super::raw_test::{RawExpect, RawInstead, RawTest, RawTime};
use super::raw_workflow::{Encoding, RawWorkflow};

/// One of a workflow's `tests`.
#[derive(Debug, Clone)]
pub struct Test {
    pub name: String,
    pub place: Place,
    /// `{"value", "key", "headers", "topic", "partition", "offset", "timestamp"}`.
    pub record: Value,
    pub expect: Expect,
}

#[derive(Debug, Clone)]
pub enum Expect {
    /// One map per request, with the parts that are compared.
    Requests(Vec<Map<String, Value>>),
    Instead(RawInstead),
}

pub fn tests(raw: &RawWorkflow, here: &str, report: &mut Report<'_>) -> Vec<Test> {
    let encoding = raw.source.encoding.unwrap_or(Encoding::Json);
    raw.tests.iter().enumerate().map(|(at, one)| test(one, encoding, &format!("{here}/tests/{at}"), report)).collect()
}

fn test(raw: &RawTest, encoding: Encoding, here: &str, report: &mut Report<'_>) -> Test {
    let node = report.tree.nearest(here);
    let place = node.place.clone();
    let record = node.get("record").map(Node::to_json).unwrap_or_default();
    let expect = match &raw.expect {
        RawExpect::Instead(instead) => Expect::Instead(*instead),
        RawExpect::Requests(_) => {
            let items = node.get("expect").map(Node::items).unwrap_or_default();
            Expect::Requests(items.iter().map(|item| item.to_json().as_object().cloned().unwrap_or_default()).collect())
        }
    };
    check_record(&record, raw, encoding, here, report);
    Test { name: raw.name.clone(), place, record, expect }
}

fn check_record(record: &Value, raw: &RawTest, encoding: Encoding, here: &str, report: &mut Report<'_>) {
    let as_text = match encoding {
        Encoding::Text => Some("text, as encoding says"),
        Encoding::Bytes => Some("base64, as encoding says"),
        Encoding::Json | Encoding::Avro | Encoding::Protobuf | Encoding::JsonSchema => None,
    };
    match (record.get("value"), as_text) {
        (None, _) => report.problem(&format!("{here}/record"), "`value` is missing", "a value; null is a tombstone"),
        (Some(Value::Null | Value::String(_)), _) | (Some(_), None) => {}
        (Some(_), Some(allowed)) => {
            report.problem(&format!("{here}/record/value"), "this value cannot be sent", allowed);
        }
    }
    if let Some(RawTime::Text(text)) = &raw.record.timestamp
        && text.parse::<jiff::Timestamp>().is_err()
    {
        report.problem(
            &format!("{here}/record/timestamp"),
            format!("`{text}` is not a time"),
            "milliseconds since 1970, or an RFC 3339 time such as 2026-01-31T00:00:00Z",
        );
    }
}
