//! A Kafka broker, and a PostgreSQL with a standby, all of a run's own, because it kills them.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

pub fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
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

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

pub const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qk";

pub struct Kafka {
    folder: PathBuf,
    jars: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

impl Kafka {
    /// Formats its storage and starts. Clients are told to come through `advertised`.
    pub fn start(folder: &Path, jars: &Path, advertised: SocketAddr) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (port, controller) = (free_port()?, free_port()?);
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

/// One PostgreSQL server.
pub struct Postgres {
    bin: PathBuf,
    user: Option<&'static str>,
    pub data: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

impl Postgres {
    pub fn init(data: &Path) -> anyhow::Result<Self> {
        let mut server = Self::at(data)?;
        std::fs::create_dir_all(data)?;
        server.own()?;
        let made = server
            .command("initdb")
            .args(["-U", "oncebox", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(data)
            .output()
            .context("initdb")?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        server.run()?;
        Ok(server)
    }

    fn at(data: &Path) -> anyhow::Result<Self> {
        let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("bin"))
            .filter(|bin| bin.join("postgres").exists())
            .collect();
        found.sort();
        let bin = found.pop().context("no PostgreSQL on this machine")?;
        let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
        let has_postgres = Command::new("id").arg("postgres").output().is_ok_and(|out| out.status.success());
        let user = root.then_some(if has_postgres { "postgres" } else { "nobody" });
        Ok(Self { bin, user, data: data.to_owned(), port: free_port()?, child: None })
    }

    /// PostgreSQL refuses to run as root, and its folder must be its own.
    fn own(&self) -> anyhow::Result<()> {
        if let Some(user) = self.user {
            Command::new("chown").arg("-R").arg(user).arg(&self.data).status()?;
        }
        Command::new("chmod").arg("700").arg(&self.data).status()?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir("/");
        command
    }

    pub fn run(&mut self) -> anyhow::Result<()> {
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(&self.data)
            .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args([
                "-c",
                "max_connections=200",
                "-c",
                "wal_level=replica",
                "-c",
                "hot_standby=on",
                "-c",
                "max_wal_size=2GB",
            ])
            .args(["-c", "wal_keep_size=512MB", "-c", "log_min_messages=fatal"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting PostgreSQL")?;
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self
            .command("pg_isready")
            .args(["-q", "-h", "127.0.0.1", "-U", "oncebox", "-p"])
            .arg(self.port.to_string())
            .status()?
            .success()
        {
            if Instant::now() > deadline {
                bail!("PostgreSQL does not start");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// A copy that follows by streaming through this port, a little behind.
    pub fn standby(&self, data: &Path, through: u16) -> anyhow::Result<Self> {
        let mut standby = Self::at(data)?;
        std::fs::create_dir_all(data)?;
        standby.own()?;
        let copied = standby
            .command("pg_basebackup")
            .args(["-h", "127.0.0.1", "-U", "oncebox", "-p", &through.to_string(), "-R", "-c", "fast", "-D"])
            .arg(data)
            .output()?;
        if !copied.status.success() {
            bail!("pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        }
        standby.run()?;
        Ok(standby)
    }

    pub fn promote(&self) -> anyhow::Result<()> {
        self.command("pg_ctl").args(["promote", "-w", "-D"]).arg(&self.data).stdout(Stdio::null()).status()?;
        Ok(())
    }

    /// The process that started all the others.
    pub fn postmaster(&self) -> u32 {
        let text = std::fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        text.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0)
    }

    /// The processes of this server whose title holds this text.
    pub fn processes(&self, title: &str) -> Vec<u32> {
        let parent = self.postmaster().to_string();
        let Ok(output) = Command::new("pgrep").args(["-P", &parent, "-f", title]).output() else { return Vec::new() };
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Ends all of it at once, as a power cut does.
    pub fn kill(&mut self) {
        let postmaster = self.postmaster();
        if postmaster > 0 {
            let children = Command::new("pgrep").args(["-P", &postmaster.to_string()]).output();
            signal(postmaster, "KILL");
            for child in children
                .iter()
                .flat_map(|out| String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect::<Vec<_>>())
            {
                if let Ok(pid) = child.parse() {
                    signal(pid, "KILL");
                }
            }
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.data.join("postmaster.pid"));
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}
