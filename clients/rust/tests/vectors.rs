//! The vectors that all kits share, and what the README shows. Run in the kit's folder.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use oncebox_receiver::{Event, Refused, Secret, TABLE, Unverified, digest_of, read, read_signed, verify};
use serde_json::{Value, json};

fn vectors(part: &str) -> Value {
    let text = std::fs::read_to_string("../vectors.json").expect("vectors");
    serde_json::from_str::<Value>(&text).expect("JSON")[part].take()
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn headers_of(pairs: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for pair in array(pairs) {
        let name: HeaderName = text(&pair[0]).parse().expect("a name");
        headers.append(name, HeaderValue::from_bytes(text(&pair[1]).as_bytes()).expect("a value"));
    }
    headers
}

#[test]
fn secrets() {
    for one in array(&vectors("secrets")) {
        let secret = text(&one["text"]).parse::<Secret>().ok();
        let hex = secret.map(|secret| secret.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        assert_eq!(hex.as_deref(), one["hex"].as_str(), "{}", one["name"]);
    }
}

#[test]
fn a_secret_is_not_shown() {
    assert_eq!(format!("{:?}", "whsec_AAAA".parse::<Secret>()), "Ok(***)");
}

#[test]
fn signatures() {
    for one in array(&vectors("signatures")) {
        let secrets: Vec<Secret> =
            array(&one["secrets"]).iter().map(|secret| text(secret).parse().expect("a secret")).collect();
        let now = UNIX_EPOCH + Duration::from_secs(one["now"].as_u64().expect("seconds"));
        let result = match verify(&secrets, &headers_of(&one["headers"]), text(&one["body"]).as_bytes(), now) {
            Ok(()) => "good",
            Err(Unverified::Unsigned) => "unsigned",
            Err(Unverified::Expired) => "expired",
            Err(Unverified::Wrong) => "wrong",
        };
        assert_eq!(result, one["result"], "{}", one["name"]);
    }
}

#[test]
fn requests() {
    for one in array(&vectors("requests")) {
        let (headers, body) = (headers_of(&one["headers"]), text(&one["body"]).as_bytes());
        for (kind, found) in [("read", read(&headers, body)), ("readSigned", read_signed(&headers, body))] {
            let told = match &found {
                Ok(Event { key, .. }) => json!({"key": key}),
                Err(Refused::NoKey) => json!({"refused": "noKey"}),
                Err(Refused::BadKey) => json!({"refused": "badKey"}),
                Err(Refused::KeysDiffer) => json!({"refused": "keysDiffer"}),
                Err(Refused::BadNumber) => json!({"refused": "badNumber"}),
                Err(Refused::DigestDiffers) => json!({"refused": "digestDiffers"}),
            };
            assert_eq!(told, one[kind], "{}: {kind}", one["name"]);
            if let Ok(Event { digest, event, attempt, fence, source, .. }) = found {
                let fence = fence.map(|fence| fence.to_string());
                let fields =
                    json!({"digest": digest, "event": event, "attempt": attempt, "fence": fence, "source": source});
                assert_eq!(fields, one["fields"], "{}: {kind}", one["name"]);
            }
        }
    }
}

#[test]
fn digests() {
    for one in array(&vectors("digests")) {
        assert_eq!(digest_of(text(&one["body"]).as_bytes()), one["digest"]);
    }
}

#[test]
fn table() {
    let words = |sql: &str| sql.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(TABLE), words(text(&vectors("table"))));
}

#[test]
fn code_in_the_readme_is_code_that_runs() {
    let readme = std::fs::read_to_string("README.md").expect("a readme");
    let sample = std::fs::read_to_string("sample/main.rs").expect("a sample");
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert!(sample.contains(block), "{block}");
    }
}
