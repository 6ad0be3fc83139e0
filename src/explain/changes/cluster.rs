//! The cluster's name. Cursors and keys are of a cluster, by the name that `kafka.cluster` gives it: under another name a
//! workflow finds none of the cursors that it has.
//!
//! Where no name is configured the brokers give it, and nobody has asked them: nothing can be said about that.

use super::document::COORDINATES;
use super::{Change, Document, Planned, Running, Weight};

/// The key that names it. It stands outside the workflows, and is that of all.
pub const CLUSTER: &str = "/kafka/cluster";

pub fn compare(before: &Running, plan: &Planned) -> Option<Change> {
    let cluster = plan.cluster.as_ref()?;
    if before.clusters.is_empty() || before.clusters.contains(cluster) {
        return None;
    }
    let (old, new) = (Document::new(&before.id, &before.document), Document::new(&plan.id, &plan.document));
    let is_direct = |document: &Document<'_>| document.mechanism() != "transactional-outbox";
    // What is marked in Kafka names a topic and no cluster.
    let read = match is_direct(&old) && is_direct(&new) {
        true => "records are read from where Kafka has a mark, else again from `startFrom`,",
        false => "records are read again from `startFrom`",
    };
    let keys = match new.key_format() == COORDINATES {
        true => "under new keys",
        false => "under new keys where those are Kafka coordinates",
    };
    let names = before.clusters.join(", ");
    Some(Change {
        workflow: plan.id.clone(),
        pointer: CLUSTER.to_owned(),
        weight: Weight::Downgrade,
        message: format!("kafka.cluster: {names} → {cluster}; {read} {keys}"),
    })
}
