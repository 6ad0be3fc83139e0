//! Keys that are part of the product but whose behaviour this build does not have.
//!
//! `validate` warns about each with its position, and `run` refuses the workflow: a key is never ignored. When a
//! behaviour is built, its line here goes.

use super::check::Report;
use super::problem::Problem;
use super::raw::RawConfig;
use super::raw_workflow::{Encoding, RawWorkflow};

pub fn in_config(raw: &RawConfig, report: &mut Report<'_>) -> Vec<Problem> {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|t| !t.is_empty());
    let found = [(set(&raw.schema_registry.url), "/schemaRegistry/url", "schemaRegistry.url")];
    collect(&found, "", report)
}

pub fn in_workflow(raw: &RawWorkflow, index: usize, report: &mut Report<'_>) -> Vec<Problem> {
    collect(&table(raw), &format!("/workflows/{index}"), report)
}

/// Whether this build has what a workflow's key asks for, also where the key is not written and its default would hold.
pub fn is_built(pointer: &str) -> bool {
    let table = table(&RawWorkflow::default());
    !table.iter().any(|(_, missing, _)| *missing == pointer)
}

/// Whether each is used, the key, and what to call it.
fn table(raw: &RawWorkflow) -> Vec<(bool, &'static str, &'static str)> {
    let encoding = matches!(raw.source.encoding, Some(Encoding::Avro | Encoding::Protobuf | Encoding::JsonSchema));
    vec![(encoding, "/source/encoding", "this encoding")]
}

fn collect(found: &[(bool, &str, &str)], prefix: &str, report: &mut Report<'_>) -> Vec<Problem> {
    found
        .iter()
        .filter(|(used, _, _)| *used)
        .map(|(_, pointer, name)| {
            let pointer = format!("{prefix}{pointer}");
            let place = report.tree.nearest(&pointer).place.clone();
            let problem = Problem::new(place, format!("{name}: not supported yet")).about(&pointer);
            report.warnings.push(problem.clone());
            problem
        })
        .collect()
}
