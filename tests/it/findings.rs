//! `validate --json`: what is wrong with a configuration, for programs.

use serde_json::{Value, json};

use crate::support::files::{Files, PROPOSAL, both, run};

const VALID: &str = "postgres: {url: \"postgresql://u@localhost/db\"}
workflows:
  - id: orders
    source: {topics: [orders]}
    endpoint: {url: \"https://erp.example.com/events\"}
";

fn findings(yaml: &str) -> (Option<i32>, Vec<Value>) {
    let files = Files::new(yaml);
    let output = run(&["validate", "--json"], &files.config());
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", both(&output)));
    (output.status.code(), found)
}

#[test]
fn each_finding_has_its_place_its_level_and_what_is_allowed() {
    let (code, found) = findings(&format!("{VALID}    retrys: 3\n"));
    assert_eq!(code, Some(2), "{found:?}");
    let error = found.iter().find(|one| one["level"] == "error").unwrap_or_else(|| panic!("{found:?}"));
    assert!(error["file"].as_str().is_some_and(|file| file.ends_with("c.yaml")), "{error}");
    assert_eq!((&error["line"], &error["column"]), (&json!(6), &json!(5)), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("unknown key `retrys`") && message.contains("allowed: id, formerId"), "{message}");
    // What cannot be read at all is a finding too.
    let (code, found) = findings("workflows: [\n");
    assert_eq!((code, &found[0]["level"]), (Some(2), &json!("error")), "{found:?}");
}

#[test]
fn warnings_alone_leave_it_valid() {
    let (code, found) = findings(PROPOSAL);
    assert_eq!(code, Some(0), "{found:?}");
    assert!(!found.is_empty() && found.iter().all(|one| one["level"] == "warning"), "{found:?}");
    let (code, found) = findings(&format!("{VALID}    delivery: {{guarantee: at-least-once}}\n"));
    assert_eq!((code, found), (Some(0), Vec::new()), "a list, also when nothing is found");
}
