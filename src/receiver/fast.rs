//! The receiver of benchmarks: answers 200 to everything with as little work as it can, writes no log, and counts.
//!
//! It tells what it saw: how many requests, how many different events by the number in their bodies, and how long after
//! the time in their bodies they came. `GET /_seen` answers that as JSON, `POST /_seen` begins anew, `GET /_last` answers
//! the last request as it came. Only HTTP/1.1 with a content-length is understood.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Buckets grow by a sixteenth.
const STEPS: usize = 16;
const BUCKETS: usize = 40 * STEPS;
const MOST_EVENTS: usize = 64 << 20;
const PROCESSED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What came in.
struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// A bit for each number.
    events: Vec<AtomicU64>,
    /// Microseconds from the time in a body to its arrival.
    delays: Vec<AtomicU64>,
    last: Mutex<Vec<u8>>,
}

/// What is said of it.
#[derive(Debug, Serialize)]
struct Told {
    requests: u64,
    bytes: u64,
    distinct: u64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
}

/// Serves until the process ends.
pub async fn serve(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    println!("receiver: listening on {}, counting only", listener.local_addr()?);
    let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let tally: &'static Tally = Box::leak(Box::new(Tally {
        requests: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        events: zeros(MOST_EVENTS / 64),
        delays: zeros(BUCKETS),
        last: Mutex::default(),
    }));
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        tokio::spawn(tally.answer_all(stream));
    }
}

impl Tally {
    async fn answer_all(&self, mut stream: TcpStream) {
        let mut read = Vec::with_capacity(16 << 10);
        loop {
            let whole = loop {
                if let Some(whole) = whole_request(&read) {
                    break whole;
                }
                match stream.read_buf(&mut read).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            };
            let request = &read[..whole.end];
            let written = match request {
                question if question.starts_with(b"GET /_seen ") => stream.write_all(&answer(&self.told())).await,
                question if question.starts_with(b"GET /_last ") => {
                    let last = self.last.lock().expect("no holder of this lock panics").clone();
                    stream.write_all(&answer_bytes(&last)).await
                }
                question if question.starts_with(b"POST /_seen ") => {
                    self.begin_anew();
                    stream.write_all(PROCESSED).await
                }
                event => {
                    self.note(event, whole.body);
                    stream.write_all(PROCESSED).await
                }
            };
            if written.is_err() {
                return;
            }
            read.drain(..whole.end);
        }
    }

    fn note(&self, request: &[u8], body: usize) {
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let body = &request[body..];
        self.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        if let Some(number) = number_after(body, b"\"n\":").filter(|number| (*number as usize) < MOST_EVENTS) {
            self.events[number as usize / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
        if let Some(made) = number_after(body, b"\"us\":") {
            let bucket = bucket(now_us().saturating_sub(made));
            self.delays[bucket].fetch_add(1, Ordering::Relaxed);
        }
        if before.is_multiple_of(10_000) {
            request.clone_into(&mut self.last.lock().expect("no holder of this lock panics"));
        }
    }

    fn begin_anew(&self) {
        self.requests.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.events.iter().chain(&self.delays).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn told(&self) -> Told {
        let delays: Vec<u64> = self.delays.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Told {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            distinct: self.events.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum(),
            p50_us: percentile(&delays, 0.5),
            p99_us: percentile(&delays, 0.99),
            p999_us: percentile(&delays, 0.999),
        }
    }
}

/// Where a request's body begins and ends.
struct Whole {
    body: usize,
    end: usize,
}

fn whole_request(read: &[u8]) -> Option<Whole> {
    let body = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let length = read[..body].split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        name.eq_ignore_ascii_case(b"content-length").then(|| std::str::from_utf8(&value[1..]).ok()?.trim().parse().ok())
    });
    let end = body + length.flatten().unwrap_or(0);
    (read.len() >= end).then_some(Whole { body, end })
}

fn number_after(text: &[u8], name: &[u8]) -> Option<u64> {
    let start = text.windows(name.len()).position(|here| here == name)? + name.len();
    let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let power = us.ilog2() as usize;
    let step = ((us << 4) >> power) as usize - STEPS;
    (power * STEPS + step).min(BUCKETS - 1)
}

/// The upper end of the bucket in which the share is reached.
fn percentile(buckets: &[u64], share: f64) -> u64 {
    let all: u64 = buckets.iter().sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (index, count) in buckets.iter().enumerate() {
        seen += count;
        if seen >= wanted && all > 0 {
            let (power, step) = (index / STEPS, index % STEPS);
            return ((STEPS + step + 1) << power) as u64 >> 4;
        }
    }
    0
}

fn answer(told: &Told) -> Vec<u8> {
    answer_bytes(&serde_json::to_vec(told).expect("numbers encode to JSON"))
}

fn answer_bytes(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_body_is_there() {
        let text = b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\n\r\nabcGET";
        assert!(whole_request(&text[..20]).is_none());
        assert!(whole_request(&text[..text.len() - 4]).is_none());
        let whole = whole_request(text).unwrap();
        assert_eq!(&text[whole.body..whole.end], b"abc");
    }

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let mut buckets = vec![0; BUCKETS];
        (1..=1000_u64).for_each(|us| buckets[bucket(us * 100)] += 1);
        for (share, true_value) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let found = percentile(&buckets, share) as f64;
            assert!((found / true_value - 1.0).abs() < 0.07, "{share}: {found}");
        }
        assert_eq!(percentile(&vec![0; BUCKETS], 0.5), 0);
    }

    #[test]
    fn numbers_are_found_where_they_stand() {
        assert_eq!(number_after(br#"{"data":{"n":42,"us":7}}"#, b"\"n\":"), Some(42));
        assert_eq!(number_after(b"{}", b"\"n\":"), None);
    }
}
