//! The `freshet-bench` program.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match freshet_bench::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("freshet-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
