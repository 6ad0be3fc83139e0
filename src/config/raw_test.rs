//! The keys below `tests`: a record, and the requests that it must make.
//!
//! Only the shape is here. Values are taken from the tree by `test_check.rs`, because a null means something in them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::raw_workflow::Method;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawTest {
    /// What it shows.
    pub name: String,
    /// The record that is read.
    pub record: RawRecord,
    /// The requests it makes, in order, each by the parts that matter; or what becomes of it instead.
    pub expect: RawExpect,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawRecord {
    /// JSON; text with encoding text; base64 with encoding bytes; null is a tombstone. Required.
    pub value: Option<Value>,
    /// Text as it is, anything else as JSON; base64 with encoding bytes. Default: no key.
    pub key: Option<Value>,
    /// Name to text; null for a header without a value, a list for one that is there several times.
    pub headers: BTreeMap<String, RawHeader>,
    /// Default: the first of source.topics.
    pub topic: Option<String>,
    /// Default 0.
    #[schemars(range(min = 0))]
    pub partition: Option<i32>,
    /// Default 0.
    #[schemars(range(min = 0))]
    pub offset: Option<i64>,
    /// Milliseconds since 1970, or an RFC 3339 time; default: none.
    pub timestamp: Option<RawTime>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "text, or a list of texts")]
pub enum RawHeader {
    One(String),
    Several(Vec<Option<String>>),
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "milliseconds since 1970, or an RFC 3339 time")]
pub enum RawTime {
    Millis(i64),
    Text(String),
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "a list of requests, or filtered, tombstone, invalid")]
pub enum RawExpect {
    Instead(RawInstead),
    Requests(Vec<RawExpected>),
}

/// What becomes of a record that makes no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RawInstead {
    Filtered,
    Tombstone,
    Invalid,
}

/// The parts of one request that a test looks at; a part that is not named may be anything.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawExpected {
    /// The transform's output.
    pub data: Option<Value>,
    /// The whole body: JSON, or text.
    pub body: Option<Value>,
    /// The event's type.
    pub event_type: Option<String>,
    /// The event's key.
    pub idempotency_key: Option<String>,
    /// Those named must have this value; null: must not be there.
    pub headers: BTreeMap<String, String>,
    /// The request's method.
    pub method: Option<Method>,
    /// The request's URL.
    pub url: Option<String>,
}
