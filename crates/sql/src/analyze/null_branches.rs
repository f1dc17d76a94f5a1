//! Columns of set operations that are NULL in some branches.
//!
//! `SELECT e.id, e.language FROM engineers e UNION ALL SELECT m.id, CAST(NULL AS VARCHAR(50)) FROM managers m` is what object mappers write for a
//! class hierarchy in several tables. An outer condition on `language` that NULL does not satisfy excludes all rows of the second branch, in any
//! state of the database. The statement is equivalent to one without this branch, so no row of its references matters (`predicate/mod.rs`), whatever
//! the types. And a row of another reference that matters only with one of those does not matter either (`dependency/join_keys.rs`).
//!
//! The condition bounds the other branches, and their values give join keys, as if the NULL were a column of their type, provided the operation
//! converts none of their values to the type of the NULL. A NULL without a type gets the type of the others. In MySQL a NULL cast to a text has the
//! connection's collation, under which texts of another character set would be compared.

use std::ops::Range;

use freshet_types::ValueType;
use sqlparser::ast::{DataType, Expr, Select, SelectItem, TimezoneInfo, Value};

use crate::allowlist::types::{TypeClass, oid, type_class};
use crate::analyze::shown::{Null, Shown};
use crate::predicate::syntax::unwrapped;

/// Notes the columns that are NULL in all rows of a SELECT with these references.
pub(crate) fn note(shown: &mut Shown, select: &Select, places: &Range<usize>, mysql: bool) {
    if shown.columns.len() != select.projection.len() {
        return;
    }
    for (column, item) in shown.columns.iter_mut().zip(&select.projection) {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return };
        let beside = match unwrapped(expr) {
            Expr::Value(value) if value.value == Value::Null => None,
            Expr::Cast { expr, data_type, .. } => match unwrapped(expr) {
                Expr::Value(value) if value.value == Value::Null => Some(types(data_type, mysql)),
                _ => continue,
            },
            _ => continue,
        };
        column.is_null = true;
        column.nulls = vec![Null { places: places.clone(), beside }];
    }
}

/// The types of columns that a set operation with a NULL of this type does not convert.
pub(crate) fn types(data_type: &DataType, mysql: bool) -> &'static [ValueType] {
    use DataType as D;
    match data_type {
        D::Signed | D::SignedInteger if mysql => &[ValueType::Int],
        D::Date => &[ValueType::Date],
        _ if mysql => &[],
        D::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => &[ValueType::Timestamp],
        D::Varchar(_) | D::CharacterVarying(_) | D::CharVarying(_) => &[ValueType::Text, ValueType::OrderedText],
        data_type => match type_class(data_type) {
            Some(TypeClass::Tagged(oid::INT2 | oid::INT4 | oid::INT8)) => &[ValueType::Int],
            Some(TypeClass::Tagged(oid::TEXT | oid::VARCHAR)) => &[ValueType::Text, ValueType::OrderedText],
            Some(TypeClass::Tagged(oid::BOOL)) => &[ValueType::Bool],
            _ => &[],
        },
    }
}
