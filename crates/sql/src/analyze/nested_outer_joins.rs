//! Outer joins inside derived tables that conditions outside make inner ones.
//!
//! `FROM (SELECT … FROM l LEFT JOIN r ON l.k = r.k) q WHERE q.c = 1`, c being a column of r: the condition is what it were at the top of q's
//! own WHERE (`derived.rs`), where it would make an inner join of the outer one (`outer_joins.rs`). That is known only when q has been
//! walked. So of each LEFT JOIN that is left in a block it is noted what its ON says of the left side if the right side has to be there, and
//! the notes go with the columns of the block. Where a condition outside is true with no NULL in the place of such a column, and bounds
//! the item, the notes of that item count for which this column's reference is on the right side. Their ON must be true then, so they may
//! make others count in turn, of the same block and of those inside.
//!
//! The column must be one by which conditions reach the rows of the reference: so never through LIMIT, aggregates or a common table
//! expression that is referred to twice. A note is for conditions outside of its own block only: `x LEFT JOIN q ON q.c = 1` makes
//! inner joins in q, and leaves this one as it is.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::analyze::Walk;
use crate::analyze::outer_joins::{Clause, Condition, Kind};
use crate::analyze::scope::{Reference, Source};
use crate::analyze::shown::{Note, Shown};

/// Notes of one block; without the others more rows matter.
const NOTES_MAX: usize = 32;

impl Walk<'_> {
    /// The notes of the innermost block, whose conditions bound what they bound.
    pub(crate) fn notes(&mut self, conditions: &[Condition<'_>]) -> Vec<Note> {
        let mut notes = Vec::new();
        for condition in conditions {
            let needed: Vec<_> = self.rejected_by(condition).into_iter().collect();
            let there = |items: &Range<usize>| {
                let rows = needed.iter().filter(|(item, _)| items.contains(item)).filter_map(|(_, row)| *row);
                rows.collect::<BTreeSet<usize>>()
            };
            self.count_notes(&condition.bounded, there(&condition.bounded));
            if let Some(join) = condition.join.as_ref().filter(|join| join.kind == Kind::Left) {
                let right = self.rows_behind(&join.right);
                let bounds = match &condition.clause {
                    Clause::On(expr) => self.bounds_of(expr, &join.left).0,
                    Clause::Using(names) => self.bounds_of_using(names, join, &join.left),
                };
                notes.push(Note { right, bounds, there: there(&(join.left.start..join.right.end)) });
            }
        }
        let items = self.scope.blocks.last_mut().map_or(&mut [][..], |block| &mut block.references);
        notes.extend(items.iter_mut().flat_map(|item| std::mem::take(&mut item.shown.notes)));
        notes.truncate(NOTES_MAX);
        notes
    }

    /// The references behind the columns of some items.
    fn rows_behind(&self, items: &Range<usize>) -> BTreeSet<usize> {
        let items = self.scope.blocks.last().and_then(|block| block.references.get(items.clone())).unwrap_or_default();
        let of_table = |item: &Reference| match &item.source {
            Source::Table { places, .. } => places.clone(),
            Source::Opaque => 0..0,
        };
        let of_columns = items.iter().flat_map(|item| &item.shown.columns).flat_map(|column| &column.reached);
        items.iter().flat_map(of_table).chain(of_columns.map(|reached| reached.origin.place)).collect()
    }

    /// Counts the notes of these items for which one of these references is there.
    fn count_notes(&mut self, items: &Range<usize>, mut there: BTreeSet<usize>) {
        let items = self.scope.blocks.last_mut().and_then(|block| block.references.get_mut(items.clone()));
        let items = items.into_iter().flatten();
        let counted: Vec<Note> = items.flat_map(|item| take_counted(&mut item.shown, &mut there)).collect();
        for note in counted {
            self.add_bounds(note.bounds);
        }
    }
}

/// The notes that count, taken from the others; adds what is there by their ON.
fn take_counted(shown: &mut Shown, there: &mut BTreeSet<usize>) -> Vec<Note> {
    let mut counted = Vec::new();
    while let Some(at) = shown.notes.iter().position(|note| !note.right.is_disjoint(there)) {
        let note = shown.notes.swap_remove(at);
        there.extend(&note.there);
        counted.push(note);
    }
    counted
}
