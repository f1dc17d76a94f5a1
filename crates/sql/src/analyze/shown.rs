//! The facts about a sub-select that enclosing queries use, as plain data: its columns, the origins of their values, and bounds on outer rows.

use std::collections::BTreeSet;
use std::ops::Range;

use freshet_types::{Column, ValueType};
use sqlparser::ast::TableAlias;

use crate::analysis::{Edge, Inside, ReferenceColumn, ResultKey, RowLimit, SortedLimit};
use crate::predicate::Predicate;

/// A column of a table reference, by its place among those of the whole statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) place: usize,
    pub(crate) column: Column,
    /// It is used through a column of a sub-select.
    pub(crate) through: bool,
}

/// A column of a table reference whose rows a condition bounds.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) origin: Origin,
    /// An outer join may replace it by NULL.
    pub(crate) nullable: bool,
}

/// A column of a sub-select.
#[derive(Clone, Debug)]
pub(crate) struct ShownColumn {
    /// Empty if it has no name, so that it cannot be referred to unless it is the only one.
    pub(crate) name: String,
    /// The origins of its values: each comes from one of these columns. Empty if they are not known.
    pub(crate) origins: Vec<Origin>,
    /// The columns to which a condition on it applies; each bounds its own reference.
    pub(crate) reached: Vec<Reached>,
    /// The branches of a set operation in which it is NULL.
    pub(crate) nulls: Vec<Null>,
    /// It is NULL in all rows.
    pub(crate) is_null: bool,
}

/// The facts about a sub-select.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Empty if not known.
    pub(crate) columns: Vec<ShownColumn>,
    /// A `*` is among them, whose number of columns is not certain.
    pub(crate) starred: bool,
    /// The bounds on outer rows for which it has a row.
    pub(crate) outer: Vec<Outer>,
    /// Its LIMIT.
    pub(crate) derived_limit: Option<Box<DerivedLimit>>,
    /// It has at most one row for each outer row.
    pub(crate) is_single: bool,
    /// The bounds of its outer joins that apply if conditions outside turn them into inner joins.
    pub(crate) notes: Vec<Note>,
    /// All conditions on its rows.
    pub(crate) asks: Option<Box<Asks>>,
}

/// All conditions of a sub-select on its rows.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    pub(crate) inside: Inside,
    /// The equality with an outer column.
    pub(crate) outer: Option<(ReferenceColumn, Named)>,
}

/// A bound on an outer row for which a sub-select has a row: its column has a value of one of the inner columns.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) to: Named,
    /// At least one.
    pub(crate) from: Vec<Origin>,
}

/// The meaning of a column name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The block, counted from the outermost, and the place in it.
    pub(crate) block: usize,
    pub(crate) place: usize,
    /// The columns to which a condition on it applies; each bounds its own reference.
    pub(crate) rows: Vec<Reached>,
    /// The origins of its values: each comes from one of these columns. Empty if they are not known.
    pub(crate) origins: Vec<Origin>,
    /// The branches of a set operation in which it is NULL.
    pub(crate) nulls: Vec<Null>,
}

/// The bounds of a condition.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// The predicates of the references in these places of the whole statement.
    pub(crate) predicates: Vec<(usize, Predicate)>,
    pub(crate) edges: Vec<Edge>,
}

/// A branch in which a column is NULL.
#[derive(Clone, Debug)]
pub(crate) struct Null {
    /// Its references, by their places among those of the whole statement.
    pub(crate) places: Range<usize>,
    /// The types of columns in other branches that it does not convert; None: any type.
    pub(crate) beside: Option<&'static [ValueType]>,
}

/// The bounds of a LEFT JOIN that apply if it is an inner join in effect.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The references on its right side, by their places among those of the whole statement.
    pub(crate) right: BTreeSet<usize>,
    /// The bounds of its ON on the left side.
    pub(crate) bounds: Bounds,
    /// References that must have a row if ON is true.
    pub(crate) there: BTreeSet<usize>,
}

/// The LIMIT of a derived table. Its columns take the place of an answer's columns.
#[derive(Clone, Debug)]
pub(crate) struct DerivedLimit {
    pub(crate) sorted: Option<SortedLimit>,
    pub(crate) result_keys: Vec<ResultKey>,
    pub(crate) limit: RowLimit,
}

/// Limit of origins of one column.
pub(crate) const ORIGINS_MAX: usize = 4;

impl ShownColumn {
    /// The columns that a condition on it bounds outside; `nullable`: an outer join there may replace it by NULL.
    pub(crate) fn rows(&self, nullable: bool) -> Vec<Reached> {
        let rows = self.reached.iter().map(|Reached { origin, nullable: before }| Reached {
            origin: Origin { through: true, ..origin.clone() },
            nullable: *before || nullable,
        });
        rows.collect()
    }

    /// The column of a set operation from those of two branches.
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

    /// Conditions on it apply no further: other rows decide which of its rows exist.
    pub(crate) fn clear(&mut self) {
        self.reached.clear();
        self.nulls.clear();
        self.is_null = false;
    }

    /// The origins of its values.
    pub(crate) fn values(&self) -> Vec<Origin> {
        self.origins.iter().map(|origin| Origin { through: true, ..origin.clone() }).collect()
    }
}

impl Shown {
    /// The only column with this name.
    pub(crate) fn column(&self, is: impl Fn(&str) -> bool) -> Option<&ShownColumn> {
        let mut named = self.columns.iter().filter(|column| is(&column.name));
        named.next().filter(|_| named.next().is_none())
    }

    /// The number of one of its columns.
    pub(crate) fn at(&self, column: &ShownColumn) -> Option<usize> {
        self.columns.iter().position(|of| std::ptr::eq(of, column))
    }

    /// The names of all columns, if they are certain.
    pub(crate) fn names(&self) -> Option<impl Iterator<Item = &str>> {
        (self.is_named() && !self.starred).then(|| self.columns.iter().map(|column| &*column.name))
    }

    /// Whether the names of all columns are known.
    pub(crate) fn is_named(&self) -> bool {
        !self.columns.is_empty() && self.columns.iter().all(|column| !column.name.is_empty())
    }

    /// The columns with the names of an alias, which renames the first ones.
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

    /// The columns with the names of a view, each as far as it has the type of the view's column.
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
        self.derived_limit = None;
        self.asks = None;
        self
    }

    /// Conditions on it apply no further: other rows decide which of its rows exist, or several references may need other rows.
    pub(crate) fn unreached(mut self) -> Self {
        self.derived_limit = None;
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
    /// Whether a set operation does not convert a column of this type.
    pub(crate) fn keeps(&self, value_type: ValueType) -> bool {
        self.beside.is_none_or(|types| types.contains(&value_type))
    }
}

/// Whether a set operation over these columns converts none of their values.
pub(crate) fn are_kept<'o>(origins: impl IntoIterator<Item = &'o Origin>, nulls: &[Null], mysql: bool) -> bool {
    let mut types = origins.into_iter().map(|origin| origin.column.value_type);
    let Some(first) = types.next().filter(|first| keeps_type(*first, mysql)) else { return false };
    types.all(|next| next == first) && nulls.iter().all(|null| null.keeps(first))
}

/// Whether a set operation over columns of this type alone converts none of their values. MySQL may round decimals and pad bytes.
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
