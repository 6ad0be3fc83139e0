//! What it costs to tell repeats apart: `deduplication` and `unique` beside neither, and with a million keys remembered beside none.

use serde::Serialize;

use super::Flags;
use super::meter::{Window, median};
use super::stand::Stand;
use super::subject::Subject;
use super::throughput::relay;

/// Keys that are remembered, and for how long they will be.
const KEYS: i64 = 1_000_000;
const REPEATS: &str = ", deduplication: {keyFields: [/after/n], ttl: 30d}";
const UNIQUE: &str = ", unique: {keys: [args], period: P30D, on_conflict: ignore}";

#[derive(Debug, Clone, Default, Serialize)]
pub struct Unique {
    /// The time that the same events take, over that without.
    pub deduplication_over_without: f64,
    pub unique_over_without: f64,
    /// Throughput with a million keys over that with none.
    pub deduplication_with_keys: f64,
    pub unique_with_keys: f64,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Unique> {
    let (mut without, mut deduplicated, mut unique) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..flags.rounds() {
        without.push(rate(stand, flags, &format!("plain-{round}"), "").await?);
        deduplicated.push(rate(stand, flags, &format!("repeats-{round}"), REPEATS).await?);
        unique.push(rate(stand, flags, &format!("unique-{round}"), UNIQUE).await?);
    }
    fill(stand).await?;
    let (mut deduplicated_full, mut unique_full) = (Vec::new(), Vec::new());
    for round in 0..flags.rounds() {
        deduplicated_full.push(rate(stand, flags, &format!("repeats-full-{round}"), REPEATS).await?);
        unique_full.push(rate(stand, flags, &format!("unique-full-{round}"), UNIQUE).await?);
    }
    let over = |one: &[f64], other: &[f64]| median(one) / median(other);
    let found = Unique {
        deduplication_over_without: over(&without, &deduplicated),
        unique_over_without: over(&without, &unique),
        deduplication_with_keys: over(&deduplicated_full, &deduplicated),
        unique_with_keys: over(&unique_full, &unique),
    };
    println!(
        "deduplication takes {:.2} of the time without, unique {:.2}; with {KEYS} keys remembered their throughput is {:.2} and {:.2}",
        found.deduplication_over_without,
        found.unique_over_without,
        found.deduplication_with_keys,
        found.unique_with_keys
    );
    Ok(found)
}

async fn rate(stand: &Stand, flags: &Flags, id: &str, more: &'static str) -> anyhow::Result<f64> {
    let subject = Subject { concurrency: flags.concurrency, more, ..Subject::new(id, true) };
    let window: Window = relay(stand, &subject, flags).await?;
    println!("{}", super::throughput::line(id, &window));
    Ok(window.per_second)
}

/// Keys of other events, of the workflows that come: a lookup goes through all of them.
async fn fill(stand: &Stand) -> anyhow::Result<()> {
    let of = "'unique-full-' || (n % 5)";
    stand
        .client
        .batch_execute(&format!(
            "insert into oncebox.seen (workflow, fingerprint, cursor, record_offset, event_index, expires_at)
             select 'repeats-full-' || (n % 5), sha256(n::text::bytea), 7, n, 0, now() + interval '29 days'
               from generate_series(1, {KEYS}) as n;
             insert into oncebox.unique_key (workflow, fingerprint)
             select {of}, sha256(n::text::bytea) from generate_series(1, {KEYS}) as n;
             insert into oncebox.unique_event
                    (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, expires_at)
             select {of}, sha256(n::text::bytea), 7, n, 0, 0, now() - interval '1 day', now() + interval '29 days'
               from generate_series(1, {KEYS}) as n;
             analyze oncebox.seen; analyze oncebox.unique_key; analyze oncebox.unique_event;"
        ))
        .await?;
    Ok(())
}
