//! Where it is measured: a real broker, a real PostgreSQL that syncs, the fast receiver, each in a process of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::meter::Seen;
use super::subject::{self, PARTITIONS, SCHEMA, Subject, TOPIC};
use crate::postgres::Postgres;
use crate::servers::{Kafka, free_port, local};

/// fsync and synchronous_commit are on, as they are by default.
const SETTINGS: &[&str] = &[
    "shared_preload_libraries=pg_stat_statements",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    // Files of the log are used again, as on a server that has run for a while, not made anew after each checkpoint that is asked for here.
    "min_wal_size=4GB",
    "checkpoint_timeout=15min",
];

pub struct Stand {
    pub folder: PathBuf,
    pub binary: PathBuf,
    pub kafka: Kafka,
    pub postgres: Postgres,
    pub client: tokio_postgres::Client,
    /// How many are in the topic.
    events: u64,
    receiver: Child,
    receiver_port: u16,
}

impl Stand {
    pub async fn start(folder: PathBuf, binary: PathBuf, jars: &std::path::Path) -> anyhow::Result<Self> {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let kafka = Kafka::start(&folder.join("kafka"), jars, None)?;
        let postgres = Postgres::init_with(&folder.join("postgres"), SETTINGS)?;
        let client = postgres.client().await?;
        client.batch_execute("create extension pg_stat_statements").await?;
        let receiver_port = free_port()?;
        let receiver = Command::new(&binary)
            .args(["receiver", "--fast", "--listen"])
            .arg(local(receiver_port).to_string())
            .stdout(Stdio::null())
            .spawn()
            .context("starting the receiver")?;
        let stand = Self { folder, binary, kafka, postgres, client, events: 0, receiver, receiver_port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while stand.seen().await.is_err() {
            anyhow::ensure!(Instant::now() < deadline, "the receiver does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(stand)
    }

    /// Makes the topic that most parts read from its beginning.
    pub async fn fill(&mut self, events: u64) -> anyhow::Result<()> {
        self.make_topic(TOPIC, events).await?;
        self.events = events;
        Ok(())
    }

    pub async fn make_topic(&self, topic: &'static str, events: u64) -> anyhow::Result<()> {
        let brokers = self.brokers();
        crate::topic::create(&brokers, topic, PARTITIONS).await?;
        tokio::task::spawn_blocking(move || subject::fill(&brokers, topic, 0..events)).await?
    }

    /// Events that one workflow may read of the topic before some partition may have no more: they are not read evenly.
    pub fn supply(&self) -> u64 {
        self.events / 10 * 9
    }

    pub fn brokers(&self) -> String {
        local(self.kafka.port).to_string()
    }

    pub fn receiver_pid(&self) -> u32 {
        self.receiver.id()
    }

    pub fn receiver_address(&self) -> String {
        local(self.receiver_port).to_string()
    }

    /// Writes a configuration with these workflows, all of one schema, and answers where.
    pub fn config(&self, name: &str, workflows: &[Subject]) -> anyhow::Result<PathBuf> {
        let schema = workflows.first().map_or(SCHEMA, |workflow| &*workflow.schema);
        let mut text = format!(
            "kafka: {{brokers: \"{}\", groupPrefix: bench, properties: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500}}}}\n\
             postgres: {{url: \"postgresql://oncebox@{}/postgres\", schema: {schema}, tls: {{mode: disable}}}}\n\
             admin: {{listen: \"{}\"}}\negress: {{allow: [127.0.0.0/8]}}\nworkflows:\n",
            self.brokers(),
            local(self.postgres.port),
            local(free_port()?)
        );
        workflows.iter().for_each(|workflow| text.push_str(&workflow.yaml(&self.receiver_address())));
        let path = self.folder.join(format!("{name}.yaml"));
        std::fs::write(&path, text)?;
        Ok(path)
    }

    pub fn oncebox(&self, verb: &[&str], config: &std::path::Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(verb).arg("--config").arg(config);
        command.env("BENCH_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        command
    }

    /// Runs to its end.
    pub fn order(&self, verb: &[&str], config: &std::path::Path) -> anyhow::Result<()> {
        let output = self.oncebox(verb, config).output()?;
        anyhow::ensure!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Makes a schema, with nothing in it yet.
    pub fn migrate(&self, schema: &str) -> anyhow::Result<()> {
        let none = Subject { schema: schema.to_owned(), ..Subject::new("none", true) };
        self.order(&["migrate"], &self.config(&format!("migrate-{schema}"), &[none])?)
    }

    pub async fn drop_schema(&self, schema: &str) -> anyhow::Result<()> {
        Ok(self.client.batch_execute(&format!("drop schema {schema} cascade")).await?)
    }

    /// Events that are stored and not delivered, of the workflows of a schema whose ids are like this.
    pub async fn undelivered(&self, schema: &str, workflows: &str) -> anyhow::Result<i64> {
        let text = format!(
            "select coalesce(sum(c.appended - d.completed), 0)::int8
               from {schema}.cursor as c join {schema}.delivery as d on d.cursor = c.id where c.workflow like $1"
        );
        Ok(self.client.query_one(&text, &[&workflows]).await?.get(0))
    }

    /// A relay that runs until it is dropped.
    pub fn relay(&self, name: &str, config: &std::path::Path) -> anyhow::Result<Process> {
        let log = std::fs::File::create(self.folder.join(format!("{name}.log")))?;
        let child = self.oncebox(&["run"], config).stdout(Stdio::null()).stderr(log).spawn().context("a relay")?;
        Ok(Process(child))
    }

    pub async fn seen(&self) -> anyhow::Result<Seen> {
        Ok(serde_json::from_slice(&self.ask("GET /_seen").await?)?)
    }

    /// What it saw, once nothing comes any more.
    pub async fn seen_at_rest(&self) -> anyhow::Result<Seen> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut before = self.seen().await?;
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.seen().await?;
            if (now.requests, now.distinct) == (before.requests, before.distinct) {
                return Ok(now);
            }
            anyhow::ensure!(Instant::now() < deadline, "requests still come");
            before = now;
        }
    }

    /// The receiver forgets what it saw.
    pub async fn begin_anew(&self) -> anyhow::Result<()> {
        self.ask("POST /_seen").await.map(drop)
    }

    /// What was written before is on the disk, so that nobody pays for what came before it.
    pub async fn settle(&self) -> anyhow::Result<()> {
        self.client.batch_execute("checkpoint").await?;
        let synced = tokio::task::spawn_blocking(|| Command::new("sync").status()).await??;
        anyhow::ensure!(synced.success(), "sync failed");
        self.begin_anew().await
    }

    /// The last request of many, as it came.
    pub async fn last_request(&self) -> anyhow::Result<Vec<u8>> {
        self.ask("GET /_last").await
    }

    /// Ends, and removes what its servers stored: many gigabytes. Logs and configurations stay.
    pub fn clear(self) {
        let folder = self.folder.clone();
        drop(self);
        for server in ["kafka", "postgres"] {
            let _ = std::fs::remove_dir_all(folder.join(server));
        }
    }

    async fn ask(&self, what: &str) -> anyhow::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.receiver_address()).await?;
        stream.write_all(format!("{what} HTTP/1.1\r\nhost: bench\r\n\r\n").as_bytes()).await?;
        let mut read = Vec::new();
        loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap_or("0");
                let length: usize = length.trim().parse()?;
                if read.len() >= end + 4 + length {
                    return Ok(read[end + 4..end + 4 + length].to_vec());
                }
            }
            anyhow::ensure!(stream.read_buf(&mut read).await? > 0, "the receiver closed");
        }
    }
}

/// Where a relay with this configuration listens.
pub fn admin_address(config: &std::path::Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(config)?;
    let listen = text.split("listen: \"").nth(1).and_then(|rest| rest.split('"').next());
    listen.map(str::to_owned).context("an address")
}

/// The whole answer to a question.
pub async fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.receiver.kill();
        let _ = self.receiver.wait();
    }
}

/// A process that is killed when it is dropped.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end, and waits.
    pub fn stop(mut self) -> anyhow::Result<()> {
        crate::servers::signal(self.0.id(), "TERM");
        let deadline = Instant::now() + Duration::from_secs(40);
        while self.0.try_wait()?.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "a relay does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
