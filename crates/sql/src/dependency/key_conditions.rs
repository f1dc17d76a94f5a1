//! Conditions of key queries (`join_keys.rs`): the restrictions at the start of a join path, written for the server.
//!
//! A written condition must be true of each row that satisfies the statement's condition, also on a connection of Freshet with its own settings. So a
//! test is written as in the statement, or in a weaker form. Limits of ranges are rounded outwards.
//!
//! **Patterns** are written with the statement's operators and functions and the same change of case on each side, and only if the tag tests them
//! (`predicate/like.rs`). The collation of the column applies on both connections, whatever the collation of the constant. Patterns that could mean
//! something else on the other connection are left out: with a backslash, whose meaning depends on settings; with an escape character that is a
//! letter; with a cast to text, except from PostgreSQL's texts, integers, numerics and uuids, whose texts depend on no setting; with columns of
//! sub-selects. On MySQL:
//!
//! * The case of a constant follows the connection's collation, which may be a Turkish one, in which the capital of `i` is another letter. In such a
//!   pattern any text may replace an `i`; an equality with an `i` is not written.
//! * The bytes of a constant (`LIKE BINARY`, or compared with a BLOB) are those of the connection's character set, so both connections must encode
//!   ASCII in the same way (`Params::utf8`).
//!
//! A condition that no index supports costs as much as in the statement itself, so it is the last choice.

use freshet_types::{ComparedColumn, Dialect, Term, Test, Value, ValueType};

use crate::analysis::ReadSet;
use crate::dependency::query_text::{MARK, in_place, marked};
use crate::predicate::bind::{self, Rows};
use crate::predicate::like::{Case, Folding, Letters, Matching};
use crate::predicate::parameters::Params;
use crate::predicate::{Atom, Operand, UnboundTest, mysql_values};

/// The condition on a reference's rows: a disjunction of these conjunctions, each with at least one test. Empty: no condition can be written.
pub(crate) type Constants<'f> = Vec<Vec<(&'f ComparedColumn, SqlTest)>>;

/// How the server finds the rows at the start of a join path, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessMethod {
    /// By an equality with constants.
    Equal,
    /// By a range, or by the beginning of a text.
    Range,
    /// By the LIMIT bound of the answer's last row (`limit_bound.rs`), or by the keys of its rows (`result_keys.rs`).
    Answer,
    /// By a test of each row.
    Scan,
    /// By a test that most rows pass.
    Most,
}

impl AccessMethod {
    /// Best first.
    pub(crate) const ALL: [Self; 5] = [Self::Equal, Self::Range, Self::Answer, Self::Scan, Self::Most];

    /// The access method for a disjunction of these conjunctions. None if one of them has none.
    pub(crate) fn of<T>(conjunctions: &[Vec<T>], method: impl Fn(&T) -> Self) -> Option<Self> {
        let best = |conjunction: &Vec<T>| conjunction.iter().map(&method).min();
        conjunctions.iter().map(best).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// A test in SQL, with its constants as the server reads them.
pub(crate) enum SqlTest {
    /// Equal to one of these.
    In(Vec<String>),
    /// Within these limits, both inclusive; at least one is there.
    Within {
        low: Option<String>,
        high: Option<String>,
    },
    Null,
    NotNull,
    /// A test of a text, written behind the column; `finds` if it tests the beginning of the text.
    Text {
        case: Option<Case>,
        cast: bool,
        test: String,
        finds: bool,
    },
}

impl SqlTest {
    pub(crate) fn access_method(&self) -> AccessMethod {
        match self {
            Self::In(_) | Self::Null => AccessMethod::Equal,
            Self::Within { .. } | Self::Text { finds: true, .. } => AccessMethod::Range,
            Self::Text { finds: false, .. } => AccessMethod::Scan,
            Self::NotNull => AccessMethod::Most,
        }
    }

    /// The conditions on a column.
    pub(crate) fn tests(&self, dialect: Dialect, column: &str) -> Vec<String> {
        match self {
            Self::In(constants) => vec![format!("{column} IN ({})", constants.join(", "))],
            Self::Within { low, high } => {
                let low = low.iter().map(|low| format!("{column} >= {low}"));
                low.chain(high.iter().map(|high| format!("{column} <= {high}"))).collect()
            }
            Self::Null => vec![format!("{column} IS NULL")],
            Self::NotNull => vec![format!("{column} IS NOT NULL")],
            Self::Text { case, cast, test, finds: _ } => {
                let cast = if *cast { "::pg_catalog.text" } else { "" };
                vec![format!("{} {test}", in_case(dialect, *case, &format!("{column}{cast}")))]
            }
        }
    }
}

/// A text converted to upper or lower case.
fn in_case(dialect: Dialect, case: Option<Case>, text: &str) -> String {
    let schema = if dialect.is_mysql_family() { "" } else { "pg_catalog." };
    match case {
        Some(Case::Upper) => format!("{schema}upper({text})"),
        Some(Case::Lower) => format!("{schema}lower({text})"),
        None => text.to_owned(),
    }
}

impl ReadSet {
    /// The condition on the rows of a reference that matter, written for the server; empty if it cannot be written.
    pub(crate) fn constants<'f>(&'f self, place: usize, rows: &'f Rows, params: Params<'_>) -> Constants<'f> {
        let of_term = |term: &'f Term| Some((&term.column, self.written_term(term)?));
        self.each_conjunction(place, rows, of_term, |atom| Some((&atom.column, self.text(atom, params)?)))
    }

    /// For EXPLAIN CACHE: how the rows of a reference are found if a join path starts there. `is_known` says which constants are known.
    pub(crate) fn described_access(
        &self,
        place: usize,
        rows: &Rows,
        params: Params<'_>,
        is_known: impl Fn(&Atom) -> bool,
    ) -> Option<AccessMethod> {
        let of_term = |term: &Term| match &term.test {
            Test::In(_) if !is_mysql_text(&term.column) => Some(AccessMethod::Equal),
            Test::Null => Some(AccessMethod::Equal),
            Test::NotNull | Test::Not(_) => Some(AccessMethod::Most),
            Test::Within { .. } if self.has_limits(&term.column) => Some(AccessMethod::Range),
            _ => None,
        };
        let of_atom = |atom: &Atom| match &atom.unbound {
            _ if is_known(atom) => self.text(atom, params).map(|written| written.access_method()),
            UnboundTest::In(_) if is_mysql_text(&atom.column) => Some(AccessMethod::Equal),
            UnboundTest::Like(matching) if matching.is_as_written() => Some(AccessMethod::Range),
            UnboundTest::Like(matching) if !matching.negated && !atom.through => Some(AccessMethod::Scan),
            UnboundTest::Folded(_) if !atom.through => Some(AccessMethod::Scan),
            _ => None,
        };
        AccessMethod::of(&self.each_conjunction(place, rows, of_term, of_atom), |method| *method)
    }

    /// Maps the bound and unbound tests of each conjunction of a reference. Empty if a conjunction has no mapped test.
    fn each_conjunction<'f, T>(
        &'f self,
        place: usize,
        rows: &'f Rows,
        of_term: impl Fn(&'f Term) -> Option<T>,
        of_atom: impl Fn(&'f Atom) -> Option<T>,
    ) -> Vec<Vec<T>> {
        let Some(reference) = self.references.get(place) else { return Vec::new() };
        let (rows, asked) = (rows.as_deref().unwrap_or_default(), reference.predicate.conjunctions());
        // If one conjunction could not be bound, the indices of the others do not match.
        let atoms =
            |at: usize| if rows.len() == asked.len() { asked.get(at).map_or(&[][..], Vec::as_slice) } else { &[] };
        let all = rows.iter().enumerate().map(|(at, terms)| {
            let all: Vec<T> = terms.iter().filter_map(&of_term).chain(atoms(at).iter().filter_map(&of_atom)).collect();
            Some(all).filter(|all| !all.is_empty())
        });
        all.collect::<Option<_>>().unwrap_or_default()
    }

    /// An equality with constants, written so that it is true of no row too many.
    pub(crate) fn written_exactly(&self, atom: &Atom, params: Params<'_>) -> Option<SqlTest> {
        use ValueType::{Bit, Bool, Bytea, Int, OrderedText, Text, Unsigned, Uuid};
        let is_equal = |test: &Test| matches!(test, Test::In(_));
        let test = self.test(atom, params).filter(is_equal)?;
        match atom.column.value_type {
            ValueType::FoldedText | ValueType::ExactText | ValueType::Bytes => self.text(atom, params),
            Bit | Bool | Bytea | Int | OrderedText | Text | Unsigned | Uuid => {
                self.written_term(&Term { column: atom.column.clone(), test })
            }
            _ => None,
        }
    }

    fn written_term(&self, term: &Term) -> Option<SqlTest> {
        match &term.test {
            Test::In(values) if !is_mysql_text(&term.column) => {
                let texts = values.iter().map(|value| written(self.dialect, &term.column, value));
                Some(SqlTest::In(texts.collect::<Option<_>>()?))
            }
            Test::Within { low, high } if self.has_limits(&term.column) => within(&term.column, *low, *high),
            Test::Null => Some(SqlTest::Null),
            Test::NotNull | Test::Not(_) => Some(SqlTest::NotNull),
            _ => None,
        }
    }

    /// The constants that the reference's predicate compares with text columns, unchanged. Their normal forms, on MySQL, may equal fewer texts.
    fn text(&self, atom: &Atom, params: Params<'_>) -> Option<SqlTest> {
        let quoted = |operand: &Operand| {
            if atom.column.value_type == ValueType::Bytes {
                let bytes = mysql_values::bytes(*operand, params.get(*operand)?.value, params)?;
                return Some(hexadecimal(&bytes));
            }
            let text = mysql_values::plain_text(*operand, params.get(*operand)?.value)?;
            // In another encoding these bytes are another text.
            (params.client.utf8 || text.is_ascii()).then(|| quoted_text(self.dialect, text)).flatten()
        };
        match &atom.unbound {
            UnboundTest::In(operands) if is_mysql_text(&atom.column) => {
                Some(SqlTest::In(operands.iter().map(quoted).collect::<Option<_>>()?))
            }
            UnboundTest::Like(matching) => self.pattern_text(atom, matching, params),
            UnboundTest::Folded(folding) => self.folded_text(atom, folding, params),
            _ => None,
        }
    }

    fn pattern_text(&self, atom: &Atom, matching: &Matching, params: Params<'_>) -> Option<SqlTest> {
        let Matching { pattern, escape, letters, cast, negated, binary, column_case, pattern_case } = *matching;
        let mysql = self.dialect.is_mysql_family();
        let test = self.test(atom, params)?;
        let finds = bind::finds(&test) && matching.is_as_written();
        let is_tested = bind::finds(&test) || matches!(test, Test::Like(_));
        let is_same =
            finds || (!atom.through && (!mysql || !(cast || (binary && column_case.or(pattern_case).is_some()))));
        let by_column = matching.is_as_written() && (finds || atom.column.value_type == ValueType::FoldedText);
        let is_known = !mysql || params.client.utf8 || by_column;
        if negated || !is_tested || !is_same || !is_known || !(mysql || has_text(atom.column.value_type)) {
            return None;
        }
        let text = self.plain_text(pattern, params).filter(|text| !text.contains(&b'\\'))?;
        let follows_connection = mysql && pattern_case.is_some() && text.iter().copied().any(is_dotted);
        // Behind an escape character it would be an ordinary character.
        if follows_connection && escape.is_some() {
            return None;
        }
        let open = |byte: &u8| if follows_connection && is_dotted(*byte) { b'%' } else { *byte };
        let text: Vec<u8> = text.iter().map(open).collect();
        let escape = match escape.map(|operand| self.plain_text(operand, params)) {
            None => String::new(),
            Some(text) => {
                let text =
                    text.filter(|text| matches!(**text, [byte] if byte.is_ascii_punctuation() && byte != b'\\'))?;
                format!(" ESCAPE {}", in_place(quoted_text(self.dialect, &text)?))
            }
        };
        let like = if letters == Letters::Folded { "ILIKE" } else { "LIKE" };
        let binary = if binary { "BINARY " } else { "" };
        let pattern = in_case(self.dialect, pattern_case, &quoted_text(self.dialect, &text)?);
        Some(SqlTest::Text { case: column_case, cast, test: format!("{like} {binary}{pattern}{escape}"), finds })
    }

    fn folded_text(&self, atom: &Atom, folding: &Folding, params: Params<'_>) -> Option<SqlTest> {
        let mysql = self.dialect.is_mysql_family();
        let is_tested = matches!(self.test(atom, params)?, Test::In(_));
        if !is_tested || atom.through || (mysql && (folding.cast || !params.client.utf8)) {
            return None;
        }
        let constant = |(operand, case): &(Operand, Option<Case>)| {
            let text = self.plain_text(*operand, params)?;
            let is_same = !(mysql && case.is_some() && text.iter().copied().any(is_dotted));
            is_same.then(|| Some(in_case(self.dialect, *case, &quoted_text(self.dialect, &text)?))).flatten()
        };
        let constants: Vec<String> = folding.constants.iter().map(constant).collect::<Option<_>>()?;
        let test = format!("IN ({})", constants.join(", "));
        Some(SqlTest::Text { case: Some(folding.case), cast: folding.cast, test, finds: false })
    }

    /// Whether the limits of a range can be written. MySQL reads a TIMESTAMP in the session's time zone.
    pub(crate) fn has_limits(&self, column: &ComparedColumn) -> bool {
        use ValueType::{Date, Float4, Float8, Int, Numeric, OrderedText, Timestamp, TimestampTz, Unsigned};
        match column.value_type {
            Int | Unsigned | Numeric | Date | Timestamp | Float4 | Float8 | OrderedText => true,
            TimestampTz => !self.dialect.is_mysql_family(),
            _ => false,
        }
    }
}

fn is_mysql_text(column: &ComparedColumn) -> bool {
    matches!(column.value_type, ValueType::FoldedText | ValueType::ExactText | ValueType::Bytes)
}

/// Whether PostgreSQL prints a value of the type as the same text under all settings.
fn has_text(value_type: ValueType) -> bool {
    use ValueType::{FoldedText, Int, Numeric, OrderedText, Text, Uuid};
    matches!(value_type, FoldedText | Int | Numeric | OrderedText | Text | Uuid)
}

/// A letter with different capitals in different languages.
fn is_dotted(byte: u8) -> bool {
    byte.eq_ignore_ascii_case(&b'i')
}

/// A condition that is true at least where one of these tests of a column is, with the column under this name. None if one of the tests cannot be
/// written.
pub(crate) fn written_bound(column: &ComparedColumn, name: &str, tests: &[Test]) -> Option<String> {
    let written = tests.iter().map(|test| match test {
        Test::Within { low, high } => within(column, *low, *high),
        Test::Null => Some(SqlTest::Null),
        Test::In(values) => {
            let number = |value: &Value| {
                let same = matches!(value, Value::Int(_) | Value::Decimal(_) | Value::Uuid(_));
                written(Dialect::Postgres, column, value).filter(|_| same)
            };
            Some(SqlTest::In(values.iter().map(number).collect::<Option<_>>()?))
        }
        _ => None,
    });
    // Numbers and dates are written in the same way in each dialect.
    let tests = written.map(|written| Some(written?.tests(Dialect::Postgres, name).join(" AND ")));
    let tests: Vec<String> = tests.collect::<Option<_>>()?;
    (!tests.is_empty()).then(|| format!("({})", tests.join(" OR ")))
}

/// Limits that include at least the values of these order keys, if there are such limits.
fn within(column: &ComparedColumn, low: u64, high: u64) -> Option<SqlTest> {
    let (low, high) = (limit(column, low, -1), limit(column, high, 1));
    (low.is_some() || high.is_some()).then_some(SqlTest::Within { low, high })
}

/// A limit that includes at least the values of the order key, if there is one; `outwards` is the direction of rounding.
fn limit(column: &ComparedColumn, key: u64, outwards: i64) -> Option<String> {
    if column.value_type == ValueType::OrderedText {
        return text_limit(key, outwards);
    }
    let number = Some((key ^ (1 << 63)).cast_signed()).filter(|number| !matches!(*number, i64::MIN | i64::MAX))?;
    match column.value_type {
        // The shortest text whose nearest double it is; the server compares doubles.
        ValueType::Float4 | ValueType::Float8 => {
            let double = Value::Float(key).double().filter(|double| double.is_finite())?;
            Some(marked(&format!("{double:e}")))
        }
        ValueType::Int | ValueType::Unsigned => Some(marked(&number.to_string())),
        // Order keys of numerics are truncated towards zero.
        ValueType::Numeric => Some(marked(&number.checked_add(outwards)?.to_string())),
        own => {
            let text = own.moment_text(number)?;
            let same = own.normalise_text(text.as_bytes()) == Some(Value::Moment(number));
            same.then(|| marked(&format!("'{text}'")))
        }
    }
}

/// The same for texts that are ordered by bytes; the key has the first bytes.
fn text_limit(key: u64, outwards: i64) -> Option<String> {
    let bytes = key.to_be_bytes();
    let plain = bytes.iter().take_while(|byte| matches!(byte, b' '..=b'~')).count();
    let mut text = bytes.get(..plain)?.to_vec();
    if outwards > 0 {
        // Beyond all texts with this beginning, and those whose order is uncertain.
        let last = text.last_mut()?;
        *last = last.checked_add(1)?;
    }
    if text.is_empty() { None } else { quoted_text(Dialect::Postgres, &text) }
}

/// A constant as the server reads it; None if the text form is not certain.
fn written(dialect: Dialect, column: &ComparedColumn, value: &Value) -> Option<String> {
    // Their normal forms cannot be written: those of UUIDs have their bytes in the order of comparison.
    if column.value_type.is_mariadb() {
        return None;
    }
    Some(match value {
        Value::Int(number) => marked(&number.to_string()),
        Value::Decimal(text) => {
            let (sign, digits) = text.strip_prefix('-').map_or(("", &**text), |digits| ("-", digits));
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let whole = if whole.is_empty() { "0" } else { whole };
            let point = if fraction.is_empty() { "" } else { "." };
            marked(&format!("{sign}{whole}{point}{fraction}"))
        }
        Value::Bool(value) => value.to_string(),
        Value::Uuid(bits) => marked(&format!("'{bits:032x}'")),
        Value::Text(bytes) if column.value_type == ValueType::Bytea => marked(&format!("'\\x{}'", digits_of(bytes))),
        Value::Text(bytes) => quoted_text(dialect, bytes)?,
        // No text is certain to be read as this double.
        Value::Float(_) => return None,
        Value::Moment(micros) => quoted_text(dialect, column.value_type.moment_text(*micros)?.as_bytes())?,
    })
}

/// A constant of bytes, as MySQL and MariaDB read it.
fn hexadecimal(bytes: &[u8]) -> String {
    marked(&format!("x'{}'", digits_of(bytes)))
}

fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// A string constant, under `standard_conforming_strings`, or without `NO_BACKSLASH_ESCAPES`.
fn quoted_text(dialect: Dialect, bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(['\0', MARK]))?;
    let text = text.replace('\'', "''");
    Some(marked(&if dialect.is_mysql_family() {
        format!("'{}'", text.replace('\\', "\\\\"))
    } else {
        format!("'{text}'")
    }))
}
