//! Functions and operators that PostgreSQL looks up by itself where syntax names none: the one list of them.
//!
//! Operators are found by their names in the search path (`make_op`), so one that somebody made may be meant. Functions are those of the
//! server's own schema, but for `ceil`, `floor`, `substring` and `overlay` with commas. What syntax finds by the default operator class of
//! a type (DISTINCT, GROUP BY, ORDER BY, set operations, windows, GREATEST, comparisons within arrays and rows, `array_position` …)
//! is no matter of names: see `types.rs`.
//!
//! To ask the database what a statement resolved to would spare the list. But a view, whose dependencies it records, cannot be made of a
//! statement with parameters, is a write that fires event triggers, and does not record casts through input and output, nor those that
//! functions look up when they run; of a prepared statement the server shows nothing, but in its log.

use sqlparser::ast::{BinaryOperator, Expr, JoinConstraint, JoinOperator, TableFactor, TableWithJoins};

/// What syntax looks up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lookups {
    pub(crate) operators: &'static [&'static str],
    pub(crate) functions: &'static [&'static str],
}

const EQUAL: Lookups = operators(&["="]);

const fn operators(operators: &'static [&'static str]) -> Lookups {
    Lookups { operators, functions: &[] }
}

const fn functions(functions: &'static [&'static str]) -> Lookups {
    Lookups { operators: &[], functions }
}

impl Lookups {
    /// Those of an expression, without those in it.
    pub(crate) fn of_expr(expr: &Expr) -> Self {
        match expr {
            Expr::InList { .. } | Expr::InSubquery { .. } => operators(&["=", "<>"]),
            Expr::Between { .. } => operators(&["<", "<=", ">", ">="]),
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) | Expr::Case { operand: Some(_), .. } => EQUAL,
            Expr::Function(function) if function.name.0.last().is_some_and(|part| part.to_string() == "nullif") => {
                EQUAL
            }
            Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => functions(&["overlaps"]),
            Expr::Like { .. } => Self { operators: &["~~", "!~~"], functions: &["like_escape"] },
            Expr::ILike { .. } => Self { operators: &["~~*", "!~~*"], functions: &["like_escape"] },
            Expr::SimilarTo { .. } => Self { operators: &["~", "!~"], functions: &["similar_to_escape"] },
            Expr::Extract { .. } => functions(&["extract", "date_part"]),
            Expr::AtTimeZone { .. } => functions(&["timezone"]),
            Expr::Ceil { .. } => functions(&["ceil"]),
            Expr::Floor { .. } => functions(&["floor"]),
            Expr::Position { .. } => functions(&["position"]),
            Expr::Substring { .. } => functions(&["substring", "substr"]),
            Expr::Trim { .. } => functions(&["btrim", "ltrim", "rtrim"]),
            Expr::Overlay { .. } => functions(&["overlay"]),
            _ => Self::default(),
        }
    }

    /// Those of a FROM item, without those in it.
    pub(crate) fn of_factor(factor: &TableFactor) -> Self {
        match factor {
            TableFactor::UNNEST { .. } => functions(&["unnest"]),
            TableFactor::NestedJoin { table_with_joins, .. } => Self::of_joins(table_with_joins),
            _ => Self::default(),
        }
    }

    /// Those of USING and NATURAL.
    pub(crate) fn of_joins(item: &TableWithJoins) -> Self {
        let merges =
            |constraint: &JoinConstraint| matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
        let of_join = |operator: &JoinOperator| match operator {
            JoinOperator::Join(on)
            | JoinOperator::Inner(on)
            | JoinOperator::Left(on)
            | JoinOperator::LeftOuter(on)
            | JoinOperator::Right(on)
            | JoinOperator::RightOuter(on)
            | JoinOperator::FullOuter(on)
            | JoinOperator::CrossJoin(on) => merges(on),
            // No other is analysed.
            _ => false,
        };
        if item.joins.iter().any(|join| of_join(&join.join_operator)) { EQUAL } else { Self::default() }
    }
}
