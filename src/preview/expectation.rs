//! Enters: what a test expects, and what a record made. Leaves: every difference, with the place of each as a JSON pointer.
//!
//! Only the parts that the test names are compared; of those, everything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::shown::{Body, Shown};
use super::walk::{Ending, Walk};
use crate::config::Expect;
use crate::config::raw_test::RawInstead;
use crate::transform::decode::Output;

/// One place where it is not as expected; nothing where there should be, or is, none.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub path: String,
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

pub fn differences(expect: &Expect, walk: &Walk, shown: &[Shown]) -> Vec<Difference> {
    let mut found = Vec::new();
    let wanted = match expect {
        Expect::Instead(RawInstead::Filtered) => Some(Ending::Filtered),
        Expect::Instead(RawInstead::Tombstone) => Some(Ending::Tombstone),
        Expect::Instead(RawInstead::Invalid) => Some(Ending::Invalid),
        // No event is expected, and a record that becomes a dead letter is another matter.
        Expect::Requests(list) if list.is_empty() && walk.ending == Ending::Tombstone => None,
        Expect::Requests(list) if list.is_empty() => Some(Ending::Filtered),
        Expect::Requests(_) => Some(Ending::Delivered),
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != walk.ending) {
        let (expected, actual) = (Some(wanted.as_str().into()), Some(walk.ending.as_str().into()));
        found.push(Difference { path: "/disposition".to_owned(), expected, actual });
    }
    let Expect::Requests(list) = expect else { return found };
    if walk.ending == Ending::Delivered && list.len() != shown.len() {
        let (expected, actual) = (Some(list.len().into()), Some(shown.len().into()));
        found.push(Difference { path: "/events/length".to_owned(), expected, actual });
    }
    for (index, (parts, (request, output))) in list.iter().zip(shown.iter().zip(&walk.outputs)).enumerate() {
        request_differences(parts, request, output, &format!("/events/{index}"), &mut found);
    }
    found
}

fn request_differences(
    parts: &Map<String, Value>,
    request: &Shown,
    output: &Output,
    path: &str,
    found: &mut Vec<Difference>,
) {
    for (name, expected) in parts {
        let actual = match name.as_str() {
            "data" => Some(data(output)),
            "body" => Some(body(&request.body)),
            "eventType" => Some(request.event_type.clone().into()),
            "idempotencyKey" => Some(request.idempotency_key.clone().into()),
            "method" => Some(request.method.clone().into()),
            "url" => Some(request.url.clone().into()),
            "headers" => {
                for (name, value) in expected.as_object().into_iter().flatten() {
                    let actual = request.headers.get(&name.to_lowercase());
                    let wanted = Some(value).filter(|value| !value.is_null());
                    compare(wanted, actual, &format!("{path}/headers/{name}"), found);
                }
                continue;
            }
            // The shape allows no other name.
            _ => None,
        };
        compare(Some(expected), actual.as_ref(), &format!("{path}/{name}"), found);
    }
}

fn data(output: &Output) -> Value {
    match output {
        Output::Json(text) => serde_json::from_str(text).unwrap_or_default(),
        Output::Text(text) => text.clone().into(),
        Output::Bytes(bytes) => STANDARD.encode(bytes).into(),
    }
}

fn body(body: &Body) -> Value {
    match body {
        Body::Json(raw) => serde_json::from_str(raw.get()).unwrap_or_default(),
        Body::Text(text) | Body::Base64(text) => text.clone().into(),
    }
}

fn compare(expected: Option<&Value>, actual: Option<&Value>, path: &str, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Some(Value::Object(expected)), Some(Value::Object(actual))) => {
            let names = expected.keys().chain(actual.keys().filter(|name| !expected.contains_key(*name)));
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                compare(expected.get(name), actual.get(name), &format!("{path}/{escaped}"), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(actual))) => {
            for index in 0..expected.len().max(actual.len()) {
                compare(expected.get(index), actual.get(index), &format!("{path}/{index}"), found);
            }
        }
        (Some(Value::Number(expected)), Some(Value::Number(actual)))
            // 1 and 1.0 are one number, however they are written.
            if expected.as_f64() == actual.as_f64() && expected.is_f64() != actual.is_f64() => {}
        (expected, actual) if expected == actual => {}
        (expected, actual) => {
            let (expected, actual) = (expected.cloned(), actual.cloned());
            found.push(Difference { path: path.to_owned(), expected, actual });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(expected: &Value, actual: &Value) -> Vec<String> {
        let mut found = Vec::new();
        compare(Some(expected), Some(actual), "", &mut found);
        found.into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn each_difference_has_its_place() {
        let expected = json!({"a": 1, "b": [1, 2], "c": null, "x/y": 1});
        assert!(paths(&expected, &expected).is_empty());
        let actual = json!({"a": 2, "b": [1, 3, 4], "x/y": 2, "d": 5});
        assert_eq!(paths(&expected, &actual), ["/a", "/b/1", "/b/2", "/c", "/x~1y", "/d"]);
    }

    #[test]
    fn numbers_are_equal_by_value_and_never_to_text() {
        assert!(paths(&json!(1), &json!(1.0)).is_empty());
        assert_eq!(paths(&json!(1), &json!("1")), [""]);
        assert_eq!(paths(&json!(9007199254740993_i64), &json!(9007199254740992_i64)), [""]);
    }
}
