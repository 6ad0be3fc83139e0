//! `oncebox dead-letters list|show|replay|discard|replays`.

use super::access::{Access, At, failed, query};
use super::events::{place, print_attempts, print_body};
use super::output::table;
use super::{Failure, block_on};
use crate::dead_letter::{Filter, Payload, Shown, Summary};
use crate::operate::{Operator, Page};

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List dead letters, newest first.
    List(List),
    /// Show one, with its attempts and its body.
    Show(One),
    /// Deliver one again, or all that fit: same key, same bytes, attempts from zero.
    Replay(super::replays::Replay),
    /// Remove one for good.
    Discard(One),
    /// List replays of many, or pause, resume or cancel one.
    Replays(super::replays::Replays),
}

/// Which of them.
#[derive(Debug, Clone, clap::Args)]
pub struct Which {
    /// Only those of this workflow.
    #[arg(long)]
    pub workflow: Option<String>,
    /// Only those with this reason.
    #[arg(long)]
    pub reason: Option<String>,
    /// Only those written at this time or later (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub from: Option<jiff::Timestamp>,
    /// Only those written before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<jiff::Timestamp>,
}

impl Which {
    pub fn filter(&self) -> Filter {
        let Self { workflow, reason, from, to } = self.clone();
        Filter { workflow, reason, from, to }
    }
}

#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    which: Which,
    /// At most so many.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct One {
    /// Its event id, as `list` shows it.
    id: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(list) => block_on(print_list(&list)),
        Verb::Show(one) => block_on(print_one(&one)),
        Verb::Replay(again) => block_on(super::replays::replay(&again)),
        Verb::Discard(one) => block_on(discard(&one)),
        Verb::Replays(replays) => block_on(super::replays::replays(&replays)),
    }
}

async fn print_list(list: &List) -> Result<(), Failure> {
    let (access, filter) = (list.at.access()?, list.which.filter());
    let mut found: Vec<Summary> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let limit = (list.limit - found.len()).clamp(1, 500);
        let Page { items, next } = one_page(&access, &filter, after.as_deref(), limit).await?;
        found.extend(items);
        after = next;
        if after.is_none() || found.len() >= list.limit {
            break;
        }
    }
    // What a removed workflow left can be listed too; a name that nobody ever had is a mistake.
    if let (Some(id), Access::Postgres(operator), true) = (&filter.workflow, &access, found.is_empty()) {
        operator.known(id).await.map_err(failed)?;
    }
    if list.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found
        .into_iter()
        .map(|l| {
            let at = format!("{:.0}", l.created_at);
            vec![l.id, l.workflow, l.reason, l.attempts.to_string(), l.source, at]
        })
        .collect();
    println!("{}", table(&["ID", "WORKFLOW", "REASON", "ATTEMPTS", "SOURCE", "DEAD SINCE"], &rows));
    Ok(())
}

async fn one_page(
    access: &Access,
    filter: &Filter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Summary>, Failure> {
    let pairs = [
        ("workflow", filter.workflow.clone()),
        ("reason", filter.reason.clone()),
        ("from", filter.from.map(|at| at.to_string())),
        ("to", filter.to.map(|at| at.to_string())),
        ("after", after.map(str::to_owned)),
        ("limit", Some(limit.to_string())),
    ];
    let here = async |operator: &Operator| operator.dead_letters(filter, after, limit).await;
    access.get(&query("/v1/dead-letters", &pairs), here).await
}

async fn print_one(one: &One) -> Result<(), Failure> {
    let place = place(&one.id)?;
    let path = format!("/v1/dead-letters/{place}?payload=true");
    let here = async |operator: &Operator| Ok(operator.dead_letter(place).await?.shown(Payload::Shown));
    let letter: Shown = one.at.access()?.get(&path, here).await?;
    if one.json {
        println!("{}", serde_json::to_string_pretty(&letter)?);
        return Ok(());
    }
    println!("{}  {}  {}", letter.id, letter.workflow, letter.reason);
    println!("source   {}/{}/{}", letter.topic, letter.partition, letter.offset);
    for (name, value) in [("key", &letter.key), ("type", &letter.event_type), ("detail", &letter.detail)] {
        if let Some(value) = value {
            println!("{name:<8} {value}");
        }
    }
    print_attempts(&letter.attempts);
    if let Some(at) = &letter.late_success_at {
        println!("late     the endpoint did answer 2xx, at {at:.0}: a replay may be a second effect");
    }
    print_body(letter.body.as_deref());
    Ok(())
}

async fn discard(one: &One) -> Result<(), Failure> {
    let place = place(&one.id)?;
    let path = format!("/v1/dead-letters/{place}");
    let here = async |operator: &Operator| operator.discard(place).await;
    one.at.access()?.change(("DELETE", &path), &(), here).await?;
    match one.json {
        true => println!("{}", serde_json::json!({"id": place.to_string(), "discarded": true})),
        false => println!("{place}: discarded"),
    }
    Ok(())
}
