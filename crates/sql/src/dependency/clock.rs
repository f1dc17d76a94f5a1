//! Parameters that PostgreSQL reads as the current time (`statement/clock_text.rs`).

use crate::allowlist::type_effects::MADE_FROM;
use crate::analysis::ReadSet;
use crate::lex::literal::LiteralKind;
use crate::predicate::parameters::{Parameter, ParameterValue};
use crate::statement::clock_text::{lacks_offset, names_clock};

pub(crate) const TIMETZ: u32 = 1266;

pub(crate) const TIMETZ_ARRAY: u32 = 1270;

/// Types of parameters whose texts may be read as a `timetz`: undeclared (also `unknown`), or text; user-defined types are checked apart.
pub(crate) const TEXTS: [u32; 5] = [0, 25, 705, TIMETZ, TIMETZ_ARRAY];

impl ReadSet {
    /// In a statement that handles dates or times: whether a text parameter that may be read as one contains a word such as `today`, or is a time
    /// without an offset that may be read as a `timetz`.
    pub(crate) fn reads_clock(&self, params: &[Parameter<'_>]) -> bool {
        let declared = |param: &Parameter<'_>| declares_date(param.declared_type);
        !self.dialect.is_mysql_family()
            && (self.dates.date_time || params.iter().any(declared))
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
                    && (names_clock(text) || ((self.dates.zoned || of_timetz) && is_text && lacks_offset(text)))
            })
    }
}

/// Whether an OID is that of a date or time type of PostgreSQL, of a range or multirange of one, or of an array of any of these.
pub(crate) fn declares_date(declared: u32) -> bool {
    matches!(declared, 1082 | 1083 | 1114 | 1115 | 1182 | 1183 | 1184 | 1185 | 1266 | 1270 | 3908..=3913 | 4533..=4535 | 6152 | 6153 | 6155)
}
