//! Nested outer joins: outer joins inside derived tables that conditions outside turn into inner joins.
//!
//! `FROM (SELECT … FROM l LEFT JOIN r ON l.k = r.k) q WHERE q.c = 1`, where c is a column of r: the condition is equivalent to one at the top of q's
//! own WHERE (`derived.rs`), where it would turn the outer join into an inner one (`outer_joins.rs`). This is known only after q has been walked. So
//! for each LEFT JOIN that remains in a block, a note says how its ON bounds the left side if a row of the right side must exist. The notes belong to
//! the columns of the block. If a condition outside bounds the item and is not true with NULL in such a column, those notes of the item apply whose
//! right side contains this column's reference. Their ON must then be true, so they may make further notes apply, of the same block and of inner
//! ones.
//!
//! The column must be one through which conditions reach the rows of the reference: so never through LIMIT, aggregates or a common table expression
//! that is referred to twice. A note is for conditions outside its own block only: `x LEFT JOIN q ON q.c = 1` turns joins in q into inner ones, and
//! leaves this one unchanged.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::analyze::Walk;
use crate::analyze::outer_joins::{Clause, Condition, Kind};
use crate::analyze::scope::{Reference, Source};
use crate::analyze::shown::{Note, Shown};

/// Limit of notes of one block; without further ones more rows matter.
const NOTES_MAX: usize = 32;

impl Walk<'_> {
    /// The notes of the innermost block, whose own conditions were applied.
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

    /// Applies the notes of these items whose right side contains one of these references.
    fn count_notes(&mut self, items: &Range<usize>, mut there: BTreeSet<usize>) {
        let items = self.scope.blocks.last_mut().and_then(|block| block.references.get_mut(items.clone()));
        let items = items.into_iter().flatten();
        let counted: Vec<Note> = items.flat_map(|item| take_counted(&mut item.shown, &mut there)).collect();
        for note in counted {
            self.add_bounds(note.bounds);
        }
    }
}

/// Removes the notes that apply and returns them; adds the references that exist because of their ON.
fn take_counted(shown: &mut Shown, there: &mut BTreeSet<usize>) -> Vec<Note> {
    let mut counted = Vec::new();
    while let Some(at) = shown.notes.iter().position(|note| !note.right.is_disjoint(there)) {
        let note = shown.notes.swap_remove(at);
        there.extend(&note.there);
        counted.push(note);
    }
    counted
}
