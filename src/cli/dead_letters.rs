//! `oncebox dead-letters list|show|replay`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::output::{self, table};
use super::{Failure, block_on, load};
use crate::config::Guarantee;
use crate::dead_letter::{self, Error};
use crate::event::Place;
use crate::outbox::{Database, notify};

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List dead letters, newest first.
    List(List),
    /// Show one, with its attempts and its body.
    Show(One),
    /// Deliver one again: same key, same bytes, attempts from zero.
    Replay(Replay),
}

#[derive(Debug, clap::Args)]
pub struct List {
    /// Only those of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 50)]
    limit: i64,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct One {
    /// Its event id, as `list` shows it.
    id: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Replay {
    #[command(flatten)]
    one: One,
    /// Also for an at-most-once workflow, whose endpoint may then see the event twice.
    #[arg(long)]
    force: bool,
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(list) => block_on(print_list(&list)),
        Verb::Show(one) => block_on(print_one(&one)),
        Verb::Replay(again) => block_on(replay(&again)),
    }
}

async fn print_list(list: &List) -> Result<(), Failure> {
    let loaded = load(&list.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let letters = dead_letter::list(&database, list.workflow.as_deref(), list.limit).await?;
    // What a removed workflow left can be listed too; a name that nobody ever had is a mistake.
    if let Some(id) = list.workflow.as_ref().filter(|_| letters.is_empty()) {
        super::workflow(&loaded, id)?;
    }
    if list.json {
        println!("{}", serde_json::to_string_pretty(&letters)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = letters
        .into_iter()
        .map(|l| {
            let at = format!("{:.0}", l.created_at);
            vec![l.id, l.workflow, l.reason, l.attempts.to_string(), l.source, at]
        })
        .collect();
    println!("{}", table(&["ID", "WORKFLOW", "REASON", "ATTEMPTS", "SOURCE", "DEAD SINCE"], &rows));
    Ok(())
}

fn place(one: &One) -> Result<Place, Failure> {
    one.id.parse().map_err(|error: crate::event::NotAnEventId| Failure::Usage(error.to_string()))
}

async fn print_one(one: &One) -> Result<(), Failure> {
    let place = place(one)?;
    let loaded = load(&one.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let letter = dead_letter::show(&database, place).await?;
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
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for attempt in letter.attempts.as_array().into_iter().flatten() {
        let status = text(&attempt["status"]).replace("null", "");
        let error = text(&attempt["error"]).replace("null", "");
        println!(
            "attempt  {} {} {} {status} {error}",
            text(&attempt["send"]),
            text(&attempt["at"]),
            text(&attempt["outcome"])
        );
        let answer = attempt["answer"].as_str().and_then(|text| STANDARD.decode(text.replace('\n', "")).ok());
        if let Some(answer) = answer.filter(|answer| !answer.is_empty()) {
            println!("answer   {}", String::from_utf8_lossy(&answer));
        }
    }
    if let Some(at) = &letter.late_success_at {
        println!("late     the endpoint did answer 2xx, at {at:.0}: a replay may be a second effect");
    }
    if let Some(body) = &letter.body {
        println!("body     {} bytes\n{}", body.len(), String::from_utf8_lossy(&body[..body.len().min(4096)]));
    }
    Ok(())
}

async fn replay(again: &Replay) -> Result<(), Failure> {
    let one = &again.one;
    let place = place(one)?;
    let loaded = load(&one.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let letter = dead_letter::show(&database, place).await?;
    let Some(workflow) = loaded.config.workflow(&letter.workflow) else {
        return Err(Error::NoWorkflow(place, letter.workflow).into());
    };
    if workflow.delivery.guarantee == Guarantee::AtMostOnce && !again.force {
        return Err(Failure::Usage(format!(
            "`{}` promises at-most-once, and the endpoint may have seen {place} already; --force sends it all the same",
            workflow.id
        )));
    }
    let made = dead_letter::replay(&database, &letter, workflow, &output::who()).await?;
    notify::tell(&database, &workflow.id).await?;
    let next = Place { generation: place.generation + 1, ..place };
    match (made, one.json) {
        (made, true) => println!("{}", serde_json::json!({"id": next.to_string(), "events": made})),
        (1, false) => println!("{place}: delivered again as {next}"),
        (made, false) => println!("{place}: {made} events"),
    }
    Ok(())
}
