//! Enters: a record as people write it, `{"value", "key", "headers", "topic", "partition", "offset", "timestamp"}`. Leaves:
//! the same record as Kafka would give it.
//!
//! The value's JSON is taken as it is written, digit for digit. Only `value` is required; what else is left out has a
//! default that is the same each time, so that a sample always makes the same request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::config::{Encoding, Topics, Workflow};
use crate::event::Record;
use crate::transform::Origin;

/// Stands for a cluster or a topic id that nobody was asked for.
pub const PLACEHOLDER: &str = "preview";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(default)]
    headers: Map<String, Value>,
    topic: Option<String>,
    partition: Option<i32>,
    offset: Option<i64>,
    timestamp: Option<Value>,
}

/// Why a text is not a sample record.
#[derive(Debug, thiserror::Error)]
pub enum BadSample {
    #[error(
        "not a sample record, which is {{\"value\", \"key\", \"headers\", \"topic\", \"partition\", \"offset\", \"timestamp\"}}, all but value optional"
    )]
    Shape(#[source] serde_json::Error),
    #[error("`{part}` must be {needed}")]
    Part { part: String, needed: &'static str },
    #[error("samples of this encoding are not supported yet")]
    Encoding,
}

fn bad(part: &str, needed: &'static str) -> BadSample {
    BadSample::Part { part: part.to_owned(), needed }
}

/// Who the cluster and the topic are, for keys and event ids.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    pub cluster: Option<String>,
    pub topic_id: Option<String>,
}

/// A record, and where it comes from.
#[derive(Debug, Clone)]
pub struct Sample {
    pub record: Record,
    pub origin: Origin,
    /// The topic is one that the workflow reads.
    pub topic_is_read: bool,
}

impl Sample {
    pub fn parse(text: &str, workflow: &Workflow, identity: &Identity) -> Result<Self, BadSample> {
        let written: Written<'_> = serde_json::from_str(text).map_err(BadSample::Shape)?;
        let encoding = workflow.source.encoding;
        let topic = written.topic.clone().unwrap_or_else(|| match &workflow.source.topics {
            Topics::Named(names) => names.first().cloned().unwrap_or_default(),
            Topics::Matching(_) => PLACEHOLDER.to_owned(),
        });
        let given_topic_is_read = match (&written.topic, &workflow.source.topics) {
            (None, _) => true,
            (Some(topic), Topics::Named(names)) => names.contains(topic),
            (Some(topic), Topics::Matching(pattern)) => {
                regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(topic))
            }
        };
        let partition = written.partition.unwrap_or(0);
        let offset = written.offset.unwrap_or(0);
        if partition < 0 || offset < 0 {
            return Err(bad("partition and offset", "0 or more"));
        }
        let stand_in = || PLACEHOLDER.to_owned();
        Ok(Self {
            record: Record {
                offset,
                timestamp: written.timestamp.map(|time| timestamp(&time)).transpose()?,
                key: written.key.map(|key| key_bytes(key, encoding)).transpose()?.flatten(),
                value: value_bytes(written.value, encoding)?,
                headers: headers(&written.headers)?,
            },
            origin: Origin {
                cluster: identity.cluster.clone().unwrap_or_else(stand_in).into(),
                topic: topic.into(),
                topic_id: identity.topic_id.clone().unwrap_or_else(stand_in).into(),
                partition,
            },
            topic_is_read: given_topic_is_read,
        })
    }
}

fn value_bytes(raw: &RawValue, encoding: Encoding) -> Result<Option<Vec<u8>>, BadSample> {
    if raw.get() == "null" {
        return Ok(None);
    }
    let text = || serde_json::from_str::<String>(raw.get()).ok();
    match encoding {
        Encoding::Json => Ok(Some(raw.get().as_bytes().to_vec())),
        Encoding::Text => text()
            .map(|text| Some(text.into_bytes()))
            .ok_or_else(|| bad("value", "text, because source.encoding is text")),
        Encoding::Bytes => text()
            .and_then(|text| STANDARD.decode(text).ok())
            .map(Some)
            .ok_or_else(|| bad("value", "base64, because source.encoding is bytes")),
        Encoding::Avro | Encoding::Protobuf | Encoding::JsonSchema => Err(BadSample::Encoding),
    }
}

/// Text is what most producers write as it is; anything else is JSON.
fn key_bytes(raw: &RawValue, encoding: Encoding) -> Result<Option<Vec<u8>>, BadSample> {
    let text = serde_json::from_str::<String>(raw.get()).ok();
    match (encoding, text) {
        _ if raw.get() == "null" => Ok(None),
        (Encoding::Bytes, text) => text
            .and_then(|text| STANDARD.decode(text).ok())
            .map(Some)
            .ok_or_else(|| bad("key", "base64, because source.encoding is bytes")),
        (_, Some(text)) => Ok(Some(text.into_bytes())),
        (_, None) => Ok(Some(raw.get().as_bytes().to_vec())),
    }
}

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn headers(written: &Map<String, Value>) -> Result<Headers, BadSample> {
    let mut headers = Vec::new();
    for (name, value) in written {
        let several = match value {
            Value::Array(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in several {
            let value = match value {
                Value::Null => None,
                Value::String(text) => Some(text.as_bytes().to_vec()),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    return Err(bad(&format!("headers.{name}"), "text, null, or a list of these"));
                }
            };
            headers.push((name.as_bytes().to_vec(), value));
        }
    }
    Ok(headers)
}

fn timestamp(written: &Value) -> Result<i64, BadSample> {
    let parsed = match written {
        Value::Number(millis) => millis.as_i64(),
        Value::String(text) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    parsed.ok_or_else(|| bad("timestamp", "milliseconds since 1970, or an RFC 3339 time"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample::loaded;

    fn parse(more: &str, text: &str) -> Result<Sample, BadSample> {
        Sample::parse(text, &loaded(more).config.workflows[0], &Identity::default())
    }

    #[test]
    fn a_value_keeps_its_digits_and_null_is_a_tombstone() {
        let sample = parse("", r#"{"value": {"b": 1.10, "a": 12345678901234567890}}"#).unwrap();
        assert_eq!(sample.record.value.unwrap(), br#"{"b": 1.10, "a": 12345678901234567890}"#);
        assert_eq!((&*sample.origin.topic, sample.record.offset, sample.record.timestamp), ("orders", 0, None));
        assert_eq!(parse("", r#"{"value": null}"#).unwrap().record.value, None);
    }

    #[test]
    fn text_and_bytes_are_written_as_text_and_base64() {
        let text = "    source: {encoding: text}\n";
        assert_eq!(parse(text, r#"{"value": "a\nb"}"#).unwrap().record.value.unwrap(), b"a\nb");
        assert!(parse(text, r#"{"value": {"a": 1}}"#).is_err());
        let bytes = "    source: {encoding: bytes}\n";
        let sample = parse(bytes, r#"{"value": "/wA=", "key": "/w=="}"#).unwrap();
        assert_eq!((sample.record.value.unwrap(), sample.record.key.unwrap()), (b"\xff\0".to_vec(), b"\xff".to_vec()));
        assert!(parse(bytes, r#"{"value": "not base64!"}"#).is_err());
    }

    #[test]
    fn keys_headers_and_times_read_as_people_write_them() {
        let key = |text: &str| parse("", &format!(r#"{{"value": 1, "key": {text}}}"#)).unwrap().record.key;
        assert_eq!(key(r#""order-7""#).unwrap(), b"order-7");
        assert_eq!(key(r#"{"id": 7}"#).unwrap(), br#"{"id": 7}"#);
        assert_eq!(key("null"), None);
        let sample =
            parse("", r#"{"value": 1, "headers": {"a": ["x", null], "b": "y"}, "timestamp": "1970-01-01T00:00:01Z"}"#);
        let record = sample.unwrap().record;
        let values: Vec<_> = record.headers.iter().map(|(_, value)| value.as_deref()).collect();
        assert_eq!(values, [Some(b"x".as_slice()), None, Some(b"y")]);
        assert_eq!(record.timestamp, Some(1000));
    }

    #[test]
    fn what_is_not_a_sample_is_refused() {
        for text in ["", "1", "{}", r#"{"key": 1}"#, r#"{"value": 1, "valu": 2}"#, r#"{"value": 1, "offset": -1}"#] {
            assert!(parse("", text).is_err(), "{text}");
        }
        assert!(!parse("", r#"{"value": 1, "topic": "others"}"#).unwrap().topic_is_read);
    }
}
