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
}

pub fn run(tests: &Tests) -> Result<(), Failure> {
    let loaded = load(&tests.config)?;
    let flows: Vec<&Arc<Workflow>> = match &tests.workflow {
        Some(id) => vec![workflow(&loaded, id)?],
        None => loaded.config.workflows.iter().collect(),
    };
    let (mut passed, mut failed) = (0, 0);
    for flow in flows {
        if !flow.tests.is_empty() {
            println!("{}", flow.id);
        }
        for test in &flow.tests {
            let lines = outcome(&loaded, flow, test);
            if lines.is_empty() {
                passed += 1;
                println!("  ok      {}", test.name);
            } else {
                failed += 1;
                println!("  FAILED  {} ({})", test.name, test.place);
                lines.iter().for_each(|line| println!("          {line}"));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
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
