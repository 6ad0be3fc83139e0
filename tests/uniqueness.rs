//! Uniqueness keys against their golden vectors, on which two other implementations agree; canonical JSON and durations against the
//! vectors of their standards, where those are at hand. No services needed.

use oncebox::config::raw_delivery::RawUnique;
use oncebox::config::{UniquePolicy, is_duration};
use oncebox::transform::canonical::Canonical;
use oncebox::transform::unique::{Dimensions, Meta, canonical, fingerprint};
use serde_json::Value;

fn policy(value: &Value) -> Result<UniquePolicy, String> {
    let raw: RawUnique = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    UniquePolicy::check(&raw).map_err(|wrong| format!("{wrong:?}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../docs/uniqueness-vectors.json")).expect("vectors are JSON")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// The job that policies are tried on: the first vector's.
fn sample(vectors: &Value) -> Value {
    vectors["vectors"][0]["job"].clone()
}

fn key(job: &Value, rules: &Value) -> Result<(String, String), String> {
    let policy = policy(rules)?;
    let (args, meta) = (job["args"].to_string(), job["meta"].to_string());
    let text = |name: &str| job[name].as_str().expect("text").to_owned();
    let (event_type, queue) = (text("type"), text("queue"));
    let event = Dimensions { event_type: &event_type, queue: &queue, args: &args, meta: Meta::Json(&meta) };
    let written = canonical(&policy, &event).map_err(|error| error.to_string())?;
    let hash = fingerprint(&policy, &event).map_err(|error| error.to_string())?;
    Ok((String::from_utf8(written).expect("JSON is UTF-8"), hex(&hash)))
}

#[test]
fn every_golden_vector_gives_its_key() {
    let all = vectors();
    assert!(list(&all["vectors"]).len() >= 24);
    for vector in list(&all["vectors"]) {
        let (written, hash) = key(&vector["job"], &vector["policy"]).expect("a key");
        assert_eq!(written, vector["canonical_utf8"].as_str().expect("text"), "{}", vector["name"]);
        assert_eq!(hash, vector["sha256"].as_str().expect("text"), "{}", vector["name"]);
    }
}

#[test]
fn policies_and_data_that_mean_nothing_are_refused_and_others_are_not() {
    let all = vectors();
    let job = sample(&all);
    for case in list(&all["reject_policy"]) {
        assert!(key(&job, &case["policy"]).is_err(), "{}", case["why"]);
    }
    for case in list(&all["accept_policy"]) {
        assert!(key(&job, &case["policy"]).is_ok(), "{}: {:?}", case["why"], key(&job, &case["policy"]));
    }
    let whole = policy(&serde_json::json!({"keys": ["args"]})).expect("a policy");
    for case in list(&all["reject_data"]) {
        let args = case["raw_args"].as_str().expect("text");
        let event = Dimensions { event_type: "t", queue: "q", args, meta: Meta::Json("{}") };
        assert!(fingerprint(&whole, &event).is_err(), "{}", case["why"]);
    }
}

fn shared(test: &str, file: &str) -> Option<String> {
    use std::io::Write as _;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors").join(file);
    if let Ok(text) = std::fs::read_to_string(path) {
        return Some(text);
    }
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log);
    let _ = log.and_then(|mut log| writeln!(log, "skipped: {test}: no {file} here"));
    None
}

#[test]
fn canonical_json_is_that_of_rfc_8785() {
    for name in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let test = "canonical_json_is_that_of_rfc_8785";
        let Some(input) = shared(test, &format!("jcs/testdata/input/{name}.json")) else { return };
        let Some(wanted) = shared(test, &format!("jcs/testdata/output/{name}.json")) else { return };
        // NFC comes first here: a text that the standard leaves as it is may change.
        let mut written = Vec::new();
        Canonical::of(&input).unwrap_or_else(|error| panic!("{name}: {error}")).write(&mut written);
        let mut normal = Vec::new();
        Canonical::of(&wanted).unwrap_or_else(|error| panic!("{name}: {error}")).write(&mut normal);
        assert_eq!(String::from_utf8(written), String::from_utf8(normal), "{name}");
        if !["unicode", "weird"].contains(&name) {
            let mut again = Vec::new();
            Canonical::of(&input).expect("it was read before").write(&mut again);
            assert_eq!(String::from_utf8(again).expect("UTF-8"), wanted.trim_end(), "{name}");
        }
    }
}

#[test]
fn numbers_are_written_as_ecmascript_writes_them() {
    let Some(text) = shared("numbers_are_written_as_ecmascript_writes_them", "jcs/es6testfile-1000.txt") else {
        return;
    };
    let mut read = 0;
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (bits, wanted) = line.split_once(',').expect("bits and text");
        let number = f64::from_bits(u64::from_str_radix(bits, 16).expect("hexadecimal"));
        if !number.is_finite() {
            continue;
        }
        // With a point, so that it is read as a double, whatever its size.
        let mut written = Vec::new();
        Canonical::of(&format!("{number:e}")).expect("a number").write(&mut written);
        assert_eq!(String::from_utf8(written).expect("UTF-8"), wanted, "{bits}");
        read += 1;
    }
    assert!(read > 900, "{read} numbers");
}

#[test]
fn durations_are_those_of_the_json_schema_test_suite() {
    let name = "iso8601-duration/duration.json";
    let Some(text) = shared("durations_are_those_of_the_json_schema_test_suite", name) else { return };
    let groups: Value = serde_json::from_str(&text).expect("JSON");
    let cases = list(&groups).iter().flat_map(|group| list(&group["tests"]));
    let mut read = 0;
    for case in cases.filter(|case| case["data"].is_string()) {
        let duration = case["data"].as_str().expect("text");
        assert_eq!(Some(is_duration(duration)), case["valid"].as_bool(), "{duration:?}: {}", case["description"]);
        read += 1;
    }
    assert!(read > 40, "{read} durations");
}
