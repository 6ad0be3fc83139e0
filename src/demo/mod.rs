//! `oncebox demo`: 20,000 orders through a relay that is killed with -9 on the way, to a receiver that fails and loses
//! answers. Ends with what arrived, and what would have happened without the key.
//!
//! Everything is real: Kafka, Postgres, relay and receiver are processes of their own.

pub mod broker;
mod orders;
mod steps;
mod tally;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::cli::Failure;
use crate::receiver::free_port;
use orders::Orders;
use tally::Tally;

const PARTITIONS: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const PLAIN_LINES_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// How many orders.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// How often the relay is killed.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Leave everything running and print what to try.
    #[arg(long)]
    keep: bool,
    /// Use this topic, which exists; otherwise one is created.
    #[arg(long)]
    topic: Option<String>,
}

pub fn run(flags: &Flags) -> Result<(), Failure> {
    let mut demo = Demo::prepare(flags)?;
    let outcome = demo.play(flags);
    if flags.keep && outcome.is_ok() {
        steps::print(&demo);
        demo.keep();
    }
    Ok(outcome?)
}

struct Demo {
    folder: PathBuf,
    program: PathBuf,
    brokers: String,
    topic: String,
    receiver_port: u16,
    admin_port: u16,
    receiver: Running,
    relay: Option<Running>,
    terminal: bool,
}

/// A child that ends with us, unless it is kept.
struct Running(Option<Child>);

impl Running {
    fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// SIGKILL: no goodbye, no flush.
    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Demo {
    fn prepare(flags: &Flags) -> anyhow::Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).ok().filter(|v| !v.is_empty()).with_context(|| {
                format!("{name} is not set: `make demo` starts all that is needed, or point it to a server of yours")
            })
        };
        let (brokers, database) = (variable("KAFKA_BROKERS")?, variable("DATABASE_URL")?);
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
        let folder = std::env::temp_dir().join(format!("oncebox-demo-{started}"));
        std::fs::create_dir_all(&folder).context("a folder for the demo")?;
        let topic = match &flags.topic {
            Some(topic) => topic.clone(),
            None => orders::create_topic(&brokers, &format!("demo-orders-{started}"), PARTITIONS)?,
        };
        let (receiver_port, admin_port) = (free_port()?, free_port()?);
        let yaml = include_str!("../../config/demo.yaml")
            .replace("@SCHEMA@", &format!("demo_{started}"))
            .replace("@TOPIC@", &topic)
            .replace("@RECEIVER@", &receiver_port.to_string())
            .replace("@ADMIN@", &admin_port.to_string());
        std::fs::write(folder.join("oncebox.yaml"), yaml)?;
        write_environment(&folder.join("env"), &[("KAFKA_BROKERS", &brokers), ("DATABASE_URL", &database)])?;
        let program = std::env::current_exe().context("our own program")?;
        let receiver = start_receiver(&program, &folder, receiver_port)?;
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let demo = Self { folder, program, brokers, topic, receiver_port, admin_port, receiver, relay: None, terminal };
        demo.migrate(&database)?;
        Ok(demo)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("oncebox.yaml")
    }

    fn migrate(&self, database: &str) -> anyhow::Result<()> {
        let output = Command::new(&self.program).arg("migrate").arg("--config").arg(self.config()).output()?;
        if !output.status.success() {
            let shown = database.rsplit('@').next().unwrap_or_default();
            bail!("migrating {shown}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn start_relay(&mut self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("relay.log"))?;
        let child = Command::new(&self.program)
            .arg("run")
            .arg("--config")
            .arg(self.config())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting the relay")?;
        self.relay = Some(Running(Some(child)));
        Ok(())
    }

    /// Produces, kills, waits until all is delivered, and counts.
    fn play(&mut self, flags: &Flags) -> anyhow::Result<()> {
        let began = Instant::now();
        println!(
            "demo: {} orders, a receiver that fails 5% and loses 2% of its answers, {} kills -9",
            flags.events, flags.kills
        );
        let orders = Orders::produce(&self.brokers, &self.topic, flags.events);
        self.start_relay()?;
        let (mut killed, mut said) = (0, Instant::now());
        let tally = loop {
            std::thread::sleep(LOOK_EVERY);
            let tally = Tally::read(&self.folder.join("receiver.jsonl"))?;
            // The last kill comes while there is still a fifth to deliver.
            let next_kill = (killed + 1) * flags.events * 4 / (5 * (flags.kills.max(1)));
            if killed < flags.kills && tally.processed >= next_kill.min(flags.events.saturating_sub(1)) {
                self.relay.take();
                killed += 1;
                self.say(&format!("kill -9 ({killed} of {})", flags.kills), orders.produced(), &tally);
                self.start_relay()?;
            }
            if self.terminal || said.elapsed() > PLAIN_LINES_EVERY {
                said = Instant::now();
                self.say("delivering", orders.produced(), &tally);
            }
            let all = orders.is_done() && tally.processed >= orders.produced();
            if all && killed == flags.kills {
                break tally;
            }
            if began.elapsed() > PATIENCE {
                self.end_line();
                println!("{}", self.tail_of_log());
                bail!("not everything was delivered within {PATIENCE:?}");
            }
        };
        self.end_line();
        let produced = orders.finish()?;
        if produced != flags.events {
            bail!("the broker took {produced} of {} orders: there is nothing to compare with", flags.events);
        }
        let settled = self.settle(&tally)?;
        println!("{}", settled.table(produced, killed, began.elapsed()));
        println!("{}", settled.line(produced));
        if settled.holds(produced) { Ok(()) } else { bail!("the promise did not hold") }
    }

    /// Waits until nothing arrives any more: retries of lost answers come last.
    fn settle(&self, tally: &Tally) -> anyhow::Result<Tally> {
        let mut last = tally.clone();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            std::thread::sleep(Duration::from_secs(2));
            let now = Tally::read(&self.folder.join("receiver.jsonl"))?;
            if now.requests == last.requests && now.unanswered == 0 || Instant::now() > deadline {
                return Ok(now);
            }
            last = now;
        }
    }

    fn say(&self, what: &str, produced: usize, tally: &Tally) {
        let line = format!(
            "{what:<18} produced {produced:>6}   delivered {:>6}   repeated {:>4}   applied twice {}",
            tally.processed, tally.repeated, tally.applied_twice
        );
        if self.terminal {
            use std::io::Write;
            print!("\r\x1b[2K{line}");
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    fn end_line(&self) {
        if self.terminal {
            println!();
        }
    }

    fn tail_of_log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("relay.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Leaves the children alone when we end.
    fn keep(&mut self) {
        self.receiver.0.take();
        if let Some(relay) = &mut self.relay {
            relay.0.take();
        }
    }
}

fn start_receiver(program: &Path, folder: &Path, port: u16) -> anyhow::Result<Running> {
    let child = Command::new(program)
        .args(["receiver", "--fail", "0.05", "--lose", "0.02", "--listen", &format!("127.0.0.1:{port}"), "--log-file"])
        .arg(folder.join("receiver.jsonl"))
        .stdout(Stdio::null())
        .spawn()
        .context("starting the receiver")?;
    Ok(Running(Some(child)))
}

/// What the configuration refers to, for a shell: nobody else may read it.
fn write_environment(path: &Path, variables: &[(&str, &String)]) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    for (name, value) in variables {
        writeln!(file, "export {name}='{}'", value.replace('\'', r"'\''"))?;
    }
    Ok(())
}
