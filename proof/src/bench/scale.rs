//! More processes, more workflows: what each adds, and how much memory they take.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Flags;
use super::meter::{self, Window};
use super::stand::{self, Process, Stand};
use super::subject::Subject;

#[derive(Debug, Clone, Serialize)]
pub struct Scale {
    pub processes: usize,
    pub workflows: usize,
    pub per_second: f64,
    pub cpu_us: f64,
    pub peak_mib: f64,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Vec<Scale>> {
    let mut found = Vec::new();
    for (processes, workflows) in [(1, 1), (2, 1), (4, 1), (1, 10), (1, 100)] {
        let name = format!("scale-{processes}-{workflows}");
        // A process has its share of a workflow's requests.
        let concurrency = if workflows == 1 { flags.concurrency } else { 64 };
        let subjects: Vec<Subject> = (0..workflows)
            .map(|number| Subject { concurrency, ..Subject::new(&format!("{name}-{number}"), true) })
            .collect();
        stand.begin_anew().await?;
        let relays = (0..processes)
            .map(|number| {
                let name = format!("{name}-{number}");
                stand.relay(&name, &stand.config(&name, &subjects)?)
            })
            .collect::<anyhow::Result<Vec<Process>>>()?;
        let pids: Vec<u32> = relays.iter().map(Process::pid).collect();
        let window = meter::measure(stand, &pids, 20_000, flags.window()).await?;
        let peak_mib = pids.iter().map(|pid| meter::peak_mib(*pid).unwrap_or(f64::NAN)).fold(0.0, f64::max);
        let Window { per_second, subject_cpu_us: cpu_us, .. } = window;
        println!(
            "{processes} process(es), {workflows} workflow(s): {per_second:.0}/s, {cpu_us:.1} us, {peak_mib:.0} MiB at most"
        );
        found.push(Scale { processes, workflows, per_second, cpu_us, peak_mib });
    }
    Ok(found)
}

/// The most memory of a process with a hundred workflows and a million events waiting between them.
pub async fn memory(stand: &Stand, flags: &Flags) -> anyhow::Result<f64> {
    let (workflows, each) = (100, if flags.quick { 1_000 } else { 10_000 });
    let topic = "bench.memory";
    crate::topic::create(&stand.brokers(), topic, super::subject::PARTITIONS).await?;
    let brokers = stand.brokers();
    tokio::task::spawn_blocking(move || super::subject::fill(&brokers, topic, 0..each)).await??;
    let subjects: Vec<Subject> = (0..workflows)
        .map(|number| Subject { topic: topic.to_owned(), ..Subject::new(&format!("memory-{number}"), true) })
        .collect();
    let config = stand.config("memory", &subjects)?;
    for subject in &subjects {
        stand.order(&["pause", &subject.id], &config)?;
    }
    let relay = stand.relay("memory", &config)?;
    let wanted = i64::try_from(each * workflows)?;
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let stored: i64 = stand.client.query_one(stand::UNDELIVERED, &[&"memory-%"]).await?.get(0);
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
    meter::measure(stand, &[relay.pid()], 10_000, flags.window()).await?;
    let peak = meter::peak_mib(relay.pid())?;
    println!("100 workflows with {wanted} events waiting: {peak:.0} MiB at most");
    Ok(peak)
}
