//! Configurations for unit tests: a few lines of YAML under a source and an endpoint.

use super::Loaded;

pub const EXACTLY_ONCE: &str = "    delivery: {guarantee: exactly-once}\n";

/// One workflow, `orders`, with these lines.
pub fn loaded(more: &str) -> Loaded {
    let yaml = format!(
        "postgres: {{url: \"postgresql://u@localhost/db\"}}
defaults:
  source: {{topics: [orders]}}
  endpoint: {{url: \"https://erp.example.com/events\"}}
workflows:
  - id: orders
{more}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, yaml).expect("written");
    super::load(&path).unwrap_or_else(|problems| panic!("{problems}"))
}
