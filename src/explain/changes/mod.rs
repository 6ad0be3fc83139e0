//! Enters: the workflows that run, as they are stored, and those that are to run. Leaves: what changes for receivers, and
//! which of it takes back something that was promised. Pure.
//!
//! Both sides are compared as written, references unresolved: what a reference resolves to is not stored anywhere.

mod cluster;
mod document;
mod others;
mod rules;
#[cfg(test)]
mod tests;
mod weigh;

use std::collections::BTreeSet;

use serde_json::Value;

pub use cluster::CLUSTER;
pub use document::Document;

/// How much a change matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Takes back something that receivers could rely on: refused unless accepted.
    Downgrade,
    /// Something that receivers notice.
    Change,
    /// More is promised than before.
    Upgrade,
}

/// One thing that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub workflow: String,
    /// The key within the workflow that changed, or `CLUSTER`; empty for a workflow that comes or goes.
    pub pointer: String,
    pub weight: Weight,
    pub message: String,
}

/// A workflow that runs.
#[derive(Debug, Clone)]
pub struct Running {
    pub id: String,
    pub document: Value,
    /// Events that are stored and not delivered.
    pub undelivered: i64,
    /// The clusters that its cursors are of; none when it has read nothing.
    pub clusters: Vec<String>,
}

/// A workflow that is to run.
#[derive(Debug, Clone)]
pub struct Planned {
    pub id: String,
    pub document: Value,
    /// The configured name of the cluster; nothing when the brokers name it.
    pub cluster: Option<String>,
}

/// Everything that changes, workflow by workflow: first those that are planned, in their order, then those that go.
pub fn compare(running: &[Running], planned: &[Planned]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut taken_over = BTreeSet::new();
    for plan in planned {
        let former = plan.document.get("formerId").and_then(Value::as_str).filter(|id| !id.is_empty());
        let own = running.iter().find(|run| run.id == plan.id);
        let before = own.or_else(|| running.iter().find(|run| Some(run.id.as_str()) == former));
        let Some(before) = before else {
            let message = match former {
                Some(former) => format!("new: no workflow `{former}` runs that it could take over"),
                None => "new: it starts where source.startFrom says".to_owned(),
            };
            changes.push(whole(&plan.id, Weight::Change, message));
            continue;
        };
        taken_over.insert(before.id.clone());
        if before.id != plan.id {
            let message = format!("takes over the cursor and the keys of `{}`", before.id);
            changes.push(Change { pointer: "/formerId".to_owned(), ..whole(&plan.id, Weight::Change, message) });
        }
        let documents = (Document::new(&before.id, &before.document), Document::new(&plan.id, &plan.document));
        changes.extend(cluster::compare(before, plan));
        changes.extend(rules::compare(&documents.0, &documents.1));
    }
    changes.extend(running.iter().filter(|run| !taken_over.contains(&run.id)).map(removed));
    changes
}

fn removed(run: &Running) -> Change {
    let (weight, message) = match run.undelivered {
        0 => (Weight::Change, "removed: its receiver gets nothing more; nothing of it is undelivered".to_owned()),
        left => {
            let events = if left == 1 { "event" } else { "events" };
            let message = format!(
                "removed with {left} undelivered {events}: they stay and are not delivered until `oncebox drain` or \
                 `oncebox park`; formerId takes them along under another id"
            );
            (Weight::Downgrade, message)
        }
    };
    whole(&run.id, weight, message)
}

fn whole(workflow: &str, weight: Weight, message: String) -> Change {
    Change { workflow: workflow.to_owned(), pointer: String::new(), weight, message }
}
