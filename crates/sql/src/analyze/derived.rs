//! The columns of sub-selects: the origins of their values, and the references that a condition on them bounds.
//!
//! Consider `FROM (SELECT s.d AS e FROM s WHERE …) q JOIN r ON r.c = q.e` and `r.c IN (SELECT s.d FROM s WHERE …)`. For a row of r both say that c is
//! one of the values of `s.d` in the rows of s that matter, just as `r.c = s.d` does in one block (`mod.rs`: "Propagation of constants"). Whatever
//! the sub-select does with its rows (joins, groups, DISTINCT, LIMIT), a plain column in its list has no other values except NULL, which equals
//! nothing. So such an equality is an edge from s to r. MIN and MAX of a column have no other values either. The column of a set operation has the
//! values of the columns in its branches, if all are stored in the same way, so that the operation converts none of them.
//!
//! In the other direction, a condition on `q.e` bounds s if deleting the rows of s for which it is not true deletes exactly the rows of q for which
//! it is not true. Then it is equivalent to a condition at the top of q's own WHERE, for which `mod.rs` gives the rest of the argument (also why s
//! may be on any side of an outer join). This holds if each row of q comes from one joined row:
//!
//! * not with LIMIT, DISTINCT ON or window functions, with which rows affect other rows; nor in recursive queries;
//! * not with aggregates, unless GROUP BY names s.d itself: then a condition on it deletes whole groups. The rows of a group, and those that DISTINCT
//!   or UNION merge, are equal in `d`, so they have one normal form or none. Tests of the tags are true of all of them or of none, except tests of
//!   the spelling (LIKE, NOT), which do not apply inside;
//! * through all set operations, to the column in the same place of each branch, if all are plain columns that are stored in the same way, so that
//!   the operation converts none of them, or NULL (`null_branches.rs`);
//! * not if a common table expression is referred to more than once: another reference may contain what this one drops.
//!
//! The columns of a view are those of the derived table of its query (`views.rs`).
//!
//! MySQL looks up rows of a derived table by a key of the column's type, to which it rounds the other side: `q.e = 0.5` is true of 1 if e is an
//! integer. So in MySQL only integers, texts and dates apply inside, and only to columns of one such type.
//!
//! The sub-select of `r.c IN (SELECT s.d …)` at the top of a condition is bounded in this way by r.c: the condition is true for no row with another
//! value of s.d.
//!
//! A sub-select of which only the existence of rows matters restricts the outer row as well. Where EXISTS or IN is true, a row satisfies the inner
//! WHERE. So an equality there with an outer column bounds the outer reference ([`Outer`]). An aggregate without GROUP BY returns a row even for no
//! rows and gives no such bound. For `(SELECT …) = x` see `scalar_subqueries.rs`.

use std::ops::Range;

use freshet_types::Column;
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind,
};

use crate::allowlist::names::built_in_name;
use crate::analyze::scope::{Block, Meaning, Reference, Source, has_similar};
use crate::analyze::shown::{Named, Null, Origin, Outer, Reached, Shown, ShownColumn};
use crate::analyze::{Walk, null_branches};
use crate::predicate::column_expressions::is_plain_text;
use crate::predicate::like::as_text;
use crate::predicate::syntax::{column_name, unwrapped};

/// Identifies a sub-select by its address in the syntax tree.
pub(crate) type At = *const Query;

/// Counts of the calls that combine several rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folds {
    pub(crate) aggregates: usize,
    pub(crate) windows: usize,
}

impl Folds {
    /// The calls since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { aggregates: self.aggregates - before.aggregates, windows: self.windows - before.windows }
    }
}

/// How the rows of a block result from its joined rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    /// Each from one.
    Rows,
    /// One for all rows that are equal in the columns of GROUP BY.
    Groups,
    /// In another way; `of_none`: it may return a row for no rows.
    Other { of_none: bool },
}

impl Walk<'_> {
    /// The columns of the innermost block.
    pub(crate) fn shown_by(&self, select: &Select, folds: Folds, outer: Vec<Outer>, first: usize) -> Shown {
        let makes = makes(select, folds);
        let groups = match &select.group_by {
            GroupByExpr::Expressions(exprs, _) if makes == Makes::Groups => exprs.as_slice(),
            _ => &[],
        };
        let groups: Vec<Vec<Origin>> = groups.iter().filter_map(|expr| Some(self.named(expr)?.origins)).collect();
        let mut shown = Shown::default();
        for item in &select.projection {
            if !self.show(item, &mut shown) {
                shown = Shown::default();
                break;
            }
        }
        null_branches::note(&mut shown, select, &(first..self.found.references.len()), self.is_mysql());
        for column in &mut shown.columns {
            let is_group = !column.origins.is_empty() && groups.contains(&column.origins);
            if makes != Makes::Rows && (makes != Makes::Groups || !is_group) {
                column.clear();
            }
        }
        shown.is_single = self.is_single(select);
        shown.outer = if makes == (Makes::Other { of_none: true }) { Vec::new() } else { outer };
        shown
    }

    /// Adds the columns of one item; false if they are not known.
    fn show(&self, item: &SelectItem, shown: &mut Shown) -> bool {
        let Some(block) = self.scope.blocks.last() else { return false };
        let with_name = |name: &str, expr: &Expr| {
            let named = self.named(expr);
            let own = named.as_ref().filter(|named| named.block + 1 == self.scope.blocks.len());
            let (reached, nulls) = own.map(|named| (named.rows.clone(), named.nulls.clone())).unwrap_or_default();
            ShownColumn { name: name.to_owned(), origins: self.origins(expr), reached, nulls, is_null: false }
        };
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = column_name(expr).and_then(<[_]>::last).map_or("", |name| &name.value);
                shown.columns.push(with_name(name, expr));
                true
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                shown.columns.push(with_name(&alias.value, expr));
                true
            }
            SelectItem::Wildcard(_) => {
                shown.starred = true;
                let whole = !block.natural && block.merged.is_empty();
                whole && block.references.iter().all(|reference| self.show_all(reference, shown))
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                shown.starred = true;
                let [part] = name.0.as_slice() else { return false };
                let is = |reference: &&Reference| {
                    part.as_ident().is_some_and(|ident| reference.alias.eq_ignore_ascii_case(&ident.value))
                };
                let mut found = block.references.iter().filter(is);
                match (found.next(), found.next()) {
                    (Some(reference), None) => self.show_all(reference, shown),
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn show_all(&self, reference: &Reference, shown: &mut Shown) -> bool {
        match &reference.source {
            Source::Table { table, .. } => shown.columns.extend(table.columns.iter().map(|column| {
                let (name, reached) = (column.name.to_string(), self.rows_of(reference, column));
                let (origins, nulls) = (self.only(reference, column), nulls_of(reference, column));
                ShownColumn { name, origins, reached, nulls, is_null: false }
            })),
            Source::Opaque if reference.shown.columns.is_empty() => return false,
            Source::Opaque => shown.columns.extend(reference.shown.columns.iter().cloned().map(|mut column| {
                column.reached.iter_mut().for_each(|reached| reached.nullable |= reference.nullable);
                column.is_null = false;
                column
            })),
        }
        true
    }

    /// Assigns columns to the last item of FROM.
    pub(crate) fn show_last(&mut self, shown: Shown) {
        if let Some(reference) = self.scope.blocks.last_mut().and_then(|block| block.references.last_mut()) {
            reference.shown = shown;
        }
    }

    /// Stores the facts about `EXISTS (SELECT …)`, `IN (SELECT …)` or `(SELECT …)`, which was the last query walked.
    pub(crate) fn note_told(&mut self, subquery: &Query) {
        let shown = std::mem::take(&mut self.scope.shown);
        self.scope.told.insert(std::ptr::from_ref(subquery), shown);
    }

    /// The facts about a sub-select, if it has been walked.
    pub(crate) fn told_by(&self, subquery: &Query) -> Option<&Shown> {
        self.scope.told.get(&std::ptr::from_ref(subquery))
    }

    /// The origins of an expression's values other than NULL: each comes from one of these columns. Empty if they are not known.
    pub(crate) fn origins(&self, expr: &Expr) -> Vec<Origin> {
        match unwrapped(expr) {
            Expr::Function(function) => self.extreme_of(function).map_or_else(Vec::new, |expr| self.origins(expr)),
            Expr::Subquery(subquery) => match self.told_by(subquery).map(|shown| shown.columns.as_slice()) {
                Some([only]) => only.origins.clone(),
                _ => Vec::new(),
            },
            expr => self.named(expr).map_or_else(Vec::new, |named| named.origins),
        }
    }

    /// The argument of MIN and MAX.
    fn extreme_of<'e>(&self, function: &'e Function) -> Option<&'e Expr> {
        let name = built_in_name(self.context.dialect, &function.name);
        let FunctionArguments::List(list) = &function.args else { return None };
        match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] if matches!(name, Some("min" | "max")) => Some(expr),
            _ => None,
        }
    }

    /// The column that an expression names, if it is certain.
    pub(crate) fn named(&self, expr: &Expr) -> Option<Named> {
        let (cast, column) = as_text(expr);
        let mut named = self.named_by(column_name(column)?)?;
        if cast {
            named.rows.retain(|reached| is_plain_text(reached.origin.column.value_type));
            if !named.origins.iter().all(|origin| is_plain_text(origin.column.value_type)) {
                named.origins.clear();
            }
        }
        Some(named)
    }

    pub(crate) fn named_by(&self, idents: &[Ident]) -> Option<Named> {
        for (at, block) in self.scope.blocks.iter().enumerate().rev() {
            match block.meaning(idents) {
                // An outer column of this name may be meant only if no inner item has one.
                Meaning::Elsewhere if idents.len() == 1 && knows_all_columns(block) => {}
                Meaning::Elsewhere if idents.len() > 1 && !has_similar(block, idents) => {}
                meaning => return self.named_as(at, block, &meaning),
            }
        }
        None
    }

    /// The only column with this name among some items of the innermost block, if the columns of all of them are known.
    pub(crate) fn named_on_side(&self, name: &str, items: Range<usize>) -> Option<Named> {
        let block = self.scope.blocks.last()?;
        self.named_as(self.scope.blocks.len() - 1, block, &block.only_column(name, items)?)
    }

    fn named_as(&self, at: usize, block: &Block, meaning: &Meaning<'_>) -> Option<Named> {
        match *meaning {
            Meaning::Column(place, column) => {
                let reference = block.references.get(place)?;
                let (rows, origins) = (self.rows_of(reference, column), self.only(reference, column));
                Some(Named { block: at, place, rows, origins, nulls: nulls_of(reference, column) })
            }
            Meaning::Shown(place, column) => {
                let nullable = block.references.get(place).is_none_or(|reference| reference.nullable);
                let (rows, origins) = (column.rows(nullable), column.values());
                Some(Named { block: at, place, rows, origins, nulls: column.nulls.clone() })
            }
            Meaning::Opaque | Meaning::NoColumn | Meaning::Elsewhere => None,
        }
    }

    /// A column in the tables that a reference means: those tables that have this very column, not another one with its name.
    fn rows_of(&self, reference: &Reference, column: &Column) -> Vec<Reached> {
        if let Some(shown) = reference.of_view(column) {
            return shown.rows(reference.nullable);
        }
        let Source::Table { places, .. } = &reference.source else { return Vec::new() };
        let has = |place: usize| {
            let found = self.found.references.get(place)?.table.column(&column.name);
            (found == Some(column) && !column.generated).then(|| Reached {
                origin: Origin { place, column: column.clone(), through: false },
                nullable: reference.nullable,
            })
        };
        places.clone().filter_map(has).collect()
    }

    /// The same if it is one table. If there are several, rows of each may be meant, and no single one gives the values.
    fn only(&self, reference: &Reference, column: &Column) -> Vec<Origin> {
        if let Some(shown) = reference.of_view(column) {
            return shown.values();
        }
        let rows = match &reference.source {
            Source::Table { places, .. } if places.len() == 1 => self.rows_of(reference, column),
            _ => Vec::new(),
        };
        rows.into_iter().map(|reached| reached.origin).collect()
    }
}

/// The branches in which a column of a view is NULL.
fn nulls_of(reference: &Reference, column: &Column) -> Vec<Null> {
    reference.of_view(column).map_or_else(Vec::new, |shown| shown.nulls.clone())
}

fn makes(select: &Select, folds: Folds) -> Makes {
    let of_none = Makes::Other { of_none: true };
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return of_none };
    let plain = |expr: &Expr| {
        !matches!(unwrapped(expr), Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) | Expr::Tuple(_))
    };
    if !modifiers.is_empty() || !exprs.iter().all(plain) {
        return of_none;
    }
    // Without GROUP BY, HAVING and aggregates form one group of all rows, or of none.
    if exprs.is_empty() && (folds.aggregates > 0 || select.having.is_some()) {
        return of_none;
    }
    if folds.windows > 0 || matches!(select.distinct, Some(Distinct::On(_))) {
        return Makes::Other { of_none: false };
    }
    if exprs.is_empty() { Makes::Rows } else { Makes::Groups }
}

fn knows_all_columns(block: &Block) -> bool {
    !block.natural && block.references.iter().all(Reference::is_named)
}
