//! `freshet pages`: manual pages and completions of shells.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Command;

/// Options of `freshet pages`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PagesArgs {
    /// The directory to write to; it is made
    directory: PathBuf,
}

/// Writes the pages and the completions.
pub(crate) fn write(PagesArgs { directory }: &PagesArgs, command: &Command) -> Result<()> {
    let written = freshet_pages::write(directory, command, crate::version::VERSION);
    written.with_context(|| format!("{} cannot be written", directory.display()))
}
