//! Logs: to standard error, for people or as JSON lines. `ONCEBOX_LOG` filters, such as `oncebox=debug`.
//!
//! Messages read alone and carry the same fields everywhere: workflow, event, attempt. Never bodies, headers, secrets.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env("ONCEBOX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
