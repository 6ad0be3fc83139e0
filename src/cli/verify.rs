//! `oncebox verify WORKFLOW`: proves from Kafka and Postgres that nothing was lost, and names each gap. Stops nothing for it.

use super::access::{At, segment};
use super::output::{self, table};
use super::{Failure, block_on};
use crate::operate::Operator;
use crate::operate::offsets::Verified;
use crate::verify::Partition;

/// More than these are counted, not listed.
const SHOWN: usize = 100;

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn run(flags: &Verify) -> Result<(), Failure> {
    let found = block_on(ask(flags))?;
    output::progress("");
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print(&found.partitions, found.gaps);
    }
    if found.gaps == 0 { Ok(()) } else { Err(Failure::Said) }
}

async fn ask(flags: &Verify) -> Result<Verified, Failure> {
    let path = format!("/v1/workflows/{}/verify", segment(&flags.workflow));
    let here = async |operator: &Operator| operator.verify(&flags.workflow, output::progress).await;
    flags.at.access()?.patient().get(&path, here).await
}

fn print(partitions: &[Partition], gaps: usize) {
    let row = |p: &Partition| {
        let c = &p.counts;
        let mut row = vec![p.topic.clone(), p.partition.to_string(), format!("{}..{}", p.from, p.to)];
        let numbers = [
            c.delivered,
            c.waiting,
            c.dead,
            c.replayed,
            c.cancelled,
            c.filtered,
            c.tombstones,
            c.suppressed,
            c.marked,
            c.skipped,
            c.absent,
            c.unknown,
        ];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(p.gaps.len().to_string());
        row
    };
    let header = [
        "TOPIC",
        "PARTITION",
        "OFFSETS",
        "DELIVERED",
        "WAITING",
        "DEAD",
        "REPLAYED",
        "CANCELLED",
        "FILTERED",
        "TOMBSTONES",
        "SUPPRESSED",
        "MARKED",
        "SKIPPED",
        "ABSENT",
        "UNKNOWN",
        "GAPS",
    ];
    println!("{}", table(&header, &partitions.iter().map(row).collect::<Vec<_>>()));
    for gap in partitions.iter().flat_map(|partition| &partition.gaps).take(SHOWN) {
        let event = gap.event.as_ref().map(|event| format!(" (event {event})")).unwrap_or_default();
        let until = if gap.to - gap.from > 1 { format!(" to {}", gap.to - 1) } else { String::new() };
        println!("GAP  {}{until}{event}: {}", gap.source, gap.message);
    }
    if gaps > SHOWN {
        println!("and {} more", gaps - SHOWN);
    }
    if partitions.iter().any(|partition| partition.counts.marked > 0) {
        println!("marked: read without the outbox; the mark in Kafka alone says that these are delivered or stored");
    }
    if partitions.iter().any(|partition| partition.counts.unknown > 0) {
        println!("unknown: nothing is on record of these, and Kafka does not have them any more");
    }
    match gaps {
        0 => println!("every record has exactly one disposition"),
        gaps => println!("{gaps} gaps"),
    }
}
