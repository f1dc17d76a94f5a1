//! Rows of the answer that go are told by their keys, where images of old rows say little else, or no other row matters.
//!
//! PostgreSQL logs of an old row the columns of the table's replica identity alone, unless that is FULL. So an update or delete
//! anywhere in the table may have taken a row out of `author_id = 5`, as far as the image of it tells. But the answer itself
//! says which rows are in it, if it shows their keys.
//!
//! # Why this is sound
//!
//! Let R be a table reference of the outermost block, T a sound predicate of R, and K the values of the identity's columns in
//! all rows of the answer. Then the answer stays what it is as long as no row of R *comes to satisfy T, or is changed within
//! T*, and no row whose key is in K goes or changes:
//!
//! * Each joined row holds a row of R, since R is on no nullable side. A row of R whose key is not in K is in no joined row that
//!   the answer shows. If it goes, or comes to fail T, joined rows go that were not shown: nothing else is made of them without
//!   GROUP BY, aggregates, DISTINCT, window functions and OFFSET. With LIMIT the first rows stay the first.
//! * Whatever comes to satisfy T, or changes and satisfies it still, has a new image that does: [`RowSet::Enters`]. New images
//!   are whole, but for what did not change, which passes every test.
//! * Sub-queries that read the same table have references and tags of their own.
//! * Several references may be told so at once: taking rows away that are not shown shows no others.
//! * Keys that lead from R to other tables (`join_keys.rs`) may be read after such a row went, and then lack its value. The
//!   row is in no joined row any more that the result is to show, whatever these tables hold; and what brings it back enters.
//!
//! The keys are of the answer's snapshot, and both tags are told when the fill ends: a commit that the answer does not reflect
//! is found among those that raced the fill, as with all deferred tags.
//!
//! **LIMIT** bounds the rows that enter (`limit_bound.rs`): what comes behind the last row is not shown.
//!
//! The old image always has the identity's columns, or lacks them and passes every test. It need not be known here which
//! columns these are: other ones would be absent, and cost precision alone.
//!
//! Where old images are whole (REPLICA IDENTITY FULL; MySQL, unless `binlog_row_image` says otherwise) T is as precise by itself.
//!
//! # LIMIT without ORDER BY
//!
//! It leaves open which rows are shown: any k of those that there are without it are a right answer. Let the answer have k rows.
//! Then it stays a right one as long as no row whose key is in K goes or changes, whatever comes and goes beside:
//!
//! * Each of its rows was made of rows of R with keys in K, and would be if R held no other. It still is, since rows of R neither
//!   take others of the result away nor change them: R is on no nullable side, and nothing looks at more rows than one.
//! * So for each such reference by itself. The tags of all others hold whatever rows R has, fewer ones among them: so keys that
//!   lead from R to them are read from the rows of these keys alone, if the answer has k rows.
//!
//! If there are fewer rows than k, these are all: then what enters matters, as without LIMIT. The key is that of the replica identity, or
//! the primary key. That it tells rows apart is not needed here: what has the same key hits, too.
//!
//! # Rows that nothing bounds
//!
//! Where T is any row (`ORDER BY` a text and LIMIT, a function of a column), images are whole and the columns that select
//! (`analyze/mentioned_columns.rs`) are fewer than those that the statement mentions, any change would hit. But a row whose key is not in K
//! is in no joined row that is shown; as long as the columns that select stay what they are, so does whether it is shown, and
//! where it is sorted. So beside the keys there is a tag of all rows that *enter by a change of these columns*. ORDER BY decides
//! what is shown only with LIMIT, and by names of the list or numbers it may mean what is shown alone: then not. Nor without WHERE and
//! LIMIT, where the answer shows all rows.
//!
//! More keys than [`KEYS_MAX`], or one that cannot be read: then T is tested on old and new images, as without all this.

use std::collections::BTreeSet;

use freshet_types::{Columns, ComparedColumn, ReplicaIdentity, RowSet, TableId, Tag, Term, Test, Value};

use crate::analysis::{Keyed, ReadSet, RowLimit, TableReference};
use crate::dependency::answer::{Field, shown_value};
use crate::dependency::derived_limit::End;
use crate::dependency::join_keys::JoinKeys;
use crate::dependency::key_query::KEYS_MAX;
use crate::dependency::limit_bound::Top;
use crate::dependency::query_text::quoted;
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::Params;

/// For people: what tells the rows of an answer.
pub(crate) const BY_KEYS: &str = "the keys of the answer's rows";

const BY_VALUES: &str = "the values of the answer's rows";

/// What the rows of an answer tell by their keys.
#[derive(Clone, Debug)]
pub struct Keys {
    tables: Vec<KeyedTable>,
    /// Texts of the answer are in UTF-8.
    utf8: bool,
}

/// The same of one table reference.
#[derive(Clone, Debug)]
struct KeyedTable {
    keyed: Keyed,
    table: TableId,
    columns: Columns,
    rows: Rows,
    /// What leaves tells its key, and cannot be told by these rows.
    old_by_key: bool,
    /// Bounds its rows.
    top: Option<Top>,
    /// An answer of as many rows may show these or others.
    limit: Option<u64>,
    /// Fewer keys may not be all that the page has.
    least: Option<usize>,
    /// Of all other rows only a change of the columns that select matters.
    spares: bool,
}

impl Keys {
    /// The columns of the answer that are read.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let keys = self.tables.iter().flat_map(|table| table.keyed.key.iter().map(|(_, at)| *at));
        keys.chain(self.tables.iter().filter_map(|table| table.top.as_ref()).map(Top::column))
    }

    /// The references whose rows they tell of.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.tables.iter().map(|table| table.keyed.place)
    }

    /// The tags of an answer of these rows, which ends so; `read` tells the values of one.
    pub fn deferred_tags<'a, R>(
        &self,
        rows: impl Iterator<Item = R>,
        read: impl Fn(&R) -> Vec<Field<'a>>,
        end: &End<'_>,
        mut join_keys: Option<&mut JoinKeys>,
    ) -> Vec<Tag> {
        // What each column of a key holds; None: it cannot be told.
        let mut known: Vec<_> =
            self.tables.iter().map(|table| Some(vec![BTreeSet::new(); table.keyed.key.len()])).collect();
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
    /// Adds the key that a row shows; None: it does not, or there are too many.
    fn add(&self, values: &mut [BTreeSet<Value>], row: &[Field<'_>], utf8: bool) -> Option<()> {
        if row.len() != self.keyed.width {
            return None;
        }
        for ((column, at), values) in self.keyed.key.iter().zip(values) {
            values.insert(shown_value(column, *row.get(*at)?, utf8)?);
            if values.len() > KEYS_MAX {
                return None;
            }
        }
        Some(())
    }

    /// The tags of an answer of so many rows with these values in its columns of the key, which ends so.
    fn tags(
        &self,
        known: Option<Vec<BTreeSet<Value>>>,
        count: u64,
        end: &End<'_>,
        join_keys: Option<&mut JoinKeys>,
    ) -> Vec<Tag> {
        // So many keys are of as many rows.
        let is_all = |known: &Vec<BTreeSet<Value>>| {
            self.least.is_none_or(|least| known.iter().any(|values| values.len() >= least))
        };
        let known = known.filter(is_all);
        let by_keys = |known: Vec<BTreeSet<Value>>| {
            let keys = self.keyed.key.iter().zip(known);
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
                    join_keys.bound_by_keys(self.keyed.place, terms);
                }
                return terms.map(|terms| self.tag(RowSet::Where(terms.into()))).into_iter().collect();
            }
            known => known.filter(|_| self.old_by_key || self.spares),
        };
        let conjunctions = match &self.top {
            Some(top) => top.conjunctions(end.rows, &end.last),
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
                let columns = if self.spares { &self.keyed.selecting } else { &self.columns };
                let enters = |terms| Tag { table: self.table, rows: RowSet::Enters(terms), columns: columns.clone() };
                conjunctions.map(enters).chain(by_keys).collect()
            }
        }
    }

    fn tag(&self, rows: RowSet) -> Tag {
        Tag { table: self.table, rows, columns: self.columns.clone() }
    }
}

impl Keyed {
    /// Whether the old image of a row may lack what these conjunctions ask for, or what the bound does.
    fn lacks(&self, rows: &Rows, bound: Option<&ComparedColumn>) -> bool {
        let in_key = |column: &ComparedColumn| self.key.iter().any(|(of_key, _)| of_key == column);
        let is_told =
            |terms: &[Term]| terms.iter().map(|term| &term.column).chain(bound).all(in_key) || self.is_point(terms);
        self.old_by_key && !rows.as_ref().map_or_else(|| is_told(&[]), |rows| rows.iter().all(|terms| is_told(terms)))
    }

    /// Whether a LIMIT in no order, of which this is true, cuts the rows of that reference.
    fn is_cut(&self, place: usize, rows: &Rows, limits: impl Fn(RowLimit) -> bool) -> bool {
        self.place == place && self.limit.is_some_and(limits) && self.exceeds(rows)
    }

    /// Whether rows that nothing bounds are told so, of a table of which these columns are mentioned.
    fn spares(&self, rows: &Rows, mentioned: &Columns) -> bool {
        let fewer = match (&self.selecting, mentioned) {
            (Columns::Only(selecting), Columns::Only(mentioned)) => selecting.len() < mentioned.len(),
            (Columns::Only(_), Columns::All) => true,
            (Columns::All, _) => false,
        };
        let selects = matches!(&self.selecting, Columns::Only(selecting) if !selecting.is_empty());
        rows.is_none() && self.is_selected && !self.old_by_key && self.page.is_none() && selects && fewer
    }

    /// Whether these are more rows than those of some keys. Some values of them say more than that any row matters, not more than a
    /// condition does.
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
    /// What the rows of the answer will tell by their keys, but of references whose rows are told by others.
    pub(crate) fn keys(&self, rows: &[Rows], told: &[usize], top: Option<&Top>, params: Params<'_>) -> Option<Keys> {
        let tables = self.limits.keyed.iter().filter(|keyed| !told.contains(&keyed.place)).filter_map(|keyed| {
            let (reference, rows) = (self.references.get(keyed.place)?, rows.get(keyed.place)?);
            let top = top.filter(|top| top.place() == keyed.place);
            let limit = keyed.limit.and_then(|limit| self.rows_max(limit, params)).filter(|_| keyed.exceeds(rows));
            let least = match keyed.page {
                Some(limit) => Some(self.rows_max(limit, params)?.try_into().ok()?),
                None => None,
            };
            let old_by_key = keyed.lacks(rows, top.map(Top::sorted_by));
            let spares = top.is_none() && keyed.spares(rows, &reference.columns);
            (old_by_key || limit.is_some() || spares).then(|| KeyedTable {
                keyed: keyed.clone(),
                table: reference.table.id,
                columns: reference.columns.clone(),
                rows: rows.clone(),
                old_by_key,
                top: top.cloned(),
                limit,
                least,
                spares,
            })
        });
        let tables: Vec<KeyedTable> = tables.collect();
        (!tables.is_empty()).then_some(Keys { tables, utf8: params.client.utf8 })
    }

    /// Whether a full answer shows all rows of the reference that matter, by their keys: by those, other keys are read from them.
    pub(crate) fn is_cut(&self, place: usize, rows: &Rows, params: Params<'_>) -> bool {
        let limits = |limit| self.rows_max(limit, params).is_some_and(|limit| limit > 0);
        self.limits.keyed.iter().any(|keyed| keyed.is_cut(place, rows, limits) && !keyed.by_value)
    }

    /// For people: whether rows of the reference that go are told by the answer's keys. Its rows are bounded by this column.
    pub(crate) fn is_keyed(&self, place: usize, rows: &Rows, bound: Option<&ComparedColumn>) -> bool {
        self.limits.keyed.iter().any(|keyed| keyed.place == place && keyed.lacks(rows, bound))
    }

    /// For people: which tables log of old rows the columns of their replica identity alone, though the statement mentions others, and
    /// the statement by which they log all.
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

    /// For people: the columns by a change of which other rows of the reference come to matter than those that the answer shows.
    pub(crate) fn described_spared(&self, place: usize, rows: &Rows) -> Option<&Columns> {
        let mentioned = &self.references.get(place)?.columns;
        let keyed = self.limits.keyed.iter().find(|keyed| keyed.place == place && keyed.spares(rows, mentioned))?;
        Some(&keyed.selecting)
    }

    /// The same if there are as many rows as LIMIT says, in no order: by what they are told.
    pub(crate) fn described_open(
        &self,
        place: usize,
        rows: &Rows,
        params: Params<'_>,
        unknown: u16,
    ) -> Option<&'static str> {
        let may_limit = |limit| self.may_limit(limit, params, unknown);
        let keyed = self.limits.keyed.iter().find(|keyed| keyed.is_cut(place, rows, may_limit))?;
        Some(if keyed.by_value { BY_VALUES } else { BY_KEYS })
    }
}
