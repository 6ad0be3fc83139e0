//! Events per second at saturation, and what each costs: the bare client, and both paths in all their kinds.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::flags::Flags;
use super::insert;
use super::life::Life;
use super::meter::{self, Run, Window, median};
use super::stand::{Process, Stand};
use super::subject::Subject;

/// What is seen before measuring begins: connections are open, caches are warm.
pub const WARM: u64 = 30_000;

/// The kinds in the order they are measured, each round.
const KINDS: [(&str, bool, bool, bool); 8] = [
    ("direct", false, false, false),
    ("outbox", true, false, false),
    ("direct reshape", false, true, false),
    ("outbox reshape", true, true, false),
    ("direct signed", false, false, true),
    ("outbox signed", true, false, true),
    ("direct reshape signed", false, true, true),
    ("outbox reshape signed", true, true, true),
];

/// All rounds, by kind, and what a bare insert took in each.
#[derive(Debug, Default, Serialize)]
pub struct Throughput {
    pub rounds: BTreeMap<&'static str, Vec<Window>>,
    /// On a machine that is as busy as it is under the relay: the bare client posts beside it.
    pub insert_us: Vec<f64>,
    /// With nothing beside it.
    pub insert_idle_us: Vec<f64>,
}

impl Throughput {
    pub fn of(&self, kind: &str, value: fn(&Window) -> f64) -> Vec<f64> {
        self.rounds.get(kind).into_iter().flatten().map(value).collect()
    }

    /// The median of the rounds' own ratios.
    pub fn ratio(&self, kind: &str, over: &str, value: fn(&Window) -> f64) -> f64 {
        ratio(&self.of(kind, value), &self.of(over, value))
    }
}

pub fn ratio(values: &[f64], over: &[f64]) -> f64 {
    median(&values.iter().zip(over).map(|(value, over)| value / over).collect::<Vec<_>>())
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Throughput> {
    let mut all = Throughput::default();
    first_request(stand).await?;
    for round in 0..flags.rounds() {
        let window = bare(stand, flags).await?;
        println!("round {round}  {}", line("bare", &window));
        all.rounds.entry("bare").or_default().push(window);
        for (kind, is_outbox, reshapes, signs) in KINDS.into_iter().filter(|kind| flags.wants_kind(kind.0)) {
            let id = format!("{}-{round}", kind.replace(' ', "-"));
            let subject = Subject { reshapes, signs, concurrency: flags.concurrency, ..Subject::new(&id, is_outbox) };
            let window = relay(stand, &subject, flags).await?;
            println!("round {round}  {}", line(kind, &window));
            all.rounds.entry(kind).or_default().push(window);
        }
        all.insert_idle_us.push(insert::cpu_per_row(stand, flags.window() / 2).await?);
        let beside = client(stand, flags)?;
        all.insert_us.push(insert::cpu_per_row(stand, flags.window()).await?);
        drop(beside);
        println!(
            "round {round}  a bare insert takes Postgres {:.1} us a row beside the bare client, {:.1} us on an idle machine",
            all.insert_us[round], all.insert_idle_us[round]
        );
    }
    Ok(all)
}

pub fn line(kind: &str, w: &Window) -> String {
    format!(
        "{kind:<22} {:>8.0}/s  sender {:>5.1} us  postgres {:>5.1} us  receiver {:>5.1} us  WAL {:>5.0} B of {:>4.0}  statements {:>5.2}/1000  selects {}",
        w.per_second,
        w.subject_cpu_us,
        w.postgres_cpu_us,
        w.receiver_cpu_us,
        w.wal_bytes,
        w.body_bytes,
        w.statements_per_1000,
        w.payload_selects
    )
}

/// One window of one workflow, from the beginning of the topic.
pub async fn relay(stand: &Stand, subject: &Subject, flags: &Flags) -> anyhow::Result<Window> {
    let life = Life::begin(stand, subject).await?;
    let window = life.window(WARM, flags.window()).await?;
    life.end().await?;
    Ok(window)
}

/// Has the relay send a few, so that the bare client can send the same bytes.
async fn first_request(stand: &Stand) -> anyhow::Result<()> {
    let life = Life::begin(stand, &Subject::new("first", true)).await?;
    life.window(WARM, Duration::from_secs(1)).await?;
    life.end().await?;
    std::fs::write(stand.folder.join("request"), stand.last_request().await?)?;
    Ok(())
}

async fn bare(stand: &Stand, flags: &Flags) -> anyhow::Result<Window> {
    stand.settle().await?;
    let client = client(stand, flags)?;
    let run = Run { processes: &[client.pid()], warm: WARM, supply: None };
    meter::measure(stand, &run, flags.window()).await
}

fn client(stand: &Stand, flags: &Flags) -> anyhow::Result<Process> {
    let client = Command::new(std::env::current_exe()?)
        .args(["bare", "--to", &stand.receiver_address(), "--connections", &flags.concurrency.to_string(), "--request"])
        .arg(stand.folder.join("request"))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Process(client))
}
