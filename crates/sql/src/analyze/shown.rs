//! What a sub-select tells outside of it, as plain data: its columns, where their values come from, and what holds of outer rows.

use std::collections::BTreeSet;
use std::ops::Range;

use freshet_types::{Column, ValueType};
use sqlparser::ast::TableAlias;

use crate::analysis::{Cut, Edge, Held, Inside, Keyed, RowLimit};
use crate::predicate::Predicate;

/// A column of a table reference, by its place among those of the whole statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) place: usize,
    pub(crate) column: Column,
    /// It is known by the column of a sub-select.
    pub(crate) through: bool,
}

/// A column of a table reference whose rows a condition bounds.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) origin: Origin,
    /// An outer join may put a NULL in its place.
    pub(crate) nullable: bool,
}

/// A column of a sub-select.
#[derive(Clone, Debug)]
pub(crate) struct ShownColumn {
    /// Empty: it has none of its own, so it cannot be referred to, unless it is the only one.
    pub(crate) name: String,
    /// Where its values come from: each from one of these columns. None: that is not known.
    pub(crate) origins: Vec<Origin>,
    /// The columns of which a condition on it is a condition, each bounding its own reference.
    pub(crate) reached: Vec<Reached>,
    /// The branches of a set operation in which it is NULL.
    pub(crate) nulls: Vec<Null>,
    /// It is nothing else.
    pub(crate) is_null: bool,
}

/// What a sub-select tells outside of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// None: not known.
    pub(crate) columns: Vec<ShownColumn>,
    /// A `*` is among them: how many it stands for is not for sure.
    pub(crate) starred: bool,
    /// What holds of outer rows for which it has a row.
    pub(crate) outer: Vec<Outer>,
    /// LIMIT cuts its rows.
    pub(crate) page: Option<Box<Page>>,
    /// It has one row at most for each outer one.
    pub(crate) is_single: bool,
    /// What its outer joins say if conditions outside make inner ones of them.
    pub(crate) notes: Vec<Note>,
    /// All that it asks of its rows.
    pub(crate) asks: Option<Box<Asks>>,
}

/// All that a sub-select asks of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    pub(crate) inside: Inside,
    /// What equals a column outside.
    pub(crate) outer: Option<(Held, Named)>,
}

/// An outer row for which a sub-select has a row: it has in a column a value of another one inside.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) to: Named,
    /// At least one.
    pub(crate) from: Vec<Origin>,
}

/// What a column name means.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The block, counted from the outermost, and the place in it.
    pub(crate) block: usize,
    pub(crate) place: usize,
    /// The columns of which a condition on it is a condition, each bounding its own reference.
    pub(crate) rows: Vec<Reached>,
    /// Where its values come from: each from one of these columns. None: that is not known.
    pub(crate) origins: Vec<Origin>,
    /// The branches of a set operation in which it is NULL.
    pub(crate) nulls: Vec<Null>,
}

/// What a condition says.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Of rows of the references in these places of the whole statement.
    pub(crate) predicates: Vec<(usize, Predicate)>,
    pub(crate) edges: Vec<Edge>,
}

/// A branch in which a column is NULL.
#[derive(Clone, Debug)]
pub(crate) struct Null {
    /// Its references, by their places among those of the whole statement.
    pub(crate) places: Range<usize>,
    /// Beside columns of which types it leaves their values as they are; None: any.
    pub(crate) beside: Option<&'static [ValueType]>,
}

/// What a LEFT JOIN says if it is an inner one in effect.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The references on its right side, by their places among those of the whole statement.
    pub(crate) right: BTreeSet<usize>,
    /// What its ON says of the left side.
    pub(crate) bounds: Bounds,
    /// References that are there where ON is true.
    pub(crate) there: BTreeSet<usize>,
}

/// How a derived table is cut. Its columns are meant where an answer's are with a statement.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) cut: Option<Cut>,
    pub(crate) keyed: Vec<Keyed>,
    pub(crate) limit: RowLimit,
}

/// Columns that one of a set operation has its values from.
pub(crate) const ORIGINS_MAX: usize = 4;

impl ShownColumn {
    /// What a condition on it bounds outside; `nullable`: an outer join there may put a NULL in its place.
    pub(crate) fn rows(&self, nullable: bool) -> Vec<Reached> {
        let rows = self.reached.iter().map(|Reached { origin, nullable: before }| Reached {
            origin: Origin { through: true, ..origin.clone() },
            nullable: *before || nullable,
        });
        rows.collect()
    }

    /// The column that a set operation makes of two.
    fn merged(mut self, other: Self, mysql: bool) -> Self {
        let both = |is: fn(&Self) -> bool| (is(&self) || self.is_null) && (is(&other) || other.is_null);
        let (are_reached, are_known) = (both(|one| !one.reached.is_empty()), both(|one| !one.origins.is_empty()));
        self.is_null &= other.is_null;
        self.nulls.extend(other.nulls);
        self.reached.extend(other.reached);
        if !are_reached || !are_kept(self.reached.iter().map(|reached| &reached.origin), &self.nulls, mysql) {
            self.reached.clear();
        }
        self.origins.extend(other.origins.into_iter().map(|origin| Origin { through: true, ..origin }));
        self.origins.iter_mut().for_each(|origin| origin.through = true);
        if !are_known || self.origins.len() > ORIGINS_MAX || !are_kept(&self.origins, &self.nulls, mysql) {
            self.origins.clear();
        }
        self
    }

    /// Others decide which of its rows there are.
    pub(crate) fn clear(&mut self) {
        self.reached.clear();
        self.nulls.clear();
        self.is_null = false;
    }

    /// Where its values come from.
    pub(crate) fn values(&self) -> Vec<Origin> {
        self.origins.iter().map(|origin| Origin { through: true, ..origin.clone() }).collect()
    }
}

impl Shown {
    /// The one column of that name.
    pub(crate) fn column(&self, is: impl Fn(&str) -> bool) -> Option<&ShownColumn> {
        let mut named = self.columns.iter().filter(|column| is(&column.name));
        named.next().filter(|_| named.next().is_none())
    }

    /// The number of one of its columns.
    pub(crate) fn at(&self, column: &ShownColumn) -> Option<usize> {
        self.columns.iter().position(|of| std::ptr::eq(of, column))
    }

    /// The names of all columns, if these are known for sure.
    pub(crate) fn names(&self) -> Option<impl Iterator<Item = &str>> {
        (self.is_named() && !self.starred).then(|| self.columns.iter().map(|column| &*column.name))
    }

    /// Whether the names of all columns are known.
    pub(crate) fn is_named(&self) -> bool {
        !self.columns.is_empty() && self.columns.iter().all(|column| !column.name.is_empty())
    }

    /// The columns by the names that an alias gives them, the first ones first.
    pub(crate) fn renamed(mut self, alias: Option<&TableAlias>) -> Self {
        let names = alias.map_or(&[][..], |alias| &alias.columns);
        if !names.is_empty() && (self.starred || names.len() > self.columns.len()) {
            return Self::default();
        }
        for (column, name) in self.columns.iter_mut().zip(names) {
            column.name.clone_from(&name.name.value);
        }
        self
    }

    /// The columns by the names that a view gives them, each as far as it is of the view's own type.
    pub(crate) fn of_view(mut self, columns: &[Column]) -> Self {
        if self.starred || self.columns.len() != columns.len() {
            return Self::default();
        }
        for (shown, column) in self.columns.iter_mut().zip(columns) {
            let alike = |origin: &Origin| origin.column.value_type == column.value_type;
            shown.name = column.name.to_string();
            if !shown.origins.iter().all(alike) {
                shown.origins.clear();
            }
            shown.reached.retain(|reached| alike(&reached.origin));
        }
        self.outer.clear();
        self.page = None;
        self.asks = None;
        self
    }

    /// Which of its rows there are is decided by others of them, or it stands in several places, in which they may be others.
    pub(crate) fn unreached(mut self) -> Self {
        self.page = None;
        self.columns.iter_mut().for_each(ShownColumn::clear);
        self
    }

    /// The columns of a set operation.
    pub(crate) fn merged(self, other: Self, mysql: bool) -> Self {
        if self.starred || other.starred || self.columns.len() != other.columns.len() {
            return Self::default();
        }
        let columns = self.columns.into_iter().zip(other.columns).map(|(one, two)| one.merged(two, mysql)).collect();
        let notes = self.notes.into_iter().chain(other.notes).collect();
        Self { columns, notes, ..Self::default() }
    }
}

impl Null {
    /// Whether a set operation with columns of this type leaves their values as they are.
    pub(crate) fn keeps(&self, value_type: ValueType) -> bool {
        self.beside.is_none_or(|types| types.contains(&value_type))
    }
}

/// Whether a set operation over these columns keeps their values as they are.
pub(crate) fn are_kept<'o>(origins: impl IntoIterator<Item = &'o Origin>, nulls: &[Null], mysql: bool) -> bool {
    let mut types = origins.into_iter().map(|origin| origin.column.value_type);
    let Some(first) = types.next().filter(|first| keeps_type(*first, mysql)) else { return false };
    types.all(|next| next == first) && nulls.iter().all(|null| null.keeps(first))
}

/// Whether a set operation over columns of this type alone keeps the values as they are. MySQL may round decimals and pads bytes
/// to fit.
pub(crate) fn keeps_type(value_type: ValueType, mysql: bool) -> bool {
    use ValueType::{Bool, Date, FoldedText, Int, Numeric, OrderedText, PaddedText, Text};
    use ValueType::{Timestamp, TimestampTz, Unsigned, Uuid};
    match value_type {
        Numeric => !mysql,
        Int | Unsigned | Bool | Uuid | Date | Timestamp | TimestampTz | Text | OrderedText | PaddedText
        | FoldedText => true,
        _ => false,
    }
}
