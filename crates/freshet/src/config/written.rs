//! The text of a configuration file, with positions in it.

use std::ops::Range;
use std::path::PathBuf;

use toml::de::DeValue;

use crate::config::fault::{Fault, Place};

/// The least similarity of two names (Jaro) at which one is suggested for the other.
const ALIKE_MIN: f64 = 0.7;

/// A file's text.
pub(super) struct Written<'a> {
    pub(super) path: PathBuf,
    pub(super) text: &'a str,
}

impl Written<'_> {
    /// Line and column, both from 1.
    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        let (line, column) = self.position(span.start);
        Place::File { path: self.path.clone(), line, column }
    }

    pub(super) fn fault(&self, span: &Range<usize>, key: Option<String>, text: String) -> Fault {
        Fault { place: self.place(span), key, text }
    }
}

/// The most similar of these names, if one is similar enough.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.replace('-', "_");
    let alike = names.map(|known| (strsim::jaro(known, &name), known)).filter(|(alike, _)| *alike >= ALIKE_MIN);
    alike.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}

/// The type of a value in words.
pub(super) fn in_words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}
