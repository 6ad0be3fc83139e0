//! What the pages show as printed is what is printed: each line of such a block, in its order; `…` stands for what is left out. Those that
//! need servers are compared where they are run, or piece by piece with the code that prints them.

use std::path::Path;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_oncebox");

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The block of a page in this language whose text begins so.
fn block(page: &str, language: &str, beginning: &str) -> String {
    let text = file(page);
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let found = blocks.filter(|(of, _)| *of == language).map(|(_, text)| text).find(|text| text.starts_with(beginning));
    found.unwrap_or_else(|| panic!("{page} has no {language} that begins with `{beginning}`")).to_owned()
}

/// Runs a verb beside files of these names, and answers what it printed.
fn printed(arguments: &[&str], files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let output = Command::new(BINARY)
        .args(arguments)
        .current_dir(folder.path())
        .env("DATABASE_URL", "postgresql://localhost/x")
        .env("KAFKA_BROKERS", "localhost:9092")
        .output()
        .expect("oncebox starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.stdout.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Each line of the block is printed, in its order.
fn compare(shown: &str, printed: &str) {
    let mut rest = printed.lines();
    for line in shown.lines().filter(|line| !["", "…"].contains(&line.trim())) {
        assert!(rest.any(|one| one.trim_end() == line.trim_end()), "not printed, or not there: `{line}` in\n{printed}");
    }
}

fn workflow() -> String {
    block("README.md", "yaml", "workflows:\n  - id: orders-to-erp")
}

#[test]
fn explain_says_what_the_page_shows() {
    let shown = block("docs/workflows.md", "text", "orders-to-erp: exactly-once");
    compare(&shown, &printed(&["explain", "orders-to-erp", "--config", "c.yaml"], &[("c.yaml", workflow().as_str())]));
}

#[test]
fn preview_makes_the_request_that_the_page_shows() {
    let (config, record) = (workflow(), block("docs/workflows.md", "json", "{\"topic\""));
    let shown = block("docs/workflows.md", "text", "record ");
    let files = [("c.yaml", config.as_str()), ("e.json", record.as_str())];
    let arguments = ["preview", "orders-to-erp", "--event", "e.json", "--config", "c.yaml"];
    compare(&shown, &printed(&arguments, &files));
}

#[test]
fn test_finds_the_mistake_that_the_page_shows() {
    let config = block("docs/workflows.md", "yaml", "workflows:\n  - id: order-lines");
    let shown = block("docs/workflows.md", "text", "order-lines");
    compare(&shown, &printed(&["test", "--config", "lines.yaml"], &[("lines.yaml", config.as_str())]));
}

/// It needs a database that knows another configuration: tests/it/against.rs.
#[test]
fn what_against_says_in_the_page_is_what_the_code_says() {
    let code: String = ["weigh.rs", "rules.rs"].map(|name| file(&format!("src/explain/changes/{name}"))).concat();
    let shown = block("docs/workflows.md", "text", "orders-to-erp\n  DOWNGRADE");
    let reasons: Vec<&str> = shown.lines().filter_map(|line| line.split_once("; ")).map(|(_, reason)| reason).collect();
    assert!(reasons.len() >= 2, "{shown}");
    for reason in &reasons[..2] {
        assert!(code.contains(reason), "{reason}");
    }
    assert!(file("src/cli/validate.rs").contains(reasons[2]), "{reasons:?}");
}

/// It takes half a minute.
#[test]
fn what_the_demo_counts_in_the_page_is_what_it_counts() {
    let code = file("src/demo/tally.rs");
    let shown = block("README.md", "text", "  orders produced to Kafka");
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(lines.len() >= 10, "{shown}");
    for line in lines {
        let (name, figure) = line[2..].trim_end().rsplit_once(' ').expect("a name and a figure");
        assert!(code.contains(&format!("(\"{}\"", name.trim_end())), "{name}");
        assert!(figure.chars().all(|c| c.is_ascii_digit()), "{line}");
    }
}

/// What it prints of a workflow is run by tests/it/snippets.rs.
#[test]
fn status_has_the_columns_that_the_page_shows() {
    let shown = block("README.md", "text", "$ oncebox status");
    let columns = shown.lines().nth(1).expect("a header");
    let code = file("src/cli/status.rs");
    for column in columns.split("  ").map(str::trim).filter(|column| !column.is_empty()) {
        assert!(code.contains(&format!("\"{column}\"")), "{column}");
    }
}
