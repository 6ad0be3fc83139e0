//! Answers as endpoints write them, whole and in pieces.

use proptest::prelude::*;

use super::*;

fn whole(text: &str) -> (Head, usize) {
    head(text.as_bytes()).expect("an answer").expect("a whole head")
}

/// Reads a body that comes in pieces: what it says, and whether it is whole with nothing left behind it.
fn body(mut framing: Framing, pieces: &[&[u8]]) -> io::Result<(Vec<u8>, bool)> {
    let (mut kept, mut buffer) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let (taken, part) = framing.take(&buffer)?;
            kept.extend_from_slice(&buffer[part]);
            buffer.drain(..taken);
            if taken == 0 || framing.is_over() {
                break;
            }
        }
    }
    Ok((kept, framing.is_over() && buffer.is_empty()))
}

#[test]
fn a_body_ends_where_its_head_says() {
    for (text, framing, keeps) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Framing::Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n", Framing::Length(5), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\n", Framing::Length(5), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: Close\r\n\r\n", Framing::Length(5), false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n", Framing::Chunked(Chunk::Size), true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            Framing::Chunked(Chunk::Size),
            false,
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", Framing::UntilClose, false),
        ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
        ("HTTP/1.1 204 No Content\r\n\r\n", Framing::Length(0), true),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n", Framing::Length(0), true),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", Framing::Length(5), false),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Framing::Length(0), false),
    ] {
        let (head, length) = whole(text);
        assert_eq!((head.body, head.keeps, length), (framing, keeps, text.len()), "{text}");
    }
}

#[test]
fn what_comes_before_the_final_answer_is_passed_over() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let (head, length) = whole(text);
    assert_eq!((head.status, head.retry_after.as_deref(), length), (503, Some(&b"7"[..]), text.len()));
    assert!(super::head(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap().is_none(), "the final one is still to come");
}

#[test]
fn what_is_no_answer_is_an_error() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 2OO OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ] {
        assert!(head(text.as_bytes()).is_err(), "{text}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nlong: {}", "x".repeat(HEADER_BYTES));
    assert!(head(endless.as_bytes()).is_err());
    for text in ["2\r\nokay\r\n0\r\n\r\n", "x\r\n", "-1\r\n", "2\nok\r\n", "fffffffffffffffff\r\n"] {
        let read = body(Framing::Chunked(Chunk::Size), &[text.as_bytes()]);
        assert!(read.is_err(), "{text}: {read:?}");
    }
}

#[test]
fn chunks_are_put_together_and_trailers_passed_over() {
    let text = b"3;name=value\r\nokO\r\nA\r\n0123456789\r\n0\r\nx-trailer: y\r\n\r\n";
    assert_eq!(body(Framing::Chunked(Chunk::Size), &[text]).unwrap(), (b"okO0123456789".to_vec(), true));
    let more = [&text[..], b"HTTP/1.1 200"].concat();
    assert!(!body(Framing::Chunked(Chunk::Size), &[&more]).unwrap().1, "something is left behind it");
}

proptest! {
    #[test]
    fn a_body_is_the_same_however_it_comes_in_pieces(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6), at in 0usize..400, or in 0usize..400,
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        let (first, second) = (at.min(or).min(wire.len()), at.max(or).min(wire.len()));
        let pieces = [&wire[..first], &wire[first..second], &wire[second..]];
        prop_assert_eq!(body(Framing::Chunked(Chunk::Size), &pieces).unwrap(), (chunks.concat(), true));
    }

    #[test]
    fn any_bytes_are_a_head_or_not_yet_one_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some((_, length))) = head(&bytes) {
            prop_assert!(length <= bytes.len());
        }
        let mut framing = Framing::Chunked(Chunk::Size);
        if let Ok((taken, part)) = framing.take(&bytes) {
            prop_assert!(taken <= bytes.len() && part.end <= taken);
        }
    }
}
