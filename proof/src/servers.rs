//! A Kafka broker of a run's own, because it is killed; and what both servers need.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Not one that the system hands out: before its server listens, a connection on its way out could be given the same.
pub fn free_port() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(7_919);
    let ports = (0..12_000).map(|_| 20_000 + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000);
    let mut free =
        ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| TcpListener::bind(local(*port)).is_ok());
    free.next().context("no free port")
}

pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn await_listening(port: u16, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    while std::net::TcpStream::connect(local(port)).is_err() {
        if Instant::now() > deadline {
            bail!("nothing listens on port {port}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// By the shell's own `kill`: not every machine has the program.
pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).stderr(Stdio::null()).status();
}

/// The children of a process whose command line holds this text.
pub fn children(parent: u32, text: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The name stands in parentheses and may hold anything; state and parent come after it.
        let of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        of == Some(parent) && String::from_utf8_lossy(&command).contains(text)
    };
    pids.filter(is_child).collect()
}

pub const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qk";

pub struct Kafka {
    folder: PathBuf,
    jars: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

impl Kafka {
    /// Formats its storage and starts. Clients are told to come through `advertised`, or straight.
    pub fn start(folder: &Path, jars: &Path, advertised: Option<SocketAddr>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (port, controller) = (free_port()?, free_port()?);
        let advertised = advertised.unwrap_or_else(|| local(port));
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://{advertised}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={}\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n\
             group.min.session.timeout.ms=1000\noffsets.topic.num.partitions=3\n",
            folder.join("data").display()
        );
        std::fs::write(folder.join("server.properties"), properties)?;
        let mut kafka = Self { folder: folder.to_owned(), jars: jars.to_owned(), port, child: None };
        let formatted = kafka
            .java(&["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"])
            .arg(folder.join("server.properties"))
            .output()
            .context("java")?;
        if !formatted.status.success() {
            bail!("Kafka's storage cannot be formatted: {}", String::from_utf8_lossy(&formatted.stderr));
        }
        kafka.run()?;
        Ok(kafka)
    }

    fn java(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("java");
        command.args(["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-cp"]).arg(format!("{}/*", self.jars.display()));
        command.args(arguments);
        command
    }

    pub fn run(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("broker.out"))?;
        let child = self
            .java(&["kafka.Kafka"])
            .arg(self.folder.join("server.properties"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting Kafka")?;
        self.child = Some(child);
        await_listening(self.port, Duration::from_secs(90)).context("Kafka")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The id that the broker gave a topic, asked with Kafka's own tool.
    pub fn topic_id(&self, topic: &str) -> anyhow::Result<String> {
        let output = self
            .java(&["org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic, "--bootstrap-server"])
            .arg(format!("127.0.0.1:{}", self.port))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let id = text.split("TopicId:").nth(1).and_then(|rest| rest.split_whitespace().next());
        id.map(str::to_owned).with_context(|| format!("no topic id in: {text}"))
    }

    /// Every visible record of a topic, read by Kafka's own console client.
    pub fn dump(&self, topic: &str, out: &Path) -> anyhow::Result<()> {
        let status = self
            .java(&["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server"])
            .arg(format!("127.0.0.1:{}", self.port))
            .args([
                "--topic",
                topic,
                "--from-beginning",
                "--timeout-ms",
                "10000",
                "--isolation-level",
                "read_committed",
            ])
            .args(["--property", "print.partition=true", "--property", "print.offset=true"])
            .args(["--property", "print.timestamp=true", "--property", "key.separator=\u{1f}"])
            .stdout(File::create(out)?)
            .stderr(Stdio::null())
            .status()
            .context("Kafka's console client")?;
        // It ends with an error once nothing more comes.
        let _ = status;
        Ok(())
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.kill();
    }
}
