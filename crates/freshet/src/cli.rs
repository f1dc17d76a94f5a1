//! The command line.

use std::io::IsTerminal;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::demo::{self, DemoArgs};
use crate::serve::{self, ServeArgs};

/// A drop-in SQL cache for PostgreSQL: repeated reads come from memory, and every answer stays true.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log: error, warn, info, debug, trace, or a filter such as freshet_stream=debug
    #[arg(long, global = true, default_value = "info", env = "FRESHET_LOG")]
    log: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the cache in front of a database
    Serve(ServeArgs),
    /// Show the cache at work on a throw-away PostgreSQL: the same load direct and cached
    Demo(DemoArgs),
}

impl Cli {
    /// Runs what was asked for.
    pub fn run(self) -> Result<()> {
        let filter = EnvFilter::from_str(&self.log).with_context(|| format!("--log {:?} is not a filter", self.log))?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
        // Sessions have threads of their own; this runtime carries the services.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match self.command {
            Command::Serve(args) => runtime.block_on(serve::run(args)),
            Command::Demo(args) => runtime.block_on(demo::run(args)),
        }
    }
}

/// A number of bytes: `512MiB`, `2GiB`, `65536`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return Err(format!("unknown unit in {text:?}: use KiB, MiB or GiB")),
        };
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// A span of time: `1s`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub std::time::Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("{text:?} is not a time: use 250ms or 1s");
        let (number, millis) = match text.strip_suffix("ms") {
            Some(number) => (number, 1),
            None => (text.strip_suffix('s').ok_or_else(unknown)?, 1000),
        };
        let number: u64 = number.trim().parse().map_err(|_| unknown())?;
        Ok(Self(std::time::Duration::from_millis(number.saturating_mul(millis))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_read() {
        assert_eq!("512MiB".parse(), Ok(MemorySize(512 << 20)));
        assert_eq!("2g".parse(), Ok(MemorySize(2 << 30)));
        assert_eq!("100".parse(), Ok(MemorySize(100)));
        assert!("much".parse::<MemorySize>().is_err());
        assert!("5 parsecs".parse::<MemorySize>().is_err());
        assert_eq!("250ms".parse(), Ok(Span(std::time::Duration::from_millis(250))));
        assert_eq!("2s".parse(), Ok(Span(std::time::Duration::from_secs(2))));
        assert!("2".parse::<Span>().is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
