//! What is said at the end: a table, a file with every figure, two plots, and one line of JSON.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::growth::Growth;
use super::latency::Latency;
use super::meter::{Window, median};
use super::peers::Peers;
use super::plot;
use super::scale::Scale;
use super::throughput::{Throughput, ratio};
use super::unique::Unique;

#[derive(Debug, Default, Serialize)]
pub struct Results {
    pub throughput: Throughput,
    pub latency: Vec<Latency>,
    pub scale: Vec<Scale>,
    pub growth: Growth,
    pub unique: Unique,
    pub peers: Peers,
    pub peak_rss_mib: f64,
}

/// What was not measured is no figure.
fn shown(value: f64) -> f64 {
    if value > 0.0 { value } else { f64::NAN }
}

/// A figure, what it must reach, and whether more is better.
type Line = (&'static str, f64, f64, bool);

impl Results {
    fn latency(&self, kind: &str, rate: u64, value: fn(&Latency) -> f64) -> f64 {
        self.latency.iter().find(|one| one.kind == kind && one.rate == rate).map_or(f64::NAN, value)
    }

    fn lines(&self) -> Vec<Line> {
        let t = &self.throughput;
        let rate: fn(&Window) -> f64 = |w| w.per_second;
        let gap = self.latency("outbox", 5_000, |l| l.p50_ms) - self.latency("direct", 5_000, |l| l.p50_ms);
        let selects: f64 = t.of("outbox", |w| w.payload_selects as f64).iter().sum();
        vec![
            ("outbox_over_direct", t.ratio("outbox", "direct", rate), 0.75, true),
            ("direct_over_bare", t.ratio("direct", "bare", rate), 0.45, true),
            ("relay_cpu_over_bare", t.ratio("direct", "bare", |w| w.subject_cpu_us), 2.0, false),
            ("postgres_cpu_over_insert", ratio(&t.of("outbox", |w| w.postgres_cpu_us), &t.insert_us), 2.0, false),
            (
                "wal_over_payload",
                ratio(&t.of("outbox", |w| w.wal_bytes), &t.of("outbox", |w| w.body_bytes)),
                2.0,
                false,
            ),
            ("statements_per_1000", median(&t.of("outbox", |w| w.statements_per_1000)), 5.0, false),
            ("payload_selects", selects, 0.0, false),
            ("history_ratio", self.growth.history, 0.80, true),
            ("backlog_ratio", self.growth.backlog, 0.75, true),
            ("snapshot_ratio", self.growth.snapshot, 0.75, true),
            ("p50_gap_ms", gap, 2.0, false),
            ("outbox_p99_ms", self.latency("outbox", 5_000, |l| l.p99_ms), 25.0, false),
            ("commit_to_write_p99_ms", self.latency("outbox", 1_000, |l| l.queue_p99_ms), 2.0, false),
            ("reshape_over_passthrough", t.ratio("outbox reshape", "outbox", rate), 0.75, true),
            ("peak_rss_mib", self.peak_rss_mib, 512.0, false),
            ("peer_ratio", self.peers.ratio(), 1.5, true),
            ("deduplication_over_without", shown(self.unique.deduplication_over_without), 1.5, false),
            ("deduplication_with_keys", shown(self.unique.deduplication_with_keys), 0.75, true),
            ("unique_with_keys", shown(self.unique.unique_with_keys), 0.75, true),
            ("scrape_ms", shown(self.growth.scrape_ms), 50.0, false),
        ]
    }

    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        println!("\n{:<26} {:>9}   must reach", "", "measured");
        let mut all = serde_json::Map::new();
        for (name, value, wanted, more) in self.lines() {
            let is_known = value.is_finite() && !(value == 0.0 && more);
            let holds = if more { value >= wanted } else { value <= wanted };
            let (bound, verdict) = (if more { "at least" } else { "at most" }, if holds { "" } else { "  MISSED" });
            if is_known {
                println!("{name:<26} {value:>9.2}   {bound} {wanted}{verdict}");
            } else {
                println!("{name:<26} {:>9}   {bound} {wanted}", "not run");
            }
            all.insert(name.to_owned(), if is_known { json!((value * 1000.0).round() / 1000.0) } else { Value::Null });
        }
        std::fs::write(
            folder.join("results.json"),
            serde_json::to_vec_pretty(&json!({"figures": all, "measured": self}))?,
        )?;
        std::fs::write(folder.join("throughput.svg"), plot::throughput(&self.throughput))?;
        std::fs::write(folder.join("latency.svg"), plot::latency(&self.latency))?;
        println!("\nbench: {}", Value::Object(all));
        Ok(())
    }
}
