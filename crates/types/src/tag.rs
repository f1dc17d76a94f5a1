//! Tags: what a cached result depends on.
//!
//! A tag is a predicate T for one table reference of a query. As long as the rows that satisfy T stay unchanged, the
//! result stays unchanged. A row change hits the tag if the old or the new row satisfies T, unless both agree in all
//! columns that the query mentions. [`RowSet::Any`] always suffices: a more precise tag never affects correctness.

use std::sync::Arc;

use crate::{Cell, Change, Formula, Pattern, Relation, TableId, Value, ValueType};

/// The rows of one table that a result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The table.
    pub table: TableId,
    /// The rows.
    pub rows: RowSet,
    /// The columns of these rows.
    pub columns: Columns,
}

/// A predicate over the rows of one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowSet {
    /// Any row.
    Any,
    /// No rows, only the definition: a view's text, a parent's children, the content of a materialised view at its
    /// last REFRESH. The stream has its rows under other relations or not at all, so the relation need not be
    /// published.
    Definition,
    /// Rows that deferred tags name when the fill ends. This tag itself is hit only by changes of the whole table.
    Later,
    /// Rows that satisfy all these terms; at least one term, sorted by column.
    Where(Box<[Term]>),
    /// Rows that enter the set by an insert or an update, judged by the new row alone. Without terms: all rows. A row
    /// that leaves the set does not matter, or another tag names it. Old row images may lack the columns of the
    /// terms.
    Enters(Box<[Term]>),
}

/// The columns that a query mentions of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Columns {
    /// All columns, or the columns are unknown.
    All,
    /// These columns, sorted, each name once.
    Only(Arc<[Arc<str>]>),
}

/// Rows of a table that tags name by their values in some columns. Each tag tests these columns against lists. Rows
/// may enter and leave; tags on entering rows ([`RowSet::Enters`]) accompany them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRows {
    /// The table.
    pub table: TableId,
    /// The columns that name them, sorted.
    pub key: Box<[ComparedColumn]>,
    /// The columns of these rows that matter.
    pub columns: Columns,
}

/// A test of one column of a row. NULL passes [`Test::Null`], [`Test::OrNull`] and [`Test::Row`] only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The column.
    pub column: ComparedColumn,
    /// The test of its value.
    pub test: Test,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// It equals one of these: at least one, sorted, distinct.
    In(Box<[Value]>),
    /// It is NULL.
    Null,
    /// Its [`Value::order_key`] is within these bounds, both included. No value is if `low` is above `high`.
    Within {
        /// Lower bound.
        low: u64,
        /// Upper bound.
        high: u64,
    },
    /// It is a text, and its normal form begins with this.
    Begins(Box<[u8]>),
    /// It is not NULL.
    NotNull,
    /// It is not NULL, and not known to equal one of these values. They are sorted and distinct, in a form in which
    /// equality here implies equality in the database.
    Not(Box<[Value]>),
    /// It is a text that passes the pattern.
    Like(Box<Pattern>),
    /// It is NULL, or passes this test.
    OrNull(Box<Test>),
    /// It is one of the columns of a condition that may be true of the row.
    Row(Arc<RowTest>),
}

/// A condition on a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowTest {
    /// The condition.
    pub condition: Formula,
    /// The columns of the condition.
    pub columns: Box<[Arc<str>]>,
}

/// A column that a predicate compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComparedColumn {
    /// Its name, in the catalogue's spelling.
    pub name: Arc<str>,
    /// How its values compare.
    pub value_type: ValueType,
}

/// What a row image shows of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Image {
    /// NULL.
    Null,
    /// This value.
    Value(Value),
    /// A text without a normal form: it equals only texts whose normal form begins with this.
    Begins(Box<[u8]>),
    /// Unknown: the image lacks it, or it has no normal form. It passes every test.
    Unknown,
}

impl NamedRows {
    /// The key values of the rows that these changes make enter, by one of the tags. None if they are unknown for
    /// some row.
    pub fn coming(&self, tags: &[Tag], changes: &[Change]) -> Option<Vec<Vec<Value>>> {
        let enters = |tag: &Tag, change: &Change| matches!(tag.rows, RowSet::Enters(_)) && tag.may_be_hit(change);
        let comes = |change: &&Change| change.table() == self.table && tags.iter().any(|tag| enters(tag, change));
        let key = |change: &Change| self.key.iter().map(|column| column.value_behind(change)).collect();
        changes.iter().filter(comes).map(key).collect()
    }

    /// Names another row. False if a list would exceed `values_max` values.
    pub fn add(&self, tags: &mut Vec<Tag>, values: Vec<Value>, values_max: usize) -> bool {
        let list = |term: &Term| matches!(term.test, Test::In(_));
        let is_own =
            |terms: &[Term]| terms.iter().all(list) && terms.iter().map(|term| &term.column).eq(self.key.iter());
        let own = tags.iter_mut().find_map(|tag| match &mut tag.rows {
            RowSet::Where(terms) if tag.table == self.table && is_own(terms) => Some(terms),
            _ => None,
        });
        let Some(terms) = own else {
            let term = |(column, value): (&ComparedColumn, Value)| Term {
                column: column.clone(),
                test: Test::In([value].into()),
            };
            let terms = self.key.iter().zip(values).map(term).collect();
            tags.push(Tag { table: self.table, rows: RowSet::Where(terms), columns: self.columns.clone() });
            return true;
        };
        for (term, value) in terms.iter_mut().zip(values) {
            let Test::In(known) = &mut term.test else { return false };
            if let Err(at) = known.binary_search(&value) {
                let mut all = std::mem::take(known).into_vec();
                all.insert(at, value);
                *known = all.into();
            }
            if known.len() > values_max {
                return false;
            }
        }
        true
    }
}

impl Tag {
    /// Whether the change may hit one of its rows in one of its columns.
    pub fn may_be_hit(&self, change: &Change) -> bool {
        let untouched = |change: &Change| match change {
            Change::Update { relation, old, new } => self.columns.unchanged(relation, old, new),
            _ => false,
        };
        self.may_name_row_of(&mut Images::of(change)) && !untouched(change)
    }

    /// Whether the change may hit one of its rows, in whatever columns.
    pub fn may_name_row_of(&self, images: &mut Images<'_>) -> bool {
        let change = images.change;
        if self.table != change.table() {
            return false;
        }
        let terms: &[Term] = match &self.rows {
            RowSet::Any => &[],
            RowSet::Definition | RowSet::Later => return change.is_whole(),
            RowSet::Where(terms) | RowSet::Enters(terms) => terms,
        };
        let by_old = !matches!(self.rows, RowSet::Enters(_));
        let mut may = |relation: &Relation, row: Side<'_>| {
            terms.iter().all(|term| term.may_hold_by(relation, row, &mut images.known))
        };
        match change {
            Change::AnyRow(_) | Change::Redefined { .. } => true,
            Change::Insert { relation, new } => may(relation, Side { cells: new, is_second: false }),
            Change::Delete { relation, old } => by_old && may(relation, Side { cells: old, is_second: false }),
            Change::Update { relation, old, new } => {
                (by_old && may(relation, Side { cells: old, is_second: false }))
                    || may(relation, Side { cells: new, is_second: true })
            }
        }
    }

    /// An allowance for one more value of an IN list: the value, and its place in the index.
    const VALUE_BYTES: usize = 112;
    /// An allowance for one more term.
    const TERM_BYTES: usize = 64;
    /// An allowance for the place of a range in the index.
    const RANGE_BYTES: usize = 240;

    /// About how many bytes it takes beyond a tag that compares one column with one short value.
    pub fn extra_bytes(&self) -> usize {
        let (RowSet::Where(terms) | RowSet::Enters(terms)) = &self.rows else { return 0 };
        terms.len().saturating_sub(1) * Self::TERM_BYTES + terms.iter().map(|term| term.test.bytes()).sum::<usize>()
    }
}

impl Test {
    /// The same for one test.
    fn bytes(&self) -> usize {
        match self {
            Self::In(values) => {
                values.len().saturating_sub(1) * Tag::VALUE_BYTES + values.iter().map(heap).sum::<usize>()
            }
            Self::Null | Self::NotNull => 0,
            Self::Not(values) => size_of_val(&**values) + values.iter().map(heap).sum::<usize>(),
            Self::Like(pattern) => size_of::<Pattern>() + size_of_val(&*pattern.pieces),
            Self::OrNull(test) => size_of::<Self>() + test.bytes(),
            Self::Row(test) => size_of::<RowTest>() + test.condition.bytes() + size_of_val(&*test.columns),
            Self::Within { .. } => Tag::RANGE_BYTES,
            Self::Begins(beginning) => Tag::RANGE_BYTES + beginning.len(),
        }
    }
}

/// The bytes that a value owns on the heap.
fn heap(value: &Value) -> usize {
    match value {
        Value::Decimal(text) => text.len(),
        Value::Text(bytes) => bytes.len(),
        Value::Int(_) | Value::Bool(_) | Value::Uuid(_) | Value::Moment(_) | Value::Float(_) => 0,
    }
}

impl ComparedColumn {
    /// The value of the column in the new row of a change. None if it is unknown or has no normal form; NULL has
    /// none.
    fn value_behind(&self, change: &Change) -> Option<Value> {
        let (relation, new, old) = match change {
            Change::Insert { relation, new } => (relation, new, None),
            Change::Update { relation, old, new } => (relation, new, Some(old)),
            Change::Delete { .. } | Change::AnyRow(_) | Change::Redefined { .. } => return None,
        };
        let cell = |row: &[Cell]| relation.position(&self.name).and_then(|at| row.get(at)).cloned();
        let before = old.filter(|_| matches!(cell(new), Some(Cell::Unchanged)));
        match self.image(relation, before.unwrap_or(new)) {
            Image::Value(value) => Some(value),
            Image::Null | Image::Begins(_) | Image::Unknown => None,
        }
    }

    /// What the row shows of the column.
    pub fn image(&self, relation: &Relation, row: &[Cell]) -> Image {
        match relation.position(&self.name).and_then(|at| row.get(at)) {
            None | Some(Cell::Absent | Cell::Unchanged) => Image::Unknown,
            Some(Cell::Null) => Image::Null,
            Some(Cell::Text(text)) => match self.value_type.normalise_text(text) {
                Some(value) => Image::Value(value),
                None => self.value_type.beginning(text).map_or(Image::Unknown, Image::Begins),
            },
        }
    }
}

/// A change, with cached evaluations of its row images.
#[derive(Debug)]
pub struct Images<'c> {
    change: &'c Change,
    known: Vec<(ComparedColumn, bool, Image)>,
}

/// A row image of a change.
#[derive(Clone, Copy)]
struct Side<'c> {
    cells: &'c [Cell],
    /// The new image of an update.
    is_second: bool,
}

impl<'c> Images<'c> {
    /// The images of this change.
    pub fn of(change: &'c Change) -> Self {
        Self { change, known: Vec::new() }
    }
}

impl Term {
    /// Whether the row may satisfy the condition.
    pub fn may_hold(&self, relation: &Relation, row: &[Cell]) -> bool {
        self.may_hold_by(relation, Side { cells: row, is_second: false }, &mut Vec::new())
    }

    fn may_hold_by(&self, relation: &Relation, row: Side<'_>, known: &mut Vec<(ComparedColumn, bool, Image)>) -> bool {
        let (test, or_null) = match &self.test {
            Test::OrNull(test) => (&**test, true),
            test => (test, false),
        };
        // A value without a normal form is not NULL, and has a text.
        if or_null || matches!(test, Test::Null | Test::NotNull | Test::Like(_)) {
            let cell = relation.position(&self.column.name).and_then(|at| row.cells.get(at));
            match (cell, test) {
                (None | Some(Cell::Absent | Cell::Unchanged), _) | (Some(Cell::Text(_)), Test::NotNull) => return true,
                (Some(Cell::Null), _) => return or_null || *test == Test::Null,
                (Some(Cell::Text(_)), Test::Null) => return false,
                (Some(Cell::Text(text)), Test::Like(pattern)) => return pattern.may_pass(text),
                _ => {}
            }
        }
        if let Test::Row(test) = test {
            return test.condition.may_hold(relation, row.cells);
        }
        let is_it =
            |(column, second, _): &(ComparedColumn, bool, _)| *second == row.is_second && *column == self.column;
        let at = known.iter().position(is_it).unwrap_or_else(|| {
            known.push((self.column.clone(), row.is_second, self.column.image(relation, row.cells)));
            known.len() - 1
        });
        known.get(at).is_none_or(|(.., image)| test.may_pass(image))
    }
}

impl Test {
    /// Whether NULL may pass.
    pub fn may_pass_null(&self) -> bool {
        matches!(self, Self::Null | Self::OrNull(_) | Self::Row(_))
    }

    /// Whether a value with this image may pass.
    fn may_pass(&self, image: &Image) -> bool {
        match (self, image) {
            (Self::Null, _) => matches!(image, Image::Null | Image::Unknown),
            (Self::Row(_), _) => true,
            (_, Image::Null) => false,
            (Self::Within { low, high }, Image::Unknown) => low <= high,
            // Most of these tests need no normal form.
            (_, Image::Unknown)
            | (Self::NotNull | Self::Like(_) | Self::OrNull(_), _)
            | (Self::Not(_), Image::Begins(_)) => true,
            (Self::Not(values), Image::Value(value)) => values.binary_search(value).is_err(),
            (Self::In(values), Image::Value(value)) => values.binary_search(value).is_ok(),
            (Self::In(values), Image::Begins(text)) => {
                values.iter().any(|value| matches!(value, Value::Text(other) if other.starts_with(text)))
            }
            (Self::Within { low, high }, Image::Value(value)) => (*low..=*high).contains(&value.order_key()),
            (Self::Within { low, high }, Image::Begins(text)) => {
                let (first, last) = Value::order_keys_from(text);
                low <= high && first <= *high && last >= *low
            }
            (Self::Begins(beginning), Image::Value(value)) => {
                matches!(value, Value::Text(text) if text.starts_with(beginning))
            }
            (Self::Begins(beginning), Image::Begins(text)) => {
                text.starts_with(beginning) || beginning.starts_with(text)
            }
        }
    }
}

impl Columns {
    /// Whether the two images of a row certainly agree in all these columns.
    pub fn unchanged(&self, relation: &Relation, old: &[Cell], new: &[Cell]) -> bool {
        let Self::Only(names) = self else { return false };
        names.iter().all(|name| {
            let Some(at) = relation.position(name) else { return false };
            match (old.get(at), new.get(at)) {
                (_, Some(Cell::Unchanged)) => true,
                (None | Some(Cell::Absent), _) => false,
                (old, new) => old == new,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_enter_are_told_by_the_new_image() {
        let column = ComparedColumn { name: "author".into(), value_type: ValueType::Int };
        let term = Term { column, test: Test::In([Value::Int(5)].into()) };
        let columns = Columns::Only(["author".into(), "id".into()].into());
        let tag = Tag { table: TableId(1), rows: RowSet::Enters([term].into()), columns };
        let columns = ["id", "author", "other"].map(Arc::from).into();
        let relation = Arc::new(Relation { table: TableId(1), columns });
        let row = |cells: [&str; 3]| {
            let cell = |text| match text {
                "?" => Cell::Absent,
                "=" => Cell::Unchanged,
                text => Cell::Text(str::as_bytes(text).into()),
            };
            cells.map(cell).into()
        };
        let insert = |new| Change::Insert { relation: relation.clone(), new: row(new) };
        let delete = |old| Change::Delete { relation: relation.clone(), old: row(old) };
        let update = |old, new| Change::Update { relation: relation.clone(), old: row(old), new: row(new) };
        for (change, hit) in [
            (insert(["1", "5", "a"]), true),
            (insert(["1", "6", "a"]), false),
            (delete(["1", "5", "a"]), false),
            (delete(["1", "?", "?"]), false),
            (update(["1", "?", "?"], ["1", "5", "b"]), true),
            (update(["1", "?", "?"], ["1", "6", "b"]), false),
            (update(["1", "5", "a"], ["1", "6", "a"]), false),
            (update(["1", "5", "a"], ["2", "5", "a"]), true),
            // The mentioned columns are unchanged.
            (update(["1", "5", "a"], ["1", "5", "b"]), false),
            // The value is unknown.
            (update(["1", "?", "?"], ["1", "?", "b"]), true),
            (update(["1", "?", "?"], ["1", "=", "b"]), false),
            (update(["1", "?", "?"], ["2", "=", "b"]), true),
            (Change::AnyRow(TableId(1)), true),
            (Change::AnyRow(TableId(2)), false),
        ] {
            assert_eq!(tag.may_be_hit(&change), hit, "{change:?}");
        }
    }
}
