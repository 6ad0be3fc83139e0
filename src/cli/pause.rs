//! `oncebox pause WORKFLOW`: nothing is sent until `resume`. What comes in is kept, and the clocks of `giveUpAfter` stop.
//! `oncebox resume WORKFLOW`: the way out of a pause, a suspension or a halt.

use super::access::{At, segment};
use super::{Failure, block_on};
use crate::operate::workflows::Decided;

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
    let decided = block_on(access.change(("POST", &path), &serde_json::json!({}), here))?;
    tell(which, &decided, ["paused", "was not running"])
}

pub fn resume(which: &Which) -> Result<(), Failure> {
    let (access, id) = (which.at.access()?, &which.workflow);
    let path = format!("/v1/workflows/{}/resume", segment(id));
    let here = async |operator: &crate::operate::Operator| operator.resume(id).await;
    let decided = block_on(access.change(("POST", &path), &serde_json::json!({}), here))?;
    tell(which, &decided, ["running", "was running already"])
}

fn tell(which: &Which, decided: &Decided, [is, was]: [&str; 2]) -> Result<(), Failure> {
    match which.json {
        true => println!("{}", serde_json::to_string(decided)?),
        false => println!("{}: {}", decided.workflow, if decided.changed { is } else { was }),
    }
    Ok(())
}
