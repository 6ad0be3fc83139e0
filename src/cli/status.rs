//! `oncebox status`: the whole system on one screen, the most troubled workflows first; `--watch` keeps it up to date.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use jiff::Timestamp;

use super::access::{Access, At};
use super::output::table;
use super::{Failure, block_on};
use crate::config::shown::shown_duration;
use crate::dead_letter::job::Replay;
use crate::operate::workflows::Workflow;
use crate::operate::{Operator, Page};

const REFRESH_EVERY: Duration = Duration::from_secs(2);
/// Where a count stops.
const MANY: i64 = 10_001;

#[derive(Debug, clap::Args)]
pub struct Status {
    /// Only this workflow.
    workflow: Option<String>,
    /// Show it again every two seconds.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn run(status: &Status) -> Result<(), Failure> {
    let access = status.at.access()?;
    block_on(async {
        // Whoever has mistyped an address or a name learns it now, and at once.
        let (workflows, replays) = read(status, &access).await?;
        if status.json {
            println!("{}", serde_json::to_string_pretty(&workflows)?);
            return Ok(());
        }
        let (mut last, mut seen) = (screen(&workflows, &replays), Timestamp::now());
        show(status, &last)?;
        if !status.watch {
            return Ok(());
        }
        loop {
            tokio::time::sleep(REFRESH_EVERY).await;
            match read(status, &access).await {
                Ok((workflows, replays)) => {
                    (last, seen) = (screen(&workflows, &replays), Timestamp::now());
                    show(status, &last)?;
                }
                // A process that starts anew, a connection that is lost: a watch outlives them, and says so meanwhile.
                Err(failure) => {
                    let trouble = format!("{}; trying again. The last answer is of {seen:.0}", failure.words());
                    let is_seen = std::io::stdout().is_terminal();
                    show(status, &if is_seen { format!("{last}\n\n{trouble}") } else { trouble })?;
                }
            }
        }
    })
}

/// Until the next look; on a terminal in place of what was there.
fn show(status: &Status, screen: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    if status.watch && out.is_terminal() {
        // From the top, and nothing of before below.
        write!(out, "\x1b[H\x1b[2J")?;
    }
    writeln!(out, "{screen}")?;
    out.flush()?;
    Ok(())
}

async fn read(status: &Status, access: &Access) -> Result<(Vec<Workflow>, Vec<Replay>), Failure> {
    let page: Page<Workflow> = access
        .get("/v1/workflows", async |operator: &Operator| {
            Ok(Page { items: operator.all_workflows().await?, next: None })
        })
        .await?;
    let mut found = page.items;
    if let Some(id) = &status.workflow {
        let known: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
        if !known.contains(&id.as_str()) {
            let near = crate::config::shape::closest(id, &known).map(|near| format!(": did you mean `{near}`?"));
            let near = near.unwrap_or_else(|| format!("; there are: {}", known.join(", ")));
            return Err(Failure::Usage(format!("no workflow `{id}`{near}")));
        }
        found.retain(|one| one.id == *id);
    }
    found.sort_by(|a, b| trouble(b).total_cmp(&trouble(a)));
    let replays: Page<Replay> =
        access.get("/v1/replays", async |operator: &Operator| operator.replay_jobs(None, 50).await).await?;
    Ok((found, replays.items.into_iter().filter(|one| ["running", "paused"].contains(&one.state.as_str())).collect()))
}

/// What is not running comes first, then what is latest.
fn trouble(one: &Workflow) -> f64 {
    let stopped = if one.state == "running" { 0.0 } else { 1e12 };
    stopped + one.delivery_lag_seconds.max(one.undelivered_age_seconds)
}

fn screen(workflows: &[Workflow], replays: &[Replay]) -> String {
    let age = |seconds: f64| match seconds {
        none if none < 0.001 => "-".to_owned(),
        some => shown_duration(Duration::from_secs_f64(if some < 10.0 {
            (some * 10.0).round() / 10.0
        } else {
            some.round()
        })),
    };
    let count = |count: i64| if count >= MANY { "10000+".to_owned() } else { count.to_string() };
    let rows: Vec<Vec<String>> = workflows
        .iter()
        .map(|w| {
            let live = w.live.as_ref();
            let kafka = w.kafka_lag_records.map_or("-".to_owned(), |lag| lag.to_string());
            let rate = live.map_or("-".to_owned(), |live| format!("{:.1}", live.per_second));
            let errors =
                live.and_then(|live| live.error_share).map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0));
            let circuit = live.map_or("-".to_owned(), |live| live.circuit.clone());
            vec![
                w.id.clone(),
                w.state.clone(),
                age(w.delivery_lag_seconds),
                age(w.undelivered_age_seconds),
                kafka,
                w.events.undelivered().to_string(),
                count(w.events.retryable),
                count(w.held),
                count(w.dead_letters),
                rate,
                errors,
                circuit,
            ]
        })
        .collect();
    let header = [
        "WORKFLOW", "STATE", "LAG", "OLDEST", "IN KAFKA", "WAITING", "RETRYING", "HELD", "DEAD", "PER S", "ERRORS",
        "CIRCUIT",
    ];
    let mut lines = vec![table(&header, &rows)];
    for w in workflows {
        if w.only_its_configuration_pauses_it() {
            lines.push(format!("{}: paused by its configuration (`paused: true`), and by nobody else", w.id));
        } else if let Some(reason) = w.reason.as_ref().filter(|_| w.state != "running") {
            lines.push(format!("{}: {} since {:.0} by {}: {reason}", w.id, w.state, w.changed_at, w.changed_by));
            if w.paused_by_configuration {
                lines.push(format!("{}: its configuration pauses it too", w.id));
            }
        } else if w.state == "removed" {
            lines.push(format!("{}: not configured any more; `oncebox drain` or `oncebox park` ends it", w.id));
        } else if !w.is_run {
            lines.push(format!("{}: no process runs it", w.id));
        }
        let missing =
            [("reads", w.is_read), ("sends", w.is_sent)].into_iter().filter(|(_, is_done)| w.is_run && !is_done);
        lines.extend(missing.map(|(does, _)| format!("{}: no process {does} it", w.id)));
        if w.blocked_keys > 0 {
            lines.push(format!("{}: {} ordering keys wait behind dead letters", w.id, count(w.blocked_keys)));
        }
    }
    for r in replays {
        lines.push(format!(
            "replay {}: {}, {} of {} ({} skipped)",
            r.id,
            r.state,
            r.replayed + r.skipped,
            r.total,
            r.skipped
        ));
    }
    lines.join("\n")
}
