//! The dependency index: from a row change to the ids whose tags it hits.
//!
//! The naive answer, testing each tag against each change, costs (entries × changes). Here a change costs one
//! hash look-up per *signature*, the set of columns that points of that table compare: all entries of
//! `WHERE title = ? AND type = 'movie'` share one signature, however many there are.
//!
//! A point hits if the old or the new row equals its values in all its columns. A cell that the stream did not
//! send, a column that the row image lacks and a value without a normal form are equal to anything, so they hit
//! all points of the signature. NULL equals nothing. Hash collisions only hit too much.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};

use freshet_model::{Cell, Change, PointColumn, Relation, RowSet, TableId, Tag, Value};
use rapidhash::quality::RandomState;

use crate::core::Id;

#[derive(Debug, Default)]
pub(crate) struct Index {
    tables: HashMap<TableId, TableIndex, RandomState>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct TableIndex {
    any: HashSet<Id, RandomState>,
    /// One per distinct set of columns; few.
    points: Vec<Points>,
}

/// The points that compare the same columns.
#[derive(Debug)]
struct Points {
    columns: Box<[PointColumn]>,
    by_values: HashMap<u64, HashSet<Id, RandomState>, RandomState>,
}

/// What a row image says of the columns of a signature.
enum Image {
    /// Equal to the points under this hash, if there are any.
    Values(u64),
    /// Equal to no point: a NULL.
    Nothing,
    /// Perhaps equal to any.
    Anything,
}

impl Index {
    pub(crate) fn register(&mut self, id: Id, tags: &[Tag]) {
        for tag in tags {
            let table = self.tables.entry(tag.table).or_default();
            match &tag.rows {
                RowSet::Any => {
                    table.any.insert(id);
                }
                RowSet::Point(point) => {
                    let hash = hash_values(self.hasher, point.iter().map(|(_, value)| value));
                    table.points_mut(point).by_values.entry(hash).or_default().insert(id);
                }
            }
        }
    }

    pub(crate) fn unregister(&mut self, id: Id, tags: &[Tag]) {
        for tag in tags {
            let Some(table) = self.tables.get_mut(&tag.table) else { continue };
            match &tag.rows {
                RowSet::Any => {
                    table.any.remove(&id);
                }
                RowSet::Point(point) => {
                    let hash = hash_values(self.hasher, point.iter().map(|(_, value)| value));
                    table.remove_point(point, hash, id);
                }
            }
            if table.any.is_empty() && table.points.is_empty() {
                self.tables.remove(&tag.table);
            }
        }
    }

    /// Adds the ids that `change` hits.
    pub(crate) fn collect(&self, change: &Change, ids: &mut HashSet<Id>) {
        let Some(table) = self.tables.get(&change.table()) else { return };
        ids.extend(&table.any);
        for points in &table.points {
            match change {
                Change::AnyRow(_) => ids.extend(points.by_values.values().flatten()),
                Change::Insert { relation, new } => self.collect_row(points, relation, new, ids),
                Change::Delete { relation, old } => self.collect_row(points, relation, old, ids),
                Change::Update { relation, old, new } => {
                    self.collect_row(points, relation, old, ids);
                    self.collect_row(points, relation, new, ids);
                }
            }
        }
    }

    fn collect_row(&self, points: &Points, relation: &Relation, row: &[Cell], ids: &mut HashSet<Id>) {
        match image(self.hasher, points.columns.iter(), relation, row) {
            Image::Nothing => {}
            Image::Anything => ids.extend(points.by_values.values().flatten()),
            Image::Values(hash) => ids.extend(points.by_values.get(&hash).into_iter().flatten()),
        }
    }

    /// Panics unless it holds exactly these tags.
    pub(crate) fn validate<'a>(&self, nodes: impl Iterator<Item = (Id, &'a [Tag])>) {
        let mut expected = Self { tables: HashMap::default(), hasher: self.hasher };
        for (id, tags) in nodes {
            expected.register(id, tags);
        }
        assert_eq!(self.tables.len(), expected.tables.len());
        for (table, theirs) in &expected.tables {
            let ours = &self.tables[table];
            assert_eq!(ours.any, theirs.any);
            assert_eq!(ours.points.len(), theirs.points.len());
            for points in &theirs.points {
                let same = ours.points.iter().find(|p| p.columns == points.columns).expect("signature");
                assert_eq!(same.by_values, points.by_values);
            }
        }
    }
}

impl TableIndex {
    fn points_mut(&mut self, point: &[(PointColumn, Value)]) -> &mut Points {
        let at = self.points.iter().position(|points| points.compares(point)).unwrap_or_else(|| {
            let columns = point.iter().map(|(column, _)| column.clone()).collect();
            self.points.push(Points { columns, by_values: HashMap::default() });
            self.points.len() - 1
        });
        &mut self.points[at]
    }

    fn remove_point(&mut self, point: &[(PointColumn, Value)], hash: u64, id: Id) {
        let Some(at) = self.points.iter().position(|points| points.compares(point)) else { return };
        let by_values = &mut self.points[at].by_values;
        if let Some(ids) = by_values.get_mut(&hash) {
            ids.remove(&id);
            if ids.is_empty() {
                by_values.remove(&hash);
            }
        }
        if by_values.is_empty() {
            self.points.swap_remove(at);
        }
    }
}

impl Points {
    fn compares(&self, point: &[(PointColumn, Value)]) -> bool {
        self.columns.len() == point.len() && self.columns.iter().zip(point).all(|(ours, (theirs, _))| ours == theirs)
    }
}

/// Whether `change` may touch a row that `tag` names: the index's answer for one tag, used for flights.
pub(crate) fn tag_matches(tag: &Tag, change: &Change) -> bool {
    if tag.table != change.table() {
        return false;
    }
    let RowSet::Point(point) = &tag.rows else { return true };
    let equals = |relation: &Relation, row: &[Cell]| {
        point.iter().all(|(column, value)| match cell_value(column, relation, row) {
            CellValue::Value(found) => found == *value,
            CellValue::Null => false,
            CellValue::Unknown => true,
        })
    };
    match change {
        Change::AnyRow(_) => true,
        Change::Insert { relation, new } => equals(relation, new),
        Change::Delete { relation, old } => equals(relation, old),
        Change::Update { relation, old, new } => equals(relation, old) || equals(relation, new),
    }
}

enum CellValue {
    Value(Value),
    Null,
    Unknown,
}

fn cell_value(column: &PointColumn, relation: &Relation, row: &[Cell]) -> CellValue {
    match relation.position(&column.name).and_then(|at| row.get(at)) {
        None | Some(Cell::Absent) => CellValue::Unknown,
        Some(Cell::Null) => CellValue::Null,
        Some(Cell::Text(text)) => column.value_type.normalise_text(text).map_or(CellValue::Unknown, CellValue::Value),
    }
}

fn image<'a>(
    hasher: RandomState,
    columns: impl Iterator<Item = &'a PointColumn>,
    relation: &Relation,
    row: &[Cell],
) -> Image {
    let mut values = Vec::with_capacity(4);
    let mut unknown = false;
    for column in columns {
        match cell_value(column, relation, row) {
            CellValue::Value(value) => values.push(value),
            CellValue::Null => return Image::Nothing,
            CellValue::Unknown => unknown = true,
        }
    }
    if unknown { Image::Anything } else { Image::Values(hash_values(hasher, values.iter())) }
}

fn hash_values<'a>(hasher: RandomState, values: impl Iterator<Item = &'a Value>) -> u64 {
    let mut state = hasher.build_hasher();
    for value in values {
        value.hash(&mut state);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use freshet_model::ValueType;

    use super::*;

    fn point(table: u32, columns: &[(&str, Value)]) -> Tag {
        let column = |name: &str, value: &Value| {
            let value_type = if matches!(value, Value::Int(_)) { ValueType::Int } else { ValueType::Text };
            PointColumn { name: name.into(), value_type }
        };
        let point = columns.iter().map(|(name, value)| (column(name, value), value.clone())).collect();
        Tag { table: TableId(table), rows: RowSet::Point(point) }
    }

    fn text(value: &str) -> Value {
        Value::Text(value.as_bytes().into())
    }

    fn row(cells: &[&str]) -> Box<[Cell]> {
        cells
            .iter()
            .map(|cell| match *cell {
                "NULL" => Cell::Null,
                "?" => Cell::Absent,
                other => Cell::Text(other.as_bytes().into()),
            })
            .collect()
    }

    fn hits(index: &Index, change: &Change) -> Vec<Id> {
        let mut ids = HashSet::new();
        index.collect(change, &mut ids);
        let mut ids: Vec<Id> = ids.into_iter().collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn a_change_hits_what_equals_its_old_or_new_row() {
        let relation =
            Arc::new(Relation { table: TableId(1), columns: vec!["id".into(), "title".into(), "type".into()] });
        let tags = [
            vec![point(1, &[("title", text("Heat")), ("type", text("movie"))])],
            vec![point(1, &[("title", text("Heat")), ("type", text("short"))])],
            vec![point(1, &[("id", Value::Int(7))])],
            vec![Tag { table: TableId(1), rows: RowSet::Any }],
            vec![Tag { table: TableId(2), rows: RowSet::Any }],
            vec![point(1, &[("made_of", text("x"))])],
        ];
        let mut index = Index::default();
        for (id, tags) in tags.iter().enumerate() {
            index.register(id as Id, tags);
        }
        let update =
            |old: &[&str], new: &[&str]| Change::Update { relation: relation.clone(), old: row(old), new: row(new) };
        let cases: Vec<(Change, Vec<Id>)> = vec![
            (Change::Insert { relation: relation.clone(), new: row(&["7", "Heat", "movie"]) }, vec![0, 2, 3, 5]),
            (Change::Insert { relation: relation.clone(), new: row(&["8", "Heat", "NULL"]) }, vec![3, 5]),
            (Change::Delete { relation: relation.clone(), old: row(&["7", "?", "?"]) }, vec![0, 1, 2, 3, 5]),
            (update(&["9", "Ran", "movie"], &["9", "Heat", "short"]), vec![1, 3, 5]),
            (update(&["7", "?", "?"], &["7", "Ran", "movie"]), vec![0, 1, 2, 3, 5]),
            // The index knows one column only in part, so it hits the whole signature.
            (update(&["8", "Ran", "movie"], &["8", "Ran", "?"]), vec![0, 1, 3, 5]),
            (Change::AnyRow(TableId(1)), vec![0, 1, 2, 3, 5]),
            (Change::AnyRow(TableId(2)), vec![4]),
        ];
        for (change, expected) in cases {
            let found = hits(&index, &change);
            for (id, tags) in tags.iter().enumerate() {
                let single = tags.iter().any(|tag| tag_matches(tag, &change));
                let indexed = found.contains(&(id as Id));
                assert!(indexed || !single, "{change:?}: the index misses {id}");
                assert_eq!(expected.contains(&(id as Id)), single || indexed, "{change:?} {id}");
            }
        }
        for (id, tags) in tags.iter().enumerate() {
            index.unregister(id as Id, tags);
        }
        assert!(index.tables.is_empty());
    }
}
