//! How much is taken of what callers give over HTTP: bodies of some length, so many at the same time, and events until too many wait.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, wire};

const PATH: &str = "/v1/workflows/orders/events";
const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A request of which only the head was sent.
async fn begun(relay: &Relay, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", relay.port)).await.expect("the relay listens");
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a request");
    stream
}

/// One of this length, which is told to go on before its body is sent.
async fn announced(relay: &Relay, length: usize) -> TcpStream {
    begun(relay, &format!("content-length: {length}\r\nexpect: 100-continue\r\n")).await
}

async fn is_told_to_go_on(stream: &mut TcpStream) -> bool {
    let mut told = [0; GO_ON.len()];
    stream.read_exact(&mut told).await.expect("an answer");
    told == *GO_ON
}

async fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}")))
}

async fn in_chunks(relay: &Relay, body: &str) -> (u16, Value) {
    let mut stream = begun(relay, "transfer-encoding: chunked\r\n").await;
    for chunk in body.as_bytes().chunks(1 << 16) {
        stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.expect("it is read");
        stream.write_all(chunk).await.expect("it is read");
        stream.write_all(b"\r\n").await.expect("it is read");
    }
    stream.write_all(b"0\r\n\r\n").await.expect("it is read");
    answer(stream).await
}

fn is_too_large((status, said): &(u16, Value), how: &str) {
    let error = &said["error"];
    assert_eq!((*status, &error["code"]), (413, &json!("payload_too_large")), "{how}: {said}");
    assert_eq!((&error["retryable"], &error["details"]), (&json!(false), &json!({})), "{how}: {said}");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_in_one_shape_however_it_comes() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let event = |bytes: usize| json!({"type": "t", "data": "x".repeat(bytes)}).to_string();
    let large = event(17 << 20);
    let mut stream = begun(&relay, &format!("content-length: {}\r\n", large.len())).await;
    stream.write_all(large.as_bytes()).await.expect("it is read");
    is_too_large(&answer(stream).await, "by its length");
    is_too_large(&in_chunks(&relay, &large).await, "in chunks");
    is_too_large(&in_chunks(&relay, &event(2 << 20)).await, "above what the workflow takes");
    is_too_large(&answer(announced(&relay, 2 << 20).await).await, "before it was sent");
    // The request fits, and its data does not.
    is_too_large(&in_chunks(&relay, &event((1 << 20) - 1)).await, "by its data");
    let (status, said) = in_chunks(&relay, &event((1 << 20) - 2)).await;
    assert_eq!(status, 201, "{said}");
    let (status, said) = relay.call("POST", "/v1/workflows/ordres/events", None, Some(json!({"data": large}))).await;
    assert_eq!((status, &said["error"]["code"]), (404, &json!("unknown_workflow")), "{said}");
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 1);
}

#[tokio::test]
async fn requests_that_are_still_coming_in_have_so_much_room_and_no_more() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = "maxBytes: 15MiB".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = announced(&relay, 15 << 20).await;
        assert!(is_told_to_go_on(&mut stream).await);
        held.push(stream);
    }
    let (status, said) = relay.call("POST", PATH, None, Some(json!({"type": "t", "data": 1}))).await;
    assert_eq!(status, 201, "a small one fits beside them: {said}");
    let (status, said) = answer(announced(&relay, 15 << 20).await).await;
    let error = &said["error"];
    assert_eq!((status, &error["code"], &error["retryable"]), (503, &json!("unavailable"), &json!(true)), "{said}");
    drop(held);
    let there_is_room = async || {
        let mut stream = announced(&relay, 15 << 20).await;
        is_told_to_go_on(&mut stream).await.then_some(())
    };
    eventually("there is room again", PATIENCE, there_is_room).await;
}

async fn give(relay: &Relay, key: &str, n: u32) -> wire::Answer {
    let body = json!({"type": "t", "data": {"n": n}, "key": key}).to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let address = SocketAddr::from(([127, 0, 0, 1], relay.port));
    wire::ask(address, format!("{head}{body}").as_bytes()).await
}

#[tokio::test]
async fn while_too_many_wait_new_events_are_put_off_and_repeats_are_answered() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      maxWaiting: 5");
    let relay = Relay::start(&config);
    relay.ready().await;
    assert_eq!(relay.call("POST", "/v1/workflows/orders/pause", None, Some(json!({}))).await.0, 200);
    let paused =
        async || relay.metric("oncebox_workflow_state", "state=\"paused\"").await.filter(|value| *value == 1.0);
    eventually("the pause is known", PATIENCE, paused).await;
    assert_eq!(give(&relay, "first", 0).await.status, 201);
    // What waits is looked at every second: until then some more come in.
    let mut given = 0;
    let put_off = eventually("events are put off", PATIENCE, async || {
        given += 1;
        Some(give(&relay, &format!("key-{given}"), given).await).filter(|answer| answer.status != 201)
    })
    .await;
    let said: Value = serde_json::from_str(&put_off.text).expect("JSON");
    let error = &said["error"];
    assert_eq!(
        (put_off.status, &error["code"], &error["retryable"]),
        (503, &json!("too_many_waiting"), &json!(true)),
        "{said}"
    );
    assert_eq!(put_off.retry_after.as_deref(), Some("5"));
    let stored = database.count("select count(*) from oncebox.outbox").await;
    assert_eq!(stored, i64::from(given), "the first, and all but the last");
    assert!(stored > 5, "{stored}");
    // Those come on top of nothing.
    assert_eq!(give(&relay, "first", 0).await.status, 200);
    assert_eq!(give(&relay, "first", 1).await.status, 409, "another body under the same key");
    assert_eq!(relay.call("POST", "/v1/workflows/orders/resume", None, Some(json!({}))).await.0, 200);
    let key = format!("key-{given}");
    let taken = async || Some(give(&relay, &key, given).await).filter(|answer| answer.status == 201);
    eventually("it is taken once the others have gone", PATIENCE, taken).await;
    let all = usize::try_from(stored + 1).expect("a few");
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == all).then_some(())).await;
}
