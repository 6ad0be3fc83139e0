//! Configuration files of a test's own, and verbs run on them to their end.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::process::command;

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
