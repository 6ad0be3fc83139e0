//! The same topic to the same receiver by relays of others, at least once, beside ours exactly once: events per second, and CPU for
//! each. Ours counts with what Postgres spends on it. Whoever is not there is left out: see `make bench-peers`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Serialize;

use super::flags::Flags;
use super::meter::{self, Run, Window};
use super::stand::{Process, Stand};
use super::subject::{Subject, TOPIC};
use super::throughput::{self, WARM};
use crate::servers::free_port;

#[derive(Debug, Default, Serialize)]
pub struct Peers {
    pub ours: Vec<Window>,
    /// Redpanda Connect under its former name.
    pub benthos: Vec<Window>,
    pub kafka_connect: Vec<Window>,
}

impl Peers {
    /// Our events per CPU-second over theirs, the median of the rounds'.
    pub fn ratio(&self, theirs: &[Window]) -> f64 {
        let ours: Vec<f64> = self.ours.iter().map(|window| window.subject_cpu_us + window.postgres_cpu_us).collect();
        let theirs: Vec<f64> = theirs.iter().map(|window| window.subject_cpu_us).collect();
        throughput::ratio(&theirs, &ours)
    }
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Peers> {
    let mut all = Peers::default();
    let is_there = |path: &Path| {
        let exists = path.exists();
        if !exists {
            println!("{} is not there, and is not compared with: see `make bench-peers`", path.display());
        }
        exists
    };
    let (mut has_benthos, mut has_connect) = (is_there(&flags.peer), is_there(&flags.kafka_connect.join("lib")));
    if !has_benthos && !has_connect {
        return Ok(all);
    }
    for round in 0..flags.few_rounds() {
        let id = format!("beside-peers-{round}");
        let subject = Subject { concurrency: flags.concurrency, ..Subject::new(&id, true) };
        let ours = throughput::relay(stand, &subject, flags).await?;
        println!("round {round}  {}", throughput::line("outbox", &ours));
        all.ours.push(ours);
        if has_benthos {
            let window = measured(stand, flags, &mut benthos(stand, flags, round)?, round, "Redpanda Connect").await;
            has_benthos = keep(&mut all.benthos, window);
        }
        if has_connect {
            let window = measured(stand, flags, &mut kafka_connect(stand, flags, round)?, round, "Kafka Connect").await;
            has_connect = keep(&mut all.kafka_connect, window);
        }
    }
    Ok(all)
}

/// Whether it goes on with this one: one that does not work here spoils nothing for the others.
fn keep(windows: &mut Vec<Window>, measured: anyhow::Result<Window>) -> bool {
    match measured {
        Ok(window) => {
            windows.push(window);
            true
        }
        Err(failure) => {
            println!("left out from here on: {failure:#}");
            false
        }
    }
}

/// Starts it, and kills it after a window.
async fn measured(
    stand: &Stand,
    flags: &Flags,
    command: &mut Command,
    round: usize,
    name: &str,
) -> anyhow::Result<Window> {
    stand.settle().await?;
    let path = stand.folder.join(format!("{}-{round}.log", name.replace(' ', "-")));
    let log = std::fs::File::create(&path)?;
    let child = command.stdout(log.try_clone()?).stderr(log).spawn().with_context(|| format!("starting {name}"))?;
    let process = Process(child);
    let run = Run { processes: &[process.pid()], warm: WARM, supply: Some(stand.supply()) };
    let window = meter::measure(stand, &run, flags.window()).await;
    let window = window.with_context(|| format!("{name}, see {}", path.display()))?;
    println!("round {round}  {}", throughput::line(name, &window));
    Ok(window)
}

fn benthos(stand: &Stand, flags: &Flags, round: usize) -> anyhow::Result<Command> {
    let mut command = Command::new(std::path::absolute(&flags.peer)?);
    command
        .arg("-c")
        .arg(std::path::absolute(&flags.peer_config)?)
        .env("BROKERS", stand.brokers())
        .env("TOPIC", TOPIC)
        .env("GROUP", format!("peer-{round}"))
        .env("RECEIVER", stand.receiver_address())
        .env("CONCURRENCY", flags.concurrency.to_string())
        .stdin(Stdio::null());
    Ok(command)
}

/// One worker that runs alone, with its sink. Its name is also that of its consumer group.
fn kafka_connect(stand: &Stand, flags: &Flags, round: usize) -> anyhow::Result<Command> {
    let home = std::path::absolute(&flags.kafka_connect)?;
    let offsets = stand.folder.join(format!("kafka-connect-{round}.offsets"));
    let values = [
        ("@BROKERS@", stand.brokers()),
        ("@TOPIC@", TOPIC.to_owned()),
        ("@RECEIVER@", stand.receiver_address()),
        ("@NAME@", format!("peer-{round}")),
        ("@PORT@", free_port()?.to_string()),
        ("@PLUGINS@", home.join("plugins").display().to_string()),
        ("@OFFSETS@", offsets.display().to_string()),
    ];
    let configured = |file: &str| -> anyhow::Result<PathBuf> {
        let template = flags.kafka_connect_config.join(file);
        let template = std::fs::read_to_string(&template).with_context(|| template.display().to_string())?;
        let text = values.iter().fold(template, |text, (name, value)| text.replace(name, value));
        let path = stand.folder.join(format!("kafka-connect-{round}-{file}"));
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let (worker, sink) = (configured("worker.properties")?, configured("sink.properties")?);
    let mut command = Command::new("java");
    command
        .args(["-Xms256m", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(format!("{}/*", home.join("lib").display()));
    command.arg("org.apache.kafka.connect.cli.ConnectStandalone").args([worker, sink]).stdin(Stdio::null());
    Ok(command)
}
