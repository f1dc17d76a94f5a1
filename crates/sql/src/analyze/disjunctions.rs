//! A disjunction over several tables: `WHERE a.x = 1 OR b.y = 2`.
//!
//! A test of one reference alone bounds nothing there: each disjunct says nothing about the other's rows. But the joined rows for which `A OR B` is
//! true are those for which A is true and those for which B is true, and the block's result is a function of both sets together. So the block is
//! walked once for each disjunct, as if only this one were in its WHERE, each time with its own references. Rows outside those of the first walk do
//! not change the first set, rows outside those of the second do not change the second. In each walk the disjunct bounds its table, turns outer joins
//! into inner ones, and gives join keys for the tables that are joined with it.
//!
//! Only the outermost SELECT is walked in this way: no other query reads its columns, and its walks share no common table expression. It must have no
//! LIMIT, whose last row bounds one reference only. And it must bound tables of which any row would matter otherwise.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Query, Select, SetExpr, TableFactor};

use crate::allowlist::visitor::Counts;
use crate::analysis::ResultKey;
use crate::analyze::{Outcome, Walk};
use crate::predicate::syntax::unwrapped;
use crate::visit::{Visitor, visit};

/// Limit of disjuncts in one statement.
const BRANCHES_MAX: usize = 4;

/// Limit of tables in a block that is walked several times.
const TABLES_MAX: usize = 16;

/// The parts of a condition.
struct Branches<'q> {
    /// All of these hold.
    all: Vec<&'q Expr>,
    /// One of these holds.
    any: Vec<&'q Expr>,
    /// Number of syntax tree nodes above them.
    above: usize,
}

impl Walk<'_> {
    /// Walks the outermost SELECT.
    pub(crate) fn outermost(&mut self, select: &Select) -> Outcome {
        let Some(Branches { all, any, above }) = select.selection.as_ref().and_then(|of| branches(select, of)) else {
            return self.select(select);
        };
        let mut starts = Vec::new();
        let mut seen: Option<Counts> = None;
        for branch in any {
            if seen.is_some() {
                self.scope.blocks.pop();
                self.open_block();
            }
            starts.push(self.found.references.len());
            let pieces: Vec<&Expr> = all.iter().copied().chain([branch]).collect();
            let own = self.select_where(select, &pieces)?;
            // Each node counts once, however often it is walked.
            self.counts = seen.map_or(self.counts, |seen| seen.and(own));
            seen = Some(self.counts);
        }
        self.counts.exprs += above;
        self.starts = starts;
        Ok(())
    }

    /// Walks a SELECT unchanged.
    pub(crate) fn select(&mut self, select: &Select) -> Outcome {
        let selection: Vec<&Expr> = select.selection.iter().collect();
        self.select_where(select, &selection).map(|_| ())
    }

    /// Repeats what holds of references of the last walk of the outermost SELECT for those of the other walks.
    pub(crate) fn in_each_branch(&self, result_keys: Vec<ResultKey>) -> Vec<ResultKey> {
        let (last, others) = self.starts.split_last().map_or((0, &[][..]), |(last, others)| (*last, others));
        let place = |of: &ResultKey, start: &usize| Some(of.place.checked_sub(last)? + start);
        let copies =
            |of: &ResultKey| others.iter().filter_map(|start| Some(of.at(place(of, start)?))).collect::<Vec<_>>();
        let copies: Vec<ResultKey> = result_keys.iter().flat_map(copies).collect();
        result_keys.into_iter().chain(copies).collect()
    }
}

/// Whether a query may be walked in this way.
pub(crate) fn has_branches(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let has_limit = query.limit_clause.is_some() || query.fetch.is_some();
    let plain = query.with.is_none() && !has_limit;
    plain && select.selection.as_ref().is_some_and(|selection| branches(select, selection).is_some())
}

/// The parts of a condition with a disjunction over several tables, or over a table and a sub-select.
fn branches<'q>(select: &Select, selection: &'q Expr) -> Option<Branches<'q>> {
    let (conjuncts, mut above) = operands(selection, &BinaryOperator::And);
    let (mut all, mut any) = (Vec::new(), Vec::new());
    for conjunct in conjuncts {
        let (disjuncts, nodes) = operands(conjunct, &BinaryOperator::Or);
        let over: BTreeSet<Vec<String>> = disjuncts.iter().map(|disjunct| tables_of(disjunct)).collect();
        if any.is_empty() && over.len() > 1 && disjuncts.len() <= BRANCHES_MAX {
            any = disjuncts;
            above += nodes;
        } else {
            all.push(conjunct);
        }
    }
    let several = (2..=TABLES_MAX).contains(&tables(select));
    (several && !any.is_empty()).then_some(Branches { all, any, above })
}

/// The operands of a chain of one operator, and the number of nodes of the chain.
fn operands<'q>(expr: &'q Expr, operator: &BinaryOperator) -> (Vec<&'q Expr>, usize) {
    let (mut found, mut nodes) = (Vec::new(), 0);
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match unwrapped(expr) {
            Expr::BinaryOp { left, op, right } if op == operator => {
                nodes += 1 + brackets(expr);
                open.extend([&**left, &**right]);
            }
            _ => found.push(expr),
        }
    }
    (found, nodes)
}

/// The number of parentheses around an expression.
fn brackets(mut expr: &Expr) -> usize {
    let mut count = 0;
    while let Expr::Nested(inner) = expr {
        count += 1;
        expr = inner;
    }
    count
}

/// The qualifiers of the columns that an expression names, sorted; the name itself for an unqualified column.
fn tables_of(expr: &Expr) -> Vec<String> {
    struct Names(BTreeSet<String>);
    impl Visitor for Names {
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let first = match expr {
                Expr::Identifier(ident) => Some(ident),
                Expr::CompoundIdentifier(idents) => idents.iter().rev().nth(1),
                _ => None,
            };
            self.0.extend(first.map(|ident| ident.value.clone()));
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(BTreeSet::new());
    let _ = visit(expr, &mut names);
    names.0.into_iter().collect()
}

/// The number of tables and sub-selects anywhere in a SELECT.
fn tables(select: &Select) -> usize {
    struct Tables(usize);
    impl Visitor for Tables {
        fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
    }
    let mut tables = Tables(0);
    let _ = visit(select, &mut tables);
    tables.0
}
