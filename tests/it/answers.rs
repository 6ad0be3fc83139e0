//! Bounded reading: the status decides, and what follows it can neither hold an attempt up nor pass for another answer.
//!
//! The endpoints here write bytes: answers that never end, that come one byte at a time, that are none. Each test also
//! looks at how its events ended, and at which request came over which connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, Topic, eventually, wire};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
/// A success, and after its end what could pass for a refusal of the next request.
const TWO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 422 No\r\ncontent-length: 0\r\n\r\n";
/// At most this much of an answer is read.
const READ: usize = 64 << 10;

/// What is written in answer to a request.
enum Reply {
    /// These bytes; the next request may follow.
    Bytes(Vec<u8>),
    /// These bytes, and nothing after them.
    Last(Vec<u8>),
    /// A success whose body is this chunk again and again, for as long as somebody reads.
    Endless { chunk: String, pause: Duration },
    /// One byte at a time.
    Slow { text: &'static str, pause: Duration },
}

/// A success with so many bytes of body.
fn success(bytes: usize) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{}", "x".repeat(bytes)).into_bytes())
}

/// A request: the connection that it came over, counted from 1, its order, and which of the order's requests it is.
#[derive(Debug, Clone, Copy)]
struct Asked {
    connection: usize,
    order: u64,
    attempt: u32,
}

impl Asked {
    fn read(message: &[u8], connection: usize) -> Self {
        let end = message.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let body: serde_json::Value = serde_json::from_slice(&message[end + 4..]).expect("JSON");
        let attempt = wire::header(message, "oncebox-attempt").and_then(|text| text.parse().ok());
        let order = body["data"]["id"].as_u64().expect("an order");
        Self { connection, order, attempt: attempt.expect("a number") }
    }
}

#[derive(Default)]
struct Log {
    asked: Vec<Asked>,
    /// Connections that were closed in the middle of an answer.
    dropped: Vec<usize>,
}

struct Endpoint {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

impl Endpoint {
    async fn start(reply: impl Fn(Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let log: Arc<Mutex<Log>> = Arc::default();
        let (kept, reply) = (Arc::clone(&log), Arc::new(reply));
        tokio::spawn(async move {
            for connection in 1.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, connection, Arc::clone(&kept), Arc::clone(&reply)));
            }
        });
        Self { address, log }
    }

    /// Order and connection of every request, as they came.
    fn asked(&self) -> Vec<(u64, usize)> {
        self.log.lock().unwrap().asked.iter().map(|asked| (asked.order, asked.connection)).collect()
    }

    /// Waits until just these connections were closed in the middle of an answer.
    async fn dropped(&self, wanted: &[usize]) {
        eventually("connections are dropped", PATIENCE, async || {
            let mut dropped = self.log.lock().unwrap().dropped.clone();
            dropped.sort_unstable();
            (dropped == wanted).then_some(())
        })
        .await;
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    log: Arc<Mutex<Log>>,
    reply: Arc<impl Fn(Asked) -> Reply + Send + Sync + 'static>,
) {
    let _ = stream.set_nodelay(true);
    while let Some(message) = wire::message(&mut stream).await {
        let asked = Asked::read(&message, connection);
        log.lock().unwrap().asked.push(asked);
        if write(&mut stream, reply(asked)).await.is_err() {
            log.lock().unwrap().dropped.push(connection);
            return;
        }
    }
}

async fn write(stream: &mut TcpStream, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Bytes(bytes) => stream.write_all(&bytes).await,
        Reply::Last(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Reply::Endless { chunk, pause } => {
            stream.write_all(CHUNKED.as_bytes()).await?;
            let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
            loop {
                stream.write_all(chunk.as_bytes()).await?;
                tokio::time::sleep(pause).await;
            }
        }
        Reply::Slow { text, pause } => {
            for byte in text.bytes() {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(pause).await;
            }
            Ok(())
        }
    }
}

/// One request at a time, so that a connection that may be used again is.
fn config(endpoint: &Endpoint, topic: &Topic, database: &TestDatabase) -> Config {
    let mut config = Config::posting_to(format!("http://{}/events", endpoint.address), topic, database);
    config.delivery.push_str("\n      concurrency: 1");
    (config.timeout, config.lease) = ("3s", "6s");
    config
}

/// Waits until every event is delivered, with so many requests each, and nothing of it is left to do.
async fn all_delivered(database: &TestDatabase, sends: &[i32]) {
    let ends = "select sends from oncebox.done where state = 'completed' order by record_offset";
    eventually("every event is delivered", PATIENCE, async || {
        let found: Vec<i32> = database.query(ends, &[]).await.iter().map(|row| row.get(0)).collect();
        (found == sends).then_some(())
    })
    .await;
    let left = "select (select count(*) from oncebox.retry) + (select count(*) from oncebox.dead_letter)";
    eventually("nothing is left to do", PATIENCE, async || (database.count(left).await == 0).then_some(())).await;
}

/// The attempts that did not deliver: number, outcome, status and milliseconds of each.
async fn failures(database: &TestDatabase) -> Vec<(i32, String, Option<i32>, i32)> {
    let text = "select send, outcome, status, millis from oncebox.attempt order by record_offset, send";
    let rows = database.query(text, &[]).await;
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

async fn attempts(relay: &Relay, outcome: &str) -> Option<f64> {
    relay.metric("oncebox_attempts_total", &format!("outcome=\"{outcome}\"")).await
}

#[tokio::test]
async fn a_success_whose_body_never_ends_is_a_delivery_and_its_connection_is_not_used_again() {
    let endpoint = Endpoint::start(|asked| match asked.order {
        0 => Reply::Endless { chunk: "x".to_owned(), pause: Duration::from_millis(20) },
        2 => Reply::Endless { chunk: "x".repeat(16 << 10), pause: Duration::ZERO },
        3 => Reply::Bytes(format!("{CHUNKED}no chunk\r\n").into_bytes()),
        _ => success(2),
    })
    .await;
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let relay = Relay::start(&config(&endpoint, &topic, &database));
    topic.send_orders(0..5);
    all_delivered(&database, &[1; 5]).await;
    assert_eq!(endpoint.asked(), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 4)], "order and connection of each request");
    endpoint.dropped(&[1, 2]).await;
    assert!(failures(&database).await.is_empty());
    assert_eq!(attempts(&relay, "delivered").await, Some(5.0));
    assert_eq!(relay.metric("oncebox_in_doubt_total", "orders").await, Some(0.0));
}

#[tokio::test]
async fn an_answer_of_more_than_64_kib_is_a_delivery_and_only_a_smaller_one_keeps_its_connection() {
    let endpoint = Endpoint::start(|asked| match asked.order {
        0 => success(READ),
        1 => success(READ + 1),
        _ => success(0),
    })
    .await;
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let relay = Relay::start(&config(&endpoint, &topic, &database));
    topic.send_orders(0..4);
    all_delivered(&database, &[1; 4]).await;
    assert_eq!(endpoint.asked(), [(0, 1), (1, 1), (2, 2), (3, 2)], "order and connection of each request");
    assert!(failures(&database).await.is_empty());
    assert_eq!(attempts(&relay, "delivered").await, Some(4.0));
}

#[tokio::test]
async fn headers_that_come_byte_by_byte_end_at_the_deadline_in_doubt() {
    let endpoint = Endpoint::start(|asked| match asked.attempt {
        1 => Reply::Slow { text: EMPTY, pause: Duration::from_millis(200) },
        _ => success(0),
    })
    .await;
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let mut config = config(&endpoint, &topic, &database);
    (config.timeout, config.lease) = ("1s", "3s");
    let relay = Relay::start(&config);
    topic.send_orders(0..1);
    all_delivered(&database, &[2]).await;
    assert_eq!(endpoint.asked(), [(0, 1), (0, 2)], "the late rest of the first answer is nobody's");
    endpoint.dropped(&[1]).await;
    let failures = failures(&database).await;
    let [(1, outcome, None, millis)] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!(outcome, "timeout");
    // The whole answer would have taken more than seven seconds.
    assert!((1_000..3_000).contains(millis), "it ended after {millis} ms");
    assert_eq!((attempts(&relay, "timeout").await, attempts(&relay, "delivered").await), (Some(1.0), Some(1.0)));
    assert_eq!(relay.metric("oncebox_in_doubt_total", "orders").await, Some(1.0));
}

#[tokio::test]
async fn what_is_no_answer_is_no_delivery_and_is_tried_again() {
    let none = [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nokay".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(),
        "HTTP/1.1 2OO OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-len".to_owned(),
        format!("HTTP/1.1 200 OK\r\nlong: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(1 << 20)),
    ];
    let orders = u32::try_from(none.len()).expect("few");
    let endpoint = Endpoint::start(move |asked| match asked.attempt {
        1 => Reply::Last(none[usize::try_from(asked.order).expect("few")].clone().into_bytes()),
        _ => success(2),
    })
    .await;
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let relay = Relay::start(&config(&endpoint, &topic, &database));
    topic.send_orders(0..orders);
    all_delivered(&database, &[2; 5]).await;
    let mut asked: Vec<u64> = endpoint.asked().into_iter().map(|(order, _)| order).collect();
    asked.sort_unstable();
    assert_eq!(asked, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "each was sent twice");
    for (send, outcome, status, _) in failures(&database).await {
        assert_eq!((send, outcome.as_str(), status), (1, "other", None));
    }
    assert_eq!((attempts(&relay, "other").await, attempts(&relay, "delivered").await), (Some(5.0), Some(5.0)));
    assert_eq!(relay.metric("oncebox_in_doubt_total", "orders").await, Some(5.0));
}

#[tokio::test]
async fn bytes_after_an_answer_are_not_taken_for_the_answer_to_the_next_request() {
    let endpoint = Endpoint::start(|asked| match asked.order {
        0 => Reply::Bytes(TWO.into()),
        _ => success(2),
    })
    .await;
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let relay = Relay::start(&config(&endpoint, &topic, &database));
    topic.send_orders(0..2);
    all_delivered(&database, &[1; 2]).await;
    assert_eq!(endpoint.asked(), [(0, 1), (1, 2)], "order and connection of each request");
    assert_eq!(attempts(&relay, "delivered").await, Some(2.0));
    assert_eq!(attempts(&relay, "rejected").await, Some(0.0), "nobody believed the second answer");
}
