//! Configuration files of a test's own, and verbs run on them to their end.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::process::command;

/// The three workflows and the default of the proposal, with source and endpoint added.
pub const PROPOSAL: &str = r#"
postgres: {url: "postgresql://u@localhost/db"}
defaults:
  source: {topics: [sales.public.orders], format: debezium}
  endpoint: {url: "https://erp.example.com/events"}
workflows:
  - id: sales-orders-to-erp
    delivery:
      guarantee: exactly-once
      mechanism: transactional-outbox
      deduplication:
        keyFields: [database, table, primaryKey]
        ttl: 30d
  - id: product-sync-to-search
    delivery:
      guarantee: at-least-once
      mechanism: kafka-offsets
      retries:
        maxAttempts: 5
        backoffMs: [1000, 2000, 5000, 10000, 30000]
  - id: audit-logs-to-warehouse
    delivery:
      guarantee: idempotent-keys
      mechanism: generated-keys
      clientGuidance: true
  - id: the-default
    delivery:
      guarantee: idempotent-keys
      mechanism: generated-keys
      idempotencyKey:
        format: "{database}:{table}:{primaryKey}:{changeVersion}"
        hashAlgorithm: SHA256
        includedInPayload: true
      retries:
        enabled: true
        maxAttempts: 5
        backoffMs: [1000, 2000, 5000, 10000, 30000]
        giveUpAfter: 1h
      documentation:
        deduplicationRequired: true
        sdkAvailable: true
        exampleCode: "https://docs.platform/client-dedup-examples"
"#;

/// A configuration, and a record beside it.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("c.yaml"), yaml).unwrap();
        Self(folder)
    }

    pub fn config(&self) -> PathBuf {
        self.0.path().join("c.yaml")
    }

    pub fn event(&self, event: &str) -> PathBuf {
        let path = self.0.path().join("event.json");
        std::fs::write(&path, event).unwrap();
        path
    }
}

pub fn run(arguments: &[&str], config: &Path) -> Output {
    command().args(arguments).arg("--config").arg(config).output().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn both(output: &Output) -> String {
    format!("{}{}", out(output), String::from_utf8_lossy(&output.stderr))
}
