//! Rows behind the last one that `ORDER BY … LIMIT` shows do not matter, and the answer itself says where that is.
//!
//! # Why this is sound
//!
//! Let R be a table reference of the outermost block, `R.b` the first sort key, LIMIT k with or without OFFSET o, and let the
//! answer have k rows. Let B be the key of the last of them, and T any sound predicate of R. Then `T AND R.b` *no further than
//! B* is a sound predicate of R:
//!
//! * What is sorted are joined rows, each with the key of the row of R in it, whatever else is joined. At least o + k of them
//!   have a key no further than B, and the answer is made of the first o + k.
//! * A joined row with such a key holds a row of R with such a key, for which T is true if WHERE is. As long as none of those
//!   changes, comes or goes, these joined rows are the same: the first o + k of them, too. What a row of R further behind adds
//!   or takes away is sorted behind them.
//!
//! So T need not be all that WHERE says: a row that comes to satisfy what T leaves out has a new image, and that is what counts.
//! T may be any row. Nor does it matter where LIMIT comes from, or how large OFFSET is: the answer's last row is the bound. If
//! there are fewer rows than k, what is further behind would be shown: then T alone is the predicate.
//!
//! The answer is of one snapshot, and the fill began before it: a commit that the answer does not reflect and that touches rows
//! up to B is found among those that raced the fill, as with all late tags.
//!
//! * **Ties** are within: the bound is included.
//! * **NULLs** come first or last. Where they come first a row of NULL matters always; if the last row's key is NULL itself, those
//!   alone do, or, where they come last, all rows.
//! * **Outer joins.** A row of R behind B must not be the reason why a joined row with NULLs in its place does not exist: R is
//!   on no nullable side.
//! * **Keys that lead from R to others** (`join_keys.rs`) are read from the rows up to B, or from more. By the above the statement is what it
//!   were with `R.b` *no further than B* in its WHERE, as long as nothing changes that its tags name: its first o + k joined rows are
//!   made of rows of R up to B, and of rows that meet these.
//! * **GROUP BY**, if the key is one of its columns: a group is made of rows that have its key. So are the rows that DISTINCT makes
//!   one, since the key is shown, and those that a function makes of one.
//! * **Not with** window functions, which look at rows behind; nor aggregates without GROUP BY, which PostgreSQL refuses beside a
//!   plain column, and MySQL need not; nor set operations. Nor if FOUND_ROWS() is to tell how many rows there are.
//! * **Types** whose order is that of their order keys, and whose values the answer shows exactly: no floats, which servers
//!   round where they show them; no texts of MySQL, of which `max_sort_length` decides how much is compared.

use std::ops::ControlFlow;

use freshet_types::{Column, Columns, ComparedColumn, RowSet, TableId, Tag, Term, Test, Value, ValueType};
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, LimitClause,
    OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableFactor, Visit, Visitor,
};

use crate::allowlist::functions::oid;
use crate::allowlist::mysql_functions::is_aggregate;
use crate::allowlist::visitor::built_in_name;
use crate::analyze::Walk;
use crate::analyze::scope::{Block, Meaning, Reference, Source};
use crate::analyze::sort_keys::{Order, first_key, up_to};
use crate::dependency::derived_limit::Furthest;
use crate::dependency::read_set::{Footprint, ParameterValue};
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::Params;
use crate::predicate::{column_name, parameter, unwrapped};
use crate::{Literal, LiteralKind};

/// Where a statement sorts and cuts its rows.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The reference of the first sort key, among those of the whole statement.
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    /// Which column of the answer shows it, and how many there are.
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
    pub(crate) limit: Limit,
    /// The columns of the answer that show those of the page that is cut; none: the answer is.
    pub(crate) page: Vec<usize>,
}

/// How many rows are shown: the parameter that holds the number; None: one row.
pub(crate) type Limit = Option<u32>;

/// The rows of one table that matter, once the last row of the answer is known.
#[derive(Clone, Debug)]
pub struct Top {
    table: TableId,
    columns: Columns,
    rows: Rows,
    cut: Cut,
    limit: u64,
    /// Texts of the answer are in UTF-8.
    utf8: bool,
}

/// A value of an answer's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field<'a> {
    /// NULL
    Null,
    /// In the server's text form.
    Text(&'a [u8]),
    /// In PostgreSQL's binary form.
    Binary(&'a [u8]),
    /// One that is not read.
    Other,
}

impl Top {
    /// The column of the answer that tells it.
    pub fn column(&self) -> usize {
        self.cut.at
    }

    /// The reference whose rows it tells of.
    pub(crate) fn place(&self) -> usize {
        self.cut.place
    }

    /// What finds the last row of the page that it tells of, if the answer's last row is not that one.
    pub(crate) fn page(&self) -> Option<Furthest> {
        let Self { cut, limit, utf8, .. } = self;
        (!cut.page.is_empty()).then(|| Furthest { cut: cut.clone(), limit: *limit, utf8: *utf8 })
    }

    /// The column that its rows are sorted by.
    pub(crate) fn sorted_by(&self) -> &ComparedColumn {
        &self.cut.column
    }

    /// The tags of an answer of so many rows, the last of which holds these values.
    pub fn late_tags(&self, rows: u64, last: &[Field<'_>]) -> Vec<Tag> {
        self.conjunctions(rows, last).into_iter().map(|terms| self.tag(terms)).collect()
    }

    /// What the rows have that matter then: one of these conjunctions. An empty one: any row.
    pub(crate) fn conjunctions(&self, rows: u64, last: &[Field<'_>]) -> Vec<Vec<Term>> {
        let any = [Vec::new()];
        let conjunctions = self.rows.as_deref().unwrap_or(&any);
        let Some(tests) = self.bound(rows, last) else { return conjunctions.to_vec() };
        tests.iter().flat_map(|test| conjunctions.iter().filter_map(|terms| self.with(terms, test))).collect()
    }

    /// Of which its key passes one; None: the answer does not say how far its rows reach.
    pub(crate) fn bound(&self, rows: u64, last: &[Field<'_>]) -> Option<Vec<Test>> {
        let is_full = rows >= self.limit && last.len() == self.cut.width;
        last.get(self.cut.at).filter(|_| is_full).and_then(|field| self.tests(*field))
    }

    /// Where the rows are that matter if this is the last one's key; None: anywhere.
    fn tests(&self, last: Field<'_>) -> Option<Vec<Test>> {
        let Cut { column, descending, nulls_first, .. } = &self.cut;
        up_to(column, Order { descending: *descending, nulls_first: *nulls_first }, last, self.utf8)
    }

    /// The conjunction with the test; None if no row passes both.
    fn with(&self, terms: &[Term], test: &Test) -> Option<Vec<Term>> {
        let column = &self.cut.column;
        let mut terms = terms.to_vec();
        let mut known = terms.iter().filter(|term| term.column == *column).map(|term| &term.test);
        let passes_none = match test {
            Test::Null => known.any(|known| !known.may_pass_null()),
            _ => known.any(|known| *known == Test::Null),
        };
        if passes_none {
            return None;
        }
        match terms.iter_mut().find(|term| term.column == *column && bind::finds(&term.test)) {
            Some(known) => known.test = bind::both(known.test.clone(), test.clone()),
            None => terms.push(Term { column: column.clone(), test: test.clone() }),
        }
        terms.sort_unstable_by(|a, b| a.column.cmp(&b.column));
        Some(terms)
    }

    fn tag(&self, terms: Vec<Term>) -> Tag {
        let rows = if terms.is_empty() { RowSet::Any } else { RowSet::Where(terms.into()) };
        Tag { table: self.table, rows, columns: self.columns.clone() }
    }
}

impl Footprint {
    /// What the answer's last row will tell, if this execution has a limit.
    pub(crate) fn top(&self, rows: &[Rows], params: Params<'_>) -> Option<Top> {
        let cut = self.cut.clone()?;
        let reference = self.references.get(cut.place)?;
        let limit = self.rows_max(cut.limit, params).filter(|limit| *limit > 0)?;
        let (table, columns) = (reference.table.id, reference.columns.clone());
        Some(Top { table, columns, rows: rows.get(cut.place)?.clone(), cut, limit, utf8: params.utf8 })
    }

    /// The number of rows; None: none is given, or not as a plain number.
    pub(crate) fn rows_max(&self, limit: Limit, params: Params<'_>) -> Option<u64> {
        let Some(number) = limit else { return Some(1) };
        let param = params.get_number(number)?;
        let digits = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        match param.value {
            ParameterValue::Text(text) => digits(text),
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => digits(text),
            ParameterValue::Integer(number) => number.try_into().ok(),
            ParameterValue::Binary(bytes) => {
                // Another use of it may have made it a float.
                let integer = match param.declared_type {
                    0 | oid::UNKNOWN => self.usages.get(&number)?.count == 1,
                    declared => matches!(declared, oid::INT2 | oid::INT4 | oid::INT8),
                };
                match ValueType::Int.normalise_binary(bytes).filter(|_| integer)? {
                    Value::Int(number) => number.try_into().ok(),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// For people: the column that bounds the rows of the reference, if the answer's last row says so. The first `unknown` parameters are not
    /// known yet.
    pub(crate) fn described_cut(&self, place: usize, params: Params<'_>, unknown: u16) -> Option<&ComparedColumn> {
        let cut = self.cut.as_ref().filter(|cut| cut.place == place)?;
        self.may_limit(cut.limit, params, unknown).then_some(&cut.column)
    }

    /// For people: whether there is a limit, or may be one.
    pub(crate) fn may_limit(&self, limit: Limit, params: Params<'_>, unknown: u16) -> bool {
        let is_open = params.values.is_empty() || limit.is_some_and(|number| number <= u32::from(unknown));
        is_open || self.rows_max(limit, params).is_some_and(|limit| limit > 0)
    }
}

/// The value of a column that an answer shows, in its normal form; None: NULL, or it has none. Texts are in UTF-8, or must be the
/// same in any encoding.
pub(crate) fn value(column: &ComparedColumn, field: Field<'_>, utf8: bool) -> Option<Value> {
    let value = match field {
        Field::Null | Field::Other => None,
        Field::Text(text) => column.value_type.normalise_text(text),
        Field::Binary(bytes) => column.value_type.normalise_binary(bytes),
    };
    // Bytes are never converted.
    let is_same = utf8 || column.value_type == ValueType::Bytes;
    value.filter(|value| is_same || !matches!(value, Value::Text(text) if !text.is_ascii()))
}

/// A column of the answer.
pub(crate) struct Item<'b> {
    /// Its name; None: the server makes one up.
    pub(crate) name: Option<&'b str>,
    /// The reference of the block and its column that it shows, if it is a plain one.
    pub(crate) column: Option<(usize, &'b Column)>,
    /// The derived table of the block and the number of its column that it shows.
    pub(crate) shown: Option<(usize, usize)>,
}

impl<'b> Item<'b> {
    fn of(name: Option<&'b str>, block: &'b Block, expr: &Expr) -> Self {
        let meaning = column_name(expr).map(|name| block.meaning(name));
        let column = match meaning {
            Some(Meaning::Column(place, column)) => Some((place, column)),
            _ => None,
        };
        let shown = match meaning {
            Some(Meaning::Shown(place, column)) => block.references[place].shown.at(column).map(|at| (place, at)),
            _ => None,
        };
        Self { name, column, shown }
    }
}

impl Walk<'_> {
    /// Where the outermost query cuts its rows, the innermost block being its own.
    pub(crate) fn cut_of(&self, query: &Query) -> Option<Cut> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let limit = limit_of(query)?;
        let block = self.blocks.last()?;
        let items = items(block, select)?;
        let (first, key) = first_key(query, block, &items)?;
        let is_grouped = has_key(block, select, key)?;
        if self.looks_further(select, query.order_by.as_ref(), is_grouped) {
            return None;
        }
        let (in_block, column) = key;
        let is_it = |item: &Item<'_>| item.column.is_some_and(|(of, shown)| of == in_block && shown == column);
        let at = items.iter().position(is_it)?;
        let place = self.sorted_place(key)?;
        let Order { descending, nulls_first } = self.order_of(first);
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some(Cut { place, column, at, width: items.len(), descending, nulls_first, limit, page: Vec::new() })
    }
}

impl Walk<'_> {
    /// Whether a function in these makes something of more rows than the one that it stands beside, or the group. PostgreSQL refuses an
    /// aggregate beside a plain column. One in a sub-select is of the rows outside if it names columns of these alone, so of those
    /// inside if it names columns of the tables there, or none.
    pub(crate) fn looks_further(&self, select: &Select, order: Option<&OrderBy>, is_grouped: bool) -> bool {
        let mut calls = Calls {
            is: |function: &Function, inside: &[Vec<String>]| {
                let name = built_in_name(self.dialect, &function.name);
                let aggregate = self.is_mysql() && name.is_none_or(|name| is_aggregate(&name.to_ascii_lowercase()));
                function.over.is_some() || (aggregate && !is_grouped && !is_of_inside(function, inside))
            },
            inside: Vec::new(),
        };
        select.projection.visit(&mut calls).is_break() || order.is_some_and(|order| order.visit(&mut calls).is_break())
    }
}

/// Finds the call of a function of which something is true that is told the names of tables in the sub-selects around it.
struct Calls<F> {
    is: F,
    inside: Vec<Vec<String>>,
}

impl<F: Fn(&Function, &[Vec<String>]) -> bool> Visitor for Calls<F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let from = match &*query.body {
            SetExpr::Select(select) => select.from.as_slice(),
            _ => &[],
        };
        let factors = from
            .iter()
            .flat_map(|item| std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation)));
        let name = |factor: &TableFactor| match factor {
            TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.clone()),
            TableFactor::Table { name, .. } => Some(name.0.last()?.as_ident()?.value.clone()),
            _ => None,
        };
        self.inside.push(factors.filter_map(name).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.inside.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if (self.is)(function, &self.inside) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether an aggregate is of rows of the innermost of these sub-selects: `count(*)`, or of a column that is qualified with the name of a table there.
fn is_of_inside(function: &Function, inside: &[Vec<String>]) -> bool {
    let Some(tables) = inside.last() else { return false };
    let FunctionArguments::List(list) = &function.args else { return false };
    let is_inside = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => true,
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(name))) => {
            matches!(name.as_slice(), [table, _] if tables.contains(&table.value))
        }
        _ => false,
    };
    !tables.is_empty() && !list.args.is_empty() && list.args.iter().all(is_inside)
}

/// The number of rows that a query shows; None: all, or it is not a parameter.
pub(crate) fn limit_of(query: &Query) -> Option<Limit> {
    match (&query.limit_clause, &query.fetch) {
        (
            Some(LimitClause::LimitOffset { limit: Some(limit), .. } | LimitClause::OffsetCommaLimit { limit, .. }),
            None,
        ) => Some(Some(parameter(unwrapped(limit))?)),
        // An OFFSET stands by itself. WITH TIES shows rows that the bound includes.
        (None | Some(LimitClause::LimitOffset { limit: None, .. }), Some(fetch)) => match &fetch.quantity {
            Some(quantity) => Some(Some(parameter(unwrapped(quantity))?)),
            None => Some(None),
        },
        _ => None,
    }
}

/// Whether rows are grouped, and then by the key, too; None: by something else, or into one.
fn has_key(block: &Block, select: &Select, key: (usize, &Column)) -> Option<bool> {
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return None };
    let is_key = |expr: &Expr| column_name(expr).and_then(|name| named(block, name)) == Some(key);
    let grouped = !exprs.is_empty();
    let plain = modifiers.is_empty() && matches!(select.distinct, None | Some(Distinct::Distinct));
    let has_key = if grouped { exprs.iter().any(is_key) } else { select.having.is_none() };
    (plain && has_key).then_some(grouped)
}

/// Whether a function is called of which this is true.
pub(crate) fn calls(of: &impl Visit, is: impl Fn(&Function) -> bool) -> bool {
    of.visit(&mut Calls { is: |function: &Function, _: &[Vec<String>]| is(function), inside: Vec::new() }).is_break()
}

/// Whether ORDER BY may sort by what the list shows, by its number or by the name that the list gives it.
pub(crate) fn sorts_by_list(query: &Query, select: &Select) -> bool {
    let Some(order_by) = &query.order_by else { return false };
    let OrderByKind::Expressions(order) = &order_by.kind else { return true };
    let is_alias = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(&name.value),
            _ => false,
        })
    };
    let sorts =
        |OrderByExpr { expr, .. }: &OrderByExpr| matches!(unwrapped(expr), Expr::Value(_)) || names(expr, is_alias);
    order.iter().any(sorts)
}

/// Whether a name alone stands in it of which this is true.
fn names(of: &impl Visit, is: impl Fn(&Ident) -> bool) -> bool {
    struct Names<F>(F);
    impl<F: Fn(&Ident) -> bool> Visitor for Names<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(name) if self.0(name) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    of.visit(&mut Names(is)).is_break()
}

/// The columns of the answer; None if they are not known.
pub(crate) fn items<'b>(block: &'b Block, select: &'b Select) -> Option<Vec<Item<'b>>> {
    let mut items = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                items.push(Item::of(Some(&alias.value), block, expr));
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = match expr {
                    // PostgreSQL calls it so; to MySQL its name is its text, with brackets.
                    Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()),
                    _ => column_name(expr).and_then(<[Ident]>::last),
                };
                items.push(Item::of(name.map(|name| &*name.value), block, expr));
            }
            SelectItem::Wildcard(_) => {
                for place in 0..block.references.len() {
                    items.extend(columns(block, place)?);
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let [alias] = name.0.as_slice() else { return None };
                let alias = alias.as_ident()?;
                let mut named =
                    block.references.iter().enumerate().filter(|(_, reference)| reference.alias == alias.value);
                let (Some((place, _)), None) = (named.next(), named.next()) else { return None };
                items.extend(columns(block, place)?);
            }
            _ => return None,
        }
    }
    Some(items)
}

/// The columns that `*` shows of a reference. Where it shows fewer (those that USING merges, invisible ones) the answer's rows
/// are of another width.
fn columns<'b>(block: &'b Block, place: usize) -> Option<Vec<Item<'b>>> {
    let Reference { source, shown, .. } = block.references.get(place)?;
    let items = match source {
        Source::Table { table, .. } => {
            let of =
                |column: &'b Column| Item { name: Some(&*column.name), column: Some((place, column)), shown: None };
            table.columns.iter().map(of).collect()
        }
        Source::Opaque => {
            let of = |(at, name)| Item { name: Some(name), column: None, shown: Some((place, at)) };
            shown.names()?.enumerate().map(of).collect()
        }
    };
    Some(items)
}

pub(crate) fn named<'b>(block: &'b Block, idents: &[Ident]) -> Option<(usize, &'b Column)> {
    match block.meaning(idents) {
        Meaning::Column(place, column) => Some((place, column)),
        _ => None,
    }
}
