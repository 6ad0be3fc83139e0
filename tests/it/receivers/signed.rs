//! Signatures that are made by hand here: good ones, and every kind of bad one. Those of Oncebox: signed_delivery.rs.

use std::time::{SystemTime, UNIX_EPOCH};

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;

use super::books::Books;
use super::example::{Example, Language, credit, request};
use crate::support::wire;

pub const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const STRANGER: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn signature(secret: &str, key: &str, timestamp: u64, body: &str) -> String {
    let secret = openssl::base64::decode_block(secret.trim_start_matches("whsec_")).expect("base64");
    let secret = PKey::hmac(&secret).expect("a key");
    let mut signer = Signer::new(MessageDigest::sha256(), &secret).expect("SHA-256");
    let signed = signer.sign_oneshot_to_vec(format!("{key}.{timestamp}.{body}").as_bytes()).expect("a signature");
    format!("v1,{}", openssl::base64::encode_block(&signed))
}

#[test]
fn signatures_made_here_are_those_of_standard_webhooks() {
    // The worked example that the Standard Webhooks libraries are tested with.
    let made = signature(OLD, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
    assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

pub async fn only_good_signatures_are_let_in(language: Language) {
    let Some(program) = language.program() else { return };
    let books = Books::open().await;
    let example = Example::start(program, &books, &format!("{OLD} {NEW}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let body = credit("a", 10);
    let send = async |key: &str, timestamp: &str, signatures: &str, body: &str| {
        // The other key header is not signed, and not asked.
        let headers = [
            ("webhook-id", key),
            ("idempotency-key", "\"another\""),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signatures),
        ];
        wire::ask(example.address, &request(&headers, body)).await.status
    };
    let at = |moved: i64| (now.saturating_add_signed(moved), now.saturating_add_signed(moved).to_string());
    let (second, written) = at(0);
    let good = signature(NEW, "one", second, &body);

    for (why, key, timestamp, signatures, body) in [
        ("another's secret", "one", written.as_str(), signature(STRANGER, "one", second, &body), body.as_str()),
        ("another key", "two", &written, good.clone(), &body),
        ("another time", "one", &at(-1).1, good.clone(), &body),
        ("another body", "one", &written, good.clone(), &credit("a", 11)),
        ("the same JSON in other bytes", "one", &written, good.clone(), &format!("{body} ")),
        ("too old", "one", &at(-400).1, signature(NEW, "one", at(-400).0, &body), &body),
        ("too new", "one", &at(400).1, signature(NEW, "one", at(400).0, &body), &body),
        ("no time", "one", "soon", good.clone(), &body),
        ("another version", "one", &written, good.replace("v1,", "v2,"), &body),
        ("no version", "one", &written, good.replace("v1,", ""), &body),
        ("cut off", "one", &written, good[..good.len() - 4].to_owned(), &body),
        ("none", "one", &written, String::new(), &body),
    ] {
        assert_eq!(send(key, timestamp, &signatures, body).await, 401, "{why}");
    }
    assert_eq!(example.post("one", &body).await.status, 401, "no headers at all");
    assert!(books.keys().await.is_empty(), "nothing was let in");

    // While secrets are changed, one of several is enough, on either side.
    let stranger = signature(STRANGER, "one", second, &body);
    for signatures in
        [good.clone(), signature(OLD, "one", second, &body), format!("{stranger} {good}"), format!("{good} {stranger}")]
    {
        assert_eq!(send("one", &written, &signatures, &body).await, 200, "{signatures}");
    }
    // Clocks differ a little.
    let (earlier, text) = at(-200);
    assert_eq!(send("two", &text, &signature(NEW, "two", earlier, &body), &body).await, 200);
    assert_eq!(books.keys().await.into_iter().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(books.balance("a").await, 20);
}
