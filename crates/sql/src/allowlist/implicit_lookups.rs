//! Functions and operators that PostgreSQL looks up for syntax that does not name them: the only list of them.
//!
//! PostgreSQL finds these operators by name in the search path (`make_op`), so a user-defined operator may be found. The functions are those of the
//! schema `pg_catalog`, except for `ceil`, `floor`, `substring` and `overlay` with commas. Syntax that uses the default operator class of a type
//! (DISTINCT, GROUP BY, ORDER BY, set operations, windows, GREATEST, comparisons within arrays and rows, `array_position` …) does not look up names:
//! see `types.rs`.
//!
//! Asking the database how it resolved a statement would replace the list, but is not possible. A view records its dependencies, but a statement with
//! parameters cannot become a view, creating one is a write that fires event triggers, and it records neither casts through input and output
//! functions nor what functions look up when they run. Of a prepared statement the server shows nothing except in its log.

use sqlparser::ast::{BinaryOperator, Expr, JoinConstraint, JoinOperator, TableFactor, TableWithJoins};

/// The names that syntax looks up.
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
    /// The lookups of an expression, without those of its sub-expressions.
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

    /// The lookups of a FROM item, without those of the expressions in it.
    pub(crate) fn of_factor(factor: &TableFactor) -> Self {
        match factor {
            TableFactor::UNNEST { .. } => functions(&["unnest"]),
            TableFactor::NestedJoin { table_with_joins, .. } => Self::of_joins(table_with_joins),
            _ => Self::default(),
        }
    }

    /// The lookups of USING and NATURAL.
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
            // Other joins are not analysed.
            _ => false,
        };
        if item.joins.iter().any(|join| of_join(&join.join_operator)) { EQUAL } else { Self::default() }
    }
}
