//! Where a verb asks: a running process, by its API, or Postgres itself, by a configuration. What comes out is the same.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::Client;
use super::{Failure, load, output};
use crate::admin::answer::UNKNOWN_WORKFLOW;
use crate::operate::{self, Kind, Operator};
use crate::outbox::Database;

#[derive(Debug, Clone, clap::Args)]
pub struct At {
    /// A YAML file, or a directory of *.yaml files: asks Postgres itself.
    #[arg(long, short, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// A running process, such as http://127.0.0.1:9464: asks its API.
    #[arg(long, value_name = "URL", env = "ONCEBOX_URL")]
    pub url: Option<String>,
    /// The bearer token that it knows.
    #[arg(long, value_name = "TOKEN", env = "ONCEBOX_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// Who answers.
pub enum Access {
    Postgres(Box<Operator>),
    Api(Client),
}

impl At {
    /// A configuration that was named wins over an address from the environment.
    pub fn access(&self) -> Result<Access, Failure> {
        match (&self.config, &self.url) {
            (Some(config), _) => {
                let loaded = load(config)?;
                Ok(Access::Postgres(Box::new(Operator {
                    database: Database::new(&loaded.config.postgres)?,
                    kafka: loaded.config.kafka,
                    workflows: loaded.config.workflows,
                    who: output::who(),
                })))
            }
            (None, Some(url)) => Client::new(url, self.token.as_deref()).map(Access::Api),
            (None, None) => Err(Failure::Usage(
                "where? --config PATH asks Postgres itself, --url URL (or ONCEBOX_URL) a running process".to_owned(),
            )),
        }
    }
}

impl Access {
    /// The same, for what takes as long as it takes.
    pub fn patient(self) -> Self {
        match self {
            Self::Postgres(operator) => Self::Postgres(operator),
            Self::Api(client) => Self::Api(client.patient()),
        }
    }

    /// Asks for what is there: either way of asking, one kind of answer.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        here: impl AsyncFnOnce(&Operator) -> Result<T, operate::Error>,
    ) -> Result<T, Failure> {
        match self {
            Self::Postgres(operator) => here(operator).await.map_err(failed),
            Self::Api(client) => client.call("GET", path, None).await,
        }
    }

    /// Has something changed.
    pub async fn change<T: DeserializeOwned>(
        &self,
        (method, path): (&str, &str),
        body: &impl Serialize,
        here: impl AsyncFnOnce(&Operator) -> Result<T, operate::Error>,
    ) -> Result<T, Failure> {
        match self {
            Self::Postgres(operator) => here(operator).await.map_err(failed),
            Self::Api(client) => client.call(method, path, Some(serde_json::to_vec(body)?)).await,
        }
    }
}

/// Answers that say that something else should have been asked for.
pub const ASKED_WRONGLY: [&str; 3] = ["needs_force", "workflow_running", UNKNOWN_WORKFLOW];

/// What an operator did wrong is a matter of usage; the rest is not.
pub fn failed(error: operate::Error) -> Failure {
    match error.kind() {
        Kind::NoWorkflow | Kind::Invalid => Failure::Usage(error.to_string()),
        Kind::Conflict(code) if ASKED_WRONGLY.contains(&code) => Failure::Usage(error.to_string()),
        Kind::NotFound | Kind::TooLarge | Kind::TooMuch | Kind::Full | Kind::Conflict(_) | Kind::Unavailable => {
            Failure::Failed(error.into())
        }
    }
}

/// Names and values as a query, escaped.
pub fn query(path: &str, pairs: &[(&str, Option<String>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        empty if empty.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// One segment of a path, escaped.
pub fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
