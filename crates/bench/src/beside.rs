//! The `freshet` program that is measured.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The one that `FRESHET_BIN` names, else the one beside this program.
pub(crate) fn freshet() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FRESHET_BIN") {
        return Ok(named.into());
    }
    let program = std::env::current_exe().context("the path of this program")?.with_file_name("freshet");
    ensure!(program.exists(), "no {}: cargo build --release --package freshet, or set FRESHET_BIN", program.display());
    Ok(program)
}
