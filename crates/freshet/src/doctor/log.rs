//! The last lines of the log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;

use super::DoctorArgs;

/// The end of a file that is read.
const TAIL_BYTES_MAX: u64 = 1 << 20;

/// The last lines, or why there are none.
pub(super) fn tail(args: &DoctorArgs) -> String {
    let tail = match &args.log_file {
        Some(path) => of_file(path, args.lines).map_err(|error| format!("{} cannot be read: {error}", path.display())),
        None => of_journal(&args.unit, args.lines),
    };
    tail.unwrap_or_else(|why| why)
}

fn of_file(path: &Path, count: usize) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n"))
}

fn of_journal(unit: &str, count: usize) -> Result<String, String> {
    let count = count.to_string();
    let arguments = ["--unit", unit, "--lines", &count, "--no-pager", "--output", "short-iso", "--quiet"];
    let remedy = "--log-file FILE shows the end of a file";
    let output = Command::new("journalctl").args(arguments).output();
    let output = output.map_err(|error| format!("journalctl cannot be run: {error}; {remedy}"))?;
    let said = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
    match said.trim_end() {
        "" => Err(format!("systemd has no log of the unit {unit} that this user may read; {remedy}")),
        said => Ok(said.to_owned()),
    }
}
