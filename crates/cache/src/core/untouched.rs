//! Whether no delivered commit behind a position touches a statement: what a replica that lags may answer.
//!
//! Unproven commits count like proven ones: the replica may lack both. A result is as true as an entry that was filled at that position and that nothing has
//! invalidated since. So what removes such an entry counts, too: a publication that grew and a catalogue that was loaded after the position.

use freshet_types::{CatalogVersion, ChangeSet, Commit, Lsn, RowSet, TableId, Tag};

use crate::core::{Core, later};
use crate::freshness::Proven;
use crate::ring::{changes_match, touches};

/// Behind this position, the stream delivers all that matters to a statement of these tables under this catalogue.
#[derive(Debug)]
pub(super) struct Complete {
    publications: u64,
    catalog: Option<CatalogVersion>,
    since: Lsn,
}

/// A search among commits, which ends if it takes too long.
struct Search<'a> {
    tags: &'a [Tag],
    later: Vec<TableId>,
    changes_left: usize,
}

impl Search<'_> {
    /// So many commits are searched, and so many of their changes.
    const COMMITS_MAX: usize = 1_000;
    const CHANGES_MAX: usize = 10_000;

    /// Whether the commit does not touch the tags; false also if that would take too long to find out.
    fn passes(&mut self, commit: &Commit) -> bool {
        let ChangeSet::Rows(rows) = &commit.changes else { return false };
        let left = self.changes_left.checked_sub(rows.len());
        self.changes_left = left.unwrap_or(0);
        left.is_some() && !changes_match(self.tags, &commit.changes) && !touches(&commit.changes, &self.later)
    }
}

impl Core {
    /// This log end was asked for when this had been published, and this catalogue was in use.
    pub(crate) fn note_complete(&mut self, known: &Proven, since: Lsn) {
        let now = (self.publications, self.catalog);
        let is_known = self.complete.as_ref().is_some_and(|complete| (complete.publications, complete.catalog) == now);
        if (known.publications, known.catalog) == now && !is_known {
            self.complete = Some(Complete { publications: known.publications, catalog: known.catalog, since });
        }
    }

    /// Whether a statement with these tags, known under this catalogue, is touched by no delivered commit behind this position.
    pub(crate) fn is_untouched_since(&self, tags: &[Tag], catalog: CatalogVersion, position: Lsn) -> bool {
        let is_complete = self.complete.as_ref().is_some_and(|complete| {
            (complete.publications, complete.catalog) == (self.publications, Some(catalog))
                && complete.since <= position
        });
        let is_published = |tag: &Tag| tag.rows == RowSet::Definition || self.is_published(tag.table);
        if !is_complete
            || self.catalog != Some(catalog)
            || self.suspended
            || tags.is_empty()
            || !tags.iter().all(is_published)
            || self.redefinitions.touch(tags)
        {
            return false;
        }
        let unproven = self.pending.partition_point(|pending| pending.commit.end <= position);
        let unproven = self.pending.get(unproven..).unwrap_or_default();
        let Some(most) = Search::COMMITS_MAX.checked_sub(unproven.len()) else { return false };
        let Some(mut proven) = self.ring.few_since(position, most) else { return false };
        let mut search = Search { tags, later: later(tags), changes_left: Search::CHANGES_MAX };
        unproven.iter().all(|pending| search.passes(&pending.commit))
            && proven.all(|commit| commit.end <= position || search.passes(commit))
    }
}
