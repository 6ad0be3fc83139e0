//! The dashboard and the alert rules of helm/ speak of metrics that the code has, and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oncebox::event::WorkflowState;
use oncebox::observe::Metrics;

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
        std::io::Write::write_all(&mut file, format!("skipped: {test}: no promtool\n").as_bytes())
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

/// What an alert does with series of the workflow `orders`, a value a minute: whether it fires after so many minutes.
struct Case {
    alert: &'static str,
    /// Name and labels but the workflow, and values as promtool reads them: `1x9` is ten times 1, `_x9` nine times nothing.
    series: &'static [(&'static str, &'static str)],
    fires: &'static [(u32, bool)],
}

const CASES: [Case; 13] = [
    // Half-open while the one request tries, which hangs; open in between.
    Case {
        alert: "OnceboxCircuitOpen",
        series: &[("oncebox_circuit_state{", "0x4 2 1 1 2 1 1 2 1x20 0x9")],
        fires: &[(4, false), (9, false), (12, true), (30, true), (35, false)],
    },
    Case {
        alert: "OnceboxCircuitOpen",
        series: &[("oncebox_circuit_state{", "2 2 2 0 2 2 2 0 2 2 2 0 2 2 2 0 2 2 2 0")],
        fires: &[(6, false), (19, false)],
    },
    // The process that counted is gone, and the events are held until somebody says a word.
    Case {
        alert: "OnceboxInDoubt",
        series: &[
            ("oncebox_events{state=\"pending\",", "0x5 2x1999 0x20"),
            ("oncebox_in_doubt_total{instance=\"one\",", "0x5 2x600 stale"),
            ("oncebox_in_doubt_total{instance=\"other\",", "_x600 0x1500"),
        ],
        fires: &[(10, false), (30, true), (120, true), (1_500, true), (2_004, true), (2_010, false)],
    },
    // What waits for one before it is nobody's to say a word on.
    Case {
        alert: "OnceboxInDoubt",
        series: &[("oncebox_events{state=\"pending\",", "5x60"), ("oncebox_in_doubt_total{", "0x60")],
        fires: &[(60, false)],
    },
    // A topic that is kept for an hour: nothing to read, then some records that are read at once.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "3600x30 3599x30"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0x30 5x30"),
            ("oncebox_delivery_lag_seconds{", "0x30 1x30"),
        ],
        fires: &[(30, false), (60, false)],
    },
    // The same topic, and nothing is read any more.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "3600-60x60"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0+9x60"),
            ("oncebox_delivery_lag_seconds{", "0+60x60"),
        ],
        fires: &[(20, false), (40, true), (60, true)],
    },
    // A week of records, all but the last hours of it waiting; and read in time.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "20000x30 604800x9"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0x39"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"1\",", "900000x30 0x9"),
            ("oncebox_delivery_lag_seconds{", "584800x30 0x9"),
        ],
        fires: &[(4, false), (10, true), (35, false)],
    },
    // Late, and Kafka keeps the rest for days.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "90000x30"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "900000x30"),
            ("oncebox_delivery_lag_seconds{", "514800x30"),
        ],
        fires: &[(30, false)],
    },
    // All that is old waits for its time.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"active\",", "3x90"),
            ("oncebox_events{state=\"retryable\",", "0x90"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        fires: &[(90, false)],
    },
    // One of the others is tried again and again.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"retryable\",", "0 0 0 0 1 0 0 0 0 0 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 1 0 0"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        fires: &[(15, false), (25, true)],
    },
    // One of the others is due, and nobody sends it.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "0+60x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"retryable\",", "0x90"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        fires: &[(15, false), (25, true)],
    },
    // None is scheduled.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "0x90"),
            ("oncebox_events{state=\"retryable\",", "1x90"),
        ],
        fires: &[(15, false), (25, true)],
    },
    // With more than was counted so far there are no counts.
    Case {
        alert: "OnceboxUndelivered",
        series: &[("oncebox_undelivered_age_seconds{", "0+60x90"), ("oncebox_delivery_lag_seconds{", "2x90")],
        fires: &[(25, true)],
    },
];

/// The cases as `promtool test rules` reads them.
fn rule_tests() -> String {
    let mut text = format!("rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n", file("alerts.yaml").display());
    for Case { alert, series, fires } in &CASES {
        text.push_str("  - interval: 1m\n    input_series:\n");
        for (name, values) in *series {
            text.push_str(&format!("      - {{series: '{name}workflow=\"orders\"}}', values: '{values}'}}\n"));
        }
        text.push_str("    promql_expr_test:\n");
        for (minutes, is_firing) in *fires {
            let expression = format!("count by (workflow) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
            let samples = if *is_firing { "[{labels: '{workflow=\"orders\"}', value: 1}]" } else { "[]" };
            text.push_str(&format!(
                "      - {{expr: '{expression}', eval_time: {minutes}m, exp_samples: {samples}}}\n"
            ));
        }
    }
    text
}

#[test]
fn alerts_fire_as_long_as_there_is_reason_and_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tests.yaml");
    std::fs::write(&path, rule_tests()).expect("written");
    match promtool(&["test", "rules", path.to_str().expect("a plain path")], None) {
        Some((is_fine, said)) => assert!(is_fine, "{said}"),
        None => skip("alerts_fire_as_long_as_there_is_reason_and_no_longer"),
    }
}
