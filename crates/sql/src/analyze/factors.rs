//! The items of FROM: tables, views, sub-selects and functions.

use freshet_types::{Columns, Reason, RelationKind};
use sqlparser::ast::TableFactor;

use crate::analysis::TableReference;
use crate::analyze::outer_joins::Condition;
use crate::analyze::scope::{Reference, Source};
use crate::analyze::shown::Shown;
use crate::analyze::{Outcome, Walk, absent};
use crate::predicate::Predicate;
use crate::statement::relations::{holds_dates, table, unknown, without_only};

impl Walk<'_> {
    pub(crate) fn factor<'q>(&mut self, factor: &'q TableFactor, conditions: &mut Vec<Condition<'q>>) -> Outcome {
        self.counts.table_factors += 1;
        match factor {
            TableFactor::Table { .. } => self.table_factor(factor),
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                absent(sample.is_none(), "TABLESAMPLE")?;
                // Without LATERAL the preceding items are not visible inside.
                let hidden = if *lateral { None } else { self.scope.blocks.last_mut().map(std::mem::take) };
                self.query(subquery)?;
                if let (Some(hidden), Some(block)) = (hidden, self.scope.blocks.last_mut()) {
                    *block = hidden;
                }
                let mut shown = std::mem::take(&mut self.scope.shown);
                // It returns other rows for each row beside it.
                shown.derived_limit.take_if(|_| *lateral);
                self.refer_opaque(alias.as_ref(), None)?;
                self.show_last(shown.renamed(alias.as_ref()));
                Ok(())
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality: _, alias } => {
                self.function_name(name)?;
                self.arguments(args)?;
                self.refer_opaque(alias.as_ref(), Some(name))
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset, with_offset_alias, with_ordinality: _ } => {
                absent(!with_offset && with_offset_alias.is_none(), "WITH OFFSET")?;
                self.exprs(array_exprs)?;
                self.refer_opaque(alias.as_ref(), None)
            }
            TableFactor::JsonTable { json_expr, json_path: _, columns, alias } if self.is_mysql() => {
                self.expr(json_expr)?;
                self.json_columns(columns);
                self.refer_opaque(alias.as_ref(), None)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                // Its alias would hide the names inside.
                absent(alias.is_none(), "a join with an alias")?;
                self.joined(table_with_joins, conditions)
            }
            _ => Err(Reason::Construct("a FROM item of that kind")),
        }
    }

    pub(crate) fn table_factor(&mut self, factor: &TableFactor) -> Outcome {
        let TableFactor::Table {
            name,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } = factor
        else {
            return Err(Reason::Construct("a FROM item of that kind"));
        };
        self.counts.relations += 1;
        absent(sample.is_none(), "TABLESAMPLE")?;
        absent(with_hints.is_empty() && (index_hints.is_empty() || self.is_mysql()), "a table hint")?;
        absent(version.is_none() && json_path.is_none(), "a FROM item of that kind")?;
        absent(partitions.is_empty() || self.is_mysql(), "a FROM item of that kind")?;
        if let Some(args) = args {
            absent(args.settings.is_none(), "settings of a function")?;
            self.function_name(name)?;
            self.arguments(&args.args)?;
            return self.refer_opaque(alias.as_ref(), Some(name));
        }
        absent(!with_ordinality, "WITH ORDINALITY")?;
        let (parts, only) = without_only(name);
        let last = parts.last().and_then(|part| part.as_ident()).ok_or(Reason::Construct("a name of that form"))?;
        if parts.len() == 1 {
            // The parser takes some reserved words for names.
            let reserved = matches!(last.value.as_str(), "only" | "lateral" | "select" | "table" | "values" | "with");
            absent(last.quote_style.is_some() || !reserved, "ONLY or a FROM item of that kind")?;
            if let Some(shown) = self.shown_by_cte(&last.value) {
                self.refer_opaque(alias.as_ref(), Some(name))?;
                self.show_last(shown.renamed(alias.as_ref()));
                return Ok(());
            }
        }
        absent(parts.len() <= 2, "a name with a database")?;
        let table = table(self.context.catalog, &self.context.schemas, name).ok_or_else(|| unknown(parts))?.clone();
        let meant = self.meant(&table, only)?;
        self.date_time |= !self.is_mysql() && holds_dates(&table);
        let first = self.found.references.len();
        let referred = |table| TableReference { table, predicate: Predicate::any_row(), columns: Columns::All };
        self.found.references.extend(meant.tables.into_iter().map(referred));
        self.found.definitions.extend(meant.definitions);
        let places = first..self.found.references.len();
        let shown = if table.kind == RelationKind::View { self.view(&table)? } else { Shown::default() };
        // The partition of a row depends on columns that the statement does not name, and Freshet's own queries read all partitions.
        let renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) || !partitions.is_empty();
        if renamed {
            self.mentioned.all();
        }
        absent(alias.as_ref().is_none_or(|alias| alias.at.is_none()), "AT in an alias")?;
        let reference = Reference {
            alias: alias.as_ref().map_or_else(|| table.name.to_string(), |alias| alias.name.value.clone()),
            schema: alias.is_none().then(|| table.schema.clone()),
            table: Some(table.clone()),
            shown: shown.renamed(alias.as_ref()),
            nullable: false,
            source: if renamed { Source::Opaque } else { Source::Table { table, places } },
        };
        self.mentioned.row(&reference.alias);
        self.refer(reference)
    }
}
