//! `oncebox validate` and `oncebox schema`. With `--against`, what a configuration would change for the receivers of the
//! one that runs.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{Failure, block_on, load};
use crate::config::problem::each_once;
use crate::config::{Loaded, shape};
use crate::explain::changes::{self, Change, Planned, Running, Weight};
use crate::outbox::migrate::{self, Fit};
use crate::outbox::{Database, cursor, gauges, workflow};

#[derive(Debug, clap::Args)]
pub struct Validate {
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
    /// Ask the world too: brokers, topics and whether they may be read, Postgres, names and egress of endpoints.
    #[arg(long)]
    online: bool,
    /// Compare with the configuration that runs on this database: a postgresql:// URL, or `database` for the configured
    /// one. What takes back a promise is refused.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// Accept what takes back a promise.
    #[arg(long, requires = "against")]
    accept: bool,
}

pub fn validate(flags: &Validate) -> Result<(), Failure> {
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
        Some(url) => against(&loaded, url, if flags.accept { Accept::Downgrades } else { Accept::Nothing }),
        None => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Accept {
    Nothing,
    Downgrades,
}

fn against(loaded: &Loaded, url: &str, accept: Accept) -> Result<(), Failure> {
    let configured = &loaded.config.postgres;
    let settings = match url {
        "database" => configured.clone(),
        url => configured.at(url).ok_or_else(|| {
            // The text itself is not shown: it may hold a password.
            Failure::Usage("--against is neither `database` nor a postgresql:// URL".to_owned())
        })?,
    };
    let running = block_on(async { running(&Database::new(&settings)?).await })?;
    let planned = planned(loaded)?;
    let changes = changes::compare(&running, &planned);
    print(loaded, &running, &changes);
    let downgrades = changes.iter().filter(|change| change.weight == Weight::Downgrade).count();
    let what = if downgrades == 1 { "1 downgrade" } else { &format!("{downgrades} downgrades") };
    match (downgrades, accept) {
        (0, _) => println!("nothing that was promised is taken back"),
        (_, Accept::Downgrades) => println!("{what}, accepted"),
        (_, Accept::Nothing) => {
            println!("{what}: refused; --accept accepts what is marked DOWNGRADE");
            return Err(Failure::Said);
        }
    }
    Ok(())
}

/// A database without a schema runs nothing yet.
async fn running(database: &Database) -> anyhow::Result<Vec<Running>> {
    match migrate::fit(database).await.context("asking the database that --against names")? {
        Fit::TooOld { version: 0 } => return Ok(Vec::new()),
        Fit::Fits => {}
        Fit::TooOld { .. } | Fit::TooNew { .. } => {
            anyhow::bail!(
                "the schema there is of another version than this binary: compare with the binary that runs there"
            );
        }
    }
    let mut running = Vec::new();
    for (id, document) in workflow::running(database).await.context("reading what runs")? {
        let undelivered = gauges::read(database, &id).await.context("counting undelivered events")?.waiting;
        let document =
            serde_json::from_str(&document).with_context(|| format!("the stored configuration of `{id}`"))?;
        let clusters = cursor::clusters(database, &id).await.context("reading cursors")?;
        running.push(Running { id, document, undelivered, clusters });
    }
    Ok(running)
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
