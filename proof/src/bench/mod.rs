//! The benchmark: what a relay costs beside the bare work. Everything that is compared is measured in turn in the same run,
//! round after round, and compared within a round: a busy machine is busy for both.
//!
//! Files in reading order: `flags` (how much), `stand` (where), `subject` (what), `meter` and `life` (how), `bare` and `insert` (what
//! it is compared with), `throughput`, `latency`, `scale`, `growth` and `course`, `peers`, `unique` (what is asked), `report` and `plot`
//! (what is said).

pub mod bare;
mod course;
mod flags;
mod growth;
mod insert;
mod latency;
mod life;
mod meter;
mod peers;
mod plot;
mod report;
mod scale;
mod stand;
mod subject;
mod throughput;
mod unique;

use std::time::Instant;

pub use flags::Flags;
use report::{About, Results};
use stand::Stand;

/// What was measured before something failed is written down too.
pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let began = Instant::now();
    let mut stand = Stand::start(
        std::path::absolute(&flags.out)?,
        std::path::absolute(&flags.binary)?,
        &std::path::absolute(&flags.jars)?,
    )
    .await?;
    let about = About::of(&stand, flags).await?;
    stand.fill(flags.topic_events()).await?;
    stand.migrate(subject::SCHEMA)?;
    println!("{:>5}s  {} events are in the topic", began.elapsed().as_secs(), flags.topic_events());
    let mut results = Results::default();
    let measured = measure(&stand, flags, &mut results, began).await;
    println!("{:>5}s  {}", began.elapsed().as_secs(), if measured.is_ok() { "done" } else { "failed" });
    results.write(&about, flags, measured.is_ok())?;
    stand.clear();
    measured.map(|()| true)
}

async fn measure(stand: &Stand, flags: &Flags, results: &mut Results, began: Instant) -> anyhow::Result<()> {
    for part in flags::PARTS.into_iter().filter(|part| flags.wants_part(part)) {
        println!("{:>5}s  {part}", began.elapsed().as_secs());
        match part {
            "throughput" => results.throughput = Box::pin(throughput::run(stand, flags)).await?,
            "latency" => results.latency = Box::pin(latency::run(stand, flags)).await?,
            "scale" => results.scale = Box::pin(scale::run(stand, flags)).await?,
            "growth" => results.growth = Some(Box::pin(growth::run(stand, flags)).await?),
            "peers" => results.peers = Box::pin(peers::run(stand, flags)).await?,
            "unique" => results.unique = Some(Box::pin(unique::run(stand, flags)).await?),
            "memory" => results.peak_rss_mib = Some(Box::pin(scale::memory(stand, flags)).await?),
            other => anyhow::bail!("nothing measures {other}"),
        }
    }
    Ok(())
}
