//! `oncebox verify WORKFLOW`: proves from Kafka and Postgres that nothing was lost, and names each gap. Stops nothing for it.

use std::path::PathBuf;

use super::output::{self, table};
use super::{Failure, block_on, load, workflow};
use crate::outbox::Database;
use crate::verify::{self, Partition};

/// More than these are counted, not listed.
const SHOWN: usize = 100;

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

pub fn run(flags: &Verify) -> Result<(), Failure> {
    let loaded = load(&flags.config)?;
    let flow = workflow(&loaded, &flags.workflow)?;
    let database = Database::new(&loaded.config.postgres)?;
    let partitions = block_on(verify::verify(&loaded.config, &database, flow, output::progress))?;
    output::progress("");
    let gaps: usize = partitions.iter().map(|partition| partition.gaps.len()).sum();
    if flags.json {
        let found = serde_json::json!({"workflow": &*flow.id, "gaps": gaps, "partitions": partitions});
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print(&partitions, gaps);
    }
    if gaps == 0 { Ok(()) } else { Err(Failure::Said) }
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
