//! Standard Webhooks signatures against the standard's own vectors and its reference library. No services needed.

use std::sync::Arc;

use bytes::Bytes;
use oncebox::config::{Secret, SigningKey, Workflow};
use oncebox::event::{CursorId, Event, Place, SourcePosition};
use oncebox::send::connect::Target;
use oncebox::send::egress::Rules;
use oncebox::send::request::Template;
use oncebox::send::signature::{self, Refusal, Signed};
use proptest::prelude::*;
use serde_json::Value;

fn key(secret: &str) -> SigningKey {
    SigningKey::read(&Secret::new(secret)).expect("a signing secret")
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[test]
fn every_vector_of_the_standard_gives_its_signature() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/standard-webhooks/vectors.json");
    let Ok(text) = std::fs::read_to_string(&file) else {
        use std::io::Write;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let name = "every_vector_of_the_standard_gives_its_signature";
        let _ = file.and_then(|mut file| writeln!(file, "skipped: {name}: no Standard Webhooks vectors here"));
        return;
    };
    let vectors: Value = serde_json::from_str(&text).expect("vectors are JSON");
    let signing = vectors["sign"].as_array().expect("a list");
    assert!(signing.len() >= 2);
    for vector in signing {
        let text = |name: &str| vector[name].as_str().expect("text");
        let timestamp = vector["timestamp"].as_i64().expect("seconds");
        let keys = [key(text("secret"))];
        let signed = signature::sign(&keys, text("id"), timestamp, text("payload").as_bytes());
        assert_eq!(signed, text("signature"), "{}", text("name"));
        // And what the standard says about checking it.
        let written = timestamp.to_string();
        let check = |signature: &str, now: i64| {
            let signed = Signed { id: Some(text("id")), timestamp: Some(&written), signature: Some(signature) };
            signature::verify(&keys, signed, text("payload").as_bytes(), now)
        };
        assert_eq!(check(&format!("v1,AAAA v2,{} {signed}", &signed[3..]), timestamp), Ok(()));
        for wrong in ["v1,", &signed[..11], &signed.replacen("v1", "v2", 1), "v1,AAAA v1,BBBB"] {
            assert_eq!(check(wrong, timestamp), Err(Refusal::Signature), "{wrong}");
        }
        assert_eq!(check(&signed, timestamp + 301), Err(Refusal::Time));
        assert_eq!(check(&signed, timestamp - 301), Err(Refusal::Time));
    }
}

proptest! {
    #[test]
    fn the_reference_library_believes_what_we_sign_and_signs_as_we_do(
        bytes in prop::collection::vec(any::<u8>(), 24..=64), id in "[a-zA-Z0-9_-]{1,63}",
        body in "\\PC{0,200}", prefixed in any::<bool>(),
    ) {
        use base64::Engine as _;
        // The library takes text only; bytes of any kind are signed the same way.
        let body = body.into_bytes();
        let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let secret = if prefixed { format!("whsec_{encoded}") } else { encoded };
        let reference = standardwebhooks::Webhook::new(&secret).expect("a secret");
        let now = now();
        let ours = signature::sign(&[key(&secret)], &id, now, &body);
        prop_assert_eq!(&ours, &reference.sign(&id, now, &body).expect("it signs"));
        let timestamp = now.to_string();
        let mut headers = hyper::HeaderMap::new();
        for (name, value) in [("webhook-id", &id), ("webhook-timestamp", &timestamp), ("webhook-signature", &ours)] {
            headers.insert(name, value.parse().expect("a header"));
        }
        prop_assert!(reference.verify(&body, &headers).is_ok());
        let signed = Signed { id: Some(&id), timestamp: Some(&timestamp), signature: Some(&ours) };
        prop_assert_eq!(signature::verify(&[key(&secret)], signed, &body, now), Ok(()));
    }

    #[test]
    fn no_header_makes_the_receiver_panic(id in ".{0,30}", timestamp in "[-+0-9a ]{0,25}", signature in ".{0,80}") {
        let signed = Signed { id: Some(&id), timestamp: Some(&timestamp), signature: Some(&signature) };
        let keys = [key("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")];
        let refused = signature::verify(&keys, signed, b"[]", now()).is_err();
        prop_assert!(refused);
    }
}

fn workflow(endpoint: &str) -> Arc<Workflow> {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n").expect("written");
    let path = folder.path().join("c.yaml");
    let endpoint = endpoint.replace("SECRET", &format!("${{file:{}}}", secret.display()));
    let yaml = format!(
        "postgres: {{url: \"postgresql://localhost/x\"}}\nworkflows:\n  - id: w\n    source: {{topics: [t]}}\n    endpoint: {{url: \"http://127.0.0.1:1/\", {endpoint}}}\n"
    );
    std::fs::write(&path, yaml).expect("written");
    let loaded = oncebox::config::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::clone(&loaded.config.workflows[0])
}

fn event(body: &str) -> Event {
    Event {
        place: Place { cursor: CursorId(1), offset: 1, index: 0, generation: 0 },
        day: "2026-01-01".parse().expect("a day"),
        source: SourcePosition { topic: "t".into(), partition: 0, offset: 1 },
        key: "orders-abc".to_owned(),
        event_type: "t".to_owned(),
        content_type: "application/json".to_owned(),
        traceparent: None,
        lane: None,
        record_at: None,
        stored_at: 0,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

#[tokio::test]
async fn compressed_bodies_are_the_same_for_every_attempt_and_their_digest_is_of_what_is_sent() {
    use base64::Engine as _;
    use sha2::Digest as _;
    use std::io::Read as _;
    let plain = format!("{{\"text\":\"{}\"}}", "again and ".repeat(200));
    let template = Template::new(&workflow("compression: gzip"));
    let mut sent = Vec::new();
    for attempt in [1, 2] {
        let request = template.request(&event(&plain), attempt, 1);
        assert_eq!(request.header("content-encoding"), Some(&b"gzip"[..]));
        let digest = String::from_utf8(request.header("content-digest").unwrap().to_vec()).unwrap();
        let body = request.body().clone();
        let wanted = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(&body));
        assert_eq!(digest, format!("sha-256=:{wanted}:"));
        sent.push(body);
    }
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].len() < plain.len() / 4, "{} bytes", sent[0].len());
    assert_eq!(&sent[0][4..8], [0; 4], "the header has no time");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&sent[0][..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain);
}

#[test]
fn credentials_print_as_stars() {
    let workflow =
        workflow("signing: {secrets: ['SECRET']}, headers: {X-Key: 'SECRET'}, auth: {bearer: {token: 'SECRET'}}");
    let printed = format!("{:?}", workflow.endpoint);
    assert!(printed.contains("***") && !printed.contains("MDEyMzQ1"), "{printed}");
    assert!(Target::new(&workflow, &Rules::new(Vec::new())).is_ok());
}
