//! Tests on a real Kafka, a real Postgres and real processes; one file per stage, names are claims.

mod config;
mod credentials;
mod doubt;
mod fences;
mod ingest;
mod lag;
mod postgres;
mod relay;
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
