//! Anti-joins: NOT EXISTS drops the rows whose keys another table has.
//!
//! `FROM item WHERE NOT EXISTS (SELECT 1 FROM done WHERE done.item_id = item.id AND done.state = 'final')`: a row of item is dropped if a row of done
//! has its id. Let K be the set of these ids in done. Then *id is not in K* is a sound predicate of item as long as K does not change. Each change of
//! K is a change of done, which done's own tag covers. Nearly all rows may satisfy this predicate; it excludes changes of rows that are dropped
//! already.
//!
//! # Why this is sound
//!
//! Other predicates may be true of more rows than matter, so their key sets may have too many keys. K is the opposite: a row of the sub-select must
//! really have each of its keys. So the key query must include every condition of the sub-select.
//!
//! * **The sub-select** reads tables without children, joined by equalities of columns of one type and compared with constants by equality, all
//!   combined by AND. It has one equality with a column of the outer query or, for NOT IN, the column that it returns. It contains nothing else that
//!   might exclude a row. Constants are written as they are compared (`key_conditions.rs`); if that is not possible, no key query is made.
//! * **Types** whose equality is equality of normal forms, so that the database really drops a row that the tag excludes.
//! * **Outer joins.** If the row may be extended with NULLs, NOT EXISTS is true for the NULLs: the reference must not be on the nullable side.
//! * **The tags of the inner tables** must not depend on rows of the outer table. If a key that no outer row has leaves K, this change must
//!   invalidate, since a row that gets the key later would be in the result. So no key query is made if the inner rows are found by keys of other
//!   tables.
//! * **NULL** equals no key.

use freshet_types::ComparedColumn;

use crate::analysis::{AntiJoin, Inside, ReadSet, TableReference};
use crate::dependency::join_path::JoinPaths;
use crate::dependency::key_query::{AntiJoinSelect, KeyedTable};
use crate::dependency::query_text::quoted;
use crate::predicate::bind::Rows;
use crate::predicate::parameters::Params;

impl ReadSet {
    /// Key queries for the anti-joins, at most `parts_max`, except for references that `told` contains. Each comes with the places of the reference
    /// and of the inner tables.
    pub(crate) fn keyed_anti_joins(
        &self,
        rows: &[Rows],
        paths: &JoinPaths<'_>,
        mut told: Vec<usize>,
        max: usize,
        params: Params<'_>,
    ) -> Vec<(usize, &[usize], KeyedTable)> {
        let mut all = Vec::new();
        for anti_join in &self.limits.anti_joins {
            let place = anti_join.place;
            let is_told = told.contains(&place) || self.described_spared(place, &rows[place]).is_some();
            if is_told || rows[place].is_some() || paths.lead_into(anti_join.places()) || all.len() >= max {
                continue;
            }
            let Some(anti_join_select) = self.anti_join_select(anti_join, params) else { continue };
            let TableReference { table, columns, .. } = &self.references[place];
            let keyed = KeyedTable::of_anti_join(table.id, columns.clone(), anti_join.column.clone(), anti_join_select);
            told.push(place);
            all.push((place, anti_join.places(), keyed));
        }
        all
    }

    /// The key query; None if it cannot be written so that it returns no key too many.
    pub(crate) fn anti_join_select(&self, anti_join: &AntiJoin, params: Params<'_>) -> Option<AntiJoinSelect> {
        let AntiJoin { inner_key, inside: Inside { places, equal, tests, limit, .. }, .. } = anti_join;
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
        let key = column(inner_key.place, &inner_key.column)?;
        (!tests.is_empty()).then(|| AntiJoinSelect { key, from: from.join(", "), conditions })
    }

    /// For EXPLAIN CACHE: the column of a reference, and the column that has the keys of dropped rows.
    pub(crate) fn described_anti_join(&self, place: usize, rows: &Rows, paths: &JoinPaths<'_>) -> Option<String> {
        let is_asked = |anti_join: &&AntiJoin| {
            anti_join.place == place && !anti_join.inside.tests.is_empty() && !paths.lead_into(anti_join.places())
        };
        let anti_join = self.limits.anti_joins.iter().find(is_asked)?;
        let table = &self.references.get(anti_join.inner_key.place)?.table;
        let column = &anti_join.column.name;
        rows.is_none()
            .then(|| format!("{column} not among the values of {}.{}", table.name, anti_join.inner_key.column.name))
    }
}
