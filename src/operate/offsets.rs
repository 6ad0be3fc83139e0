//! Where a workflow stands in its topics, the way out of a halt, and the proof that nothing was lost.
//!
//! Moving forward leaves a gap on record; moving back reads records again as a new generation, with the same keys.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::{Error, Operator};
use crate::config::{Kafka, Topics, Workflow};
use crate::event::CursorId;
use crate::ingest::{native, settings};
use crate::outbox::audit::Entry;
use crate::outbox::cursor::{self, Listed, Start, TopicName};
use crate::outbox::gap::{Gap, GapReason};
use crate::outbox::moves::{self, Step};
use crate::outbox::notify;
use crate::verify::{self, Partition};

const ASK_KAFKA: Duration = Duration::from_secs(10);
/// A proof reads all that is stored of a workflow: one at a time.
static PROOFS: Semaphore = Semaphore::const_new(1);

/// Where offsets are to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// earliest, latest, an offset, or an RFC 3339 time.
    pub to: String,
    /// Only this topic.
    #[serde(default)]
    pub topic: Option<String>,
    /// Only this partition.
    #[serde(default)]
    pub partition: Option<i32>,
    /// Say what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// One partition's move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    /// Where it stands; null when it was never read.
    pub from: Option<i64>,
    pub to: i64,
}

/// What was moved, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Moves {
    pub moves: Vec<Move>,
    /// False for a dry run.
    pub changed: bool,
}

/// What became of every record of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    pub workflow: String,
    /// How many there are in all.
    pub gaps: usize,
    pub partitions: Vec<Partition>,
}

impl Operator {
    pub async fn offsets(&self, id: &str) -> Result<Vec<Listed>, Error> {
        self.known(id).await?;
        Ok(cursor::list(&self.database, id).await?)
    }

    /// Moves the stored offsets, and ends a halt.
    pub async fn set_offsets(&self, id: &str, wanted: &Wanted) -> Result<Moves, Error> {
        let target = Target::parse(&wanted.to)?;
        let flow = self.configured(id).ok_or_else(|| self.no_workflow(id))?;
        let stored = cursor::list(&self.database, id).await?;
        let asked = (self.kafka.clone(), wanted.clone(), Arc::clone(flow), stored.clone());
        let planned = tokio::task::spawn_blocking(move || {
            let (kafka, wanted, flow, stored) = asked;
            plan(&kafka, &wanted, target, &flow, &stored)
        });
        let (cluster, moves) = planned.await.expect("planning does not panic")?;
        if !wanted.dry_run {
            let steps: Vec<Step<'_>> = moves.iter().filter_map(|one| step(flow, &cluster, &stored, one)).collect();
            let detail = format!("to {} ({} partitions)", wanted.to, moves.len());
            let entry = Entry { who: &self.who, action: "offsets set", workflow: Some(id), detail: &detail };
            moves::carry_out(&self.database, id, &steps, &entry).await?;
            // Heard of by the next poll at the latest.
            let _ = notify::tell(&self.database, id).await;
        }
        Ok(Moves { moves, changed: !wanted.dry_run })
    }

    /// Proves from Kafka and Postgres that nothing was lost, and names each gap. Stops nothing for it. What is on record is enough: the
    /// workflow may be one that was removed.
    pub async fn verify(&self, id: &str, tell: impl FnMut(&str)) -> Result<Verified, Error> {
        self.known(id).await?;
        if self.configured(id).is_none() && cursor::list(&self.database, id).await?.is_empty() {
            // It never read anything, or lives on under another id.
            return Err(self.no_workflow(id));
        }
        let _one_at_a_time = PROOFS.try_acquire().map_err(|_| {
            Error::conflict("verify_running", "another proof is under way here: it reads all that is stored")
        })?;
        let partitions = verify::verify(&self.kafka, &self.database, id, tell).await?;
        let gaps = partitions.iter().map(|partition| partition.gaps.len()).sum();
        Ok(Verified { workflow: id.to_owned(), gaps, partitions })
    }
}

/// What a move takes. Nothing where a partition stands there already.
fn step<'a>(flow: &'a Workflow, cluster: &'a str, stored: &[Listed], one: &'a Move) -> Option<Step<'a>> {
    let known = stored.iter().find(|c| c.topic_id == one.topic_id && c.partition == one.partition);
    match known {
        None => {
            let id = CursorId::of(&flow.id, cluster, &one.topic_id, one.partition);
            let name = TopicName {
                workflow: &flow.id,
                cluster,
                topic: &one.topic,
                topic_id: &one.topic_id,
                direct: flow.delivery.is_direct(),
            };
            Some(Step::Begin(name, Start { id, partition: one.partition, offset: one.to }))
        }
        // Without the outbox the cursor is a copy that may be older than what was marked in Kafka since.
        Some(known) if known.next_offset != one.to || flow.delivery.is_direct() => {
            // From wherever it stands by then: a running relay reads on while we ask.
            let gap = Gap { cursor: CursorId(known.id), from: None, to: one.to, reason: GapReason::Operator };
            Some(Step::Move(gap))
        }
        Some(_) => None,
    }
}

/// Where the user wants to go.
#[derive(Debug, Clone, Copy)]
enum Target {
    Earliest,
    Latest,
    Offset(i64),
    Time(i64),
}

impl Target {
    fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            text => text
                .parse()
                .map(Self::Offset)
                .ok()
                .or_else(|| text.parse().ok().map(|t: jiff::Timestamp| Self::Time(t.as_millisecond())))
                .ok_or_else(|| {
                    let allowed = "allowed: earliest, latest, an offset, a time";
                    Error::Invalid(format!("`{text}` is not a place; {allowed}"))
                }),
        }
    }

    fn resolve(self, client: &BaseConsumer, topic: &str, partition: i32) -> Result<i64, KafkaError> {
        let (low, high) = client.fetch_watermarks(topic, partition, ASK_KAFKA)?;
        Ok(match self {
            Self::Earliest => low,
            Self::Latest => high,
            Self::Offset(offset) => offset.clamp(low, high),
            Self::Time(millis) => {
                let mut times = TopicPartitionList::new();
                times.add_partition_offset(topic, partition, Offset::Offset(millis))?;
                let found = client.offsets_for_times(times, ASK_KAFKA)?;
                match found.find_partition(topic, partition).map(|element| element.offset()) {
                    Some(Offset::Offset(offset)) => offset,
                    _ => high,
                }
            }
        })
    }
}

/// What moves where, for the topics as they are now, and the cluster's name. Waits for Kafka.
fn plan(
    kafka: &Kafka,
    wanted: &Wanted,
    target: Target,
    flow: &Workflow,
    stored: &[Listed],
) -> Result<(String, Vec<Move>), Error> {
    let client: BaseConsumer = settings::client(kafka).create()?;
    let cluster = match &kafka.cluster {
        Some(cluster) => cluster.clone(),
        None => {
            let reported = client.client().fetch_cluster_id(ASK_KAFKA);
            reported.ok_or_else(|| Error::Unavailable("Kafka cannot be reached".to_owned()))?
        }
    };
    let mut names: Vec<String> = match &flow.source.topics {
        Topics::Named(names) => names.clone(),
        Topics::Matching(_) => stored.iter().map(|c| c.topic.clone()).collect(),
    };
    names.sort();
    names.dedup();
    names.retain(|name| wanted.topic.as_ref().is_none_or(|only| only == name));
    let described = native::describe_topics(client.client(), &names, ASK_KAFKA)?;
    let mut moves = Vec::new();
    for (topic, now) in &described {
        for partition in now.partitions.iter().filter(|p| wanted.partition.is_none_or(|only| only == **p)) {
            let known = stored.iter().find(|c| c.topic_id == now.id && c.partition == *partition);
            let to = target.resolve(&client, topic, *partition)?;
            let (topic, topic_id) = (topic.clone(), now.id.clone());
            moves.push(Move { topic, topic_id, partition: *partition, from: known.map(|c| c.next_offset), to });
        }
    }
    moves.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok((cluster, moves))
}
