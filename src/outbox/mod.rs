//! Where ingest and relay meet: cursors, stored events, who delivers them, what became of them. All SQL of the data path
//! is called from here, one function per file under sql/.
//!
//! What must hold: rows and cursor change in one statement; whoever writes is fenced by owner and epoch on the row it
//! locks; only `done` makes an event terminal, and only once.

pub mod append;
pub mod attempt;
pub mod audit;
pub mod batch;
pub(crate) mod block;
pub mod cancel;
pub mod claim;
mod columns;
pub mod cursor;
pub mod database;
pub mod delivery;
pub mod direct;
pub mod failure;
pub mod fleet;
pub mod gap;
pub mod gauges;
pub mod handoff;
pub mod lane;
pub mod left;
pub mod load;
pub mod migrate;
pub mod moves;
pub mod notify;
pub mod offsets;
pub mod pace;
pub mod park;
pub mod partitions;
pub mod promise;
pub mod resolve;
pub mod rewind;
pub mod seen;
pub mod settle;
pub mod spill;
pub mod sql;
pub mod submit;
pub mod unique;
pub mod workflow;
pub mod writer;

pub use database::{Database, Purpose};

use tokio_postgres::error::SqlState;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the Postgres settings cannot be used")]
    Settings(#[source] tokio_postgres::Error),
    #[error("TLS to Postgres cannot be set up")]
    Tls(#[source] openssl::error::ErrorStack),
    #[error("no connection to Postgres")]
    Connect(#[source] tokio_postgres::Error),
    #[error("the connection pool is closed")]
    Pool,
    #[error("Postgres did not answer in time")]
    TooSlow,
    #[error("other questions that read much are being answered")]
    Busy,
    #[error("the workflow lives on under another name")]
    NoCursor,
    #[error("a transaction failed")]
    Transaction(#[source] tokio_postgres::Error),
    #[error("{name}")]
    Statement {
        /// The statement's own first line, which says what it does.
        name: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
}

impl Error {
    fn statement(file: &'static str, source: tokio_postgres::Error) -> Self {
        let name = file.lines().next().unwrap_or_default().trim_start_matches("-- ");
        Self::Statement { name, source }
    }

    pub fn sql_state(&self) -> Option<&SqlState> {
        match self {
            Self::Connect(source) | Self::Transaction(source) | Self::Statement { source, .. } => source.code(),
            Self::Settings(_) | Self::Tls(_) | Self::Pool | Self::TooSlow | Self::Busy | Self::NoCursor => None,
        }
    }

    /// Whether waiting can help. Wrong passwords and missing tables need a person.
    pub fn may_pass(&self) -> bool {
        let Some(state) = self.sql_state() else { return !matches!(self, Self::Settings(_) | Self::Tls(_)) };
        let class = &state.code()[..2];
        // Connection trouble, resources, operator intervention, serialization, locks.
        matches!(class, "08" | "53" | "57" | "40" | "55" | "25")
    }

    /// Whether a row is there already that was to be new.
    pub fn is_conflict(&self) -> bool {
        self.sql_state() == Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION)
    }

    /// Whether Postgres refuses something about a row, so that others may well be written: a value, a row that must not be, a broken page. A
    /// table or a right that is missing is missing for all.
    pub fn is_about_rows(&self) -> bool {
        let Some(state) = self.sql_state() else { return false };
        // Cardinality, data, integrity, program limits, a function's own errors, corruption.
        matches!(&state.code()[..2], "21" | "22" | "23" | "54" | "P0" | "XX")
    }

    /// Whether Postgres refuses a value, so that the same statement fails whenever it is tried.
    pub fn is_about_data(&self) -> bool {
        self.sql_state().is_some_and(|state| state.code().starts_with("22"))
    }
}
