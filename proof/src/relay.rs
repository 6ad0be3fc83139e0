//! The relays under test: processes of the real binary, each with its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::evidence::{Flow, Sample, now, signing_secret};
use crate::servers::{free_port, signal};

pub struct Settings {
    pub binary: PathBuf,
    pub folder: PathBuf,
    pub brokers: String,
    pub database: String,
    pub receiver: String,
    pub topic: String,
    pub flows: Vec<Flow>,
    pub canary: String,
    pub limits: Limits,
}

/// How patient the workflows are.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub timeout: &'static str,
    pub lease: &'static str,
    /// Of workflows that keep order.
    pub on_key_failure: &'static str,
}

impl Limits {
    /// So short that faults outlast them.
    pub const SHORT: Self = Self { timeout: "1500ms", lease: "4s", on_key_failure: "continue" };
}

impl Settings {
    pub fn yaml(&self, port: u16) -> String {
        let mut text = format!(
            "kafka:\n  brokers: {}\n  groupPrefix: chaos\n  properties: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500}}\n\
             postgres: {{url: \"{}\", tls: {{mode: disable}}}}\nadmin: {{listen: \"127.0.0.1:{port}\"}}\n\
             egress: {{allow: [127.0.0.0/8]}}\nshutdownGrace: 20s\nworkflows:\n",
            self.brokers, self.database
        );
        let ordered = format!("ordering: key\n      onKeyFailure: {}", self.limits.on_key_failure);
        for flow in &self.flows {
            text.push_str(&format!(
                "  - id: {id}\n    source: {{topics: [{topic}]}}\n    filter: .keep\n\
                 \x20   transform: 'range(.fan) as $i | [.n, $i, .pad, .refuse]'\n    eventType: {kind}\n\
                 \x20   endpoint:\n      url: {url}\n      timeout: {timeout}\n      headers: {{x-secret: \"${{CANARY}}\", x-turn: \"0\"}}\n{signing}\
                 \x20   delivery:\n      guarantee: {guarantee}\n      mechanism: {mechanism}\n      envelope: {envelope}\n      lease: {lease}\n\
                 \x20     concurrency: {concurrency}\n      circuitBreaker: {{failures: 20, openFor: 2s}}\n      deadLetterLimit: {{count: 1000000}}\n      {ordering}\n      retries: {{backoff: [100ms, 300ms, 1s], maxAttempts: {attempts}, maxRetryAfter: 2s}}\n",
                id = flow.id,
                topic = self.topic,
                kind = flow.event_type,
                guarantee = flow.guarantee,
                mechanism = flow.mechanism,
                signing = if flow.signed { "      signing: {secrets: [\"${SIGNING_SECRET}\"]}\n" } else { "" },
                ordering = if flow.ordered { ordered.as_str() } else { "ordering: none" },
                timeout = self.limits.timeout,
                lease = self.limits.lease,
                url = self.receiver,
                envelope = flow.envelope,
                concurrency = flow.concurrency,
                attempts = flow.max_attempts,
            ));
        }
        text
    }

    fn command(&self, verb: &str, config: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(verb).arg("--config").arg(config).env("CANARY", &self.canary);
        command.env("SIGNING_SECRET", signing_secret(&self.canary));
        command
    }

    pub fn migrate(&self) -> anyhow::Result<()> {
        let config = self.folder.join("migrate.yaml");
        std::fs::write(&config, self.yaml(free_port()?))?;
        let output = self.command("migrate", &config).output().context("oncebox migrate")?;
        anyhow::ensure!(output.status.success(), "migrate: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

pub struct Relay {
    pub name: String,
    pub config: PathBuf,
    child: Option<Child>,
}

impl Relay {
    pub fn start(settings: &Settings, name: &str) -> anyhow::Result<Self> {
        let config = settings.folder.join(format!("{name}.yaml"));
        std::fs::write(&config, settings.yaml(free_port()?))?;
        let mut relay = Self { name: name.to_owned(), config, child: None };
        relay.run(settings)?;
        Ok(relay)
    }

    pub fn run(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(settings.folder.join(format!("{}.log", self.name)))?;
        let child = settings
            .command("run", &self.config)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting a relay")?;
        self.child = Some(child);
        Ok(())
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            signal(child.id(), name);
        }
    }

    /// Changes a header of every workflow, as an operator would, and says so.
    pub fn reload(&self, turn: u32) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(&self.config)?;
        let marked = |part: &str| {
            let (turn_before, rest) = part.split_once('"')?;
            turn_before.parse::<u32>().ok().map(|_| rest.to_owned())
        };
        let mut parts = text.split("x-turn: \"");
        let mut changed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = marked(part).context("a turn in the configuration")?;
            changed.push_str(&format!("x-turn: \"{turn}\"{rest}"));
        }
        std::fs::write(&self.config, changed)?;
        self.signal("HUP");
        Ok(())
    }

    /// What it uses now.
    pub fn sample(&self) -> Option<Sample> {
        let pid = self.child.as_ref()?.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let rss_kib = rss.split_whitespace().next()?.parse().ok()?;
        let open_files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Sample { at: now(), relay: self.name.clone(), rss_kib, open_files })
    }

    /// Whether it is still there; one that ended by itself is started again by whoever asks.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_none()))
    }

    /// Asks it to end. An error says what it did instead of ending in time and without complaint, and what it said last.
    pub fn stop(&mut self, limit: Duration) -> anyhow::Result<()> {
        self.signal("TERM");
        let deadline = Instant::now() + limit;
        while let Some(child) = &mut self.child {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                anyhow::ensure!(status.success(), "{} ended with {status}:\n{}", self.name, self.last_words());
            } else if Instant::now() > deadline {
                self.kill();
                bail!("{} did not end within {} s:\n{}", self.name, limit.as_secs(), self.last_words());
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = std::fs::read(self.config.with_extension("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill();
    }
}
