//! A run that is shown, with its name.

use std::path::Path;

use crate::result::Run;

/// A run that is shown.
#[derive(Debug)]
pub struct Entry {
    /// Name of its files.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// What was measured.
    pub run: Run,
}

impl Entry {
    /// Of a document's path. The title is its workloads'.
    pub fn of(path: &Path, run: Run) -> Self {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { title: super::markdown::title(&run), name, run }
    }
}
