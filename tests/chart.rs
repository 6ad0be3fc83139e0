//! The chart in helm/oncebox, rendered for six sets of values, as a part of another chart, and for the values that stand in the pages: what
//! helm, Kubernetes' own schemas, its snapshots and `oncebox validate` say of it. dev/helm.sh does the looking and fetches what it needs;
//! what cannot be had counts as skipped.

use std::path::Path;
use std::process::Command;

/// Answers false where what it needs cannot be had.
fn look(arguments: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("dev/helm.sh")).args(arguments).output().expect("the script runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    match output.status.code() {
        Some(0) => true,
        Some(3) => {
            skip(said.lines().last().unwrap_or_default());
            false
        }
        _ => panic!("dev/helm.sh {arguments:?}:\n{said}"),
    }
}

fn skip(why: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let _ =
        file.and_then(|mut file| std::io::Write::write_all(&mut file, format!("skipped: chart: {why}\n").as_bytes()));
}

/// One after the other: they share the folder that they render into.
#[test]
fn the_chart_renders_to_what_kubernetes_takes_and_oncebox_runs_with() {
    let looks: [&[&str]; 5] =
        [&["lint"], &["golden", "--check"], &["check"], &["pages"], &["validate", env!("CARGO_BIN_EXE_oncebox")]];
    // What one cannot have the next cannot have either: that is one test skipped.
    let _ = looks.into_iter().all(look);
}
