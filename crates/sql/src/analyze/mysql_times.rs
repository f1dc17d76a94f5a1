//! Dates and times of MySQL and MariaDB whose values depend on more than they are made of.
//!
//! **A TIME** becomes a date by the current one where it meets a date. It does not where it is shown, sorted or grouped by as it is, is
//! compared with a constant, or is taken apart by a function of times of day.
//!
//! **A named time zone** is what the server's tables of zones say, which no change stream tells of; an offset from UTC is the same for ever.

use freshet_types::{Reason, ValueType};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, JsonTableColumn};

use crate::allowlist::mysql_functions::{CastClass, cast_class, makes_time, takes_time};
use crate::allowlist::names::native_name;
use crate::analyze::{Outcome, Walk};
use crate::predicate::syntax::{parameter, unwrapped};

/// TIMEs of a statement that become no date.
#[derive(Debug, Default)]
pub(crate) struct KeptTimes {
    /// There is one.
    pub(crate) occur: bool,
    /// The one that is walked next is one.
    pub(crate) is_next: bool,
    /// The names that the outermost list gives to them.
    pub(crate) names: Vec<String>,
}

impl Walk<'_> {
    /// An expression whose value becomes no date where it stands.
    pub(crate) fn stays_time(&mut self, expr: &Expr) -> Outcome {
        self.kept_times.is_next = self.is_mysql() && is_time(expr);
        self.expr(expr)
    }

    /// A list gives this name to an expression.
    pub(crate) fn name_time(&mut self, expr: &Expr, name: &str) {
        if self.is_mysql() && is_time(expr) {
            self.kept_times.names.push(name.to_owned());
        }
    }

    /// Whether an expression is a TIME that is compared with these constants.
    pub(crate) fn is_time(&self, expr: &Expr, constants: &[&Expr]) -> bool {
        self.is_mysql()
            && constants.iter().all(|constant| parameter(unwrapped(constant)).is_some())
            && (is_time(expr) || self.column_type(unwrapped(expr)) == Some(ValueType::Time))
    }

    /// The arguments of a native function.
    pub(crate) fn mysql_arguments(&mut self, function: &str, args: &[FunctionArg]) -> Outcome {
        if function == "convert_tz" {
            self.note_zones(args)?;
        }
        match args {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(time)), rest @ ..] if takes_time(function) => {
                self.stays_time(time)?;
                self.arguments(rest)
            }
            _ => self.arguments(args),
        }
    }

    /// It makes a TIME.
    pub(crate) fn note_time(&mut self) {
        if std::mem::take(&mut self.kept_times.is_next) {
            self.kept_times.occur = true;
        } else {
            self.times = true;
        }
    }

    /// The zones of CONVERT_TZ are to be offsets.
    fn note_zones(&mut self, args: &[FunctionArg]) -> Outcome {
        for zone in args.iter().skip(1) {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(zone)) = zone else { continue };
            let number = parameter(unwrapped(zone)).ok_or_else(named_zone)?;
            self.usages.entry(number).or_default().is_offset = true;
        }
        Ok(())
    }

    /// The columns of `JSON_TABLE`.
    pub(crate) fn json_columns(&mut self, columns: &[JsonTableColumn]) {
        for column in columns {
            match column {
                JsonTableColumn::Named(column) => match cast_class(&column.r#type) {
                    Some(CastClass::Date) => self.date_time = true,
                    Some(CastClass::Time) => self.times = true,
                    // Any other makes no date.
                    Some(CastClass::Plain) | None => {}
                },
                JsonTableColumn::ForOrdinality(_) => {}
                JsonTableColumn::Nested(nested) => self.json_columns(&nested.columns),
            }
        }
    }
}

pub(crate) fn named_zone() -> Reason {
    Reason::Function("convert_tz with a named time zone (an offset such as '+02:00' is cached)".into())
}

/// A call that makes a TIME.
fn is_time(expr: &Expr) -> bool {
    match unwrapped(expr) {
        Expr::Function(function) => native_name(&function.name).is_some_and(makes_time),
        _ => false,
    }
}
