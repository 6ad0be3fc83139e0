//! `oncebox test`: the `tests:` of workflows: a record in, the expected requests out. Needs no Kafka and no Postgres.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::{Failure, load, workflow};
use crate::config::{Loaded, Test, Workflow};
use crate::observe::chain;
use crate::preview::expectation::{Difference, differences};
use crate::preview::{Ending, Identity, Masks, Sample, Shown, Walk};
use crate::send::request::Template;

#[derive(Debug, clap::Args)]
pub struct Tests {
    /// Only the tests of this workflow.
    workflow: Option<String>,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// How one test went.
#[derive(serde::Serialize)]
struct Outcome<'a> {
    workflow: &'a str,
    name: &'a str,
    passed: bool,
    /// What is not as expected, a line each.
    differences: Vec<String>,
}

pub fn run(tests: &Tests) -> Result<(), Failure> {
    let loaded = load(&tests.config)?;
    let flows: Vec<&Arc<Workflow>> = match &tests.workflow {
        Some(id) => vec![workflow(&loaded, id)?],
        None => loaded.config.workflows.iter().collect(),
    };
    let (mut outcomes, mut failed) = (Vec::new(), 0);
    for flow in flows {
        if !flow.tests.is_empty() && !tests.json {
            println!("{}", flow.id);
        }
        for test in &flow.tests {
            let differences = outcome(&loaded, flow, test);
            let passed = differences.is_empty();
            failed += usize::from(!passed);
            match (tests.json, passed) {
                (true, _) => {}
                (false, true) => println!("  ok      {}", test.name),
                (false, false) => {
                    println!("  FAILED  {} ({})", test.name, test.place);
                    differences.iter().for_each(|line| println!("          {line}"));
                }
            }
            outcomes.push(Outcome { workflow: &flow.id, name: &test.name, passed, differences });
        }
    }
    let passed = outcomes.len() - failed;
    match tests.json {
        true => println!("{}", serde_json::json!({"passed": passed, "failed": failed, "tests": outcomes})),
        false => println!("{passed} passed, {failed} failed"),
    }
    if failed > 0 { Err(Failure::Said) } else { Ok(()) }
}

/// What is wrong with one test; nothing when it passes.
fn outcome(loaded: &Loaded, flow: &Arc<Workflow>, test: &Test) -> Vec<String> {
    let identity = Identity { cluster: loaded.config.kafka.cluster.clone(), topic_id: None };
    let sample = match Sample::parse(&test.record.to_string(), flow, &identity) {
        Ok(sample) => sample,
        Err(error) => return vec![chain(&error)],
    };
    let walk = match Walk::take(flow, &sample) {
        Ok(walk) => walk,
        Err(message) => return vec![message],
    };
    let (template, masks) = (Template::new(flow), Masks::of(loaded, flow));
    let events = walk.events(flow, &sample);
    let shown: Vec<Shown> =
        events.iter().map(|event| Shown::new(&template.request(event, 1, 0), event, flow, &masks)).collect();
    let mut lines: Vec<String> = differences(&test.expect, &walk, &shown).iter().map(described).collect();
    // Why a record is invalid or dropped says more than that it is.
    if let Some((name, reason)) = walk.steps.last().filter(|_| !lines.is_empty() && walk.ending != Ending::Delivered) {
        lines.push(format!("{name}: {}", reason.replace('\n', ": ")));
    }
    lines
}

fn described(difference: &Difference) -> String {
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    format!("{}: expected {}, got {}", difference.path, text(&difference.expected), text(&difference.actual))
}
