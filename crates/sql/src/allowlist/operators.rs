//! The operators that a cached statement may use.

use freshet_types::Dialect;
use sqlparser::ast::{BinaryOperator, UnaryOperator};

use crate::allowlist::mysql_functions;

/// The operator's symbol, if it is built in and a cached statement may use it. AND and OR have no symbol to check.
pub(crate) fn binary_operator(op: &BinaryOperator) -> Result<Option<String>, String> {
    use BinaryOperator as B;
    match op {
        // OVERLAPS calls a function: see `implicit_lookups.rs`.
        B::And | B::Or | B::Overlaps => Ok(None),
        B::Plus
        | B::Minus
        | B::Multiply
        | B::Divide
        | B::Modulo
        | B::StringConcat
        | B::Gt
        | B::Lt
        | B::GtEq
        | B::LtEq
        | B::Eq
        | B::NotEq
        | B::BitwiseOr
        | B::BitwiseAnd
        | B::PGBitwiseXor
        | B::PGBitwiseShiftLeft
        | B::PGBitwiseShiftRight
        | B::PGExp
        | B::PGOverlap
        | B::AtAt
        | B::PGRegexMatch
        | B::PGRegexIMatch
        | B::PGRegexNotMatch
        | B::PGRegexNotIMatch
        | B::PGLikeMatch
        | B::PGILikeMatch
        | B::PGNotLikeMatch
        | B::PGNotILikeMatch
        | B::PGStartsWith
        | B::Arrow
        | B::LongArrow
        | B::HashArrow
        | B::HashLongArrow
        | B::AtArrow
        | B::ArrowAt
        | B::HashMinus
        | B::LtDashGt
        | B::AtQuestion
        | B::Question
        | B::QuestionAnd
        | B::QuestionPipe => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// The same for operators with one operand. NOT has no symbol to check.
pub(crate) fn unary_operator(op: UnaryOperator) -> Result<Option<String>, String> {
    match op {
        UnaryOperator::Not => Ok(None),
        UnaryOperator::Plus
        | UnaryOperator::Minus
        | UnaryOperator::BitwiseNot
        | UnaryOperator::PGAbs
        | UnaryOperator::PGSquareRoot
        | UnaryOperator::PGCubeRoot => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// Whether the operator is a comparison, whose operands may be a column and a literal of the column's type.
pub(crate) fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator as B;
    matches!(
        op,
        B::Eq
            | B::NotEq
            | B::Lt
            | B::LtEq
            | B::Gt
            | B::GtEq
            | B::PGRegexMatch
            | B::PGRegexIMatch
            | B::PGRegexNotMatch
            | B::PGRegexNotIMatch
            | B::PGLikeMatch
            | B::PGILikeMatch
            | B::PGNotLikeMatch
            | B::PGNotILikeMatch
            | B::PGStartsWith
    )
}

/// An operator's symbol if a cached statement may use it.
pub(crate) fn binary_symbol(dialect: Dialect, op: &BinaryOperator) -> Result<Option<String>, String> {
    if dialect.is_mysql_family() { mysql_functions::binary_operator(op) } else { binary_operator(op) }
}

/// The same for operators with one operand.
pub(crate) fn unary_symbol(dialect: Dialect, op: UnaryOperator) -> Result<Option<String>, String> {
    if dialect.is_mysql_family() { mysql_functions::unary_operator(op) } else { unary_operator(op) }
}
