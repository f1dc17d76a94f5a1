//! The structural walk over a query: scopes, table references and the predicates that bound their rows.
//!
//! The input is the syntax tree of a query, a catalogue and a search path. The output is the analysis (`analysis.rs`): plain data about table
//! references, join edges and limits, or the reason why the query is not cached. The walk refuses each construct that it does not know. It does not
//! know the parameters of an execution; functions in `dependency/` compute the dependencies of one execution from the analysis.
//!
//! # Why the tags are sound
//!
//! For each table reference R the walk collects a predicate T: tests of R's columns by constants, combined by AND and OR, so that the result is a
//! function of σ_T(R) and of the other references. A change of rows outside σ_T(R) cannot change the result. T follows from a condition: if the
//! condition is true of a row of R joined with others, T is true of this row. A test follows from itself, AND from either side, OR from both sides
//! together. From anything else (NOT, XOR, CASE, a test of another reference) only TRUE follows. So a disjunct without a test of R makes a
//! disjunction bound nothing.
//!
//! * **WHERE.** A block's joins are computed before its WHERE. WHERE drops a joined row with a row r of R if r fails T. If R is on the nullable side
//!   of an outer join, r may also decide whether the other side is extended with NULLs. Such an extended row has NULL in all columns of R, and no
//!   comparison with NULL is true: T is not true of it, so WHERE drops it as well. So T may be applied before any kind of join, FULL included.
//! * **IS NULL** is the only test that a row of NULLs passes: `l LEFT JOIN r … WHERE r.id IS NULL` selects the rows of l that join no row of r,
//!   whatever that row contains. So it is a test only of references that no outer join of their block may extend with NULLs; elsewhere nothing
//!   follows from it.
//! * **ON of an inner join** is a WHERE for the two sides of this join, by the same argument.
//! * **USING** is an ON that requires its columns to be equal (`Walk::connect_merged`).
//! * **ON of a LEFT JOIN** decides only which rows of the right side match. A right row that fails T never matches, so it may be deleted first (if
//!   the right side is itself a join, the argument above applies to it). A left row that fails ON is still returned, with NULLs: there is no
//!   predicate for the left side. RIGHT is the mirror image. ON of a FULL JOIN bounds neither side. If WHERE makes inner joins of them, the rule for
//!   inner joins holds (`outer_joins.rs`).
//! * **Aggregates, windows, DISTINCT, ORDER BY, LIMIT** are computed from the rows that satisfy WHERE. HAVING is not used.
//! * **Sub-queries** (EXISTS, IN, scalar, LATERAL, correlated, negated): for each outer row, a block is a function of its references; T contains
//!   constants only and does not depend on the outer row. A predicate applies only to references of the block that contains the WHERE or ON, and to
//!   those behind plain columns of its derived tables and common table expressions (`derived.rs`).
//! * **Set operations and common table expressions** are functions of their blocks; a recursive one is the fixed point of such functions.
//! * **Propagation of constants.** Let a condition that bounds R contain `R.c = S.d` at its top, and let T of S say that d is in K. Rows of S that
//!   fail T may be deleted. In the resulting database, adding `R.c IN K` to the condition does not change it, since d is in K wherever R.c = d is
//!   true. By the rules above this bounds R, and so on, step by step. S may be in any enclosing block of R, on any side of any join: it only matters
//!   that its other rows are deleted. Both columns must compare alike, so that a value that equals d has the same normal form.
//! * **Sub-selects** as sources of constants, and their bounds on outer rows: see `derived.rs`.
//! * **A table with two references** has two tags, and a change is relevant if it matches one of them.
//! * **Views** are derived tables, **partitioned tables and inheritance parents** stand for their leaves: see `views.rs` and
//!   `statement/relations.rs`.
//!
//! Columns that the statement does not mention do not affect it (`mentioned_columns.rs`): it does not distinguish rows that differ only in them.
//!
//! An error that a row outside T might raise (a division by zero, say) is not part of a result: SQL does not define whether it is raised.

pub(crate) mod anti_join;
pub(crate) mod clock;
mod composites;
pub(crate) mod conditions;
pub(crate) mod ctes;
pub(crate) mod derived;
pub(crate) mod derived_limit;
pub(crate) mod disjunctions;
pub(crate) mod expressions;
pub(crate) mod factors;
pub(crate) mod joins;
pub(crate) mod limit_bound;
pub(crate) mod limit_boundary;
pub(crate) mod mentioned_columns;
pub(crate) mod moving_limit;
pub(crate) mod mysql_expressions;
pub(crate) mod mysql_times;
pub(crate) mod nested_outer_joins;
pub(crate) mod null_branches;
pub(crate) mod outer_joins;
pub(crate) mod resolve;
pub(crate) mod result_keys;
pub(crate) mod row_filters;
pub(crate) mod scalar_subqueries;
pub(crate) mod scope;
pub(crate) mod shown;
pub(crate) mod sort_keys;
pub(crate) mod trusted;
pub(crate) mod ttl;
pub(crate) mod type_effects;
pub(crate) mod unordered_limit;
pub(crate) mod views;

use std::collections::BTreeMap;
use std::sync::Arc;

use freshet_types::{Catalog, Columns, Dialect, Reason, ValueType};
use sqlparser::ast::{
    Distinct, Expr, Fetch, GroupByExpr, LimitClause, NamedWindowExpr, OrderBy, OrderByExpr, OrderByKind, OrderBySort,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
};

use crate::allowlist::type_effects::Handled;
use crate::allowlist::visitor::Counts;
use crate::analysis::{Dates, Read, ReadSet, Usage};
use crate::analyze::ctes::Cte;
use crate::analyze::derived::{At, Folds};
use crate::analyze::joins::only_standard_clauses;
use crate::analyze::mentioned_columns::Mentioned;
use crate::analyze::mysql_times::KeptTimes;
use crate::analyze::outer_joins::{Clause, Condition};
use crate::analyze::scope::Block;
use crate::analyze::shown::Shown;
use crate::analyze::views::Views;
use crate::statement::template::Parsed;

pub(crate) type Outcome = Result<(), Reason>;

/// The state of a walk.
pub(crate) struct Walk<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) scope: Scope,
    pub(crate) found: Read,
    /// The first reference of each walk of the outermost SELECT.
    pub(crate) starts: Vec<usize>,
    pub(crate) views: Views,
    /// Of the statement's text and those of its views.
    pub(crate) handled: Handled,
    pub(crate) mentioned: Mentioned,
    /// The uses of each parameter.
    pub(crate) usages: BTreeMap<u32, Usage>,
    /// A date or time type occurs; MySQL: a date is used other than as a column of the result.
    pub(crate) date_time: bool,
    /// MySQL: a TIME occurs. PostgreSQL: a time or a zone occurs, which the current date would complete in an operation with a `timetz`.
    pub(crate) times: bool,
    /// MySQL: a TIME occurs that is combined with constants at most.
    pub(crate) kept_times: KeptTimes,
    pub(crate) counts: Counts,
}

/// The catalogue and settings of a walk.
pub(crate) struct Context<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) catalog: &'a Catalog,
    /// The search path.
    pub(crate) schemas: Vec<Arc<str>>,
    /// The outermost SELECT is walked once for each of its disjuncts (`disjunctions.rs`).
    pub(crate) splits: bool,
    /// The result is to be served for a time, whatever changes: see [`ttl`].
    pub(crate) by_ttl: bool,
}

/// The names that are visible at the current place, and the facts about queries that were walked.
#[derive(Default)]
pub(crate) struct Scope {
    /// The common table expressions in scope.
    pub(crate) ctes: Vec<Cte>,
    /// The SELECT blocks around the current place, innermost last.
    pub(crate) blocks: Vec<Block>,
    /// The columns of the last query.
    pub(crate) shown: Shown,
    /// The facts about the sub-selects in expressions.
    pub(crate) told: BTreeMap<At, Shown>,
    pub(crate) folds: Folds,
}

/// Refuses a construct that is never cached, unless it is absent.
pub(crate) fn absent(absent: bool, what: &'static str) -> Outcome {
    if absent { Ok(()) } else { Err(Reason::Construct(what)) }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(dialect: Dialect, catalog: &'a Catalog, schemas: &[Arc<str>]) -> Self {
        Self {
            context: Context { dialect, catalog, schemas: schemas.to_vec(), splits: false, by_ttl: false },
            scope: Scope::default(),
            found: Read::default(),
            starts: Vec::new(),
            views: Views::default(),
            handled: Handled::default(),
            mentioned: Mentioned::new(dialect.is_mysql_family()),
            usages: BTreeMap::new(),
            date_time: false,
            times: false,
            kept_times: KeptTimes::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn into_read_set(mut self, parsed: &Parsed) -> Result<ReadSet, Reason> {
        if parsed.clock_text && self.date_time {
            return Err(Reason::ClockLiteral);
        }
        let tables = self.found.references.iter().map(|reference| &reference.table);
        self.mentioned.settle(tables.chain(&self.found.definitions));
        for reference in &mut self.found.references {
            reference.columns = self.mentioned.of(&reference.table);
        }
        for result_key in &mut self.found.limits.result_keys {
            let table = self.found.references.get(result_key.place).map(|reference| &reference.table);
            result_key.selecting = table.map_or(Columns::All, |table| self.mentioned.selecting(table));
        }
        let zoned = self.handles_timetz(parsed)?;
        let shows_times = self.kept_times.occur;
        let dates = Dates { date_time: self.date_time, zoned, times: self.times, shows_times };
        let effects = self.type_effects()?;
        let Views { unopened, constants, .. } = self.views;
        let read = Read { unopened, constants, effects, ..self.found };
        Ok(ReadSet::new(self.context.dialect, read, self.usages, dates))
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.context.dialect.is_mysql_family()
    }

    pub(crate) fn open_block(&mut self) {
        self.scope.blocks.push(Block { folds_columns: self.is_mysql(), ..Block::default() });
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
        let in_scope = self.scope.ctes.len();
        if let Some(with) = with {
            self.with(with, query)?;
        }
        self.open_block();
        match &**body {
            SetExpr::Select(select) if self.context.splits && self.scope.blocks.len() == 1 => self.outermost(select)?,
            body => self.body(body)?,
        }
        let (mut shown, folds) = (std::mem::take(&mut self.scope.shown), self.scope.folds);
        if let Some(order_by) = order_by {
            self.order_by(order_by)?;
        }
        if let Some(limit) = limit_clause {
            self.limit(limit)?;
        }
        if let Some(Fetch { with_ties: _, percent, quantity }) = fetch {
            absent(!percent, "FETCH PERCENT")?;
            self.count(quantity.as_ref())?;
        }
        let by_values = self.by_values(query, &shown);
        shown.asks = shown.asks.and_then(|asks| asks.of_query(query)).map(Box::new);
        if limit_clause.is_some() || fetch.is_some() || folds != self.scope.folds {
            shown = shown.unreached();
        }
        if folds != self.scope.folds {
            shown.outer.clear();
        }
        self.scope.shown = shown;
        self.note_limit(query, by_values);
        self.note_limit_boundary(query);
        self.scope.blocks.pop();
        self.scope.ctes.truncate(in_scope);
        Ok(())
    }

    fn body(&mut self, body: &SetExpr) -> Outcome {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op: _, set_quantifier: _, right } => {
                let mut sides = Vec::new();
                for side in [left, right] {
                    self.open_block();
                    self.body(side)?;
                    self.scope.blocks.pop();
                    sides.push(std::mem::take(&mut self.scope.shown));
                }
                let mysql = self.is_mysql();
                self.scope.shown = sides.into_iter().reduce(|one, two| one.merged(two, mysql)).unwrap_or_default();
                Ok(())
            }
            SetExpr::Values(values) => {
                absent(!values.explicit_row || self.is_mysql(), "VALUES ROW")?;
                values.rows.iter().try_for_each(|row| self.exprs(&row.content))?;
                self.scope.shown = Shown::default();
                Ok(())
            }
            SetExpr::Table(_) => Err(Reason::Construct("TABLE")),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => Err(Reason::NotSelect),
        }
    }

    /// Walks a SELECT with these conditions as its WHERE; returns the calls counted in the last one.
    pub(crate) fn select_where(&mut self, select: &Select, selection: &[&Expr]) -> Result<Counts, Reason> {
        let first = self.found.references.len();
        self.counts.selects += 1;
        only_standard_clauses(select, self.context.dialect)?;
        let mut conditions = Vec::new();
        for item in &select.from {
            self.joined(item, &mut conditions)?;
        }
        // Names in ON and WHERE are resolved among all items of the block.
        let all = self.scope.blocks.last().map_or(0, |block| block.references.len());
        let condition = |selection| Condition { clause: Clause::On(selection), bounded: 0..all, join: None };
        conditions.extend(selection.iter().copied().map(condition));
        let last = self.walk_conditions(&conditions)?;
        self.reduce(&mut conditions);
        let outer = self.bound_all(&conditions);
        let notes = self.notes(&conditions);
        let before = self.scope.folds;
        if let Some(Distinct::On(exprs)) = &select.distinct {
            self.exprs(exprs)?;
        }
        let in_list = self.mentioned.in_list;
        self.mentioned.in_list |= self.scope.blocks.len() == 1 && self.views.is_outside();
        select.projection.iter().try_for_each(|item| self.select_item(item))?;
        self.mentioned.in_list = in_list;
        match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) => {
                absent(modifiers.is_empty() || self.is_mysql(), "a modifier of GROUP BY")?;
                exprs.iter().try_for_each(|expr| self.unconverted(expr))?;
            }
            GroupByExpr::All(_) => return Err(Reason::Construct("GROUP BY ALL")),
        }
        self.optional(select.having.as_ref())?;
        for window in &select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &window.1 {
                self.window(spec)?;
            }
        }
        self.scope.shown = self.shown_by(select, self.scope.folds.since(before), outer, first);
        self.scope.shown.notes = notes;
        self.scope.shown.asks = self.asks(select).map(Box::new);
        Ok(last)
    }

    fn select_item(&mut self, item: &SelectItem) -> Outcome {
        if let SelectItem::ExprWithAlias { alias, expr } = item {
            self.mentioned.given(&alias.value);
            self.name_time(expr, &alias.value);
        }
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => {
                // The columns of the outermost SELECT are returned; those of another SELECT may be compared or merged.
                if self.scope.blocks.len() == 1 { self.unconverted(expr) } else { self.expr(expr) }
            }
            SelectItem::Wildcard(options)
            | SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), options) => {
                let plain = options.opt_ilike.is_none()
                    && options.opt_exclude.is_none()
                    && options.opt_except.is_none()
                    && options.opt_replace.is_none()
                    && options.opt_rename.is_none()
                    && options.opt_alias.is_none();
                if self.scope.blocks.len() > 1 {
                    self.note_all_dates();
                }
                self.mentioned.all();
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
            self.unconverted(expr)?;
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

    fn count(&mut self, count: Option<&Expr>) -> Outcome {
        count.map_or(Ok(()), |count| self.operand(count, Some((ValueType::Int, false))))
    }

    fn limit(&mut self, limit: &LimitClause) -> Outcome {
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } => {
                absent(limit_by.is_empty(), "LIMIT BY")?;
                self.count(limit.as_ref())?;
                self.count(offset.as_ref().map(|offset| &offset.value))
            }
            LimitClause::OffsetCommaLimit { offset, limit } if self.is_mysql() => {
                self.expr(offset)?;
                self.expr(limit)
            }
            LimitClause::OffsetCommaLimit { .. } => Err(Reason::Construct("LIMIT with a comma")),
        }
    }
}
