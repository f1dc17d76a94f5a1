//! The command line.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::advise::{self, AdviseArgs};
use crate::bypass::{self, BypassArgs};
use crate::check::{self, CheckArgs};
use crate::memory::{self, MemoryArgs};
use crate::serve::{self, ServeArgs};
use crate::uninstall::{self, UninstallArgs};

/// A drop-in SQL cache for PostgreSQL, MySQL and MariaDB: repeated reads come from the cache, and every answer stays true.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log: error, warn, info, debug, trace, or a filter such as freshet_replication=debug
    #[arg(long, global = true, default_value = "info", env = "FRESHET_LOG")]
    log: String,
    /// How lines of the log are written: text, or one JSON object each
    #[arg(long, global = true, value_enum, default_value = "text", env = "FRESHET_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the cache in front of a database
    Serve(Box<ServeArgs>),
    /// Say what a database lacks for every guarantee, and the statements that mend it
    Check(CheckArgs),
    /// Take out of a database what Freshet made there
    Uninstall(UninstallArgs),
    /// Say which statements pass a running Freshet, what the database takes for them, and what would make them cacheable
    Advise(AdviseArgs),
    /// Switch a running Freshet's cache off or on again. This is not kept: after a restart it is as `serve --bypass` says
    Bypass(BypassArgs),
    /// Give a running Freshet another memory limit. This is not kept: after a restart it is what --memory says
    Memory(MemoryArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        let filter = EnvFilter::from_str(&self.log).with_context(|| format!("--log {:?} is not a filter", self.log))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
        // Sessions have their own threads; this runtime runs the services.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match self.command {
            Command::Serve(args) => runtime.block_on(serve::run(*args))?,
            Command::Check(args) => return Ok(runtime.block_on(check::run(args))),
            Command::Uninstall(args) => return Ok(runtime.block_on(uninstall::run(args))),
            Command::Advise(args) => runtime.block_on(advise::run(args))?,
            Command::Bypass(args) => runtime.block_on(bypass::run(args))?,
            Command::Memory(args) => runtime.block_on(memory::run(args))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
