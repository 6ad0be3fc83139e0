//! Every statement, prepared as the code sends it: the types of its parameters are those that the source next to its
//! `include_str!` names, and its columns those of `sql_columns.txt`. `ONCEBOX_BLESS=1` writes that file anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use tokio_postgres::types::Type;

use crate::support::TestDatabase;
use crate::support::process::migrated;

/// The functions of `outbox::sql` that give a parameter its type.
const TYPES: [(&str, Type); 17] = [
    ("boolean", Type::BOOL),
    ("booleans", Type::BOOL_ARRAY),
    ("bytes", Type::BYTEA),
    ("bytes_list", Type::BYTEA_ARRAY),
    ("date", Type::DATE),
    ("dates", Type::DATE_ARRAY),
    ("float8", Type::FLOAT8),
    ("float8s", Type::FLOAT8_ARRAY),
    ("int4", Type::INT4),
    ("int4s", Type::INT4_ARRAY),
    ("int8", Type::INT8),
    ("int8s", Type::INT8_ARRAY),
    ("json", Type::JSON),
    ("text", Type::TEXT),
    ("texts", Type::TEXT_ARRAY),
    ("timestamptz", Type::TIMESTAMPTZ),
    ("uuid", Type::UUID),
];

/// Scripts and utility statements, which cannot be prepared.
const NOT_PREPARED: [&str; 3] = ["migrations/", "relay/listen.sql", "admin/drop_limits.sql"];

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Where a file that was given a name is sent; a file without one is sent where it stands.
fn sent_at(source: &str, at: usize) -> usize {
    let line = source[..at].rfind('\n').map_or("", |begin| source[begin..at].trim());
    let Some(name) = line.strip_prefix("let ").and_then(|rest| rest.strip_suffix(" =")) else { return at };
    let uses = [format!("text({name})"), format!("text_of({name})"), format!(", {name},")];
    let found = uses.iter().filter_map(|one| source[at..].find(one.as_str())).min();
    at + found.unwrap_or_else(|| panic!("`{line}` is never sent"))
}

/// What the list of parameters after `at` names, in order. `&parameters` stands for the last list before it.
fn parameter_types(source: &str, at: usize) -> Vec<Type> {
    let after = &source[at..];
    let named = ["&parameters", ", parameters)"].iter().filter_map(|one| after.find(one)).min().unwrap_or(usize::MAX);
    let inline = after.find("&[").unwrap_or(usize::MAX);
    let list = if named < inline {
        let begin = source[..at].rfind("let parameters =").expect("a list of parameters before its use");
        &source[begin..at]
    } else {
        &after[inline..]
    };
    let end = list.find(']').expect("the list ends");
    let calls = list[..end].split('(');
    let known = |text: &str| {
        let name: String = text.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let name: String = name.chars().rev().collect();
        TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.clone())
    };
    calls.filter_map(known).collect()
}

/// Which file is sent with which types.
fn sent() -> BTreeMap<String, Vec<Vec<Type>>> {
    let mut found: BTreeMap<String, Vec<Vec<Type>>> = BTreeMap::new();
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "rs") {
        let source = std::fs::read_to_string(&path).expect("a source file");
        let source = source.replace("include_str!(\"../../../sql/", "include_str!(\"../../sql/");
        let include = "include_str!(\"../../sql/";
        for (at, _) in source.match_indices(include) {
            let name = source[at + include.len()..].split('"').next().expect("a file's name");
            if NOT_PREPARED.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            found.entry(name.to_owned()).or_default().push(parameter_types(&source, sent_at(&source, at)));
        }
    }
    found
}

#[tokio::test]
async fn every_statement_has_the_parameters_and_columns_that_the_code_expects() {
    let database = TestDatabase::new().await;
    migrated(&database);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sent = sent();
    let mut columns = String::new();
    for path in files(&root.join("sql"), "sql") {
        let name = path.strip_prefix(root.join("sql")).expect("below sql/").to_str().expect("a plain name").to_owned();
        if NOT_PREPARED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a statement");
        let text = text.replace("oncebox.", &format!("{}.", database.schema));
        let uses = sent.get(&name).unwrap_or_else(|| panic!("nothing sends {name}"));
        for types in uses {
            let prepared = database.client.prepare_typed(&text, types).await;
            let prepared = prepared.unwrap_or_else(|error| panic!("{name} with {types:?}: {error:?}"));
            assert_eq!(prepared.params(), types.as_slice(), "{name}: parameters");
            columns.truncate(columns.find(&format!("{name}:")).unwrap_or(columns.len()));
            let list: Vec<String> = prepared.columns().iter().map(|c| format!("{} {}", c.name(), c.type_())).collect();
            writeln!(columns, "{name}: {}", list.join(", ")).expect("text grows");
        }
    }
    let golden = root.join("tests/it/sql_columns.txt");
    if std::env::var_os("ONCEBOX_BLESS").is_some() {
        std::fs::write(&golden, &columns).expect("the file is written");
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    for (line, wanted) in columns.lines().zip(expected.lines()) {
        assert_eq!(line, wanted, "columns have changed; see the head of this test");
    }
    assert_eq!(columns.lines().count(), expected.lines().count(), "statements came or went; see the head of this test");
}
