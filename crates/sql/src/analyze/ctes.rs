//! Common table expressions: their names, and the columns that a reference to one has.

use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, Query, With};

use crate::analyze::shown::Shown;
use crate::analyze::{Outcome, Walk, absent};
use crate::visit::{Visitor, visit};

/// A common table expression in scope.
pub(crate) struct Cte {
    name: String,
    /// The columns of a reference to it.
    shown: Shown,
}

impl Walk<'_> {
    /// Walks the common table expressions of a query.
    pub(crate) fn with(&mut self, with: &With, query: &Query) -> Outcome {
        let names = || with.cte_tables.iter().map(|cte| cte.alias.name.value.clone());
        if with.recursive {
            self.scope.ctes.extend(names().map(|name| Cte { name, shown: Shown::default() }));
        }
        for (cte, name) in with.cte_tables.iter().zip(names()) {
            absent(cte.from.is_none(), "WITH … FROM")?;
            absent(cte.alias.at.is_none(), "AT in an alias")?;
            for column in &cte.alias.columns {
                self.mentioned.given(&column.name.value);
            }
            // Its columns are not those of the result.
            self.open_block();
            self.query(&cte.query)?;
            self.scope.blocks.pop();
            let shown = std::mem::take(&mut self.scope.shown).renamed(Some(&cte.alias));
            if !with.recursive {
                let shown = if references(query, &name) > 1 { shown.unreached() } else { shown };
                self.scope.ctes.push(Cte { name, shown });
            }
        }
        Ok(())
    }

    /// The columns of the common table expression with this name; None if there is none.
    pub(crate) fn shown_by_cte(&self, name: &str) -> Option<Shown> {
        self.scope.ctes.iter().rev().find(|cte| cte.name == name).map(|cte| cte.shown.clone())
    }
}

/// The number of references in a query to a common table expression with this name.
fn references(query: &Query, name: &str) -> usize {
    struct References<'a> {
        name: &'a str,
        count: usize,
    }
    impl Visitor for References<'_> {
        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            if let [part] = relation.0.as_slice() {
                let is_it = part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case(self.name));
                self.count += usize::from(is_it);
            }
            ControlFlow::Continue(())
        }
    }
    let mut references = References { name, count: 0 };
    let _ = visit(query, &mut references);
    references.count
}
