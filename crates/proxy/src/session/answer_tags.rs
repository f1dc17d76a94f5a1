//! Deferred tags from the rows of an answer.

use freshet_sql::{AnswerEnd, Bound, Field, JoinKeys, Keys, LastRowFinder, LimitBound};
use freshet_types::Tag;

/// The tags that depend on the answer.
#[derive(Debug)]
pub(crate) struct AnswerTags {
    limit_bound: Option<LimitBound>,
    keys: Option<Keys>,
    derived_limit: Option<LastRowFinder>,
}

impl AnswerTags {
    /// Takes from the dependencies of an execution those that its answer will give; None if there are none.
    pub(crate) fn of(bound: &mut Bound) -> Option<Self> {
        let (limit_bound, keys, derived_limit) =
            (bound.limit_bound.take(), bound.keys.take(), bound.derived_limit.take());
        (limit_bound.is_some() || keys.is_some()).then_some(Self { limit_bound, keys, derived_limit })
    }

    /// The columns of the answer that are read.
    pub(crate) fn columns(&self) -> impl Iterator<Item = usize> {
        self.limit_bound.iter().map(LimitBound::column).chain(self.keys.iter().flat_map(Keys::columns))
    }

    /// Whether all rows are read; otherwise only the last one is.
    pub(crate) fn reads_all_rows(&self) -> bool {
        self.keys.is_some() || self.derived_limit.is_some()
    }

    /// The deferred tags of an answer with these rows, which may also bound the rows whose keys must be read. `read` returns the values of a row.
    pub(crate) fn tags<'a, R, I: Iterator<Item = R>>(
        &self,
        rows: impl Fn() -> I,
        read: impl Fn(&R) -> Vec<Field<'a>>,
        mut join_keys: Option<&mut JoinKeys>,
    ) -> Vec<Tag> {
        let end = AnswerEnd::of(self.derived_limit.as_ref(), rows(), &read);
        if let Some(join_keys) = join_keys.as_deref_mut() {
            join_keys.bound_by_last(end.rows, &end.last);
        }
        let by_last = self.limit_bound.iter().flat_map(|limit_bound| limit_bound.deferred_tags(end.rows, &end.last));
        let by_all =
            self.keys.iter().flat_map(|keys| keys.deferred_tags(rows(), &read, &end, join_keys.as_deref_mut()));
        by_last.chain(by_all).collect()
    }
}
