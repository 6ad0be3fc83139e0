//! Arguments in, exit code out. The only exit: 0 fine, 1 failed, 2 usage or configuration.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    oncebox::cli::main(oncebox::cli::Arguments::parse())
}
