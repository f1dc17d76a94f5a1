//! The structural walk over a query: scopes, table references and the predicates that bound their rows.
//!
//! # Why the tags are sound
//!
//! For each table reference R the walk gathers equality predicates T = (column = constant) such that the result is
//! a function of σ_T(R) and of the other references: a change of rows outside σ_T(R) cannot change the result.
//!
//! * **WHERE.** A block's joins are computed before its WHERE. A joined row that holds a row r of R is dropped by
//!   WHERE if r fails T. If R is on the nullable side of an outer join, r may also decide whether the other side
//!   is extended with NULLs; but such an extended row has NULL in the column of T, and NULL = constant is not true:
//!   WHERE drops it as well. So T may be applied before any kind of join, FULL included.
//! * **ON of an inner join** is a WHERE for the two sides of that join, by the same argument.
//! * **ON of a LEFT JOIN** decides only which rows of the right side match: a right row that fails T never matches,
//!   so it may be removed first (and where the right side is itself a join, the argument above applies to it). A
//!   left row that fails ON still comes out, with NULLs: no predicate for the left side. RIGHT is the mirror image.
//!   ON of a FULL JOIN bounds neither side.
//! * **Aggregates, windows, DISTINCT, ORDER BY, LIMIT** are computed from what WHERE leaves. HAVING is not used.
//! * **Sub-queries** (EXISTS, IN, scalar, LATERAL, correlated, negated): a block is, for each outer row, a function
//!   of its references; T holds constants only and does not depend on the outer row. A predicate is attributed
//!   only to references of the very block whose WHERE or ON it stands in.
//! * **Set operations and common table expressions** are functions of their blocks, a recursive one the fixed
//!   point of such functions.
//! * **A table referenced twice** has two tags, and a change is relevant if it meets one of them.
//!
//! Only conjuncts at the top level count: anything under OR, NOT, CASE or IS bounds nothing. Errors that a row
//! outside T might raise (a division by zero, say) are not part of a result: SQL leaves open whether it is raised.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use freshet_model::{Catalog, PointColumn, Reason, RelationKind, ReplicaIdentity, Table, ValueType};
use sqlparser::ast::{
    Distinct, Expr, Fetch, GroupByExpr, Join, JoinConstraint, JoinOperator, LimitClause, NamedWindowExpr, ObjectName,
    OrderBy, OrderByExpr, OrderByKind, OrderBySort, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, With,
};

use crate::block::{Block, Meaning, Reference, Source};
use crate::footprint::{Conjunct, Footprint, TableReference, Usage};
use crate::predicate::{Equality, conjuncts, equality};
use crate::survey::Counts;
use crate::template::table;

pub(crate) type Outcome = Result<(), Reason>;

/// The state of a walk.
pub(crate) struct Walk<'a> {
    pub(crate) catalog: &'a Catalog,
    schemas: &'a [Arc<str>],
    /// Names of the common table expressions in scope.
    ctes: Vec<String>,
    /// The SELECT blocks around the current place, innermost last.
    pub(crate) blocks: Vec<Block>,
    references: Vec<TableReference>,
    /// How each parameter is used.
    pub(crate) usages: BTreeMap<u16, Usage>,
    /// A date or time type occurs other than as a table's column.
    pub(crate) date_time: bool,
    pub(crate) counts: Counts,
}

/// An ON clause and the references (places in the block) that it bounds.
type Condition<'q> = (&'q Expr, Range<usize>);

/// A construct that is never cached, unless its absence is shown.
pub(crate) fn absent(absent: bool, what: &'static str) -> Outcome {
    if absent { Ok(()) } else { Err(Reason::Construct(what)) }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(catalog: &'a Catalog, schemas: &'a [Arc<str>]) -> Self {
        Self {
            catalog,
            schemas,
            ctes: Vec::new(),
            blocks: Vec::new(),
            references: Vec::new(),
            usages: BTreeMap::new(),
            date_time: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn into_footprint(self, clock_text: bool) -> Result<Footprint, Reason> {
        let date_time = self.date_time || self.references.iter().any(|reference| holds_dates(&reference.table));
        if clock_text && date_time {
            return Err(Reason::ClockLiteral);
        }
        Footprint::new(self.references, self.usages, date_time)
    }

    pub(crate) fn query(&mut self, query: &Query) -> Outcome {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        self.counts.queries += 1;
        if !locks.is_empty() {
            return Err(Reason::LocksRows);
        }
        absent(for_clause.is_none() && settings.is_none() && format_clause.is_none(), "a clause after the query")?;
        absent(pipe_operators.is_empty(), "a pipe operator")?;
        let in_scope = self.ctes.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        self.blocks.push(Block::default());
        self.body(body)?;
        if let Some(order_by) = order_by {
            self.order_by(order_by)?;
        }
        if let Some(limit) = limit_clause {
            self.limit(limit)?;
        }
        if let Some(Fetch { with_ties: _, percent, quantity }) = fetch {
            absent(!percent, "FETCH PERCENT")?;
            self.optional(quantity.as_ref())?;
        }
        self.blocks.pop();
        self.ctes.truncate(in_scope);
        Ok(())
    }

    fn with(&mut self, with: &With) -> Outcome {
        let names = || with.cte_tables.iter().map(|cte| cte.alias.name.value.clone());
        if with.recursive {
            self.ctes.extend(names());
        }
        for (cte, name) in with.cte_tables.iter().zip(names()) {
            absent(cte.from.is_none(), "WITH … FROM")?;
            absent(cte.alias.at.is_none(), "AT in an alias")?;
            self.query(&cte.query)?;
            if !with.recursive {
                self.ctes.push(name);
            }
        }
        Ok(())
    }

    fn body(&mut self, body: &SetExpr) -> Outcome {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op: _, set_quantifier: _, right } => {
                for side in [left, right] {
                    self.blocks.push(Block::default());
                    self.body(side)?;
                    self.blocks.pop();
                }
                Ok(())
            }
            SetExpr::Values(values) => {
                absent(!values.explicit_row, "VALUES ROW")?;
                values.rows.iter().try_for_each(|row| self.exprs(&row.content))
            }
            SetExpr::Table(_) => Err(Reason::Construct("TABLE")),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => Err(Reason::NotSelect),
        }
    }

    fn select(&mut self, select: &Select) -> Outcome {
        self.counts.selects += 1;
        only_standard_clauses(select)?;
        let mut conditions = Vec::new();
        for item in &select.from {
            self.joined(item, &mut conditions)?;
        }
        // Names in ON and WHERE are resolved among all items of the block.
        let all = self.blocks.last().map_or(0, |block| block.references.len());
        conditions.extend(select.selection.iter().map(|selection| (selection, 0..all)));
        for (condition, bounded) in conditions {
            self.expr(condition)?;
            self.bound(condition, &bounded);
        }
        if let Some(Distinct::On(exprs)) = &select.distinct {
            self.exprs(exprs)?;
        }
        select.projection.iter().try_for_each(|item| self.select_item(item))?;
        match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) => {
                absent(modifiers.is_empty(), "a modifier of GROUP BY")?;
                self.exprs(exprs)?;
            }
            GroupByExpr::All(_) => return Err(Reason::Construct("GROUP BY ALL")),
        }
        self.optional(select.having.as_ref())?;
        for window in &select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &window.1 {
                self.window(spec)?;
            }
        }
        Ok(())
    }

    fn select_item(&mut self, item: &SelectItem) -> Outcome {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => self.expr(expr),
            SelectItem::Wildcard(options)
            | SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), options) => {
                let plain = options.opt_ilike.is_none()
                    && options.opt_exclude.is_none()
                    && options.opt_except.is_none()
                    && options.opt_replace.is_none()
                    && options.opt_rename.is_none()
                    && options.opt_alias.is_none();
                absent(plain, "an option of *")
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _)
            | SelectItem::ExprWithAliases { .. } => Err(Reason::Construct("an expansion of a composite value")),
        }
    }

    pub(crate) fn order_by_exprs(&mut self, exprs: &[OrderByExpr]) -> Outcome {
        for OrderByExpr { expr, options, with_fill } in exprs {
            absent(with_fill.is_none(), "WITH FILL")?;
            absent(!matches!(options.sort, Some(OrderBySort::Using(_))), "ORDER BY … USING")?;
            self.expr(expr)?;
        }
        Ok(())
    }

    fn order_by(&mut self, order_by: &OrderBy) -> Outcome {
        absent(order_by.interpolate.is_none(), "INTERPOLATE")?;
        match &order_by.kind {
            OrderByKind::Expressions(exprs) => self.order_by_exprs(exprs),
            OrderByKind::All(_) => Err(Reason::Construct("ORDER BY ALL")),
        }
    }

    fn limit(&mut self, limit: &LimitClause) -> Outcome {
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } => {
                absent(limit_by.is_empty(), "LIMIT BY")?;
                self.optional(limit.as_ref())?;
                self.optional(offset.as_ref().map(|offset| &offset.value))
            }
            LimitClause::OffsetCommaLimit { .. } => Err(Reason::Construct("LIMIT with a comma")),
        }
    }

    /// A FROM item with its joins. Gathers the ON clauses with the references that each bounds.
    fn joined<'q>(&mut self, item: &'q TableWithJoins, conditions: &mut Vec<Condition<'q>>) -> Outcome {
        let places = |walk: &Self| walk.blocks.last().map_or(0, |block| block.references.len());
        let start = places(self);
        self.factor(&item.relation, conditions)?;
        for Join { relation, global, join_operator } in &item.joins {
            absent(!global, "GLOBAL JOIN")?;
            let right = places(self);
            self.factor(relation, conditions)?;
            let end = places(self);
            let (constraint, bounded) = match join_operator {
                JoinOperator::Join(on) | JoinOperator::Inner(on) => (on, start..end),
                JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (on, right..end),
                JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (on, start..right),
                JoinOperator::FullOuter(on) => (on, 0..0),
                JoinOperator::CrossJoin(none @ JoinConstraint::None) => (none, 0..0),
                _ => return Err(Reason::Construct("a join of that kind")),
            };
            match constraint {
                JoinConstraint::On(condition) => conditions.push((condition, bounded)),
                JoinConstraint::Using(columns) => self.merge(columns)?,
                JoinConstraint::Natural => {
                    self.operator("=")?;
                    self.blocks.last_mut().into_iter().for_each(|block| block.natural = true);
                }
                JoinConstraint::None => {}
            }
        }
        Ok(())
    }

    fn merge(&mut self, columns: &[ObjectName]) -> Outcome {
        self.operator("=")?;
        let names = columns.iter().map(|column| match column.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.clone()),
            _ => None,
        });
        let names: Option<Vec<String>> = names.collect();
        let names = names.ok_or(Reason::Construct("a USING clause of that form"))?;
        self.blocks.last_mut().into_iter().for_each(|block| block.merged.extend(names.iter().cloned()));
        Ok(())
    }

    fn factor<'q>(&mut self, factor: &'q TableFactor, conditions: &mut Vec<Condition<'q>>) -> Outcome {
        self.counts.table_factors += 1;
        match factor {
            TableFactor::Table { .. } => self.table_factor(factor),
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                absent(sample.is_none(), "TABLESAMPLE")?;
                // Without LATERAL the items before it are not visible inside.
                let hidden = if *lateral { None } else { self.blocks.last_mut().map(std::mem::take) };
                self.query(subquery)?;
                if let (Some(hidden), Some(block)) = (hidden, self.blocks.last_mut()) {
                    *block = hidden;
                }
                self.refer_opaque(alias.as_ref(), None)
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality: _, alias } => {
                self.function_name(name)?;
                self.arguments(args)?;
                self.refer_opaque(alias.as_ref(), Some(name))
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset, with_offset_alias, with_ordinality: _ } => {
                absent(!with_offset && with_offset_alias.is_none(), "WITH OFFSET")?;
                self.user_function("unnest")?;
                self.exprs(array_exprs)?;
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

    fn table_factor(&mut self, factor: &TableFactor) -> Outcome {
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
        absent(with_hints.is_empty() && index_hints.is_empty(), "a table hint")?;
        absent(version.is_none() && partitions.is_empty() && json_path.is_none(), "a FROM item of that kind")?;
        if let Some(args) = args {
            absent(args.settings.is_none(), "settings of a function")?;
            self.function_name(name)?;
            self.arguments(&args.args)?;
            return self.refer_opaque(alias.as_ref(), Some(name));
        }
        absent(!with_ordinality, "WITH ORDINALITY")?;
        let last = name.0.last().and_then(|part| part.as_ident()).ok_or(Reason::Construct("a name of that form"))?;
        if name.0.len() == 1 {
            // The parser takes some reserved words for names.
            let reserved = matches!(last.value.as_str(), "only" | "lateral" | "select" | "table" | "values" | "with");
            absent(last.quote_style.is_some() || !reserved, "ONLY or a FROM item of that kind")?;
            if self.ctes.contains(&last.value) {
                return self.refer_opaque(alias.as_ref(), Some(name));
            }
        }
        absent(name.0.len() <= 2, "a name with a database")?;
        let table = table(self.catalog, self.schemas, name).ok_or_else(|| unknown(name))?.clone();
        admit(&table)?;
        let index = self.references.len();
        let renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
        absent(alias.as_ref().is_none_or(|alias| alias.at.is_none()), "AT in an alias")?;
        let reference = Reference {
            alias: alias.as_ref().map_or_else(|| table.name.to_string(), |alias| alias.name.value.clone()),
            schema: alias.is_none().then(|| table.schema.clone()),
            source: if renamed { Source::Opaque } else { Source::Table { table: table.clone(), index } },
        };
        self.references.push(TableReference { table, conjuncts: Vec::new() });
        self.refer(reference)
    }

    fn refer_opaque(&mut self, alias: Option<&TableAlias>, name: Option<&ObjectName>) -> Outcome {
        absent(alias.is_none_or(|alias| alias.at.is_none()), "AT in an alias")?;
        absent(
            alias.is_none_or(|alias| alias.columns.iter().all(|c| c.data_type.is_none())),
            "a column definition list",
        )?;
        let own_name = || name?.0.last()?.as_ident().map(|ident| ident.value.clone());
        let alias = alias.map(|alias| alias.name.value.clone()).or_else(own_name).unwrap_or_default();
        self.refer(Reference { alias, schema: None, source: Source::Opaque })
    }

    fn refer(&mut self, reference: Reference) -> Outcome {
        let block = self.blocks.last_mut().ok_or(Reason::Construct("a FROM item outside a query"))?;
        block.references.push(reference);
        Ok(())
    }

    /// Adds the equalities of a condition to the references it bounds.
    fn bound(&mut self, condition: &Expr, bounded: &Range<usize>) {
        let Some(block) = self.blocks.last() else { return };
        for conjunct in conjuncts(condition) {
            let Some(Equality { column, operand }) = equality(conjunct) else { continue };
            let Meaning::Column(place, column) = block.meaning(column) else { continue };
            let Some(Source::Table { index, .. }) = block.references.get(place).map(|r| &r.source) else { continue };
            let comparable = !matches!(column.value_type, ValueType::Other | ValueType::DateTime);
            if !bounded.contains(&place) || column.generated || !comparable {
                continue;
            }
            let point = PointColumn { name: column.name.clone(), value_type: column.value_type };
            if let Some(reference) = self.references.get_mut(*index) {
                reference.conjuncts.push(Conjunct { column: point, operand });
            }
        }
    }
}

/// Clauses of other dialects, which PostgreSQL would read as something else.
fn only_standard_clauses(select: &Select) -> Outcome {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    absent(into.is_none(), "SELECT INTO")?;
    let plain = optimizer_hints.is_empty()
        && select_modifiers.as_ref().is_none_or(|modifiers| !modifiers.is_any_set())
        && top.is_none()
        && exclude.is_none()
        && lateral_views.is_empty()
        && prewhere.is_none()
        && connect_by.is_empty()
        && cluster_by.is_empty()
        && distribute_by.is_empty()
        && sort_by.is_empty()
        && qualify.is_none()
        && value_table_mode.is_none()
        && *flavor == SelectFlavor::Standard;
    absent(plain, "a clause that is not PostgreSQL's")
}

fn unknown(name: &ObjectName) -> Reason {
    Reason::UnknownTable(name.to_string().into())
}

/// Whether results over a table can be cached at all.
fn admit(table: &Table) -> Outcome {
    let name = || format!("{}.{}", table.schema, table.name).into();
    if table.kind != RelationKind::Table {
        Err(Reason::TableKind(name()))
    } else if table.row_security {
        Err(Reason::RowSecurity(name()))
    } else if table.user_types {
        Err(Reason::UserType(name()))
    } else if table.identity == ReplicaIdentity::Missing {
        Err(Reason::NoReplicaIdentity(name()))
    } else {
        Ok(())
    }
}

/// Whether a literal compared with a column of the table may be read as a date: ranges and arrays of dates count.
fn holds_dates(table: &Table) -> bool {
    let may_be = |value_type| matches!(value_type, ValueType::DateTime | ValueType::Other);
    table.datetime || table.columns.iter().any(|column| may_be(column.value_type))
}
