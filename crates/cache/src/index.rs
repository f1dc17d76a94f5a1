//! The dependency index: it maps a row change to the ids whose tags the change hits.
//!
//! To test each tag against each change would cost (entries × changes). Here the tags of a table are grouped by the
//! columns through which they are found. A change costs one look-up for each group, however many tags the group has:
//!
//! * By equality: a hash table has the values of all columns that a tag compares with `=`, IN or IS NULL. An IN list
//!   is entered once for each value. A tag on any row compares no column.
//! * By equality and range: under the same key, an interval structure has the bounds on one further column. A text
//!   prefix is such a range.
//!
//! The remaining conditions of a tag (LIKE, NOT, IS NOT NULL and so on) are tested on the tags found. A tag with none
//! of these access paths is stored with those that compare no column, where each change would test all of them. So at
//! most [`TESTED_MAX`] tags are tested under one key. Further tags are entered as if they had no other conditions.
//! They are hit needlessly, but only once, since a hit removes them.
//!
//! All tags of a group mention the same columns, so an update that leaves these columns unchanged skips the whole
//! group. Tags on rows that enter ([`RowSet::Enters`]) have their own groups, and old rows are not looked up there.
//! An old row may lack so many columns that the whole group would be tested.
//!
//! Three kinds of values may equal many others: a cell that the stream did not send, a column that the row image
//! lacks, and a value without a normal form. All tags of the group are then tested. A hash collision only causes a
//! needless hit.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use freshet_types::{
    Cell, Change, Columns, ComparedColumn, Image, Images, Relation, RowSet, TableId, Tag, Term, Test, Value,
};
use rapidhash::quality::RandomState;

use crate::flight::Id;
use crate::intervals::Intervals;

/// The most keys under which one tag is entered. A single IN list may be longer.
const KEYS_MAX: usize = 64;
/// The capacity of a table below which it is never shrunk.
const TRIMMED_MIN: usize = 1_024;
/// Tags that are tested under one key of a group.
const TESTED_MAX: u32 = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Index {
    tables: HashMap<TableId, TableIndex, RandomState>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct TableIndex {
    /// Hit only by changes of the whole table.
    whole: HashSet<Posting, RandomState>,
    equal: Vec<Group<HashMap<u64, Bucket, RandomState>>>,
    /// The range is on the last column.
    ranges: Vec<Group<HashMap<u64, Intervals<Posting>, RandomState>>>,
}

/// The tags that are found through the same columns and mention the same columns.
#[derive(Debug)]
struct Group<B> {
    of: Kind,
    by: B,
}

/// What the tags of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    through: Box<[ComparedColumn]>,
    mentioned: Columns,
    /// The tags are on rows that enter: [`RowSet::Enters`].
    enters: bool,
}

/// One tag of a fill or an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Posting {
    id: Id,
    /// Its index among the tags of the id.
    place: u32,
    /// It has no conditions besides those by which it is found.
    exact: bool,
}

impl Posting {
    /// The same posting, to be tested.
    fn inexact(self) -> Self {
        Self { exact: false, ..self }
    }
}

/// Most values have one tag.
#[derive(Debug, PartialEq, Eq)]
enum Bucket {
    One(Posting),
    /// Boxed, so that the others stay small.
    Many(Box<Many>),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Many {
    postings: HashSet<Posting, RandomState>,
    /// How many of them are not exact.
    tested: u32,
}

/// How a tag is found.
enum Access {
    Whole,
    Equal { of: Kind, hashes: Vec<u64>, exact: bool },
    Range { of: Kind, hashes: Vec<u64>, range: (u64, u64), exact: bool },
}

impl Index {
    /// The bytes counted for a tag, with its share of the index, as measured by `make bench-index`.
    pub(crate) fn tag_bytes(tag: &Tag) -> usize {
        const WHOLE: usize = 80;
        const FOUND_BY_VALUE: usize = 208;
        match tag.rows {
            RowSet::Any | RowSet::Definition | RowSet::Later => WHOLE,
            RowSet::Where(_) | RowSet::Enters(_) => FOUND_BY_VALUE + tag.extra_bytes(),
        }
    }

    /// `first` is the number of tags of this id that are registered already.
    pub(crate) fn register(&mut self, id: Id, first: u32, tags: &[Tag]) {
        for (place, tag) in (first..).zip(tags) {
            let access = self.access(tag);
            let table = self.tables.entry(tag.table).or_default();
            match access {
                Access::Whole => {
                    table.whole.insert(Posting { id, place, exact: true });
                }
                Access::Equal { of, hashes, exact } => {
                    let by = &mut group(&mut table.equal, of).by;
                    for hash in hashes {
                        let posting = Posting { id, place, exact };
                        by.entry(hash).and_modify(|bucket| bucket.insert(posting)).or_insert(Bucket::One(posting));
                    }
                }
                Access::Range { of, hashes, range, exact } => {
                    let by = &mut group(&mut table.ranges, of).by;
                    for hash in hashes {
                        by.entry(hash).or_default().insert(range, Posting { id, place, exact });
                    }
                }
            }
        }
    }

    pub(crate) fn unregister(&mut self, id: Id, tags: &[Tag]) {
        for (place, tag) in (0u32..).zip(tags) {
            let access = self.access(tag);
            let Some(table) = self.tables.get_mut(&tag.table) else { continue };
            match access {
                Access::Whole => {
                    table.whole.remove(&Posting { id, place, exact: true });
                }
                Access::Equal { of, hashes, exact } => {
                    let posting = Posting { id, place, exact };
                    leave(&mut table.equal, &of, |by| {
                        for hash in hashes {
                            if by.get_mut(&hash).is_some_and(|bucket| bucket.remove(posting)) {
                                by.remove(&hash);
                            }
                        }
                        trim(by);
                        by.is_empty()
                    });
                }
                Access::Range { of, hashes, range, exact } => {
                    leave(&mut table.ranges, &of, |by| {
                        for hash in hashes {
                            let Some(intervals) = by.get_mut(&hash) else { continue };
                            intervals.remove(range, Posting { id, place, exact });
                            if intervals.is_empty() {
                                by.remove(&hash);
                            }
                        }
                        trim(by);
                        by.is_empty()
                    });
                }
            }
            if table.whole.is_empty() && table.equal.is_empty() && table.ranges.is_empty() {
                self.tables.remove(&tag.table);
            }
        }
    }

    fn access(&self, tag: &Tag) -> Access {
        let terms: &[Term] = match &tag.rows {
            RowSet::Any => &[],
            RowSet::Definition | RowSet::Later => return Access::Whole,
            RowSet::Where(terms) | RowSet::Enters(terms) => terms,
        };
        let enters = matches!(tag.rows, RowSet::Enters(_));
        let of = |through| Kind { through, mentioned: tag.columns.clone(), enters };
        let (mut keys, mut through, mut left) = (1, Vec::new(), Vec::new());
        for term in terms {
            let count = match &term.test {
                Test::In(values) => values.len(),
                Test::Null => 1,
                _ => usize::MAX,
            };
            let fits = count != usize::MAX && (through.is_empty() || count.saturating_mul(keys) <= KEYS_MAX);
            if fits {
                keys *= count;
                through.push(term);
            } else {
                left.push(term);
            }
        }
        let mut hashes = vec![0];
        for term in &through {
            let values: &[Value] = match &term.test {
                Test::In(values) => values,
                _ => &[], // it is NULL
            };
            if values.len() < 2 {
                for hash in &mut hashes {
                    *hash = self.with(*hash, values.first());
                }
            } else {
                let each = |hash: &u64| values.iter().map(|value| self.with(*hash, Some(value))).collect::<Vec<_>>();
                hashes = hashes.iter().flat_map(each).collect();
            }
        }
        let columns = through.iter().map(|term| &term.column);
        let range = |term: &&Term| match &term.test {
            Test::Within { low, high } => Some((term.column.clone(), (*low, *high), true)),
            Test::Begins(beginning) => Some((term.column.clone(), Value::order_keys_from(beginning), false)),
            _ => None,
        };
        let Some((column, range, exact)) = left.iter().find_map(range) else {
            return Access::Equal { of: of(columns.cloned().collect()), hashes, exact: left.is_empty() };
        };
        if range.0 > range.1 {
            return Access::Whole; // no row
        }
        let of = of(columns.chain([&column]).cloned().collect());
        Access::Range { of, hashes, range, exact: exact && left.len() == 1 }
    }

    /// Whether the table has any tags, deferred ones included.
    pub(crate) fn has_tags_on(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// Adds the ids that `change` hits. `tags` returns the tags with which an id was registered.
    pub(crate) fn collect<'n>(
        &self,
        change: &Change,
        tags: impl Fn(Id) -> &'n [Tag],
        ids: &mut HashSet<Id, RandomState>,
    ) {
        let Some(table) = self.tables.get(&change.table()) else { return };
        let mut images = Images::of(change);
        let mut tested = |posting: &Posting| {
            let place = usize::try_from(posting.place).unwrap_or(usize::MAX);
            tags(posting.id).get(place).is_some_and(|tag| tag.may_name_row_of(&mut images))
        };
        let mut found = |posting: &Posting| {
            if posting.exact || (!ids.contains(&posting.id) && tested(posting)) {
                ids.insert(posting.id);
            }
        };
        if change.is_whole() {
            table.whole.iter().for_each(&mut found);
        }
        for group in &table.equal {
            for image in group.images(change) {
                match image.and_then(|(relation, row)| self.key(&group.of.through, relation, row)) {
                    Some(hash) => group.by.get(&hash).into_iter().for_each(|bucket| bucket.each(&mut found)),
                    // The known cells of the row may still exclude some of them.
                    None => group.by.values().for_each(|bucket| bucket.each(|posting| found(&posting.inexact()))),
                }
            }
        }
        for group in &table.ranges {
            let Some((column, equal)) = group.of.through.split_last() else { continue };
            for image in group.images(change) {
                let key = image.and_then(|(relation, row)| self.key(equal, relation, row));
                let Some(hash) = key else {
                    group.by.values().for_each(|intervals| intervals.all(|posting| found(&posting.inexact())));
                    continue;
                };
                let Some(intervals) = group.by.get(&hash) else { continue };
                match image.map(|(relation, row)| column.image(relation, row)) {
                    Some(Image::Value(value)) => intervals.around(value.order_key(), |posting| found(&posting)),
                    Some(Image::Null) => {}
                    Some(Image::Begins(_) | Image::Unknown) | None => {
                        intervals.all(|posting| found(&posting.inexact()));
                    }
                }
            }
        }
    }

    /// The key of the tags whose values the row has. None if the row may have any values.
    fn key(&self, through: &[ComparedColumn], relation: &Relation, row: &[Cell]) -> Option<u64> {
        through.iter().try_fold(0, |hash, column| match column.image(relation, row) {
            Image::Value(value) => Some(self.with(hash, Some(&value))),
            Image::Null => Some(self.with(hash, None)),
            Image::Begins(_) | Image::Unknown => None,
        })
    }

    /// The hash of the values so far and one more.
    fn with(&self, hash: u64, value: Option<&Value>) -> u64 {
        self.hasher.hash_one((hash, value))
    }

    /// Panics unless the index holds exactly these tags.
    pub(crate) fn validate<'a>(&self, nodes: impl Iterator<Item = (Id, &'a [Tag])>) {
        let mut expected = Self { tables: HashMap::default(), hasher: self.hasher };
        for (id, tags) in nodes {
            expected.register(id, 0, tags);
        }
        assert_eq!(self.postings(), expected.postings());
        assert_eq!(self.tables.len(), expected.tables.len());
        for bucket in self.tables.values().flat_map(|table| &table.equal).flat_map(|group| group.by.values()) {
            let Bucket::Many(many) = bucket else { continue };
            let count = many.postings.iter().filter(|posting| !posting.exact).count();
            assert!(many.tested <= TESTED_MAX && usize::try_from(many.tested) == Ok(count));
        }
    }

    /// All postings. Which of them are tested beyond the limit depends on their order, so they are made inexact.
    fn postings(&self) -> Vec<(TableId, String, Posting)> {
        let mut all = Vec::new();
        for (id, table) in &self.tables {
            all.extend(table.whole.iter().map(|posting| (*id, String::new(), *posting)));
            for Group { of, by } in &table.equal {
                for (hash, bucket) in by {
                    bucket.each(|posting| all.push((*id, format!("{of:?} {hash}"), *posting)));
                }
            }
            for Group { of, by } in &table.ranges {
                for (hash, intervals) in by {
                    intervals.all(|posting| all.push((*id, format!("{of:?} {hash}"), posting)));
                }
            }
        }
        for (.., posting) in &mut all {
            *posting = posting.inexact();
        }
        all.sort_unstable();
        all
    }
}

/// Shrinks a table that is less than a quarter full. This moves its elements, as growth did: each element pays for
/// one move.
pub(crate) fn trim<K: Eq + std::hash::Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if table.capacity() > TRIMMED_MIN && table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}

/// The group of this kind; it is created if missing.
fn group<B: Default>(groups: &mut Vec<Group<B>>, of: Kind) -> &mut Group<B> {
    let at = groups.iter().position(|group| group.of == of).unwrap_or_else(|| {
        groups.push(Group { of, by: B::default() });
        groups.len() - 1
    });
    &mut groups[at]
}

/// Removes from the group of this kind, and removes the group if it is empty then.
fn leave<B>(groups: &mut Vec<Group<B>>, of: &Kind, take: impl FnOnce(&mut B) -> bool) {
    let Some(at) = groups.iter().position(|group| group.of == *of) else { return };
    if take(&mut groups[at].by) {
        groups.swap_remove(at);
    }
}

impl<B> Group<B> {
    /// The row images to look up. None stands for any row.
    fn images<'c>(&self, change: &'c Change) -> impl Iterator<Item = Option<(&'c Relation, &'c [Cell])>> {
        let image = |relation: &'c Relation, row: &'c [Cell]| Some(Some((relation, row)));
        let Kind { mentioned, enters, .. } = &self.of;
        let (first, second) = match change {
            Change::AnyRow(_) | Change::Redefined { .. } => (Some(None), None),
            Change::Insert { relation, new } => (image(relation, new), None),
            Change::Delete { .. } if *enters => (None, None),
            Change::Delete { relation, old } => (image(relation, old), None),
            Change::Update { relation, old, new } if mentioned.unchanged(relation, old, new) => (None, None),
            Change::Update { relation, new, .. } if *enters => (image(relation, new), None),
            Change::Update { relation, old, new } => (image(relation, old), image(relation, new)),
        };
        first.into_iter().chain(second)
    }
}

impl Bucket {
    fn insert(&mut self, posting: Posting) {
        match self {
            Self::One(one) if *one == posting => {}
            Self::One(one) => {
                let mut many = Many::default();
                many.insert(*one);
                many.insert(posting);
                *self = Self::Many(many.into());
            }
            Self::Many(many) => many.insert(posting),
        }
    }

    /// Removes the posting, exact or not. Returns whether the bucket is empty.
    fn remove(&mut self, posting: Posting) -> bool {
        match self {
            Self::One(one) => *one == posting,
            Self::Many(many) => {
                if many.postings.remove(&posting) {
                    many.tested -= u32::from(!posting.exact);
                } else {
                    many.postings.remove(&Posting { exact: true, ..posting });
                }
                many.postings.is_empty()
            }
        }
    }

    fn each<'b>(&'b self, found: impl FnMut(&'b Posting)) {
        match self {
            Self::One(one) => std::iter::once(one).for_each(found),
            Self::Many(many) => many.postings.iter().for_each(found),
        }
    }
}

impl Many {
    fn insert(&mut self, posting: Posting) {
        // A posting that is already present, under the equal hash of another value, stays unchanged.
        let full = self.tested >= TESTED_MAX && !self.postings.contains(&posting);
        let posting = Posting { exact: posting.exact || full, ..posting };
        self.tested += u32::from(self.postings.insert(posting) && !posting.exact);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use freshet_types::{Pattern, Piece, ValueType};

    use super::*;

    const COLUMNS: [(&str, ValueType); 3] =
        [("id", ValueType::Int), ("title", ValueType::FoldedText), ("rating", ValueType::Numeric)];

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }

        fn text(&mut self, column: usize) -> String {
            let number = self.below(6);
            match COLUMNS[column].1 {
                ValueType::FoldedText if self.below(4) == 0 => format!("t{number}{number}é"),
                ValueType::FoldedText => format!("t{number}"),
                ValueType::Numeric if number == 5 => "NaN".into(),
                ValueType::Numeric => format!("{number}.{}", self.below(2)),
                _ => number.to_string(),
            }
        }

        fn value(&mut self, column: usize) -> Value {
            loop {
                if let Some(value) = COLUMNS[column].1.normalise_text(self.text(column).as_bytes()) {
                    return value;
                }
            }
        }

        fn test(&mut self, column: usize) -> Test {
            match self.below(9) {
                0 => Test::Null,
                6 => Test::NotNull,
                7 => Test::Not([self.value(column)].into()),
                8 => {
                    let text = self.text(column);
                    let pieces = Piece::of(format!("%{}", &text[1..]).as_bytes(), None);
                    let negated = self.below(2) == 0;
                    Test::Like(Pattern { pieces, folded: true, negated, collated: false }.into())
                }
                1 if COLUMNS[column].1 == ValueType::FoldedText => {
                    Test::Begins(self.text(column).bytes().take(2).collect())
                }
                1 | 2 => {
                    let (a, b) = (self.value(column).order_key(), self.value(column).order_key());
                    Test::Within { low: a, high: b }
                }
                3 => {
                    // Longer lists than are entered for more than one column.
                    let mut values: Vec<Value> = (0..10).map(|_| self.value(column)).collect();
                    values.sort();
                    values.dedup();
                    Test::In(values.into())
                }
                _ => Test::In([self.value(column)].into()),
            }
        }

        fn tag(&mut self) -> Tag {
            let mut terms = Vec::new();
            for (at, (name, value_type)) in COLUMNS.iter().enumerate() {
                if self.below(2) == 0 {
                    let column = ComparedColumn { name: (*name).into(), value_type: *value_type };
                    terms.push(Term { column, test: self.test(at) });
                }
            }
            let rows = match (self.below(12), terms.is_empty()) {
                (0, _) => RowSet::Definition,
                (1, _) => RowSet::Later,
                (2, _) | (_, true) => RowSet::Any,
                (3..6, _) => RowSet::Enters(terms.into()),
                _ => RowSet::Where(terms.into()),
            };
            let columns = match self.below(3) {
                0 => Columns::All,
                1 => Columns::Only(["id".into()].into()),
                _ => Columns::Only(["rating".into(), "title".into()].into()),
            };
            Tag { table: TableId(1 + u32::try_from(self.below(2)).unwrap()), rows, columns }
        }

        fn row(&mut self) -> Box<[Cell]> {
            let cell = |at| match self.below(8) {
                0 => Cell::Null,
                1 => Cell::Absent,
                _ => Cell::Text(self.text(at).into_bytes().into()),
            };
            (0..COLUMNS.len()).map(cell).collect()
        }

        fn change(&mut self, relations: &[Arc<Relation>]) -> Change {
            let relation = relations[usize::try_from(self.below(2)).unwrap()].clone();
            match self.below(8) {
                0 => Change::AnyRow(relation.table),
                1 | 2 => Change::Insert { relation, new: self.row() },
                3 => Change::Delete { relation, old: self.row() },
                _ => {
                    let old = self.row();
                    let mut new = if self.below(2) == 0 { old.clone() } else { self.row() };
                    new[2] = self.row()[2].clone();
                    for (new, old) in new.iter_mut().zip(&old) {
                        if *old == Cell::Absent && self.below(2) == 0 {
                            *new = Cell::Unchanged;
                        }
                    }
                    Change::Update { relation, old, new }
                }
            }
        }
    }

    #[test]
    fn finds_what_a_look_at_all_tags_finds() {
        let columns: Vec<Arc<str>> = COLUMNS.iter().map(|(name, _)| (*name).into()).collect();
        let relations = [1, 2].map(|table| Arc::new(Relation { table: TableId(table), columns: columns.clone() }));
        let mut random = Random(0x5EED);
        let mut index = Index::default();
        let mut nodes: HashMap<Id, Vec<Tag>> = HashMap::new();
        let mut needed = 0;
        for step in 0..1_500u64 {
            let tags: Vec<Tag> = (0..=random.below(3)).map(|_| random.tag()).collect();
            let (early, late) = tags.split_at(1);
            index.register(step, 0, early);
            index.register(step, 1, late);
            nodes.insert(step, tags);
            if step >= 60 {
                let gone = step - 1 - random.below(59);
                if let Some(tags) = nodes.remove(&gone) {
                    index.unregister(gone, &tags);
                }
            }
            let change = random.change(&relations);
            let mut found = HashSet::default();
            index.collect(&change, |id| &nodes[&id], &mut found);
            for (id, tags) in &nodes {
                let hit = tags.iter().any(|tag| tag.may_be_hit(&change));
                assert_eq!(found.contains(id), hit, "{change:?} and {tags:?}");
                needed += u64::from(hit);
            }
            if step % 500 == 0 {
                index.validate(nodes.iter().map(|(id, tags)| (*id, &**tags)));
            }
        }
        assert!(needed > 2_000, "{needed}");
        for (id, tags) in &nodes {
            index.unregister(*id, tags);
        }
        assert!(index.tables.is_empty());
    }

    #[test]
    fn no_more_are_tested_than_that_many() {
        let column = ComparedColumn { name: "title".into(), value_type: ValueType::FoldedText };
        let value = column.value_type.normalise_text(b"t1").unwrap();
        let term = Term { column, test: Test::Not([value].into()) };
        let rows = RowSet::Where([term].into());
        let tags = [Tag { table: TableId(1), rows, columns: Columns::All }];
        let relation = Arc::new(Relation { table: TableId(1), columns: ["title".into()].into() });
        let hits = |index: &Index, title: &str| {
            let row = [Cell::Text(title.as_bytes().into())].into();
            let mut ids = HashSet::default();
            index.collect(&Change::Insert { relation: relation.clone(), new: row }, |_| &tags, &mut ids);
            ids.len()
        };
        let mut index = Index::default();
        let (tested, all) = (u64::from(TESTED_MAX), u64::from(TESTED_MAX) + 10);
        (0..all).for_each(|id| index.register(id, 0, &tags));
        index.validate((0..all).map(|id| (id, &tags[..])));
        assert_eq!((hits(&index, "t2"), hits(&index, "T1")), (1_034, 10));
        // Both kinds are found again.
        (tested - 5..tested + 5).for_each(|id| index.unregister(id, &tags));
        assert_eq!((hits(&index, "t2"), hits(&index, "T1")), (1_024, 5));
        index.register(all, 0, &tags);
        assert_eq!((hits(&index, "t2"), hits(&index, "T1")), (1_025, 5));
        let left = (0..tested - 5).chain(tested + 5..=all);
        index.validate(left.clone().map(|id| (id, &tags[..])));
        left.for_each(|id| index.unregister(id, &tags));
        assert!(index.tables.is_empty());
    }
}
