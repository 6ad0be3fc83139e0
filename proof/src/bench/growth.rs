//! What becomes of the outbox's throughput as its tables grow: a long run, somebody's old snapshot, a backlog, history.
//!
//! What can be, is there and not there in turn, within each round: the snapshot is opened and closed beside one relay that goes on;
//! backlog and history have schemas of their own, and each round a new one with nothing in it.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::course::{self, Course};
use super::flags::Flags;
use super::life::Life;
use super::meter::{Pair, Run, measure, ratio_of};
use super::stand::{self, Stand};
use super::subject::Subject;
use super::throughput::{self, WARM};

/// The workflow with a backlog, and its schema; the schema with history; that of the snapshot.
const WAITING: &str = "waiting";
const HISTORY: &str = "history";
const SNAPSHOT: &str = "snapshot";
/// The topic whose events wait. With more in it, a drain would have to read beside.
const BACKLOG: &str = "bench.waiting";
/// Rows that one statement makes: whole blocks of 64.
const ROWS_AT_ONCE: i64 = 256_000;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Growth {
    /// Not measured in a quick run.
    pub course: Option<Course>,
    pub snapshot: Vec<Pair>,
    pub backlog: Vec<Pair>,
    pub history: Vec<Pair>,
    /// Draining the backlog, beside what is read and sent at once. Not measured in a quick run.
    pub drain: Vec<Pair>,
    pub waiting_rows: i64,
    pub history_rows: i64,
    /// How long the metrics of a relay take to be read with that history, at most.
    pub scrape_ms: f64,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Growth> {
    let mut growth = Growth::default();
    if !flags.quick {
        let course = course::run(stand, flags).await?;
        println!(
            "of 3 million events the last 100,000 went at {:.0}/s, the first at {:.0}/s: {:.2}",
            course.last,
            course.first,
            course.last / course.first
        );
        growth.course = Some(course);
    }
    growth.snapshot = snapshot(stand, flags).await?;
    println!("with an old snapshot open: {:.2} of without", ratio_of(&growth.snapshot));
    growth.waiting_rows = backlog(stand, flags).await?;
    growth.history_rows = history(stand, if flags.quick { 500_000 } else { 10_000_000 }).await?;
    for round in 0..flags.rounds() {
        let without = empty(stand, flags, &format!("empty_{round}")).await?;
        let beside = saturated(stand, flags, WAITING, &format!("beside-{round}")).await?;
        let old = saturated(stand, flags, HISTORY, &format!("old-{round}")).await?;
        println!("round {round}  empty {without:.0}/s, with a backlog {beside:.0}/s, with history {old:.0}/s");
        growth.backlog.push(Pair { with: beside, without });
        growth.history.push(Pair { with: old, without });
    }
    println!(
        "with {} events of another workflow waiting: {:.2}; with {} delivered events kept: {:.2}",
        growth.waiting_rows,
        ratio_of(&growth.backlog),
        growth.history_rows,
        ratio_of(&growth.history)
    );
    growth.scrape_ms = scrape(stand, flags).await?;
    println!("a scrape takes {:.1} ms then", growth.scrape_ms);
    if !flags.quick {
        for round in 0..2 {
            let without = empty(stand, flags, &format!("drained_{round}")).await?;
            growth.drain.push(Pair { with: drain(stand, flags).await?, without });
        }
        println!("draining the backlog: {:.2} of what is sent at once", ratio_of(&growth.drain));
    }
    stand.drop_schema(WAITING).await?;
    stand.drop_schema(HISTORY).await?;
    Ok(growth)
}

/// At saturation, as throughput is measured.
async fn saturated(stand: &Stand, flags: &Flags, schema: &str, id: &str) -> anyhow::Result<f64> {
    Ok(throughput::relay(stand, &subject(schema, id, flags), flags).await?.per_second)
}

/// In a schema that was just made, and is gone afterwards.
async fn empty(stand: &Stand, flags: &Flags, schema: &str) -> anyhow::Result<f64> {
    stand.migrate(schema)?;
    let rate = saturated(stand, flags, schema, &schema.replace('_', "-")).await?;
    stand.drop_schema(schema).await?;
    Ok(rate)
}

fn subject(schema: &str, id: &str, flags: &Flags) -> Subject {
    Subject { schema: schema.to_owned(), concurrency: flags.concurrency, ..Subject::new(id, true) }
}

/// One relay goes on while somebody's transaction comes, ages, and goes. With too little left in the topic for a whole round,
/// another begins.
async fn snapshot(stand: &Stand, flags: &Flags) -> anyhow::Result<Vec<Pair>> {
    let (window, age) = (flags.window(), Duration::from_secs(if flags.quick { 1 } else { 4 }));
    // What it kept alive is cleaned up before the next round.
    let recovery = Duration::from_secs(1);
    stand.migrate(SNAPSHOT)?;
    let mut life = Life::begin(stand, &subject(SNAPSHOT, "snapshot-0", flags)).await?;
    let (mut pairs, mut a_round_takes) = (Vec::new(), 0);
    for round in 0..flags.rounds() {
        if life.left().await? < a_round_takes {
            life.end().await?;
            life = Life::begin(stand, &subject(SNAPSHOT, &format!("snapshot-{round}"), flags)).await?;
        }
        let without = life.window(WARM, window).await?.per_second;
        let reader = stand.postgres.client().await?;
        let begin =
            format!("begin isolation level repeatable read read only; select count(*) from {SNAPSHOT}.delivery");
        reader.batch_execute(&begin).await?;
        tokio::time::sleep(age).await;
        let with = life.window(WARM, window).await?.per_second;
        reader.batch_execute("rollback").await?;
        tokio::time::sleep(recovery).await;
        println!("round {round}  without a snapshot {without:.0}/s, with one {with:.0}/s");
        pairs.push(Pair { with, without });
        let seconds = (2 * window + age + 2 * recovery).as_secs_f64();
        a_round_takes = (with.max(without) * seconds * 1.2) as u64;
    }
    life.end().await?;
    stand.drop_schema(SNAPSHOT).await?;
    Ok(pairs)
}

fn backlogged(flags: &Flags) -> Subject {
    Subject { topic: BACKLOG.to_owned(), more: ", maxWaiting: 2000000", ..subject(WAITING, WAITING, flags) }
}

/// A workflow reads a whole topic of its own while it is paused.
async fn backlog(stand: &Stand, flags: &Flags) -> anyhow::Result<i64> {
    stand.migrate(WAITING)?;
    let events: u64 = if flags.quick { 300_000 } else { 1_000_000 };
    stand.make_topic(BACKLOG, events).await?;
    let config = stand.config(WAITING, &[backlogged(flags)])?;
    stand.order(&["pause", WAITING], &config)?;
    let relay = stand.relay(WAITING, &config)?;
    let wanted = i64::try_from(events)?;
    let deadline = Instant::now() + Duration::from_secs(300);
    let waiting = loop {
        let waiting = stand.undelivered(WAITING, WAITING).await?;
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
    stand.settle().await?;
    let config = stand.config(WAITING, &[backlogged(flags)])?;
    let waiting = u64::try_from(stand.undelivered(WAITING, WAITING).await?)?;
    let relay = stand.relay(WAITING, &config)?;
    stand.order(&["resume", WAITING], &config)?;
    let run = Run { processes: &[relay.pid()], warm: 10_000, supply: Some(waiting) };
    let window = measure(stand, &run, flags.window()).await?;
    stand.order(&["pause", WAITING], &config)?;
    relay.stop()?;
    Ok(window.per_second)
}

/// Delivered events of today, as many as that.
async fn history(stand: &Stand, rows: i64) -> anyhow::Result<i64> {
    stand.migrate(HISTORY)?;
    let sample =
        format!("drop table if exists bench_event; create table bench_event as select * from {WAITING}.outbox limit 1");
    stand.client.batch_execute(&sample).await?;
    tokio::try_join!(load(stand, 0, rows), load(stand, ROWS_AT_ONCE, rows))?;
    let known = format!("analyze {HISTORY}.outbox; analyze {HISTORY}.ended; checkpoint");
    stand.client.batch_execute(&known).await?;
    Ok(rows)
}

/// Every other part of it, from here on.
async fn load(stand: &Stand, from: i64, rows: i64) -> anyhow::Result<()> {
    let client = stand.postgres.client().await?;
    let text = include_str!("history.sql").replace("oncebox.", &format!("{HISTORY}."));
    for from in (from..rows).step_by(usize::try_from(2 * ROWS_AT_ONCE)?) {
        let last = (from + ROWS_AT_ONCE).min(rows) - 1;
        client.execute(&text, &[&from, &last]).await?;
    }
    Ok(())
}

/// The slowest of some readings of a running relay's metrics.
async fn scrape(stand: &Stand, flags: &Flags) -> anyhow::Result<f64> {
    stand.settle().await?;
    let config = stand.config("scraped", &[subject(HISTORY, "scraped", flags)])?;
    let address = stand::admin_address(&config)?;
    let life = Life::of(stand, stand.relay("scraped", &config)?, stand.supply());
    life.window(WARM, Duration::from_secs(1)).await?;
    let mut slowest: f64 = 0.0;
    for _ in 0..20 {
        let began = Instant::now();
        let text = stand::get(&address, "/metrics").await?;
        slowest = slowest.max(began.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(text.contains("oncebox_delivered_total"), "these are no metrics");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    life.end().await?;
    Ok(slowest)
}
