//! Visits to the nodes of a syntax tree.
//!
//! The parser's own `Visitor` is a parameter of its walk, which has code for some hundred types of nodes: each visitor would have all of that anew,
//! some megabytes together. Here visitors are trait objects, and there is one walk.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, ObjectName, Query, Select, Statement, TableFactor, Visit};

/// What is done at the nodes; the parser's trait without the methods that nothing here needs.
pub(crate) trait Visitor {
    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Visits all nodes, until the visitor breaks.
pub(crate) fn visit(of: &impl Visit, visitor: &mut dyn Visitor) -> ControlFlow<()> {
    of.visit(&mut AnyVisitor(visitor))
}

/// Visits all expressions, the outer ones first, until the function breaks.
pub(crate) fn visit_expressions(of: &impl Visit, function: impl FnMut(&Expr) -> ControlFlow<()>) -> ControlFlow<()> {
    struct Expressions<F>(F);
    impl<F: FnMut(&Expr) -> ControlFlow<()>> Visitor for Expressions<F> {
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0(expr)
        }
    }
    visit(of, &mut Expressions(function))
}

/// The parser's visitor.
struct AnyVisitor<'a>(&'a mut dyn Visitor);

impl sqlparser::ast::Visitor for AnyVisitor<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.pre_visit_query(query)
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.post_visit_query(query)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.0.pre_visit_select(select)
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.0.pre_visit_relation(relation)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0.pre_visit_expr(expr)
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        self.0.pre_visit_statement(statement)
    }
}
