//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{FromArgMatches, Parser, Subcommand};

use crate::advise::{self, AdviseArgs};
use crate::bypass::{self, BypassArgs};
use crate::check::{self, CheckArgs};
use crate::config::{self, ConfigCommand, Fault};
use crate::doctor::{self, DoctorArgs};
use crate::exit::{self, Failure};
use crate::handover::Predecessor;
use crate::logging::{self, LogFormat};
use crate::memory::{self, MemoryArgs};
use crate::otlp;
use crate::pages::{self, PagesArgs};
use crate::probe::{self, ProbeArgs};
use crate::serve::{self, ServeArgs};
use crate::top::{self, TopArgs};
use crate::uninstall::{self, UninstallArgs};
use crate::version;
use crate::web;

/// A drop-in SQL cache for PostgreSQL, MySQL and MariaDB: repeated reads come from the cache, and every answer stays true.
#[derive(Debug, Parser)]
#[command(version, long_version = version::long(), about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log: error, warn, info, debug, trace, or a filter such as freshet_replication=debug
    #[arg(long, global = true, default_value = "info", env = "FRESHET_LOG")]
    log: String,
    /// How lines of the log are written: text, or one JSON object each
    #[arg(long, global = true, value_enum, default_value = "text", env = "FRESHET_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the cache in front of a database
    Serve(Box<ServeArgs>),
    /// Print what a configuration can hold, or make one from PgBouncer's
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Say what a database lacks for every guarantee, and the statements that mend it
    Check(Box<CheckArgs>),
    /// Take out of a database what Freshet made there
    Uninstall(UninstallArgs),
    /// Say which statements pass a running Freshet, what the database takes for them, and what would make them cacheable
    Advise(AdviseArgs),
    /// Show what a running Freshet does, as the dashboard does, in a terminal
    Top(TopArgs),
    /// Switch a running Freshet's cache off or on again. A restart sets it to `serve --bypass` again
    Bypass(BypassArgs),
    /// Give a running Freshet another memory limit. A restart sets it to --memory again
    Memory(MemoryArgs),
    /// Ask a running Freshet's probe; the exit code is 0 for yes, as health checks of containers want it
    Probe(ProbeArgs),
    /// Print a report of this installation without secrets: version, machine, limits, configuration, status, log
    Doctor(DoctorArgs),
    /// Write the manual pages and the completions of shells
    #[command(hide = true)]
    Pages(PagesArgs),
}

/// Runs the command of the process's command line.
pub fn run() -> ExitCode {
    try_run().unwrap_or_else(|error| exit::report(&error, Failure::Command))
}

fn try_run() -> Result<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = match config::command().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let faults = if error.use_stderr() { config::environment_faults() } else { Vec::new() };
            if faults.is_empty() {
                error.exit();
            }
            return Ok(refused(&faults));
        }
    };
    if matches.subcommand_name() == Some("serve") {
        return Ok(serve_configured(arguments).unwrap_or_else(|error| exit::report(&error, Failure::Config)));
    }
    let cli = Cli::from_arg_matches(&matches)?;
    let _ = logging::start(logging::filter(&cli.log).context("--log")?, cli.log_format);
    let runtime = runtime()?;
    match cli.command {
        Command::Config { command } => return config::run(&command),
        Command::Serve(_) => {}
        Command::Check(args) => return Ok(runtime.block_on(check::run(*args))),
        Command::Uninstall(args) => return Ok(runtime.block_on(uninstall::run(args))),
        Command::Advise(args) => runtime.block_on(advise::run(args))?,
        Command::Top(args) => runtime.block_on(top::run(args))?,
        Command::Bypass(args) => runtime.block_on(bypass::run(args))?,
        Command::Memory(args) => runtime.block_on(memory::run(args))?,
        Command::Probe(args) => return runtime.block_on(probe::run(args)),
        Command::Doctor(args) => runtime.block_on(doctor::run(args))?,
        Command::Pages(args) => pages::write(&args, &config::command())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Sessions have their own threads; this runtime runs the services.
fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn refused(faults: &[Fault]) -> ExitCode {
    for fault in faults {
        eprintln!("{fault}");
    }
    Failure::Config.into()
}

fn serve_configured(arguments: Vec<OsString>) -> Result<ExitCode> {
    let config = match config::read(&arguments) {
        Ok(config) => config,
        Err(faults) => return Ok(refused(&faults)),
    };
    let filter = logging::filter(&config.log).context("--log")?;
    let set_filter = logging::start(filter, config.log_format);
    if config.args.check_config {
        web::try_out(&config.args.web)?;
        otlp::try_out(&config.args.otlp)?;
        serve::databases::try_out(&config)?;
        println!("the configuration can be used");
        return Ok(ExitCode::SUCCESS);
    }
    config.warn_of_passwords();
    let before = Predecessor::of_environment()?;
    runtime()?.block_on(serve::run(arguments, config, set_filter, before))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        config::command().debug_assert();
    }
}
