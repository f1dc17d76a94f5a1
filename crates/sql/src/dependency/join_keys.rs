//! Join-key dependencies: rows that matter only if other rows have their keys.
//!
//! `title JOIN rating ON rating.title_id = title.id WHERE title.title = $1`: only those rows of `rating` matter whose `title_id` is the `id` of a
//! title with this name. A key query reads these ids from the database, beside the query itself. It reads the keys of *all* rows of `title` that
//! satisfy the condition, before any join, so that the first rating of a movie is noticed too.
//!
//! # Why this is sound
//!
//! Let S be a table reference with a sound predicate T_S: rows of S outside T_S could be deleted without changing the result. Let a condition on R
//! (see `analyze/mod.rs`) contain `R.c = S.d`. Consider a row of R whose c is not the d of any row in σ_{T_S}(S). It joins no remaining row of S, so
//! it satisfies the condition for none of them and could be deleted as well. Hence `c IN K` with K = {s.d | s ∈ σ_{T_S}(S)} is a sound predicate of
//! R, and the join path may continue from R to the next table. This holds for inner and outer joins and within sub-queries alike, since it says
//! nothing about rows of S.
//!
//! A column of a set operation has only the values of the columns in its branches. So an equality with it is an edge from all of these columns: K
//! contains the keys of each, and a join path must reach each. A row of R whose c is in none of them joins no row of any branch.
//!
//! The key query may return more rows of S than its condition: more keys mean more rows of R. So a range may be the start of a join path, with its
//! limits as far as they are known; a column that equals constants is preferred. The same holds for patterns of texts; those that no index can find
//! come last (`key_conditions.rs`). Of a disjunction, each alternative must be written.
//!
//! A join path may also start at the rows within LIMIT (`limit_bound.rs`). Their bound is known only from the answer. Then the key query gets its
//! last condition ([`JoinKeys::bound_by_last`]): the tests that become the tag of S, with their limits rounded outwards. If the answer gives no
//! bound, no key query is made, unless other constants restrict these rows. The same holds for rows under an unordered LIMIT, whose keys the answer
//! shows (`result_keys.rs`).
//!
//! If there are more than [`KEYS_MAX`] keys, none of them is used. If they are numbers or dates, the key query may ask for the minimum and maximum
//! instead ([`JoinKeys::ask_for_ranges`]): c is between them whenever it is in K, so that this is a sound predicate, too.
//!
//! A statement of its own reads K after the fill began. If K changes meanwhile, rows of σ_{T_S}(S) changed, which the tag of S notices. One statement
//! reads the keys of all tables, so they have one snapshot.

use std::fmt::Write as _;

use freshet_types::{ComparedColumn, Dialect, NamedRows, RowSet, TableId, Tag, Term, Test};

use crate::analysis::{Edge, ReadSet, ReferenceColumn, TableReference};
use crate::dependency::answer::Field;
use crate::dependency::join_path::{JoinPath, JoinPaths, KEYED_TABLES_MAX};
use crate::dependency::key_conditions::{AccessMethod, Constants, written_bound};
use crate::dependency::key_query::{KEYS_MAX, Key, KeyedTable, Select, keys_of};
use crate::dependency::limit_bound::LimitBound;
use crate::dependency::limit_boundary::BoundaryQuery;
use crate::dependency::member_keys::{Matching, Members};
use crate::dependency::query_text::{Parameterised, as_parameters, as_text, in_place, quoted};
use crate::predicate::bind::Rows;
use crate::predicate::parameters::Params;

/// Join-key dependencies of an execution, and the key query that reads their keys.
#[derive(Clone, Debug)]
pub struct JoinKeys {
    keyed_tables: Vec<KeyedTable>,
    /// References of which leaving rows are found by their keys.
    members: Vec<Members>,
    /// For some tables these keys are not read, since no row ever left them.
    loses_none: bool,
    tables: Vec<TableId>,
    /// The tables of `tables` whose rows lead to keys of other tables.
    leading: Vec<TableId>,
    /// The LIMIT bound of the rows that some keys are read from.
    limit_bound: Option<LimitBound>,
    /// The key query returns the minimum and the maximum of the keys.
    ranges: bool,
    dialect: Dialect,
}

impl ReadSet {
    /// The join-key dependencies of references without constants, and the places of these references.
    pub(crate) fn join_keys(
        &self,
        rows: &[Rows],
        limit_bound: Option<&LimitBound>,
        params: Params<'_>,
    ) -> Option<(JoinKeys, Vec<usize>)> {
        let bound_place = limit_bound.map(LimitBound::place);
        let limit_bound = limit_bound.filter(|limit_bound| self.has_limits(limit_bound.sorted_by()));
        let is_bounded = |place: usize| {
            limit_bound.is_some_and(|limit_bound| limit_bound.place() == place)
                || self.is_bounded_by_answer(place, &rows[place], params)
        };
        let constants: Vec<Constants<'_>> =
            rows.iter().enumerate().map(|(at, rows)| self.constants(at, rows, params)).collect();
        let boundaries = self.boundary_queries(rows, |place| is_bounded(place) || bound_place == Some(place), params);
        let methods = constants.iter().enumerate().map(|(at, of_one)| {
            let answer = (is_bounded(at) || boundaries.iter().any(|boundary| boundary.place == at))
                .then_some(AccessMethod::Answer);
            AccessMethod::of(of_one, |(_, written)| written.access_method()).into_iter().chain(answer).min()
        });
        let paths = JoinPaths::from(rows, &methods.collect::<Vec<_>>(), &self.edges);
        let by_answer = (0..rows.len()).filter(|place| is_bounded(*place)).collect();
        let known = Known { constants, boundaries, by_answer };
        let mut keyed_tables = Vec::new();
        let mut tables = Vec::new();
        for (place, paths) in paths.reached() {
            let reference = &self.references[place];
            tables.extend(paths.iter().flatten().map(|(_, key_column)| self.references[key_column.place].table.id));
            let (edge, _) = paths.first()?.first()?;
            keyed_tables.push(KeyedTable {
                table: reference.table.id,
                selects: paths.iter().map(|path| self.select(path, None, &known)).collect::<Option<_>>()?,
                column: edge.to_column.clone(),
                terms: match rows[place].as_deref() {
                    Some([terms]) => terms.clone(),
                    _ => Vec::new(),
                },
                columns: reference.columns.clone(),
                boundary: None,
                anti_join: false,
            });
        }
        let mut reached = paths.reached.clone();
        for boundary in known.boundaries.iter().filter(|boundary| !paths.reached.contains(&boundary.place)) {
            let TableReference { table, columns, .. } = &self.references[boundary.place];
            tables.push(table.id);
            reached.push(boundary.place);
            keyed_tables.push(KeyedTable::of_boundary(table.id, columns.clone(), boundary.clone()));
        }
        let told = |reached: &[usize]| {
            reached.iter().copied().chain(bound_place).chain(known.by_answer.iter().copied()).collect()
        };
        let max = KEYED_TABLES_MAX.saturating_sub(keyed_tables.len());
        for (place, inside, keyed) in self.keyed_anti_joins(rows, &paths, told(&reached), max, params) {
            tables.extend(inside.iter().map(|place| self.references[*place].table.id));
            reached.push(place);
            keyed_tables.push(keyed);
        }
        let (limit_bound, dialect) = (limit_bound.cloned(), self.dialect);
        tables.sort_unstable();
        tables.dedup();
        let (members, leading) = (Vec::new(), tables.clone());
        let (loses_none, ranges) = (false, false);
        let mut join_keys =
            JoinKeys { keyed_tables, members, loses_none, tables, leading, limit_bound, ranges, dialect };
        reached.extend(self.add_members(rows, &paths, &told(&reached), &known, &mut join_keys));
        join_keys.tables.sort_unstable();
        join_keys.tables.dedup();
        (!join_keys.keyed_tables.is_empty() || !join_keys.members.is_empty()).then_some((join_keys, reached))
    }

    /// For EXPLAIN CACHE: the join paths from the references with these access methods.
    pub(crate) fn paths<'f>(&'f self, rows: &[Rows], method: impl Fn(usize) -> Option<AccessMethod>) -> JoinPaths<'f> {
        let methods: Vec<Option<AccessMethod>> = (0..rows.len()).map(method).collect();
        JoinPaths::from(rows, &methods, &self.edges)
    }

    /// For EXPLAIN CACHE: the references found by join keys, each with its column and the column that has the keys.
    pub(crate) fn described_join_keys(&self, paths: &JoinPaths<'_>) -> Vec<(usize, String)> {
        let reached = paths.reached().filter_map(|(place, paths)| {
            let (edge, _) = paths.first()?.first()?;
            let key_column = paths.iter().filter_map(|path| path.first());
            let name = |key_column: &ReferenceColumn| {
                format!("{}.{}", self.references[key_column.place].table.name, key_column.column.name)
            };
            let mut names: Vec<String> = key_column.map(|(_, key_column)| name(key_column)).collect();
            names.sort_unstable();
            names.dedup();
            Some((place, format!("{} among the values of {}", edge.to_column.name, names.join(", "))))
        });
        reached.collect()
    }

    /// The SELECT for the keys at the end of a join path, which is listed backwards. With `to`: the SELECT for the rows of this reference that have
    /// these keys; its `key` is then the row's name.
    fn select(&self, path: &JoinPath<'_>, to: Option<usize>, known: &Known<'_>) -> Option<Select> {
        let quoted = |name: &str| quoted(self.dialect, name);
        let mut from = String::new();
        let mut conditions = Vec::new();
        // Begins at the constants: each edge leads to the table of the next one.
        let places: Vec<usize> = path.iter().rev().map(|(_, key_column)| key_column.place).chain(to).collect();
        let joins = std::iter::once(None).chain(path.iter().rev().map(Some));
        for (at, (place, join)) in places.iter().zip(joins).enumerate() {
            let table = &self.references.get(*place)?.table;
            let name = format!("{}.{} t{at}", quoted(&table.schema), quoted(&table.name));
            match join {
                None => from = name,
                Some((Edge { to_column, .. }, before)) => {
                    let (to, of) = (quoted(&to_column.name), quoted(&before.column.name));
                    let _ = write!(from, " JOIN {name} ON t{at}.{to} = t{}.{of}", at - 1);
                }
            }
            let all = known.constants.get(*place)?;
            // If a join path leads to the reference, only a single conjunction is known to hold for its rows.
            let is_known = to != Some(*place) || path.is_empty() || all.len() == 1;
            let all = if is_known { &all[..] } else { &[] };
            let all = all.iter().map(|conjunction| {
                let column = |column: &ComparedColumn| format!("t{at}.{}", quoted(&column.name));
                conjunction
                    .iter()
                    .flat_map(|(of, written)| written.tests(self.dialect, &column(of)))
                    .collect::<Vec<_>>()
                    .join(" AND ")
            });
            let all: Vec<String> = all.collect();
            match all.as_slice() {
                [] => {}
                [only] => conditions.push(only.clone()),
                several => conditions.push(format!("({})", several.join(" OR "))),
            }
        }
        let last = format!("t{}", places.len() - 1);
        let key = if to.is_some() { last } else { format!("{last}.{}", quoted(&path.first()?.1.column.name)) };
        let start = *places.first()?;
        let by_answer = Some(start).filter(|start| known.by_answer.contains(start));
        let constants = known.constants.get(start)?;
        let boundary = known.boundaries.iter().find(|boundary| boundary.place == start);
        conditions.extend(boundary.map(|boundary| boundary.condition("t0")));
        let bounded = !constants.is_empty() || boundary.is_some();
        let best = AccessMethod::of(constants, |(_, written)| written.access_method());
        let finds = by_answer.is_some() || boundary.is_some() || best.is_some_and(|best| best <= AccessMethod::Range);
        Some(Select {
            key,
            from,
            conditions,
            bounded,
            finds,
            by_answer,
            boundary: boundary.map(|boundary| boundary.place),
        })
    }

    /// Adds the references whose leaving rows are found by keys that are read: those of the keyed tables, and those with constants that nothing else
    /// covers.
    /// Returns the places of the latter.
    fn add_members(
        &self,
        rows: &[Rows],
        paths: &JoinPaths<'_>,
        told: &[usize],
        known: &Known<'_>,
        join_keys: &mut JoinKeys,
    ) -> Vec<usize> {
        let mut number = join_keys.keyed_tables.len();
        let mut places = Vec::new();
        let mut add = |place: usize, key: Option<Vec<ComparedColumn>>, matching: Matching, paths: &[JoinPath<'_>]| {
            let key = key.filter(|key| number + key.len() <= KEYED_TABLES_MAX)?;
            let selects = paths.iter().map(|path| self.select(path, Some(place), known)).collect::<Option<Vec<_>>>()?;
            let may_be_asked = selects.iter().all(|select| select.bounded || select.by_answer.is_some());
            let reference = self.references.get(place).filter(|_| may_be_asked)?;
            join_keys.members.push(Members::of(reference, key, matching, selects, number));
            join_keys.tables.push(reference.table.id);
            number = join_keys.members.last()?.next_number();
            Some(place)
        };
        for ((at, keyed), (place, paths)) in join_keys.keyed_tables.iter().enumerate().zip(paths.reached()) {
            let key = self.lacking(place, std::iter::once(&*keyed.all_terms()));
            add(place, key, Matching::Keyed(at), paths);
        }
        for (place, rows) in rows.iter().enumerate() {
            let is_told =
                told.contains(&place) || self.limits.result_keys.iter().any(|result_key| result_key.place == place);
            let Some(rows) = rows.as_ref().filter(|rows| !rows.is_empty() && !is_told) else { continue };
            let key = self.lacking(place, rows.iter().map(Vec::as_slice));
            places.extend(add(place, key, Matching::Constants(rows.clone()), &[JoinPath::new()]));
        }
        places
    }
}

/// Facts about the references at which join paths start.
struct Known<'k> {
    constants: Vec<Constants<'k>>,
    boundaries: Vec<BoundaryQuery>,
    /// References that the answer bounds.
    by_answer: Vec<usize>,
}

impl JoinKeys {
    /// One SELECT for all these keys, to be run on a connection to the same server after their fills began. It has two columns, both as text: the
    /// number of the join keys and of the keyed table, as `1.0`, and a key, which may be NULL.
    pub fn sql<'l>(all: impl IntoIterator<Item = &'l Self>) -> String {
        in_place(Self::marked_sql(all))
    }

    /// The same for `self` alone, on PostgreSQL, as a statement to be prepared.
    pub fn parameterised(&self) -> Parameterised {
        as_parameters(&Self::marked_sql([self]))
    }

    fn marked_sql<'l>(all: impl IntoIterator<Item = &'l Self>) -> String {
        let mut sql = String::new();
        for (number, join_keys) in all.into_iter().enumerate() {
            let keyed_tables = join_keys.keyed_tables.iter().enumerate();
            let selects = keyed_tables.flat_map(|(at, keyed)| {
                let mark = format!("{number}.{at}");
                let boundary = keyed
                    .boundary
                    .iter()
                    .map(|boundary| format!("SELECT '{mark}', {}", boundary.sql()))
                    .collect::<Vec<_>>();
                keyed.asked().iter().flat_map(move |select| join_keys.marked_selects(&mark, select)).chain(boundary)
            });
            let quoted = |name: &str| quoted(join_keys.dialect, name);
            let of_members = join_keys.members.iter().flat_map(|members| members.asked(quoted));
            let of_members = of_members.map(|(at, select)| join_keys.marked_select(&format!("{number}.{at}"), &select));
            for select in selects.chain(of_members) {
                let and = if sql.is_empty() { "" } else { " UNION ALL " };
                let _ = write!(sql, "{and}({select})");
            }
        }
        sql
    }

    /// The queries for one SELECT. Each row has the mark.
    fn marked_selects(&self, mark: &str, select: &Select) -> Vec<String> {
        let Select { key, from, conditions, .. } = select;
        let conditions = conditions.join(" AND ");
        let text = |key: &str| as_text(self.dialect, key);
        if self.ranges {
            let extreme = |name: &str| {
                format!("SELECT '{mark}', {} FROM {from} WHERE {conditions}", text(&format!("{name}({key})")))
            };
            return vec![extreme("MIN"), extreme("MAX")];
        }
        vec![self.marked_select(mark, select)]
    }

    /// All keys of one SELECT, or more than the limit.
    fn marked_select(&self, mark: &str, Select { key, from, conditions, .. }: &Select) -> String {
        let (key, conditions, limit) = (as_text(self.dialect, key), conditions.join(" AND "), KEYS_MAX + 1);
        format!("SELECT DISTINCT '{mark}', {key} FROM {from} WHERE {conditions} LIMIT {limit}")
    }

    /// Changes the key query to the minimum and maximum of keys: a smaller result than too many keys, but other rows of the table are between them,
    /// too. Not for rows that must be tested one by one, since most of them may pass. Returns false if no key query is left.
    pub fn ask_for_ranges(&mut self) -> bool {
        self.ranges = true;
        for keyed in &mut self.keyed_tables {
            let has_reach = !keyed.anti_join && keyed.has_order() && keyed.selects.iter().all(|select| select.finds);
            keyed.selects.retain(|_| has_reach);
        }
        self.drop_unled();
        self.is_asked()
    }

    /// Stops reading keys of leaving rows: old images are tested with the predicate instead.
    pub fn leave_members(&mut self) {
        self.members.iter_mut().for_each(Members::leave);
    }

    /// Whether keys of leaving rows are read.
    pub fn asks_for_members(&self) -> bool {
        self.members.iter().any(Members::is_asked)
    }

    /// Whether the tags may serve the next result, too. They may not if a row without a name in them may leave until then.
    pub fn is_lasting(&self) -> bool {
        !self.loses_none
    }

    fn is_asked(&self) -> bool {
        self.keyed_tables.iter().any(KeyedTable::is_asked) || self.asks_for_members()
    }

    /// Drops the keys of rows whose own join keys are no longer read.
    fn drop_unled(&mut self) {
        for members in &mut self.members {
            if members.keyed().is_some_and(|keyed| !self.keyed_tables.get(keyed).is_some_and(KeyedTable::is_asked)) {
                members.leave();
            }
        }
    }

    /// Whether the key query asks for minimum and maximum.
    pub fn asks_for_ranges(&self) -> bool {
        self.ranges
    }

    /// Reads only keys of these tables; of the other tables any row will matter. Keys of leaving rows are read only for tables of the second kind.
    /// Returns false if nothing is left to read.
    pub fn ask_only_of(
        &mut self,
        mut is_wanted: impl FnMut(TableId) -> bool,
        mut loses_rows: impl FnMut(TableId) -> bool,
    ) -> bool {
        for keyed in &mut self.keyed_tables {
            let wanted = is_wanted(keyed.table);
            keyed.selects.retain(|_| wanted);
        }
        // Keys of other tables are known only with the LIMIT boundary of the rows that lead to them.
        let leading: Vec<usize> =
            self.keyed_tables.iter().flat_map(|keyed| &keyed.selects).filter_map(|select| select.boundary).collect();
        for keyed in &mut self.keyed_tables {
            keyed.boundary.take_if(|boundary| !is_wanted(keyed.table) && !leading.contains(&boundary.place));
        }
        for members in self.members.iter_mut().filter(|members| members.is_asked() && !loses_rows(members.table())) {
            members.leave();
            self.loses_none = true;
        }
        self.drop_unled();
        self.is_asked()
    }

    /// Adds what the answer shows: it has `rows` rows, and these are the values of the last one. Keys of rows that nothing else restricts are read
    /// only if this row does.
    pub fn bound_by_last(&mut self, rows: u64, last: &[Field<'_>]) {
        let Some(limit_bound) = self.limit_bound.take() else { return };
        if let Some(tests) = limit_bound.bound(rows, last) {
            self.bound(limit_bound.place(), &[(limit_bound.sorted_by(), &tests)]);
        }
    }

    /// Adds that the answer shows all rows of this reference that matter: those that pass these tests.
    pub(crate) fn bound_by_keys(&mut self, place: usize, keys: &[Term]) {
        let tests: Vec<_> = keys.iter().map(|term| (&term.column, std::slice::from_ref(&term.test))).collect();
        self.bound(place, &tests);
    }

    /// Restricts join paths that start at this reference to rows that pass one test of each of these columns.
    fn bound(&mut self, place: usize, tests: &[(&ComparedColumn, &[Test])]) {
        let name = |column: &ComparedColumn| format!("t0.{}", quoted(self.dialect, &column.name));
        let written = tests.iter().map(|(column, tests)| written_bound(column, &name(column), tests));
        let Some(conditions) = written.collect::<Option<Vec<_>>>() else { return };
        let of_keyed = self.keyed_tables.iter_mut().flat_map(|keyed| &mut keyed.selects);
        for select in of_keyed.chain(self.members.iter_mut().flat_map(Members::selects_mut)) {
            if select.by_answer.take_if(|start| *start == place).is_some() {
                select.conditions.extend_from_slice(&conditions);
                select.bounded = true;
            }
        }
    }

    /// Number of tables of which any row will matter because their keys are not read.
    pub fn left_out(&self) -> usize {
        self.keyed_tables.iter().filter(|keyed| !keyed.is_asked() && keyed.terms.is_empty()).count()
    }

    /// The leaving rows that the tags name by their keys.
    pub fn named(&self) -> Vec<NamedRows> {
        self.members.iter().filter(|members| members.is_asked()).map(Members::named).collect()
    }

    /// Bytes of its SELECTs.
    pub fn sql_bytes(&self) -> usize {
        let boundaries =
            self.keyed_tables.iter().filter_map(|keyed| keyed.boundary.as_ref()).map(|boundary| boundary.sql().len());
        let selects = self.keyed_tables.iter().flat_map(KeyedTable::asked).map(Select::bytes);
        selects.chain(boundaries).chain(self.members.iter().map(Members::sql_bytes)).sum()
    }

    /// The tables that it reads, sorted and distinct.
    pub fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// The tables of which a changed row may change the key query's answer or its tags: those that it reads, and those of which any row matters
    /// because their keys are not read. Not included are leaving rows, see [`Self::named`].
    pub fn rests_on(&self) -> Vec<TableId> {
        let not_asked = self.keyed_tables.iter().filter(|keyed| !keyed.is_asked()).map(|keyed| keyed.table);
        self.leading.iter().copied().chain(not_asked).collect()
    }

    /// The tags from the key query's answer. Without an answer, with too many keys, or with a key without a normal form, any row matters. Leaving
    /// rows are found by their old images.
    pub fn deferred_tags(&self, rows: Option<&[Key]>) -> Vec<Tag> {
        let of_constants = self.members.iter().flat_map(Members::tags_of_constants);
        self.tags_of_parts(rows).into_iter().flatten().chain(of_constants).collect()
    }

    /// The same with leaving rows found by their keys, as far as the keys are known; None if none are.
    pub fn deferred_tags_of_members(&self, rows: &[Key]) -> Option<Vec<Tag>> {
        let mut is_one_known = false;
        let mut told = |members: Option<&Members>, terms: Option<&[Term]>, otherwise: Vec<Tag>| {
            let tags = members.and_then(|members| members.tags(terms, rows));
            is_one_known |= tags.is_some();
            tags.unwrap_or(otherwise)
        };
        let mut all = Vec::new();
        for (number, tags) in self.tags_of_parts(Some(rows)).into_iter().enumerate() {
            let members = self.members.iter().find(|members| members.keyed() == Some(number));
            match tags.as_slice() {
                [Tag { rows: RowSet::Where(terms), .. }] => all.extend(told(members, Some(&terms.clone()), tags)),
                _ => all.extend(tags),
            }
        }
        for members in self.members.iter().filter(|members| members.keyed().is_none()) {
            all.extend(told(Some(members), None, members.tags_of_constants()));
        }
        is_one_known.then_some(all)
    }

    /// The tags of each keyed table.
    fn tags_of_parts(&self, rows: Option<&[Key]>) -> Vec<Vec<Tag>> {
        let keyed_tables = self.keyed_tables.iter().enumerate();
        let boundaries = keyed_tables.clone().filter_map(|(number, keyed)| Some((number, keyed.boundary.as_ref()?)));
        let known =
            |number, boundary: &BoundaryQuery| rows.is_some_and(|rows| boundary.is_known(&keys_of(number, rows)));
        let unknown: Vec<usize> = boundaries
            .filter(|(number, boundary)| !known(*number, boundary))
            .map(|(_, boundary)| boundary.place)
            .collect();
        let is_led = |select: &Select| select.boundary.is_none_or(|boundary| !unknown.contains(&boundary));
        let asked = |keyed: &KeyedTable| rows.filter(|_| keyed.is_asked() && keyed.selects.iter().all(is_led));
        keyed_tables.map(|(number, keyed)| keyed.tags(number, asked(keyed), self.ranges)).collect()
    }
}
