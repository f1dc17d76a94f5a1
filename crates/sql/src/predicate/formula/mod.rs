//! Formulas of conditions on one row (`predicate/row_filter.rs`), with their constants and known types.
//!
//! Each expression has a type here. A comparison or sum is understood only between types whose values the server compares or adds directly: numbers,
//! dates and timestamps without a zone, texts, booleans. The type of the other side determines how a constant is read, by the rules for constants
//! that are compared with columns of that type (`predicate/bind.rs`). Everything else is [`Formula::Unknown`]. This excludes settings and time zones,
//! too: a `timestamptz` has parts only with `AT TIME ZONE 'UTC'` or in a session in UTC, a TIMESTAMP of MySQL has none.
//!
//! Integers: PostgreSQL raises an error beyond the width of the type. The width is not known here, but a literal has at least `int4`. MySQL computes
//! with 64 bits, and raises an error below zero if one side is unsigned.
//!
//! `a IS NOT DISTINCT FROM b` becomes `(a = b) IS TRUE OR a IS NULL AND b IS NULL`, `x BETWEEN a AND b` two comparisons, a list several equalities.

mod calls;
mod dates;
mod texts;

use std::sync::Arc;

use Kind::{Clock, Null, Of, Wide};
use freshet_types::{Comparison, Formula, Operation, RowTest, Test, Value, ValueType};
use sqlparser::ast::{BinaryOperator, CaseWhen, DataType, Expr, TimezoneInfo, UnaryOperator, Value as Constant};

use crate::analysis::ReadSet;
use crate::lex::literal::LiteralKind;
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::like::as_text;
use crate::predicate::parameters::{ParameterValue, Params};
use crate::predicate::row_filter::RowFilter;
use crate::predicate::syntax::{column_name, unwrapped};
use crate::predicate::{Operand, operand};

/// An expression's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Values of a column of this type.
    Of(ValueType),
    /// A PostgreSQL integer of at least 32 bits.
    Wide,
    /// A PostgreSQL time of day, in microseconds since midnight.
    Clock,
    /// `NULL`
    Null,
}

type Typed = (Formula, Kind);

impl Kind {
    /// The column type for which constants that are compared with it are read.
    fn column(self) -> ValueType {
        match self {
            Of(value_type) => value_type,
            Wide | Clock => ValueType::Int,
            Null => ValueType::Other,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Wide | Of(ValueType::Int | ValueType::Unsigned))
    }

    fn is_exact(self) -> bool {
        self.is_integer() || self == Of(ValueType::Numeric)
    }

    fn is_float(self) -> bool {
        matches!(self, Of(ValueType::Float4 | ValueType::Float8))
    }

    fn is_text(self) -> bool {
        use ValueType::{Bytes, ExactText, FoldedText, OrderedText, Text};
        matches!(self, Of(Bytes | ExactText | FoldedText | OrderedText | Text))
    }

    fn is_local(self) -> bool {
        matches!(self, Of(ValueType::Date | ValueType::Timestamp))
    }
}

/// The evaluation of a condition for one execution.
struct Reading<'r> {
    read_set: &'r ReadSet,
    /// None if no constant is known.
    params: Option<Params<'r>>,
    row_filter: &'r RowFilter,
}

impl ReadSet {
    /// The test of a row filter; None if it may be true of each row.
    pub(crate) fn row_test(&self, row_filter: &RowFilter, params: Option<Params<'_>>) -> Option<Test> {
        let reading = Reading { read_set: self, params, row_filter };
        let condition = reading.condition(&row_filter.condition);
        let condition = if row_filter.truth { condition } else { Formula::Not(condition.into()) };
        let tells = may_be_known(&condition, false) && !(row_filter.nullable && condition.may_hold_of_nulls());
        tells.then(|| Test::Row(Arc::new(RowTest { condition, columns: row_filter.names() })))
    }
}

impl RowFilter {
    fn names(&self) -> Box<[Arc<str>]> {
        self.columns.iter().map(|(_, column)| column.name.clone()).collect()
    }
}

/// Whether a time of day has a zone.
fn is_zoned(zone: TimezoneInfo) -> bool {
    !matches!(zone, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
}

/// Whether a condition can be known to be true (`truth`), or to be false.
fn may_be_known(condition: &Formula, truth: bool) -> bool {
    match condition {
        Formula::Unknown => false,
        Formula::Not(of) => may_be_known(of, !truth),
        Formula::Both(sides) | Formula::Either(sides) => {
            let mut known = sides.iter().map(|side| may_be_known(side, truth));
            if matches!(condition, Formula::Both(_)) == truth {
                known.all(|known| known)
            } else {
                known.any(|known| known)
            }
        }
        _ => true,
    }
}

fn both(left: Formula, right: Formula) -> Formula {
    Formula::Both(Box::new([left, right]))
}

fn either(left: Formula, right: Formula) -> Formula {
    Formula::Either(Box::new([left, right]))
}

fn not(of: Formula) -> Formula {
    Formula::Not(of.into())
}

fn negated(is: bool, of: Formula) -> Formula {
    if is { not(of) } else { of }
}

fn operation(op: &BinaryOperator) -> Option<Operation> {
    match op {
        BinaryOperator::Plus => Some(Operation::Add),
        BinaryOperator::Minus => Some(Operation::Subtract),
        BinaryOperator::Multiply => Some(Operation::Multiply),
        BinaryOperator::Modulo => Some(Operation::Remainder),
        _ => None,
    }
}

fn number(integer: i64) -> Formula {
    Formula::Constant(Value::Int(integer))
}

impl Reading<'_> {
    fn is_mysql(&self) -> bool {
        self.read_set.dialect.is_mysql_family()
    }

    /// Dates and times without a time zone, or in the session's one.
    fn is_local(&self, kind: Kind) -> bool {
        let utc = self.params.is_some_and(|params| params.client.utc);
        kind.is_local() || (utc && kind == Of(ValueType::TimestampTz))
    }

    /// A condition.
    fn condition(&self, expr: &Expr) -> Formula {
        match self.typed(expr) {
            Some((value, Of(ValueType::Bool))) => value,
            Some((value, kind)) if kind.is_integer() && self.is_mysql() => value,
            _ => Formula::Unknown,
        }
    }

    /// The condition of an expression by its operator.
    fn truth(&self, expr: &Expr) -> Option<Formula> {
        use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or, Spaceship, Xor};
        use BinaryOperator::{PGRegexMatch, PGRegexNotMatch};
        Some(match expr {
            Expr::BinaryOp { left, op: And, right } => both(self.condition(left), self.condition(right)),
            Expr::BinaryOp { left, op: Or, right } => either(self.condition(left), self.condition(right)),
            Expr::BinaryOp { left, op: Xor, right } => {
                let [left, right] = [left, right].map(|side| not(self.condition(side)));
                not(Formula::Compare(Comparison::Equal, ValueType::Bool, Box::new([left, right])))
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => not(self.condition(expr)),
            Expr::BinaryOp { left, op: op @ (Eq | NotEq), right } => {
                negated(*op == NotEq, self.compared(Comparison::Equal, left, right))
            }
            Expr::BinaryOp { left, op: Lt, right } => self.compared(Comparison::Less, left, right),
            Expr::BinaryOp { left, op: LtEq, right } => self.compared(Comparison::LessOrEqual, left, right),
            Expr::BinaryOp { left, op: Gt, right } => self.compared(Comparison::Less, right, left),
            Expr::BinaryOp { left, op: GtEq, right } => self.compared(Comparison::LessOrEqual, right, left),
            Expr::BinaryOp { left, op: Spaceship, right } | Expr::IsNotDistinctFrom(left, right) => {
                self.same(left, right)
            }
            Expr::IsDistinctFrom(left, right) => not(self.same(left, right)),
            Expr::IsTrue(of) => Formula::Is(true, self.condition(of).into()),
            Expr::IsFalse(of) => Formula::Is(false, self.condition(of).into()),
            Expr::IsNotTrue(of) => not(Formula::Is(true, self.condition(of).into())),
            Expr::IsNotFalse(of) => not(Formula::Is(false, self.condition(of).into())),
            Expr::IsNull(of) => self.is_null(of),
            Expr::IsNotNull(of) => not(self.is_null(of)),
            // MySQL compares all operands in one way, which may differ from the comparison of each two.
            Expr::Between { expr, low, high, .. } if !self.compare_alike([&**expr, low, high]) => Formula::Unknown,
            Expr::InList { expr, list, .. } if !self.compare_alike(std::iter::once(&**expr).chain(list)) => {
                Formula::Unknown
            }
            Expr::Between { expr, negated: is, low, high } => {
                let low = self.compared(Comparison::LessOrEqual, low, expr);
                negated(*is, both(low, self.compared(Comparison::LessOrEqual, expr, high)))
            }
            Expr::InList { expr, list, negated: is } => {
                let equal = list.iter().map(|one| self.compared(Comparison::Equal, expr, one));
                negated(*is, equal.reduce(either).unwrap_or(Formula::Unknown))
            }
            Expr::BinaryOp { left, op: op @ (PGRegexMatch | PGRegexNotMatch), right } => {
                negated(*op == PGRegexNotMatch, self.regex(left, right)?)
            }
            Expr::Like { negated: is, any: false, expr, pattern, escape_char: None } => {
                negated(*is, self.like(expr, pattern).unwrap_or(Formula::Unknown))
            }
            _ => return None,
        })
    }

    /// Whether the server compares each two of these values as it would without the others.
    fn compare_alike<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
        let integer = |expr: &Expr| match operand(expr) {
            Some(_) => self.integer(expr).is_some(),
            None => self.typed(expr).is_some_and(|(_, kind)| kind == Of(ValueType::Int)),
        };
        !self.is_mysql() || exprs.into_iter().all(integer)
    }

    /// MySQL returns true of IS NULL for a zero date in a column that is NOT NULL.
    fn is_null(&self, of: &Expr) -> Formula {
        match self.typed(of) {
            Some((value, kind)) if !(self.is_mysql() && kind.column().is_date()) => Formula::IsNull(value.into()),
            _ => Formula::Unknown,
        }
    }

    fn same(&self, left: &Expr, right: &Expr) -> Formula {
        let nulls = || Some(both(self.is_null(left), self.is_null(right)));
        let equal = self.compared(Comparison::Equal, left, right);
        let constant = operand(left).is_some() || operand(right).is_some();
        match nulls().filter(|_| equal != Formula::Unknown && !constant) {
            Some(nulls) => either(Formula::Is(true, equal.into()), nulls),
            None => Formula::Unknown,
        }
    }

    fn compared(&self, how: Comparison, left: &Expr, right: &Expr) -> Formula {
        let Some((left, right, kind)) = self.pair(left, right) else { return Formula::Unknown };
        Formula::Compare(how, kind.column(), Box::new([left, right]))
    }

    /// The two sides of a comparison, in a type in which both compare.
    fn pair(&self, left: &Expr, right: &Expr) -> Option<(Formula, Formula, Kind)> {
        match (operand(left), operand(right)) {
            (None, None) => {
                let ((left, one), (right, two)) = (self.typed(left)?, self.typed(right)?);
                Some((left, right, self.common(one, two)?))
            }
            (Some(_), None) => {
                let (right, kind) = self.typed(right)?;
                Some((self.constant(left, kind)?, right, kind))
            }
            (None, Some(_)) => {
                let (left, kind) = self.typed(left)?;
                Some((left, self.constant(right, kind)?, kind))
            }
            (Some(_), Some(_)) => {
                let kind = Of(ValueType::Numeric);
                Some((self.literal_number(left)?, self.literal_number(right)?, kind))
            }
        }
    }

    /// The type in which values of two types compare.
    fn common(&self, one: Kind, two: Kind) -> Option<Kind> {
        use ValueType::{Bool, Bytes, ExactText, FoldedText, OrderedText, PaddedText, Text, TimestampTz, Uuid};
        let number = |kind: Kind| kind.is_exact() || kind.is_float() || (self.is_mysql() && kind == Of(Bool));
        let text = |kind: Kind| matches!(kind, Of(Text | OrderedText | PaddedText));
        match (one, two) {
            _ if number(one) && number(two) => Some(one),
            _ if self.is_local(one) && self.is_local(two) => Some(one),
            (Of(TimestampTz), Of(TimestampTz)) if !self.is_mysql() => Some(one),
            (Clock, Clock) => Some(one),
            (Of(own @ (Bool | Bytes | ExactText | OrderedText | Uuid)), Of(other)) if own == other => Some(one),
            // The side that is not padded keeps its blanks. In MySQL the connection's collation decides how constants compare.
            _ if text(one) && text(two) => (!self.is_mysql()).then_some(Of(Text)),
            (Of(ExactText | FoldedText), Of(ExactText | FoldedText)) => Some(Of(FoldedText)),
            _ => None,
        }
    }

    /// A constant that is compared with values of a type.
    fn constant(&self, expr: &Expr, kind: Kind) -> Option<Formula> {
        let operand = operand(expr)?;
        let Some(params) = self.params else { return Some(number(0)) };
        if kind == Clock {
            return self.time_of_day(expr);
        }
        let value = |column| self.read_set.value(column, operand, params);
        let form = match kind.column() {
            // A view's definition may print a float rounded.
            ValueType::Float4 | ValueType::Float8 if operand.parameter > VIEWS_BASE => return None,
            ValueType::Bool if self.is_mysql() => ValueType::Int,
            // Not every server truncates the time of day.
            ValueType::Date => {
                value(ValueType::Date).filter(|date| value(ValueType::Timestamp).as_ref() == Some(date))?;
                ValueType::Timestamp
            }
            ValueType::TimestampTz if self.is_mysql() => return None,
            ValueType::Enum | ValueType::Other => return None,
            form => form,
        };
        value(form).map(Formula::Constant)
    }

    /// A number written as a literal.
    fn literal_number(&self, expr: &Expr) -> Option<Formula> {
        let is_number = self.is_literal_number(operand(expr)?);
        is_number.then(|| self.constant(expr, Of(ValueType::Numeric))).flatten()
    }

    fn is_literal_number(&self, operand: Operand) -> bool {
        let Some(params) = self.params else { return true };
        let number = |value| match value {
            ParameterValue::Integer(_) => true,
            ParameterValue::Literal(literal) => literal.kind == LiteralKind::Number,
            _ => false,
        };
        params.get(operand).is_some_and(|param| number(param.value))
    }

    fn plain_text(&self, expr: &Expr) -> Option<Box<[u8]>> {
        self.read_set.plain_text(operand(expr)?, self.params?)
    }

    /// An expression that is not a constant, with its type.
    fn typed(&self, expr: &Expr) -> Option<Typed> {
        if let (true, inner) = as_text(expr) {
            return self.as_text(self.typed(inner)?);
        }
        let expr = unwrapped(expr);
        if let Some(name) = column_name(expr) {
            let (_, column) = self.row_filter.columns.iter().find(|(known, _)| known == name)?;
            let unordered = column.value_type == ValueType::Bit || column.value_type.is_mariadb();
            let unknown = matches!(
                column.value_type,
                ValueType::Other | ValueType::DateTime | ValueType::TimeTz | ValueType::Time
            );
            return (!unknown && !unordered).then(|| (Formula::Column(column.clone()), Of(column.value_type)));
        }
        match expr {
            Expr::Value(value) if value.value == Constant::Null => Some((Formula::Null, Null)),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let (value, kind) = self.typed(expr)?;
                self.arithmetic(Operation::Subtract, (number(0), kind), (value, kind))
            }
            Expr::BinaryOp { left, op, right } if let Some(operation) = operation(op) => {
                self.calculated(operation, left, right)
            }
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } if !self.is_mysql() => {
                self.concat(&[left, right])
            }
            Expr::Extract { field, syntax: _, expr } => self.part(&field.to_string(), expr),
            Expr::AtTimeZone { timestamp, time_zone } => self.at_utc(timestamp, time_zone),
            Expr::Cast { expr, data_type: DataType::Time(None, zone), .. } if !is_zoned(*zone) => self.time(expr),
            Expr::Cast { expr, data_type: DataType::Date, .. } => self.floored("day", expr, ValueType::Date),
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Substring { expr, substring_from: Some(from), substring_for: Some(length), .. } => {
                self.substring(expr, [self.integer(from)?, self.integer(length)?])
            }
            Expr::Function(function) => self.function(function),
            _ => Some((self.truth(expr)?, Of(ValueType::Bool))),
        }
    }

    fn calculated(&self, operation: Operation, left: &Expr, right: &Expr) -> Option<Typed> {
        if let Some(later) = self.later(operation, left, right) {
            return Some(later);
        }
        let side = |own: &Expr, other: &Expr| match operand(own) {
            None => self.typed(own),
            Some(_) => self.summand(own, self.typed(other)?.1),
        };
        self.arithmetic(operation, side(left, right)?, side(right, left)?)
    }

    /// A constant in arithmetic.
    fn summand(&self, expr: &Expr, beside: Kind) -> Option<Typed> {
        let operand = operand(expr)?;
        let literal = self.is_literal_number(operand);
        if (self.is_mysql() && !literal) || !(beside.is_exact() || beside.is_float()) {
            return None;
        }
        let constant = self.constant(expr, beside)?;
        let kind = match (&constant, beside) {
            (Formula::Constant(Value::Decimal(_)), beside) if beside.is_exact() => Of(ValueType::Numeric),
            (_, beside) if beside.is_integer() && literal && operand.cast.is_none() => Wide,
            _ => beside,
        };
        Some((constant, kind))
    }

    fn arithmetic(&self, operation: Operation, (left, one): Typed, (right, two): Typed) -> Option<Typed> {
        let single = |kind| kind == Of(ValueType::Float4) && !self.is_mysql();
        let numbers = [one, two].iter().all(|kind| (kind.is_exact() || kind.is_float()) && !single(*kind));
        let kind = match (one, two) {
            _ if !numbers => return None,
            _ if one.is_float() || two.is_float() => Of(ValueType::Float8),
            _ if one.is_integer() && two.is_integer() => {
                if one == Wide || two == Wide {
                    Wide
                } else {
                    Of(ValueType::Int)
                }
            }
            _ => Of(ValueType::Numeric),
        };
        if operation == Operation::Remainder && !kind.is_integer() {
            return None;
        }
        let bounds = match kind {
            _ if self.is_mysql() => (0, i64::MAX),
            Wide => (i32::MIN.into(), i32::MAX.into()),
            kind if kind.is_integer() => (i16::MIN.into(), i16::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        };
        let kind = if self.is_mysql() && kind == Wide { Of(ValueType::Int) } else { kind };
        Some((Formula::Arithmetic(operation, bounds, Box::new([left, right])), kind))
    }

    fn case(&self, operand_of: Option<&Expr>, conditions: &[CaseWhen], other: Option<&Expr>) -> Option<Typed> {
        if operand_of.is_some() && self.is_mysql() {
            return None;
        }
        let kind = self.kind_of_all(conditions.iter().map(|when| &when.result).chain(other))?;
        let branches = conditions.iter().map(|CaseWhen { condition, result }| {
            let when = match operand_of {
                Some(operand) => self.compared(Comparison::Equal, operand, condition),
                None => self.condition(condition),
            };
            Some((when, self.value(result, kind)?))
        });
        let branches: Vec<_> = branches.collect::<Option<_>>()?;
        let other = other.map_or(Some(Formula::Null), |other| self.value(other, kind))?;
        Some((Formula::Case(branches.into(), other.into()), kind))
    }

    /// The common type of some values; numbers of one kind may have different widths.
    fn kind_of_all<'e>(&self, exprs: impl Iterator<Item = &'e Expr>) -> Option<Kind> {
        let mut kind: Option<Kind> = None;
        for expr in exprs {
            let next = match operand(expr) {
                Some(_) => match self.literal_number(expr) {
                    Some(Formula::Constant(Value::Int(_))) => Wide,
                    Some(_) => Of(ValueType::Numeric),
                    // A text gets the type of the other values.
                    None => continue,
                },
                None => self.typed(expr)?.1,
            };
            kind = match kind {
                None | Some(Null) => Some(next),
                Some(kind) if kind == next || next == Null => Some(kind),
                Some(kind) if kind.is_exact() && next.is_exact() => Some(if kind.is_integer() && next.is_integer() {
                    Of(ValueType::Int)
                } else {
                    Of(ValueType::Numeric)
                }),
                Some(_) => return None,
            };
        }
        kind.filter(|kind| *kind != Null && (kind.is_exact() || !self.is_mysql() || kind.is_local()))
    }

    /// An expression as a value of a type.
    fn value(&self, expr: &Expr, kind: Kind) -> Option<Formula> {
        if operand(expr).is_some() { self.constant(expr, kind) } else { self.typed(expr).map(|(value, _)| value) }
    }
}
