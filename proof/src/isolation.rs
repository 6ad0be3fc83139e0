//! Isolation: a hundred workflows, and one endpoint among them that takes half a minute to answer. How much longer do the
//! events of the others take? Both phases are in one run, twice, so that a busy machine is busy for both. With `--stuck` that
//! one workflow also has so many events that are due; what is stored stays, so that its phases come last.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::evidence::{Flow, OUTBOX};
use crate::postgres::Postgres;
use crate::receiver::{Request, plain};
use crate::relay::{Limits, Relay, Settings};
use crate::servers::{Kafka, local};
use crate::topic;

const TOPIC: &str = "isolation.events";
/// The one with the slow endpoint.
const SLOW: &str = "flow-0";
const SLOW_ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    #[arg(long, default_value_t = 100)]
    workflows: usize,
    /// Records a second; each makes an event for every workflow.
    #[arg(long, default_value_t = 4)]
    rate: u64,
    /// How long each of the four phases takes.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Events of the slow workflow that are due and wait.
    #[arg(long, default_value_t = 0)]
    stuck: i64,
    /// transactional-outbox or generated-keys.
    #[arg(long, default_value = OUTBOX)]
    mechanism: String,
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncebox")]
    binary: PathBuf,
    /// Where Kafka's jars are.
    #[arg(long, default_value = "target/dev/kafka/lib")]
    jars: PathBuf,
    /// Where servers and logs go.
    #[arg(long, default_value = "target/isolation")]
    out: PathBuf,
}

/// What the endpoints know.
struct Watch {
    began: Instant,
    is_slow: AtomicBool,
    /// Milliseconds from a record's making to its arrival, of all workflows but the slow one, per phase and with the workflow.
    latencies: [Mutex<Vec<(String, f64)>>; 5],
    slow_requests: AtomicU64,
}

impl Watch {
    async fn serve(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        loop {
            let request = Request::read(stream).await?;
            let body: serde_json::Value = serde_json::from_slice(&request.body)?;
            // The record says when it was made, and in which phase.
            let made = body["data"][0].as_u64().context("a time")?;
            let phase = body["data"][2].as_str().and_then(|phase| phase.parse::<usize>().ok()).context("a phase")?;
            let workflow = request.header("oncebox-workflow");
            if workflow == SLOW {
                self.slow_requests.fetch_add(1, Ordering::Relaxed);
                if self.is_slow.load(Ordering::Relaxed) {
                    tokio::time::sleep(SLOW_ANSWER).await;
                }
            } else {
                let took = self.began.elapsed().as_micros() as f64 / 1000.0 - made as f64 / 1000.0;
                self.latencies[phase].lock().expect("no holder panics").push((workflow.to_owned(), took));
            }
            stream.write_all(&plain(200, "")).await?;
        }
    }

    /// The median and the 99th percentile of some phases.
    fn percentiles(&self, phases: [usize; 2]) -> (usize, f64, f64) {
        let mut all: Vec<f64> = self.by_workflow(phases).into_values().flatten().collect();
        (all.len(), percentile(&mut all, 0.5), percentile(&mut all, 0.99))
    }

    fn by_workflow(&self, phases: [usize; 2]) -> HashMap<String, Vec<f64>> {
        let mut found: HashMap<String, Vec<f64>> = HashMap::new();
        for phase in phases {
            for (workflow, took) in self.latencies[phase].lock().expect("no holder panics").iter() {
                found.entry(workflow.clone()).or_default().push(*took);
            }
        }
        found
    }

    /// How much later events of the workflow that fared worst arrive in some phases than in others, at the 90th percentile: each
    /// has some hundreds, too few for the 99th.
    fn worst_ratio(&self, slow: [usize; 2], quiet: [usize; 2]) -> f64 {
        let (slow, mut quiet) = (self.by_workflow(slow), self.by_workflow(quiet));
        let ratio = |(workflow, mut took): (String, Vec<f64>)| {
            let before = quiet.get_mut(&workflow).map_or(f64::NAN, |took| percentile(took, 0.9));
            percentile(&mut took, 0.9) / before
        };
        slow.into_iter().map(ratio).fold(0.0, f64::max)
    }
}

fn percentile(of: &mut [f64], share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get((of.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

fn flow(number: usize, mechanism: &str) -> Flow {
    let is_outbox = mechanism == OUTBOX;
    Flow {
        id: format!("flow-{number}"),
        event_type: "Changed".to_owned(),
        guarantee: if is_outbox { "exactly-once" } else { "idempotent-keys" }.to_owned(),
        mechanism: mechanism.to_owned(),
        ordered: false,
        envelope: "keyed".to_owned(),
        concurrency: 64,
        max_attempts: 1_000,
        signed: false,
    }
}

pub async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let folder = std::path::absolute(&flags.out)?;
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let kafka = Kafka::start(&folder.join("kafka"), &std::path::absolute(&flags.jars)?, None)?;
    let postgres = Postgres::init(&folder.join("postgres"))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let watch = Arc::new(Watch {
        began: Instant::now(),
        is_slow: AtomicBool::new(false),
        latencies: Default::default(),
        slow_requests: AtomicU64::new(0),
    });
    let settings = Settings {
        binary: std::path::absolute(&flags.binary)?,
        folder: folder.clone(),
        brokers: local(kafka.port).to_string(),
        database: format!("postgresql://oncebox@127.0.0.1:{}/postgres", postgres.port),
        receiver: format!("http://{}/events", listener.local_addr()?),
        topic: TOPIC.to_owned(),
        flows: (0..flags.workflows).map(|number| flow(number, &flags.mechanism)).collect(),
        canary: "none".to_owned(),
        limits: Limits { timeout: "45s", lease: "60s", on_key_failure: "block" },
    };
    let served = Arc::clone(&watch);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let watch = Arc::clone(&served);
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move { watch.serve(&mut stream).await });
        }
    });
    topic::create(&settings.brokers, TOPIC, 2).await?;
    settings.migrate()?;
    let mut relay = Relay::start(&settings, "relay")?;
    let producer: ThreadedProducer<DefaultProducerContext> =
        ClientConfig::new().set("bootstrap.servers", &settings.brokers).set("linger.ms", "0").create()?;
    // Phase 0 is for warming up; then quiet and slow in turn, or one after the other.
    let (quiet, slow) = if flags.stuck == 0 { ([1, 3], [2, 4]) } else { ([1, 2], [3, 4]) };
    for phase in 0..5_usize {
        let is_slow = slow.contains(&phase);
        if flags.stuck > 0 && phase == slow[0] {
            watch.is_slow.store(true, Ordering::Relaxed);
            let stuck = postgres.client().await?.execute(include_str!("stuck.sql"), &[&SLOW, &flags.stuck]).await?;
            println!("{:>5}s  {stuck} events of {SLOW} are due", watch.began.elapsed().as_secs());
        }
        watch.is_slow.store(is_slow, Ordering::Relaxed);
        let records = flags.rate * if phase == 0 { 20 } else { flags.seconds };
        let name = if phase == 0 {
            "warming up"
        } else if is_slow {
            "slow"
        } else {
            "quiet"
        };
        println!("{:>5}s  {name}", watch.began.elapsed().as_secs());
        let phase_began = Instant::now();
        for number in 0..records {
            let due = Duration::from_micros(number * 1_000_000 / flags.rate);
            tokio::time::sleep(due.saturating_sub(phase_began.elapsed())).await;
            let made = watch.began.elapsed().as_micros();
            let value = format!(r#"{{"n":{made},"fan":1,"keep":true,"refuse":false,"pad":"{phase}"}}"#);
            let key = number.to_string();
            let sent = producer.send(BaseRecord::to(TOPIC).key(&key).payload(&value));
            sent.map_err(|(error, _)| error)?;
        }
        let wanted = usize::try_from(records)? * (flags.workflows - 1);
        let deadline = Instant::now() + Duration::from_secs(90);
        while watch.latencies[phase].lock().expect("no holder panics").len() < wanted {
            anyhow::ensure!(Instant::now() < deadline, "the events of phase {phase} do not arrive");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let worst = watch.worst_ratio(slow, quiet);
    let (quiet, slow) = (watch.percentiles(quiet), watch.percentiles(slow));
    let ratio = slow.2 / quiet.2;
    println!("              events   p50 ms   p99 ms");
    println!("all fine     {:>7}  {:>7.1}  {:>7.1}", quiet.0, quiet.1, quiet.2);
    println!("one in 30 s  {:>7}  {:>7.1}  {:>7.1}", slow.0, slow.1, slow.2);
    println!(
        "isolation: workflows={} mechanism={} stuck={} slow_requests={} p99_ratio={ratio:.2} worst_p90_ratio={worst:.2}",
        flags.workflows,
        flags.mechanism,
        flags.stuck,
        watch.slow_requests.load(Ordering::Relaxed)
    );
    relay.kill();
    drop(kafka);
    Ok(ratio <= 2.0)
}
