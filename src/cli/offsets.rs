//! `oncebox offsets show|set WORKFLOW`: where a workflow stands in its topics, and the way out of a halt.
//!
//! Moving forward leaves a gap on record; moving back reads records again as a new generation, with the same keys.

use super::access::{At, segment};
use super::output::table;
use super::{Failure, block_on};
use crate::operate::offsets::{Moves, Wanted};
use crate::operate::{Operator, Page};
use crate::outbox::cursor::Listed;

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Show where each partition stands.
    Show(Show),
    /// Move the stored offsets, and end a halt.
    Set(Set),
}

#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct Set {
    /// Its id.
    workflow: String,
    /// earliest, latest, an offset, or an RFC 3339 time.
    #[arg(long)]
    to: String,
    /// Only this partition.
    #[arg(long)]
    partition: Option<i32>,
    /// Only this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Show(show) => block_on(show_offsets(&show)),
        Verb::Set(set) => block_on(set_offsets(&set)),
    }
}

fn path(workflow: &str) -> String {
    format!("/v1/workflows/{}/offsets", segment(workflow))
}

async fn show_offsets(show: &Show) -> Result<(), Failure> {
    let here = async |operator: &Operator| Ok(Page { items: operator.offsets(&show.workflow).await?, next: None });
    let Page { items: cursors, .. }: Page<Listed> = show.at.access()?.get(&path(&show.workflow), here).await?;
    if show.json {
        println!("{}", serde_json::to_string_pretty(&cursors)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = cursors
        .iter()
        .map(|c| {
            let waiting = c.events - c.completed - c.cancelled - c.discarded - c.suppressed;
            let numbers = [c.start_offset, c.next_offset, c.settled_to, c.events, waiting];
            let mut row = vec![c.topic.clone(), c.partition.to_string(), c.topic_id.clone()];
            row.extend(numbers.map(|number| number.to_string()));
            row
        })
        .collect();
    let header = ["TOPIC", "PARTITION", "TOPIC ID", "START", "NEXT", "SETTLED TO", "EVENTS", "UNDELIVERED"];
    println!("{}", table(&header, &rows));
    Ok(())
}

async fn set_offsets(set: &Set) -> Result<(), Failure> {
    let Set { to, topic, partition, dry_run, .. } = set;
    let wanted = Wanted { to: to.clone(), topic: topic.clone(), partition: *partition, dry_run: *dry_run };
    let here = async |operator: &Operator| operator.set_offsets(&set.workflow, &wanted).await;
    let moved: Moves = set.at.access()?.change(("POST", &path(&set.workflow)), &wanted, here).await?;
    if set.json {
        println!("{}", serde_json::to_string_pretty(&moved)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = moved
        .moves
        .iter()
        .map(|m| {
            let from = m.from.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
            vec![m.topic.clone(), m.partition.to_string(), from, m.to.to_string()]
        })
        .collect();
    println!("{}", table(&["TOPIC", "PARTITION", "FROM", "TO"], &rows));
    if !moved.changed {
        println!("dry run: nothing was changed");
    }
    Ok(())
}
