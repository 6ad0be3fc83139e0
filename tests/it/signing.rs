//! Signatures end to end: every attempt signs for itself, a rotation loses nothing, the receiver believes only what is
//! signed.

use std::process::{Child, Stdio};
use std::time::Duration;

use oncebox::config::{Secret, SigningKey};
use oncebox::receiver::{Answer, Seen, log};
use oncebox::send::signature::{self, Signed};

use crate::support::process::{Config, command, free_port};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const OLD: &str = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk";
const NEW: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";
const SECRETS: [(&str, &str); 2] = [("OLD", OLD), ("NEW", NEW)];

/// Whether a request verifies now, with this secret alone.
fn verifies(seen: &Seen, secret: &str) -> bool {
    let key = SigningKey::read(&Secret::new(secret)).expect("a secret");
    let signed = Signed {
        id: seen.header("webhook-id"),
        timestamp: seen.header("webhook-timestamp"),
        signature: seen.header("webhook-signature"),
    };
    signature::verify(&[key], signed, &seen.body, jiff::Timestamp::now().as_second()).is_ok()
}

fn timestamp(seen: &Seen) -> i64 {
    seen.header("webhook-timestamp").and_then(|text| text.parse().ok()).expect("a timestamp")
}

#[tokio::test]
async fn a_rotation_is_believed_with_either_secret_and_then_with_the_new_alone() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    // Order 0 fails until the old secret is gone: it is retried across the rotation.
    let receiver = TestReceiver::deciding(|seen| {
        let (old, new) = (verifies(seen, OLD), verifies(seen, NEW));
        match (old, new) {
            (_, false) => Answer::status(401),
            (true, true) if String::from_utf8_lossy(&seen.body).contains("\"id\":0,") => Answer::status(503),
            (true | false, true) => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = "signing: {secrets: [\"${OLD}\", \"${NEW}\"]}".to_owned();
    let mut relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(0..20);
    eventually("all but one are applied", PATIENCE, async || (receiver.applied() == 19).then_some(())).await;
    let overlap = receiver.seen();
    assert!(overlap.iter().all(|seen| verifies(seen, OLD) && verifies(seen, NEW)));
    assert_eq!(overlap[0].header("webhook-id"), Some(overlap[0].key.as_str()));
    assert_eq!(relay.stop().await, Some(0));
    config.endpoint = "signing: {secrets: [\"${NEW}\"]}".to_owned();
    let before = receiver.seen().len();
    let _relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(20..40);
    eventually("all are applied", PATIENCE, async || (receiver.applied() == 40).then_some(())).await;
    let after = &receiver.seen()[before..];
    assert!(after.iter().all(|seen| verifies(seen, NEW) && !verifies(seen, OLD)));
    assert!(receiver.lines().iter().all(|line| line.answer != "401"), "no request was ever doubted");
}

#[tokio::test]
async fn a_retry_is_signed_at_its_own_time_over_the_bytes_that_are_sent() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| match (verifies(seen, NEW), seen.attempt) {
        (false, _) => Answer::status(401),
        (true, 1) => Answer::Status(503, vec![("retry-after".to_owned(), "3".to_owned())]),
        (true, _) => Answer::Process,
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = "signing: {secrets: [\"${NEW}\"]}\n      compression: gzip".to_owned();
    let _relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(0..1);
    eventually("it is applied", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    let seen = receiver.seen();
    assert_eq!(seen.iter().map(|seen| seen.attempt).collect::<Vec<_>>(), [1, 2]);
    let (first, second) = (timestamp(&seen[0]), timestamp(&seen[1]));
    assert!(second >= first + 2, "{first} and {second}: the retry's own time");
    assert_eq!((&seen[0].body, seen[0].header("content-digest")), (&seen[1].body, seen[1].header("content-digest")));
    assert_ne!(seen[0].header("webhook-signature"), seen[1].header("webhook-signature"));
    // What was signed and digested is what travelled: compressed.
    assert_eq!(seen[0].header("content-encoding"), Some("gzip"));
    assert_eq!(seen[0].header("content-digest"), Some(format!("sha-256=:{}:", seen[0].digest).as_str()));
    let mut plain = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&seen[0].body[..]), &mut plain).unwrap();
    assert!(plain.contains("\"eventType\":\"OrderChanged\""), "{plain}");
}

/// `oncebox receiver`, ended with the test.
struct Verifying(Child);

impl Drop for Verifying {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn post(port: u16, headers: &str) -> Option<u16> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request =
        format!("POST /events HTTP/1.1\r\nhost: a\r\n{headers}content-length: 2\r\nconnection: close\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_string(&mut answer)).await.ok()?.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

#[tokio::test]
async fn the_reference_receiver_answers_401_to_what_it_cannot_verify_and_logs_it() {
    let (topic, database, unused) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let folder = tempfile::tempdir().unwrap();
    let (lines, errors) = (folder.path().join("requests"), folder.path().join("errors"));
    let port = free_port();
    let child = command()
        .args(["receiver", "--listen", &format!("127.0.0.1:{port}"), "--secret", "${OLD}", "--secret", "${NEW}"])
        .arg("--log-file")
        .arg(&lines)
        .envs(SECRETS)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn();
    let _receiver = Verifying(child.expect("oncebox starts"));
    eventually("the receiver listens", PATIENCE, async || post(port, "").await).await;

    let mut config = Config::new(&topic, &database, &unused);
    config.url = format!("http://127.0.0.1:{port}/events");
    config.endpoint = "signing: {secrets: [\"${NEW}\"]}".to_owned();
    let _relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(0..10);
    let answered = |answer: &str| log::read(&lines).unwrap().iter().filter(|line| line.answer == answer).count();
    eventually("what is signed is applied", PATIENCE, async || (answered("200") == 10).then_some(())).await;

    let now = jiff::Timestamp::now().as_second();
    let signed = |secret: &str, at: i64| {
        let key = SigningKey::read(&Secret::new(secret)).unwrap();
        let signature = signature::sign(&[key], "msg-1", at, b"{}");
        format!("webhook-id: msg-1\r\nwebhook-timestamp: {at}\r\nwebhook-signature: {signature}\r\n")
    };
    let before = answered("401");
    let strange = "whsec_c3RyYW5nZXJzdHJhbmdlcnN0cmFuZ2Vyc3RyYW5nZXI=";
    assert_eq!(post(port, &signed(OLD, now)).await, Some(200));
    assert_eq!(post(port, &signed(strange, now)).await, Some(401), "another's secret");
    assert_eq!(post(port, &signed(OLD, now - 400)).await, Some(401), "too old");
    assert_eq!(post(port, &signed(OLD, now).replace("msg-1", "msg-2")).await, Some(401), "another id");
    assert_eq!(answered("401") - before, 3);
    // Lines are written by a thread of their own.
    let errors = eventually("both are logged", PATIENCE, async || {
        let said = std::fs::read_to_string(&errors).unwrap();
        (said.contains("no signature fits") && said.contains("too far from now")).then_some(said)
    })
    .await;
    assert!(!errors.contains(&OLD[6..]) && !errors.contains(&NEW[6..]));
}

#[test]
fn a_receivers_secret_that_is_none_is_refused_without_being_printed() {
    let output = command().args(["receiver", "--secret", "hunter2!"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("not base64") && !text.contains("hunter2"), "{text}");
}
