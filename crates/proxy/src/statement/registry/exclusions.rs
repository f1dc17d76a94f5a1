//! What decides how a normalized query is cached, besides its analysis.

use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::rules::Candidates;

/// What decides how a normalized query is cached.
#[derive(Debug, Default)]
pub(super) struct Exclusions {
    /// An answer of it was wrong.
    pub(super) disabled: AtomicBool,
    /// The rules that match it.
    pub(super) candidates: Candidates,
    /// See [`super::NormalizedQuery::ttl`]; 0: none.
    pub(super) ttl: AtomicU64,
}
