//! One run: start everything, load and faults together, heal, wait until quiet, collect the evidence, check it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::check;
use crate::evidence::{AT_MOST_ONCE, Audit, Flow, Log, Meta, OUTBOX, TableRow, now, signing_secret};
use crate::load::{self, Load};
use crate::nemesis::World;
use crate::plan;
use crate::postgres::Postgres;
use crate::proxy::Proxy;
use crate::receiver::Receiver;
use crate::relay::{Limits, Settings};
use crate::servers::{CLUSTER, Kafka, local};
use crate::topic;

const TOPIC: &str = "chaos.orders";
const PARTITIONS: i32 = 6;
const KEYED: &str = "orders-keyed";
const DIRECT: &str = "orders-direct";
/// The workflow that keeps order.
const ORDERED: &str = "orders-ordered";
const RELAYS: usize = 2;
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// Which run; the same seed brings the same faults in the same order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A run of two minutes instead of ten.
    #[arg(long)]
    short: bool,
    /// How often the whole list of faults comes.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Records to produce; 36,000 for a full round, 4,000 for a short one. Each makes about five events.
    #[arg(long)]
    events: Option<u64>,
    /// The standby is synchronous: a failover loses nothing, and at-most-once has no exception.
    #[arg(long)]
    synchronous: bool,
    /// The binary under test.
    #[arg(long, default_value = "target/debug/oncebox")]
    binary: PathBuf,
    /// Where Kafka's jars are.
    #[arg(long, default_value = "target/dev/kafka/lib")]
    jars: PathBuf,
    /// Where the evidence goes.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

fn flows() -> Vec<Flow> {
    let flow = |id: &str, guarantee: &str, mechanism: &str, envelope: &str, concurrency| Flow {
        id: id.to_owned(),
        event_type: "OrderChanged".to_owned(),
        guarantee: guarantee.to_owned(),
        mechanism: mechanism.to_owned(),
        ordered: id == ORDERED,
        envelope: envelope.to_owned(),
        concurrency,
        max_attempts: 1_000,
        // One through the outbox, and one past it.
        signed: [KEYED, DIRECT].contains(&id),
    };
    vec![
        flow(KEYED, "exactly-once", OUTBOX, "keyed", 32),
        flow("orders-bare", "at-least-once", OUTBOX, "none", 32),
        flow("orders-once", AT_MOST_ONCE, OUTBOX, "keyed", 64),
        flow(ORDERED, "exactly-once", OUTBOX, "keyed", 32),
        flow(DIRECT, "idempotent-keys", "generated-keys", "keyed", 16),
    ]
}

pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let folder = std::path::absolute(flags.out.join(format!("seed-{}", flags.seed)))?;
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let (mut world, mut meta) = start(flags, &folder).await?;
    let events = flags.events.unwrap_or(if flags.short { 4_000 } else { 36_000 * u64::from(flags.rounds) });
    let rate = if flags.short { 80 } else { 112 };
    let plan = load::Plan { topic: TOPIC.to_owned(), events, rate, seed: flags.seed };
    let mut load = Load::start(&world.settings.brokers, &folder.join("produced.jsonl"), plan)?;
    let steps = plan::plan(flags.seed, flags.short, flags.rounds);
    println!("chaos: seed {}, {events} records, {} faults, evidence in {}", flags.seed, steps.len(), folder.display());
    let mut random = StdRng::seed_from_u64(flags.seed);
    let began = Instant::now();
    for (number, step) in steps.iter().enumerate() {
        println!("{:>5}s  {:>3}/{}  {}", began.elapsed().as_secs(), number + 1, steps.len(), step.fault.name());
        world.suffer(*step, &mut random).await.with_context(|| step.fault.name())?;
    }
    while !load.is_done() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::task::spawn_blocking(move || load.stop()).await?;
    world.heal()?;
    meta.healed = now();
    println!("{:>5}s  healed; waiting until nothing is left", began.elapsed().as_secs());
    meta.quiet = quiet(&world).await?;
    meta.failovers.clone_from(&world.failovers);
    meta.decoyed = world.receiver.decoyed();
    collect(&mut world, &meta, &folder).await?;
    let exits = world.exits;
    drop(world);
    let (case, report) = check::check(&folder)?;
    println!("relays that ended by themselves: {exits}");
    println!("{}", check::summary(&case, &report));
    // A short run has too few faults to bring everything about; its summary names what it did not try.
    let idle = report.idle();
    let tried = flags.short || idle.is_empty();
    if !tried {
        println!("chaos: not held, because nothing was seen of it: {}", idle.join(", "));
    }
    if report.violations.is_empty() {
        // The servers' own folders are large and prove nothing.
        for entry in std::fs::read_dir(&folder)?.flatten().filter(|entry| entry.path().is_dir()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(report.violations.is_empty() && tried)
}

async fn start(flags: &Flags, folder: &Path) -> anyhow::Result<(World, Meta)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let kafka = Kafka::start(&folder.join("kafka"), &std::path::absolute(&flags.jars)?, Some(listener.local_addr()?))?;
    let kafka_proxy = Proxy::start_on(listener, local(kafka.port))?;
    let primary = Postgres::init(&folder.join("postgres-0"))?;
    let postgres_proxy = Proxy::start(local(primary.port)).await?;
    let replication = Proxy::start(local(primary.port)).await?;
    let canary = format!("canary-{:016x}", flags.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let receiver = Receiver::start(&folder.join("receiver.jsonl"), &signing_secret(&canary)).await?;
    let receiver_proxy = Proxy::start(receiver.address).await?;
    let brokers = kafka_proxy.address.to_string();
    topic::create(&brokers, TOPIC, PARTITIONS).await?;
    let settings = Settings {
        binary: std::path::absolute(&flags.binary)?,
        folder: folder.to_owned(),
        brokers,
        database: format!("postgresql://oncebox@{}/postgres", postgres_proxy.address),
        receiver: format!("http://{}/events", receiver_proxy.address),
        topic: TOPIC.to_owned(),
        flows: flows(),
        canary: canary.clone(),
        limits: Limits::SHORT,
    };
    settings.migrate()?;
    primary.client().await?.batch_execute(include_str!("audit.sql")).await.context("audit.sql")?;
    let standby = primary.standby(&folder.join("postgres-1"), replication.address.port())?;
    let meta = Meta {
        seed: flags.seed,
        cluster: CLUSTER.to_owned(),
        topic: TOPIC.to_owned(),
        topic_id: kafka.topic_id(TOPIC)?,
        workflows: settings.flows.clone(),
        started: now(),
        healed: 0,
        quiet: None,
        failovers: Vec::new(),
        decoyed: 0,
        canary,
    };
    let mut world = World {
        settings,
        relays: Vec::new(),
        kafka,
        primary,
        standby: Some(standby),
        receiver,
        kafka_proxy,
        postgres_proxy,
        receiver_proxy,
        replication,
        partitions: PARTITIONS,
        failovers: Vec::new(),
        log: Log::create(&folder.join("nemesis.jsonl"))?,
        samples: Log::create(&folder.join("samples.jsonl"))?,
        synchronous: flags.synchronous,
        midnights: 0,
        started: 0,
        exits: 0,
    };
    world.synchronise().await?;
    for _ in 0..RELAYS {
        world.start_relay()?;
    }
    Ok((world, meta))
}

/// Waits until all is read and nothing waits; answers when.
async fn quiet(world: &World) -> anyhow::Result<Option<i64>> {
    let began = Instant::now();
    let client = world.primary.client().await?;
    while began.elapsed() < DRAIN_LIMIT {
        let ends = topic::ends(&world.settings.brokers, TOPIC)?;
        let mut read = true;
        for (partition, end) in ends {
            let query = "select count(*) from oncebox.cursor where partition = $1 and next_offset >= $2";
            let count: i64 = client.query_one(query, &[&partition, &end]).await?.get(0);
            read &= count == world.settings.flows.len() as i64 || end == 0;
        }
        // Looked at only when it may be the end: it reads whole tables, and who waits must not be who is waited for.
        let unended = "select case when exists (select 1 from oncebox.retry) then true
                                   else exists (select 1 from oncebox.outbox as o where not exists (
                                       select 1 from oncebox.done as d where d.cursor = o.cursor
                                          and d.record_offset = o.record_offset and d.event_index = o.event_index
                                          and d.generation = o.generation and d.day = o.day)) end";
        let is_unended = !read || client.query_one(unended, &[]).await?.get(0);
        if !is_unended {
            return Ok(Some(now()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(None)
}

/// Stops the relays and writes down what the database and the topic hold.
async fn collect(world: &mut World, meta: &Meta, folder: &Path) -> anyhow::Result<()> {
    for mut relay in world.relays.drain(..) {
        tokio::task::spawn_blocking(move || relay.stop(Duration::from_secs(30))).await??;
    }
    std::fs::write(folder.join("meta.json"), serde_json::to_string_pretty(meta)?)?;
    let client = world.primary.client().await?;
    let log = Log::create(&folder.join("audit.jsonl"))?;
    let query = "select seq, (extract(epoch from at) * 1000)::bigint, xid, tbl, op, oncebox.chaos_row(old::jsonb),
                        oncebox.chaos_row(new::jsonb)
                   from oncebox.chaos_audit";
    for row in client.query(query, &[]).await? {
        log.write(&Audit {
            seq: row.get(0),
            at: row.get(1),
            xid: row.get(2),
            table: row.get(3),
            op: row.get(4),
            old: row.get(5),
            new: row.get(6),
        });
    }
    let log = Log::create(&folder.join("tables.jsonl"))?;
    for row in client.query(include_str!("tables.sql"), &[]).await? {
        log.write(&TableRow { table: row.get(0), row: serde_json::from_str(row.get(1))? });
    }
    topic::dump(&world.kafka, TOPIC, folder)
}
