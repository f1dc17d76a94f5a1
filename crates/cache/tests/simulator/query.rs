//! The queries of clients: their answers on a state, and the tags that a planner would give them.

use std::sync::Arc;

use freshet_types::{Columns, ComparedColumn, NamedRows, RowSet, Tag, Term, Test, Value};

use crate::database::{COLUMNS, KEYS, Row, State, TABLES, VALUES, VIEWS, Views, spell, table_id};
use crate::rng::Rng;

/// A conjunction of column = value.
pub(crate) type Filter = Vec<(usize, u8)>;

#[derive(Clone, Debug)]
pub(crate) enum Query {
    /// `SELECT * FROM t WHERE …`
    Rows(usize, Filter),
    /// `SELECT count(*) FROM t WHERE c IS NULL`
    CountNulls(usize, usize),
    /// `SELECT … FROM t JOIN u ON t.a = u.a WHERE filter on t`
    Join(usize, Filter, usize),
    /// `SELECT … FROM t, u WHERE filter on t AND filter on u`
    Product(usize, Filter, usize, Filter),
    /// `SELECT * FROM t WHERE filter AND NOT EXISTS (SELECT FROM u WHERE u.b = t.b)`
    Without(usize, Filter, usize),
    /// `SELECT * FROM view WHERE …`
    Seen(usize, Filter),
    /// `SELECT * FROM t WHERE c IN (…)`
    Among(usize, usize, Vec<u8>),
    /// `SELECT * FROM t WHERE c >= value`
    Above(usize, usize, u8),
    /// `SELECT * FROM t WHERE … OR …`
    Either(usize, Filter, Filter),
    /// `SELECT c FROM t WHERE …`
    Column(usize, Filter, usize),
    /// `SELECT * FROM t WHERE …`, with result keys.
    Listed(usize, Filter),
    /// `SELECT count(*) FROM t WHERE …`, with member keys.
    Counted(usize, Filter),
}

pub(crate) type Answer = Vec<[Option<u8>; 8]>;

impl Query {
    /// `of_views`: most queries of the run read views.
    pub(crate) fn random(rng: &mut Rng, of_views: bool) -> Self {
        let table = rng.below(TABLES as u64) as usize;
        let other = rng.below(TABLES as u64) as usize;
        match if of_views { rng.between(0, 21) } else { rng.below(15) } {
            0 | 1 => Self::Rows(table, vec![(0, rng.below(KEYS) as u8)]),
            9 => Self::Among(table, rng.between(1, 3) as usize, (0..2).map(|_| rng.below(VALUES) as u8).collect()),
            10 => Self::Above(table, [1, 3][rng.below(2) as usize], rng.below(VALUES) as u8),
            11 => Self::Either(table, filter(rng, 1), filter(rng, 2)),
            12 => Self::Column(table, filter(rng, 1), rng.between(1, 3) as usize),
            2 => Self::Rows(table, filter(rng, 1)),
            3 => Self::Rows(table, filter(rng, 2)),
            4 => Self::CountNulls(table, rng.between(1, 3) as usize),
            5 => Self::Join(table, filter(rng, 1), other),
            6 => Self::Product(table, filter(rng, 1), other, filter(rng, 2)),
            7 => Self::Without(table, filter(rng, 1), other),
            13 => Self::Listed(table, filter(rng, 1)),
            14 => Self::Counted(table, filter(rng, 1)),
            _ => Self::Seen(rng.below(VIEWS as u64) as usize, filter(rng, 1)),
        }
    }

    pub(crate) fn key(&self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }

    /// The relations that it reads, with these views.
    pub(crate) fn relations(&self, views: &Views) -> Vec<usize> {
        match self {
            Self::Seen(v, _) => vec![TABLES + v, views[*v]],
            Self::Rows(t, _)
            | Self::CountNulls(t, _)
            | Self::Among(t, ..)
            | Self::Above(t, ..)
            | Self::Either(t, ..)
            | Self::Column(t, ..)
            | Self::Listed(t, _)
            | Self::Counted(t, _) => vec![*t],
            Self::Join(t, _, u) | Self::Product(t, _, u, _) | Self::Without(t, _, u) => vec![*t, *u],
        }
    }

    /// Its tags, with these views.
    pub(crate) fn tags(&self, views: &Views) -> Vec<Tag> {
        match self {
            Self::Seen(v, f) => {
                vec![tag(TABLES + v, RowSet::Definition), point(views[*v], f)]
            }
            Self::Rows(t, f) => vec![point(*t, f)],
            Self::Listed(t, _) | Self::Counted(t, _) => vec![tag(*t, RowSet::Later)],
            Self::CountNulls(t, c) => {
                vec![tag(*t, RowSet::Where([Term { column: column(*c), test: Test::Null }].into()))]
            }
            Self::Join(t, f, u) | Self::Without(t, f, u) => vec![point(*t, f), tag(*u, RowSet::Later)],
            Self::Product(t, f, u, g) => vec![point(*t, f), point(*u, g)],
            Self::Among(t, c, values) => vec![tag(*t, RowSet::Where([among(*c, values)].into()))],
            Self::Above(t, c, low) => {
                let test = Test::Within { low: value(*c, *low).order_key(), high: u64::MAX };
                vec![tag(*t, RowSet::Where([Term { column: column(*c), test }].into()))]
            }
            Self::Either(t, f, g) => vec![point(*t, f), point(*t, g)],
            Self::Column(t, f, c) => {
                let mut names: Vec<Arc<str>> =
                    f.iter().map(|(c, _)| *c).chain([*c]).map(|c| COLUMNS[c].0.into()).collect();
                names.sort();
                names.dedup();
                vec![Tag { columns: Columns::Only(names.into()), ..point(*t, f) }]
            }
        }
    }

    /// The tags that commits are tested with during the fill until the deferred tags of [`Self::late`] apply, if other than these.
    pub(crate) fn until_known(&self) -> Option<Vec<Tag>> {
        if let Self::Counted(t, f) = self { Some(vec![point(*t, f)]) } else { None }
    }

    /// The rows that the tags name.
    pub(crate) fn named(&self) -> Option<NamedRows> {
        let Self::Counted(t, _) = self else { return None };
        Some(NamedRows { table: table_id(*t), key: [column(0)].into(), columns: Columns::All })
    }

    /// The table whose rows lead to those of another.
    pub(crate) fn leader(&self) -> Option<usize> {
        match self {
            Self::Join(t, ..) | Self::Without(t, ..) => Some(*t),
            _ => None,
        }
    }

    /// The deferred tag among [`Self::tags`], if the answer gives it.
    pub(crate) fn told(&self, answer: &Answer) -> Option<Vec<Tag>> {
        let Self::Listed(t, f) = self else { return None };
        let keys: Vec<u8> = answer.iter().filter_map(|row| row[0]).collect();
        Some(members(*t, f, &keys))
    }

    /// The same from a key query that sees this state.
    pub(crate) fn late(&self, state: &State) -> Vec<Tag> {
        if let Self::Counted(t, f) = self {
            let keys: Vec<u8> = rows(state, *t, f).iter().filter_map(|row| row[0]).collect();
            return members(*t, f, &keys);
        }
        let (Self::Join(t, f, u) | Self::Without(t, f, u)) = self else { return Vec::new() };
        let by = if matches!(self, Self::Join(..)) { 1 } else { 2 };
        let mut keys: Vec<u8> = rows(state, *t, f).iter().filter_map(|row| row[by]).collect();
        keys.sort_unstable();
        keys.dedup();
        match keys.len() {
            0 => Vec::new(),
            // More keys than the limit.
            4.. => vec![tag(*u, RowSet::Any)],
            _ => vec![tag(*u, RowSet::Where([among(by, &keys)].into()))],
        }
    }

    pub(crate) fn answer(&self, state: &State) -> Answer {
        let rows = |t: &usize, f: &Filter| rows(state, *t, f);
        let alone = |row: &Row| pair(*row, [None; 4]);
        let those = |t: &usize, wanted: &dyn Fn(&Row) -> bool| {
            state.tables[*t].values().filter(|row| wanted(row)).map(alone).collect()
        };
        let every = Filter::new();
        match self {
            Self::Seen(v, f) => rows(&state.views[*v], f).iter().map(|row| pair(*row, [None; 4])).collect(),
            Self::Rows(t, f) | Self::Listed(t, f) => rows(t, f).iter().map(|row| pair(*row, [None; 4])).collect(),
            Self::Among(t, c, values) => those(t, &|row| row[*c].is_some_and(|v| values.contains(&v))),
            Self::Above(t, c, low) => those(t, &|row| row[*c].is_some_and(|v| v >= *low)),
            Self::Either(t, f, g) => those(t, &|row| meets(*row, f) || meets(*row, g)),
            Self::Column(t, f, c) => {
                let mut answer: Answer =
                    rows(t, f).iter().map(|row| [row[*c], None, None, None, None, None, None, None]).collect();
                answer.sort_unstable(); // in no order: a row may get another key
                answer
            }
            Self::Counted(t, f) => vec![[Some(rows(t, f).len() as u8), None, None, None, None, None, None, None]],
            Self::CountNulls(t, c) => {
                let count = state.tables[*t].values().filter(|row| row[*c].is_none()).count() as u8;
                vec![[Some(count), None, None, None, None, None, None, None]]
            }
            Self::Join(t, f, u) => {
                let right = rows(u, &every);
                let matching = |l: &Row| {
                    right.iter().filter(|r| l[1].is_some() && l[1] == r[1]).map(|r| pair(*l, *r)).collect::<Vec<_>>()
                };
                rows(t, f).iter().flat_map(matching).collect()
            }
            Self::Product(t, f, u, g) => {
                let right = rows(u, g);
                rows(t, f).iter().flat_map(|l| right.iter().map(|r| pair(*l, *r)).collect::<Vec<_>>()).collect()
            }
            Self::Without(t, f, u) => {
                let right = rows(u, &every);
                let lonely = |l: &&Row| !right.iter().any(|r| l[2].is_some() && l[2] == r[2]);
                rows(t, f).iter().filter(lonely).map(|l| pair(*l, [None; 4])).collect()
            }
        }
    }
}

fn filter(rng: &mut Rng, columns: usize) -> Filter {
    let first = rng.between(1, 4 - columns as u64) as usize;
    (first..first + columns).map(|c| (c, rng.below(VALUES) as u8)).collect()
}

fn meets(row: Row, filter: &Filter) -> bool {
    filter.iter().all(|(c, v)| row[*c] == Some(*v))
}

fn rows(state: &State, table: usize, filter: &Filter) -> Vec<Row> {
    state.tables[table].values().filter(|row| meets(**row, filter)).copied().collect()
}

fn tag(table: usize, rows: RowSet) -> Tag {
    Tag { table: table_id(table), rows, columns: Columns::All }
}

fn column(c: usize) -> ComparedColumn {
    ComparedColumn { name: COLUMNS[c].0.into(), value_type: COLUMNS[c].1 }
}

fn value(c: usize, v: u8) -> Value {
    COLUMNS[c].1.normalise_text(spell(c, v, 0).as_bytes()).expect("a normal form")
}

fn among(c: usize, values: &[u8]) -> Term {
    let mut values: Vec<Value> = values.iter().map(|v| value(c, *v)).collect();
    values.sort();
    values.dedup();
    Term { column: column(c), test: Test::In(values.into()) }
}

fn point(table: usize, filter: &Filter) -> Tag {
    let mut terms: Vec<Term> = filter.iter().map(|(c, v)| among(*c, &[*v])).collect();
    terms.sort_by(|a, b| a.column.cmp(&b.column));
    tag(table, RowSet::Where(terms.into()))
}

/// Rows that enter, and rows with these keys that may leave.
fn members(table: usize, filter: &Filter, keys: &[u8]) -> Vec<Tag> {
    let Tag { rows: RowSet::Where(terms), .. } = point(table, filter) else { return Vec::new() };
    let leaves = (!keys.is_empty()).then(|| tag(table, RowSet::Where([among(0, keys)].into())));
    leaves.into_iter().chain([tag(table, RowSet::Enters(terms))]).collect()
}

fn pair(left: Row, right: Row) -> [Option<u8>; 8] {
    [left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]]
}
