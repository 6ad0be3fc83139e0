//! How long an event takes from its record to its receiver, at a steady rate below saturation.
//!
//! From the making of the record, in the producer's process, to the arrival of the request: the receiver answers at once, and that
//! answer's way back is not in it. Both paths are there all the time, and get events in turn.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::{DefaultProducerContext, Producer as _, ThreadedProducer};
use serde::Serialize;

use super::flags::Flags;
use super::life::came_once;
use super::meter::median;
use super::stand::{self, Process, Stand};
use super::subject::{self, PARTITIONS, Subject};

const WARM_SECONDS: u64 = 2;

/// Of one path at one rate: the medians of its rounds, and those.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub kind: &'static str,
    pub rate: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// From the commit to the request, by the relay's own account.
    pub queue_p99_ms: f64,
    /// Whether events came within the time it takes to send them, in every round: else the rate is too high.
    pub kept_up: bool,
    pub rounds: Vec<Round>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Round {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub queue_p99_ms: f64,
    pub kept_up: bool,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Vec<Latency>> {
    println!("latency is from the making of the record to the arrival at the receiver");
    let (seconds, rates) = match flags.quick {
        true => (3, vec![1_000, 5_000]),
        false => (5, vec![1_000, 5_000, 20_000]),
    };
    let mut found = Vec::new();
    for rate in rates {
        let mut paths = [Path::begin(stand, "direct", rate).await?, Path::begin(stand, "outbox", rate).await?];
        for round in 0..flags.few_rounds() {
            for path in &mut paths {
                let measured = path.round(stand, seconds).await?;
                println!(
                    "round {round}  {} at {rate}/s: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms; commit to request p99 {:.2} ms{}",
                    path.kind,
                    measured.p50_ms,
                    measured.p99_ms,
                    measured.p999_ms,
                    measured.queue_p99_ms,
                    if measured.kept_up { "" } else { "; it did not keep up" }
                );
                path.rounds.push(measured);
            }
        }
        for path in paths {
            found.push(path.end()?);
        }
    }
    Ok(found)
}

/// A relay that goes on from round to round, and its topic.
struct Path {
    kind: &'static str,
    rate: u64,
    topic: String,
    config: PathBuf,
    relay: Process,
    /// Connected before anything is measured.
    producer: Arc<ThreadedProducer<DefaultProducerContext>>,
    /// Events so far.
    sent: u64,
    rounds: Vec<Round>,
}

impl Path {
    async fn begin(stand: &Stand, kind: &'static str, rate: u64) -> anyhow::Result<Self> {
        let name = format!("latency-{kind}-{rate}");
        let topic = format!("bench.{name}");
        crate::topic::create(&stand.brokers(), &topic, PARTITIONS).await?;
        let subject = Subject { topic: topic.clone(), ..Subject::new(&name, kind == "outbox") };
        let config = stand.config(&name, &[subject])?;
        stand.settle().await?;
        let relay = stand.relay(&name, &config)?;
        let producer = Arc::new(subject::producer(&stand.brokers(), "1")?);
        let mut path = Self { kind, rate, topic, config, relay, producer, sent: 0, rounds: Vec::new() };
        path.round(stand, WARM_SECONDS).await?;
        Ok(path)
    }

    async fn round(&mut self, stand: &Stand, seconds: u64) -> anyhow::Result<Round> {
        let (first, all, length) = (self.sent, self.rate * seconds, Duration::from_secs(seconds));
        self.sent += all;
        // Not there yet when its first events are sent.
        let queue_before = self.queue().await.unwrap_or_default();
        stand.begin_anew().await?;
        let began = Instant::now();
        self.pace(first..first + all).await?;
        arrived(stand, all).await?;
        let kept_up = began.elapsed() < length + length / 10 + Duration::from_secs(1);
        let seen = stand.seen().await?;
        let ms = |us: u64| us as f64 / 1000.0;
        Ok(Round {
            p50_ms: ms(seen.p50_us),
            p99_ms: ms(seen.p99_us),
            p999_ms: ms(seen.p999_us),
            queue_p99_ms: percentile_between(&queue_before, &self.queue().await?, 0.99) * 1000.0,
            kept_up,
        })
    }

    /// Sends at an even pace, a little each millisecond.
    async fn pace(&self, events: std::ops::Range<u64>) -> anyhow::Result<()> {
        let (producer, topic, rate) = (Arc::clone(&self.producer), self.topic.clone(), self.rate);
        tokio::task::spawn_blocking(move || {
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
            producer.flush(Duration::from_secs(30))?;
            anyhow::Ok(())
        })
        .await?
    }

    /// The cumulative buckets of the queue stage, as the relay shows them.
    async fn queue(&self) -> anyhow::Result<Vec<(f64, f64)>> {
        let answer = stand::get(&stand::admin_address(&self.config)?, "/metrics").await?;
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

    fn end(self) -> anyhow::Result<Latency> {
        self.relay.stop()?;
        let of = |value: fn(&Round) -> f64| median(&self.rounds.iter().map(value).collect::<Vec<_>>());
        Ok(Latency {
            kind: self.kind,
            rate: self.rate,
            p50_ms: of(|round| round.p50_ms),
            p99_ms: of(|round| round.p99_ms),
            p999_ms: of(|round| round.p999_ms),
            queue_p99_ms: of(|round| round.queue_p99_ms),
            kept_up: self.rounds.iter().all(|round| round.kept_up),
            rounds: self.rounds,
        })
    }
}

async fn arrived(stand: &Stand, wanted: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let seen = stand.seen().await?;
        if seen.distinct >= wanted {
            return came_once(stand).await;
        }
        anyhow::ensure!(Instant::now() < deadline, "{} of {wanted} events came", seen.distinct);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The upper bound of the bucket in which the share is reached.
fn percentile_between(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let at = |index: usize| after[index].1 - before.get(index).map_or(0.0, |bucket| bucket.1);
    let Some(last) = after.len().checked_sub(1) else { return f64::NAN };
    let wanted = at(last) * share;
    (0..=last).find(|index| at(*index) >= wanted).map_or(f64::NAN, |index| after[index].0)
}
