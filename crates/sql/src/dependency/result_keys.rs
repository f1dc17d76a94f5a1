//! Result keys: leaving rows of the answer are found by their keys, if old images have few columns or no other row matters.
//!
//! Of an old row, PostgreSQL logs only the columns of the table's replica identity, unless that is FULL. By this image, each update or delete
//! anywhere in the table may have removed a row from `author_id = 5`. But the answer itself says which rows it is made of, if it contains their keys.
//!
//! # Why this is sound
//!
//! Let R be a table reference of the outermost block, T a sound predicate of R, and K the values of the identity's columns in all rows of the answer.
//! Then the answer stays the same as long as no row of R *enters T or changes within T*, and no row whose key is in K is deleted or changed:
//!
//! * Each joined row has a row of R, since R is on no nullable side. A row of R whose key is not in K is in no joined row of the answer. If it
//!   leaves, joined rows disappear that were not in the answer; without GROUP BY, aggregates, DISTINCT, window functions and OFFSET nothing else is
//!   computed from them. With LIMIT the first rows stay the first.
//! * A row that enters T, or changes within it, has a new image that satisfies T: [`RowSet::Enters`]. New images are complete except for unchanged
//!   values, which pass every test.
//! * Sub-queries that read the same table have references and tags of their own.
//! * Several references may use result keys at once: deleting rows that are not in the answer adds no others to it.
//! * Join paths from R to other tables (`join_keys.rs`) may be read after such a row left, and then lack its value. The row is in no joined row that
//!   the result contains any more, whatever these tables contain; and a change that brings it back enters.
//!
//! The keys have the answer's snapshot, and both tags are added when the fill ends: a commit that the answer does not reflect is among those that
//! arrived during the fill, as with all deferred tags.
//!
//! **LIMIT** bounds the rows that enter (`limit_bound.rs`): a row behind the last one is not in the answer.
//!
//! The old image always has the identity's columns, or it lacks them and passes every test. Which columns these are need not be exact here: wrong
//! ones would be missing in the image, and would only cost precision.
//!
//! If old images are complete (REPLICA IDENTITY FULL; MySQL, unless `binlog_row_image` says otherwise), T alone is as precise.
//!
//! # Unordered LIMIT
//!
//! Without ORDER BY the server may return any rows: any k rows of the result without LIMIT are a correct answer. Let the answer have k rows. Then it
//! stays correct as long as no row whose key is in K is deleted or changed, whatever happens to other rows:
//!
//! * Each of its rows was made of rows of R with keys in K, and would be made if R had no other rows. It still is, since rows of R neither remove
//!   other rows of the result nor change them: R is on no nullable side, and nothing reads more than one row.
//! * This holds for each such reference by itself. The tags of the other references hold whatever rows R has, also fewer. So join paths from R to
//!   them start at the rows of these keys alone, if the answer has k rows.
//!
//! If the answer has fewer than k rows, these are all: then entering rows matter, as without LIMIT. The key is that of the replica identity, or the
//! primary key. It need not be unique here: another row with the same key invalidates, too.
//!
//! # References without conditions
//!
//! Let T be true of any row (`ORDER BY` a text and LIMIT, a function of a column). With complete images, any change would invalidate if only the
//! mentioned columns counted. But the columns that select rows (`analyze/mentioned_columns.rs`) may be fewer than those that the statement mentions.
//! A row whose key is not in K is in no joined row of the answer. As long as its selecting columns do not change, neither does whether it is in the
//! answer nor its place. So beside the keys there is a tag of all rows that *enter by a change of the selecting columns*. ORDER BY selects rows only
//! with LIMIT; if it refers to the SELECT list by name or number, it may refer to any expression there, and this rule does not apply. Nor does it
//! without WHERE and LIMIT, where the answer contains all rows.
//!
//! If there are more than [`KEYS_MAX`] keys, or one cannot be read, T is tested on old and new images, as without result keys.

use std::collections::BTreeSet;

use freshet_types::{Columns, ComparedColumn, ReplicaIdentity, RowSet, TableId, Tag, Term, Test, Value};

use crate::analysis::{ReadSet, ResultKey, RowLimit, TableReference};
use crate::dependency::answer::{Field, shown_value};
use crate::dependency::derived_limit::AnswerEnd;
use crate::dependency::join_keys::JoinKeys;
use crate::dependency::key_query::KEYS_MAX;
use crate::dependency::limit_bound::LimitBound;
use crate::dependency::query_text::quoted;
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::Params;

/// For EXPLAIN CACHE: what identifies the rows of an answer.
pub(crate) const BY_KEYS: &str = "the keys of the answer's rows";

const BY_VALUES: &str = "the values of the answer's rows";

/// The result keys of an answer.
#[derive(Clone, Debug)]
pub struct Keys {
    tables: Vec<KeyedTable>,
    /// Texts of the answer are in UTF-8.
    utf8: bool,
}

/// The result keys of one table reference.
#[derive(Clone, Debug)]
struct KeyedTable {
    result_key: ResultKey,
    table: TableId,
    columns: Columns,
    rows: Rows,
    /// The old image of a leaving row has its key only, which its predicate does not test.
    old_by_key: bool,
    /// The LIMIT bound of its rows.
    limit_bound: Option<LimitBound>,
    /// An unordered LIMIT: an answer with this many rows may consist of any rows.
    limit: Option<u64>,
    /// With fewer keys, some keys of the derived table may be missing.
    least: Option<usize>,
    /// Of all other rows only a change of the selecting columns matters.
    spares: bool,
}

impl Keys {
    /// The columns of the answer that are read.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let keys = self.tables.iter().flat_map(|table| table.result_key.key.iter().map(|(_, at)| *at));
        keys.chain(self.tables.iter().filter_map(|table| table.limit_bound.as_ref()).map(LimitBound::column))
    }

    /// The places of the references.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.tables.iter().map(|table| table.result_key.place)
    }

    /// The tags of an answer with these rows and this end; `read` returns the values of one row.
    pub fn deferred_tags<'a, R>(
        &self,
        rows: impl Iterator<Item = R>,
        read: impl Fn(&R) -> Vec<Field<'a>>,
        end: &AnswerEnd<'_>,
        mut join_keys: Option<&mut JoinKeys>,
    ) -> Vec<Tag> {
        // The values of each key column; None if they cannot be read.
        let mut known: Vec<_> =
            self.tables.iter().map(|table| Some(vec![BTreeSet::new(); table.result_key.key.len()])).collect();
        let mut count = 0;
        for row in rows {
            if known.iter().any(Option::is_some) {
                let fields = read(&row);
                for (table, known) in self.tables.iter().zip(&mut known) {
                    known.take_if(|values| table.add(values, &fields, self.utf8).is_none());
                }
            }
            count += 1;
        }
        let tables = self.tables.iter().zip(known);
        tables.flat_map(|(table, known)| table.tags(known, count, end, join_keys.as_deref_mut())).collect()
    }
}

impl KeyedTable {
    /// Adds the key in a row. None if it cannot be read or there are too many.
    fn add(&self, values: &mut [BTreeSet<Value>], row: &[Field<'_>], utf8: bool) -> Option<()> {
        if row.len() != self.result_key.width {
            return None;
        }
        for ((column, at), values) in self.result_key.key.iter().zip(values) {
            values.insert(shown_value(column, *row.get(*at)?, utf8)?);
            if values.len() > KEYS_MAX {
                return None;
            }
        }
        Some(())
    }

    /// The tags of an answer with `rows` rows, this end, and these values in its key columns.
    fn tags(
        &self,
        known: Option<Vec<BTreeSet<Value>>>,
        count: u64,
        end: &AnswerEnd<'_>,
        join_keys: Option<&mut JoinKeys>,
    ) -> Vec<Tag> {
        // Whether the keys are at least `least`, so that they are those of all rows.
        let is_all = |known: &Vec<BTreeSet<Value>>| {
            self.least.is_none_or(|least| known.iter().any(|values| values.len() >= least))
        };
        let known = known.filter(is_all);
        let by_keys = |known: Vec<BTreeSet<Value>>| {
            let keys = self.result_key.key.iter().zip(known);
            let test = |values: BTreeSet<Value>| Test::In(values.into_iter().collect());
            let mut terms: Vec<Term> =
                keys.map(|((column, _), values)| Term { column: column.clone(), test: test(values) }).collect();
            terms.sort_unstable_by(|a, b| a.column.cmp(&b.column));
            Some(terms).filter(|_| count > 0)
        };
        let is_any_right = self.limit.is_some_and(|limit| self.least.is_some() || count >= limit);
        let known = match known {
            Some(known) if is_any_right => {
                let terms = by_keys(known);
                if let Some((join_keys, terms)) = join_keys.zip(terms.as_deref()) {
                    join_keys.bound_by_keys(self.result_key.place, terms);
                }
                return terms.map(|terms| self.tag(RowSet::Where(terms.into()))).into_iter().collect();
            }
            known => known.filter(|_| self.old_by_key || self.spares),
        };
        let conjunctions = match &self.limit_bound {
            Some(limit_bound) => limit_bound.conjunctions(end.rows, &end.last),
            None => self.rows.clone().unwrap_or_else(|| vec![Vec::new()]),
        };
        if conjunctions.iter().any(Vec::is_empty) && (known.is_none() || !self.spares) {
            return vec![self.tag(RowSet::Any)];
        }
        let conjunctions = conjunctions.into_iter().map(Vec::into_boxed_slice);
        match known {
            None => conjunctions.map(|terms| self.tag(RowSet::Where(terms))).collect(),
            Some(known) => {
                let by_keys = by_keys(known).map(|terms| self.tag(RowSet::Where(terms.into())));
                let columns = if self.spares { &self.result_key.selecting } else { &self.columns };
                let enters = |terms| Tag { table: self.table, rows: RowSet::Enters(terms), columns: columns.clone() };
                conjunctions.map(enters).chain(by_keys).collect()
            }
        }
    }

    fn tag(&self, rows: RowSet) -> Tag {
        Tag { table: self.table, rows, columns: self.columns.clone() }
    }
}

impl ResultKey {
    /// Whether the old image of a row may lack a column that these conjunctions or the bound compare.
    fn lacks(&self, rows: &Rows, bound: Option<&ComparedColumn>) -> bool {
        let in_key = |column: &ComparedColumn| self.key.iter().any(|(of_key, _)| of_key == column);
        let is_told =
            |terms: &[Term]| terms.iter().map(|term| &term.column).chain(bound).all(in_key) || self.is_point(terms);
        self.old_by_key && !rows.as_ref().map_or_else(|| is_told(&[]), |rows| rows.iter().all(|terms| is_told(terms)))
    }

    /// Whether an unordered LIMIT, for which `limits` is true, restricts the rows of that reference.
    fn is_bounded_by_answer(&self, place: usize, rows: &Rows, limits: impl Fn(RowLimit) -> bool) -> bool {
        self.place == place && self.limit.is_some_and(limits) && self.exceeds(rows)
    }

    /// Whether the rule for references without conditions applies; `mentioned` are the columns that the statement mentions.
    fn spares(&self, rows: &Rows, mentioned: &Columns) -> bool {
        let fewer = match (&self.selecting, mentioned) {
            (Columns::Only(selecting), Columns::Only(mentioned)) => selecting.len() < mentioned.len(),
            (Columns::Only(_), Columns::All) => true,
            (Columns::All, _) => false,
        };
        let selects = matches!(&self.selecting, Columns::Only(selecting) if !selecting.is_empty());
        rows.is_none() && self.is_selected && !self.old_by_key && self.derived_limit.is_none() && selects && fewer
    }

    /// Whether these are more rows than those of some keys. Some values say more than a predicate that is true of any row, but not more than another
    /// predicate.
    fn exceeds(&self, rows: &Rows) -> bool {
        if self.by_value {
            return rows.is_none();
        }
        !rows.as_ref().is_some_and(|rows| rows.iter().all(|terms| self.is_point(terms)))
    }

    fn is_point(&self, terms: &[Term]) -> bool {
        bind::is_point(self.key.iter().map(|(column, _)| &column.name), terms)
    }
}

impl ReadSet {
    /// The result keys of an execution, except of references in `told`.
    pub(crate) fn keys(
        &self,
        rows: &[Rows],
        told: &[usize],
        limit_bound: Option<&LimitBound>,
        params: Params<'_>,
    ) -> Option<Keys> {
        let tables = self.limits.result_keys.iter().filter(|result_key| !told.contains(&result_key.place)).filter_map(
            |result_key| {
                let (reference, rows) = (self.references.get(result_key.place)?, rows.get(result_key.place)?);
                let limit_bound = limit_bound.filter(|limit_bound| limit_bound.place() == result_key.place);
                let limit = result_key
                    .limit
                    .and_then(|limit| self.rows_max(limit, params))
                    .filter(|_| result_key.exceeds(rows));
                let least = match result_key.derived_limit {
                    Some(limit) => Some(self.rows_max(limit, params)?.try_into().ok()?),
                    None => None,
                };
                let old_by_key = result_key.lacks(rows, limit_bound.map(LimitBound::sorted_by));
                let spares = limit_bound.is_none() && result_key.spares(rows, &reference.columns);
                (old_by_key || limit.is_some() || spares).then(|| KeyedTable {
                    result_key: result_key.clone(),
                    table: reference.table.id,
                    columns: reference.columns.clone(),
                    rows: rows.clone(),
                    old_by_key,
                    limit_bound: limit_bound.cloned(),
                    limit,
                    least,
                    spares,
                })
            },
        );
        let tables: Vec<KeyedTable> = tables.collect();
        (!tables.is_empty()).then_some(Keys { tables, utf8: params.client.utf8 })
    }

    /// Whether a full answer shows all rows of the reference that matter, by their keys, so that join paths start at these.
    pub(crate) fn is_bounded_by_answer(&self, place: usize, rows: &Rows, params: Params<'_>) -> bool {
        let limits = |limit| self.rows_max(limit, params).is_some_and(|limit| limit > 0);
        self.limits
            .result_keys
            .iter()
            .any(|result_key| result_key.is_bounded_by_answer(place, rows, limits) && !result_key.by_value)
    }

    /// For EXPLAIN CACHE: whether leaving rows of the reference are found by the answer's keys. `bound` is the column that bounds its rows.
    pub(crate) fn is_keyed(&self, place: usize, rows: &Rows, bound: Option<&ComparedColumn>) -> bool {
        self.limits.result_keys.iter().any(|result_key| result_key.place == place && result_key.lacks(rows, bound))
    }

    /// For EXPLAIN CACHE: the tables that log only the columns of their replica identity of old rows, though the statement mentions others, with the
    /// statement that makes them log all columns.
    pub fn identity_hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        for TableReference { table, columns, .. } in &self.references {
            let ReplicaIdentity::Columns(identity) = &table.identity else { continue };
            let mentioned = match columns {
                Columns::All => "all of its columns".to_owned(),
                Columns::Only(names) => {
                    let names: Vec<&str> =
                        names.iter().filter(|name| !identity.contains(name)).map(|name| &**name).collect();
                    if names.is_empty() {
                        continue;
                    }
                    names.join(", ")
                }
            };
            let [schema, name] = [&table.schema, &table.name].map(|name| quoted(self.dialect, name));
            let remedy = if self.dialect.is_mysql_family() {
                "; more exact with SET GLOBAL binlog_row_image = FULL".to_owned()
            } else if table.columns.iter().any(|column| column.generated) {
                // PostgreSQL 18 refuses updates of some such tables then, as long as they are published.
                String::new()
            } else {
                format!("; more exact with ALTER TABLE {schema}.{name} REPLICA IDENTITY FULL")
            };
            let hint = format!(
                "{}.{} logs of old rows only {}: its updates and deletes may invalidate this whatever the rows held in {mentioned}, \
                 unless the rows that matter are few enough to be told by their keys{remedy}",
                table.schema,
                table.name,
                identity.join(", "),
            );
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints
    }

    /// For EXPLAIN CACHE: the columns by whose change rows outside the answer come to matter.
    pub(crate) fn described_spared(&self, place: usize, rows: &Rows) -> Option<&Columns> {
        let mentioned = &self.references.get(place)?.columns;
        let result_key = self
            .limits
            .result_keys
            .iter()
            .find(|result_key| result_key.place == place && result_key.spares(rows, mentioned))?;
        Some(&result_key.selecting)
    }

    /// The same for an unordered LIMIT with as many rows: what identifies them.
    pub(crate) fn described_open(
        &self,
        place: usize,
        rows: &Rows,
        params: Params<'_>,
        unknown: u16,
    ) -> Option<&'static str> {
        let may_limit = |limit| self.may_limit(limit, params, unknown);
        let result_key = self
            .limits
            .result_keys
            .iter()
            .find(|result_key| result_key.is_bounded_by_answer(place, rows, may_limit))?;
        Some(if result_key.by_value { BY_VALUES } else { BY_KEYS })
    }
}
