//! Tests on a real Kafka, a real Postgres and real processes; one file per stage, names are claims.

mod support;
mod walk;
