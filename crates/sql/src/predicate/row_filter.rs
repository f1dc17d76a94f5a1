//! Conditions on one row that no test of a single column by constants tells.
//!
//! `a > b`, `extract(month from d) = 7`, `CASE WHEN a = 1 THEN b ELSE c END = 4`, `x + 1 IN (y, 3)`: as the condition is true of a joined row
//! only if it is true of the row of the one table that it is on, its being true is a test of that row, which becomes part of a tag
//! (`freshet_types::Formula`). No index finds rows by it, so it counts as the weakest of tests.
//!
//! All columns of the condition must be of one reference, and all of them be known; sub-selects are no columns. So a comparison
//! of two tables, which says of a row of the one nearly nothing, stays what it is: nothing (but for equality, see `dependency/join_keys.rs`).
//!
//! A reference that an outer join of its block may extend with NULLs is bounded only if the condition is not true of a row of NULLs
//! (`analyze/mod.rs`: WHERE), which is asked of the condition itself when it is bound. Through the columns of a sub-select it goes as other
//! tests do (`analyze/derived.rs`), but not in MySQL, which looks constants up in derived tables in the column's type.
//!
//! Here is gathered what is asked; what it means, with constants, is told in `predicate/formula/mod.rs`.

use std::sync::Arc;

use freshet_types::ComparedColumn;
use sqlparser::ast::{Expr, Ident};

use crate::predicate::Operand;

/// A condition on a row of one reference.
#[derive(Clone, Debug)]
pub(crate) struct Residual {
    pub(crate) condition: Arc<Expr>,
    /// Whether it is to be true, or false.
    pub(crate) truth: bool,
    /// What the names in it mean.
    pub(crate) columns: Arc<[(Vec<Ident>, ComparedColumn)]>,
    /// The constants in it.
    pub(crate) operands: Arc<[Operand]>,
    /// An outer join may put NULLs in the places of all.
    pub(crate) nullable: bool,
}
