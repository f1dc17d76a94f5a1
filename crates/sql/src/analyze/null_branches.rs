//! Columns of set operations that are NULL in some branches.
//!
//! `SELECT e.id, e.language FROM engineers e UNION ALL SELECT m.id, CAST(NULL AS VARCHAR(50)) FROM managers m`, as object mappers write
//! it for tables of several kinds of one thing. A condition outside on `language` that NULL does not satisfy leaves no row of the
//! second branch, in any state of the database: the statement is what it were without that branch, so no row matters of any reference
//! in it (`predicate/mod.rs`), whatever the types are. And a row of another reference that matters only
//! with one of those does not matter either (`dependency/join_keys.rs`).
//!
//! The other branches are bounded by the condition, and lead to others by their values, as if the NULL were a column of their type: if the
//! operation converts none of their values because of the type that NULL is cast to. A NULL without a type takes that of the others. In
//! MySQL a NULL that is cast to a text has the connection's collation, under which the texts of another character set would be compared.

use std::ops::Range;

use freshet_types::ValueType;
use sqlparser::ast::{DataType, Expr, Select, SelectItem, TimezoneInfo, Value};

use crate::allowlist::functions::{TypeClass, oid, type_class};
use crate::analyze::derived::{Origin, Shown};
use crate::predicate::unwrapped;

/// A branch in which a column is NULL.
#[derive(Clone, Debug)]
pub(crate) struct Null {
    /// Its references, by their places among those of the whole statement.
    pub(crate) places: Range<usize>,
    /// Beside columns of which types it leaves their values as they are; None: any.
    beside: Option<&'static [ValueType]>,
}

impl Null {
    /// Whether a set operation with columns of this type leaves their values as they are.
    pub(crate) fn keeps(&self, value_type: ValueType) -> bool {
        self.beside.is_none_or(|types| types.contains(&value_type))
    }
}

/// Notes which columns are NULL in all rows of a SELECT that has these references.
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

/// The types of columns that a set operation with this type makes one of no other type.
fn types(data_type: &DataType, mysql: bool) -> &'static [ValueType] {
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

/// Whether a set operation over these columns keeps their values as they are.
pub(crate) fn are_kept<'o>(origins: impl IntoIterator<Item = &'o Origin>, nulls: &[Null], mysql: bool) -> bool {
    let mut types = origins.into_iter().map(|origin| origin.column.value_type);
    let Some(first) = types.next().filter(|first| keeps_type(*first, mysql)) else { return false };
    types.all(|next| next == first) && nulls.iter().all(|null| null.keeps(first))
}

/// Whether a set operation over columns of this type alone keeps the values as they are. MySQL may round decimals and pads bytes
/// to fit.
fn keeps_type(value_type: ValueType, mysql: bool) -> bool {
    use ValueType::{Bool, Date, FoldedText, Int, Numeric, OrderedText, PaddedText, Text};
    use ValueType::{Timestamp, TimestampTz, Unsigned, Uuid};
    match value_type {
        Numeric => !mysql,
        Int | Unsigned | Bool | Uuid | Date | Timestamp | TimestampTz | Text | OrderedText | PaddedText
        | FoldedText => true,
        _ => false,
    }
}
