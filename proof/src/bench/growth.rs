//! What becomes of the outbox's throughput as its tables grow: history, a backlog, somebody's old snapshot.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Flags;
use super::meter::{self, median};
use super::stand::{self, Stand};
use super::subject::Subject;
use super::throughput::relay;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Growth {
    pub snapshot: f64,
    pub backlog: f64,
    pub drain: f64,
    pub history: f64,
    pub waiting_rows: i64,
    pub history_rows: i64,
    /// How long the metrics of a relay take to be read then, at most.
    pub scrape_ms: f64,
}

/// Each is measured in turn with the table as it was just before: ratios of neighbours.
pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Growth> {
    let rounds = flags.rounds();
    let mut growth = Growth::default();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        without.push(relay(stand, &Subject::new(&format!("before-{round}"), true), flags).await?.per_second);
        let reader = stand.postgres.client().await?;
        reader.batch_execute("begin isolation level repeatable read; select count(*) from oncebox.cursor").await?;
        // It is old when it has seen a while of work pass.
        relay(stand, &Subject::new(&format!("ageing-{round}"), true), flags).await?;
        with.push(relay(stand, &Subject::new(&format!("snapshot-{round}"), true), flags).await?.per_second);
        reader.batch_execute("rollback").await?;
    }
    growth.snapshot = ratio(&with, &without);
    println!("with an old snapshot open: {:.2} of without", growth.snapshot);

    let base = rates(stand, flags, "empty", rounds).await?;
    growth.waiting_rows = backlog(stand, flags).await?;
    growth.backlog = ratio(&rates(stand, flags, "backlog", rounds).await?, &base);
    growth.drain = drain(stand, flags).await? / median(&base);
    println!(
        "with {} events of another workflow waiting: {:.2}; draining them: {:.2}",
        growth.waiting_rows, growth.backlog, growth.drain
    );

    let base = rates(stand, flags, "young", rounds).await?;
    growth.history_rows = history(stand, if flags.quick { 500_000 } else { 10_000_000 }).await?;
    growth.history = ratio(&rates(stand, flags, "old", rounds).await?, &base);
    println!("with {} delivered events kept: {:.2}", growth.history_rows, growth.history);
    growth.scrape_ms = scrape(stand).await?;
    println!("a scrape takes {:.1} ms then", growth.scrape_ms);
    Ok(growth)
}

/// The slowest of some readings of a running relay's metrics.
async fn scrape(stand: &Stand) -> anyhow::Result<f64> {
    stand.begin_anew().await?;
    let config = stand.config("scraped", &[Subject::new("scraped", true)])?;
    let relay = stand.relay("scraped", &config)?;
    let address = stand::admin_address(&config)?;
    meter::measure(stand, &[relay.pid()], 10_000, Duration::from_secs(1)).await?;
    let mut slowest: f64 = 0.0;
    for _ in 0..20 {
        let began = Instant::now();
        let text = stand::get(&address, "/metrics").await?;
        slowest = slowest.max(began.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(text.contains("oncebox_delivered_total"), "these are no metrics");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    relay.stop()?;
    Ok(slowest)
}

async fn rates(stand: &Stand, flags: &Flags, name: &str, rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut rates = Vec::new();
    for round in 0..rounds {
        rates.push(relay(stand, &Subject::new(&format!("{name}-{round}"), true), flags).await?.per_second);
    }
    Ok(rates)
}

fn ratio(with: &[f64], without: &[f64]) -> f64 {
    median(with) / median(without)
}

const BACKLOG: &str = "waiting";

fn backlogged() -> Subject {
    Subject::new(BACKLOG, true)
}

/// A workflow reads the whole topic while it is paused.
async fn backlog(stand: &Stand, flags: &Flags) -> anyhow::Result<i64> {
    let config = stand.config(BACKLOG, &[backlogged()])?;
    stand.order(&["pause", BACKLOG], &config)?;
    let relay = stand.relay(BACKLOG, &config)?;
    let wanted: i64 = if flags.quick { 300_000 } else { 990_000 };
    let deadline = Instant::now() + Duration::from_secs(300);
    let waiting = loop {
        let count = stand::UNDELIVERED;
        let waiting: i64 = stand.client.query_one(count, &[&BACKLOG]).await?.get(0);
        if waiting >= wanted {
            break waiting;
        }
        anyhow::ensure!(Instant::now() < deadline, "{waiting} of {wanted} events are stored");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    relay.stop()?;
    Ok(waiting)
}

/// How fast a backlog goes once it may.
async fn drain(stand: &Stand, flags: &Flags) -> anyhow::Result<f64> {
    stand.begin_anew().await?;
    let config = stand.config(BACKLOG, &[backlogged()])?;
    let relay = stand.relay(BACKLOG, &config)?;
    stand.order(&["resume", BACKLOG], &config)?;
    let window = meter::measure(stand, &[relay.pid()], 10_000, flags.window()).await?;
    stand.order(&["pause", BACKLOG], &config)?;
    relay.stop()?;
    Ok(window.per_second)
}

/// Delivered events of today, as many as that.
async fn history(stand: &Stand, rows: i64) -> anyhow::Result<i64> {
    let step = 250_000;
    stand
        .client
        .batch_execute("create table if not exists bench_sample as select * from oncebox.outbox limit 1000")
        .await?;
    for from in (0..rows).step_by(usize::try_from(step)?) {
        stand
            .client
            .execute(
                "with made as (
                     insert into oncebox.outbox
                            (cursor, record_offset, event_index, generation, day, key, event_type, content_type, source_at,
                             created_at, config_version, body)
                     select 11, n, 0, 0, timezone('utc', clock_timestamp())::date, s.key, s.event_type, s.content_type,
                            s.source_at, clock_timestamp(), 1, s.body
                       from generate_series($1::int8, $2::int8) as n, (select * from bench_sample limit 1) as s
                 )
                 insert into oncebox.ended (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
                 select 11, n >> 6, 0, 0, timezone('utc', clock_timestamp())::date, bit_or(1::int8 << (n & 63)::int), 0,
                        bit_or(1::int8 << (n & 63)::int), 1000 * 1000::int8 * 1700000000 + 200
                   from generate_series($1::int8, $2::int8) as n group by n >> 6
                     on conflict (cursor, block, event_index, generation, day)
                     do update set bits = oncebox.ended.bits | excluded.bits",
                &[&from, &(from + step - 1)],
            )
            .await?;
    }
    stand.client.batch_execute("analyze oncebox.outbox; analyze oncebox.ended; checkpoint").await?;
    Ok(rows)
}
