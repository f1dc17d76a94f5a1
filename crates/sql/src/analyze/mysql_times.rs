//! Dates and times of MySQL and MariaDB whose values depend on more than their operands.
//!
//! **A TIME** that is combined with a date becomes a date: the current date completes it. It stays a TIME if it is returned, sorted or grouped
//! unchanged, compared with a constant, or passed to a function of times of day.
//!
//! **A named time zone** depends on the server's tables of zones, which the change stream does not contain; an offset from UTC never changes.

use freshet_types::{Reason, ValueType};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, JsonTableColumn};

use crate::allowlist::mysql_functions::{CastClass, cast_class, makes_time, takes_time};
use crate::allowlist::names::native_name;
use crate::analyze::{Outcome, Walk};
use crate::predicate::syntax::{parameter, unwrapped};

/// TIMEs of a statement that stay TIMEs.
#[derive(Debug, Default)]
pub(crate) struct KeptTimes {
    /// At least one occurs.
    pub(crate) occur: bool,
    /// The expression that is walked next is one.
    pub(crate) is_next: bool,
    /// Their aliases in the outermost list.
    pub(crate) names: Vec<String>,
}

impl Walk<'_> {
    /// An expression whose TIME stays one at its place.
    pub(crate) fn stays_time(&mut self, expr: &Expr) -> Outcome {
        self.kept_times.is_next = self.is_mysql() && is_time(expr);
        self.expr(expr)
    }

    /// Notes the alias of an expression.
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

    /// Notes that the statement creates a TIME.
    pub(crate) fn note_time(&mut self) {
        if std::mem::take(&mut self.kept_times.is_next) {
            self.kept_times.occur = true;
        } else {
            self.times = true;
        }
    }

    /// The zones of CONVERT_TZ must be offsets.
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
                    // Other casts create no date.
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

/// Whether an expression is a call that returns a TIME.
fn is_time(expr: &Expr) -> bool {
    match unwrapped(expr) {
        Expr::Function(function) => native_name(&function.name).is_some_and(makes_time),
        _ => false,
    }
}
