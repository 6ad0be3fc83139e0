//! What must be true before anything runs: a database that fits and is safe, a Kafka that says who it is.
//!
//! What waiting can mend is waited for, and the log says for what; the rest ends in one sentence.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use tracing::{error, info, warn};

use crate::config::{Config, Guarantee, Workflow};
use crate::ingest::settings;
use crate::observe::chain;
use crate::outbox::migrate::{self, Fit};
use crate::outbox::promise::{self, Running};
use crate::outbox::{self, Database, workflow};

const CLUSTER_ID_LIMIT: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Does what needs Postgres at the start: again and again while Postgres is away, once where waiting cannot mend it.
pub async fn patiently<T>(mut work: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    loop {
        match work().await {
            Err(error) if error.downcast_ref::<outbox::Error>().is_some_and(outbox::Error::may_pass) => {
                warn!(error = %chain(error.as_ref()), "waiting for Postgres");
                tokio::time::sleep(ASK_AGAIN).await;
            }
            done => return done,
        }
    }
}

/// A whole schema that fits this binary, on a server that keeps what it commits; else one sentence that says what is wrong.
pub async fn check_database(database: &Database) -> anyhow::Result<()> {
    match migrate::fit(database).await {
        Ok(Fit::Fits) => {}
        Ok(Fit::TooOld { version: 0 }) => bail!("the database has no Oncebox schema yet: run `oncebox migrate`"),
        Ok(Fit::TooOld { version }) => bail!(
            "the database schema is version {version}, this binary needs {}: run `oncebox migrate`",
            migrate::BINARY_VERSION
        ),
        Ok(Fit::TooNew { oldest_binary }) => bail!(
            "the database schema needs a binary of version {oldest_binary} or newer, this one is {}: upgrade it",
            migrate::BINARY_VERSION
        ),
        Err(error) if error.may_pass() => return Err(error.into()),
        Err(error) => return Err(anyhow::Error::new(error).context("Postgres refuses")),
    }
    let missing = migrate::missing_functions(database).await.context("looking for the schema's functions")?;
    if !missing.is_empty() {
        bail!(
            "the database schema lacks functions that belong to its version: {}; restore or copy it with its functions, not \
             its tables alone",
            missing.join(", ")
        );
    }
    let off = migrate::unsafe_settings(database).await.context("reading Postgres settings")?;
    if !off.is_empty() {
        bail!(
            "Postgres runs with {} off, so it can lose what it committed: no guarantee holds there",
            off.join(" and ")
        );
    }
    Ok(())
}

/// Why a workflow must not run yet: a process runs it at most once where this configuration does not, or the other way round. While both
/// run, one could send again what the other has sent. `here` is what this process runs itself, whether or not Postgres has heard of it lately.
pub async fn clash_over_at_most_once(
    config: &Config,
    database: &Database,
    here: Vec<Running>,
) -> Result<Option<String>, outbox::Error> {
    let running = [here, promise::running(database).await?].concat();
    let clashes = |planned: &&Arc<Workflow>| {
        let names = [Some(&*planned.id), planned.former_id.as_deref()];
        let once = is_at_most_once(planned);
        running.iter().any(|one| names.contains(&Some(&*one.workflow)) && one.at_most_once != once)
    };
    let clash = config.workflows.iter().find(clashes).map(|planned| {
        format!(
            "{}: a change to or from `at-most-once` needs every process stopped before one starts with it: while one still runs \
             with the old configuration, an event could be sent again",
            planned.id
        )
    });
    Ok(clash)
}

pub fn is_at_most_once(workflow: &Workflow) -> bool {
    workflow.delivery.guarantee == Guarantee::AtMostOnce
}

/// The namespace of keys and cursors: configured, or what the brokers report.
pub async fn cluster_id(config: &Config) -> anyhow::Result<Arc<str>> {
    if let Some(cluster) = &config.kafka.cluster {
        return Ok(cluster.as_str().into());
    }
    let client: BaseConsumer = settings::client(&config.kafka).create().context("the Kafka settings cannot be used")?;
    let client = Arc::new(client);
    loop {
        let asked = Arc::clone(&client);
        let answer = tokio::task::spawn_blocking(move || asked.client().fetch_cluster_id(CLUSTER_ID_LIMIT)).await?;
        match answer.filter(|id| !id.is_empty()) {
            Some(id) => return Ok(id.into()),
            None => warn!(brokers = %config.kafka.brokers, "waiting for Kafka"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Takes over what workflows had under their former ids, and leaves out those that live on under another.
pub async fn settle_names(mut config: Config, database: &Database) -> anyhow::Result<Config> {
    for workflow in &config.workflows {
        let Some(former) = &workflow.former_id else { continue };
        let taken = workflow::rename(database, former, &workflow.id).await.context("taking over a renamed workflow")?;
        if let Some(partitions) = taken {
            info!(workflow = %workflow.id, former, partitions, "took over what it had under its former id");
        }
    }
    let ids: Vec<&str> = config.workflows.iter().map(|workflow| &*workflow.id).collect();
    let renamed = workflow::renamed(database, &ids).await.context("reading workflow names")?;
    for (former, now) in &renamed {
        error!(workflow = former, "not run: it was renamed to `{now}`, which has its cursors, events and dead letters");
    }
    config.workflows.retain(|workflow| !renamed.contains_key(&*workflow.id));
    Ok(config)
}
