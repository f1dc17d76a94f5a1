//! Rows that matter only by the keys that other rows hold.
//!
//! `title JOIN rating ON rating.title_id = title.id WHERE title.title = $1`: of `rating` only rows matter whose `title_id` is
//! the `id` of a title of that name. Which ones these are is read from the database beside the query: the keys of *all* rows
//! of `title` that the condition leaves, before any join, so that a first rating of a movie that had none is noticed.
//!
//! # Why this is sound
//!
//! Let S be a table reference with a sound predicate T_S: rows of S outside T_S may be taken away without changing the
//! result. Let a condition that bounds R (see `walk.rs`) contain `R.c = S.d`. Then a row of R whose c is no d of a row of
//! σ_{T_S}(S) meets no row of S that is left: it satisfies the condition for none of them, so it may be taken away as well.
//! Hence `c IN K` with K = {s.d | s ∈ σ_{T_S}(S)} is a sound predicate of R, and R may lead on to the next. It holds for inner
//! and outer joins and within sub-queries alike, since nothing is said of rows of S.
//!
//! Of S more rows may be asked for than its condition leaves: more keys are more rows of R. So it may also be a range that leads
//! from S to R, whose limits are written as far as they are known; but a column that equals constants comes first. The same with the
//! beginning of a text, which is asked for by the pattern as it is; of a disjunction each part must be written.
//!
//! K is read by a statement of its own, after the fill began. What changes K meanwhile is a change of rows of σ_{T_S}(S), which
//! S's own tag notices. All parts are read by one statement, so they are of one snapshot.

use std::fmt::Write as _;

use freshet_model::{Columns, ComparedColumn, Dialect, RowSet, TableId, Tag, Term, Test, Value, ValueType};

use crate::footprint::Footprint;
use crate::mysql;
use crate::params::Params;
use crate::predicate::{Atom, Operand, Question};
use crate::terms::{self, Rows};

/// Keys of one part beyond which any row of the table matters.
pub(crate) const KEYS_MAX: usize = 1_000;
/// Tables on the way from the constants.
const STEPS_MAX: usize = 5;
/// Parts of one query.
const PARTS_MAX: usize = 12;

/// Rows that matter only by the keys that other rows hold: read when the query is.
#[derive(Clone, Debug)]
pub struct Lineage {
    parts: Vec<Part>,
    tables: Vec<TableId>,
}

/// A key with the number of its part; None: NULL.
pub type Key = (usize, Option<Vec<u8>>);

#[derive(Clone, Debug)]
struct Part {
    table: TableId,
    /// The SELECT for its keys, behind the words that number it; None: they are not asked for.
    select: Option<String>,
    /// Holds the key.
    column: ComparedColumn,
    /// What else is known of the rows.
    terms: Vec<Term>,
    columns: Columns,
}

/// A row of `to` matters only with a row of `from` that has the same value: a condition that bounds `to` says so. Both
/// are places among the references of the whole statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) to_column: ComparedColumn,
    pub(crate) from: usize,
    pub(crate) from_column: ComparedColumn,
    /// Only keys that were read lead on: see [`compare_by_keys`].
    pub(crate) by_keys: bool,
}

/// Whether a column equals another one only if their normal forms do, whatever third value stands between them.
pub(crate) fn compare_alike(a: ValueType, b: ValueType) -> bool {
    use ValueType::{Bool, Date, ExactText, OrderedText, Text, Timestamp, Uuid};
    let number = |value_type| matches!(value_type, ValueType::Int | ValueType::Unsigned | ValueType::Numeric);
    let text = |value_type| matches!(value_type, Text | OrderedText);
    let alone = matches!(a, ExactText | Uuid | Bool | Date | Timestamp);
    (number(a) && number(b)) || (text(a) && text(b)) || (a == b && alone)
}

/// Whether a column equals another one only if their normal forms do, or one of them has none. Between two that are equal to a third
/// one without a normal form nothing holds, so constants do not travel; but among keys that were read that one is seen.
pub(crate) fn compare_by_keys(a: ValueType, b: ValueType) -> bool {
    a == ValueType::FoldedText && a == b
}

/// How references without constants are reached from those that have some: for each the edges, the last one first.
struct Ways<'f> {
    of: Vec<Option<Vec<&'f Edge>>>,
    /// The places of those that were reached.
    reached: Vec<usize>,
}

impl<'f> Ways<'f> {
    /// Those that begin with constants that a column equals come first; from ranges begins what they do not reach.
    fn from(rows: &[Rows], equal: impl Fn(usize) -> bool, any: impl Fn(usize) -> bool, edges: &'f [Edge]) -> Self {
        let known = Self::find(rows, &equal, edges);
        Self::find(rows, |at| equal(at) || (any(at) && !known.reached.contains(&at)), edges)
    }

    fn find(rows: &[Rows], is_start: impl Fn(usize) -> bool, edges: &'f [Edge]) -> Self {
        let mut of: Vec<Option<Vec<&Edge>>> = (0..rows.len()).map(|at| is_start(at).then(Vec::new)).collect();
        let mut reached = Vec::new();
        for _ in 1..STEPS_MAX {
            let mut next = Vec::new();
            for edge in edges.iter().filter(|edge| !edge.by_keys).chain(edges.iter().filter(|edge| edge.by_keys)) {
                let wanted = rows.get(edge.to).is_some_and(is_open) && of.get(edge.to).is_some_and(Option::is_none);
                if let Some(before) = of.get(edge.from).and_then(Option::as_ref).filter(|_| wanted) {
                    next.push((edge, std::iter::once(edge).chain(before.iter().copied()).collect()));
                }
            }
            for (edge, way) in next {
                let new = reached.len() < PARTS_MAX && !reached.contains(&edge.to);
                if let Some(of) = of.get_mut(edge.to).filter(|_| new) {
                    *of = Some(way);
                    reached.push(edge.to);
                }
            }
        }
        Self { of, reached }
    }

    fn reached(&self) -> impl Iterator<Item = (usize, &[&'f Edge])> {
        self.reached.iter().filter_map(|place| Some((*place, self.of.get(*place)?.as_deref()?)))
    }
}

/// Whether nothing says which values the rows have that matter; a range may be known.
fn is_open(rows: &Rows) -> bool {
    match rows.as_deref() {
        None => true,
        Some(conjunctions) => conjunctions.iter().flatten().all(|term| terms::is_open(&term.test)),
    }
}

/// What a row must have in some columns, as a condition: one of these conjunctions, each with a test. None: it cannot be told.
type Constants<'f> = Vec<Vec<(&'f ComparedColumn, Written)>>;

/// Constants as the server reads them.
enum Written {
    /// One of these.
    In(Vec<String>),
    /// Within these limits, both included; at least one.
    Within {
        low: Option<String>,
        high: Option<String>,
    },
    Like(String),
    Null,
}

impl Written {
    /// As tests of a column.
    fn tests(&self, column: &str) -> Vec<String> {
        match self {
            Self::In(constants) => vec![format!("{column} IN ({})", constants.join(", "))],
            Self::Within { low, high } => {
                let low = low.iter().map(|low| format!("{column} >= {low}"));
                low.chain(high.iter().map(|high| format!("{column} <= {high}"))).collect()
            }
            Self::Like(pattern) => vec![format!("{column} LIKE {pattern}")],
            Self::Null => vec![format!("{column} IS NULL")],
        }
    }
}

impl Footprint {
    /// How to find the rows of references that have no constants to be found by, and the places of these references.
    pub(crate) fn lineage(&self, rows: &[Rows], params: Params<'_>) -> Option<(Lineage, Vec<usize>)> {
        let constants: Vec<Constants<'_>> =
            rows.iter().enumerate().map(|(at, rows)| self.constants(at, rows, params)).collect();
        let is_equal = |(_, written): &(&ComparedColumn, Written)| matches!(written, Written::In(_) | Written::Null);
        let equal = |at: usize| {
            !constants[at].is_empty() && constants[at].iter().all(|conjunction| conjunction.iter().any(is_equal))
        };
        let ways = Ways::from(rows, equal, |at| !constants[at].is_empty(), &self.edges);
        let mut parts = Vec::new();
        let mut tables = Vec::new();
        for (place, way) in ways.reached() {
            let reference = &self.references[place];
            tables.extend(way.iter().map(|edge| self.references[edge.from].table.id));
            parts.push(Part {
                table: reference.table.id,
                select: Some(self.select(way, &constants)?),
                column: way.first()?.to_column.clone(),
                terms: match rows[place].as_deref() {
                    Some([terms]) => terms.clone(),
                    _ => Vec::new(),
                },
                columns: reference.columns.clone(),
            });
        }
        tables.sort_unstable();
        tables.dedup();
        (!parts.is_empty()).then_some((Lineage { parts, tables }, ways.reached))
    }

    /// For people: the references whose rows are found so, each with the column and the table that leads to it.
    pub(crate) fn described_lineage(&self, rows: &[Rows]) -> Vec<(usize, String)> {
        // Texts in one case, and those of LIKE, are not among what is written.
        let plain = |at: usize| self.references.get(at).map_or(&[][..], |reference| reference.predicate.conjunctions());
        let is_plain = |at: usize, column: &ComparedColumn| {
            let mut atoms = plain(at).iter().flatten();
            atoms.any(|atom| atom.column == *column && matches!(atom.question, Question::In(_)))
        };
        let equals = |at: usize, term: &Term| {
            !terms::is_open(&term.test) && (!is_mysql_text(&term.column) || is_plain(at, &term.column))
        };
        let equal = |at: usize| rows[at].iter().flatten().flatten().any(|term| equals(at, term));
        let ranged = |term: &Term| match term.test {
            Test::Within { .. } => self.has_limits(&term.column),
            Test::Begins(_) => true,
            _ => false,
        };
        let is_start =
            |at: usize| equal(at) || matches!(rows[at].as_deref(), Some([terms]) if terms.iter().any(ranged));
        let ways = Ways::from(rows, equal, is_start, &self.edges);
        let reached = ways.reached().filter_map(|(place, way)| {
            let Edge { to_column, from, from_column, .. } = way.first()?;
            let table = &self.references[*from].table.name;
            Some((place, format!("{} among the values of {table}.{}", to_column.name, from_column.name)))
        });
        reached.collect()
    }

    /// What the rows of a reference have that matter, written for the server; no conjunction: nothing that can be written.
    fn constants<'f>(&'f self, place: usize, rows: &'f Rows, params: Params<'_>) -> Constants<'f> {
        let Some(reference) = self.references.get(place) else { return Vec::new() };
        let written = |term: &'f Term| match &term.test {
            Test::In(values) if !is_mysql_text(&term.column) => {
                let texts =
                    values.iter().map(|value| written(self.dialect, &term.column, value)).collect::<Option<_>>()?;
                Some((&term.column, Written::In(texts)))
            }
            Test::Within { low, high } if self.has_limits(&term.column) => {
                let low = limit(&term.column, *low, -1);
                let high = limit(&term.column, *high, 1);
                (low.is_some() || high.is_some()).then_some((&term.column, Written::Within { low, high }))
            }
            Test::Null => Some((&term.column, Written::Null)),
            _ => None,
        };
        let (rows, asked) = (rows.as_deref().unwrap_or_default(), reference.predicate.conjunctions());
        // Where one of several could not be bound, the others say nothing.
        let atoms =
            |at: usize| if rows.len() == asked.len() { asked.get(at).map_or(&[][..], Vec::as_slice) } else { &[] };
        let all = rows.iter().enumerate().map(|(at, terms)| {
            let atoms = atoms(at);
            let all: Vec<_> = terms.iter().filter_map(written).chain(self.texts(atoms, params)).collect();
            Some(all).filter(|all| !all.is_empty())
        });
        all.collect::<Option<_>>().unwrap_or_default()
    }

    /// The constants that a reference's own predicate compares with text columns, as they are: in the normal form, if they have
    /// one, those of MySQL may equal fewer texts.
    fn texts<'f>(
        &'f self,
        atoms: &'f [Atom],
        params: Params<'_>,
    ) -> impl Iterator<Item = (&'f ComparedColumn, Written)> {
        let quoted = move |operand: &Operand| {
            let text = mysql::values::plain_text(*operand, params.get(*operand)?.value)?;
            // In another encoding these bytes are another text.
            (params.utf8 || text.is_ascii()).then(|| quoted_text(self.dialect, text)).flatten()
        };
        let pattern = move |atom: &Atom, operand: &Operand| {
            // Only where the tag has its beginning: for others all rows would be read once more.
            self.test(atom, params).filter(terms::finds)?;
            let pattern = if is_mysql_text(&atom.column) {
                quoted(operand)?
            } else {
                let Value::Text(text) = self.value(atom.column.value_type, *operand, params)? else { return None };
                quoted_text(self.dialect, &text)?
            };
            // What a backslash means is for the settings to say.
            (!pattern.contains('\\')).then_some(Written::Like(pattern))
        };
        atoms.iter().filter_map(move |atom| match &atom.question {
            Question::In(operands) if is_mysql_text(&atom.column) => {
                Some((&atom.column, Written::In(operands.iter().map(quoted).collect::<Option<_>>()?)))
            }
            Question::Like(matching) if matching.is_as_written() => {
                Some((&atom.column, pattern(atom, &matching.pattern)?))
            }
            _ => None,
        })
    }

    /// Whether the limits of a range can be written. A TIMESTAMP of MySQL is read in the zone of the session.
    fn has_limits(&self, column: &ComparedColumn) -> bool {
        use ValueType::{Date, Int, Numeric, Timestamp, TimestampTz, Unsigned};
        match column.value_type {
            Int | Unsigned | Numeric | Date | Timestamp => true,
            TimestampTz => !self.dialect.is_mysql_family(),
            _ => false,
        }
    }

    /// The keys to which a way leads, from the key on.
    fn select(&self, way: &[&Edge], constants: &[Constants<'_>]) -> Option<String> {
        let mysql = self.dialect.is_mysql_family();
        let quoted = |name: &str| {
            if mysql { format!("`{}`", name.replace('`', "``")) } else { format!("\"{}\"", name.replace('"', "\"\"")) }
        };
        let mut from = String::new();
        let mut conditions = Vec::new();
        let mut before: Option<&Edge> = None;
        // From the constants on: each edge leads to the table that the next one starts from.
        for (at, edge) in way.iter().rev().enumerate() {
            let table = &self.references.get(edge.from)?.table;
            let name = format!("{}.{} t{at}", quoted(&table.schema), quoted(&table.name));
            match before {
                None => from = name,
                Some(Edge { to_column, from_column, .. }) => {
                    let (to, of) = (quoted(&to_column.name), quoted(&from_column.name));
                    let _ = write!(from, " JOIN {name} ON t{at}.{to} = t{}.{of}", at - 1);
                }
            }
            let all = constants.get(edge.from)?.iter().map(|conjunction| {
                let column = |column: &ComparedColumn| format!("t{at}.{}", quoted(&column.name));
                conjunction
                    .iter()
                    .flat_map(|(of, written)| written.tests(&column(of)))
                    .collect::<Vec<_>>()
                    .join(" AND ")
            });
            let all: Vec<String> = all.collect();
            match all.as_slice() {
                [] => {}
                [only] => conditions.push(only.clone()),
                several => conditions.push(format!("({})", several.join(" OR "))),
            }
            before = Some(edge);
        }
        let key = format!("t{}.{}", way.len() - 1, quoted(&before?.from_column.name));
        // Not as text of the connection: under its collation two keys may be one.
        let key = if mysql { format!("CAST({key} AS BINARY)") } else { format!("{key}::pg_catalog.text") };
        let (conditions, limit) = (conditions.join(" AND "), KEYS_MAX + 1);
        Some(format!("{key} FROM {from} WHERE {conditions} LIMIT {limit}"))
    }
}

fn is_mysql_text(column: &ComparedColumn) -> bool {
    matches!(column.value_type, ValueType::FoldedText | ValueType::ExactText)
}

/// A limit that leaves at least the values that the order key does, if there is one; `outwards` is where the others are.
fn limit(column: &ComparedColumn, key: u64, outwards: i64) -> Option<String> {
    let number = Some((key ^ (1 << 63)).cast_signed()).filter(|number| !matches!(*number, i64::MIN | i64::MAX))?;
    match column.value_type {
        ValueType::Int | ValueType::Unsigned => Some(number.to_string()),
        // Their keys are cut towards zero.
        ValueType::Numeric => Some(number.checked_add(outwards)?.to_string()),
        own => {
            let text = own.moment_text(number)?;
            let same = own.normalise_text(text.as_bytes()) == Some(Value::Moment(number));
            same.then(|| format!("'{text}'"))
        }
    }
}

/// A constant as the server reads it; None: it cannot be written for sure.
fn written(dialect: Dialect, column: &ComparedColumn, value: &Value) -> Option<String> {
    Some(match value {
        Value::Int(number) => number.to_string(),
        Value::Decimal(text) => {
            let (sign, digits) = text.strip_prefix('-').map_or(("", &**text), |digits| ("-", digits));
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let whole = if whole.is_empty() { "0" } else { whole };
            let point = if fraction.is_empty() { "" } else { "." };
            format!("{sign}{whole}{point}{fraction}")
        }
        Value::Bool(value) => value.to_string(),
        Value::Uuid(bits) => format!("'{bits:032x}'"),
        Value::Text(bytes) => quoted_text(dialect, bytes)?,
        // No text is the double for sure.
        Value::Float(_) => return None,
        Value::Moment(micros) => quoted_text(dialect, column.value_type.moment_text(*micros)?.as_bytes())?,
    })
}

/// A string constant, under `standard_conforming_strings`, or without `NO_BACKSLASH_ESCAPES`.
fn quoted_text(dialect: Dialect, bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    let text = text.replace('\'', "''");
    Some(if dialect.is_mysql_family() { format!("'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") })
}

impl Lineage {
    /// One SELECT for the keys of all of these, to be run on a connection to the same server after their fills began. Two
    /// columns: the lineage's and the part's number as `1.0`, and a key, which may be NULL, both as text.
    pub fn sql<'l>(lineages: impl IntoIterator<Item = &'l Self>) -> String {
        let mut sql = String::new();
        for (number, lineage) in lineages.into_iter().enumerate() {
            let parts = lineage.parts.iter().enumerate();
            for (part, select) in parts.filter_map(|(part, Part { select, .. })| Some((part, select.as_ref()?))) {
                let and = if sql.is_empty() { "" } else { " UNION ALL " };
                let _ = write!(sql, "{and}(SELECT DISTINCT '{number}.{part}', {select})");
            }
        }
        sql
    }

    /// Asks for no keys of other tables than these: of those any row will matter. False if nothing is left to ask for.
    pub fn ask_only_of(&mut self, mut is_wanted: impl FnMut(TableId) -> bool) -> bool {
        for part in &mut self.parts {
            part.select.take_if(|_| !is_wanted(part.table));
        }
        self.parts.iter().any(|part| part.select.is_some())
    }

    /// Tables of which any row will matter because their keys are not asked for.
    pub fn left_out(&self) -> usize {
        self.parts.iter().filter(|part| part.select.is_none() && part.terms.is_empty()).count()
    }

    /// Bytes of its part of the query.
    pub fn sql_bytes(&self) -> usize {
        self.parts.iter().filter_map(|part| Some(part.select.as_ref()?.len())).sum()
    }

    /// The tables that it reads, sorted and distinct.
    pub fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// The tags that its answer tells. Without an answer, or where there are too many keys or one without a normal form, any
    /// row matters.
    pub fn late_tags(&self, rows: Option<&[Key]>) -> Vec<Tag> {
        let parts = self.parts.iter().enumerate();
        let keys = |number, part: &Part| part.select.as_ref().and(rows).and_then(|rows| part.keys(number, rows));
        parts.filter_map(|(number, part)| part.tag(keys(number, part))).collect()
    }
}

impl Part {
    /// Its keys; None: too many, or one that has no normal form.
    fn keys(&self, number: usize, rows: &[Key]) -> Option<Vec<Value>> {
        // NULL equals nothing.
        let texts = rows.iter().filter(|(part, _)| *part == number).filter_map(|(_, key)| key.as_deref());
        let form = |text| match self.column.value_type {
            // The other column may be of another type of number.
            ValueType::Int | ValueType::Unsigned | ValueType::Numeric => ValueType::Numeric.normalise_text(text),
            own => own.normalise_text(text),
        };
        let mut keys: Vec<Value> = texts.map(form).collect::<Option<_>>()?;
        keys.sort_unstable();
        keys.dedup();
        (keys.len() <= KEYS_MAX).then_some(keys)
    }

    /// No key: no row of its table matters.
    fn tag(&self, keys: Option<Vec<Value>>) -> Option<Tag> {
        let mut terms = self.terms.clone();
        match keys {
            Some(keys) if keys.is_empty() => return None,
            Some(keys) => terms.push(Term { column: self.column.clone(), test: Test::In(keys.into()) }),
            None => {}
        }
        terms.sort_by(|a, b| a.column.cmp(&b.column));
        let rows = if terms.is_empty() { RowSet::Any } else { RowSet::Where(terms.into()) };
        Some(Tag { table: self.table, rows, columns: self.columns.clone() })
    }
}
