//! The dependencies that the rows of an answer show, and the formats of these rows.

use freshet_sql::{Bound, Field, JoinKeys};
use freshet_types::Tag;
use freshet_wire::postgres::backend::{data_row, rows};
use freshet_wire::postgres::frontend::Bind;

use crate::postgres::session::execution::Execution;
use crate::session::answer_tags::AnswerTags;

/// These dependencies, and the formats.
#[derive(Debug)]
pub(crate) struct Shown {
    tags: AnswerTags,
    /// The columns of them that are in binary format.
    binary: Vec<usize>,
}

impl Shown {
    /// Takes from the dependencies of an execution those that its answer will show.
    pub(crate) fn of(bound: &mut Bound, execution: Execution<'_>) -> Option<Box<Self>> {
        let tags = AnswerTags::of(bound)?;
        let mut binary: Vec<usize> = tags.columns().collect();
        if binary.is_empty() {
            return None;
        }
        binary.sort_unstable();
        binary.dedup();
        binary.retain(|column| match execution {
            Execution::Query(_) => false,
            // The server refuses what cannot be parsed here.
            Execution::Bound { tail, .. } => Bind::shows_binary(tail, *column).unwrap_or(true),
        });
        Some(Box::new(Self { tags, binary }))
    }

    /// The deferred tags of a whole answer, which may also bound the rows whose keys are read.
    pub(crate) fn tags(&self, frames: &[u8], join_keys: Option<&mut JoinKeys>) -> Vec<Tag> {
        self.tags.tags(|| rows(frames), |row| fields(&self.binary, row), join_keys)
    }
}

/// The values of a row; empty if it cannot be read. `binary`: the columns in that format, among those that are read.
pub(crate) fn fields<'a>(binary: &[usize], row: &'a [u8]) -> Vec<Field<'a>> {
    let field = |(at, value): (usize, Option<_>)| match value {
        None => Field::Null,
        Some(bytes) if binary.contains(&at) => Field::Binary(bytes),
        Some(bytes) => Field::Text(bytes),
    };
    data_row(row).unwrap_or_default().into_iter().enumerate().map(field).collect()
}
