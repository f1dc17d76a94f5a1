//! The command at hand: what is known of it beside its bytes, until its answer has come.

use std::sync::Arc;

use freshet_sql::{Code, TraceParent};
use freshet_types::Catalog;

use crate::mysql::session::diagnostics::Counting;
use crate::mysql::session::temporaries::Reading;

/// The command at hand.
#[derive(Default)]
pub(super) struct AtHand {
    /// What goes to the server in its place.
    pub(super) rewritten: Option<Vec<u8>>,
    /// What it may make, if it is not known what it is.
    pub(super) unread: Option<Arc<Code>>,
    /// The catalogue before it was sent, if it may run code.
    pub(super) code_before: Option<Arc<Catalog>>,
    /// Reads it on its way.
    pub(super) reading: Option<Reading>,
    /// Reads on the way of its answer what FOUND_ROWS() will say.
    pub(super) counting: Option<Counting>,
    /// The label of the reason for which it passes.
    pub(super) passed_for: &'static str,
    /// The trace that its text names, while there are spans.
    pub(super) trace: Option<TraceParent>,
}
