//! Enters: JSON text. Leaves: the same value in its one canonical form.
//!
//! RFC 8785, with two differences: every name and text is brought to NFC before names are sorted, and whole numbers beyond 2^53 are
//! written digit for digit, where the standard would make neighbours equal. What is said twice, or cannot be said exactly, is refused.

use std::cmp::Ordering;

use unicode_normalization::UnicodeNormalization as _;

/// Whole numbers up to this many are exact wherever they are read.
const EXACT: u64 = 1 << 53;

/// A value in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canonical {
    /// null, true, false, or a number, as they are written.
    Plain(String),
    Text(String),
    List(Vec<Canonical>),
    /// Sorted by name.
    Map(Vec<(String, Canonical)>),
}

/// Why a value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    #[error("the name `{0}` is there twice")]
    Twice(String),
    #[error("a text has half of a surrogate pair")]
    Surrogate,
    #[error("the number {0} is beyond all doubles")]
    TooLarge(String),
    #[error("it is not JSON")]
    NotJson,
}

impl Canonical {
    pub fn text(text: &str) -> Self {
        Self::Text(text.nfc().collect())
    }

    /// Of JSON text that is not nested too deeply.
    pub fn of(json: &str) -> Result<Self, NotCanonical> {
        let mut reader = Reader { rest: json.trim_ascii_start() };
        let value = reader.value()?;
        if reader.rest.is_empty() { Ok(value) } else { Err(NotCanonical::NotJson) }
    }

    /// A map of these names and values; none may be there twice.
    pub fn map(mut entries: Vec<(String, Self)>) -> Result<Self, NotCanonical> {
        // By UTF-16 code units, not by characters: they differ beyond U+FFFF.
        entries.sort_by(|(a, _), (b, _)| by_utf16(a, b));
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(NotCanonical::Twice(pair[0].0.clone())),
            None => Ok(Self::Map(entries)),
        }
    }

    /// What stands under a name, if this is a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let name: String = name.nfc().collect();
        match self {
            Self::Map(entries) => entries.iter().find(|(known, _)| *known == name).map(|(_, value)| value),
            Self::Plain(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => write_text(out, text),
            Self::List(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Map(entries) => {
                out.push(b'{');
                for (at, (name, value)) in entries.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_text(out, name);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// serde_json escapes just what the standard does, in the same way.
fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing text to memory cannot fail");
}

fn by_utf16(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

fn number(text: &str) -> Result<String, NotCanonical> {
    let is_whole = !text.contains(['.', 'e', 'E']);
    let digits = text.trim_start_matches('-');
    if is_whole && (digits.len() > 16 || digits.parse::<u64>().is_ok_and(|n| n >= EXACT)) {
        return Ok(text.to_owned());
    }
    let value: f64 = text.parse().map_err(|_| NotCanonical::NotJson)?;
    if !value.is_finite() {
        return Err(NotCanonical::TooLarge(text.to_owned()));
    }
    Ok(ryu_js::Buffer::new().format_finite(value).to_owned())
}

/// Reads from the front. Escapes and white space are JSON's; that the rest is JSON too is known before, as a rule.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Canonical, NotCanonical> {
        let value = match self.rest.bytes().next() {
            Some(b'{') => self.map(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(Canonical::Text),
            Some(_) => self.plain(),
            None => Err(NotCanonical::NotJson),
        }?;
        self.rest = self.rest.trim_ascii_start();
        Ok(value)
    }

    fn takes(&mut self, byte: char) -> bool {
        match self.rest.strip_prefix(byte) {
            Some(rest) => {
                self.rest = rest.trim_ascii_start();
                true
            }
            None => false,
        }
    }

    fn map(&mut self) -> Result<Canonical, NotCanonical> {
        let mut entries = Vec::new();
        self.takes('{');
        while !self.takes('}') {
            if !entries.is_empty() && !self.takes(',') {
                return Err(NotCanonical::NotJson);
            }
            let name = self.string()?;
            self.rest = self.rest.trim_ascii_start();
            if !self.takes(':') {
                return Err(NotCanonical::NotJson);
            }
            entries.push((name, self.value()?));
        }
        Canonical::map(entries)
    }

    fn list(&mut self) -> Result<Canonical, NotCanonical> {
        let mut items = Vec::new();
        self.takes('[');
        while !self.takes(']') {
            if !items.is_empty() && !self.takes(',') {
                return Err(NotCanonical::NotJson);
            }
            items.push(self.value()?);
        }
        Ok(Canonical::List(items))
    }

    fn string(&mut self) -> Result<String, NotCanonical> {
        let bytes = self.rest.as_bytes();
        if bytes.first() != Some(&b'"') {
            return Err(NotCanonical::NotJson);
        }
        let mut at = 1;
        while *bytes.get(at).ok_or(NotCanonical::NotJson)? != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        let (quoted, rest) = self.rest.split_at(at + 1);
        self.rest = rest;
        // It was JSON before: what serde_json refuses of it is half of a pair.
        let text: String = serde_json::from_str(quoted).map_err(|_| NotCanonical::Surrogate)?;
        Ok(text.nfc().collect())
    }

    fn plain(&mut self) -> Result<Canonical, NotCanonical> {
        let end = self.rest.find([',', ']', '}', ' ', '\t', '\n', '\r']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "null" | "true" | "false" => Ok(Canonical::Plain(word.to_owned())),
            word if word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => number(word).map(Canonical::Plain),
            _ => Err(NotCanonical::NotJson),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(json: &str) -> Result<String, NotCanonical> {
        let mut out = Vec::new();
        Canonical::of(json)?.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn one_value_has_one_form() {
        for (json, wanted) in [
            (
                r#" { "b" : 1 , "a" : [ 1.0 , -0 , 1e3 , 0.000001, 1e-7, 1e21 ] } "#,
                r#"{"a":[1,0,1000,0.000001,1e-7,1e+21],"b":1}"#,
            ),
            (r#"{"e\u0301":"e\u0301"}"#, "{\"\u{e9}\":\"\u{e9}\"}"),
            (
                r#"[9007199254740991,9007199254740992,9007199254740993,-9007199254740993]"#,
                "[9007199254740991,9007199254740992,9007199254740993,-9007199254740993]",
            ),
            (
                r#"[18446744073709551616, 123456789012345678901234567890]"#,
                "[18446744073709551616,123456789012345678901234567890]",
            ),
            (r#""\u0000\u001f\b\/\"""#, r#""\u0000\u001f\b/\"""#),
            ("{}", "{}"),
            ("[]", "[]"),
            // U+1F600 sorts before U+FFEE by UTF-16.
            ("{\"\u{ffee}\":1,\"\u{1f600}\":2}", "{\"\u{1f600}\":2,\"\u{ffee}\":1}"),
        ] {
            assert_eq!(written(json).as_deref(), Ok(wanted), "{json}");
        }
    }

    #[test]
    fn what_cannot_be_said_once_and_exactly_is_refused() {
        assert_eq!(written(r#"{"a":1,"a":2}"#), Err(NotCanonical::Twice("a".to_owned())));
        assert_eq!(written(r#"{"\u00e9":1,"e\u0301":2}"#), Err(NotCanonical::Twice("\u{e9}".to_owned())));
        assert_eq!(written(r#"{"a":"\ud800"}"#), Err(NotCanonical::Surrogate));
        assert_eq!(written("[1e400]"), Err(NotCanonical::TooLarge("1e400".to_owned())));
        for broken in ["", "{", "[1 2]", r#"{"a" 1}"#, "nul", "{1:2}", r#"{"a":1}x"#] {
            assert!(written(broken).is_err(), "{broken}");
        }
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            (-(1i64 << 53)..(1i64 << 53)).prop_map(Into::into),
            any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Into::into),
            // Without marks: the other implementation knows nothing of NFC.
            "[a-zA-Z0-9 \u{1f600}-\u{1f64f}\u{ffee}\\\\\"\u{0}-\u{1f}]{0,8}"
                .prop_map(|text| text.nfc().collect::<String>().into()),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::hash_map("[a-z\u{1f600}\u{ffee}]{0,4}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(value in value()) {
            let wanted = serde_json_canonicalizer::to_string(&value).unwrap();
            prop_assert_eq!(written(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), wanted);
        }
    }
}
