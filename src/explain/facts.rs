//! What an explanation is made of: the workflow as checked, and those of its keys that no stage has taken up yet.

use std::time::Duration;

use crate::config::raw_workflow::{Ordering, RawWorkflow};
use crate::config::shown::shown_duration;
use crate::config::{InDoubt, Mechanism, Workflow};
use crate::send::verdict::Policy;
use crate::transform::key_format;

/// The way of an event from Kafka to its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// Stored with its offset in one transaction, then sent.
    Outbox,
    /// Sent first; its offset is marked in Kafka afterwards.
    Direct,
}

/// What is done about an attempt whose outcome nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Doubt {
    Redeliver,
    Ask,
    Hold,
    /// At most once: it is over.
    Never,
}

pub struct Facts<'a> {
    pub workflow: &'a Workflow,
    pub raw: &'a RawWorkflow,
    pub shutdown_grace: Duration,
    pub path: Path,
    pub doubt: Doubt,
    pub key: key_format::Format,
}

impl<'a> Facts<'a> {
    pub fn new(workflow: &'a Workflow, raw: &'a RawWorkflow, shutdown_grace: Duration) -> Self {
        let path = match workflow.delivery.mechanism {
            Mechanism::TransactionalOutbox => Path::Outbox,
            Mechanism::KafkaOffsets | Mechanism::GeneratedKeys => Path::Direct,
        };
        let doubt = match workflow.delivery.in_doubt {
            InDoubt::Redeliver => Doubt::Redeliver,
            InDoubt::Ask => Doubt::Ask,
            InDoubt::Hold => Doubt::Hold,
            InDoubt::End => Doubt::Never,
        };
        let key = key_format::Format::of(workflow).expect("key formats are checked at load");
        Self { workflow, raw, shutdown_grace, path, doubt, key }
    }

    /// What `send::verdict` judges this workflow's attempts by.
    pub fn policy(&self) -> Policy<'_> {
        let delivery = &self.workflow.delivery;
        Policy { answers: &self.workflow.endpoint.answers, retries: &delivery.retries, in_doubt: delivery.in_doubt }
    }

    pub fn is_ordered(&self) -> bool {
        matches!(self.raw.delivery.ordering, Some(Ordering::Key))
    }

    pub fn timeout(&self) -> String {
        shown_duration(self.workflow.endpoint.timeout)
    }

    pub fn lease(&self) -> String {
        shown_duration(self.workflow.delivery.lease)
    }

    pub fn give_up_after(&self) -> String {
        shown_duration(self.workflow.delivery.retries.give_up_after)
    }

    pub fn deduplication_ttl(&self) -> Option<Duration> {
        self.workflow.delivery.deduplication.as_ref().map(|d| d.ttl)
    }
}

/// Looks at the facts of a workflow with these lines.
#[cfg(test)]
pub fn with_facts<T>(more: &str, look: impl FnOnce(&Facts<'_>) -> T) -> T {
    let loaded = crate::config::sample::loaded(more);
    let workflow = &loaded.config.workflows[0];
    let raw = loaded.raw(workflow);
    look(&Facts::new(workflow, &raw, Duration::from_secs(30)))
}
