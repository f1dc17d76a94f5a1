//! LIMIT without ORDER BY does not determine which rows are returned; the values in the answer show which rows matter, even without keys.
//!
//! The answers of `SELECT num FROM t LIMIT 21`, `SELECT DISTINCT num …`, `SELECT a, count(*) … GROUP BY a LIMIT 5`, `(SELECT x …) UNION (SELECT y …)
//! LIMIT 21` do not contain keys as `result_keys.rs` requires, since several rows may be one row of the answer.
//!
//! # Why this is sound
//!
//! Let Q be the statement without its LIMIT, and let its answer have as many rows as LIMIT says. Let V be the values that these rows have in a column
//! c through which conditions reach a reference R (`analyze/derived.rs`): `c IN (V)` on Q is equivalent to a condition on a column d of R. So the
//! rows of Q with values in V are those that Q would return if R had only the rows with d in V. As long as none of these is changed, inserted or
//! deleted, Q returns the rows of the answer, and as many of each: it stays a correct answer. The same holds for several columns of R at once, and
//! for several references, each as long as the others' own tags are not affected.
//!
//! Values are those of the column's type in normal form (`result_keys.rs`). With a NULL among them, or too many, any row matters. If images of old
//! rows have their key alone, a deleted or changed row may have had any value: then only insertions of other rows are excluded.
//!
//! This is used only for references of which any row would matter otherwise. No join path starts at their rows: an index may not find them.

use std::collections::BTreeSet;

use freshet_types::ComparedColumn;
use sqlparser::ast::{LimitClause, Query};

use crate::analysis::ResultKey;
use crate::analyze::Walk;
use crate::analyze::limit_bound::limit_of;
use crate::analyze::result_keys::is_exact;
use crate::analyze::shown::{Origin, Shown};

/// Limit of columns whose values are used for one reference.
pub(crate) const COLUMNS_MAX: usize = 3;

impl Walk<'_> {
    /// The references whose rows the answer's values show, if this is the outermost query; `shown`: its columns without its LIMIT.
    pub(crate) fn by_values(&self, query: &Query, shown: &Shown) -> Vec<ResultKey> {
        let all_of_the_first = match &query.limit_clause {
            None => true,
            Some(LimitClause::LimitOffset { offset, limit_by, .. }) => offset.is_none() && limit_by.is_empty(),
            Some(LimitClause::OffsetCommaLimit { .. }) => false,
        };
        let limit = limit_of(query).filter(|_| all_of_the_first && query.order_by.is_none());
        let Some(limit) = limit.filter(|_| self.scope.blocks.len() == 1) else { return Vec::new() };
        let reached = || {
            let columns = shown.columns.iter().enumerate();
            columns.flat_map(|(at, column)| column.reached.iter().map(move |reached| (at, &reached.origin)))
        };
        let places: BTreeSet<usize> = reached().map(|(_, origin)| origin.place).collect();
        let result_keys = places.into_iter().filter_map(|place| {
            let of_place = reached().filter(|(_, origin)| origin.place == place);
            let exact = of_place.filter(|(_, origin)| is_exact(self.context.dialect, origin.column.value_type));
            let column = |(at, origin): (usize, &Origin)| {
                let (name, value_type) = (origin.column.name.clone(), origin.column.value_type);
                (ComparedColumn { name, value_type }, at)
            };
            let mut key: Vec<(ComparedColumn, usize)> = Vec::new();
            for (column, at) in exact.map(column) {
                if key.len() < COLUMNS_MAX && key.iter().all(|(known, _)| *known != column) {
                    key.push((column, at));
                }
            }
            (!key.is_empty()).then(|| ResultKey::by_value(place, key, shown.columns.len(), limit))
        });
        result_keys.collect()
    }
}
