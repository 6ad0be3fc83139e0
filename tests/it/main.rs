//! Tests on a real Kafka, a real Postgres and real processes; one file per stage, names are claims.

mod against;
mod config;
mod doubt;
mod explain;
mod fences;
mod ingest;
mod lag;
mod postgres;
mod preview;
mod relay;
mod seams;
mod sql;
mod standing;
mod start;
mod support;
mod walk;
