//! `oncebox dead-letters replay ID`, or with a filter: many, as a job that outlives this command and any process. Exit code 1 when not all
//! were replayed that the command has waited for.

use std::time::Duration;

use uuid::Uuid;

use super::Failure;
use super::access::{Access, At};
use super::dead_letters::Which;
use super::events::place;
use super::output::{self, table};
use crate::admin::api::dead_letters::{Again, Replayed};
use crate::admin::api::replays::{Count, Wanted};
use crate::dead_letter::job::{self, Order, Word};
use crate::dead_letter::replayer::replay_forever;
use crate::event::ProcessId;
use crate::operate::{Operator, Page};

#[derive(Debug, clap::Args)]
pub struct Replay {
    /// Its event id, as `list` shows it; without one, all that fit the filter.
    #[arg(conflicts_with_all = ["workflow", "reason", "from", "to", "rate", "dry_run", "all", "no_wait"])]
    id: Option<String>,
    #[command(flatten)]
    which: Which,
    /// All there are, of every workflow.
    #[arg(long)]
    all: bool,
    /// At most so many a second.
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Say how many there are, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also for at-most-once workflows, whose endpoints may then see an event twice.
    #[arg(long)]
    force: bool,
    /// Under another key, so that the receiver takes it for a new event.
    #[arg(long)]
    new_key: bool,
    /// Begin it, and do not wait until it is done.
    #[arg(long)]
    no_wait: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct Replays {
    /// Only this one.
    id: Option<Uuid>,
    /// Stop it for a while.
    #[arg(long, requires = "id", conflicts_with_all = ["resume", "cancel"])]
    pause: bool,
    /// Go on with it.
    #[arg(long, requires = "id", conflicts_with = "cancel")]
    resume: bool,
    /// End it: what it has not reached stays a dead letter.
    #[arg(long, requires = "id")]
    cancel: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub async fn replay(again: &Replay) -> Result<(), Failure> {
    let access = again.at.access()?;
    if let Some(id) = &again.id {
        return one(again, &access, id).await;
    }
    let filter = again.which.filter();
    if filter == crate::dead_letter::Filter::default() && !again.all {
        return Err(Failure::Usage(
            "which? an id, or a filter (--workflow, --reason, --from, --to), or --all".to_owned(),
        ));
    }
    let order =
        Order { id: Uuid::new_v4(), filter, per_second: again.rate, new_key: again.new_key, force: again.force };
    if again.dry_run {
        let here = async |operator: &Operator| Ok(Count { count: operator.count_dead_letters(&order.filter).await? });
        let found: Count = access.change(("POST", "/v1/dead-letters/replay"), &wanted(&order, true), here).await?;
        match again.json {
            true => println!("{}", serde_json::to_string(&found)?),
            false => println!("{} dead letters would be replayed; nothing was changed", found.count),
        }
        return Ok(());
    }
    let here = async |operator: &Operator| operator.replay_many(&order).await;
    let begun: job::Replay = access.change(("POST", "/v1/dead-letters/replay"), &wanted(&order, false), here).await?;
    let ended = if again.no_wait { begun } else { wait(&access, begun).await? };
    match again.json {
        true => println!("{}", serde_json::to_string_pretty(&ended)?),
        false => print_all(std::slice::from_ref(&ended)),
    }
    match left_over(&ended) {
        Some(what) => Err(anyhow::anyhow!("replay {}: {what}", ended.id).into()),
        None => Ok(()),
    }
}

/// How many dead letters a replay has left, and why; nothing when it has left none.
fn left_over(ended: &job::Replay) -> Option<String> {
    let job::Replay { total, replayed, skipped, .. } = ended;
    let mut why = Vec::new();
    if ended.state == "cancelled" {
        let reached = replayed + skipped;
        why.push(format!("it was cancelled after {reached} of {total} dead letters: the others stay"));
    }
    if *skipped > 0 {
        let last = ended.problem.as_deref().unwrap_or("nothing is on record");
        why.push(format!("{skipped} of {total} dead letters were skipped and stay; the last one: {last}"));
    }
    (!why.is_empty()).then(|| why.join("; "))
}

fn wanted(order: &Order, dry_run: bool) -> Wanted {
    let Order { id, filter, per_second, new_key, force } = order.clone();
    let (id, workflow, reason) = (Some(id), filter.workflow, filter.reason);
    Wanted { workflow, reason, from: filter.from, to: filter.to, per_second, dry_run, force, new_key, id }
}

async fn one(again: &Replay, access: &Access, id: &str) -> Result<(), Failure> {
    let place = place(id)?;
    let path = format!("/v1/dead-letters/{place}/replay");
    let how = Again { force: again.force, new_key: again.new_key };
    let here = async |operator: &Operator| {
        let (next, events) = operator.replay(place, how.force, how.new_key).await?;
        Ok(Replayed { id: next.to_string(), events })
    };
    let made: Replayed = access.change(("POST", &path), &how, here).await?;
    match (made.events, again.json) {
        (_, true) => println!("{}", serde_json::to_string(&made)?),
        (1, false) => println!("{place}: delivered again as {}", made.id),
        (events, false) => println!("{place}: {events} events"),
    }
    Ok(())
}

/// Waits until it is over. Where Postgres itself is asked, this lends a hand: there may be no process that runs.
async fn wait(access: &Access, begun: job::Replay) -> Result<job::Replay, Failure> {
    let mut helping = tokio::task::JoinSet::new();
    if let Access::Postgres(operator) = access {
        let (_, workflows) = tokio::sync::watch::channel(operator.workflows.clone());
        helping.spawn(replay_forever(operator.database.clone(), ProcessId::new_v4(), workflows));
    }
    let mut now = begun;
    while now.state == "running" || now.state == "paused" {
        let done = now.replayed + now.skipped;
        output::progress(&format!("{} {} of {} ({} skipped)", bar(done, now.total), done, now.total, now.skipped));
        tokio::time::sleep(Duration::from_millis(300)).await;
        now = show(access, now.id).await?;
    }
    output::progress("");
    Ok(now)
}

fn bar(done: i64, total: i64) -> String {
    const WIDTH: i64 = 30;
    let filled = (done.clamp(0, total) * WIDTH).checked_div(total).unwrap_or(WIDTH);
    let part = |count: i64, text: &str| text.repeat(usize::try_from(count).unwrap_or(0));
    format!("[{}{}]", part(filled, "#"), part(WIDTH - filled, "."))
}

async fn show(access: &Access, id: Uuid) -> Result<job::Replay, Failure> {
    let here = async |operator: &Operator| operator.replay_job(id).await;
    access.get(&format!("/v1/replays/{id}"), here).await
}

pub async fn replays(flags: &Replays) -> Result<(), Failure> {
    let access = flags.at.access()?;
    let word = match flags {
        Replays { pause: true, .. } => Some((Word::Pause, "pause")),
        Replays { resume: true, .. } => Some((Word::Resume, "resume")),
        Replays { cancel: true, .. } => Some((Word::Cancel, "cancel")),
        Replays { .. } => None,
    };
    let found = match (flags.id, word) {
        (Some(id), Some((word, name))) => {
            let here = async |operator: &Operator| operator.decide_replay(id, word).await;
            let path = format!("/v1/replays/{id}/{name}");
            vec![access.change(("POST", &path), &serde_json::json!({}), here).await?]
        }
        (Some(id), None) => vec![show(&access, id).await?],
        (None, _) => {
            let here = async |operator: &Operator| operator.replay_jobs(None, 50).await;
            let page: Page<job::Replay> = access.get("/v1/replays", here).await?;
            page.items
        }
    };
    match flags.json {
        true => println!("{}", serde_json::to_string_pretty(&found)?),
        false => {
            print_all(&found);
            for problem in found.iter().filter_map(|replay| replay.problem.as_ref()) {
                println!("the last one that was skipped: {problem}");
            }
        }
    }
    Ok(())
}

fn print_all(replays: &[job::Replay]) {
    let row = |r: &job::Replay| {
        let number = |count: i64| count.to_string();
        let of = r.filter.workflow.clone().unwrap_or_else(|| "all".to_owned());
        let begun = format!("{:.0}", r.created_at);
        vec![r.id.to_string(), r.state.clone(), of, number(r.total), number(r.replayed), number(r.skipped), begun]
    };
    let rows: Vec<Vec<String>> = replays.iter().map(row).collect();
    println!("{}", table(&["ID", "STATE", "WORKFLOW", "LETTERS", "REPLAYED", "SKIPPED", "BEGUN"], &rows));
}
