//! `oncebox pause WORKFLOW`: nothing is sent until `resume`. What comes in is kept, and the clocks of `giveUpAfter` stop.
//! `oncebox resume WORKFLOW`: the way out of a pause, a suspension or a halt. A pause by the configuration ends there.

use super::access::{At, segment};
use super::{Failure, block_on};
use crate::operate::workflows::{Decided, Resumed};

#[derive(Debug, clap::Args)]
pub struct Which {
    /// Its id.
    workflow: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

pub fn pause(which: &Which) -> Result<(), Failure> {
    let (access, id) = (which.at.access()?, &which.workflow);
    let path = format!("/v1/workflows/{}/pause", segment(id));
    let here = async |operator: &crate::operate::Operator| operator.pause(id).await;
    let decided: Decided = block_on(access.change(("POST", &path), &serde_json::json!({}), here))?;
    let what = if decided.changed { "paused" } else { "was not running" };
    tell(which, &decided, what)
}

pub fn resume(which: &Which) -> Result<(), Failure> {
    let (access, id) = (which.at.access()?, &which.workflow);
    let path = format!("/v1/workflows/{}/resume", segment(id));
    let here = async |operator: &crate::operate::Operator| operator.resume(id).await;
    let resumed: Resumed = block_on(access.change(("POST", &path), &serde_json::json!({}), here))?;
    let what = match (resumed.changed, resumed.paused_by_configuration) {
        (_, true) => "resumed, and still paused by its configuration: it runs once `paused: true` is taken out of that",
        (true, false) => "running",
        (false, false) => "was running already",
    };
    tell(which, &resumed, what)
}

fn tell(which: &Which, answer: &impl serde::Serialize, what: &str) -> Result<(), Failure> {
    match which.json {
        true => println!("{}", serde_json::to_string(answer)?),
        false => println!("{}: {what}", which.workflow),
    }
    Ok(())
}
