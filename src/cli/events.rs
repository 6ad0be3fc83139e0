//! `oncebox events list|show|cancel|resolve`: which events there are, one of them whole, and an operator's word on them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::access::{Access, At, query};
use super::output::table;
use super::{Failure, block_on, output};
use crate::admin::api::events::Cancellation;
use crate::dead_letter::{Attempt, Payload};
use crate::event::{NotAnEventId, Place};
use crate::operate::events::{Shown, Summary, Word};
use crate::operate::sought::Sought;
use crate::operate::{Operator, Page};

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List the events of a workflow, or of a record, by place.
    List(List),
    /// Show one, with its requests and its body.
    Show(Show),
    /// Have an event never sent again; one that is claimed may be on its way.
    Cancel(Cancel),
    /// Say what became of an event that is held because its outcome is unknown.
    Resolve(Resolve),
}

#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Its event id, as `list` shows it.
    id: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct List {
    /// Of this workflow.
    #[arg(long, required_unless_present = "source")]
    workflow: Option<String>,
    /// Only those in this state; not with --key or --source.
    #[arg(long, value_parser = crate::operate::events::STATES)]
    state: Option<String>,
    /// Only those with this idempotency key; reads all that is stored of the workflow.
    #[arg(long)]
    key: Option<String>,
    /// Only those of this record.
    #[arg(long, value_name = "TOPIC/PARTITION/OFFSET")]
    source: Option<String>,
    /// At most so many, 50 unless told; not with --key or --source, which find all there are.
    #[arg(long)]
    limit: Option<usize>,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its event id, as `list` shows it.
    id: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct Resolve {
    /// Its event id, as `list` shows it.
    id: String,
    /// What became of it.
    #[arg(long, value_enum)]
    to: Word,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(list) => block_on(print_list(&list)),
        Verb::Show(show) => block_on(print_one(&show)),
        Verb::Cancel(one) => block_on(cancel_one(&one)),
        Verb::Resolve(one) => block_on(resolve_one(&one)),
    }
}

pub fn place(id: &str) -> Result<Place, Failure> {
    id.parse().map_err(|error: NotAnEventId| Failure::Usage(error.to_string()))
}

async fn print_list(list: &List) -> Result<(), Failure> {
    let access = list.at.access()?;
    let mut found: Vec<Summary> = Vec::new();
    let mut after: Option<String> = None;
    let most = list.limit.unwrap_or(50);
    // These are found on one page, all of them, and take no limit: one that was given is refused where it is asked for.
    let is_whole = list.key.is_some() || list.source.is_some();
    loop {
        let limit = if is_whole { list.limit } else { Some((most - found.len()).clamp(1, 500)) };
        let Page { items, next } = one_page(list, &access, after.as_deref(), limit).await?;
        found.extend(items);
        after = next;
        if after.is_none() || found.len() >= most {
            break;
        }
        output::progress(&format!("{} events found", found.len()));
    }
    if list.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found
        .into_iter()
        .map(|e| {
            let state = e.held.map_or_else(|| e.state.clone(), |held| format!("{} ({held})", e.state));
            let due = e.due.map(|due| format!("{due:.0}")).unwrap_or_default();
            vec![e.id, state, e.attempts.to_string(), e.source, e.key, due]
        })
        .collect();
    println!("{}", table(&["ID", "STATE", "ATTEMPTS", "SOURCE", "KEY", "DUE"], &rows));
    Ok(())
}

async fn one_page(
    list: &List,
    access: &Access,
    after: Option<&str>,
    limit: Option<usize>,
) -> Result<Page<Summary>, Failure> {
    let sought = Sought {
        workflow: list.workflow.as_deref(),
        state: list.state.as_deref(),
        key: list.key.as_deref(),
        source: list.source.as_deref(),
        after,
        limit,
    };
    let pairs = [
        ("workflow", list.workflow.clone()),
        ("state", list.state.clone()),
        ("key", list.key.clone()),
        ("source", list.source.clone()),
        ("after", after.map(str::to_owned)),
        ("limit", limit.map(|limit| limit.to_string())),
    ];
    access.get(&query("/v1/events", &pairs), async |operator: &Operator| operator.find(sought).await).await
}

async fn print_one(show: &Show) -> Result<(), Failure> {
    let place = place(&show.id)?;
    let path = format!("/v1/events/{place}?payload=true");
    let here = async |operator: &Operator| operator.event(place, Payload::Shown).await;
    let event: Shown = show.at.access()?.get(&path, here).await?;
    if show.json {
        println!("{}", serde_json::to_string_pretty(&event)?);
        return Ok(());
    }
    let state = event.held.as_ref().map_or_else(|| event.state.clone(), |held| format!("{} ({held})", event.state));
    println!("{}  {}  {state}", event.id, event.workflow);
    println!("source   {}/{}/{}", event.topic, event.partition, event.offset);
    let time = |at: &Option<jiff::Timestamp>| at.map(|at| format!("{at:.3}"));
    for (name, value) in [
        ("key", event.key.clone()),
        ("type", event.event_type.clone()),
        ("stored", time(&event.created_at)),
        ("due", time(&event.due)),
        ("ended", time(&event.ended_at)),
        ("answer", event.status.map(|status| status.to_string())),
        ("letter", event.dead_letter.clone()),
    ] {
        if let Some(value) = value {
            println!("{name:<8} {value}");
        }
    }
    print_attempts(&event.attempts);
    print_body(event.body.as_deref());
    Ok(())
}

/// Requests that did not deliver, and what was answered.
pub fn print_attempts(attempts: &[Attempt]) {
    for attempt in attempts {
        let status = attempt.status.map(|status| status.to_string()).unwrap_or_default();
        let error = attempt.error.as_deref().unwrap_or_default();
        println!("attempt  {} {} {} {status} {error}", attempt.send, attempt.at, attempt.outcome);
        let answer = attempt.answer.as_ref().and_then(|text| STANDARD.decode(text).ok());
        if let Some(answer) = answer.filter(|answer| !answer.is_empty()) {
            println!("answer   {}", output::plain(&String::from_utf8_lossy(&answer)));
        }
    }
}

pub fn print_body(body: Option<&str>) {
    if let Some(body) = body.and_then(|text| STANDARD.decode(text).ok()) {
        let beginning = String::from_utf8_lossy(&body[..body.len().min(4096)]).into_owned();
        println!("body     {} bytes\n{}", body.len(), output::plain(&beginning));
    }
}

async fn cancel_one(one: &Cancel) -> Result<(), Failure> {
    let place = place(&one.id)?;
    let path = format!("/v1/events/{place}/cancel");
    let here = async |operator: &Operator| {
        let is_over = operator.cancel(place).await?;
        Ok(Cancellation { id: place.to_string(), cancel_requested: !is_over })
    };
    let said: Cancellation = one.at.access()?.change(("POST", &path), &serde_json::json!({}), here).await?;
    match (one.json, said.cancel_requested) {
        (true, _) => println!("{}", serde_json::to_string(&said)?),
        (false, true) => println!("{place}: asked for; it may be on its way, and is not tried again"),
        (false, false) => println!("{place}: cancelled"),
    }
    Ok(())
}

async fn resolve_one(one: &Resolve) -> Result<(), Failure> {
    let place = place(&one.id)?;
    let path = format!("/v1/events/{place}/resolve");
    let body = serde_json::json!({"to": one.to});
    let here = async |operator: &Operator| {
        operator.resolve(place, one.to).await?;
        Ok(serde_json::json!({"id": place.to_string(), "resolved": one.to}))
    };
    let said: serde_json::Value = one.at.access()?.change(("POST", &path), &body, here).await?;
    match one.json {
        true => println!("{said}"),
        false => println!("{place}: {}", one.to.as_str()),
    }
    Ok(())
}
