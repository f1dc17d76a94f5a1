//! The `freshet` program.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match freshet::cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("freshet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
