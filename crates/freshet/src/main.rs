//! The `freshet` program.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match freshet::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("freshet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
