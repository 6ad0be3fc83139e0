//! The dashboard and the alert rules of helm/ speak of metrics that the code has, and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oncebox::event::WorkflowState;
use oncebox::observe::Metrics;

#[path = "alerts/cases.rs"]
mod cases;

use cases::{CASES, Case, ROUTED};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("helm/oncebox/files").join(name)
}

/// The metrics of a process that runs one workflow, each with a value.
fn all_metrics() -> Metrics {
    let metrics = Metrics::new();
    let (id, labels): (Arc<str>, BTreeMap<String, String>) = ("orders".into(), BTreeMap::new());
    metrics.register(&[(&id, "exactly-once", &labels)]);
    // Those that come from Postgres and Kafka are there once they were read.
    for gauge in [&metrics.delivery_lag, &metrics.undelivered_age, &metrics.retention_headroom] {
        gauge.with_label_values(&["orders"]).set(1.0);
    }
    metrics.kafka_lag.with_label_values(&["orders", "topic", "0"]).set(1);
    metrics.events.with_label_values(&["orders", "pending"]).set(1);
    metrics.blocked_keys.with_label_values(&["orders"]).set(1);
    metrics.oldest_snapshot.with_label_values::<&str>(&[]).set(1.0);
    metrics.partitions_ahead_days.with_label_values::<&str>(&[]).set(7.0);
    metrics.set_state("orders", WorkflowState::Running);
    metrics
}

/// Every series that a process shows, as names; histograms under all of theirs.
fn shown() -> BTreeSet<String> {
    let text = all_metrics().text();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .map(str::to_owned)
        .collect()
}

/// Every name of ours that a text speaks of.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("oncebox_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_speak_only_of_metrics_that_there_are() {
    let shown = shown();
    assert!(shown.len() > 30, "{shown:?}");
    for name in ["dashboard.json", "alerts.yaml"] {
        let text = std::fs::read_to_string(file(name)).expect("a file");
        let named = named(&text);
        assert!(named.len() > 10, "{name}: {named:?}");
        let unknown: Vec<&String> = named.difference(&shown).collect();
        assert!(unknown.is_empty(), "{name} speaks of {unknown:?}");
    }
}

#[test]
fn every_metric_is_on_the_dashboard_or_in_an_alert() {
    let text: String =
        ["dashboard.json", "alerts.yaml"].map(|name| std::fs::read_to_string(file(name)).expect("a file")).concat();
    let named = named(&text);
    let family = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        base.filter(|base| shown().contains(&format!("{base}_bucket"))).unwrap_or(name).to_owned()
    };
    let families: BTreeSet<String> = shown().iter().map(|name| family(name)).collect();
    let known: BTreeSet<String> = named.iter().map(|name| family(name)).collect();
    let forgotten: Vec<&String> = families.difference(&known).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn the_dashboard_is_one_that_grafana_can_read() {
    let text = std::fs::read_to_string(file("dashboard.json")).expect("a file");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<i64> = panels.iter().filter_map(|panel| panel["id"].as_i64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    for panel in panels {
        assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{}", panel["title"]);
    }
}

/// promtool, from Debian's package `prometheus`, where it is.
fn promtool(arguments: &[&str], input: Option<&str>) -> Option<(bool, String)> {
    use std::io::Write as _;
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    stdin.write_all(input.unwrap_or_default().as_bytes()).ok()?;
    drop(stdin);
    let output = child.wait_with_output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

fn skip(test: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| {
        std::io::Write::write_all(&mut file, format!("skipped: {test}: no promtool, or no helm\n").as_bytes())
    });
}

#[test]
fn prometheus_itself_finds_no_fault_with_the_rules() {
    let path = file("alerts.yaml");
    match promtool(&["check", "rules", path.to_str().expect("a plain path")], None) {
        Some((is_fine, said)) => assert!(is_fine, "{said}"),
        None => skip("prometheus_itself_finds_no_fault_with_the_rules"),
    }
}

#[test]
fn prometheus_itself_finds_no_fault_with_the_metrics() {
    match promtool(&["check", "metrics"], Some(&all_metrics().text())) {
        // The one name that it would have otherwise is promised as it is.
        Some((_, said)) => {
            let promised = "oncebox_partitions_ahead_days use base unit \"seconds\" instead of \"days\"";
            let others: Vec<&str> = said.lines().filter(|line| !line.is_empty() && *line != promised).collect();
            assert!(others.is_empty(), "{others:?}");
        }
        None => skip("prometheus_itself_finds_no_fault_with_the_metrics"),
    }
}

/// Cases as `promtool test rules` reads them.
fn rule_tests(rules: &Path, cases: &[Case]) -> String {
    let mut text = format!("rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n", rules.display());
    for Case { alert, series, about, fires } in cases {
        text.push_str("  - interval: 1m\n    input_series:\n");
        for (name, values) in *series {
            let rest = if name.ends_with('{') || name.ends_with(',') { "workflow=\"orders\"}" } else { "" };
            text.push_str(&format!("      - {{series: '{name}{rest}', values: '{values}'}}\n"));
        }
        text.push_str("    promql_expr_test:\n");
        for (minutes, is_firing) in *fires {
            let firing = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
            let expression = format!("count by (namespace, team, workflow) ({firing})");
            let samples = if *is_firing { format!("[{{labels: '{about}', value: 1}}]") } else { "[]".to_owned() };
            text.push_str(&format!(
                "      - {{expr: '{expression}', eval_time: {minutes}m, exp_samples: {samples}}}\n"
            ));
        }
    }
    text
}

/// Answers false where there is no promtool.
fn fire_as_told(rules: &Path, cases: &[Case]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tests.yaml");
    std::fs::write(&path, rule_tests(rules, cases)).expect("written");
    let ran = promtool(&["test", "rules", path.to_str().expect("a plain path")], None);
    ran.is_some_and(|(is_fine, said)| {
        assert!(is_fine, "{said}");
        true
    })
}

#[test]
fn alerts_fire_as_long_as_there_is_reason_and_no_longer() {
    if !fire_as_told(&file("alerts.yaml"), &CASES) {
        skip("alerts_fire_as_long_as_there_is_reason_and_no_longer");
    }
}

/// The same, and by whom they are to be looked at.
#[test]
fn alerts_with_labels_to_route_by_fire_as_those_without() {
    let test = "alerts_with_labels_to_route_by_fire_as_those_without";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dev/helm.sh");
    let rendered = Command::new(script).args(["alerts", "team"]).output().expect("the script runs");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("alerts.yaml");
    std::fs::write(&path, &rendered.stdout).expect("written");
    match rendered.status.code() {
        Some(3) => return skip(test),
        code => assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&rendered.stderr)),
    }
    assert!(String::from_utf8_lossy(&rendered.stdout).contains("group_left (team)"));
    if !(fire_as_told(&path, &CASES) && fire_as_told(&path, &ROUTED)) {
        skip(test);
    }
}
