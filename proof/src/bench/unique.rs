//! What it costs to tell repeats apart: `deduplication` and `unique` beside neither, and with a million keys remembered beside none, in
//! turn. The keys are in a schema of their own; each round has a new one without any.

use serde::Serialize;

use super::flags::Flags;
use super::life::Life;
use super::meter::{Pair, ratio_of};
use super::stand::Stand;
use super::subject::Subject;
use super::throughput::line;

/// Where a million keys are remembered, for how long they will be.
const FULL: &str = "remembering";
const REPEATS: &str = ", deduplication: {keyFields: [/after/n], ttl: 30d}";
const UNIQUE: &str = ", unique: {keys: [args], period: P30D, on_conflict: ignore}";
/// Fewer than elsewhere: it takes longer until they came.
const WARM: u64 = 10_000;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Unique {
    /// The time that the same events take, over that without.
    pub deduplication_over_without: f64,
    pub unique_over_without: f64,
    /// Throughput with a million keys over that with none.
    pub deduplication_with_keys: f64,
    pub unique_with_keys: f64,
    pub rounds: Vec<Round>,
}

/// Events per second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Round {
    pub without: f64,
    pub deduplicated: f64,
    pub unique: f64,
    pub deduplicated_full: f64,
    pub unique_full: f64,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Unique> {
    fill(stand, flags).await?;
    let mut rounds = Vec::new();
    for round in 0..flags.few_rounds() {
        let new = format!("unique_{round}");
        stand.migrate(&new)?;
        let name = |kind: &str| format!("{kind}-{round}");
        rounds.push(Round {
            without: rate(stand, flags, (&*new, ""), &name("plain")).await?,
            deduplicated: rate(stand, flags, (&*new, REPEATS), &name("repeats")).await?,
            unique: rate(stand, flags, (&*new, UNIQUE), &name("unique")).await?,
            deduplicated_full: rate(stand, flags, (FULL, REPEATS), &name("repeats-full")).await?,
            unique_full: rate(stand, flags, (FULL, UNIQUE), &name("unique-full")).await?,
        });
        stand.drop_schema(&new).await?;
    }
    stand.drop_schema(FULL).await?;
    let over = |with: fn(&Round) -> f64, without: fn(&Round) -> f64| {
        let pair = |round: &Round| Pair { with: with(round), without: without(round) };
        ratio_of(&rounds.iter().map(pair).collect::<Vec<_>>())
    };
    let found = Unique {
        deduplication_over_without: over(|round| round.without, |round| round.deduplicated),
        unique_over_without: over(|round| round.without, |round| round.unique),
        deduplication_with_keys: over(|round| round.deduplicated_full, |round| round.deduplicated),
        unique_with_keys: over(|round| round.unique_full, |round| round.unique),
        rounds,
    };
    println!(
        "deduplication takes {:.2} of the time without, unique {:.2}; with a million keys remembered their throughput is {:.2} and {:.2}",
        found.deduplication_over_without,
        found.unique_over_without,
        found.deduplication_with_keys,
        found.unique_with_keys
    );
    Ok(found)
}

async fn rate(stand: &Stand, flags: &Flags, (schema, more): (&str, &'static str), id: &str) -> anyhow::Result<f64> {
    let subject = Subject { schema: schema.to_owned(), concurrency: flags.concurrency, more, ..Subject::new(id, true) };
    let life = Life::begin(stand, &subject).await?;
    let window = life.window(WARM, flags.window()).await?;
    life.end().await?;
    println!("{}", line(id, &window));
    Ok(window.per_second)
}

async fn fill(stand: &Stand, flags: &Flags) -> anyhow::Result<()> {
    stand.migrate(FULL)?;
    let text = include_str!("keys.sql")
        .replace("oncebox.", &format!("{FULL}."))
        .replace("@ROUNDS@", &flags.few_rounds().to_string());
    Ok(stand.client.batch_execute(&text).await?)
}
