//! `freshet probe`: asks a running Freshet's probes, for containers that have no other program to ask with.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::endpoint::{Endpoint, EndpointArgs};
use crate::exit::Failure;

/// Options of `freshet probe`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// What to ask
    #[arg(value_enum, default_value = "ready")]
    probe: Probe,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Probe {
    /// The process runs
    Live,
    /// Statements are answered, cached or not
    Ready,
    /// Results are cached
    Cache,
}

/// Prints the answer. The exit code is 0 for yes.
pub(crate) async fn run(args: ProbeArgs) -> Result<ExitCode> {
    let path = match args.probe {
        Probe::Live => "/livez",
        Probe::Ready => "/readyz",
        Probe::Cache => "/cachez",
    };
    let (status, body) = Endpoint::new(&args.endpoint)?.get(path).await?;
    print!("{body}");
    Ok(if status == 200 { ExitCode::SUCCESS } else { Failure::Command.into() })
}
