//! `oncebox run`: everything, until SIGTERM or SIGINT.

use tokio::signal::unix::{SignalKind, signal};

use super::{ConfigPath, Failure, block_on, load};
use crate::config::Config;
use crate::config::problem::{Problem, each_once};

pub fn run(path: &ConfigPath) -> Result<(), Failure> {
    let loaded = load(&path.config)?;
    for warning in each_once(&loaded.warnings) {
        tracing::warn!("{warning}");
    }
    let config = without_unsupported(loaded.config)?;
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let stop = async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => return,
                    _ = interrupt.recv() => return,
                    _ = hangup.recv() => tracing::warn!("SIGHUP: reloading is not supported yet; a restart loses nothing"),
                }
            }
        };
        crate::run::run(config, stop).await
    })?;
    Ok(())
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
