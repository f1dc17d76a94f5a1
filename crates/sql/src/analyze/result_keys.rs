//! References whose keys are in the answer of the outermost query (`dependency/result_keys.rs`).

use crate::analysis::ResultKey;
use crate::analyze::Walk;
use crate::analyze::derived_limit::is_ungrouped;
use crate::analyze::limit_bound::{limit_of, sorts_by_list};
use crate::analyze::scope::Source;
use crate::analyze::sort_keys::shown_items;
use freshet_types::{Columns, ComparedColumn, Dialect, ReplicaIdentity, ValueType};
use sqlparser::ast::{LimitClause, Query, SetExpr};

impl Walk<'_> {
    /// The references of the outermost query whose keys are in its answer; the innermost block is the query's own.
    pub(crate) fn result_keys_of(&self, query: &Query) -> Vec<ResultKey> {
        self.find_result_keys(query).unwrap_or_default()
    }

    pub(crate) fn find_result_keys(&self, query: &Query) -> Option<Vec<ResultKey>> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let all_of_the_first = match &query.limit_clause {
            None => true,
            Some(LimitClause::LimitOffset { offset, limit_by, .. }) => offset.is_none() && limit_by.is_empty(),
            Some(LimitClause::OffsetCommaLimit { .. }) => false,
        };
        let calls = self.looks_further(select, query.order_by.as_ref(), false);
        if !all_of_the_first || !is_ungrouped(select) || select.distinct.is_some() || calls {
            return None;
        }
        let block = self.scope.blocks.last()?;
        let items = shown_items(block, select)?;
        let limit = limit_of(query).filter(|_| query.order_by.is_none());
        let has_limit = query.limit_clause.is_some() || query.fetch.is_some();
        let is_selected = if has_limit { !sorts_by_list(query, select) } else { select.selection.is_some() };
        let result_keys = block.references.iter().enumerate().filter_map(|(in_block, reference)| {
            let Source::Table { places, .. } = &reference.source else { return None };
            let place = Some(places.start).filter(|_| places.len() == 1 && !reference.nullable)?;
            let table = &self.found.references.get(place)?.table;
            let (names, old_by_key) = match &table.identity {
                // New images may lack unchanged columns then, as MySQL's do, so any row may have entered.
                ReplicaIdentity::Columns(names) => (names, !self.is_mysql()),
                ReplicaIdentity::Full => (&table.key, false),
                ReplicaIdentity::Missing => return None,
            };
            let key = names.iter().map(|name| {
                let column = table.column(name).filter(|column| !column.generated)?;
                let at = items.iter().position(|item| item.column == Some((in_block, column)))?;
                let value_type = Some(column.value_type).filter(|of| is_exact(self.context.dialect, *of))?;
                Some((ComparedColumn { name: column.name.clone(), value_type }, at))
            });
            let key: Vec<_> = key.collect::<Option<_>>()?;
            (!key.is_empty()).then_some(ResultKey {
                place,
                key,
                width: items.len(),
                old_by_key,
                limit,
                derived_limit: None,
                selecting: Columns::All,
                is_selected,
                by_value: false,
            })
        });
        Some(result_keys.collect())
    }
}

/// Whether the server prints the type in an answer so that its normal form is that of the stream's value, or it has none. The server rounds floats in
/// output, and an enum's labels may be renamed. MySQL prints a TIMESTAMP in the session's time zone, and texts in its character set, which may
/// replace characters.
pub(crate) fn is_exact(dialect: Dialect, value_type: ValueType) -> bool {
    use ValueType::{Bool, Date, Int, Numeric, OrderedText, PaddedText, Text, Timestamp, TimestampTz, Unsigned, Uuid};
    match value_type {
        Date | Int | Numeric | Timestamp | Unsigned => true,
        Bool | OrderedText | PaddedText | Text | TimestampTz | Uuid => !dialect.is_mysql_family(),
        _ => false,
    }
}
