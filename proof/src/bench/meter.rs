//! What a window of time cost: CPU from /proc, WAL and statements from Postgres.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::stand::Stand;
use crate::servers::children;

/// The kernel's clock ticks a second, as /proc counts CPU time; the same on every Linux that runs Rust.
const TICKS: f64 = 100.0;

/// What the receiver says it saw.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Seen {
    pub requests: u64,
    pub bytes: u64,
    pub distinct: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
}

/// All counters at one moment.
struct Reading {
    at: Instant,
    seen: Seen,
    subjects: f64,
    receiver: f64,
    postgres: f64,
    wal: i64,
    statements: i64,
    payload_selects: i64,
}

/// What lies between two readings, per event where that makes sense.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Window {
    pub events: u64,
    pub per_second: f64,
    pub subject_cpu_us: f64,
    pub receiver_cpu_us: f64,
    pub postgres_cpu_us: f64,
    pub wal_bytes: f64,
    pub body_bytes: f64,
    pub statements_per_1000: f64,
    pub payload_selects: i64,
}

impl Reading {
    /// `subjects`: the processes that are measured, beside receiver and Postgres.
    async fn take(stand: &Stand, subjects: &[u32]) -> anyhow::Result<Self> {
        let row = stand
            .client
            .query_one(
                // Bodies are read back by whoever claims what waits in the outbox, and by whoever claims retries, if there are any.
                r"select (pg_current_wal_insert_lsn() - '0/0')::int8,
                         coalesce(sum(calls) filter (where query !~ 'pg_stat_statements|pg_current_wal'), 0)::int8,
                         (coalesce(sum(calls) filter (where query ~* 'from \w+\.outbox' and query ~* '\mbody\M'), 0)
                          + coalesce(sum(rows) filter (where query ~* 'from \w+\.claim_retries'), 0))::int8
                    from pg_stat_statements",
                &[],
            )
            .await?;
        Ok(Self {
            seen: stand.seen().await?,
            at: Instant::now(),
            subjects: subjects.iter().map(|pid| cpu_seconds(*pid)).sum(),
            receiver: cpu_seconds(stand.receiver_pid()),
            postgres: server_cpu_seconds(stand.postgres.postmaster()),
            wal: row.get(0),
            statements: row.get(1),
            payload_selects: row.get(2),
        })
    }

    fn until(&self, later: &Self) -> Window {
        let events = later.seen.requests.saturating_sub(self.seen.requests);
        let per_event = |amount: f64| amount / (events as f64).max(1.0);
        Window {
            events,
            per_second: events as f64 / (later.at - self.at).as_secs_f64(),
            subject_cpu_us: per_event((later.subjects - self.subjects) * 1e6),
            receiver_cpu_us: per_event((later.receiver - self.receiver) * 1e6),
            postgres_cpu_us: per_event((later.postgres - self.postgres) * 1e6),
            wal_bytes: per_event((later.wal - self.wal) as f64),
            body_bytes: per_event((later.seen.bytes - self.seen.bytes) as f64),
            statements_per_1000: per_event((later.statements - self.statements) as f64 * 1000.0),
            payload_selects: later.payload_selects - self.payload_selects,
        }
    }
}

/// What is measured, and from when on.
pub struct Run<'a> {
    /// The processes, beside receiver and Postgres.
    pub processes: &'a [u32],
    /// Requests that are seen before measuring begins: connections are open, caches are warm.
    pub warm: u64,
    /// Requests after which somewhere there may be nothing left to do; nothing where there always is.
    pub supply: Option<u64>,
}

/// Measures for a while. It is an error when nothing came, or when there may have been too little to do.
pub async fn measure(stand: &Stand, run: &Run<'_>, length: Duration) -> anyhow::Result<Window> {
    let Run { processes, warm, supply } = run;
    let deadline = Instant::now() + Duration::from_secs(120);
    while stand.seen().await?.requests < *warm {
        anyhow::ensure!(Instant::now() < deadline, "no {warm} requests came within two minutes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if std::env::var_os("BENCH_STATEMENTS").is_some() {
        stand.client.batch_execute("select pg_stat_statements_reset()").await?;
    }
    let before = Reading::take(stand, processes).await?;
    tokio::time::sleep(length).await;
    let after = Reading::take(stand, processes).await?;
    if std::env::var_os("BENCH_STATEMENTS").is_some() {
        tell_statements(stand).await?;
    }
    let (requests, window) = (after.seen.requests, before.until(&after));
    anyhow::ensure!(window.events > 0, "nothing came within a window");
    if let Some(supply) = supply.filter(|supply| requests > *supply) {
        anyhow::bail!("a topic may have run dry: {requests} requests were made of {supply} at most; see --events");
    }
    Ok(window)
}

/// Which statements took the time; for whoever looks into it.
async fn tell_statements(stand: &Stand) -> anyhow::Result<()> {
    let query = "select calls, rows, total_exec_time, wal_bytes::int8, wal_fpi, regexp_replace(left(query, 90), '\\s+', ' ', 'g')
                   from pg_stat_statements order by total_exec_time desc limit 9";
    for row in stand.client.query(query, &[]).await? {
        println!(
            "    {:>6} calls {:>8} rows {:>8.0} ms {:>11} B WAL {:>5} pages  {}",
            row.get::<_, i64>(0),
            row.get::<_, i64>(1),
            row.get::<_, f64>(2),
            row.get::<_, i64>(3),
            row.get::<_, i64>(4),
            row.get::<_, &str>(5)
        );
    }
    Ok(())
}

/// User and system time of a whole PostgreSQL: of those of its processes that have ended the first one keeps the account.
pub fn server_cpu_seconds(postmaster: u32) -> f64 {
    let live = children(postmaster, "").into_iter().chain([postmaster]).map(cpu_seconds);
    live.sum::<f64>() + ticks(postmaster, [13, 14])
}

/// User and system time of a process, its ended threads included.
pub fn cpu_seconds(pid: u32) -> f64 {
    ticks(pid, [11, 12])
}

/// The sum of two fields of /proc's account of a process, in seconds; counted from the one after its name.
fn ticks(pid: u32, fields: [usize; 2]) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in parentheses and may hold anything.
    let all: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| all.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    fields.into_iter().map(ticks).sum::<f64>() / TICKS
}

/// The most memory that a process ever had.
pub fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.split_whitespace().next().context("a number")?.parse::<f64>()? / 1024.0)
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// One of two that are compared, and the other, of the same round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Pair {
    pub with: f64,
    pub without: f64,
}

impl Pair {
    pub fn ratio(&self) -> f64 {
        self.with / self.without
    }
}

/// The median of the rounds' own ratios.
pub fn ratio_of(pairs: &[Pair]) -> f64 {
    median(&pairs.iter().map(Pair::ratio).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_compared_with_itself() {
        // Other work disturbed one round: the ratio of the medians would be 0.6.
        let pairs = [(10.0, 20.0), (100.0, 50.0), (30.0, 60.0)].map(|(with, without)| Pair { with, without });
        assert_eq!(ratio_of(&pairs), 0.5);
        assert!(ratio_of(&[]).is_nan());
    }
}
