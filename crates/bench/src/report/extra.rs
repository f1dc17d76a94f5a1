//! Documents other than runs: cards of access paths, and sizings of a cache.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::read;
use crate::card::Cards;
use crate::result::Run;
use crate::sizing::Sizing;

/// A document other than a run.
#[derive(Clone, Debug)]
pub enum Extra {
    /// Cards of `freshet-bench card`.
    Cards(Cards),
    /// A sizing of `freshet-bench sizing`.
    Sizing(Sizing),
}

impl Extra {
    /// The runs that it contains.
    pub(super) fn runs(&self) -> Vec<&Run> {
        match self {
            Self::Cards(cards) => {
                cards.statements.iter().flat_map(|card| &card.levels).map(|level| &level.run).collect()
            }
            Self::Sizing(sizing) => sizing.runs.iter().collect(),
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::Cards(cards) => format!("Access paths of {}", cards.workload),
            Self::Sizing(sizing) => format!("Memory for {}", sizing.workload),
        }
    }

    pub(super) fn json(&self) -> String {
        match self {
            Self::Cards(cards) => serde_json::to_string(cards),
            Self::Sizing(sizing) => serde_json::to_string(sizing),
        }
        .unwrap_or_default()
    }
}

/// The contents of a file.
#[derive(Debug)]
pub enum Document {
    /// A run.
    Run(Box<Run>),
    /// A document other than a run.
    Extra(Box<Extra>),
}

/// Reads a document of any kind.
pub fn read_any(path: &Path) -> Result<Document> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let known = serde_json::from_str::<Value>(&text).ok();
    let has = |name: &str| known.as_ref().is_some_and(|value| value.get(name).is_some());
    let named = || format!("{} cannot be read", path.display());
    Ok(match () {
        () if has("cards") => Document::Extra(Box::new(Extra::Cards(serde_json::from_str(&text).with_context(named)?))),
        () if has("sizing") => {
            Document::Extra(Box::new(Extra::Sizing(serde_json::from_str(&text).with_context(named)?)))
        }
        () => Document::Run(Box::new(read(path)?)),
    })
}
