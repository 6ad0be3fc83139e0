//! `oncebox explain WORKFLOW`: what a workflow promises, what its receiver must do, and what happens in each failure.

use std::path::PathBuf;

use super::output::{bullet, table, wrapped, wrapped_rows};
use super::{Failure, load, workflow};
use crate::explain::facts::Path;
use crate::explain::settings::{Key, Setting};
use crate::explain::{self, Explanation, Marked};

#[derive(Debug, clap::Args)]
pub struct Explain {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

pub fn run(explain: &Explain) -> Result<(), Failure> {
    let loaded = load(&explain.config)?;
    let explanation = explain::explain(&loaded, workflow(&loaded, &explain.workflow)?);
    if explain.json {
        println!("{}", serde_json::to_string_pretty(&explanation)?);
    } else {
        print(&explanation);
    }
    Ok(())
}

fn print(said: &Explanation) {
    let path = match said.path {
        Path::Outbox => "outbox",
        Path::Direct => "direct",
    };
    println!("{}: {} by {}, {path} path", said.workflow, said.guarantee, said.mechanism);
    if !said.not_supported_yet.is_empty() {
        heading("Not in this build yet: `run` leaves this workflow out");
        said.not_supported_yet.iter().for_each(|f| println!("{}", bullet(&format!("{}: {}", f.place, f.message))));
    }
    heading("Promise");
    said.promise.iter().for_each(|text| println!("{}", wrapped(text, 2)));
    heading("Path");
    println!("{}", wrapped(said.path_means, 2));
    heading("What the receiver must do");
    said.receiver.iter().for_each(|text| println!("{}", bullet(text)));
    print_key(&said.key);
    print_retries(said);
    heading("Answers");
    let rows: Vec<[String; 2]> =
        said.answers.iter().map(|row| [row.part.answer.clone(), marked(&row.part.means, row)]).collect();
    println!("{}", wrapped_rows(["ANSWER", "MEANS"], &rows));
    heading("Order and doubt");
    print_settings([&said.ordering, &said.in_doubt].into_iter());
    heading("Windows");
    print_settings(said.windows.iter());
    heading("Limits");
    print_settings(said.limits.iter());
    heading("Failures");
    let rows: Vec<[String; 3]> = said
        .failures
        .iter()
        .map(|row| [row.part.when.clone(), marked(&row.part.then, row), row.part.sent_again.in_words().to_owned()])
        .collect();
    println!("{}", wrapped_rows(["WHEN", "THEN", "SENT AGAIN"], &rows));
    for (name, value) in [("Documentation", &said.documentation), ("Client guidance", &said.client_guidance)] {
        if let Some(value) = value {
            heading(name);
            print_value(value);
        }
    }
    if !said.warnings.is_empty() {
        heading("Warnings");
        said.warnings.iter().for_each(|f| println!("{}", bullet(&format!("{}: {}", f.place, f.message))));
    }
    if lacks_something(said) {
        println!("\n† not in this build yet");
    }
}

fn lacks_something(said: &Explanation) -> bool {
    let settings = said.windows.iter().chain(&said.limits).chain([&said.ordering, &said.in_doubt]);
    let built = settings.map(|one| one.in_this_build);
    let built = built.chain(said.answers.iter().map(|one| one.in_this_build));
    built.chain(said.failures.iter().map(|one| one.in_this_build)).any(|built| !built)
}

fn heading(text: &str) {
    println!("\n{text}");
}

/// What this build lacks is said where it is described.
fn marked<T>(text: &str, part: &Marked<T>) -> String {
    if part.in_this_build { text.to_owned() } else { format!("{text} †") }
}

fn print_key(key: &Key) {
    heading("Key");
    let quotes = if key.quoted { "in quotes, and as webhook-id without" } else { "without quotes, and as webhook-id" };
    let body = if key.included_in_payload { "; also in the keyed body" } else { "" };
    println!("{}", wrapped(&format!("header {} ({quotes}){body}", key.header), 2));
    println!("{}", wrapped(key.formula, 2));
    let rows: Vec<Vec<String>> =
        key.components.iter().map(|component| vec![component.name.clone(), component.from.clone()]).collect();
    println!("{}", indented(&table(&["COMPONENT", "FROM"], &rows)));
    println!("{}", wrapped(key.fallback, 2));
}

fn print_retries(said: &Explanation) {
    heading("Retries");
    let retries = &said.retries;
    let mut rows: Vec<Vec<String>> = retries
        .attempts
        .iter()
        .map(|one| vec![one.attempt.to_string(), one.delay.clone(), one.since.clone()])
        .collect();
    if retries.total.is_none_or(|total| total as usize > rows.len()) {
        rows.push(vec!["…".to_owned(), String::new(), String::new()]);
    }
    println!("{}", indented(&table(&["ATTEMPT", "DELAY", "SINCE THE FIRST"], &rows)));
    println!("{}", wrapped(&format!("for {}: {}", retries.applies_to, retries.in_words()), 2));
    let most = retries.max_attempts.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    println!(
        "{}",
        wrapped(
            &format!(
                "maxAttempts {most}, giveUpAfter {}, each delay moved by up to {:.0}% at random, Retry-After honoured up \
                 to {}",
                retries.give_up_after,
                retries.jitter * 100.0,
                retries.max_retry_after
            ),
            2
        )
    );
}

fn print_settings<'a>(settings: impl Iterator<Item = &'a Marked<Setting>>) {
    let rows: Vec<[String; 3]> =
        settings.map(|one| [one.part.name.to_owned(), one.part.value.clone(), marked(&one.part.means, one)]).collect();
    println!("{}", wrapped_rows(["NAME", "VALUE", "MEANS"], &rows));
}

fn print_value(value: &serde_json::Value) {
    match value {
        serde_json::Value::Object(entries) => {
            for (name, value) in entries {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                println!("  {name}: {text}");
            }
        }
        other => println!("  {}", other.as_str().map_or_else(|| other.to_string(), str::to_owned)),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
