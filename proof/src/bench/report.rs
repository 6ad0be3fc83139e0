//! What is said at the end: a table, a file with every figure, two plots, and one line of JSON. What was not measured is no figure.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};

use super::flags::Flags;
use super::growth::Growth;
use super::latency::{Latency, Round};
use super::meter::{Window, median, ratio_of};
use super::peers::Peers;
use super::plot;
use super::scale::Scale;
use super::stand::Stand;
use super::throughput::{Throughput, ratio};
use super::unique::Unique;

#[derive(Debug, Default, Serialize)]
pub struct Results {
    pub throughput: Throughput,
    pub latency: Vec<Latency>,
    pub scale: Vec<Scale>,
    pub growth: Option<Growth>,
    pub unique: Option<Unique>,
    pub peers: Peers,
    pub peak_rss_mib: Option<f64>,
}

/// Of which build, where, when and how.
#[derive(Debug, Serialize)]
pub struct About {
    /// Of the folder that it was started in; with `-dirty` where something was changed since.
    commit: Option<String>,
    date: String,
    cores: Option<usize>,
    postgres: String,
    flags: Flags,
}

impl About {
    pub async fn of(stand: &Stand, flags: &Flags) -> anyhow::Result<Self> {
        let told = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]).output();
        let told = told.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let asked = "select to_char(now() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), current_setting('server_version')";
        let row = stand.client.query_one(asked, &[]).await?;
        Ok(Self {
            commit: told.map(|text| String::from_utf8_lossy(&text).trim().to_owned()).filter(|text| !text.is_empty()),
            date: row.get(0),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            postgres: row.get(1),
            flags: flags.clone(),
        })
    }
}

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// It is only told.
    Any,
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Any => true,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
            Self::Any => "-".to_owned(),
        }
    }
}

/// A figure, and what it must be.
type Line = (&'static str, Option<f64>, Limit);

/// The median of no rounds is no number.
fn known(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Results {
    /// The median over the rounds, at one rate.
    fn latency(&self, kind: &str, rate: u64, value: fn(&Latency) -> f64) -> Option<f64> {
        self.latency.iter().find(|one| one.kind == kind && one.rate == rate).and_then(|one| known(value(one)))
    }

    /// The median of the rounds' own gaps.
    fn gap(&self, rate: u64, value: fn(&Round) -> f64) -> Option<f64> {
        let rounds = |kind: &str| self.latency.iter().find(|one| one.kind == kind && one.rate == rate);
        let (outbox, direct) = (rounds("outbox")?, rounds("direct")?);
        let gaps = outbox.rounds.iter().zip(&direct.rounds).map(|(outbox, direct)| value(outbox) - value(direct));
        known(median(&gaps.collect::<Vec<_>>()))
    }

    /// In the order of the issue that set the limits; what came later is behind.
    fn lines(&self) -> Vec<Line> {
        use Limit::{Any, AtLeast, AtMost};
        let t = &self.throughput;
        let rate: fn(&Window) -> f64 = |w| w.per_second;
        let outbox = |value: fn(&Window) -> f64| t.of("outbox", value);
        let postgres = outbox(|w| w.postgres_cpu_us);
        let selects = outbox(|w| w.payload_selects as f64);
        let growth = |value: fn(&Growth) -> f64| self.growth.as_ref().and_then(|growth| known(value(growth)));
        let unique = |value: fn(&Unique) -> f64| self.unique.as_ref().and_then(|unique| known(value(unique)));
        vec![
            ("outbox_over_direct", known(t.ratio("outbox", "direct", rate)), AtLeast(0.75)),
            ("direct_over_bare", known(t.ratio("direct", "bare", rate)), AtLeast(0.45)),
            ("relay_cpu_over_bare", known(t.ratio("direct", "bare", |w| w.subject_cpu_us)), AtMost(2.0)),
            ("postgres_cpu_over_insert", known(ratio(&postgres, &t.insert_us)), AtMost(2.0)),
            ("wal_over_payload", known(ratio(&outbox(|w| w.wal_bytes), &outbox(|w| w.body_bytes))), AtMost(2.0)),
            ("statements_per_1000", known(median(&outbox(|w| w.statements_per_1000))), AtMost(5.0)),
            ("payload_selects", (!selects.is_empty()).then(|| selects.iter().sum()), AtMost(0.0)),
            ("history_ratio", growth(|growth| ratio_of(&growth.history)), AtLeast(0.80)),
            ("backlog_ratio", growth(|growth| ratio_of(&growth.backlog)), AtLeast(0.75)),
            ("snapshot_ratio", growth(|growth| ratio_of(&growth.snapshot)), AtLeast(0.75)),
            ("p50_gap_ms", self.gap(5_000, |round| round.p50_ms), AtMost(2.0)),
            ("outbox_p99_ms", self.latency("outbox", 5_000, |l| l.p99_ms), AtMost(25.0)),
            ("commit_to_write_p99_ms", self.latency("outbox", 1_000, |l| l.queue_p99_ms), AtMost(2.0)),
            ("reshape_over_passthrough", known(t.ratio("outbox reshape", "outbox", rate)), AtLeast(0.75)),
            ("peak_rss_mib", self.peak_rss_mib, AtMost(512.0)),
            ("peer_ratio", known(self.peers.ratio(&self.peers.benthos)), AtLeast(1.5)),
            ("deduplication_over_without", unique(|unique| unique.deduplication_over_without), AtMost(1.5)),
            ("deduplication_with_keys", unique(|unique| unique.deduplication_with_keys), AtLeast(0.75)),
            ("unique_with_keys", unique(|unique| unique.unique_with_keys), AtLeast(0.75)),
            ("scrape_ms", growth(|growth| growth.scrape_ms), AtMost(50.0)),
            ("postgres_cpu_over_idle_insert", known(ratio(&postgres, &t.insert_idle_us)), Any),
            ("kafka_connect_ratio", known(self.peers.ratio(&self.peers.kafka_connect)), Any),
            (
                "last_over_first_100000",
                growth(|growth| growth.course.as_ref().map_or(f64::NAN, |course| course.last / course.first)),
                Any,
            ),
        ]
    }

    /// `is_whole`: all that was asked for was measured. Else what there is goes to files of its own.
    pub fn write(&self, about: &About, flags: &Flags, is_whole: bool) -> anyhow::Result<()> {
        let folder: &Path = &flags.results;
        std::fs::create_dir_all(folder)?;
        let suffix = format!("{}{}", flags.suffix(), if is_whole { "" } else { "-failed" });
        if flags.quick {
            println!("\nquick: fewer rounds, shorter windows and smaller tables than the limits are about");
        }
        println!("\n{:<30} {:>9}   must be", "", "measured");
        let mut all = serde_json::Map::new();
        for (name, value, limit) in self.lines() {
            match value {
                Some(value) => {
                    let verdict = if limit.holds(value) { "" } else { "  MISSED" };
                    println!("{name:<30} {value:>9.2}   {}{verdict}", limit.shown());
                }
                None => println!("{name:<30} {:>9}   {}", "not run", limit.shown()),
            }
            all.insert(name.to_owned(), json!(value.map(|value| (value * 1000.0).round() / 1000.0 + 0.0)));
        }
        all.insert("quick".to_owned(), Value::Bool(flags.quick));
        let text = json!({"about": about, "quick": flags.quick, "figures": all, "measured": self});
        let file = folder.join(format!("results{suffix}.json"));
        std::fs::write(&file, serde_json::to_vec_pretty(&text)?)?;
        if !self.throughput.rounds.is_empty() {
            std::fs::write(folder.join(format!("throughput{suffix}.svg")), plot::throughput(&self.throughput))?;
        }
        if !self.latency.is_empty() {
            std::fs::write(folder.join(format!("latency{suffix}.svg")), plot::latency(&self.latency))?;
        }
        println!("\nall figures are in {}", file.display());
        println!("\nbench: {}", Value::Object(all));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_figure() {
        let measured = Results::default().lines();
        let told: Vec<&str> = measured.iter().filter(|(_, value, _)| value.is_some()).map(|(name, ..)| *name).collect();
        assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    fn nothing_read_back_is_a_figure_and_the_first_of_limits() {
        let mut results = Results::default();
        results.throughput.rounds.insert("outbox", vec![Window::default()]);
        let (_, value, limit) =
            results.lines().into_iter().find(|(name, ..)| *name == "payload_selects").expect("a line");
        assert_eq!(json!(value), json!(0.0));
        assert!(limit.holds(0.0) && !limit.holds(1.0));
    }

    #[test]
    fn gaps_are_those_of_the_rounds() {
        let round = |p50_ms| Round { p50_ms, p99_ms: 0.0, p999_ms: 0.0, queue_p99_ms: 0.0, kept_up: true };
        let latency = |kind, p50s: [f64; 3]| Latency {
            kind,
            rate: 5_000,
            p50_ms: 0.0,
            p99_ms: 0.0,
            p999_ms: 0.0,
            queue_p99_ms: 0.0,
            kept_up: true,
            rounds: p50s.map(round).into(),
        };
        let latency = vec![latency("direct", [1.0, 5.0, 9.0]), latency("outbox", [2.0, 8.0, 10.0])];
        let results = Results { latency, ..Results::default() };
        assert_eq!(results.gap(5_000, |round| round.p50_ms), Some(1.0));
        assert_eq!(results.gap(1_000, |round| round.p50_ms), None);
    }
}
