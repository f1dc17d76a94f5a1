//! What the rows of an answer tell of the rows that matter to it.

use freshet_sql::{Bound, End, Field, Furthest, Keys, Lineage, Top};
use freshet_types::Tag;
use freshet_wire::pg::backend::{data_row, rows};
use freshet_wire::pg::frontend::Bind;

use crate::pg::session::decide::Execution;

/// What they tell, and how they are written.
#[derive(Debug)]
pub(crate) struct Shown {
    top: Option<Top>,
    keys: Option<Keys>,
    page: Option<Furthest>,
    /// The columns among those that tell which are in binary format.
    binary: Vec<usize>,
}

impl Shown {
    /// Takes from what an execution depends on what its answer will tell.
    pub(crate) fn of(bound: &mut Bound, execution: Execution<'_>) -> Option<Box<Self>> {
        let (top, keys, page) = (bound.top.take(), bound.keys.take(), bound.page.take());
        let of_keys = keys.iter().flat_map(Keys::columns);
        let mut binary: Vec<usize> = top.iter().map(Top::column).chain(of_keys).collect();
        if binary.is_empty() {
            return None;
        }
        binary.sort_unstable();
        binary.dedup();
        binary.retain(|column| match execution {
            Execution::Query(_) => false,
            // The server refuses what cannot be read here.
            Execution::Bound { tail, .. } => Bind::shows_binary(tail, *column).unwrap_or(true),
        });
        Some(Box::new(Self { top, keys, page, binary }))
    }

    /// The late tags of a whole answer, which may bound the rows whose keys are to be read.
    pub(crate) fn tags(&self, frames: &[u8], mut lineage: Option<&mut Lineage>) -> Vec<Tag> {
        let end = End::of(self.page.as_ref(), rows(frames), |row| self.fields(row));
        if let Some(lineage) = lineage.as_deref_mut() {
            lineage.bound_by_last(end.rows, &end.last);
        }
        let by_last = self.top.iter().flat_map(|top| top.late_tags(end.rows, &end.last));
        let by_all = self
            .keys
            .iter()
            .flat_map(|keys| keys.late_tags(rows(frames), |row| self.fields(row), &end, lineage.as_deref_mut()));
        by_last.chain(by_all).collect()
    }

    fn fields<'a>(&self, row: &'a [u8]) -> Vec<Field<'a>> {
        fields(&self.binary, row)
    }
}

/// The values of a row; none if it cannot be read. `binary`: the columns in that format, among those that are looked at.
pub(crate) fn fields<'a>(binary: &[usize], row: &'a [u8]) -> Vec<Field<'a>> {
    let field = |(at, value): (usize, Option<_>)| match value {
        None => Field::Null,
        Some(bytes) if binary.contains(&at) => Field::Binary(bytes),
        Some(bytes) => Field::Text(bytes),
    };
    data_row(row).unwrap_or_default().into_iter().enumerate().map(field).collect()
}
