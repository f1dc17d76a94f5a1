//! Constants that PostgreSQL reads as the current time.

use freshet_types::{Columns, Reason, Table, ValueType};
use sqlparser::ast::{ArrayElemTypeDef, DataType};

use crate::LiteralKind;
use crate::allowlist::functions::{TypeClass, type_class};
use crate::allowlist::types::MADE_FROM;
use crate::analyze::Walk;
use crate::dependency::read_set::{Footprint, Parameter, ParameterValue};
use crate::lex::postgres::{Kind, Token};
use crate::statement::template::{Parsed, without_escapes};

impl Walk<'_> {
    /// A value of this type is made, perhaps of a date or time.
    pub(crate) fn note_date(&mut self, data_type: &DataType) {
        self.date_time |= type_class(data_type) == Some(TypeClass::DateTime);
        self.times |= !self.is_mysql() && is_time(data_type);
    }

    /// A time is made, or the name of a zone is read.
    pub(crate) fn note_zone(&mut self) {
        self.date_time = true;
        self.times |= !self.is_mysql();
    }

    /// Whether values of `timetz` are handled; an error if something meets them, perhaps, that takes an offset by the current date: a time,
    /// a zone, or a constant that is no parameter of the shape.
    pub(crate) fn handles_timetz(&self, parsed: &Parsed) -> Result<bool, Reason> {
        let handles = self.mentions(ValueType::TimeTz);
        let completes = handles && (self.times || parsed.time_text || self.mentions(ValueType::DateTime));
        if completes { Err(Reason::ClockLiteral) } else { Ok(handles) }
    }

    /// It mentions a column of this type.
    fn mentions(&self, wanted: ValueType) -> bool {
        let has = |relation: &Table, columns: &Columns| {
            relation.columns.iter().filter(|column| column.value_type == wanted).any(|column| match columns {
                Columns::All => true,
                Columns::Only(names) => names.contains(&column.name),
            })
        };
        self.references.iter().any(|reference| has(&reference.table, &reference.columns))
            || self.definitions.iter().any(|relation| has(relation, &self.mentioned.of(relation)))
    }
}

/// Whether a type is `time` or an array of it.
fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => is_time(element),
        DataType::Time(..) => true,
        DataType::Custom(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| name.value == "time")
        }
        _ => false,
    }
}

impl Footprint {
    /// Whether, among dates and times, a text parameter that may be taken for one contains a word such as `today`; or is a time without
    /// an offset, and may be taken for a `timetz`.
    pub(crate) fn reads_clock(&self, params: &[Parameter<'_>]) -> bool {
        let declared = |param: &Parameter<'_>| declares_date(param.declared_type);
        !self.dialect.is_mysql_family()
            && (self.date_time || params.iter().any(declared))
            && params.iter().zip(1u32..).any(|(param, number)| {
                let text: &[u8] = match param.value {
                    ParameterValue::Text(text) | ParameterValue::Binary(text) => text,
                    ParameterValue::Literal(literal) => &literal.text,
                    _ => return false,
                };
                let is_text = match param.value {
                    ParameterValue::Binary(_) => false,
                    ParameterValue::Literal(literal) => literal.kind != LiteralKind::Number,
                    _ => TEXTS.contains(&param.declared_type) || param.declared_type >= MADE_FROM,
                };
                let of_timetz = matches!(param.declared_type, TIMETZ | TIMETZ_ARRAY);
                let usage = self.usages.get(&number);
                (declared(param) || usage.is_none_or(|usage| usage.may_be_date))
                    && (names_clock(text) || ((self.zoned || of_timetz) && is_text && lacks_offset(text)))
            })
    }
}

/// The OIDs of the types of dates and times of PostgreSQL, of their ranges and multiranges, and of arrays of all.
fn declares_date(declared: u32) -> bool {
    matches!(declared, 1082 | 1083 | 1114 | 1115 | 1182 | 1183 | 1184 | 1185 | 1266 | 1270 | 3908..=3913 | 4533..=4535 | 6152 | 6153 | 6155)
}

const TIMETZ: u32 = 1266;
const TIMETZ_ARRAY: u32 = 1270;

/// The types of parameters whose texts may be read as a `timetz`: not known yet (also `unknown`), or text; and those that somebody
/// made.
const TEXTS: [u32; 5] = [0, 25, 705, TIMETZ, TIMETZ_ARRAY];

/// Whether a string constant in the shape may be a time without an offset. An interval is none.
pub(crate) fn has_time(tokens: &[Token<'_>]) -> bool {
    let is_time = |(at, token): (usize, &Token<'_>)| match token.kind {
        Kind::OpaqueText => without_escapes(token.text).is_none_or(|text| lacks_offset(&text)),
        Kind::Text => {
            let before = at.checked_sub(1).and_then(|at| tokens.get(at));
            before.is_none_or(|before| before.text != "interval") && lacks_offset(token.text.as_bytes())
        }
        _ => false,
    };
    tokens.iter().enumerate().any(is_time)
}

/// Whether a text may be a time, or an array of times, one of which has neither a numeric offset nor a date. A sign behind a letter belongs
/// to the name of a zone.
fn lacks_offset(text: &[u8]) -> bool {
    let lacks = |time: &[u8]| {
        let signed = |w: &[u8]| matches!(w, [before, b'+' | b'-', b'0'..=b'9'] if !before.is_ascii_alphabetic());
        time.iter().any(u8::is_ascii_digit) && !time.windows(3).any(signed)
    };
    text.split(|byte| *byte == b',').any(lacks)
}

/// Whether a text contains, in any case, one of the words that date input folds to the current time.
pub(crate) fn names_clock(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    // Most are numbers.
    text.iter().any(u8::is_ascii_alphabetic)
        && WORDS.iter().any(|word| text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
}
