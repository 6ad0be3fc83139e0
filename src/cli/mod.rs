//! The command line: one file per verb. Tables for people, `--json` for scripts.

mod access;
mod client;
mod dead_letters;
mod drain;
mod events;
mod explain;
mod migrate;
mod offsets;
mod online;
mod output;
mod pause;
mod preview;
mod produce;
mod receiver;
mod replays;
mod run;
mod status;
mod test;
mod validate;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::problem::Problems;
use crate::config::{self, Loaded};
use crate::observe::logging::{self, LogFormat};
use crate::transform;

/// Delivers Kafka events to HTTP endpoints under the guarantee each workflow asks for.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version = version())]
pub struct Arguments {
    /// How logs are written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, global = true)]
    log: LogFormat,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the workflows of a configuration.
    Run(run::Run),
    /// Bring the database's schema to this binary's version.
    Migrate(ConfigPath),
    /// Check a configuration and print every problem with its position.
    Validate(validate::Validate),
    /// Say what a workflow promises, what its receiver must do, and what happens in each failure.
    Explain(explain::Explain),
    /// Take one record through a workflow, step by step, to the exact request.
    Preview(preview::Preview),
    /// Run the tests of workflows: record in, expected requests out.
    Test(test::Tests),
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Show or move the stored offsets of a workflow.
    #[command(subcommand)]
    Offsets(offsets::Verb),
    /// Show where all workflows stand, the most troubled first.
    Status(status::Status),
    /// Prove, from Kafka and Postgres, that every record that was read is delivered, waiting, filtered, suppressed or dead.
    Verify(verify::Verify),
    /// List, show, replay or discard dead letters.
    #[command(subcommand)]
    DeadLetters(dead_letters::Verb),
    /// List and show events, and say what became of those held.
    #[command(subcommand)]
    Events(events::Verb),
    /// Stop sending until `resume`; what comes in is kept.
    Pause(pause::Which),
    /// Start a workflow again that is paused, suspended or halted.
    Resume(pause::Which),
    /// Deliver what is left of a workflow that was removed from the configuration.
    Drain(drain::Drain),
    /// Make dead letters of what is left of a workflow that was removed from the configuration.
    Park(drain::Park),
    /// Run the reference receiver.
    Receiver(receiver::Flags),
    /// Deliver 20,000 events through a relay that is killed on the way, and count what arrived.
    Demo(crate::demo::Flags),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each verb.
    Man {
        /// Into this folder.
        folder: PathBuf,
    },
    #[command(hide = true)]
    Produce(produce::Produce),
    #[command(hide = true)]
    EmbeddedBroker(crate::demo::broker::Flags),
}

#[derive(Debug, Clone, clap::Args)]
pub struct ConfigPath {
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    pub config: PathBuf,
}

/// Why a verb did not do what it should.
#[derive(Debug)]
pub enum Failure {
    /// Usage or configuration: exit 2.
    Usage(String),
    /// Anything else: exit 1.
    Failed(anyhow::Error),
    /// The verb has printed what failed: exit 1.
    Said,
    /// The verb has printed what is wrong with the configuration: exit 2.
    Refused,
}

impl Failure {
    /// In words; none where the verb has printed them.
    fn words(&self) -> String {
        match self {
            Self::Usage(message) => message.clone(),
            Self::Failed(error) => crate::observe::chain(error.as_ref()),
            Self::Said | Self::Refused => String::new(),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Whoever reads what is printed may have seen enough: that is no mistake, and nothing to be said about.
fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().is_some_and(|text| text.starts_with("failed printing to stdout: Broken pipe")) {
            std::process::exit(1);
        }
        usual(panic);
    }));
}

pub fn main(arguments: Arguments) -> ExitCode {
    end_with_the_reader();
    let _flushed = logging::start(arguments.log);
    match dispatch(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(error)) => {
            eprintln!("oncebox: {}", crate::observe::chain(error.as_ref()));
            ExitCode::FAILURE
        }
        Err(Failure::Said) => ExitCode::FAILURE,
        Err(Failure::Refused) => ExitCode::from(2),
    }
}

fn dispatch(verb: Verb) -> Result<(), Failure> {
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    match verb {
        Verb::Run(flags) => run::run(&flags),
        Verb::Migrate(path) => migrate::migrate(&path),
        Verb::Validate(flags) => validate::validate(&flags),
        Verb::Explain(explain) => explain::run(&explain),
        Verb::Preview(preview) => preview::run(&preview),
        Verb::Test(tests) => test::run(&tests),
        Verb::Schema => validate::schema(),
        Verb::Offsets(verb) => offsets::run(verb),
        Verb::DeadLetters(verb) => dead_letters::run(verb),
        Verb::Events(verb) => events::run(verb),
        Verb::Pause(which) => pause::pause(&which),
        Verb::Resume(which) => pause::resume(&which),
        Verb::Drain(drain) => drain::drain(&drain),
        Verb::Park(park) => drain::park(&park),
        Verb::Receiver(flags) => receiver::run(&flags),
        Verb::Demo(flags) => crate::demo::run(&flags),
        Verb::Status(status) => status::run(&status),
        Verb::Verify(flags) => verify::run(&flags),
        Verb::Completions { shell } => {
            let mut written = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "oncebox", &mut written);
            print!("{}", String::from_utf8_lossy(&written));
            Ok(())
        }
        Verb::Man { folder } => {
            std::fs::create_dir_all(&folder)?;
            clap_mangen::generate_to(Arguments::command(), &folder)?;
            Ok(())
        }
        Verb::Produce(produce) => produce::run(&produce),
        Verb::EmbeddedBroker(flags) => crate::demo::broker::run(&flags),
    }
}

/// The version, with the commit it was built from where whoever built it said so.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("ONCEBOX_COMMIT").filter(|commit| !commit.is_empty()) {
            Some(commit) => format!("{version} ({commit:.12})"),
            None => version.to_owned(),
        }
    });
    &VERSION
}

/// Loads and checks a configuration, programs included.
fn load(path: &Path) -> Result<Loaded, Failure> {
    match examine(path) {
        (Some(loaded), problems) if problems.is_empty() => Ok(loaded),
        (_, problems) => Err(Failure::Usage(problems.to_string())),
    }
}

/// What a configuration comes to, as far as it does, and every problem of it.
fn examine(path: &Path) -> (Option<Loaded>, Problems) {
    let (loaded, mut problems) = config::read(path);
    if let Some(loaded) = &loaded {
        for workflow in &loaded.config.workflows {
            for (pointer, message) in transform::problems(workflow) {
                problems.push(loaded.problem(&format!("/workflows/{}{pointer}", workflow.index), message));
            }
        }
    }
    (loaded, problems)
}

/// The runtime of a verb that talks to servers.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be started");
    let result = runtime.block_on(future);
    // A thread that waits for a broker which is away is not waited for.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// The workflow of that id, or which ones there are.
fn workflow<'a>(loaded: &'a Loaded, id: &str) -> Result<&'a std::sync::Arc<config::Workflow>, Failure> {
    loaded.config.workflow(id).ok_or_else(|| {
        let known: Vec<&str> = loaded.config.workflows.iter().map(|w| &*w.id).collect();
        let hint = config::shape::closest(id, &known).map(|near| format!(": did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| format!("; there are: {}", known.join(", ")));
        Failure::Usage(format!("no workflow `{id}`{hint}"))
    })
}
