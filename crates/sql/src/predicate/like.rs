//! Conditions on the text of a column: LIKE, and equality and LIKE with both sides in one case.
//!
//! They are `col LIKE '%x%'`, `upper(col::text) LIKE upper('%x%')`, `upper(col) = upper('x')`, `col LIKE BINARY 'x%'`: the ways in which libraries
//! write *contains*, *starts with* and *equals*, case-sensitive or not. A condition on the beginning of the text, or on the whole text, becomes a
//! test of the normal form, so that the index finds it. Others become a pattern (`freshet_types::Pattern`).
//!
//! `upper` and `lower` change ASCII letters in the same way everywhere, except in languages in which the capital of `i` is not `I`. There fewer texts
//! are equal than here, and a letter that became another character on both sides equals no other ASCII letter. So such texts have the normal form of
//! MySQL's texts under case-insensitive collations ([`ValueType::FoldedText`]), even if the column's own collation is exact.

use freshet_types::{Pattern, Piece, Test, ValueType};
use sqlparser::ast::{
    CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
};

use crate::analysis::ReadSet;
use crate::predicate::bind::list;
use crate::predicate::parameters::Params;
use crate::predicate::syntax::{column_name, unwrapped};
use crate::predicate::{Operand, UnboundTest, mysql_values, operand};

/// The operands of LIKE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matching {
    pub(crate) pattern: Operand,
    /// `ESCAPE`; None: a backslash.
    pub(crate) escape: Option<Operand>,
    pub(crate) letters: Letters,
    /// `LIKE BINARY`
    pub(crate) binary: bool,
    /// The case to which the column is converted, and the pattern's.
    pub(crate) column_case: Option<Case>,
    pub(crate) pattern_case: Option<Case>,
    /// `col::text`
    pub(crate) cast: bool,
    pub(crate) negated: bool,
}

/// `upper(col)` or `lower(col)` that equals one of some constants.
#[derive(Clone, Debug)]
pub(crate) struct Folding {
    pub(crate) case: Case,
    /// `col::text`
    pub(crate) cast: bool,
    /// Each with the case to which it is converted.
    pub(crate) constants: Vec<(Operand, Option<Case>)>,
}

impl Folding {
    pub(crate) fn operands(&self) -> Vec<Operand> {
        self.constants.iter().map(|(operand, _)| *operand).collect()
    }
}

/// The case of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Upper,
    Lower,
}

impl Matching {
    /// `col LIKE pattern` without further functions.
    pub(crate) fn is_as_written(&self) -> bool {
        !self.negated && !self.cast && self.escape.is_none() && self.letters == Letters::OfColumn
    }
}

/// Which letters match a letter of the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    /// As the column's collation compares.
    OfColumn,
    /// `LIKE BINARY`: only the same letters.
    Same,
    /// `ILIKE`
    Folded,
    /// One side or both were converted to one case, each by the rules of its own collation.
    Mixed,
}

/// The case to which an expression is converted, and the expression inside.
fn in_case(expr: &Expr) -> (Option<Case>, &Expr) {
    let expr = unwrapped(expr);
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return (None, expr) };
    let name = name.0.last().and_then(ObjectNamePart::as_ident).map(|ident| ident.value.to_ascii_lowercase());
    // A statement is cached only if its functions are built in.
    let case = match name.as_deref() {
        Some("upper" | "ucase") => Some(Case::Upper),
        Some("lower" | "lcase") => Some(Case::Lower),
        _ => None,
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] if case.is_some() => (case, unwrapped(inner)),
        _ => (None, expr),
    }
}

/// The expression inside `expr::text` or the like, and whether there is a cast. A cast with a length truncates.
pub(crate) fn as_text(expr: &Expr) -> (bool, &Expr) {
    match unwrapped(expr) {
        Expr::Cast { expr, data_type, .. } if is_text(data_type) => (true, expr),
        expr => (false, expr),
    }
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    const NONE: Option<CharacterLength> = None;
    matches!(data_type, DataType::Text)
        || *data_type == DataType::Varchar(NONE)
        || *data_type == DataType::CharacterVarying(NONE)
}

/// The equality of a column, converted to one case, with some constants.
pub(crate) fn folded<'e>(
    column: &'e Expr,
    constants: impl IntoIterator<Item = &'e Expr>,
) -> Option<(&'e [Ident], UnboundTest)> {
    let (Some(case), column) = in_case(column) else { return None };
    let constants = constants.into_iter().map(|constant| {
        let (case, constant) = in_case(constant);
        Some((operand(constant)?, case))
    });
    let constants = constants.collect::<Option<Vec<_>>>()?;
    let (cast, column) = as_text(column);
    (!constants.is_empty()).then_some((column_name(column)?, UnboundTest::Folded(Folding { case, cast, constants })))
}

/// The test of LIKE or ILIKE. A NOT in it is left out.
pub(crate) fn matching(like: &Expr) -> Option<(&[Ident], UnboundTest)> {
    let (column, pattern, escape, any, ignores_case) = match like {
        Expr::Like { any, expr, pattern, escape_char, negated: _ } => (expr, pattern, escape_char, any, false),
        Expr::ILike { any, expr, pattern, escape_char, negated: _ } => (expr, pattern, escape_char, any, true),
        _ => return None,
    };
    let (column_case, column) = in_case(column);
    let (cast, column) = as_text(column);
    let (pattern_case, pattern) = in_case(pattern);
    let (binary, pattern) = match pattern {
        Expr::Cast { expr, data_type: DataType::Binary(None), .. } => (true, unwrapped(expr)),
        pattern => (false, pattern),
    };
    let letters = match (column_case, pattern_case, binary) {
        _ if ignores_case => Letters::Folded,
        (None, None, false) => Letters::OfColumn,
        (None, None, true) => Letters::Same,
        _ => Letters::Mixed,
    };
    let escape = match escape {
        Some(escape) => Some(operand(escape)?),
        None => None,
    };
    let pattern = operand(pattern)?;
    let matching = Matching { pattern, escape, letters, binary, column_case, pattern_case, cast, negated: false };
    (!any).then_some((column_name(column)?, UnboundTest::Like(matching)))
}

impl UnboundTest {
    /// The form in which the values of the column compare for this test.
    pub(crate) fn compares(&self, column: ValueType) -> ValueType {
        use ValueType::{ExactText, FoldedText, OrderedText, Text};
        let folds = match self {
            Self::Folded(_) => true,
            Self::Like(matching) => matches!(matching.letters, Letters::Folded | Letters::Mixed),
            _ => false,
        };
        match (self, column) {
            (_, Text | OrderedText | ExactText) if folds => FoldedText,
            // Identical texts are equal under each collation.
            (Self::Not(_), FoldedText) => Text,
            _ => column,
        }
    }
}

impl ReadSet {
    /// The test; `column` is the type that [`UnboundTest::compares`] returns.
    pub(crate) fn folded(&self, column: ValueType, operands: &[Operand], params: Params<'_>) -> Test {
        let value = |operand: &Operand| column.normalise_text(&self.plain_text(*operand, params)?);
        let values = || operands.iter().map(value).collect::<Option<Vec<_>>>();
        let values = (column == ValueType::FoldedText).then(values).flatten().and_then(list);
        values.map_or(Test::NotNull, Test::In)
    }

    /// The same for LIKE.
    pub(crate) fn like(&self, column: ValueType, matching: &Matching, params: Params<'_>) -> Test {
        self.pattern(column, matching, params).unwrap_or(Test::NotNull)
    }

    fn pattern(&self, column: ValueType, matching: &Matching, params: Params<'_>) -> Option<Test> {
        use ValueType::{Bytes, Enum, ExactText, FoldedText, Int, Numeric, OrderedText, Text, Uuid};
        let Matching { pattern, escape, letters, cast, negated, .. } = *matching;
        let mysql = self.dialect.is_mysql_family();
        let is_text = matches!(column, Text | OrderedText | FoldedText | ExactText | Bytes);
        // The text of these types is the one in the stream; MySQL may print integers with leading zeros.
        if !(is_text || (cast && !mysql && matches!(column, Enum | Int | Numeric | Uuid))) {
            return None;
        }
        let escape = match escape.map(|operand| self.plain_text(operand, params)) {
            None => Some(b'\\'),
            Some(text) => match *text? {
                [byte] if byte.is_ascii() => Some(byte),
                [] if !mysql => None,
                _ => return None,
            },
        };
        let text = self.plain_text(pattern, params)?;
        // Then MySQL's default escape is a backslash, and MariaDB has none.
        if params.client.plain_backslash && escape == Some(b'\\') && text.contains(&b'\\') {
            return None;
        }
        let folds = matches!(letters, Letters::Folded | Letters::Mixed);
        let printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
        // Bytes have no case.
        if ((mysql || folds) && !printable) || (column == Bytes && (folds || params.client.wide)) {
            return None;
        }
        let pieces = Piece::of(&text, escape);
        if !negated && is_text {
            let beginning = pieces.iter().map_while(|piece| match piece {
                Piece::Byte(byte) => Some(*byte),
                Piece::One | Piece::Any => None,
            });
            let beginning: Vec<u8> = beginning.collect();
            if beginning.len() == pieces.len() {
                return Some(Test::In([column.normalise_text(&beginning)?].into()));
            }
            if let Some(beginning) = begins(column, &beginning) {
                return Some(beginning);
            }
        }
        let is_open = pieces.last() == Some(&Piece::Any);
        let sure = letters != Letters::Mixed && (column != ExactText || is_open);
        // The stream omits trailing zero bytes.
        if (negated && !sure) || (column == Bytes && !is_open) {
            return None;
        }
        let folded = folds || (column == FoldedText && letters != Letters::Same);
        Some(Test::Like(Pattern { pieces, folded, negated, collated: mysql }.into()))
    }

    /// A constant as text.
    pub(crate) fn plain_text(&self, operand: Operand, params: Params<'_>) -> Option<Box<[u8]>> {
        let text = if self.dialect.is_mysql_family() {
            mysql_values::plain_text(operand, params.get(operand)?.value)?.into()
        } else {
            match self.value(ValueType::Text, operand, params)? {
                freshet_types::Value::Text(text) => text,
                _ => return None,
            }
        };
        (params.client.utf8 || text.is_ascii()).then_some(text)
    }
}

/// Texts with this beginning.
fn begins(column: ValueType, beginning: &[u8]) -> Option<Test> {
    let beginning = match column {
        ValueType::FoldedText => beginning.trim_ascii_end().to_ascii_lowercase(),
        ValueType::ExactText => beginning.trim_ascii_end().to_vec(),
        _ => beginning.to_vec(),
    };
    (!beginning.is_empty()).then(|| Test::Begins(beginning.into()))
}
