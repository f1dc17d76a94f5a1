//! Constants that PostgreSQL reads as the current time.

use crate::footprint::{Footprint, Parameter, ParameterValue};

impl Footprint {
    /// Whether, among dates and times, a text parameter that may be taken for one contains a word such as `today`.
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
                let usage = self.usages.get(&number);
                (declared(param) || usage.is_none_or(|usage| usage.may_be_date)) && names_clock(text)
            })
    }
}

/// The OIDs of the types of dates and times of PostgreSQL, of their ranges and multiranges, and of arrays of all.
fn declares_date(declared: u32) -> bool {
    matches!(declared, 1082 | 1083 | 1114 | 1115 | 1182 | 1183 | 1184 | 1185 | 1266 | 1270 | 3908..=3913 | 4533..=4535 | 6152 | 6153 | 6155)
}

/// Whether a text contains, in any case, one of the words that date input folds to the current time.
pub(crate) fn names_clock(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    // Most are numbers.
    text.iter().any(u8::is_ascii_alphabetic)
        && WORDS.iter().any(|word| text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
}
