//! One exchange over a connection whose other end is at hand.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::send::outgoing::first_line;

fn request(body: Vec<u8>) -> Outgoing {
    Outgoing::new(first_line("POST", "/"), Bytes::from(body))
}

/// A connection whose other end has room for so many bytes.
fn connection(room: usize) -> (Connection, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(room);
    (Connection::new(Box::new(ours), 0), theirs)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn an_answer_is_read_to_its_end_and_the_next_request_gets_its_own() {
    let (mut connection, mut peer) = connection(1 << 20);
    for n in 0..3 {
        let served = async {
            let mut heard = vec![0; 4096];
            let length = peer.read(&mut heard).await.unwrap();
            assert!(heard[..length].ends_with(b"content-length: 4\r\n\r\nbody"), "request {n}");
            peer.write_all(OK).await.unwrap();
        };
        let body = request(b"body".to_vec());
        let (head, ()) = tokio::join!(connection.exchange(&body), served);
        let head = head.unwrap();
        let mut kept = Vec::new();
        assert!(head.keeps && connection.read_body(head.body, 64, &mut kept, 64).await);
        assert_eq!((head.status, kept.as_slice()), (200, &b"ok"[..]));
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_waited_takes_no_byte() {
    let (mut connection, peer) = connection(1 << 20);
    drop(peer);
    assert!(matches!(connection.exchange(&request(Vec::new())).await, Err(Failure::NotTaken(_))));
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_taken_for_one() {
    let (mut connection, mut peer) = connection(1 << 20);
    peer.write_all(OK).await.unwrap();
    assert!(matches!(connection.exchange(&request(Vec::new())).await, Err(Failure::NotTaken(_))));
    let mut heard = Vec::new();
    drop(connection);
    peer.read_to_end(&mut heard).await.unwrap();
    assert!(heard.is_empty(), "nothing was sent");
}

#[tokio::test]
async fn an_answer_before_the_whole_request_counts_and_ends_the_connection() {
    let (mut connection, mut peer) = connection(1_000);
    let served = async {
        let mut heard = [0; 100];
        peer.read_exact(&mut heard).await.unwrap();
        peer.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    };
    let body = request(vec![0; 1 << 20]);
    let (head, ()) = tokio::join!(connection.exchange(&body), served);
    let head = head.unwrap();
    assert_eq!((head.status, head.keeps), (413, false));
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_is_in_doubt() {
    let (mut connection, mut peer) = connection(1_000);
    let served = async move {
        let mut heard = [0; 100];
        peer.read_exact(&mut heard).await.unwrap();
    };
    let body = request(vec![0; 1 << 20]);
    let (failed, ()) = tokio::join!(connection.exchange(&body), served);
    assert!(matches!(failed, Err(Failure::Broken(_))));
}

#[tokio::test]
async fn what_is_behind_an_answer_ends_the_connection() {
    let (mut connection, mut peer) = connection(1 << 20);
    let served = async {
        let _ = peer.read(&mut [0; 4096]).await.unwrap();
        peer.write_all(&[OK, OK].concat()).await.unwrap();
    };
    let empty = request(Vec::new());
    let (head, ()) = tokio::join!(connection.exchange(&empty), served);
    assert!(!connection.read_body(head.unwrap().body, 64, &mut Vec::new(), 64).await);
}

#[tokio::test]
async fn a_body_is_read_within_its_bounds() {
    let (mut connection, mut peer) = connection(1 << 20);
    peer.write_all(&[b'x'; 300]).await.unwrap();
    let mut kept = Vec::new();
    assert!(!connection.read_body(Framing::UntilClose, 200, &mut kept, 7).await);
    assert_eq!(kept, b"xxxxxxx");
}
