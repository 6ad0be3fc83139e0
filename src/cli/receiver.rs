//! `oncebox receiver`: the reference receiver, well-behaved or not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Failure, block_on};
use crate::config::{Secret, SigningKey};
use crate::observe::chain;
use crate::receiver::{Behaviour, Receiver, Seen};

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Where every request is logged, one JSON line each.
    #[arg(long, default_value = "receiver.jsonl")]
    log_file: PathBuf,
    /// A Standard Webhooks secret; a request that none of them signed is answered 401. Best as '${NAME}' or
    /// '${file:/path}' in single quotes: what the shell fills in, `ps` shows.
    #[arg(long = "secret", value_name = "SECRET", value_parser = unprinted)]
    secrets: Vec<Secret>,
    /// The share of requests that fail, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    fail: f64,
    /// The share of requests that are processed and whose answer is lost.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    lose: f64,
    /// The share of requests that are closed unprocessed.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    close: f64,
    /// The status of a failure.
    #[arg(long, value_parser = clap::value_parser!(u16).range(200..600))]
    status: Option<u16>,
    /// Every answer waits this many milliseconds.
    #[arg(long, default_value_t = 0)]
    stall: u64,
    /// Die at the first request that is its key's attempt of this number.
    #[arg(long)]
    die_at_attempt: Option<u32>,
    /// Answer 200 to everything and only count, as fast as can be, for benchmarks; no log, no check of signatures.
    #[arg(long, conflicts_with_all = ["secrets", "fail", "lose", "close", "status", "stall", "die_at_attempt", "log_file"])]
    fast: bool,
}

pub fn run(flags: &Flags) -> Result<(), Failure> {
    if flags.fast {
        return block_on(async { Ok(crate::receiver::fast::serve(flags.listen).await?) });
    }
    let behaviour = Behaviour {
        fail: flags.fail,
        lose: flags.lose,
        close: flags.close,
        status: flags.status,
        stall: flags.stall,
        die_at_attempt: flags.die_at_attempt,
    };
    let keys = flags.secrets.iter().map(key).collect::<Result<Vec<SigningKey>, Failure>>()?;
    block_on(async {
        let decide = Arc::new(move |seen: &Seen| behaviour.decide(seen));
        let receiver = Receiver::verifying(flags.listen, &flags.log_file, decide, keys).await?;
        println!("receiver: listening on {}, logging to {}", receiver.address, flags.log_file.display());
        receiver.wait().await;
        Ok(())
    })
}

/// Fails at nothing: clap would print the value.
fn unprinted(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

fn key(written: &Secret) -> Result<SigningKey, Failure> {
    let secret = Secret::from_references(written.expose())
        .map_err(|error| Failure::Usage(format!("--secret: {}", chain(&error))))?;
    SigningKey::read(&secret).map_err(|error| {
        Failure::Usage(format!("--secret: {error}; allowed: whsec_ and the base64 of 24 to 64 random bytes"))
    })
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "a share from 0 to 1".to_owned())
}
