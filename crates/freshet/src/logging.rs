//! What is logged, and to where.

use std::io::IsTerminal as _;
use std::str::FromStr as _;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Sets what is logged from now on.
pub(crate) type SetFilter = Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>;

/// Understands a filter.
pub(crate) fn filter(text: &str) -> Result<EnvFilter> {
    EnvFilter::from_str(text)
        .with_context(|| format!("{text:?} is not a filter such as info or freshet_replication=debug"))
}

/// How a line is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Logs to the standard error from now on.
pub(crate) fn start(filter: EnvFilter, format: LogFormat) -> SetFilter {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
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
