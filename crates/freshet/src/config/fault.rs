//! Faults of a configuration, with their places.

use std::fmt;
use std::path::PathBuf;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line and a column of the file, both counted from 1. 0 is the file as a whole.
    File { path: PathBuf, line: usize, column: usize },
    /// An option of the command line.
    Option(String),
    /// A variable of the environment.
    Variable(String),
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    /// The key, if the fault is in its value.
    pub(crate) key: Option<String>,
    /// The fault and the expected value.
    pub(crate) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { path, line: 0, .. } => write!(f, "{}: ", path.display())?,
            Place::File { path, line, column } => write!(f, "{}:{line}:{column}: ", path.display())?,
            Place::Option(name) => return write!(f, "--{name}: {}", self.text),
            Place::Variable(name) => return write!(f, "{name}: {}", self.text),
        }
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// All faults, one in each line.
pub(crate) fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
