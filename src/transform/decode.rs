//! Enters: a record's value. Leaves: the decoded value, checked: valid JSON, not too deep, or valid UTF-8.
//!
//! JSON is checked but not parsed here: pass-through sends the bytes as they came. Nesting is checked before any parser
//! sees the bytes, because parsers recurse and a stack overflow kills the process.

use serde_json::value::RawValue;

use super::Rejection;
use crate::config::Encoding;

pub const DEEPEST: usize = 128;

/// A decoded value; `Json` is the text of one valid JSON value.
#[derive(Debug, Clone, Copy)]
pub enum Decoded<'a> {
    Json(&'a str),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// What an event carries: one output of the transform, or the value itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Json(String),
    Text(String),
    Bytes(Vec<u8>),
}

impl<'a> Decoded<'a> {
    /// A record without a value is JSON's null.
    pub fn new(value: Option<&'a [u8]>, encoding: Encoding) -> Result<Self, Rejection> {
        let Some(value) = value else { return Ok(Self::Json("null")) };
        match encoding {
            Encoding::Text => {
                std::str::from_utf8(value).map(Self::Text).map_err(|source| Rejection::NotUtf8 { source })
            }
            Encoding::Bytes => Ok(Self::Bytes(value)),
            // The registry's encodings are refused at load until they are built.
            Encoding::Json | Encoding::Avro | Encoding::Protobuf | Encoding::JsonSchema => checked_json(value),
        }
    }

    pub fn json_text(&self) -> &'a str {
        match self {
            Self::Json(text) => text,
            Self::Text(_) | Self::Bytes(_) => "null",
        }
    }

    /// The same value without Debezium's schema/payload wrapper.
    #[must_use]
    pub fn unwrapped(self, inner: &'a str) -> Self {
        match self {
            Self::Json(_) => Self::Json(inner),
            Self::Text(_) | Self::Bytes(_) => self,
        }
    }

    pub fn pass_through(&self) -> Output {
        match self {
            Self::Json(text) => Output::Json((*text).to_owned()),
            Self::Text(text) => Output::Text((*text).to_owned()),
            Self::Bytes(bytes) => Output::Bytes(bytes.to_vec()),
        }
    }
}

fn checked_json(value: &[u8]) -> Result<Decoded<'_>, Rejection> {
    if deeper_than(value, DEEPEST) {
        return Err(Rejection::TooDeep { most: DEEPEST });
    }
    let raw: &RawValue = serde_json::from_slice(value).map_err(|source| Rejection::NotJson { source })?;
    Ok(Decoded::Json(raw.get()))
}

/// Counts open brackets outside strings. Broken JSON may be counted wrong; the parser refuses it afterwards.
pub fn deeper_than(json: &[u8], most: usize) -> bool {
    // So few cannot nest deeper, wherever they are; that much is counted many bytes at a time.
    let opening = |part: &[u8]| part.iter().map(|byte| u8::from(matches!(byte, b'[' | b'{'))).sum::<u8>();
    if json.chunks(255).map(|part| usize::from(opening(part))).sum::<usize>() <= most {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > most {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Valid JSON without the white space between its tokens: two writings of one value that differ only there are equal.
pub fn minified(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|c| {
            let keep = in_string || !matches!(c, ' ' | '\t' | '\n' | '\r');
            match c {
                _ if escaped => escaped = false,
                '\\' if in_string => escaped = true,
                '"' => in_string = !in_string,
                _ => {}
            }
            keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_strings_only() {
        assert!(!deeper_than(br#"{"a":"[[[[","b":"\"[["}"#, 1));
        assert!(deeper_than(b"[[[]]]", 2));
        assert!(!deeper_than(b"[[],[],[]]", 2));
        let bomb = vec![b'['; 100_000];
        assert!(deeper_than(&bomb, 99_999) && !deeper_than(&bomb, 100_000));
        assert!(deeper_than(&bomb, DEEPEST));
    }

    #[test]
    fn minifying_keeps_strings_and_digits() {
        assert_eq!(minified("{ \"a b\" : [ 1.10 , \"x \\\" y\" ] }"), r#"{"a b":[1.10,"x \" y"]}"#);
    }

    #[test]
    fn broken_values_are_rejected_not_guessed() {
        for value in ["", "{", "[1,]", "{'a':1}", "NaN", "01", "1 2", "# c\n1", "\"\u{1}\""] {
            let result = Decoded::new(Some(value.as_bytes()), Encoding::Json);
            assert!(matches!(result, Err(Rejection::NotJson { .. })), "{value:?} gave {result:?}");
        }
        assert!(matches!(Decoded::new(Some(b"\xff"), Encoding::Text), Err(Rejection::NotUtf8 { .. })));
        assert!(Decoded::new(Some(b"\xff"), Encoding::Bytes).is_ok());
    }
}
