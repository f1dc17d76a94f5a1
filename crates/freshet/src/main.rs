//! The `freshet` program.

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    match freshet::cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("freshet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
