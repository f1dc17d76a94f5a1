//! The path of the measured `freshet` program.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The program in `FRESHET_BIN`, otherwise the one in this program's directory.
pub(crate) fn freshet() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FRESHET_BIN") {
        return Ok(named.into());
    }
    let program = std::env::current_exe().context("the path of this program")?.with_file_name("freshet");
    ensure!(
        program.exists(),
        "{} does not exist: cargo build --release --package freshet, or set FRESHET_BIN",
        program.display()
    );
    Ok(program)
}
