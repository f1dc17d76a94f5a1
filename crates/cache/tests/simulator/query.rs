//! The queries that clients run: what they answer on a state, and the tags that a planner would give them.

use freshet_model::{PointColumn, RowSet, Tag, Value};

use crate::database::{COLUMNS, KEYS, Row, State, TABLES, VALUES, spell, table_id};
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
}

pub(crate) type Answer = Vec<[Option<u8>; 8]>;

impl Query {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let table = rng.below(TABLES as u64) as usize;
        let other = rng.below(TABLES as u64) as usize;
        match rng.below(8) {
            0 | 1 => Self::Rows(table, vec![(0, rng.below(KEYS) as u8)]),
            2 => Self::Rows(table, filter(rng, 1)),
            3 => Self::Rows(table, filter(rng, 2)),
            4 => Self::CountNulls(table, rng.between(1, 3) as usize),
            5 => Self::Join(table, filter(rng, 1), other),
            6 => Self::Product(table, filter(rng, 1), other, filter(rng, 2)),
            _ => Self::Without(table, filter(rng, 1), other),
        }
    }

    pub(crate) fn key(&self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }

    pub(crate) fn tables(&self) -> Vec<usize> {
        match self {
            Self::Rows(t, _) | Self::CountNulls(t, _) => vec![*t],
            Self::Join(t, _, u) | Self::Product(t, _, u, _) | Self::Without(t, _, u) => vec![*t, *u],
        }
    }

    pub(crate) fn tags(&self) -> Vec<Tag> {
        match self {
            Self::Rows(t, f) => vec![point(*t, f)],
            Self::CountNulls(t, _) => vec![any(*t)],
            Self::Join(t, f, u) | Self::Without(t, f, u) => vec![point(*t, f), any(*u)],
            Self::Product(t, f, u, g) => vec![point(*t, f), point(*u, g)],
        }
    }

    pub(crate) fn answer(&self, state: &State) -> Answer {
        let rows = |t: &usize, f: &Filter| -> Vec<Row> {
            state[*t].values().filter(|row| f.iter().all(|(c, v)| row[*c] == Some(*v))).copied().collect()
        };
        let every = Filter::new();
        match self {
            Self::Rows(t, f) => rows(t, f).iter().map(|row| pair(*row, [None; 4])).collect(),
            Self::CountNulls(t, c) => {
                let count = state[*t].values().filter(|row| row[*c].is_none()).count() as u8;
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

fn any(table: usize) -> Tag {
    Tag { table: table_id(table), rows: RowSet::Any }
}

fn point(table: usize, filter: &Filter) -> Tag {
    let column = |(c, v): &(usize, u8)| -> (PointColumn, Value) {
        let (name, value_type) = COLUMNS[*c];
        let value = value_type.normalise_text(spell(*c, *v, 0).as_bytes()).expect("a normal form");
        (PointColumn { name: name.into(), value_type }, value)
    };
    let mut columns: Vec<_> = filter.iter().map(column).collect();
    columns.sort();
    Tag { table: table_id(table), rows: RowSet::Point(columns.into()) }
}

fn pair(left: Row, right: Row) -> [Option<u8>; 8] {
    [left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]]
}
