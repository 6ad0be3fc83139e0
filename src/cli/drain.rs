//! `oncebox drain WORKFLOW` and `oncebox park WORKFLOW`: what becomes of the events of a workflow that nobody runs any more.
//!
//! To drain is to deliver them with the last configuration: the processes that run do that, and this waits for it. To park
//! is to make each a dead letter: straight on Postgres here and now, by the API in the process that is asked.

use std::time::{Duration, Instant};

use super::access::{Access, At, failed, segment};
use super::{Failure, block_on, output};
use crate::operate::Operator;
use crate::operate::workflows::{Decided, Fate, Workflow};

/// Events that wait for each other move on sooner.
const STUCK_AFTER: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct Drain {
    /// Its id.
    workflow: String,
    /// Ask for it and do not wait until it is done.
    #[arg(long)]
    no_wait: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub struct Park {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn drain(flags: &Drain) -> Result<(), Failure> {
    let (access, id) = (flags.at.access()?, &flags.workflow);
    block_on(async {
        let path = format!("/v1/workflows/{}/drain", segment(id));
        let here = async |operator: &Operator| operator.decide_left(id, Fate::Drain).await;
        let decided: Decided = access.change(("POST", &path), &serde_json::json!({}), here).await?;
        let told = match (decided.changed, flags.no_wait) {
            (false, _) => "nothing is left",
            (true, true) => "is being drained by the processes that run",
            (true, false) => await_drained(&access, id).await?,
        };
        if !flags.json {
            println!("{id}: {told}");
            return Ok(());
        }
        let left = if decided.changed { look(&access, id).await?.events.undelivered() } else { 0 };
        println!("{}", serde_json::json!({"workflow": id, "changed": decided.changed, "left": left}));
        Ok(())
    })
}

/// Answers how it ended.
async fn await_drained(access: &Access, id: &str) -> Result<&'static str, Failure> {
    let (mut stuck_since, mut waiting): (Option<Instant>, i64) = (None, 0);
    loop {
        let now = look(access, id).await?;
        let left = now.events.undelivered();
        if left == 0 {
            return Ok("nothing is left");
        }
        if !now.draining {
            return Ok("is run by a process again");
        }
        if !now.sends {
            return Err(anyhow::anyhow!(
                "{id} was paused or suspended meanwhile; `oncebox resume {id}`, then drain again"
            )
            .into());
        }
        let why = why_stuck(&now).filter(|_| left == waiting);
        waiting = left;
        stuck_since = why.as_ref().map(|_| stuck_since.unwrap_or_else(Instant::now));
        if let Some(why) = why.filter(|_| stuck_since.is_some_and(|since| since.elapsed() > STUCK_AFTER)) {
            let message = format!("{id}: {left} events are left, and none has moved for a while: {why}");
            return Err(anyhow::anyhow!(message).into());
        }
        output::progress(&format!("{id}: {left} events left"));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub fn park(flags: &Park) -> Result<(), Failure> {
    let (access, id) = (flags.at.access()?, &flags.workflow);
    block_on(async {
        let (changed, parked) = match &access {
            Access::Postgres(operator) => match operator.decide_left(id, Fate::Park).await.map_err(failed)?.changed {
                false => (false, None),
                true => {
                    let tell = |parked| output::progress(&format!("{id}: {parked} events parked"));
                    (true, Some(operator.park(id, tell).await.map_err(failed)?))
                }
            },
            Access::Api(client) => {
                let path = format!("/v1/workflows/{}/park", segment(id));
                let decided: Decided = client.call("POST", &path, Some(b"{}".to_vec())).await?;
                (decided.changed, None)
            }
        };
        let left = if changed { look(&access, id).await?.events.undelivered() } else { 0 };
        if flags.json {
            println!("{}", serde_json::json!({"workflow": id, "changed": changed, "parked": parked, "left": left}));
            return Ok(());
        }
        match (changed, parked, left) {
            (false, ..) => println!("{id}: nothing is left"),
            (true, Some(parked), 0) => println!("{id}: {parked} events are dead letters now (reason parked)"),
            (true, Some(parked), left) => println!(
                "{id}: {parked} events are dead letters now (reason parked); {left} are under way, park again when their leases \
                 have run out"
            ),
            (true, None, _) => println!(
                "{id}: what is left is being made dead letters (reason parked); `oncebox status` shows how far it is"
            ),
        }
        Ok(())
    })
}

/// Why nothing moves, if all that is left waits for a person.
fn why_stuck(now: &Workflow) -> Option<String> {
    let (events, id) = (&now.events, &now.id);
    if events.pending == 0 || events.pending < events.undelivered() {
        return None;
    }
    Some(match now.blocked_keys {
        0 => format!("they are held until somebody decides (`oncebox events list --workflow {id} --state pending`)"),
        keys => format!(
            "they wait behind dead letters of {keys} ordering keys. Replay those (`oncebox dead-letters list`), or make the \
             rest dead letters too (`oncebox park {id}`)"
        ),
    })
}

async fn look(access: &Access, id: &str) -> Result<Workflow, Failure> {
    access.get(&format!("/v1/workflows/{}", segment(id)), async |operator: &Operator| operator.workflow(id).await).await
}
