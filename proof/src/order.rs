//! Order per key at length: many events over many keys, with failures, kills and rebalances, and some keys that are blocked.
//!
//! The receiver checks while it runs: an event is first requested when the one before it in its lane was processed (O1), and
//! never again once a later one was requested (O2).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::evidence::{Flow, OUTBOX};
use crate::postgres::Postgres;
use crate::receiver::{Request, plain};
use crate::relay::{Limits, Relay, Settings};
use crate::servers::{Kafka, local};
use crate::topic;

const TOPIC: &str = "order.events";
const PARTITIONS: i32 = 12;
/// Keys with an event that is refused, in the middle of the run.
const BLOCKED: u64 = 10;

#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncebox")]
    binary: PathBuf,
    /// Where Kafka's jars are.
    #[arg(long, default_value = "target/dev/kafka/lib")]
    jars: PathBuf,
    /// Where servers and logs go.
    #[arg(long, default_value = "target/order")]
    out: PathBuf,
}

/// What the receiver knows. Event n is of lane n modulo the keys, and the next of that lane after n minus the keys.
struct Watch {
    keys: u64,
    lanes: Mutex<Lanes>,
    /// Blocked events are taken from now on.
    mended: AtomicBool,
    blocked: HashSet<u64>,
}

#[derive(Default)]
struct Lanes {
    /// Per lane: the furthest event that was requested, and that was processed.
    requested: Vec<Option<u64>>,
    processed: Vec<Option<u64>>,
    applied: u64,
    requests: u64,
    inversions: u64,
    returns: u64,
}

impl Watch {
    /// Takes a request in, and says with which status it is answered.
    fn note(&self, n: u64, attempt: u64) -> u16 {
        let lane = (n % self.keys) as usize;
        let mut lanes = self.lanes.lock().expect("no holder panics");
        lanes.requests += 1;
        let before = n.checked_sub(self.keys);
        match lanes.requested[lane] {
            Some(furthest) if furthest > n => lanes.returns += 1,
            Some(furthest) if furthest == n => {}
            _ => {
                if lanes.processed[lane] != before {
                    lanes.inversions += 1;
                }
                lanes.requested[lane] = Some(n);
            }
        }
        if self.blocked.contains(&n) && !self.mended.load(Ordering::SeqCst) {
            return 422;
        }
        // One first attempt in twenty fails, and one in twenty of the others.
        if (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).wrapping_add(attempt).is_multiple_of(20) {
            return 500;
        }
        if lanes.processed[lane].is_none_or(|done| done < n) {
            lanes.processed[lane] = Some(n);
            lanes.applied += 1;
        }
        200
    }

    async fn serve(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        loop {
            let request = Request::read(stream).await?;
            let body: serde_json::Value = serde_json::from_slice(&request.body)?;
            let n = body["data"][0].as_u64().context("a number")?;
            let status = self.note(n, request.header("oncebox-attempt").parse().unwrap_or(0));
            stream.write_all(&plain(status, "")).await?;
        }
    }

    fn applied(&self) -> u64 {
        self.lanes.lock().expect("no holder panics").applied
    }
}

fn produce(brokers: &str, flags: &Flags, blocked: &HashSet<u64>) -> anyhow::Result<()> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .create()?;
    for n in 0..flags.events {
        let key = format!("k{}", n % flags.keys);
        let refuse = blocked.contains(&n);
        let value = format!(r#"{{"n":{n},"fan":1,"keep":true,"refuse":{refuse},"pad":"{key}"}}"#);
        let mut record = BaseRecord::to(TOPIC).key(&key).payload(&value);
        while let Err((_, unsent)) = producer.send(record) {
            std::thread::sleep(Duration::from_millis(20));
            record = unsent;
        }
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(())
}

pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let folder = std::path::absolute(&flags.out)?;
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let kafka = Kafka::start(&folder.join("kafka"), &std::path::absolute(&flags.jars)?, None)?;
    let postgres = Postgres::init(&folder.join("postgres"))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // The middle event of the first few keys.
    let middle = flags.events / flags.keys / 2 * flags.keys;
    let blocked: HashSet<u64> = (0..BLOCKED.min(flags.keys)).map(|key| middle + key).collect();
    let held_up: u64 = blocked.iter().map(|n| (flags.events - 1 - n) / flags.keys + 1).sum();
    let empty = vec![None; flags.keys as usize];
    let watch = Arc::new(Watch {
        keys: flags.keys,
        lanes: Mutex::new(Lanes { requested: empty.clone(), processed: empty, ..Lanes::default() }),
        mended: AtomicBool::new(false),
        blocked: blocked.clone(),
    });
    let settings = Settings {
        binary: std::path::absolute(&flags.binary)?,
        folder: folder.clone(),
        brokers: local(kafka.port).to_string(),
        database: format!("postgresql://oncebox@127.0.0.1:{}/postgres", postgres.port),
        receiver: format!("http://{}/events", listener.local_addr()?),
        topic: TOPIC.to_owned(),
        flows: vec![Flow {
            id: "ordered".to_owned(),
            event_type: "Changed".to_owned(),
            guarantee: "exactly-once".to_owned(),
            mechanism: OUTBOX.to_owned(),
            ordered: true,
            envelope: "keyed".to_owned(),
            concurrency: 128,
            max_attempts: 1_000,
            signed: false,
        }],
        canary: "none".to_owned(),
        limits: Limits { on_key_failure: "block", ..Limits::SHORT },
    };
    let served = Arc::clone(&watch);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let watch = Arc::clone(&served);
            tokio::spawn(async move { watch.serve(&mut stream).await });
        }
    });
    topic::create(&settings.brokers, TOPIC, PARTITIONS).await?;
    settings.migrate()?;
    let (brokers, plan) = (settings.brokers.clone(), flags.clone());
    tokio::task::spawn_blocking(move || produce(&brokers, &plan, &blocked)).await??;
    let began = Instant::now();
    let mut relays = vec![Relay::start(&settings, "relay-1")?, Relay::start(&settings, "relay-2")?];
    let (mut kills, mut rebalances) = (0, 0);
    let free = flags.events - held_up;
    wait(&watch, free, began, &mut relays, &settings, (&mut kills, &mut rebalances)).await?;
    let took = began.elapsed();
    let client = postgres.client().await?;
    let count: i64 = client.query_one("select count(*) from oncebox.dead_letter where blocks", &[]).await?.get(0);
    println!(
        "{free} events of free keys arrived in {} s; {count} keys are blocked and hold up nothing else",
        took.as_secs()
    );
    watch.mended.store(true, Ordering::SeqCst);
    replay(&settings, &relays[0])?;
    wait(&watch, flags.events, began, &mut relays, &settings, (&mut kills, &mut rebalances)).await?;
    for mut relay in relays {
        tokio::task::spawn_blocking(move || relay.stop(Duration::from_secs(30))).await??;
    }
    let lanes = watch.lanes.lock().expect("no holder panics");
    println!(
        "order: events={} keys={} requests={} kills={kills} rebalances={rebalances} blocked={count} rate={:.0}/s lost={} O1={} O2={}",
        flags.events,
        flags.keys,
        lanes.requests,
        free as f64 / took.as_secs_f64(),
        flags.events - lanes.applied,
        lanes.inversions,
        lanes.returns
    );
    drop(kafka);
    let is_whole = lanes.applied == flags.events && u64::try_from(count)? == BLOCKED.min(flags.keys);
    Ok(is_whole && lanes.inversions == 0 && lanes.returns == 0)
}

/// Waits until so many events have been processed, with a kill or a rebalance every few seconds.
async fn wait(
    watch: &Watch,
    wanted: u64,
    began: Instant,
    relays: &mut [Relay],
    settings: &Settings,
    (kills, rebalances): (&mut u32, &mut u32),
) -> anyhow::Result<()> {
    let (mut last, mut moved_at, mut turn) = (watch.applied(), Instant::now(), 0_usize);
    let mut next_fault = Instant::now() + Duration::from_secs(8);
    while watch.applied() < wanted {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = watch.applied();
        if now > last {
            (last, moved_at) = (now, Instant::now());
        }
        anyhow::ensure!(moved_at.elapsed() < Duration::from_secs(120), "stuck at {now} of {wanted}");
        if Instant::now() < next_fault || wanted - now < wanted / 100 {
            continue;
        }
        next_fault = Instant::now() + Duration::from_secs(8);
        turn += 1;
        println!("{:>5}s  {now} of {wanted}", began.elapsed().as_secs());
        if turn % 3 == 0 {
            *rebalances += 2;
            let mut guest = Relay::start(settings, &format!("guest-{turn}"))?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            tokio::task::spawn_blocking(move || guest.stop(Duration::from_secs(30))).await??;
        } else {
            *kills += 1;
            let victim = turn % relays.len();
            relays[victim].kill();
            relays[victim].run(settings)?;
        }
    }
    Ok(())
}

/// As an operator does: lists the dead letters, and replays each.
fn replay(settings: &Settings, relay: &Relay) -> anyhow::Result<()> {
    let dead_letters = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&settings.binary);
        command.arg("dead-letters").args(arguments).arg("--config").arg(&relay.config);
        let output = command.env("CANARY", &settings.canary).output()?;
        anyhow::ensure!(output.status.success(), "dead-letters: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    };
    let letters: Vec<serde_json::Value> = serde_json::from_slice(&dead_letters(&["list", "--json"])?)?;
    for letter in letters {
        dead_letters(&["replay", letter["id"].as_str().context("an id")?])?;
    }
    Ok(())
}
