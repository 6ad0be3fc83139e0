//! Logs: to standard error, for people or as JSON lines. `ONCEBOX_LOG` filters, such as `oncebox=debug`.
//!
//! Written by a thread of its own: a terminal or a pipe that takes nothing holds up no delivery. What does not fit into its queue of
//! 128,000 lines is dropped.
//!
//! Messages read alone and carry the same fields everywhere: workflow, event, attempt. Never bodies, headers, secrets.

use std::io::IsTerminal;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// What was logged is written when this is dropped, at the latest.
pub fn start(format: LogFormat) -> WorkerGuard {
    let (writer, flushed) = tracing_appender::non_blocking(std::io::stderr());
    let filter = EnvFilter::try_from_env("ONCEBOX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    flushed
}
