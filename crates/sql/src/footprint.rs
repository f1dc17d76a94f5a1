//! What a statement depends on, before and after its parameters are known.
//!
//! A predicate becomes part of a tag only if the parameter's value has a normal form for which "the database says
//! equal" implies "equal here", under the type that the server will give the parameter. Otherwise it is dropped:
//! fewer predicates mean more rows, which is always sound.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use freshet_model::{PointColumn, Reason, RowSet, Table, TableId, Tag, Value, ValueType};

use crate::functions::oid;
use crate::predicate::Operand;
use crate::{Literal, LiteralKind};

/// A parameter of one execution: the statement's own, then the literals of its text.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Its value.
    pub value: ParameterValue<'a>,
    /// The type OID in Parse; 0 if it was left to the server (also for literals).
    pub declared_type: u32,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug)]
pub enum ParameterValue<'a> {
    /// NULL
    Null,
    /// In text format.
    Text(&'a [u8]),
    /// In binary format.
    Binary(&'a [u8]),
    /// From the statement's text.
    Literal(&'a Literal),
}

/// What a cacheable statement depends on.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// The tables, sorted and distinct.
    pub tables: Vec<TableId>,
    references: Vec<TableReference>,
    usages: BTreeMap<u16, Usage>,
    /// Some literal could be read as a date or time.
    date_time: bool,
}

/// A table reference and the equalities that bound its rows.
#[derive(Clone, Debug)]
pub(crate) struct TableReference {
    pub(crate) table: Arc<Table>,
    pub(crate) conjuncts: Vec<Conjunct>,
}

/// `column = constant`
#[derive(Clone, Debug)]
pub(crate) struct Conjunct {
    pub(crate) column: PointColumn,
    pub(crate) operand: Operand,
}

/// How a statement uses a parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) count: u32,
    /// All uses are equality with a column of this type.
    pub(crate) equal_to: Option<ValueType>,
    /// Some use is other than a comparison with a column that is no date.
    pub(crate) may_be_date: bool,
}

impl Footprint {
    pub(crate) fn new(
        references: Vec<TableReference>,
        usages: BTreeMap<u16, Usage>,
        date_time: bool,
    ) -> Result<Self, Reason> {
        let mut tables: Vec<TableId> = references.iter().map(|reference| reference.table.id).collect();
        tables.sort_unstable();
        tables.dedup();
        if tables.is_empty() {
            return Err(Reason::NoTable);
        }
        Ok(Self { tables, references, usages, date_time })
    }

    /// The tags of one execution; `utf8`: the client's encoding is UTF-8.
    pub fn bind(&self, params: &[Parameter<'_>], utf8: bool) -> Result<Vec<Tag>, Reason> {
        if self.date_time && self.reads_clock(params) {
            return Err(Reason::ClockLiteral);
        }
        let any: HashSet<TableId> = (self.references.iter())
            .filter(|reference| self.point(reference, params, utf8).is_none())
            .map(|reference| reference.table.id)
            .collect();
        let mut tags: Vec<Tag> = any.iter().map(|table| Tag { table: *table, rows: RowSet::Any }).collect();
        tags.sort_unstable_by_key(|tag| tag.table);
        for reference in self.references.iter().filter(|reference| !any.contains(&reference.table.id)) {
            let Some(point) = self.point(reference, params, utf8) else { continue };
            let tag = Tag { table: reference.table.id, rows: RowSet::Point(point) };
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        Ok(tags)
    }

    /// Whether a constant in the statement's text may be read under the settings in force when it is parsed (a date
    /// under DateStyle, say), rather than those of the execution. `opaque`: the shape still holds quoted text.
    pub fn reads_settings_at_parse(&self, own_params: u16, literals: &[Literal], opaque: bool) -> bool {
        let may_be_date = |number: u16| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let text = |(literal, number): (&Literal, u16)| literal.kind == LiteralKind::String && may_be_date(number);
        self.date_time && (opaque || literals.iter().zip(own_params.saturating_add(1)..).any(text))
    }

    /// One line per table reference for people: which rows of it matter.
    pub fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for TableReference { table, conjuncts } in &self.references {
            let mut columns: Vec<String> = conjuncts.iter().map(|c| format!("{} = …", c.column.name)).collect();
            columns.sort_unstable();
            columns.dedup();
            let rows = if columns.is_empty() { "any row".to_owned() } else { columns.join(" and ") };
            lines.push(format!("{}.{}: {rows}", table.schema, table.name));
        }
        lines.dedup();
        lines
    }

    /// Whether a text parameter that may be taken for a date contains a word such as `today`.
    fn reads_clock(&self, params: &[Parameter<'_>]) -> bool {
        params.iter().zip(1u16..).any(|(param, number)| {
            let text: &[u8] = match param.value {
                ParameterValue::Text(text) | ParameterValue::Binary(text) => text,
                ParameterValue::Literal(literal) => &literal.text,
                ParameterValue::Null => return false,
            };
            self.usages.get(&number).is_none_or(|usage| usage.may_be_date) && names_clock(text)
        })
    }

    /// The values that a row of a reference must have to matter, sorted by column name. None: any row.
    fn point(
        &self,
        reference: &TableReference,
        params: &[Parameter<'_>],
        utf8: bool,
    ) -> Option<Box<[(PointColumn, Value)]>> {
        let mut point: Vec<(PointColumn, Value)> = Vec::new();
        for Conjunct { column, operand } in &reference.conjuncts {
            let known = point.iter().any(|(known, _)| known.name == column.name);
            if let Some(value) = self.value(column.value_type, *operand, params).filter(|_| !known) {
                // In another encoding the server's text has other bytes.
                if utf8 || !matches!(&value, Value::Text(text) if !text.is_ascii()) {
                    point.push((column.clone(), value));
                }
            }
        }
        point.sort_unstable_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        (!point.is_empty()).then(|| point.into_boxed_slice())
    }

    fn value(&self, column: ValueType, operand: Operand, params: &[Parameter<'_>]) -> Option<Value> {
        let param = params.get(usize::from(operand.parameter).checked_sub(1)?)?;
        if let ParameterValue::Literal(literal) = param.value {
            return literal_value(column, operand, literal);
        }
        if operand.negated {
            // `- $1` of an undeclared type is a float.
            return None;
        }
        // Without a declared type the first use gives the parameter its type.
        let usage = self.usages.get(&operand.parameter)?;
        let declared = Some(param.declared_type).filter(|declared| !matches!(*declared, 0 | oid::UNKNOWN));
        if declared.is_none() && usage.count > 1 && usage.equal_to != Some(column) {
            return None;
        }
        let parameter_type = match (declared, operand.cast) {
            (None, cast) => cast,
            (declared, None) => declared,
            (Some(declared), Some(cast)) if keeps_value(declared, cast) => Some(cast),
            _ => return None,
        };
        let form = normal_form(column, parameter_type)?;
        match param.value {
            ParameterValue::Text(text) => form.normalise_text(text),
            ParameterValue::Binary(bytes) => form.normalise_binary(bytes),
            ParameterValue::Null | ParameterValue::Literal(_) => None,
        }
    }
}

/// Whether a text contains, in any case, one of the words that date input folds to the current time.
pub(crate) fn names_clock(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    WORDS.iter().any(|word| text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
}

fn literal_value(column: ValueType, operand: Operand, literal: &Literal) -> Option<Value> {
    match literal.kind {
        // A number is an integer or a numeric; a cast may round it.
        LiteralKind::Number if matches!(column, ValueType::Int | ValueType::Numeric) && operand.cast.is_none() => {
            let signed = if operand.negated { [b"-", &*literal.text].concat() } else { literal.text.to_vec() };
            ValueType::Numeric.normalise_text(&signed)
        }
        LiteralKind::String if !operand.negated => normal_form(column, operand.cast)?.normalise_text(&literal.text),
        LiteralKind::Number | LiteralKind::String => None,
    }
}

/// A cast from the one type to the other changes no value.
fn keeps_value(from: u32, to: u32) -> bool {
    let integer = |oid| matches!(oid, oid::INT2 | oid::INT4 | oid::INT8);
    let text = |oid| matches!(oid, oid::TEXT | oid::VARCHAR);
    from == to || (integer(from) && (integer(to) || to == oid::NUMERIC)) || (text(from) && text(to))
}

/// How to read a parameter of a type (None: the column's own) so that its normal form compares with the column's.
fn normal_form(column: ValueType, parameter: Option<u32>) -> Option<ValueType> {
    let Some(parameter) = parameter else { return Some(column) };
    match (column, parameter) {
        (ValueType::Int | ValueType::Numeric, oid::INT2 | oid::INT4 | oid::INT8) => Some(ValueType::Int),
        (ValueType::Int | ValueType::Numeric, oid::NUMERIC) => Some(ValueType::Numeric),
        // `text = char(n)` compares as text without the trailing blanks of the one that is padded.
        (ValueType::Text, oid::TEXT | oid::VARCHAR) => Some(ValueType::Text),
        (ValueType::PaddedText, oid::TEXT | oid::VARCHAR | oid::BPCHAR) => Some(ValueType::PaddedText),
        (ValueType::Bool, oid::BOOL) => Some(ValueType::Bool),
        (ValueType::Uuid, oid::UUID) => Some(ValueType::Uuid),
        _ => None,
    }
}
