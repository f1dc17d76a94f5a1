//! Predicates of one execution: constants in the places of parameters.
//!
//! A test becomes part of a tag only if its constants have normal forms, and if a comparison in the database implies the same comparison of the
//! normal forms, with the type that the server gives to each parameter. Other tests are left out: fewer tests mean more rows, which is always sound.
//! Then constants are propagated along equalities between columns (see `analyze/mod.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use freshet_types::{Term, Test, Value, ValueType};

use crate::allowlist::types::oid;
use crate::analysis::{Edge, ReadSet, ReferenceColumn};
use crate::lex::literal::{Literal, LiteralKind};
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::forms::{Form, keeps_value, near_form, normal_form};
use crate::predicate::key_types::is_whole;
use crate::predicate::parameters::{Parameter, ParameterValue, Params};
use crate::predicate::{Atom, Limit, Operand, Predicate, UnboundTest, arrays, mysql_values};

/// Limit of values in one test.
const VALUES_MAX: usize = 1_000;

/// Limit of rounds of propagation.
const ROUNDS_MAX: usize = 8;

/// Farther from UTC than any zone of a MySQL session, in microseconds. MySQL takes offsets up to 14 hours, zones of a table, and the system's `TZ`,
/// which ends at 25 hours.
const ZONE_REACH_MYSQL: i64 = 2 * 86_400_000_000;

/// The rows of one reference that matter: a disjunction of conjunctions, each with a term. An empty disjunction means no row, None means any row.
pub(crate) type Rows = Option<Vec<Vec<Term>>>;

/// The rows of a reference that satisfy a predicate, with the tests that `term` returns.
pub(crate) fn rows(predicate: &Predicate, term: impl Fn(&Atom) -> Option<Test>) -> Rows {
    let conjunction = |atoms: &Vec<Atom>| {
        let mut terms: Vec<Term> = Vec::with_capacity(atoms.len());
        for atom in atoms {
            let Some(mut test) = term(atom) else { continue };
            // Of several tests that an index supports, one is enough.
            let finds_too = |known: &Term| known.column == atom.column && finds(&known.test);
            if finds(&test)
                && let Some(at) = terms.iter().position(finds_too)
            {
                test = both(terms.remove(at).test, test);
            }
            let term = Term { column: atom.column.clone(), test };
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
        terms.sort_by(|a, b| a.column.cmp(&b.column));
        Some(terms).filter(|terms| !terms.is_empty())
    };
    predicate.conjunctions().iter().map(conjunction).collect()
}

/// A test that follows from both tests of a column.
pub(crate) fn both(known: Test, more: Test) -> Test {
    match (known, more) {
        (Test::Within { low: a, high: b }, Test::Within { low: c, high: d }) if a.max(c) <= b.min(d) => {
            Test::Within { low: a.max(c), high: b.min(d) }
        }
        (known, more) if is_open(&known) => more,
        (known, _) => known,
    }
}

/// Whether it does not list the values.
pub(crate) fn is_open(test: &Test) -> bool {
    !matches!(test, Test::In(_) | Test::Null)
}

/// Whether a conjunction lists the values of each of these columns.
pub(crate) fn is_point<'n>(mut columns: impl Iterator<Item = &'n Arc<str>>, terms: &[Term]) -> bool {
    let is = |name: &Arc<str>, term: &Term| term.column.name == *name && matches!(term.test, Test::In(_));
    columns.all(|name| terms.iter().any(|term| is(name, term)))
}

/// Whether an index finds the rows that pass; otherwise each row must be tested.
pub(crate) fn finds(test: &Test) -> bool {
    !matches!(test, Test::NotNull | Test::Not(_) | Test::Like(_) | Test::OrNull(_) | Test::Row(_))
}

/// Propagates lists of values along the edges.
pub(crate) fn travel(references: &mut [Rows], edges: &[Edge]) {
    for _ in 0..ROUNDS_MAX {
        let mut changed = false;
        for Edge { to, to_column, from, by_keys } in edges {
            let never = from.iter().all(|key_column| references.get(key_column.place).is_some_and(is_never));
            if let Some(rows) = references.get_mut(*to).filter(|rows| never && !is_never(rows)) {
                *rows = Some(Vec::new());
                changed = true;
            }
            if *by_keys || never {
                continue;
            }
            let Some(values) = values_of(references, from) else { continue };
            let Some(rows) = references.get_mut(*to) else { continue };
            let term = Term { column: to_column.clone(), test: Test::In(values) };
            for conjunction in rows.get_or_insert_with(|| vec![Vec::new()]) {
                if conjunction.iter().any(|known| known.column == *to_column && matches!(known.test, Test::In(_))) {
                    continue;
                }
                conjunction.retain(|known| known.column != *to_column);
                conjunction.push(term.clone());
                conjunction.sort_unstable_by(|a, b| a.column.cmp(&b.column));
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
}

/// The values that these columns may have in the rows that matter, if all of them are known.
fn values_of(references: &[Rows], columns: &[ReferenceColumn]) -> Option<Box<[Value]>> {
    let mut values = Vec::new();
    for ReferenceColumn { place, column } in columns {
        for conjunction in references.get(*place)?.as_ref()? {
            let mut of_column = conjunction.iter().filter(|term| term.column == *column);
            values.extend_from_slice(of_column.find_map(|term| match &term.test {
                Test::In(list) => Some(list),
                _ => None,
            })?);
        }
    }
    list(values)
}

/// Sorted and distinct; None if the list is empty or too long.
pub(crate) fn list(mut values: Vec<Value>) -> Option<Box<[Value]>> {
    values.sort_unstable();
    values.dedup();
    (1..=VALUES_MAX).contains(&values.len()).then(|| values.into())
}

impl ReadSet {
    /// The rows of each reference that matter to this execution.
    pub(crate) fn rows(&self, params: Params<'_>) -> Vec<Rows> {
        let bound = self.references.iter().map(|reference| rows(&reference.predicate, |atom| self.test(atom, params)));
        let mut bound: Vec<Rows> = bound.collect();
        travel(&mut bound, &self.edges);
        bound
    }

    pub(crate) fn test(&self, atom: &Atom, params: Params<'_>) -> Option<Test> {
        let column = atom.column.value_type;
        let rounded = |test: &Test| match test {
            Test::In(values) => {
                // Over equal columns it may reach a column of a derived table, wherever the test is.
                let number = matches!(column, ValueType::Int | ValueType::Unsigned);
                let whole = values.iter().all(|value| match value {
                    Value::Decimal(text) => text.split_once('.').is_none_or(|(_, fraction)| fraction.is_empty()),
                    value => matches!(value, Value::Int(_)),
                });
                (number && !whole) || (atom.through && !is_whole(column))
            }
            // A date that depends on the time zone.
            Test::Within { .. } => atom.through && matches!(atom.unbound, UnboundTest::In(_)),
            _ => false,
        };
        // A view's definition may print a float rounded.
        let in_view = || atom.unbound.operands().iter().any(|operand| operand.parameter > VIEWS_BASE);
        if matches!(column, ValueType::Float4 | ValueType::Float8) && in_view() {
            return None;
        }
        self.plain_test(atom, params).filter(|test| !self.dialect.is_mysql_family() || !rounded(test))
    }

    fn plain_test(&self, atom: &Atom, params: Params<'_>) -> Option<Test> {
        let column = atom.column.value_type;
        match &atom.unbound {
            UnboundTest::In(operands) => match (self.values(column, operands, params), &**operands) {
                (Some(values), _) => list(values).map(Test::In),
                (None, operands) if column.is_date() => self.around(column, operands, params),
                (None, [operand]) => begins(self.beginning(column, *operand, params)?),
                (None, _) => None,
            },
            UnboundTest::Any(operand) => list(self.array(column, *operand, params)?).map(Test::In),
            UnboundTest::Null => Some(Test::Null),
            UnboundTest::NotNull => Some(Test::NotNull),
            UnboundTest::OfText(_) => None,
            UnboundTest::Row(row_filter) => self.row_test(row_filter, Some(params)),
            UnboundTest::OrNull(unbound) => {
                let atom = Atom { unbound: (**unbound).clone(), ..atom.clone() };
                match self.test(&atom, params)? {
                    // Every row passes.
                    Test::NotNull => None,
                    test => Some(Test::OrNull(test.into())),
                }
            }
            UnboundTest::Not(unbound) => Some(self.others(column, unbound, params)),
            UnboundTest::Folded(folding) => Some(self.folded(column, &folding.operands(), params)),
            UnboundTest::Is(value) => Some(Test::In([Value::Bool(*value)].into())),
            UnboundTest::Range { low, high, beside } => self.range(column, (*low, *high), *beside, params),
            UnboundTest::Span(span) => {
                let mysql = self.dialect.is_mysql_family();
                span.test(column, if mysql { ZONE_REACH_MYSQL } else { params.zone_reach() })
            }
            UnboundTest::Like(matching) => Some(self.like(column, matching, params)),
        }
    }

    /// All values except those that certainly equal one of these constants.
    fn others(&self, column: ValueType, equal: &UnboundTest, params: Params<'_>) -> Test {
        use ValueType::{Bool, Date, Enum, Int, Numeric, OrderedText, Text, Timestamp, TimestampTz, Unsigned, Uuid};
        let mysql = self.dialect.is_mysql_family();
        let values = match equal {
            UnboundTest::In(operands) => match column {
                Text if mysql => operands.iter().map(|operand| same_text(*operand, params)).collect(),
                // MySQL does not truncate a time of day where it compares dates, and PostgreSQL does not if another value of the list has one. MySQL
                // may also compare several values as texts.
                Date | Timestamp if mysql || operands.len() > 1 => {
                    let values = self.values(column, operands, params);
                    let uncut = self.values(Timestamp, operands, params) == values;
                    values.filter(|_| uncut && (operands.len() == 1 || !mysql))
                }
                _ => self.values(column, operands, params),
            },
            UnboundTest::Any(operand) => self.array(column, *operand, params),
            _ => None,
        };
        let exact = matches!(column, Bool | Date | Enum | Int | Numeric | OrderedText | Text | Timestamp)
            || matches!(column, TimestampTz | Unsigned | Uuid);
        values.filter(|_| exact).and_then(list).map_or(Test::NotNull, Test::Not)
    }

    /// The values of constants that the server may compare together, without NULLs.
    pub(crate) fn values(&self, column: ValueType, operands: &[Operand], params: Params<'_>) -> Option<Vec<Value>> {
        let is_null =
            |operand: &&Operand| params.get(**operand).is_some_and(|param| matches!(param.value, ParameterValue::Null));
        // In its final size, since it becomes a part of a tag.
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands.iter().filter(|operand| !is_null(operand)) {
            values.push(self.value(column, *operand, params)?);
        }
        if values.len() < 2 {
            return Some(values);
        }
        let operands: Vec<Operand> = operands.iter().filter(|operand| !is_null(operand)).copied().collect();
        let together = if self.dialect.is_mysql_family() {
            let text = |operand: &Operand| params.get(*operand).is_some_and(|param| mysql_values::is_text(param.value));
            mysql_values::exact_together(column, &values, operands.iter().any(text))
        } else {
            let any = |is: fn(Operand, &Parameter<'_>) -> bool| {
                operands.iter().any(|operand| params.get(*operand).is_some_and(|param| is(*operand, &param)))
            };
            // A list gets the type `float4` if the column has it.
            let alike = column != ValueType::Float4 || values.iter().all(Value::is_single);
            // An ARRAY gets the type of some of its elements.
            let type_of = |operand: &Operand| operand.cast.or_else(|| params.get(*operand).as_ref().and_then(declared));
            let of_type = operands.iter().map(type_of).is_sorted_by(|one, two| one == two);
            let floats = matches!(column, ValueType::Float4 | ValueType::Float8);
            alike && (of_type || !(floats || column.is_date())) && !(any(is_untyped_binary) && any(is_decimal))
        };
        together.then_some(values)
    }

    fn range(
        &self,
        column: ValueType,
        (low, high): (Option<Limit>, Option<Limit>),
        beside: Option<Operand>,
        params: Params<'_>,
    ) -> Option<Test> {
        // A limit that is NULL or has no normal form gives no bound. MySQL, however, compares both limits together.
        if self.dialect.is_mysql_family() {
            let operands = low.iter().chain(&high).map(|limit| limit.operand);
            let operands: Vec<Operand> = operands.chain(beside).collect();
            let near = || operands.iter().all(|operand| self.near(column, *operand, params).is_some());
            if self.values(column, &operands, params).is_none() && !near() {
                return None;
            }
        }
        let low = low.and_then(|limit| self.limit(column, limit, params)).map(|(low, _)| low);
        let high = high.and_then(|limit| self.limit(column, limit, params)).map(|(_, high)| high);
        match (low, high) {
            (None, None) => None,
            (low, high) => Some((low.unwrap_or(0), high.unwrap_or(u64::MAX)))
                .filter(|(low, high)| low <= high)
                .map(|(low, high)| Test::Within { low, high }),
        }
    }

    /// The order keys above a lower limit begin with the first of these; those below an upper limit end with the second.
    fn limit(&self, column: ValueType, limit: Limit, params: Params<'_>) -> Option<(u64, u64)> {
        let Some(value) = self.values(column, &[limit.operand], params) else {
            return self.near(column, limit.operand, params);
        };
        let value = value.first()?;
        let integers = matches!(column, ValueType::Int | ValueType::Unsigned);
        let exclusive = u64::from(integers && !limit.included && matches!(value, Value::Int(_)));
        let key = value.order_key();
        Some((key.saturating_add(exclusive), key.saturating_sub(exclusive)))
    }

    /// The range that contains all of these dates, some of which are not known exactly.
    fn around(&self, column: ValueType, operands: &[Operand], params: Params<'_>) -> Option<Test> {
        let is_null =
            |operand: &&Operand| params.get(**operand).is_some_and(|param| matches!(param.value, ParameterValue::Null));
        let of_one = |operand: &Operand| {
            // With timestamps in the list, the time zone affects the dates without an offset, too.
            let value = self.value(column, *operand, params).filter(|_| column == ValueType::TimestampTz);
            value.map(|value| (value.order_key(), value.order_key())).or_else(|| self.near(column, *operand, params))
        };
        let ranges = operands.iter().filter(|operand| !is_null(operand)).map(of_one).collect::<Option<Vec<_>>>()?;
        let (low, high) = (ranges.iter().map(|(low, _)| *low).min()?, ranges.iter().map(|(_, high)| *high).max()?);
        Some(Test::Within { low, high })
    }

    /// The range of order keys of a timestamp that depends on the session's time zone: a date without an offset that is compared with a timestamp, or
    /// the other way round.
    fn near(&self, column: ValueType, operand: Operand, params: Params<'_>) -> Option<(u64, u64)> {
        let param = params.get(operand)?;
        let mysql = self.dialect.is_mysql_family();
        let (moment, reach) = if mysql {
            (mysql_values::moment(column, operand, param.value), ZONE_REACH_MYSQL)
        } else {
            (self.read(column, operand, &param, near_form), params.zone_reach())
        };
        let Value::Moment(micros) = moment? else { return None };
        let key = |micros| Value::Moment(micros).order_key();
        Some((key(micros.saturating_sub(reach)), key(micros.saturating_add(reach))))
    }

    pub(crate) fn value(&self, column: ValueType, operand: Operand, params: Params<'_>) -> Option<Value> {
        let param = params.get(operand)?;
        if column == ValueType::Bytes {
            return column.normalise_text(&mysql_values::bytes(operand, param.value, params)?);
        }
        let value = if self.dialect.is_mysql_family() {
            mysql_values::normal_form(column, operand, param.value)
        } else {
            let in_zone = || self.read(column, operand, &param, near_form).filter(|_| params.client.utc);
            self.read(column, operand, &param, normal_form).or_else(in_zone)
        };
        converted(column, value?).filter(|value| params.readable(value))
    }

    /// A constant of PostgreSQL in the form of its type.
    fn read(&self, column: ValueType, operand: Operand, param: &Parameter<'_>, form: Form) -> Option<Value> {
        if let ParameterValue::Literal(literal) = param.value {
            return literal_value(column, operand, literal, form);
        }
        let form = self.form(column, operand, declared(param), form)?;
        match param.value {
            ParameterValue::Text(text) => form.normalise_text(text),
            ParameterValue::Binary(bytes) => form.normalise_binary(bytes),
            _ => None,
        }
    }

    /// The beginning of a text of MySQL that has no normal form.
    fn beginning(&self, column: ValueType, operand: Operand, params: Params<'_>) -> Option<Box<[u8]>> {
        let param = params.get(operand).filter(|_| self.dialect.is_mysql_family())?;
        mysql_values::beginning(column, operand, param.value)
    }

    /// The elements of a PostgreSQL array.
    fn array(&self, column: ValueType, operand: Operand, params: Params<'_>) -> Option<Vec<Value>> {
        let param = params.get(operand).filter(|_| !self.dialect.is_mysql_family())?;
        let values = match param.value {
            ParameterValue::Literal(Literal { kind: LiteralKind::String, text }) => {
                arrays::of_text(text, normal_form(column, operand.cast)?)
            }
            ParameterValue::Text(_) | ParameterValue::Binary(_) => {
                let element = match declared(&param) {
                    Some(array) => Some(arrays::element_type(array)?),
                    None => None,
                };
                let form = self.form(column, operand, element, normal_form)?;
                match param.value {
                    ParameterValue::Text(text) => arrays::of_text(text, form),
                    ParameterValue::Binary(bytes) => arrays::of_binary(bytes, form),
                    _ => None,
                }
            }
            _ => None,
        };
        let values = values?.into_iter().map(|value| converted(column, value)).collect::<Option<Vec<_>>>();
        values.filter(|values| values.iter().all(|value| params.readable(value)))
    }

    /// The form in which a parameter of PostgreSQL is read, with a declared type or without: `form` gives it for the type.
    fn form(&self, column: ValueType, operand: Operand, declared: Option<u32>, form: Form) -> Option<ValueType> {
        if operand.negated {
            // `- $1` without a declared type is a float.
            return None;
        }
        // Without a declared type the first use determines the parameter's type.
        let usage = self.usages.get(&operand.parameter)?;
        if declared.is_none() && usage.count > 1 && usage.equal_to != Some(column) {
            return None;
        }
        let parameter_type = match (declared, operand.cast) {
            (None, cast) => cast,
            (declared, None) => declared,
            (Some(declared), Some(cast)) if keeps_value(declared, cast) => Some(cast),
            _ => return None,
        };
        form(column, parameter_type)
    }
}

/// A constant of MySQL that equals a text column with the same characters under each collation.
fn same_text(operand: Operand, params: Params<'_>) -> Option<Value> {
    let text = mysql_values::plain_text(operand, params.get(operand)?.value)?;
    text.iter().all(|byte| matches!(byte, b' '..=b'~')).then(|| Value::Text(text.into()))
}

fn begins(beginning: Box<[u8]>) -> Option<Test> {
    (!beginning.is_empty()).then_some(Test::Begins(beginning))
}

fn declared(param: &Parameter<'_>) -> Option<u32> {
    Some(param.declared_type).filter(|declared| !matches!(*declared, 0 | oid::UNKNOWN))
}

/// Among decimals such a parameter may be a decimal: in binary format its bytes may also be another value.
fn is_untyped_binary(operand: Operand, param: &Parameter<'_>) -> bool {
    matches!(param.value, ParameterValue::Binary(_)) && declared(param).is_none() && operand.cast.is_none()
}

fn is_decimal(operand: Operand, param: &Parameter<'_>) -> bool {
    match param.value {
        ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => {
            !text.iter().all(u8::is_ascii_digit) || text.len() > 18
        }
        _ => declared(param).or(operand.cast) == Some(oid::NUMERIC) || operand.cast == Some(oid::NUMERIC),
    }
}

/// A constant in the type in which the server compares it with a column: floats are compared with all numbers as doubles.
fn converted(column: ValueType, value: Value) -> Option<Value> {
    if matches!(column, ValueType::Float4 | ValueType::Float8) { value.to_float() } else { Some(value) }
}

fn literal_value(column: ValueType, operand: Operand, literal: &Literal, form: Form) -> Option<Value> {
    let signed = || match &*literal.text {
        text if operand.negated => Cow::Owned([b"-", text].concat()),
        text => Cow::Borrowed(text),
    };
    match literal.kind {
        // A number is an integer or a numeric; a cast may round it.
        LiteralKind::Number if matches!(column, ValueType::Int | ValueType::Numeric) && operand.cast.is_none() => {
            ValueType::Numeric.normalise_text(&signed())
        }
        LiteralKind::Number if matches!(column, ValueType::Float4 | ValueType::Float8) && operand.cast.is_none() => {
            ValueType::Float8.normalise_text(&signed())
        }
        LiteralKind::String if !operand.negated => form(column, operand.cast)?.normalise_text(&literal.text),
        _ => None,
    }
}

/// Whether no row matters, in any state of the database.
pub(crate) fn is_never(rows: &Rows) -> bool {
    rows.as_ref().is_some_and(Vec::is_empty)
}
