//! Scalar values of the configuration that need more than a JSON type: durations, sizes, statuses, limits.
//!
//! Each has one parser, used by serde and, under a schema format of the same name, by the shape check, so that a bad
//! value is reported with its position and the text of `allowed`.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The formats that the schema names, what each allows, and its parser.
pub const FORMATS: [Format; 5] = [
    Format {
        name: "oncebox-duration",
        allowed: "a duration such as 250ms, 30s, 5m, 1h, 30d or ISO 8601 (PT1H)",
        accepts: |text| parse_duration(text).is_some(),
    },
    Format {
        name: "oncebox-duration-or-empty",
        allowed: "empty, or a duration such as 45s or PT45S",
        accepts: |text| text.is_empty() || parse_duration(text).is_some(),
    },
    Format {
        name: "oncebox-duration-or-never",
        allowed: "never, or a duration such as 90d",
        accepts: |text| text == "never" || parse_duration(text).is_some(),
    },
    Format {
        name: "oncebox-size",
        allowed: "a size such as 64KiB, 1MiB, 4GiB, or a number of bytes",
        accepts: |text| parse_size(text).is_some(),
    },
    Format {
        name: "oncebox-status",
        allowed: "a status from 100 to 599, or a class such as 2xx",
        accepts: |text| StatusMatch::parse(text).is_some(),
    },
];

pub struct Format {
    pub name: &'static str,
    pub allowed: &'static str,
    pub accepts: fn(&str) -> bool,
}

pub fn parse_duration(text: &str) -> Option<Duration> {
    if text.starts_with('P') {
        return parse_iso_duration(text);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let amount: u64 = text[..digits].parse().ok()?;
    let millis_per_unit: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    amount.checked_mul(millis_per_unit).map(Duration::from_millis)
}

/// Months and years have no fixed length, so they are no duration here.
fn parse_iso_duration(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    if span.get_years() != 0 || span.get_months() != 0 || span.is_negative() {
        return None;
    }
    let days = i64::from(span.get_days()) + 7 * i64::from(span.get_weeks());
    let clock = span.days(0).weeks(0).total(jiff::Unit::Second).ok()?;
    Duration::try_from_secs_f64(days as f64 * 86_400.0 + clock).ok()
}

pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let amount: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match &text[digits..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    amount.checked_mul(unit)
}

macro_rules! text_scalar {
    ($name:ident, $inner:ty, $format:literal, $parse:expr) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = Value::deserialize(deserializer)?;
                let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
                let parse: fn(&str) -> Option<$inner> = $parse;
                parse(&text).map(Self).ok_or_else(|| D::Error::custom($format))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": $format})
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

text_scalar!(Span, Duration, "oncebox-duration", parse_duration);
text_scalar!(MaybeSpan, Option<Duration>, "oncebox-duration-or-empty", |text| match text {
    "" => Some(None),
    text => parse_duration(text).map(Some),
});
text_scalar!(Keep, Option<Duration>, "oncebox-duration-or-never", |text| match text {
    "never" => Some(None),
    text => parse_duration(text).map(Some),
});

/// A size in bytes, as text with a unit or as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => parse_size(&text),
            _ => None,
        }
        .map(Self)
        .ok_or_else(|| D::Error::custom("oncebox-size"))
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "format": "oncebox-size", "minimum": 0})
    }

    fn inline_schema() -> bool {
        true
    }
}

/// One entry of `endpoint.answers`: a status, or a class of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMatch {
    Exact(u16),
    Class(u16),
}

impl StatusMatch {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(class) = text.strip_suffix("xx") {
            return class.parse().ok().filter(|c| (1..=5).contains(c)).map(Self::Class);
        }
        text.parse().ok().filter(|s| (100..=599).contains(s)).map(Self::Exact)
    }

    pub fn matches(self, status: u16) -> bool {
        match self {
            Self::Exact(exact) => exact == status,
            Self::Class(class) => status / 100 == class,
        }
    }
}

impl std::fmt::Display for StatusMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(status) => write!(f, "{status}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

impl<'de> Deserialize<'de> for StatusMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
        Self::parse(&text).ok_or_else(|| D::Error::custom("oncebox-status"))
    }
}

impl JsonSchema for StatusMatch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StatusMatch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "format": "oncebox-status", "minimum": 100, "maximum": 599})
    }

    fn inline_schema() -> bool {
        true
    }
}

/// `maxAttempts`: a number that includes the first attempt, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptLimit(pub Option<u32>);

impl<'de> Deserialize<'de> for AttemptLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "unlimited" => Ok(Self(None)),
            Value::Number(number) => number
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n > 0)
                .map(|n| Self(Some(n)))
                .ok_or_else(|| D::Error::custom("a whole number from 1")),
            _ => Err(D::Error::custom("a whole number from 1, or unlimited")),
        }
    }
}

impl JsonSchema for AttemptLimit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AttemptLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number from 1, the first attempt included, or unlimited",
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": u32::MAX}, {"const": "unlimited"}],
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("30d", 2_592_000_000),
            ("PT1H", 3_600_000),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("PT1M30S", 90_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "5 s", "-5s", "1.5h", "P", "PT", "P1M", "P1Y", "-PT1H", "1y", "s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_as_written() {
        assert_eq!(parse_size("1MiB"), Some(1_048_576));
        assert_eq!(parse_size("4GiB"), Some(4_294_967_296));
        assert_eq!(parse_size("12"), Some(12));
        for text in ["", "MiB", "1 MiB", "-1", "99999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn statuses_match_exactly_or_by_class() {
        assert!(StatusMatch::parse("2xx").is_some_and(|m| m.matches(204) && !m.matches(301)));
        assert!(StatusMatch::parse("409").is_some_and(|m| m.matches(409) && !m.matches(408)));
        for text in ["6xx", "0xx", "99", "600", "2XX", "xx", "abc"] {
            assert!(StatusMatch::parse(text).is_none(), "{text}");
        }
    }
}
