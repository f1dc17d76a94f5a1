//! Rows that NOT EXISTS drops: those whose keys others hold.
//!
//! `FROM item WHERE NOT EXISTS (SELECT 1 FROM done WHERE done.item_id = item.id AND done.state = 'final')`: a row of item whose id is held by such a row of
//! done is dropped. So with K, the keys that these hold, *id is none of K* is a sound predicate of item, as long as K stays what it is; and what
//! changes K is a change of done, whose own tag says so. Nearly all rows may be left: it spares what happens to rows that are through with.
//!
//! # Why this is sound
//!
//! Other predicates may be true of more rows than those that matter, so keys for them may be more than there are. Of K it is the other way round:
//! each of its keys must be held indeed, so nothing may be left out of what is asked for K.
//!
//! * **The sub-select** is of tables that are no parents of others, joined by equalities of columns of one type, compared with constants by equality, all under AND, with one
//!   equality with a column outside, or, for NOT IN, the column that it shows. Nothing else stands in it that might leave out a row. Constants are written
//!   as they are compared (`key_conditions.rs`), or nothing is asked.
//! * **Types** in which equality is that of normal forms, so that a row which the tag spares is one that the database drops.
//! * **Outer joins.** Where the row is extended with NULLs if it is missing, NOT EXISTS is true of the NULLs: not of the nullable side.
//! * **The tags of the tables inside** must not rest on rows of the outer one: if a key leaves K that no outer row has, that must be a hit, since a row that
//!   gets the key later would be shown. So nothing is asked if the rows inside are those with keys of others than themselves.
//! * **NULL** equals no key.

use freshet_types::ComparedColumn;

use crate::analysis::{Absent, Inside, ReadSet, TableReference};
use crate::dependency::join_path::Ways;
use crate::dependency::key_query::{Holding, Part};
use crate::dependency::query_text::quoted;
use crate::predicate::bind::Rows;
use crate::predicate::parameters::Params;

impl ReadSet {
    /// The references whose rows are dropped by keys that others hold, at most so many, but for those that are told: their places, those of the others,
    /// and what is asked.
    pub(crate) fn absent_parts(
        &self,
        rows: &[Rows],
        ways: &Ways<'_>,
        mut told: Vec<usize>,
        max: usize,
        params: Params<'_>,
    ) -> Vec<(usize, &[usize], Part)> {
        let mut parts = Vec::new();
        for absent in &self.limits.absent {
            let place = absent.place;
            let is_told = told.contains(&place) || self.described_spared(place, &rows[place]).is_some();
            if is_told || rows[place].is_some() || ways.lead_into(absent.places()) || parts.len() >= max {
                continue;
            }
            let Some(holding) = self.holding(absent, params) else { continue };
            let TableReference { table, columns, .. } = &self.references[place];
            let part = Part::of_absent(table.id, columns.clone(), absent.column.clone(), holding);
            told.push(place);
            parts.push((place, absent.places(), part));
        }
        parts
    }

    /// What to ask for the keys; None: it cannot be written so that it is true of no more rows.
    pub(crate) fn holding(&self, absent: &Absent, params: Params<'_>) -> Option<Holding> {
        let Absent { held, inside: Inside { places, equal, tests, limit, .. }, .. } = absent;
        if let Some(limit) = limit {
            self.rows_max(*limit, params).filter(|limit| *limit > 0)?;
        }
        let quoted = |name: &str| quoted(self.dialect, name);
        let only = if self.dialect.is_mysql_family() { "" } else { "ONLY " };
        let alias = |place: usize| places.iter().position(|of| *of == place).map(|at| format!("t{at}"));
        let column =
            |place: usize, column: &ComparedColumn| Some(format!("{}.{}", alias(place)?, quoted(&column.name)));
        let table = |place: &usize| {
            let table = &self.references.get(*place)?.table;
            Some(format!("{only}{}.{} {}", quoted(&table.schema), quoted(&table.name), alias(*place)?))
        };
        let from: Vec<String> = places.iter().map(table).collect::<Option<_>>()?;
        let mut conditions = Vec::new();
        for [one, two] in equal {
            conditions.push(format!("{} = {}", column(one.place, &one.column)?, column(two.place, &two.column)?));
        }
        for (place, atom) in tests {
            let written = self.written_exactly(atom, params)?;
            conditions.extend(written.tests(self.dialect, &column(*place, &atom.column)?));
        }
        let key = column(held.place, &held.column)?;
        (!tests.is_empty()).then(|| Holding { key, from: from.join(", "), conditions })
    }

    /// For people: the column of a reference, and the one that holds the keys of rows that are dropped.
    pub(crate) fn described_absent(&self, place: usize, rows: &Rows, ways: &Ways<'_>) -> Option<String> {
        let is_asked = |absent: &&Absent| {
            absent.place == place && !absent.inside.tests.is_empty() && !ways.lead_into(absent.places())
        };
        let absent = self.limits.absent.iter().find(is_asked)?;
        let table = &self.references.get(absent.held.place)?.table;
        let column = &absent.column.name;
        rows.is_none().then(|| format!("{column} not among the values of {}.{}", table.name, absent.held.column.name))
    }
}
