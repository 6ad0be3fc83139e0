//! More processes, more workflows: what each adds, and how much memory they take.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::flags::Flags;
use super::meter::{self, Pair, Run, Window, median, ratio_of};
use super::stand::{Process, Stand};
use super::subject::{PARTITIONS, Subject};
use super::throughput::WARM;

/// Processes and workflows, in the order in which they are measured, each round.
const SHAPES: [(usize, usize); 5] = [(1, 1), (2, 1), (4, 1), (1, 10), (1, 100)];
/// The workflows whose memory is measured have a topic and tables of their own.
const MEMORY: &str = "memory";

/// One shape, its medians and its rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Scale {
    pub processes: usize,
    pub workflows: usize,
    pub per_second: f64,
    pub cpu_us: f64,
    /// Over one process with one workflow, the median of the rounds' own ratios.
    pub over_one: f64,
    pub peak_mib: f64,
    /// Requests beyond the first of each event, where there is one workflow.
    pub repeated: u64,
    pub rounds: Vec<Window>,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Vec<Scale>> {
    let mut found: Vec<Scale> = SHAPES
        .map(|(processes, workflows)| Scale {
            processes,
            workflows,
            per_second: 0.0,
            cpu_us: 0.0,
            over_one: 0.0,
            peak_mib: 0.0,
            repeated: 0,
            rounds: Vec::new(),
        })
        .into();
    for round in 0..flags.few_rounds() {
        for scale in &mut found {
            one(stand, flags, round, scale).await?;
        }
    }
    let base: Vec<f64> = found[0].rounds.iter().map(|window| window.per_second).collect();
    for scale in &mut found {
        let rates = scale.rounds.iter().map(|window| window.per_second);
        let pairs: Vec<Pair> =
            rates.clone().zip(&base).map(|(with, without)| Pair { with, without: *without }).collect();
        scale.per_second = median(&rates.collect::<Vec<_>>());
        scale.cpu_us = median(&scale.rounds.iter().map(|window| window.subject_cpu_us).collect::<Vec<_>>());
        scale.over_one = ratio_of(&pairs);
        println!(
            "{} process(es), {} workflow(s): {:.0}/s, {:.2} of one of each, {:.1} us, {:.0} MiB at most",
            scale.processes, scale.workflows, scale.per_second, scale.over_one, scale.cpu_us, scale.peak_mib
        );
    }
    Ok(found)
}

/// One window, once everything has found its place.
async fn one(stand: &Stand, flags: &Flags, round: usize, scale: &mut Scale) -> anyhow::Result<()> {
    let Scale { processes, workflows, .. } = *scale;
    let name = format!("scale-{round}-{processes}-{workflows}");
    // A process has its share of a workflow's requests.
    let concurrency = if workflows == 1 { flags.concurrency } else { 64 };
    let subjects: Vec<Subject> = (0..workflows)
        .map(|number| Subject { concurrency, ..Subject::new(&format!("{name}-of-{number}"), true) })
        .collect();
    stand.settle().await?;
    let relays = (0..processes)
        .map(|number| {
            let name = format!("{name}-{number}");
            stand.relay(&name, &stand.config(&name, &subjects)?)
        })
        .collect::<anyhow::Result<Vec<Process>>>()?;
    spread(stand, &format!("{name}-of-%"), processes, workflows).await?;
    let pids: Vec<u32> = relays.iter().map(Process::pid).collect();
    let supply = stand.supply() * u64::try_from(workflows)?;
    let run = Run { processes: &pids, warm: WARM, supply: Some(supply) };
    let window = meter::measure(stand, &run, flags.window()).await?;
    scale.peak_mib = pids.iter().map(|pid| meter::peak_mib(*pid).unwrap_or(f64::NAN)).fold(scale.peak_mib, f64::max);
    drop(relays);
    let seen = stand.seen_at_rest().await?;
    let repeated = if workflows == 1 { seen.requests.saturating_sub(seen.distinct) } else { 0 };
    println!(
        "round {round}  {processes} process(es), {workflows} workflow(s): {:.0}/s{}",
        window.per_second,
        if repeated == 0 { String::new() } else { format!("; {repeated} events came again") }
    );
    scale.repeated += repeated;
    scale.rounds.push(window);
    Ok(())
}

/// Waits until the partitions of each workflow are read by all processes, evenly, each delivers what it reads, and none of that has
/// changed for a second.
async fn spread(stand: &Stand, workflows: &str, processes: usize, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(90);
    let all = i64::from(PARTITIONS) * i64::try_from(count)?;
    let mut before = Vec::new();
    loop {
        let rows = stand.client.query(include_str!("scale.sql"), &[&workflows]).await?;
        let now: Vec<Reader> = rows
            .iter()
            .map(|row| Reader {
                is_there: row.get::<_, Option<&str>>("reader").is_some(),
                cursors: row.get("cursors"),
                at_home: row.get("at_home"),
                standing: row.get("standing"),
            })
            .collect();
        if is_spread(&now, processes, all) && now == before {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "the partitions of {workflows} do not settle: {now:?}");
        before = now;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whoever reads some cursors.
#[derive(Debug, PartialEq, Eq)]
struct Reader {
    /// Else nobody reads them.
    is_there: bool,
    cursors: i64,
    /// Those that it delivers too.
    at_home: i64,
    standing: String,
}

fn is_spread(readers: &[Reader], processes: usize, all: i64) -> bool {
    let share = all / i64::try_from(processes).unwrap_or(i64::MAX);
    readers.len() == processes
        && readers.iter().all(|one| one.is_there && one.at_home == one.cursors && one.cursors >= share)
        && readers.iter().map(|one| one.cursors).sum::<i64>() == all
}

/// The most memory of a process with a hundred workflows and a million events waiting between them.
pub async fn memory(stand: &Stand, flags: &Flags) -> anyhow::Result<f64> {
    let (workflows, each) = (100, if flags.quick { 1_000 } else { 10_000 });
    let topic = "bench.memory";
    stand.make_topic(topic, each).await?;
    stand.migrate(MEMORY)?;
    let subjects: Vec<Subject> = (0..workflows)
        .map(|number| Subject {
            topic: topic.to_owned(),
            schema: MEMORY.to_owned(),
            ..Subject::new(&format!("memory-{number}"), true)
        })
        .collect();
    let config = stand.config(MEMORY, &subjects)?;
    for subject in &subjects {
        stand.order(&["pause", &subject.id], &config)?;
    }
    let relay = stand.relay(MEMORY, &config)?;
    let wanted = i64::try_from(each * workflows)?;
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let stored = stand.undelivered(MEMORY, "memory-%").await?;
        if stored >= wanted {
            break;
        }
        anyhow::ensure!(Instant::now() < deadline, "{stored} of {wanted} events are stored");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // All go at once.
    stand.begin_anew().await?;
    for subject in &subjects {
        stand.order(&["resume", &subject.id], &config)?;
    }
    let run = Run { processes: &[relay.pid()], warm: 10_000, supply: Some(each * workflows) };
    meter::measure(stand, &run, flags.window()).await?;
    let peak = meter::peak_mib(relay.pid())?;
    println!("100 workflows with {wanted} events waiting: {peak:.0} MiB at most");
    drop(relay);
    stand.drop_schema(MEMORY).await?;
    Ok(peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(cursors: i64, at_home: i64) -> Reader {
        Reader { is_there: true, cursors, at_home, standing: String::new() }
    }

    #[test]
    fn partitions_are_spread_when_each_process_reads_its_share_and_delivers_it() {
        assert!(is_spread(&[reader(6, 6), reader(6, 6)], 2, 12));
        assert!(!is_spread(&[reader(12, 12)], 2, 12), "one of them has none");
        assert!(!is_spread(&[reader(8, 8), reader(4, 4)], 2, 12), "not evenly");
        assert!(!is_spread(&[reader(6, 6), reader(6, 5)], 2, 12), "one is still delivered elsewhere");
        assert!(!is_spread(&[reader(6, 6), reader(5, 5)], 2, 12), "one is not known yet");
        let nobodys = Reader { is_there: false, ..reader(6, 0) };
        assert!(!is_spread(&[reader(6, 6), nobodys], 2, 12));
    }
}
