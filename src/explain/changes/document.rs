//! One workflow as it is written, read with the defaults of what it leaves out, so that writing a default down is no
//! change. Values are text in one form each: two ways to write one duration are equal.

use std::time::Duration;

use serde_json::Value;

use crate::config::scalar::{parse_duration, parse_size};
use crate::config::shown::{shown_duration, shown_size};

/// What a workflow that names no format has for plain records.
pub const COORDINATES: &str = "the Kafka coordinates";
const DEBEZIUM_FORMAT: &str = "{database}:{table}:{primaryKey}:{changeVersion}";

pub struct Document<'a> {
    id: &'a str,
    value: &'a Value,
}

impl<'a> Document<'a> {
    pub fn new(id: &'a str, value: &'a Value) -> Self {
        Self { id, value }
    }

    pub fn get(&self, pointer: &str) -> Option<&'a Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    pub fn id(&self) -> &'a str {
        self.id
    }

    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// A scalar as text; empty text is as good as not written.
    pub fn text(&self, pointer: &str, default: &str) -> String {
        let written = self.get(pointer).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        written.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    }

    pub fn span(&self, pointer: &str, default: &str) -> String {
        let text = self.text(pointer, default);
        parse_duration(&text).map_or(text, shown_duration)
    }

    /// The duration itself; nothing when a reference stands there.
    pub fn duration(&self, pointer: &str) -> Option<Duration> {
        parse_duration(&self.text(pointer, ""))
    }

    pub fn size(&self, pointer: &str, default: &str) -> String {
        let text = self.text(pointer, default);
        parse_size(&text).map_or(text, shown_size)
    }

    /// Statuses, in order, each once.
    pub fn statuses(&self, pointer: &str, default: &str) -> String {
        let Some(Value::Array(items)) = self.get(pointer) else { return default.to_owned() };
        let mut texts: Vec<String> = items.iter().map(plain).collect();
        texts.sort();
        texts.dedup();
        if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
    }

    /// A list or a map, in one line.
    pub fn whole(&self, pointer: &str, default: &str) -> String {
        let empty = |value: &Value| match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.values().all(Value::is_null),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        self.get(pointer).filter(|value| !empty(value)).map_or_else(|| default.to_owned(), plain)
    }

    pub fn guarantee(&self) -> String {
        self.text("/delivery/guarantee", "idempotent-keys")
    }

    pub fn mechanism(&self) -> String {
        let default = match self.guarantee().as_str() {
            "at-least-once" => "kafka-offsets",
            "idempotent-keys" => "generated-keys",
            _ => "transactional-outbox",
        };
        self.text("/delivery/mechanism", default)
    }

    pub fn is_debezium(&self) -> bool {
        self.text("/source/format", "plain") == "debezium"
    }

    /// What the key is made of: the fields, in order. The text between them has no meaning.
    pub fn key_format(&self) -> String {
        let debezium = self.is_debezium();
        let of_changes = match self.get("/delivery/deduplication/keyFields") {
            Some(Value::Array(items)) => {
                let named = items.iter().map(|item| format!("{{{}}}", plain(item).trim_matches(['{', '}'])));
                Some(named.collect::<String>())
            }
            _ => None,
        };
        let default = if debezium { DEBEZIUM_FORMAT } else { COORDINATES };
        let written = self.text("/delivery/idempotencyKey/format", of_changes.as_deref().unwrap_or(default));
        // Without a Debezium envelope this format has nothing to name.
        if written == COORDINATES || written == DEBEZIUM_FORMAT && !debezium {
            return COORDINATES.to_owned();
        }
        let named = written.split('{').skip(1).filter_map(|part| part.split_once('}'));
        let mut fields: Vec<&str> = named.map(|(name, _)| name).collect();
        // As `Format` completes them.
        for needed in ["primaryKey", "changeVersion"] {
            if debezium && !fields.contains(&needed) {
                fields.push(needed);
            }
        }
        fields.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(":")
    }

    /// A renamed workflow keeps the keys of the one it takes over.
    pub fn namespace(&self) -> String {
        let own = self.text("/formerId", self.id);
        self.text("/delivery/idempotencyKey/namespace", &own)
    }

    pub fn max_attempts(&self) -> String {
        match self.text("/delivery/retries/enabled", "true").as_str() {
            "false" => "1".to_owned(),
            _ => self.text("/delivery/retries/maxAttempts", "unlimited"),
        }
    }

    /// The delays, in whichever of their three forms they are written.
    pub fn backoff(&self) -> String {
        let list = |items: &[Value], unit: &str| {
            let shown = |item: &Value| {
                let text = format!("{}{unit}", plain(item));
                parse_duration(&text).map_or(text, shown_duration)
            };
            items.iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        if let Some(Value::Array(items)) = self.get("/delivery/retries/backoffMs") {
            return list(items, "ms");
        }
        match self.get("/delivery/retries/backoff") {
            Some(Value::Array(items)) => list(items, ""),
            _ => {
                let part = |name: &str, default| self.span(&format!("/delivery/retries/backoff/{name}"), default);
                let factor = self.text("/delivery/retries/backoff/multiplier", "2");
                let factor = factor.parse::<f64>().map_or(factor, |number| number.to_string());
                format!("from {} times {factor} to {}", part("initial", "1s"), part("max", "10m"))
            }
        }
    }
}

/// A value in one line, text without its quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => {
            let mut parts: Vec<String> = entries
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| format!("{name}: {}", plain(value)))
                .collect();
            parts.sort();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
