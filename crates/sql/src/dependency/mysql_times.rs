//! Parameters that MySQL and MariaDB complete with the current date, or convert by a time zone table (`analyze/mysql_times.rs`).

use freshet_types::Reason;

use crate::analysis::ReadSet;
use crate::analyze::mysql_times::named_zone;
use crate::lex::literal::LiteralKind;
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::parameters::{Parameter, ParameterValue};

pub(crate) const TIME_AMONG_DATES: Reason = Reason::Construct("a TIME among dates, which the current date completes,");

impl ReadSet {
    /// An error if a TIME is compared with a date or used as one: the current date completes it.
    pub(crate) fn refuse_completed_times(&self) -> Result<(), Reason> {
        let completed = self.dates.times && self.dates.date_time && self.dialect.is_mysql_family();
        if completed { Err(TIME_AMONG_DATES) } else { Ok(()) }
    }

    /// The same for parameters.
    pub(crate) fn refuse_completing_times(&self, params: &[Parameter<'_>]) -> Result<(), Reason> {
        if !self.dialect.is_mysql_family() {
            return Ok(());
        }
        let is = |wanted: fn(&ParameterValue<'_>) -> bool| params.iter().any(|param| wanted(&param.value));
        let times = self.dates.times || is(|value| matches!(value, ParameterValue::Time));
        let moments = is(|value| matches!(value, ParameterValue::Moment(_) | ParameterValue::Fraction(_)));
        let completes = times && (self.dates.date_time || moments) || self.dates.shows_times && moments;
        if completes { Err(TIME_AMONG_DATES) } else { Ok(()) }
    }

    /// An error if a time zone is given by name.
    pub(crate) fn refuse_named_zones(&self, params: &[Parameter<'_>]) -> Result<(), Reason> {
        for (number, _) in self.usages.iter().filter(|(_, usage)| usage.is_offset) {
            let at = |base: u32| usize::try_from(number.checked_sub(base)?.checked_sub(1)?).ok();
            let is_known = match at(VIEWS_BASE) {
                Some(at) => self.constants.get(at).is_some_and(|literal| is_offset(&literal.text)),
                None => at(0).and_then(|at| params.get(at)).is_some_and(|param| holds_offset(&param.value)),
            };
            if !is_known {
                return Err(named_zone());
            }
        }
        Ok(())
    }
}

pub(crate) fn holds_offset(value: &ParameterValue<'_>) -> bool {
    match value {
        ParameterValue::Null => true,
        ParameterValue::Text(text) => is_offset(text),
        ParameterValue::Literal(literal) => literal.kind == LiteralKind::String && is_offset(&literal.text),
        _ => false,
    }
}

/// `+05:30`
pub(crate) fn is_offset(text: &[u8]) -> bool {
    match text {
        [b'+' | b'-', hours @ .., b':', tens, ones] => {
            let digits = hours.iter().chain([tens, ones]).all(u8::is_ascii_digit);
            digits && matches!(hours.len(), 1 | 2)
        }
        _ => false,
    }
}
