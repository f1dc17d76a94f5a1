//! Calls of functions. A statement is cached only if its functions are the built-in ones.

use freshet_types::{Formula, Operation, Part, TextFunction, Value, ValueType};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use crate::allowlist::names::built_in_name;
use crate::predicate::formula::Kind::{Of, Wide};
use crate::predicate::formula::{Reading, Typed, number};

impl Reading<'_> {
    pub(super) fn function(&self, function: &Function) -> Option<Typed> {
        let FunctionArguments::List(list) = &function.args else { return None };
        let plain = function.over.is_none() && function.filter.is_none() && list.clauses.is_empty();
        let argument = |argument: &'_ FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        };
        let args: Vec<Expr> = list.args.iter().map(argument).collect::<Option<_>>()?;
        let name = built_in_name(self.read_set.dialect, &function.name)?.to_ascii_lowercase();
        let text_of = |expr: &Expr| String::from_utf8(self.plain_text(expr)?.into()).ok();
        match (&*name, args.as_slice()) {
            _ if !plain => None,
            ("coalesce" | "ifnull", [_, ..]) => {
                let kind = self.kind_of_all(args.iter())?;
                let values: Vec<Formula> = args.iter().map(|arg| self.value(arg, kind)).collect::<Option<_>>()?;
                Some((Formula::First(values.into()), kind))
            }
            ("date_trunc", [unit, of]) if !self.is_mysql() => self.floored(&text_of(unit)?, of, ValueType::Timestamp),
            ("date_part", [part, of]) if !self.is_mysql() => {
                let (value, _) = self.part(&text_of(part)?, of)?;
                let whole = !matches!(value, Formula::Part(Part::Seconds, _));
                whole.then_some((value, Of(ValueType::Float8)))
            }
            ("left", [text, length]) => self.substring(text, [number(1), self.integer(length)?]),
            ("substr" | "substring", [text, from, length]) => {
                self.substring(text, [self.integer(from)?, self.integer(length)?])
            }
            ("upper" | "ucase", [text]) => self.of_text(TextFunction::Upper, text),
            ("lower" | "lcase", [text]) => self.of_text(TextFunction::Lower, text),
            (_, args) if self.is_mysql() => self.mysql_function(&name, args),
            ("length" | "char_length" | "character_length", [text]) => {
                let (length, _) = self.of_text(TextFunction::Length, text)?;
                Some((length, Wide))
            }
            ("chr", [code]) => {
                let Formula::Constant(Value::Int(code)) = self.integer(code)? else { return None };
                let byte = u8::try_from(code).ok().filter(|byte| matches!(byte, b' '..=b'~'))?;
                Some((Formula::Constant(Value::Text([byte].into())), Of(ValueType::Text)))
            }
            ("reverse", [text]) => self.of_text(TextFunction::Reverse, text),
            ("replace", [text, wanted, by]) => {
                let (text, kind) = self.text(text)?;
                let parts = [text, self.text(wanted)?.0, self.text(by)?.0];
                Some((Formula::Text(TextFunction::Replace, parts.into()), kind))
            }
            _ => None,
        }
    }

    pub(super) fn mysql_function(&self, name: &str, args: &[Expr]) -> Option<Typed> {
        let [of] = args else { return None };
        let day_of_week = |shift: i64, from: i64| {
            let (of, _) = self.typed(of).filter(|(_, kind)| kind.is_local())?;
            let day = (Formula::Part(Part::DayOfWeek, of.into()), Wide);
            let shifted = self.arithmetic(Operation::Add, day, (number(shift), Wide))?;
            let day = self.arithmetic(Operation::Remainder, shifted, (number(7), Wide))?;
            self.arithmetic(Operation::Add, day, (number(from), Wide))
        };
        match name {
            "date" => self.floored("day", of, ValueType::Date),
            "year" | "quarter" | "month" | "day" | "hour" | "minute" | "second" => self.part(name, of),
            "dayofmonth" => self.part("day", of),
            "dayofweek" => day_of_week(0, 1),
            "weekday" => day_of_week(6, 0),
            "dayofyear" => {
                let (of, _) = self.typed(of).filter(|(_, kind)| kind.is_local())?;
                Some((Formula::Part(Part::DayOfYear, of.into()), Of(ValueType::Int)))
            }
            _ => None,
        }
    }
}
