//! Tests on a real Kafka, a real Postgres and real processes; one file per stage, names are claims.

mod against;
mod at_most_once;
mod config;
mod credentials;
mod deduplication;
mod doubt;
mod explain;
mod fences;
mod in_doubt;
mod ingest;
mod lag;
mod postgres;
mod preview;
mod receivers;
mod relay;
mod rename;
mod seams;
mod secrets;
mod signing;
mod sql;
mod standing;
mod start;
mod support;
mod tls;
mod tokens;
mod walk;
