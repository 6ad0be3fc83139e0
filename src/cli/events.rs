//! `oncebox events list|resolve`: undelivered events that have a life of their own, and an operator's word on those held.

use std::path::PathBuf;

use super::output::{self, table};
use super::{Failure, block_on, load, workflow};
use crate::config::OnKeyFailure;
use crate::event::{NotAnEventId, Place};
use crate::outbox::{Database, notify, resolve, workflow as store};

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List events of a workflow that were tried and are not delivered, or are held.
    List(List),
    /// Say what became of an event that is held because its outcome is unknown.
    Resolve(Resolve),
}

#[derive(Debug, clap::Args)]
pub struct List {
    /// Its id.
    #[arg(long)]
    workflow: String,
    /// Only those in this state.
    #[arg(long, value_parser = ["scheduled", "available", "active", "retryable", "pending"])]
    state: Option<String>,
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
pub struct Resolve {
    /// Its event id, as `list` shows it.
    id: String,
    /// What became of it.
    #[arg(long, value_enum)]
    to: Word,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

/// An operator's word on an event in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Word {
    /// The endpoint has processed it: it is completed, without another request.
    Delivered,
    /// The endpoint has not processed it: it is sent again, with the same key.
    Redeliver,
    /// It stays unknown: a dead letter with reason `in_doubt`.
    DeadLetter,
}

impl Word {
    fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Redeliver => "redeliver",
            Self::DeadLetter => "dead-letter",
        }
    }
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(list) => block_on(print_list(&list)),
        Verb::Resolve(one) => block_on(resolve_one(&one)),
    }
}

async fn print_list(list: &List) -> Result<(), Failure> {
    let loaded = load(&list.config)?;
    let id = &workflow(&loaded, &list.workflow)?.id;
    let database = Database::new(&loaded.config.postgres)?;
    let events = resolve::list(&database, id, list.state.as_deref(), list.limit).await?;
    if list.json {
        println!("{}", serde_json::to_string_pretty(&events)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = events
        .into_iter()
        .map(|e| {
            let state = e.held.map_or_else(|| e.state.clone(), |held| format!("{} ({held})", e.state));
            vec![e.id, state, e.attempts.to_string(), e.source, e.key, format!("{:.0}", e.due)]
        })
        .collect();
    println!("{}", table(&["ID", "STATE", "ATTEMPTS", "SOURCE", "KEY", "DUE"], &rows));
    Ok(())
}

async fn resolve_one(one: &Resolve) -> Result<(), Failure> {
    let place: Place = one.id.parse().map_err(|error: NotAnEventId| Failure::Usage(error.to_string()))?;
    let loaded = load(&one.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let Some(held) = resolve::held(&database, place).await? else {
        return Err(anyhow::anyhow!("{place} is not held: nothing asks for a word on it").into());
    };
    let taken = match one.to {
        Word::Delivered => resolve::delivered(&database, &held).await?,
        Word::Redeliver => resolve::send_again(&database, &held).await?,
        Word::DeadLetter => {
            let flow = loaded.config.workflow(&held.workflow);
            let blocks = flow.is_some_and(|flow| flow.delivery.ordering == Some(OnKeyFailure::Block));
            resolve::give_up(&database, &held, blocks).await?
        }
    };
    if !taken {
        return Err(anyhow::anyhow!("{place} was settled meanwhile: nothing was changed").into());
    }
    let detail = format!("{place} to {}", one.to.as_str());
    store::audit(&database, &output::who(), "event resolved", Some(&held.workflow), &detail).await?;
    notify::tell(&database, &held.workflow).await?;
    match one.json {
        true => println!("{}", serde_json::json!({"id": place.to_string(), "resolved": one.to.as_str()})),
        false => println!("{place}: {}", one.to.as_str()),
    }
    Ok(())
}
