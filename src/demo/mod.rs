//! demo
pub mod broker;
#[derive(Debug, clap::Args)]
pub struct Flags {}
pub fn run(_flags: &Flags) -> Result<(), crate::cli::Failure> {
    Ok(())
}
