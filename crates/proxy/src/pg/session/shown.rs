//! What the last row of an answer tells of the rows behind it.

use freshet_model::Tag;
use freshet_sql::{Field, Top};
use freshet_wire::pg::backend::{data_row, last_row};
use freshet_wire::pg::frontend::Bind;

use crate::pg::session::decide::Execution;

/// What it tells, and how it is written.
#[derive(Debug)]
pub(crate) struct Shown {
    top: Top,
    /// The column that tells is in binary format.
    binary: bool,
}

impl Shown {
    pub(crate) fn of(top: Option<Top>, execution: Execution<'_>) -> Option<Box<Self>> {
        let top = top?;
        let binary = match execution {
            Execution::Query(_) => false,
            // The server refuses what cannot be read here.
            Execution::Bound { tail, .. } => Bind::shows_binary(tail, top.column()).unwrap_or(true),
        };
        Some(Box::new(Self { top, binary }))
    }

    /// The late tags of a whole answer.
    pub(crate) fn tags(&self, frames: &[u8]) -> Vec<Tag> {
        let (rows, last) = last_row(frames);
        let values = last.and_then(|row| data_row(row).ok()).unwrap_or_default();
        let field = |value: Option<_>| match value {
            None => Field::Null,
            Some(bytes) if self.binary => Field::Binary(bytes),
            Some(bytes) => Field::Text(bytes),
        };
        self.top.late_tags(rows, &values.into_iter().map(field).collect::<Vec<_>>())
    }
}
