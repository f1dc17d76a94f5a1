//! What may keep a normalized query from being cached, besides its analysis.

use std::sync::atomic::AtomicBool;

use crate::rules::Candidates;

/// What may keep a normalized query from being cached.
#[derive(Debug, Default)]
pub(super) struct Exclusions {
    /// An answer of it was wrong.
    pub(super) disabled: AtomicBool,
    /// The rules that match it.
    pub(super) candidates: Candidates,
}
