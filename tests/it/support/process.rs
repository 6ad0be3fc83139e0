//! Real `oncebox` processes, killed if a test forgets them.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::{PATIENCE, TestDatabase, TestReceiver, Topic, eventually, services};

/// The YAML of one test workflow, exactly-once with short leases.
pub struct Config {
    pub workflow: String,
    pub topic: String,
    pub schema: String,
    /// The schema's name, where none is given.
    pub group_prefix: Option<String>,
    pub url: String,
    /// More lines under `source:`, `delivery:`, `endpoint:` and the workflow itself.
    pub source: String,
    pub delivery: String,
    pub endpoint: String,
    pub extra: String,
    pub kafka: String,
    pub brokers: String,
    pub egress: String,
    pub postgres: String,
    pub admin: String,
    /// Empty: none is named.
    pub guarantee: &'static str,
    /// Off, so to speak, unless a test is about it: many tests have endpoints that only fail.
    pub circuit: &'static str,
    pub timeout: &'static str,
    pub lease: &'static str,
}

impl Config {
    pub fn new(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver) -> Self {
        Self::posting_to(receiver.url(), topic, database)
    }

    pub fn posting_to(url: String, topic: &Topic, database: &TestDatabase) -> Self {
        Self {
            workflow: "orders".to_owned(),
            topic: topic.name.clone(),
            schema: database.schema.clone(),
            group_prefix: None,
            url,
            source: String::new(),
            delivery: "retries: {backoff: [100ms], jitter: 0}".to_owned(),
            endpoint: String::new(),
            extra: String::new(),
            kafka: String::new(),
            brokers: services().brokers.clone(),
            egress: "[127.0.0.0/8]".to_owned(),
            postgres: String::new(),
            admin: String::new(),
            guarantee: "exactly-once",
            circuit: "{failures: 1000000}",
            timeout: "1s",
            lease: "3s",
        }
    }

    pub fn yaml(&self, port: u16) -> String {
        format!(
            r#"
kafka:
  brokers: {brokers}
  groupPrefix: {group_prefix}
  properties: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500, {kafka}}}
postgres: {{url: "${{DATABASE_URL}}", schema: {schema}, {postgres}}}
admin: {{listen: "127.0.0.1:{port}"{admin}}}
egress: {{allow: {egress}}}
shutdownGrace: 10s
workflows:
  - id: {workflow}
    source:
      topics: [{topic}]
      {source}
    eventType: OrderChanged
    endpoint:
      url: {url}
      timeout: {timeout}
      {endpoint}
    delivery:
      {guarantee}
      lease: {lease}
      circuitBreaker: {circuit}
      {delivery}
    {extra}
"#,
            brokers = self.brokers,
            schema = self.schema,
            group_prefix = self.group_prefix.as_ref().unwrap_or(&self.schema),
            workflow = self.workflow,
            topic = self.topic,
            url = self.url,
            kafka = self.kafka,
            egress = self.egress,
            postgres = self.postgres,
            admin = self.admin,
            source = self.source,
            delivery = self.delivery,
            endpoint = self.endpoint,
            extra = self.extra,
            guarantee =
                if self.guarantee.is_empty() { String::new() } else { format!("guarantee: {}", self.guarantee) },
            circuit = self.circuit,
            timeout = self.timeout,
            lease = self.lease,
        )
    }
}

/// One `oncebox run` with its configuration file.
pub struct Relay {
    child: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

/// The binary, with the services in its environment.
pub fn command() -> Command {
    command_of(std::path::Path::new(env!("CARGO_BIN_EXE_oncebox")))
}

fn command_of(binary: &std::path::Path) -> Command {
    let mut command = Command::new(binary);
    command.env("DATABASE_URL", &services().database_url).env("KAFKA_BROKERS", &services().brokers);
    command
}

/// Runs a verb with this configuration to its end.
pub fn oncebox(arguments: &[&str], config: &std::path::Path) -> Output {
    command().args(arguments).arg("--config").arg(config).output().expect("oncebox starts")
}

/// Fills the database's schema, without a relay.
pub fn migrated(database: &TestDatabase) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oncebox.yaml");
    let (brokers, schema) = (&services().brokers, &database.schema);
    let yaml = format!("kafka: {{brokers: {brokers}}}\npostgres: {{url: \"${{DATABASE_URL}}\", schema: {schema}}}\n");
    std::fs::write(&path, yaml).expect("the configuration is written");
    let output = oncebox(&["migrate"], &path);
    assert!(output.status.success(), "migrate: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn free_port() -> u16 {
    oncebox::receiver::free_port().expect("a free port")
}

impl Relay {
    pub fn start(config: &Config) -> Self {
        Self::start_with(config, "")
    }

    /// `failpoints` as the `fail` crate reads them: `name=return;other=sleep(100)`.
    pub fn start_with(config: &Config, failpoints: &str) -> Self {
        Self::start_in(config, failpoints, &[])
    }

    pub fn start_in(config: &Config, failpoints: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_all_of(command, config, failpoints, environment)
    }

    /// With some of the roles only.
    pub fn start_as(roles: &str, config: &Config) -> Self {
        let (folder, port) = Self::configured(config);
        let migrated = oncebox(&["migrate"], &folder.path().join("oncebox.yaml"));
        assert!(migrated.status.success(), "migrate: {}", String::from_utf8_lossy(&migrated.stderr));
        Self::run(command(), &["--roles", roles], folder, port, "", &[])
    }

    /// Another binary than the one under test.
    pub fn start_of(binary: &std::path::Path, config: &Config) -> Self {
        Self::start_all_of(|| command_of(binary), config, "", &[])
    }

    fn start_all_of(
        command: impl Fn() -> Command,
        config: &Config,
        failpoints: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let (folder, port) = Self::configured(config);
        let path = folder.path().join("oncebox.yaml");
        let variables = environment.iter().copied();
        let migrated = command().args(["migrate", "--config"]).arg(&path).envs(variables).output().expect("it starts");
        assert!(migrated.status.success(), "migrate: {}", String::from_utf8_lossy(&migrated.stderr));
        Self::run(command(), &[], folder, port, failpoints, environment)
    }

    /// Where the schema is there already.
    pub fn start_migrated(config: &Config) -> Self {
        let (folder, port) = Self::configured(config);
        Self::run(command(), &[], folder, port, "", &[])
    }

    fn configured(config: &Config) -> (tempfile::TempDir, u16) {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        std::fs::write(folder.path().join("oncebox.yaml"), config.yaml(port)).expect("the configuration is written");
        (folder, port)
    }

    fn run(
        mut command: Command,
        arguments: &[&str],
        folder: tempfile::TempDir,
        port: u16,
        failpoints: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let child = command
            .args(["run", "--config"])
            .arg(folder.path().join("oncebox.yaml"))
            .args(arguments)
            .env("FAILPOINTS", failpoints)
            .env("ONCEBOX_LOG", std::env::var("ONCEBOX_LOG").unwrap_or_else(|_| "info".to_owned()))
            .envs(environment.iter().copied())
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .expect("oncebox starts");
        Self { child, port, folder }
    }

    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("oncebox.yaml")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
        assert!(status.expect("kill runs").success());
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_some()
    }

    /// How it ended, if it has.
    pub fn end(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().expect("the process can be asked")
    }

    /// Waits for the process to end by itself.
    pub async fn ended(&mut self, limit: Duration) -> std::process::ExitStatus {
        let child = &mut self.child;
        eventually("the process ends", limit, async || child.try_wait().expect("the process can be asked")).await
    }

    /// SIGTERM, and the exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.signal(15);
        self.ended(Duration::from_secs(20)).await.code()
    }

    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    pub async fn ready(&self) {
        eventually("the relay is ready", PATIENCE, async || {
            self.get("/readyz").await.filter(|(status, _)| *status == 200)
        })
        .await;
    }

    /// The value of a metric, all its series with these labels summed.
    pub async fn metric(&self, name: &str, labels: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
                && labels.split(',').all(|label| line.contains(label))
        });
        let values: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- log of the relay, last lines ---");
            tail.into_iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}
