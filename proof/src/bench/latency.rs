//! How long an event takes from its record to its receiver, at a steady rate below saturation.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Flags;
use super::stand::Stand;
use super::subject::{self, PARTITIONS, Subject};

const WARM: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub kind: &'static str,
    pub rate: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// From the commit to the request, by the relay's own account.
    pub queue_p99_ms: f64,
    /// Events that came within the time it takes to send them, over those sent: below one the rate is too high.
    pub kept_up: bool,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Vec<Latency>> {
    let (length, rates) = match flags.quick {
        true => (Duration::from_secs(5), vec![1_000, 5_000]),
        false => (Duration::from_secs(15), vec![1_000, 5_000, 20_000]),
    };
    let mut found = Vec::new();
    for rate in rates {
        for kind in ["direct", "outbox"] {
            let latency = one(stand, kind, rate, length).await?;
            println!(
                "{kind} at {rate}/s: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms; commit to request p99 {:.2} ms{}",
                latency.p50_ms,
                latency.p99_ms,
                latency.p999_ms,
                latency.queue_p99_ms,
                if latency.kept_up { "" } else { "; it did not keep up" }
            );
            found.push(latency);
        }
    }
    Ok(found)
}

async fn one(stand: &Stand, kind: &'static str, rate: u64, length: Duration) -> anyhow::Result<Latency> {
    let name = format!("latency-{kind}-{rate}");
    let topic = format!("bench.{name}");
    crate::topic::create(&stand.brokers(), &topic, PARTITIONS).await?;
    let subject = Subject { topic: topic.clone(), ..Subject::new(&name, kind == "outbox") };
    let config = stand.config(&name, &[subject])?;
    stand.settle().await?;
    let relay = stand.relay(&name, &config)?;
    let warm = rate * WARM.as_secs();
    pace(stand, &topic, rate, 0..warm).await?;
    arrived(stand, warm).await?;
    let queue_before = queue(&config).await?;
    stand.begin_anew().await?;
    let all = rate * length.as_secs();
    let began = Instant::now();
    pace(stand, &topic, rate, warm..warm + all).await?;
    arrived(stand, all).await?;
    let kept_up = began.elapsed() < length + length / 10 + Duration::from_secs(1);
    let seen = stand.seen().await?;
    let queue_p99_ms = percentile_between(&queue_before, &queue(&config).await?, 0.99) * 1000.0;
    relay.stop()?;
    let ms = |us: u64| us as f64 / 1000.0;
    Ok(Latency {
        kind,
        rate,
        p50_ms: ms(seen.p50_us),
        p99_ms: ms(seen.p99_us),
        p999_ms: ms(seen.p999_us),
        queue_p99_ms,
        kept_up,
    })
}

/// Sends at an even pace, a little each millisecond.
async fn pace(stand: &Stand, topic: &str, rate: u64, events: std::ops::Range<u64>) -> anyhow::Result<()> {
    let (brokers, topic) = (stand.brokers(), topic.to_owned());
    tokio::task::spawn_blocking(move || {
        let producer = subject::producer(&brokers, "1")?;
        let (began, first) = (Instant::now(), events.start);
        for n in events {
            let due = Duration::from_secs_f64((n - first) as f64 / rate as f64);
            if let Some(wait) = due.checked_sub(began.elapsed()).filter(|wait| *wait > Duration::from_micros(500)) {
                std::thread::sleep(wait);
            }
            // Without a key: with one, each of a dozen partitions has a request of its own every millisecond, and the broker
            // is what is measured.
            subject::send(&producer, &topic, n, None);
        }
        rdkafka::producer::Producer::flush(&producer, Duration::from_secs(30))?;
        anyhow::Ok(())
    })
    .await?
}

async fn arrived(stand: &Stand, wanted: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let seen = stand.seen().await?;
        if seen.distinct >= wanted {
            anyhow::ensure!(
                seen.requests == seen.distinct,
                "{} events came in {} requests",
                seen.distinct,
                seen.requests
            );
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{} of {wanted} events came", seen.distinct);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The cumulative buckets of the queue stage, as the relay shows them.
async fn queue(config: &std::path::Path) -> anyhow::Result<Vec<(f64, f64)>> {
    let text = std::fs::read_to_string(config)?;
    let address =
        text.split("admin: {listen: \"").nth(1).and_then(|rest| rest.split('"').next()).context("an address")?;
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let buckets = answer
        .lines()
        .filter(|line| line.starts_with("oncebox_stage_seconds_bucket") && line.contains("stage=\"queue\""));
    let bucket = |line: &str| {
        let bound = line.split("le=\"").nth(1)?.split('"').next()?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, line.rsplit(' ').next()?.parse().ok()?))
    };
    Ok(buckets.filter_map(bucket).collect())
}

/// The upper bound of the bucket in which the share is reached.
fn percentile_between(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let at = |index: usize| after[index].1 - before.get(index).map_or(0.0, |bucket| bucket.1);
    let Some(last) = after.len().checked_sub(1) else { return f64::NAN };
    let wanted = at(last) * share;
    (0..=last).find(|index| at(*index) >= wanted).map_or(f64::NAN, |index| after[index].0)
}
