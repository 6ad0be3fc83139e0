//! `oncebox run`: everything, until SIGTERM or SIGINT.

use tokio::signal::unix::{SignalKind, signal};

use super::{ConfigPath, Failure, block_on, load};
use crate::config::Config;

pub fn run(path: &ConfigPath) -> Result<(), Failure> {
    let loaded = load(&path.config)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    refuse_unsupported(&loaded.config)?;
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        crate::run::run(loaded.config, stop).await
    })?;
    Ok(())
}

/// A key whose behaviour this build lacks is never ignored.
fn refuse_unsupported(config: &Config) -> Result<(), Failure> {
    let workflows = config.workflows.iter().flat_map(|workflow| &workflow.unsupported);
    let lines: Vec<String> = config.unsupported.iter().chain(workflows).map(ToString::to_string).collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!("refused, because this build cannot do it:\n{}", lines.join("\n"))))
}
