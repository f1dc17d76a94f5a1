//! Row filters: conditions on one row that are not tests of a single column by constants.
//!
//! Examples are `a > b`, `extract(month from d) = 7`, `CASE WHEN a = 1 THEN b ELSE c END = 4`, `x + 1 IN (y, 3)`. If all columns belong to one table
//! reference, the condition is true of a joined row only if it is true of that table's row. So it is a test of this row and becomes part of a tag
//! (`freshet_types::Formula`). No index finds rows by it, so it counts as the weakest of tests.
//!
//! All columns of the condition must belong to one reference and be known; sub-selects are not columns. A comparison of two tables restricts the rows
//! of one table hardly at all and gives no test (except equality, see `dependency/join_keys.rs`).
//!
//! A reference that an outer join of its block may extend with NULLs is restricted only if the condition is not true of a row of NULLs
//! (`analyze/mod.rs`: WHERE). This is evaluated with the condition itself when it is bound. A row filter applies through the columns of a sub-select
//! as other tests do (`analyze/derived.rs`), but not in MySQL, which looks up constants in derived tables in the column's type.
//!
//! This file collects the conditions; `predicate/formula/mod.rs` evaluates them with their constants.

use std::sync::Arc;

use freshet_types::ComparedColumn;
use sqlparser::ast::{Expr, Ident};

use crate::predicate::Operand;

/// A condition on a row of one reference.
#[derive(Clone, Debug)]
pub(crate) struct RowFilter {
    pub(crate) condition: Arc<Expr>,
    /// Whether it must be true, or false.
    pub(crate) truth: bool,
    /// The columns of the names in it.
    pub(crate) columns: Arc<[(Vec<Ident>, ComparedColumn)]>,
    /// The constants in it.
    pub(crate) operands: Arc<[Operand]>,
    /// An outer join may replace all columns by NULLs.
    pub(crate) nullable: bool,
}
