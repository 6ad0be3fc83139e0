//! A PostgreSQL of a run's own, with a standby, because both are killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::servers::{children, free_port, signal};

/// One PostgreSQL server.
pub struct Postgres {
    bin: PathBuf,
    user: Option<&'static str>,
    pub data: PathBuf,
    pub port: u16,
    settings: &'static [&'static str],
    child: Option<Child>,
}

impl Postgres {
    pub fn init(data: &Path) -> anyhow::Result<Self> {
        Self::init_with(data, &[])
    }

    /// The same, with settings of its own beside the usual ones.
    pub fn init_with(data: &Path, settings: &'static [&'static str]) -> anyhow::Result<Self> {
        let mut server = Self::at(data)?;
        server.settings = settings;
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
        Ok(Self { bin, user, data: data.to_owned(), port: free_port()?, settings: &[], child: None })
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
        self.spawn()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_ready()? {
            if Instant::now() > deadline {
                bail!("PostgreSQL does not start: {}", self.last_words());
            }
            // It gives up at once where something of the server that was killed is still on its way out.
            if self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some())) {
                self.spawn()?;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
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
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting PostgreSQL")?;
        self.child = Some(child);
        Ok(())
    }

    fn is_ready(&self) -> anyhow::Result<bool> {
        let port = self.port.to_string();
        let mut asked = self.command("pg_isready");
        Ok(asked.args(["-q", "-h", "127.0.0.1", "-U", "oncebox", "-p", &port]).status()?.success())
    }

    fn log(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().last().unwrap_or("it said nothing").to_owned()
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
        let promoted = self.command("pg_ctl").args(["promote", "-w", "-D"]).arg(&self.data).output()?;
        anyhow::ensure!(promoted.status.success(), "pg_ctl promote: {}", String::from_utf8_lossy(&promoted.stderr));
        Ok(())
    }

    /// A connection past all proxies.
    pub async fn client(&self) -> anyhow::Result<tokio_postgres::Client> {
        let url = format!("postgresql://oncebox@127.0.0.1:{}/postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The process that started all the others.
    pub fn postmaster(&self) -> u32 {
        let text = std::fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        text.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0)
    }

    /// The processes of this server whose title holds this text.
    pub fn processes(&self, title: &str) -> Vec<u32> {
        children(self.postmaster(), title)
    }

    /// Ends all of it at once, as a power cut does.
    pub fn kill(&mut self) {
        let postmaster = self.postmaster();
        if postmaster > 0 {
            // Stopped first: it could start another child while they are listed, and that one would hold its port.
            signal(postmaster, "STOP");
            let left = children(postmaster, "");
            signal(postmaster, "KILL");
            left.into_iter().for_each(|pid| signal(pid, "KILL"));
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
