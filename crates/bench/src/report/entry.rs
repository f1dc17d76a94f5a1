//! A run in a report, with its name.

use std::path::Path;

use crate::result::Run;

/// A run in a report.
#[derive(Debug)]
pub struct Entry {
    /// Name of the run's files.
    pub name: String,
    /// Title of the run.
    pub title: String,
    /// The measurements.
    pub run: Run,
}

impl Entry {
    /// The entry of the document at this path. The title consists of the workloads' names.
    pub fn of(path: &Path, run: Run) -> Self {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { title: super::markdown::title(&run), name, run }
    }
}
