//! Conditions on the columns of one row that no index can find: comparisons between columns, parts of dates, sums,
//! CASE.
//!
//! They are evaluated on a row image as the database evaluates them on the row. The logic has a fourth value,
//! *unknown*. It stands for everything that the image lacks, and for operations whose result in the database is not
//! certain here. A row may pass if the condition is true or unknown. Each operation follows one rule: a result other
//! than unknown is the database's own result, or the database raises an error. So whatever depends on the width of a
//! type, on settings, locales or time zones is unknown.
//!
//! Texts are not normalised. Each comparison states how its texts compare ([`Formula::Compare`]), since texts that
//! the server calls equal need not be identical.

mod numbers;

use std::cmp::Ordering;

use numbers::{arithmetic, order};

use crate::value::{floor_to, part_of};
use crate::{Cell, ComparedColumn, Image, Pattern, Piece, Relation, Value, ValueType};

/// Operations produce no longer texts than this.
const TEXT_LEN_MAX: usize = 4_096;

/// An expression over one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Formula {
    /// Not understood.
    Unknown,
    /// `NULL`
    Null,
    /// A constant, in normal form.
    Constant(Value),
    /// A column; texts are not normalised.
    Column(ComparedColumn),
    /// A comparison. Texts compare as values of this type: if their normal forms differ, they are not equal.
    Compare(Comparison, ValueType, Box<[Formula; 2]>),
    /// `AND`
    Both(Box<[Formula; 2]>),
    /// `OR`
    Either(Box<[Formula; 2]>),
    /// `NOT`
    Not(Box<Formula>),
    /// `IS NULL`
    IsNull(Box<Formula>),
    /// `IS TRUE`, `IS FALSE`
    Is(bool, Box<Formula>),
    /// Arithmetic, exact or on doubles. Integers stay within these bounds, both included.
    Arithmetic(Operation, (i64, i64), Box<[Formula; 2]>),
    /// A part of a date or time.
    Part(Part, Box<Formula>),
    /// The start of the unit of time that contains a moment: `date_trunc`, and casts to dates.
    Floor(Part, Box<Formula>),
    /// A moment plus months, then days, then microseconds.
    Later([i64; 3], Box<Formula>),
    /// `CASE WHEN … THEN … ELSE … END`
    Case(Box<[(Formula, Formula)]>, Box<Formula>),
    /// `COALESCE`
    First(Box<[Formula]>),
    /// `LIKE`, with a backslash to escape.
    Like(Box<[Formula; 2]>),
    /// A function of plain texts.
    Text(TextFunction, Box<[Formula]>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `%` of integers
    Remainder,
}

/// A part of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are what they say")]
pub enum Part {
    Year,
    IsoYear,
    Quarter,
    Month,
    Week,
    Day,
    DayOfYear,
    /// Counted from Sunday, which is 0.
    DayOfWeek,
    Hour,
    Minute,
    /// Without its fraction.
    Second,
    /// With its fraction.
    Seconds,
    /// The microseconds since midnight.
    Time,
}

/// A function that takes or returns texts of plain ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextFunction {
    /// `upper`
    Upper,
    /// `lower`
    Lower,
    /// The number of characters.
    Length,
    /// `||`
    Concat,
    /// The part of a text that starts at a character (the first is 1) and has a given length.
    Substring,
    /// Replaces each occurrence of one text by another.
    Replace,
    /// The characters in reverse order.
    Reverse,
    /// The decimal digits of an integer.
    Digits,
}

/// The knowledge about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Unknown,
    Null,
    Value(Value),
}

impl Formula {
    /// Whether the condition may be true of a row.
    pub fn may_hold(&self, relation: &Relation, row: &[Cell]) -> bool {
        self.of(&|column: &ComparedColumn| known(column, relation, row)).may_be_true()
    }

    /// Whether the condition may be true of a row of NULLs.
    pub fn may_hold_of_nulls(&self) -> bool {
        self.of(&|_: &ComparedColumn| Known::Null).may_be_true()
    }

    /// About how many bytes it owns on the heap.
    pub fn bytes(&self) -> usize {
        let of_parts = |parts: &[Self]| parts.iter().map(|part| size_of::<Self>() + part.bytes()).sum::<usize>();
        match self {
            Self::Unknown | Self::Null | Self::Column(_) => 0,
            Self::Constant(value) => match value {
                Value::Text(text) => text.len(),
                Value::Decimal(text) => text.len(),
                _ => 0,
            },
            Self::Compare(_, _, sides)
            | Self::Both(sides)
            | Self::Either(sides)
            | Self::Arithmetic(_, _, sides)
            | Self::Like(sides) => of_parts(&**sides),
            Self::Not(of)
            | Self::IsNull(of)
            | Self::Is(_, of)
            | Self::Part(_, of)
            | Self::Floor(_, of)
            | Self::Later(_, of) => of_parts(std::slice::from_ref(of)),
            Self::Case(branches, other) => {
                let branches = branches.iter().flat_map(|(when, then)| [when, then]).chain([&**other]);
                branches.map(|part| size_of::<Self>() + part.bytes()).sum()
            }
            Self::First(parts) | Self::Text(_, parts) => of_parts(parts),
        }
    }

    fn of(&self, column: &dyn Fn(&ComparedColumn) -> Known) -> Known {
        match self {
            Self::Unknown => Known::Unknown,
            Self::Null => Known::Null,
            Self::Constant(value) => Known::Value(value.clone()),
            Self::Column(name) => column(name),
            Self::Compare(how, by, sides) => {
                let [left, right] = &**sides;
                left.of(column).and(right.of(column), |left, right| compare(*how, *by, &left, &right))
            }
            Self::Both(sides) => both(sides, false, column),
            Self::Either(sides) => both(sides, true, column),
            Self::Not(of) => of.of(column).map(|value| Some(Known::of_bool(!truth(&value)?))),
            Self::IsNull(of) => match of.of(column) {
                Known::Unknown => Known::Unknown,
                value => Known::Value(Value::Bool(value == Known::Null)),
            },
            Self::Is(wanted, of) => match of.of(column) {
                Known::Unknown => Known::Unknown,
                Known::Null => Known::Value(Value::Bool(false)),
                Known::Value(value) => {
                    truth(&value).map_or(Known::Unknown, |truth| Known::Value(Value::Bool(truth == *wanted)))
                }
            },
            Self::Arithmetic(operation, bounds, sides) => {
                let [left, right] = &**sides;
                let result = |left, right| arithmetic(*operation, *bounds, &left, &right).map(Known::Value);
                left.of(column).and(right.of(column), result)
            }
            Self::Part(part, of) => of.of(column).map(|value| match value {
                Value::Moment(micros) => part_of(micros, *part).map(Known::Value),
                _ => None,
            }),
            Self::Floor(part, of) => of.of(column).map(|value| match value {
                Value::Moment(micros) => floor_to(micros, *part).map(|micros| Known::Value(Value::Moment(micros))),
                _ => None,
            }),
            Self::Later([months, days, micros], of) => {
                of.of(column).map(|value| value.later(*months, *days)?.plus(*micros).map(Known::Value))
            }
            Self::Case(branches, other) => {
                for (when, then) in branches {
                    match when.of(column).truth() {
                        Truth::Unknown => return Known::Unknown,
                        Truth::True => return then.of(column),
                        Truth::NotTrue => {}
                    }
                }
                other.of(column)
            }
            Self::First(parts) => {
                let values = parts.iter().map(|part| part.of(column));
                values.into_iter().find(|value| *value != Known::Null).unwrap_or(Known::Null)
            }
            Self::Like(sides) => {
                let [text, pattern] = &**sides;
                text.of(column).and(pattern.of(column), |text, pattern| like(&text, &pattern))
            }
            Self::Text(function, parts) => of_texts(*function, parts, column),
        }
    }
}

/// The result of a text function; NULL if an argument is NULL.
fn of_texts(function: TextFunction, parts: &[Formula], column: &dyn Fn(&ComparedColumn) -> Known) -> Known {
    let mut values = Vec::with_capacity(parts.len());
    let mut is_null = false;
    for part in parts {
        match part.of(column) {
            Known::Unknown => return Known::Unknown,
            Known::Null => is_null = true,
            Known::Value(value) => values.push(value),
        }
    }
    if is_null { Known::Null } else { text(function, &values).map_or(Known::Unknown, Known::Value) }
}

enum Truth {
    True,
    NotTrue,
    Unknown,
}

impl Known {
    fn of_bool(value: bool) -> Self {
        Self::Value(Value::Bool(value))
    }

    fn truth(&self) -> Truth {
        match self {
            Self::Unknown => Truth::Unknown,
            Self::Null => Truth::NotTrue,
            Self::Value(value) => match truth(value) {
                None => Truth::Unknown,
                Some(true) => Truth::True,
                Some(false) => Truth::NotTrue,
            },
        }
    }

    fn may_be_true(&self) -> bool {
        !matches!(self.truth(), Truth::NotTrue)
    }

    /// Applies `of` to a value that is not NULL. None from `of` means unknown.
    fn map(self, of: impl FnOnce(Value) -> Option<Self>) -> Self {
        match self {
            Self::Value(value) => of(value).unwrap_or(Self::Unknown),
            other => other,
        }
    }

    /// Applies `of` to two values. NULL if one is NULL, even if the other is unknown.
    fn and(self, other: Self, of: impl FnOnce(Value, Value) -> Option<Self>) -> Self {
        match (self, other) {
            (Self::Value(left), Self::Value(right)) => of(left, right).unwrap_or(Self::Unknown),
            (Self::Null, _) | (_, Self::Null) => Self::Null,
            _ => Self::Unknown,
        }
    }
}

/// AND or OR. `decisive` is the truth value that alone decides the result.
fn both(sides: &[Formula; 2], decisive: bool, column: &dyn Fn(&ComparedColumn) -> Known) -> Known {
    let mut result = Known::Value(Value::Bool(!decisive));
    for side in sides {
        let value = match side.of(column) {
            Known::Value(value) => truth(&value).map_or(Known::Unknown, |truth| Known::Value(Value::Bool(truth))),
            other => other,
        };
        match value {
            Known::Value(Value::Bool(value)) if value == decisive => return Known::Value(Value::Bool(decisive)),
            // An unknown operand may be the decisive one; NULL is not.
            Known::Unknown => result = Known::Unknown,
            Known::Null if result != Known::Unknown => result = Known::Null,
            Known::Value(_) | Known::Null => {}
        }
    }
    result
}

/// MySQL takes numbers other than zero as true.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Int(number) => Some(*number != 0),
        _ => None,
    }
}

fn known(column: &ComparedColumn, relation: &Relation, row: &[Cell]) -> Known {
    let is_text = is_text(column.value_type);
    match relation.position(&column.name).and_then(|at| row.get(at)) {
        Some(Cell::Text(text)) if is_text => Known::Value(Value::Text(text.clone())),
        _ => match column.image(relation, row) {
            Image::Null => Known::Null,
            Image::Value(value) => Known::Value(value),
            Image::Begins(_) | Image::Unknown => Known::Unknown,
        },
    }
}

fn is_text(value_type: ValueType) -> bool {
    use ValueType::{Bytes, ExactText, FoldedText, OrderedText, Text};
    matches!(value_type, Bytes | ExactText | FoldedText | OrderedText | Text)
}

fn compare(how: Comparison, by: ValueType, left: &Value, right: &Value) -> Option<Known> {
    let ordering = match (left, right) {
        (Value::Text(left), Value::Text(right)) => {
            let (left, right) = (by.normalise_text(left)?, by.normalise_text(right)?);
            let certain = matches!(by, ValueType::Text | ValueType::OrderedText);
            return match how {
                Comparison::Equal if left != right => Some(Known::of_bool(false)),
                Comparison::Equal if certain => Some(Known::of_bool(true)),
                Comparison::Less if by == ValueType::OrderedText => Some(Known::of_bool(left < right)),
                Comparison::LessOrEqual if by == ValueType::OrderedText => Some(Known::of_bool(left <= right)),
                _ => None,
            };
        }
        (Value::Moment(left), Value::Moment(right)) => left.cmp(right),
        (Value::Uuid(left), Value::Uuid(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => order(left, right)?,
    };
    Some(Known::of_bool(match how {
        Comparison::Equal => ordering == Ordering::Equal,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::LessOrEqual => ordering != Ordering::Greater,
    }))
}

/// A text of bytes that all servers read as the same characters.
fn plain(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) if text.len() <= TEXT_LEN_MAX && text.iter().all(|byte| matches!(byte, b' '..=b'~')) => {
            Some(text)
        }
        _ => None,
    }
}

fn like(text: &Value, pattern: &Value) -> Option<Known> {
    let (text, pattern) = (plain(text)?, plain(pattern)?);
    // A backslash at the end is an error.
    let escapes = pattern.iter().rev().take_while(|byte| **byte == b'\\').count();
    if escapes % 2 == 1 {
        return None;
    }
    let pieces = Piece::of(pattern, Some(b'\\'));
    Some(Known::of_bool(Pattern { pieces, folded: false, negated: false, collated: false }.may_pass(text)))
}

fn text(function: TextFunction, values: &[Value]) -> Option<Value> {
    use TextFunction::{Concat, Digits, Length, Lower, Replace, Reverse, Substring, Upper};
    let text = |at: usize| values.get(at).and_then(plain);
    let is_dotless = |text: &&[u8]| !text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    let of = |bytes: Vec<u8>| (bytes.len() <= TEXT_LEN_MAX).then(|| Value::Text(bytes.into()));
    match function {
        // In some languages the capital of `i` is not `I`.
        Upper => of(text(0).filter(is_dotless)?.to_ascii_uppercase()),
        Lower => of(text(0).filter(is_dotless)?.to_ascii_lowercase()),
        Length => Some(Value::Int(i64::try_from(text(0)?.len()).ok()?)),
        Concat => {
            let texts: Vec<&[u8]> = values.iter().map(plain).collect::<Option<_>>()?;
            of(texts.concat())
        }
        Substring => {
            let integer = |at: usize| match values.get(at) {
                Some(Value::Int(integer)) => usize::try_from(*integer).ok(),
                _ => None,
            };
            let (text, from, length) = (text(0)?, integer(1)?.checked_sub(1)?, integer(2)?);
            of(text.iter().skip(from).take(length).copied().collect())
        }
        Replace => {
            let (text, wanted, by) = (text(0)?, text(1)?, text(2)?);
            let (text, wanted) = (std::str::from_utf8(text).ok()?, std::str::from_utf8(wanted).ok()?);
            let by = std::str::from_utf8(by).ok()?;
            let replaced = if wanted.is_empty() { text.to_owned() } else { text.replace(wanted, by) };
            of(replaced.into_bytes())
        }
        Digits => match values.first()? {
            Value::Int(integer) => of(integer.to_string().into_bytes()),
            _ => None,
        },
        Reverse => of(text(0)?.iter().rev().copied().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableId;

    const COLUMNS: [(&str, ValueType); 6] = [
        ("a", ValueType::Int),
        ("n", ValueType::Numeric),
        ("f", ValueType::Float8),
        ("t", ValueType::Timestamp),
        ("s", ValueType::Text),
        ("m", ValueType::FoldedText),
    ];

    fn column(name: &str) -> Formula {
        let (name, value_type) = COLUMNS.into_iter().find(|(known, _)| *known == name).unwrap();
        Formula::Column(ComparedColumn { name: name.into(), value_type })
    }

    fn constant(value_type: ValueType, text: &str) -> Formula {
        Formula::Constant(value_type.normalise_text(text.as_bytes()).unwrap())
    }

    fn integer(number: i64) -> Formula {
        Formula::Constant(Value::Int(number))
    }

    fn compare(how: Comparison, by: ValueType, left: Formula, right: Formula) -> Formula {
        Formula::Compare(how, by, Box::new([left, right]))
    }

    fn equal(by: ValueType, left: Formula, right: Formula) -> Formula {
        compare(Comparison::Equal, by, left, right)
    }

    fn text(function: TextFunction, parts: impl IntoIterator<Item = Formula>) -> Formula {
        Formula::Text(function, parts.into_iter().collect())
    }

    fn not(of: Formula) -> Formula {
        Formula::Not(of.into())
    }

    /// Whether the condition and its opposite may hold of a row: known to be true, known to be false, NULL, or not known.
    fn of(condition: &Formula, row: [&str; 6]) -> [bool; 2] {
        let relation =
            Relation { table: TableId(1), columns: COLUMNS.iter().map(|(name, _)| (*name).into()).collect() };
        let cell = |text: &str| match text {
            "?" => Cell::Absent,
            "-" => Cell::Null,
            text => Cell::Text(text.as_bytes().into()),
        };
        let row = row.map(cell);
        [condition.may_hold(&relation, &row), not(condition.clone()).may_hold(&relation, &row)]
    }

    const TRUE: [bool; 2] = [true, false];
    const FALSE: [bool; 2] = [false, true];
    const NULL: [bool; 2] = [false, false];
    const UNKNOWN: [bool; 2] = [true, true];

    #[test]
    fn columns_compare_with_columns() {
        use Comparison::{Less, LessOrEqual};
        let less = |left, right| compare(Less, ValueType::Int, column(left), column(right));
        for (condition, row, expected) in [
            (less("a", "n"), ["1", "1.5", "-", "-", "-", "-"], TRUE),
            (less("a", "n"), ["2", "1.5", "-", "-", "-", "-"], FALSE),
            (less("a", "n"), ["-", "1.5", "-", "-", "-", "-"], NULL),
            (less("a", "n"), ["-", "?", "-", "-", "-", "-"], NULL),
            (less("a", "n"), ["1", "?", "-", "-", "-", "-"], UNKNOWN),
            (less("a", "n"), ["1", "NaN", "-", "-", "-", "-"], UNKNOWN),
            (less("a", "f"), ["1", "-", "NaN", "-", "-", "-"], TRUE),
            (less("n", "f"), ["-", "0.1", "0.1", "-", "-", "-"], FALSE),
            (compare(LessOrEqual, ValueType::Int, column("a"), column("n")), ["2", "2.0", "-", "-", "-", "-"], TRUE),
            // Under the column's collation the order of texts is not known.
            (compare(Less, ValueType::Text, column("s"), column("s")), ["-", "-", "-", "-", "x", "-"], UNKNOWN),
            (equal(ValueType::Text, column("s"), column("m")), ["-", "-", "-", "-", "x", "x"], TRUE),
            (equal(ValueType::Text, column("s"), column("m")), ["-", "-", "-", "-", "x", "X"], FALSE),
            // Those that are equal here may not be there; others certainly are not.
            (equal(ValueType::FoldedText, column("s"), column("m")), ["-", "-", "-", "-", "x", "X "], UNKNOWN),
            (equal(ValueType::FoldedText, column("s"), column("m")), ["-", "-", "-", "-", "x", "y"], FALSE),
            (equal(ValueType::FoldedText, column("s"), column("m")), ["-", "-", "-", "-", "x", "é"], UNKNOWN),
        ] {
            assert_eq!(of(&condition, row), expected, "{condition:?} of {row:?}");
        }
    }

    #[test]
    fn numbers_are_calculated_as_far_as_that_is_exact() {
        use Operation::{Add, Multiply, Remainder, Subtract};
        let free = (i64::MIN, i64::MAX);
        let sum = |operation, bounds, left, right| Formula::Arithmetic(operation, bounds, Box::new([left, right]));
        let is = |left, right: Formula| equal(ValueType::Numeric, left, right);
        for (condition, row, expected) in [
            (is(sum(Add, free, column("a"), integer(1)), integer(3)), ["2", "-", "-", "-", "-", "-"], TRUE),
            (is(sum(Add, free, column("a"), integer(1)), integer(3)), ["3", "-", "-", "-", "-", "-"], FALSE),
            (is(sum(Add, (0, 9), column("a"), integer(1)), integer(3)), ["9", "-", "-", "-", "-", "-"], UNKNOWN),
            (is(sum(Subtract, (0, 9), column("n"), integer(1)), integer(3)), ["-", "0.5", "-", "-", "-", "-"], UNKNOWN),
            (is(sum(Remainder, free, column("a"), integer(2)), integer(-1)), ["-3", "-", "-", "-", "-", "-"], TRUE),
            (is(sum(Remainder, free, column("a"), integer(0)), integer(0)), ["3", "-", "-", "-", "-", "-"], UNKNOWN),
            (
                is(sum(Multiply, free, column("n"), column("n")), constant(ValueType::Numeric, "2.25")),
                ["-", "-1.50", "-", "-", "-", "-"],
                TRUE,
            ),
            (
                is(sum(Subtract, free, column("n"), column("a")), constant(ValueType::Numeric, "-0.5")),
                ["1", "0.5", "-", "-", "-", "-"],
                TRUE,
            ),
            (
                is(sum(Add, free, column("n"), column("a")), integer(3)),
                ["1", "1234567890123456.5", "-", "-", "-", "-"],
                UNKNOWN,
            ),
            (
                is(sum(Add, free, column("f"), constant(ValueType::Float8, "0.2")), constant(ValueType::Float8, "0.3")),
                ["-", "-", "0.1", "-", "-", "-"],
                FALSE,
            ),
            (
                is(sum(Multiply, free, column("f"), column("f")), integer(3)),
                ["-", "-", "1e300", "-", "-", "-"],
                UNKNOWN,
            ),
            (
                is(sum(Multiply, free, column("f"), column("f")), integer(3)),
                ["-", "-", "1e-160", "-", "-", "-"],
                UNKNOWN,
            ),
            (is(sum(Add, free, column("a"), integer(1)), integer(3)), ["-", "-", "-", "-", "-", "-"], NULL),
        ] {
            assert_eq!(of(&condition, row), expected, "{condition:?} of {row:?}");
        }
    }

    #[test]
    fn dates_have_parts() {
        let row = |moment: &'static str| ["-", "-", "-", moment, "-", "-"];
        for (moment, part, expected) in [
            ("2026-11-24 10:20:30.25", Part::Year, "2026"),
            ("2026-11-24 10:20:30.25", Part::Quarter, "4"),
            ("2026-11-24 10:20:30.25", Part::Month, "11"),
            ("2026-11-24 10:20:30.25", Part::Day, "24"),
            ("2026-11-24 10:20:30.25", Part::DayOfYear, "328"),
            ("2026-11-24 10:20:30.25", Part::DayOfWeek, "2"),
            ("2026-11-22", Part::DayOfWeek, "0"),
            ("2026-11-24 10:20:30.25", Part::Hour, "10"),
            ("2026-11-24 10:20:30.25", Part::Minute, "20"),
            ("2026-11-24 10:20:30.25", Part::Second, "30"),
            ("2026-11-24 10:20:30.25", Part::Seconds, "30.25"),
            ("1969-12-31 23:59:59.999999", Part::Seconds, "59.999999"),
            ("1969-12-31", Part::DayOfWeek, "3"),
            ("2021-01-03", Part::IsoYear, "2020"),
            ("2021-01-03", Part::Week, "53"),
            ("2018-12-31", Part::IsoYear, "2019"),
            ("2018-12-31", Part::Week, "1"),
            ("2024-12-31", Part::DayOfYear, "366"),
        ] {
            let part = Formula::Part(part, column("t").into());
            let condition = equal(ValueType::Numeric, part, constant(ValueType::Numeric, expected));
            assert_eq!(of(&condition, row(moment)), TRUE, "{condition:?} of {moment}");
        }
        for (moment, part, expected) in [
            ("2026-11-24 10:20:30.25", Part::Year, "2026-01-01"),
            ("2026-11-24 10:20:30.25", Part::Quarter, "2026-10-01"),
            ("2026-11-24 10:20:30.25", Part::Month, "2026-11-01"),
            ("2026-11-24 10:20:30.25", Part::Week, "2026-11-23"),
            ("2026-11-22", Part::Week, "2026-11-16"),
            ("1969-12-31 10:20:30.25", Part::Week, "1969-12-29"),
            ("1969-12-31 10:20:30.25", Part::Day, "1969-12-31"),
            ("1969-12-31 10:20:30.25", Part::Hour, "1969-12-31 10:00:00"),
            ("2026-11-24 10:20:30.25", Part::Minute, "2026-11-24 10:20:00"),
            ("2026-11-24 10:20:30.25", Part::Second, "2026-11-24 10:20:30"),
        ] {
            let floor = Formula::Floor(part, column("t").into());
            let condition = equal(ValueType::Timestamp, floor, constant(ValueType::Timestamp, expected));
            assert_eq!(of(&condition, row(moment)), TRUE, "{condition:?} of {moment}");
        }
        let year = equal(ValueType::Int, Formula::Part(Part::Year, column("t").into()), integer(2026));
        assert_eq!(of(&year, row("infinity")), UNKNOWN);
        assert_eq!(of(&year, row("0000-00-00 00:00:00")), UNKNOWN);
    }

    #[test]
    fn texts_are_taken_apart_if_they_are_plain() {
        use TextFunction::{Concat, Digits, Length, Lower, Replace, Reverse, Substring, Upper};
        let value = |text: &str| Formula::Constant(Value::Text(text.as_bytes().into()));
        let is = |left, right| equal(ValueType::Text, left, value(right));
        let row = |text: &'static str| ["-", "-", "-", "-", text, "-"];
        for (condition, text, expected) in [
            (is(text(Upper, [column("s")]), "AB"), "aB", TRUE),
            // To some the capital of `i` is another letter.
            (is(text(Upper, [column("s")]), "AI"), "ai", UNKNOWN),
            (is(text(Lower, [column("s")]), "ab"), "aé", UNKNOWN),
            (is(text(Concat, [column("s"), value("!")]), "ab!"), "ab", TRUE),
            (is(text(Substring, [column("s"), integer(2), integer(2)]), "bc"), "abcd", TRUE),
            (is(text(Substring, [column("s"), integer(9), integer(2)]), ""), "abcd", TRUE),
            (is(text(Substring, [column("s"), integer(0), integer(2)]), "a"), "abcd", UNKNOWN),
            (is(text(Replace, [column("s"), value("a"), value("xa")]), "xaxa"), "aa", TRUE),
            (is(text(Replace, [column("s"), value(""), value("x")]), "a"), "a", TRUE),
            (is(text(Reverse, [column("s")]), "cba"), "abc", TRUE),
            (is(text(Digits, [column("s")]), "1"), "1", UNKNOWN),
            (is(text(Digits, [Formula::Constant(Value::Int(-12))]), "-12"), "", TRUE),
            (equal(ValueType::Int, text(Length, [column("s")]), integer(3)), "abc", TRUE),
            (equal(ValueType::Int, text(Length, [column("s")]), integer(1)), "é", UNKNOWN),
            (Formula::Like(Box::new([column("s"), value("a%")])), "abc", TRUE),
            (Formula::Like(Box::new([column("s"), value("b%")])), "abc", FALSE),
            (Formula::Like(Box::new([column("s"), value("b%\\")])), "abc", UNKNOWN),
            (Formula::Like(Box::new([column("s"), value("\\a_\\\\")])), "ab\\", TRUE),
            (Formula::Like(Box::new([column("s"), value("a%")])), "é", UNKNOWN),
        ] {
            assert_eq!(of(&condition, row(text)), expected, "{condition:?} of {text}");
        }
    }

    #[test]
    fn what_is_not_known_decides_nothing() {
        let is = |name, number| equal(ValueType::Int, column(name), integer(number));
        let both = |left, right| Formula::Both(Box::new([left, right]));
        let either = |left, right| Formula::Either(Box::new([left, right]));
        let case = |when, then| Formula::Case([(when, then)].into(), integer(0).into());
        let row = ["1", "?", "-", "-", "-", "-"];
        for (condition, expected) in [
            (both(is("a", 1), is("n", 1)), UNKNOWN),
            (both(is("a", 2), is("n", 1)), FALSE),
            (both(is("n", 1), is("a", 2)), FALSE),
            (both(is("f", 1), is("a", 2)), FALSE),
            (both(is("f", 1), is("a", 1)), NULL),
            (both(is("f", 1), is("n", 1)), UNKNOWN),
            (either(is("n", 1), is("a", 1)), TRUE),
            (either(is("a", 2), is("n", 1)), UNKNOWN),
            (either(is("a", 2), is("f", 1)), NULL),
            (either(is("n", 1), is("f", 1)), UNKNOWN),
            (not(is("f", 1)), NULL),
            (Formula::Is(true, is("f", 1).into()), FALSE),
            (Formula::Is(false, is("a", 2).into()), TRUE),
            (Formula::Is(true, is("n", 1).into()), UNKNOWN),
            (Formula::IsNull(column("f").into()), TRUE),
            (Formula::IsNull(column("a").into()), FALSE),
            (Formula::IsNull(column("n").into()), UNKNOWN),
            (equal(ValueType::Int, case(is("a", 1), integer(5)), integer(5)), TRUE),
            (equal(ValueType::Int, case(is("f", 1), integer(5)), integer(5)), FALSE),
            (equal(ValueType::Int, case(is("n", 1), integer(5)), integer(5)), UNKNOWN),
            (equal(ValueType::Int, Formula::First([column("f"), column("a")].into()), integer(1)), TRUE),
            (equal(ValueType::Int, Formula::First([column("n"), column("a")].into()), integer(1)), UNKNOWN),
            (Formula::Unknown, UNKNOWN),
        ] {
            assert_eq!(of(&condition, row), expected, "{condition:?}");
        }
        assert!(!is("a", 1).may_hold_of_nulls());
        assert!(Formula::IsNull(column("a").into()).may_hold_of_nulls());
        assert!(Formula::Unknown.may_hold_of_nulls());
    }
}
