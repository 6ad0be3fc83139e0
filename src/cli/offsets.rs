//! `oncebox offsets show|set WORKFLOW`: where a workflow stands in its topics, and the way out of a halt.
//!
//! Moving forward leaves a gap on record; moving back reads records again as a new generation, with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::output::{self, table};
use super::{Failure, block_on, load, workflow};
use crate::config::{Loaded, Topics, Workflow};
use crate::event::CursorId;
use crate::ingest::{native, settings};
use crate::outbox::cursor::{self, Listed, Start, TopicName};
use crate::outbox::gap::{self, Gap, GapReason};
use crate::outbox::{Database, notify, workflow as store};

const ASK_KAFKA: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Show where each partition stands.
    Show(Show),
    /// Move the stored offsets, and end a halt.
    Set(Set),
}

#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its id.
    workflow: String,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct Set {
    /// Its id.
    workflow: String,
    /// earliest, latest, an offset, or an RFC 3339 time.
    #[arg(long)]
    to: String,
    /// Only this partition.
    #[arg(long)]
    partition: Option<i32>,
    /// Only this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

pub fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Show(show) => block_on(show_offsets(&show)),
        Verb::Set(set) => block_on(set_offsets(&set)),
    }
}

async fn show_offsets(show: &Show) -> Result<(), Failure> {
    let loaded = load(&show.config)?;
    let id = &workflow(&loaded, &show.workflow)?.id;
    let database = Database::new(&loaded.config.postgres)?;
    let cursors = cursor::list(&database, id).await?;
    if show.json {
        println!("{}", serde_json::to_string_pretty(&cursors)?);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = cursors
        .iter()
        .map(|c| {
            let waiting = c.events - c.completed - c.cancelled - c.discarded - c.suppressed;
            let numbers = [c.start_offset, c.next_offset, c.settled_to, c.events, waiting];
            let mut row = vec![c.topic.clone(), c.partition.to_string(), c.topic_id.clone()];
            row.extend(numbers.map(|number| number.to_string()));
            row
        })
        .collect();
    let header = ["TOPIC", "PARTITION", "TOPIC ID", "START", "NEXT", "SETTLED TO", "EVENTS", "UNDELIVERED"];
    println!("{}", table(&header, &rows));
    Ok(())
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
    fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            text => text
                .parse()
                .map(Self::Offset)
                .ok()
                .or_else(|| text.parse().ok().map(|t: jiff::Timestamp| Self::Time(t.as_millisecond())))
                .ok_or_else(|| {
                    Failure::Usage(format!("`{text}` is not a place; allowed: earliest, latest, an offset, a time"))
                }),
        }
    }

    fn resolve(self, client: &BaseConsumer, topic: &str, partition: i32) -> anyhow::Result<i64> {
        let (low, high) = client
            .fetch_watermarks(topic, partition, ASK_KAFKA)
            .with_context(|| format!("asking for the offsets of {topic}/{partition}"))?;
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

/// One partition's move.
struct Move {
    topic: String,
    topic_id: String,
    partition: i32,
    /// Its cursor and where that stands; nothing when the partition has none yet.
    from: Option<(CursorId, i64)>,
    to: i64,
}

async fn set_offsets(set: &Set) -> Result<(), Failure> {
    let target = Target::parse(&set.to)?;
    let loaded = load(&set.config)?;
    let flow = workflow(&loaded, &set.workflow)?;
    let database = Database::new(&loaded.config.postgres)?;
    let client: BaseConsumer = settings::client(&loaded.config.kafka).create().context("the Kafka settings")?;
    let cluster = cluster(&loaded, &client)?;
    let stored = cursor::list(&database, &flow.id).await?;
    let moves = plan(set, target, flow, &client, &stored)?;
    let rows: Vec<Vec<String>> = moves
        .iter()
        .map(|m| {
            let from = m.from.map_or_else(|| "-".to_owned(), |(_, offset)| offset.to_string());
            vec![m.topic.clone(), m.partition.to_string(), from, m.to.to_string()]
        })
        .collect();
    println!("{}", table(&["TOPIC", "PARTITION", "FROM", "TO"], &rows));
    if set.dry_run {
        println!("dry run: nothing was changed");
        return Ok(());
    }
    for one in &moves {
        carry_out(&database, flow, &cluster, one).await?;
    }
    let who = output::who();
    let detail = format!("to {} ({} partitions)", set.to, moves.len());
    store::audit(&database, &who, "offsets set", Some(&flow.id), &detail).await?;
    store::end_halt(&database, &flow.id).await?;
    notify::tell(&database, &flow.id).await?;
    Ok(())
}

fn cluster(loaded: &Loaded, client: &BaseConsumer) -> anyhow::Result<String> {
    match &loaded.config.kafka.cluster {
        Some(cluster) => Ok(cluster.clone()),
        None => client.client().fetch_cluster_id(ASK_KAFKA).context("Kafka cannot be reached"),
    }
}

/// What moves where, for the topics as they are now.
fn plan(
    set: &Set,
    target: Target,
    flow: &Workflow,
    client: &BaseConsumer,
    stored: &[Listed],
) -> Result<Vec<Move>, Failure> {
    let mut names: Vec<String> = match &flow.source.topics {
        Topics::Named(names) => names.clone(),
        Topics::Matching(_) => stored.iter().map(|c| c.topic.clone()).collect(),
    };
    names.sort();
    names.dedup();
    names.retain(|name| set.topic.as_ref().is_none_or(|only| only == name));
    let described = native::describe_topics(client.client(), &names, ASK_KAFKA)?;
    let mut moves = Vec::new();
    for (topic, now) in &described {
        for partition in now.partitions.iter().filter(|p| set.partition.is_none_or(|only| only == **p)) {
            let known = stored.iter().find(|c| c.topic_id == now.id && c.partition == *partition);
            let to = target.resolve(client, topic, *partition)?;
            moves.push(Move {
                topic: topic.clone(),
                topic_id: now.id.clone(),
                partition: *partition,
                from: known.map(|c| (CursorId(c.id), c.next_offset)),
                to,
            });
        }
    }
    moves.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok(moves)
}

async fn carry_out(database: &Database, flow: &Workflow, cluster: &str, one: &Move) -> Result<(), Failure> {
    match one.from {
        None => {
            let id = CursorId::of(&flow.id, cluster, &one.topic_id, one.partition);
            let name = TopicName {
                workflow: &flow.id,
                cluster,
                topic: &one.topic,
                topic_id: &one.topic_id,
                direct: flow.delivery.is_direct(),
            };
            let start = Start { id, partition: one.partition, offset: one.to };
            cursor::add(database, name, &[start]).await?;
        }
        // Without the outbox the cursor is a copy that may be older than what was marked in Kafka since.
        Some((id, from)) if from != one.to || flow.delivery.is_direct() => {
            // From wherever it stands by then: a running relay reads on while we ask.
            let gap = Gap { cursor: id, from: None, to: one.to, reason: GapReason::Operator };
            gap::move_to(database, &gap, "set").await?;
        }
        Some(_) => {}
    }
    Ok(())
}
