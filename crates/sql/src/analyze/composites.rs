//! Fields of composite values of PostgreSQL: `(address).city`.
//!
//! If the type has no such field, the server calls a function with this name. So a field is read only where the value is a column, or a field of one, and its
//! type is known to have the field. Likewise `city(address)` reads the field if there is no such function: a name that is also a field's is no call.
//!
//! A result that reads a field depends on the column as a whole. Conditions on fields bound no rows.

use freshet_types::{Composite, Reason};
use sqlparser::ast::{AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Subscript};

use crate::analyze::{Outcome, Walk, absent};
use crate::predicate::syntax::unwrapped;

const NOT_KNOWN: Reason = Reason::Construct("a field of a composite value that is not a column of a known type");

impl Walk<'_> {
    /// Array elements and fields behind a value.
    pub(crate) fn accesses(&mut self, root: &Expr, chain: &[AccessExpr]) -> Outcome {
        self.expr(root)?;
        for (at, access) in chain.iter().enumerate() {
            match access {
                AccessExpr::Subscript(Subscript::Index { index }) => self.expr(index)?,
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    self.optional(lower_bound.as_ref())?;
                    self.optional(upper_bound.as_ref())?;
                }
                AccessExpr::Dot(Expr::Identifier(field)) => {
                    self.counts.exprs += 1;
                    let whole = chain.get(..at).and_then(|before| self.composite(root, before));
                    let has_field = whole.is_some_and(|whole| whole.fields.contains_key(&*field.value));
                    has_field.then_some(()).ok_or(NOT_KNOWN)?;
                }
                AccessExpr::Subscript(Subscript::Slice { .. }) | AccessExpr::Dot(_) => return Err(NOT_KNOWN),
            }
        }
        Ok(())
    }

    /// The composite type of a column, or of a field of one.
    fn composite(&self, root: &Expr, chain: &[AccessExpr]) -> Option<&Composite> {
        let composites = &self.context.catalog.composites;
        let whole = match unwrapped(root) {
            Expr::CompoundFieldAccess { root, access_chain } => self.composite(root, access_chain)?,
            column => composites.get(&self.named_column(column)?.composite?)?,
        };
        chain.iter().try_fold(whole, |whole, access| match access {
            AccessExpr::Dot(Expr::Identifier(field)) => composites.get(whole.fields.get(&*field.value)?),
            _ => None,
        })
    }

    /// An error if what looks like a call reads a field, which may even be named as an aggregate.
    pub(crate) fn refuse_field(&self, function: &Function, name: &str) -> Outcome {
        let FunctionArguments::List(list) = &function.args else { return Ok(()) };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_slice() else { return Ok(()) };
        let whole = self.composite(value, &[]);
        absent(!whole.is_some_and(|whole| whole.fields.contains_key(name)), "a call with the name of a field")
    }
}
