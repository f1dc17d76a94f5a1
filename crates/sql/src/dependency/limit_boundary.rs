//! Where a page ends that the answer does not show.
//!
//! `SELECT title FROM post ORDER BY published DESC LIMIT 10` shows no sort key; `x IN (SELECT id FROM t ORDER BY id LIMIT 3)`, a sorted branch of
//! a UNION, or a page whose rows are counted, show nothing of theirs. How far such rows reach is asked for: the key of the row that would be the last one,
//! by a statement of its own, with those for keys of other rows (`join_keys.rs`).
//!
//! # Why this is sound
//!
//! Let a query, wherever it stands, sort by `R.b` first and show k rows behind o others, without WHERE (or `WHERE 1=1`), so that each row of R makes at least one row that
//! is sorted. Let B be the key of row o + k of R alone, in that order. Then at least o + k sorted rows have a key no further than B, and *no
//! further than B* is a sound predicate of R, as in `limit_bound.rs`: what the query shows is made of rows of R up to B, whatever else it is
//! joined with and whatever the rows of the others are.
//!
//! * **Each row makes one** if R is the only item of FROM, or the first of a chain of LEFT JOINs: there it is extended with NULLs where it meets no other row. Not with
//!   DISTINCT, HAVING, or functions that may make any number of rows of one, none among them. GROUP BY may name a key of R: then a
//!   group holds no two rows of R, and each row is in one.
//! * **Other states.** B is read after the answer. As long as no row up to B changed since, R has o + k rows up to B in the answer's state, too; and what
//!   changed is found among the commits that raced the fill, as with all deferred tags.
//! * **Fewer rows** than o + k: any row matters. So it is if the key is NULL and NULLs come last; where they come first, the rows with NULL matter, as in `limit_bound.rs`.
//! * Of partitions and of tables with children nothing is asked; of a table that is one, its own rows alone (`ONLY`).
//!
//! Keys lead from the rows up to B to those of other tables (`join_keys.rs`), as from other rows that a sound predicate leaves: read by the same statement, which looks
//! for B itself. Where there is no B, or it is NULL, these keys are not all: any row of those tables matters.
//!
//! It is asked only for references of which any row would matter otherwise: what the answer tells costs nothing.

use freshet_types::{ComparedColumn, Dialect, Test};

use crate::analysis::{Order, Paged, ReadSet};
use crate::dependency::answer::{Field, up_to};
use crate::dependency::query_text::{as_text, quoted};
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::bind::Rows;
use crate::predicate::parameters::{ParameterValue, Params};

/// Ends that are asked for, for one statement.
const ENDS_MAX: usize = 4;

/// What is asked for: the key of the last of so many rows.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The reference, among those of the whole statement.
    pub(crate) place: usize,
    /// Its table, and the column.
    from: String,
    key: String,
    column: ComparedColumn,
    order: Order,
    /// Rows before the last one.
    before: u64,
    dialect: Dialect,
}

impl End {
    /// The question, behind SELECT.
    pub(crate) fn sql(&self) -> String {
        self.row("t0", &as_text(self.dialect, &format!("t0.{}", self.key)))
    }

    /// A condition on rows of the table, under that name: true of those up to the end, if there is one and its key is not NULL.
    pub(crate) fn condition(&self, name: &str) -> String {
        let Self { key, order, .. } = self;
        let compares = if order.descending { ">=" } else { "<=" };
        let nulls = if order.nulls_first { format!(" OR {name}.{key} IS NULL") } else { String::new() };
        format!("({name}.{key} {compares} (SELECT {}){nulls})", self.row("e0", &format!("e0.{key}")))
    }

    /// What the last row shows.
    fn row(&self, name: &str, shown: &str) -> String {
        let Self { from, key, order, before, dialect, .. } = self;
        let direction = if order.descending { " DESC" } else { "" };
        let nulls = match order.nulls_first {
            _ if dialect.is_mysql_family() => "",
            true => " NULLS FIRST",
            false => " NULLS LAST",
        };
        format!("{shown} FROM {from} {name} ORDER BY {name}.{key}{direction}{nulls} LIMIT 1 OFFSET {before}")
    }

    /// Whether these keys are one that is not NULL and says which rows matter.
    pub(crate) fn is_known(&self, keys: &[Option<&[u8]>]) -> bool {
        matches!(keys, [Some(_)]) && self.tests(keys).is_some()
    }

    /// Which rows matter if these are the keys that were read; None: any row.
    pub(crate) fn tests(&self, keys: &[Option<&[u8]>]) -> Option<Vec<Test>> {
        let [key] = keys else { return None };
        up_to(&self.column, self.order, key.map_or(Field::Null, Field::Text), true)
    }

    pub(crate) fn column(&self) -> &ComparedColumn {
        &self.column
    }
}

impl ReadSet {
    /// The ends to ask for: of references of which any row would matter, and of which this is not true.
    pub(crate) fn ends(&self, rows: &[Rows], is_told: impl Fn(usize) -> bool, params: Params<'_>) -> Vec<End> {
        let open = |paged: &&Paged| rows.get(paged.place).is_some_and(Option::is_none) && !is_told(paged.place);
        self.limits.paged.iter().filter(open).filter_map(|paged| self.end(paged, params)).take(ENDS_MAX).collect()
    }

    fn end(&self, paged: &Paged, params: Params<'_>) -> Option<End> {
        let Paged { place, column, order, limit, offset, equal } = paged;
        let number = |number: u32| match params.get_number(number)?.value {
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => Some(text),
            _ => None,
        };
        let is_true = |[one, two]: &[u32; 2]| number(*one).is_some_and(|one| number(*two) == Some(one));
        if !equal.iter().all(is_true) {
            return None;
        }
        let before = match offset {
            Some(offset) => self.rows_max(Some(*offset), params)?,
            None => 0,
        };
        let last = self.rows_max(*limit, params)?.checked_sub(1)?.checked_add(before)?;
        let table = &self.references.get(*place)?.table;
        let quoted = |name: &str| quoted(self.dialect, name);
        let only = if self.dialect.is_mysql_family() { "" } else { "ONLY " };
        Some(End {
            place: *place,
            from: format!("{only}{}.{}", quoted(&table.schema), quoted(&table.name)),
            key: quoted(&column.name),
            column: column.clone(),
            order: *order,
            before: last,
            dialect: self.dialect,
        })
    }

    /// For people: the column up to whose value at the page's end rows matter. The first `unknown` parameters are not known yet.
    pub(crate) fn described_end(&self, place: usize, params: Params<'_>, unknown: u16) -> Option<&ComparedColumn> {
        let paged = self.limits.paged.iter().find(|paged| paged.place == place)?;
        self.may_limit(paged.limit, params, unknown).then_some(&paged.column)
    }
}
