//! `oncebox run`: everything, until SIGTERM or SIGINT. SIGHUP reads the configuration again.

use std::path::Path;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::{ConfigPath, Failure, block_on, load};
use crate::config::Config;
use crate::config::problem::{Problem, each_once};
use crate::event::Roles;
use crate::reload::{Loader, Reloads};

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    path: ConfigPath,
    /// What this process does, where reading, sending and the API are scaled apart. All, unless some are named.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ingest", "relay", "admin"])]
    roles: Vec<Role>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Read records and store what they make.
    Ingest,
    /// Send what is stored; read and send where the outbox is not used.
    Relay,
    /// Answer the API, show the dashboard, replay dead letters.
    Admin,
}

impl Run {
    fn roles(&self) -> Roles {
        let has = |role| self.roles.contains(&role);
        Roles { ingest: has(Role::Ingest), relay: has(Role::Relay), admin: has(Role::Admin) }
    }
}

pub fn run(flags: &Run) -> Result<(), Failure> {
    let (path, roles) = (&flags.path.config, flags.roles());
    let config = checked(path)?;
    let again = path.clone();
    let load: Loader = Box::new(move || checked(&again).map_err(|failure| failure.words()));
    block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (stop, stopped) = watch::channel(false);
        let (hangups, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => drop(stop.send(true)),
                    _ = interrupt.recv() => drop(stop.send(true)),
                    _ = hangup.recv() => drop(hangups.send(())),
                }
            }
        });
        crate::run::run(config, roles, Reloads::new(path.clone(), load, heard), stopped).await
    })?;
    Ok(())
}

/// A configuration of which everything can be run.
fn checked(path: &Path) -> Result<Config, Failure> {
    let loaded = load(path)?;
    for warning in each_once(&loaded.warnings) {
        tracing::warn!("{warning}");
    }
    without_unsupported(loaded.config)
}

/// A key whose behaviour this build lacks is never ignored: its workflow does not run, and nothing does when the key
/// stands outside workflows or no workflow is left.
fn without_unsupported(mut config: Config) -> Result<Config, Failure> {
    let lines = |problems: &[Problem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    if !config.unsupported.is_empty() {
        return Err(Failure::Usage(format!(
            "refused, because this build cannot do it:\n{}",
            lines(&config.unsupported)
        )));
    }
    let (able, unable): (Vec<_>, Vec<_>) = config.workflows.into_iter().partition(|w| w.unsupported.is_empty());
    let reasons: Vec<String> = unable.iter().map(|workflow| lines(&workflow.unsupported)).collect();
    if able.is_empty() && !unable.is_empty() {
        return Err(Failure::Usage(format!("refused, because this build cannot do it:\n{}", reasons.join("\n"))));
    }
    for (workflow, reason) in unable.iter().zip(&reasons) {
        tracing::error!(workflow = %workflow.id, "not run, because this build cannot do it: {reason}");
    }
    config.workflows = able;
    Ok(config)
}
