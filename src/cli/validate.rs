//! `oncebox validate` and `oncebox schema`. With `--against`, what a configuration would change for the receivers of the
//! one that runs. With `--json`, what it finds for programs: a list, also when it finds nothing.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::access::Access;
use super::client::Client;
use super::{Failure, block_on, examine, load, output};
use crate::config::problem::{Problem, each_once};
use crate::config::{Loaded, shape};
use crate::explain::changes::{self, Change, Planned, Running, Weight};
use crate::operate::{Operator, running};
use crate::outbox::Database;

#[derive(Debug, clap::Args)]
pub struct Validate {
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
    /// Ask the world too: brokers, topics and whether they may be read, Postgres, names and egress of endpoints.
    #[arg(long)]
    online: bool,
    /// Compare with the configuration that runs: on a database (a postgresql:// URL, or `database` for the configured one), or
    /// as a running process says (its http:// address). What takes back a promise is refused.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// The bearer token that the process of --against knows.
    #[arg(long, value_name = "TOKEN", env = "ONCEBOX_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Accept what takes back a promise.
    #[arg(long, requires = "against")]
    accept: bool,
    /// As JSON: a list of findings with file, line, column, level (error or warning) and message.
    #[arg(long, conflicts_with_all = ["online", "against"])]
    json: bool,
}

/// A problem or a warning, for programs.
#[derive(Debug, Serialize)]
struct Finding<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    /// error or warning.
    level: &'static str,
    message: String,
}

impl<'a> Finding<'a> {
    fn of(level: &'static str, problem: &'a Problem) -> Self {
        let place = &problem.place;
        Self { file: &place.file, line: place.line, column: place.column, level, message: problem.text() }
    }
}

pub fn validate(flags: &Validate) -> Result<(), Failure> {
    if flags.json {
        return print_findings(&flags.config);
    }
    let loaded = load(&flags.config)?;
    let warnings = each_once(&loaded.warnings);
    for warning in &warnings {
        println!("warning: {warning}");
    }
    let workflows = loaded.config.workflows.len();
    println!("valid: {workflows} workflow{}, {} warnings", if workflows == 1 { "" } else { "s" }, warnings.len());
    if flags.online {
        super::online::check(&loaded.config)?;
    }
    match &flags.against {
        Some(place) => against(&loaded, place, flags),
        None => Ok(()),
    }
}

/// Errors before warnings, each in file order.
fn print_findings(path: &Path) -> Result<(), Failure> {
    let (loaded, problems) = examine(path);
    let errors = problems.sorted();
    let warnings = loaded.as_ref().map(|loaded| each_once(&loaded.warnings)).unwrap_or_default();
    let found = each_once(&errors).into_iter().map(|error| Finding::of("error", error));
    let found: Vec<Finding<'_>> =
        found.chain(warnings.into_iter().map(|warning| Finding::of("warning", warning))).collect();
    println!("{}", serde_json::to_string_pretty(&found)?);
    match loaded {
        Some(_) if errors.is_empty() => Ok(()),
        Some(_) | None => Err(Failure::Refused),
    }
}

fn against(loaded: &Loaded, place: &str, flags: &Validate) -> Result<(), Failure> {
    let access = there(loaded, place, flags.token.as_deref())?;
    let asked = access.get("/v1/configurations", async |operator: &Operator| operator.running().await);
    let running: Vec<running::Running> = block_on(asked)?;
    let running: Vec<Running> = running.into_iter().map(Running::from).collect();
    let planned = planned(loaded)?;
    let changes = changes::compare(&running, &planned);
    print(loaded, &running, &changes);
    let downgrades = changes.iter().filter(|change| change.weight == Weight::Downgrade).count();
    let what = if downgrades == 1 { "1 downgrade" } else { &format!("{downgrades} downgrades") };
    match (downgrades, flags.accept) {
        (0, _) => println!("nothing that was promised is taken back"),
        (_, true) => println!("{what}, accepted"),
        (_, false) => {
            println!("{what}: refused; --accept accepts what is marked DOWNGRADE");
            return Err(Failure::Said);
        }
    }
    Ok(())
}

impl From<running::Running> for Running {
    fn from(run: running::Running) -> Self {
        let running::Running { id, document, undelivered, clusters } = run;
        Self { id, document, undelivered, clusters }
    }
}

/// Whom to ask what runs.
fn there(loaded: &Loaded, place: &str, token: Option<&str>) -> Result<Access, Failure> {
    if place.starts_with("http://") || place.starts_with("https://") {
        return Client::new(place, token).map(Access::Api);
    }
    let configured = &loaded.config.postgres;
    let settings = match place {
        "database" => configured.clone(),
        url => configured.at(url).ok_or_else(|| {
            // The text itself is not shown: it may hold a password.
            let allowed = "`database`, a postgresql:// URL, or the http:// address of a running process";
            Failure::Usage(format!("--against is none of these: {allowed}"))
        })?,
    };
    Ok(Access::Postgres(Box::new(Operator {
        database: Database::new(&settings)?,
        kafka: loaded.config.kafka.clone(),
        workflows: Vec::new(),
        who: output::who(),
    })))
}

fn planned(loaded: &Loaded) -> anyhow::Result<Vec<Planned>> {
    let plan = |workflow: &std::sync::Arc<crate::config::Workflow>| {
        let document = serde_json::from_str(&workflow.document).context("a workflow as it is stored")?;
        Ok(Planned { id: workflow.id.to_string(), document, cluster: loaded.config.kafka.cluster.clone() })
    };
    loaded.config.workflows.iter().map(plan).collect()
}

fn print(loaded: &Loaded, running: &[Running], changes: &[Change]) {
    if running.is_empty() {
        println!("nothing runs there yet");
    }
    let mut last = "";
    for change in changes {
        if change.workflow != last {
            println!("{}", change.workflow);
            last = &change.workflow;
        }
        let weight = match change.weight {
            Weight::Downgrade => "DOWNGRADE",
            Weight::Change => "change",
            Weight::Upgrade => "upgrade",
        };
        let place = match loaded.config.workflow(&change.workflow) {
            Some(planned) => {
                let pointer = match change.pointer.as_str() {
                    changes::CLUSTER => changes::CLUSTER.to_owned(),
                    own => format!("/workflows/{}{own}", planned.index),
                };
                format!("{}: ", loaded.tree.nearest(&pointer).place)
            }
            // It stands nowhere any more.
            None => String::new(),
        };
        println!("  {weight:<9}  {place}{}", change.message);
    }
}

pub fn schema() -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(&shape::schema())?);
    Ok(())
}
