//! `oncebox-proof`: runs the relay under faults, and checks what happened against what was promised.
//!
//! Files in reading order: `plan` (which faults), `nemesis` (how), `servers`, `postgres`, `proxy`, `receiver`, `load`, `relay` (who
//! takes part), `evidence` (what they leave behind), `check` (what is made of it), `chaos` (one run from start to verdict);
//! `order` and `isolation` (two runs of their own); `bench` (what it costs).

mod bench;
mod chaos;
mod check;
mod evidence;
mod isolation;
mod load;
mod nemesis;
mod order;
mod plan;
mod postgres;
mod proxy;
mod receiver;
mod relay;
mod servers;
mod topic;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The relay's: the bare client that it is compared with is to lose nothing by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "oncebox-proof", about = "Runs Oncebox under faults and checks what happened.")]
enum Arguments {
    /// One run with faults, checked.
    Chaos(chaos::Flags),
    /// A million events over 10,000 ordering keys, with failures, kills and rebalances.
    Order(order::Flags),
    /// A hundred workflows, one of them with an endpoint that takes 30 seconds.
    Isolation(isolation::Flags),
    /// Throughput, latency and cost, compared with the bare work.
    Bench(bench::Flags),
    /// A bare client that sends one request over and over.
    Bare(bench::bare::Flags),
    /// Check a folder of evidence again.
    Check {
        /// What a run left behind.
        folder: PathBuf,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let held = match Arguments::parse() {
        Arguments::Chaos(flags) => tokio::runtime::Runtime::new()?.block_on(chaos::run(&flags))?,
        Arguments::Order(flags) => tokio::runtime::Runtime::new()?.block_on(order::run(&flags))?,
        Arguments::Isolation(flags) => tokio::runtime::Runtime::new()?.block_on(isolation::run(&flags))?,
        Arguments::Bench(flags) => tokio::runtime::Runtime::new()?.block_on(bench::run(&flags))?,
        Arguments::Bare(flags) => tokio::runtime::Runtime::new()?.block_on(bench::bare::run(&flags))?,
        Arguments::Check { folder } => {
            let (case, report) = check::check(&folder)?;
            println!("{}", check::summary(&case, &report));
            report.violations.is_empty()
        }
    };
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
