//! The direction of the tree: which module may use which. An edge against the picture in lib.rs fails here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A module and those it may use. `run`, `upkeep`, `cli` and `demo` see all that they start or show.
const MAY_USE: [(&str, &[&str]); 15] = [
    ("event", &[]),
    // The schedule's span is a retry rule, and those live in send::backoff alone.
    ("config", &["config", "send::backoff"]),
    ("observe", &["observe", "event"]),
    ("transform", &["transform", "config", "event"]),
    ("send", &["send", "config", "event", "observe"]),
    ("outbox", &["outbox", "config", "event", "observe", "transform", "send::verdict"]),
    ("direct", &["direct", "config", "event", "outbox", "transform"]),
    ("ingest", &["ingest", "config", "direct", "event", "observe", "outbox", "transform"]),
    ("relay", &["relay", "config", "direct", "event", "observe", "outbox", "send"]),
    ("dead_letter", &["dead_letter", "config", "event", "observe", "outbox", "transform"]),
    ("operate", &["operate", "config", "dead_letter", "event", "ingest", "outbox", "transform", "verify"]),
    // Handlers take requests apart; what is decided is decided in operate.
    (
        "admin",
        &[
            "admin",
            "config",
            "dead_letter",
            "event",
            "observe",
            "operate",
            "outbox::Database",
            "outbox::cursor",
            "outbox::submit",
        ],
    ),
    ("verify", &["verify", "config", "event", "ingest", "outbox"]),
    ("explain", &["explain", "config", "event", "send::outcome", "send::verdict", "transform::key_format"]),
    ("preview", &["preview", "config", "event", "observe", "send::outgoing", "transform"]),
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// Paths after `crate::`, with one level of braces opened.
fn uses(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        let path: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
        found.insert(path.trim_end_matches(':').to_owned());
    }
    found
}

#[test]
fn no_module_uses_one_that_comes_after_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (module, allowed) in MAY_USE {
        let folder = source.join(module);
        let list = if folder.is_dir() { files(&folder) } else { vec![source.join(format!("{module}.rs"))] };
        for file in list {
            let text = fs::read_to_string(&file).expect("a source file");
            for path in uses(&text) {
                let is_macro = path.starts_with("failpoint") || path.starts_with("mutant");
                let macro_or_own = is_macro || path.split("::").next() == Some(module);
                let fits = allowed.iter().any(|a| path == *a || path.starts_with(&format!("{a}::")));
                assert!(macro_or_own || fits, "{} uses crate::{path}", file.display());
            }
        }
    }
}

#[test]
fn every_file_says_first_what_it_is() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in files(&source) {
        let text = fs::read_to_string(&file).expect("a source file");
        assert!(text.starts_with("//! "), "{} does not open with what enters, leaves and must hold", file.display());
    }
}

#[test]
fn every_statement_is_explained_and_lists_its_columns() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut count = 0;
    for group in fs::read_dir(folder).expect("a folder").flatten() {
        for file in fs::read_dir(group.path()).expect("a folder").flatten() {
            let text = fs::read_to_string(file.path()).expect("a statement");
            assert!(text.starts_with("-- "), "{} has no header", file.path().display());
            assert!(!text.contains("select *"), "{} does not list its columns", file.path().display());
            count += 1;
        }
    }
    assert!(count > 30);
}
