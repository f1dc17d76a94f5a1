//! The log: its filter and its output.

use std::io::{self, IsTerminal as _, Write};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Changes the filter of the log.
pub(crate) type SetFilter = Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>;

/// Parses a filter.
pub(crate) fn filter(text: &str) -> Result<EnvFilter> {
    EnvFilter::from_str(text)
        .with_context(|| format!("{text:?} is not a filter such as info or freshet_replication=debug"))
}

/// The form of a line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Number of lines that could not be written.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// The standard error. Failed writes can be reported nowhere, so they are counted.
struct Output(io::Stderr);

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(line).inspect_err(|_| _ = DROPPED.fetch_add(1, Relaxed))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Logs to the standard error from now on.
pub(crate) fn start(filter: EnvFilter, format: LogFormat) -> SetFilter {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Output(io::stderr()));
    match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| Ok(handle.reload(filter)?))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| Ok(handle.reload(filter)?))
        }
    }
}
