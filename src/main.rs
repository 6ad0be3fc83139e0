//! Arguments in, exit code out. The only exit: 0 fine, 1 failed, 2 usage or configuration.

use std::process::ExitCode;

use clap::Parser;

/// A request makes some fifty small pieces of memory, and frees them on another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    oncebox::cli::main(oncebox::cli::Arguments::parse())
}
