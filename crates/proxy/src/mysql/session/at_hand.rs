//! The current command: what is known of it, besides its bytes, until its answer has come.

use std::sync::Arc;

use freshet_sql::{Code, TraceParent};
use freshet_types::{Catalog, Nanos};

use crate::mysql::session::diagnostics::Counting;
use crate::mysql::session::source::Source;
use crate::mysql::session::temporaries::Reading;
use crate::session::time_limit::TimeLimit;

/// The current command.
#[derive(Default)]
pub(super) struct AtHand {
    /// What is sent to the server instead of so many of its first bytes.
    pub(super) rewritten: Option<(Vec<u8>, usize)>,
    /// The error that answers it. It is not sent.
    pub(super) refused: Option<Vec<u8>>,
    /// The number of the statement that it prepares, if that is the session's own.
    pub(super) number: Option<u32>,
    /// The temporary tables that it may make, if the statement is not known.
    pub(super) unread: Option<Arc<Code>>,
    /// The answer to the question for the text that it prepares or executes is due.
    pub(super) source_asked: Option<Source>,
    /// The code in that text.
    pub(super) source: Option<Arc<Code>>,
    /// The catalogue before it was sent, if it may run code.
    pub(super) code_before: Option<Arc<Catalog>>,
    /// Parses its words while it is forwarded.
    pub(super) reading: Option<Reading>,
    /// Reads the result of FOUND_ROWS() while the answer is forwarded.
    pub(super) counting: Option<Counting>,
    /// It executes a prepared statement.
    pub(super) is_prepared: bool,
    /// The label of the reason for which it passes.
    pub(super) passed_for: &'static str,
    /// After so long the server is asked to cancel it; None as soon as the time has begun.
    pub(super) timeout: Option<Nanos>,
    /// Its time has begun.
    pub(super) time_limit: Option<TimeLimit>,
    /// The trace that its text names, while there are spans.
    pub(super) trace: Option<TraceParent>,
}
