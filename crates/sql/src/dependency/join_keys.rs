//! Rows that matter only by the keys that other rows hold.
//!
//! `title JOIN rating ON rating.title_id = title.id WHERE title.title = $1`: of `rating` only rows matter whose `title_id` is
//! the `id` of a title of that name. Which ones these are is read from the database beside the query: the keys of *all* rows
//! of `title` that the condition leaves, before any join, so that a first rating of a movie that had none is noticed.
//!
//! # Why this is sound
//!
//! Let S be a table reference with a sound predicate T_S: rows of S outside T_S may be taken away without changing the
//! result. Let a condition that bounds R (see `analyze/mod.rs`) contain `R.c = S.d`. Then a row of R whose c is no d of a row of
//! σ_{T_S}(S) meets no row of S that is left: it satisfies the condition for none of them, so it may be taken away as well.
//! Hence `c IN K` with K = {s.d | s ∈ σ_{T_S}(S)} is a sound predicate of R, and R may lead on to the next. It holds for inner
//! and outer joins and within sub-queries alike, since nothing is said of rows of S.
//!
//! A column of a set operation has no other values than the columns in its place, so an equality with it leads from all of these: K has
//! the keys of each, which all must be reached. A row whose c is none of them meets no row that any of them made.
//!
//! Of S more rows may be asked for than its condition leaves: more keys are more rows of R. So it may also be a range that leads
//! from S to R, whose limits are written as far as they are known; but a column that equals constants comes first. The same with
//! patterns of texts, those that no index finds last (`key_conditions.rs`); of a disjunction each part must be written.
//!
//! A way may also begin at the rows that LIMIT shows (`limit_bound.rs`). How far they reach is known only when the answer is: then the
//! statement for K gets its last condition ([`JoinKeys::bound_by_last`]), made of the very tests that become the tag of S, and written
//! outwards. If the answer does not say how far, nothing is asked, unless other constants bound these rows. The same with rows that
//! LIMIT shows in no order, which the answer tells by their keys (`result_keys.rs`).
//!
//! Of more keys than [`KEYS_MAX`] only their number is known to be too large. Then, if they are numbers or dates, the least and the greatest
//! may be asked for instead ([`JoinKeys::ask_for_ranges`]): c is between them wherever it is one of K, so that is a sound predicate, too.
//!
//! K is read by a statement of its own, after the fill began. What changes K meanwhile is a change of rows of σ_{T_S}(S), which
//! S's own tag notices. All parts are read by one statement, so they are of one snapshot.

use std::fmt::Write as _;

use freshet_types::{ComparedColumn, Dialect, NamedRows, RowSet, TableId, Tag, Term, Test};

use crate::analysis::{Edge, Held, ReadSet, TableReference};
use crate::dependency::answer::Field;
use crate::dependency::join_path::{PARTS_MAX, Way, Ways};
use crate::dependency::key_conditions::{Constants, Start, written_bound};
use crate::dependency::key_query::{KEYS_MAX, Key, Part, Select, keys_of};
use crate::dependency::limit_bound::Top;
use crate::dependency::limit_boundary::End;
use crate::dependency::member_keys::{Matching, Members};
use crate::dependency::query_text::{Parameterised, as_parameters, as_text, in_place, quoted};
use crate::predicate::bind::Rows;
use crate::predicate::parameters::Params;

/// Rows that matter only by the keys that other rows hold: read when the query is.
#[derive(Clone, Debug)]
pub struct JoinKeys {
    parts: Vec<Part>,
    /// Rows that go are told by their keys.
    members: Vec<Members>,
    /// Of some tables these are not asked for, since no row of theirs ever went.
    loses_none: bool,
    tables: Vec<TableId>,
    /// Those of them whose rows lead to keys of others.
    leading: Vec<TableId>,
    /// Tells how far the rows reach from which some of the keys are read.
    top: Option<Top>,
    /// Of keys the least and the greatest are asked for.
    ranges: bool,
    dialect: Dialect,
}

impl ReadSet {
    /// How to find the rows of references that have no constants to be found by, and the places of these references.
    pub(crate) fn join_keys(
        &self,
        rows: &[Rows],
        top: Option<&Top>,
        params: Params<'_>,
    ) -> Option<(JoinKeys, Vec<usize>)> {
        let shows_end = top.map(Top::place);
        let top = top.filter(|top| self.has_limits(top.sorted_by()));
        let is_cut =
            |place: usize| top.is_some_and(|top| top.place() == place) || self.is_cut(place, &rows[place], params);
        let constants: Vec<Constants<'_>> =
            rows.iter().enumerate().map(|(at, rows)| self.constants(at, rows, params)).collect();
        let ends = self.ends(rows, |place| is_cut(place) || shows_end == Some(place), params);
        let starts = constants.iter().enumerate().map(|(at, of_one)| {
            let cut = (is_cut(at) || ends.iter().any(|end| end.place == at)).then_some(Start::Cut);
            Start::of(of_one, |(_, written)| written.start()).into_iter().chain(cut).min()
        });
        let ways = Ways::from(rows, &starts.collect::<Vec<_>>(), &self.edges);
        let cut = (0..rows.len()).filter(|place| is_cut(*place)).collect();
        let known = Known { constants, ends, cut };
        let mut parts = Vec::new();
        let mut tables = Vec::new();
        for (place, ways) in ways.reached() {
            let reference = &self.references[place];
            tables.extend(ways.iter().flatten().map(|(_, held)| self.references[held.place].table.id));
            let (edge, _) = ways.first()?.first()?;
            parts.push(Part {
                table: reference.table.id,
                selects: ways.iter().map(|way| self.select(way, None, &known)).collect::<Option<_>>()?,
                column: edge.to_column.clone(),
                terms: match rows[place].as_deref() {
                    Some([terms]) => terms.clone(),
                    _ => Vec::new(),
                },
                columns: reference.columns.clone(),
                end: None,
                absent: false,
            });
        }
        let mut reached = ways.reached.clone();
        for end in known.ends.iter().filter(|end| !ways.reached.contains(&end.place)) {
            let TableReference { table, columns, .. } = &self.references[end.place];
            tables.push(table.id);
            reached.push(end.place);
            parts.push(Part::of_end(table.id, columns.clone(), end.clone()));
        }
        let told =
            |reached: &[usize]| reached.iter().copied().chain(shows_end).chain(known.cut.iter().copied()).collect();
        for (place, inside, part) in
            self.absent_parts(rows, &ways, told(&reached), PARTS_MAX.saturating_sub(parts.len()), params)
        {
            tables.extend(inside.iter().map(|place| self.references[*place].table.id));
            reached.push(place);
            parts.push(part);
        }
        let (top, dialect) = (top.cloned(), self.dialect);
        tables.sort_unstable();
        tables.dedup();
        let (members, leading) = (Vec::new(), tables.clone());
        let (loses_none, ranges) = (false, false);
        let mut join_keys = JoinKeys { parts, members, loses_none, tables, leading, top, ranges, dialect };
        reached.extend(self.add_members(rows, &ways, &told(&reached), &known, &mut join_keys));
        join_keys.tables.sort_unstable();
        join_keys.tables.dedup();
        (!join_keys.parts.is_empty() || !join_keys.members.is_empty()).then_some((join_keys, reached))
    }

    /// For people: the ways from these starts.
    pub(crate) fn ways<'f>(&'f self, rows: &[Rows], start: impl Fn(usize) -> Option<Start>) -> Ways<'f> {
        let starts: Vec<Option<Start>> = (0..rows.len()).map(start).collect();
        Ways::from(rows, &starts, &self.edges)
    }

    /// For people: the references whose rows are found so, each with the column and the table that leads to it.
    pub(crate) fn described_join_keys(&self, ways: &Ways<'_>) -> Vec<(usize, String)> {
        let reached = ways.reached().filter_map(|(place, ways)| {
            let (edge, _) = ways.first()?.first()?;
            let held = ways.iter().filter_map(|way| way.first());
            let name = |held: &Held| format!("{}.{}", self.references[held.place].table.name, held.column.name);
            let mut names: Vec<String> = held.map(|(_, held)| name(held)).collect();
            names.sort_unstable();
            names.dedup();
            Some((place, format!("{} among the values of {}", edge.to_column.name, names.join(", "))))
        });
        reached.collect()
    }

    /// The keys to which a way leads, from the key on, or the rows of the reference that has these keys, under the name that stands for the key.
    fn select(&self, way: &Way<'_>, to: Option<usize>, known: &Known<'_>) -> Option<Select> {
        let quoted = |name: &str| quoted(self.dialect, name);
        let mut from = String::new();
        let mut conditions = Vec::new();
        // From the constants on: each edge leads to the table that the next one starts from.
        let places: Vec<usize> = way.iter().rev().map(|(_, held)| held.place).chain(to).collect();
        let joins = std::iter::once(None).chain(way.iter().rev().map(Some));
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
            // Of what keys lead to, a part knows no more than one conjunction.
            let is_known = to != Some(*place) || way.is_empty() || all.len() == 1;
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
        let key = if to.is_some() { last } else { format!("{last}.{}", quoted(&way.first()?.1.column.name)) };
        let start = *places.first()?;
        let cut = Some(start).filter(|start| known.cut.contains(start));
        let constants = known.constants.get(start)?;
        let end = known.ends.iter().find(|end| end.place == start);
        conditions.extend(end.map(|end| end.condition("t0")));
        let bounded = !constants.is_empty() || end.is_some();
        let best = Start::of(constants, |(_, written)| written.start());
        let finds = cut.is_some() || end.is_some() || best.is_some_and(|best| best <= Start::Range);
        Some(Select { key, from, conditions, bounded, finds, cut, end: end.map(|end| end.place) })
    }

    /// Adds the references whose rows that go are told by their keys, where these are read: those that parts tell of, and those with constants
    /// whose rows nothing else tells, whose places are returned.
    fn add_members(
        &self,
        rows: &[Rows],
        ways: &Ways<'_>,
        told: &[usize],
        known: &Known<'_>,
        join_keys: &mut JoinKeys,
    ) -> Vec<usize> {
        let mut number = join_keys.parts.len();
        let mut places = Vec::new();
        let mut add = |place: usize, key: Option<Vec<ComparedColumn>>, matching: Matching, ways: &[Way<'_>]| {
            let key = key.filter(|key| number + key.len() <= PARTS_MAX)?;
            let selects = ways.iter().map(|way| self.select(way, Some(place), known)).collect::<Option<Vec<_>>>()?;
            let may_be_asked = selects.iter().all(|select| select.bounded || select.cut.is_some());
            let reference = self.references.get(place).filter(|_| may_be_asked)?;
            join_keys.members.push(Members::of(reference, key, matching, selects, number));
            join_keys.tables.push(reference.table.id);
            number = join_keys.members.last()?.next_number();
            Some(place)
        };
        for ((at, part), (place, ways)) in join_keys.parts.iter().enumerate().zip(ways.reached()) {
            let key = self.lacking(place, std::iter::once(&*part.all_terms()));
            add(place, key, Matching::Part(at), ways);
        }
        for (place, rows) in rows.iter().enumerate() {
            let is_told = told.contains(&place) || self.limits.keyed.iter().any(|keyed| keyed.place == place);
            let Some(rows) = rows.as_ref().filter(|rows| !rows.is_empty() && !is_told) else { continue };
            let key = self.lacking(place, rows.iter().map(Vec::as_slice));
            places.extend(add(place, key, Matching::Constants(rows.clone()), &[Way::new()]));
        }
        places
    }
}

/// What is known of references where ways begin.
struct Known<'k> {
    constants: Vec<Constants<'k>>,
    ends: Vec<End>,
    /// Those that the answer bounds.
    cut: Vec<usize>,
}

impl JoinKeys {
    /// One SELECT for the keys of all of these, to be run on a connection to the same server after their fills began. Two
    /// columns: the join keys's and the part's number as `1.0`, and a key, which may be NULL, both as text.
    pub fn sql<'l>(lineages: impl IntoIterator<Item = &'l Self>) -> String {
        in_place(Self::marked_sql(lineages))
    }

    /// The same for this one alone, on PostgreSQL, as a statement to be prepared.
    pub fn parameterised(&self) -> Parameterised {
        as_parameters(&Self::marked_sql([self]))
    }

    fn marked_sql<'l>(lineages: impl IntoIterator<Item = &'l Self>) -> String {
        let mut sql = String::new();
        for (number, join_keys) in lineages.into_iter().enumerate() {
            let parts = join_keys.parts.iter().enumerate();
            let questions = parts.flat_map(|(at, part)| {
                let mark = format!("{number}.{at}");
                let end = part.end.iter().map(|end| format!("SELECT '{mark}', {}", end.sql())).collect::<Vec<_>>();
                part.asked().iter().flat_map(move |select| join_keys.questions(&mark, select)).chain(end)
            });
            let quoted = |name: &str| quoted(join_keys.dialect, name);
            let of_members = join_keys.members.iter().flat_map(|members| members.asked(quoted));
            let of_members = of_members.map(|(at, select)| join_keys.keys_question(&format!("{number}.{at}"), &select));
            for question in questions.chain(of_members) {
                let and = if sql.is_empty() { "" } else { " UNION ALL " };
                let _ = write!(sql, "{and}({question})");
            }
        }
        sql
    }

    /// What is asked of one SELECT, each row marked so.
    fn questions(&self, mark: &str, select: &Select) -> Vec<String> {
        let Select { key, from, conditions, .. } = select;
        let conditions = conditions.join(" AND ");
        let text = |key: &str| as_text(self.dialect, key);
        if self.ranges {
            let end = |end: &str| {
                format!("SELECT '{mark}', {} FROM {from} WHERE {conditions}", text(&format!("{end}({key})")))
            };
            return vec![end("MIN"), end("MAX")];
        }
        vec![self.keys_question(mark, select)]
    }

    /// All keys of one SELECT, or more than are wanted.
    fn keys_question(&self, mark: &str, Select { key, from, conditions, .. }: &Select) -> String {
        let (key, conditions, limit) = (as_text(self.dialect, key), conditions.join(" AND "), KEYS_MAX + 1);
        format!("SELECT DISTINCT '{mark}', {key} FROM {from} WHERE {conditions} LIMIT {limit}")
    }

    /// Of keys asks for the least and the greatest only, which is less than all of too many: between them other rows of the table are,
    /// too. Not of rows that each have to be tested for it, of which most may pass. False if that can be asked of none.
    pub fn ask_for_ranges(&mut self) -> bool {
        self.ranges = true;
        for part in &mut self.parts {
            let has_reach = !part.absent && part.has_order() && part.selects.iter().all(|select| select.finds);
            part.selects.retain(|_| has_reach);
        }
        self.drop_unled();
        self.is_asked()
    }

    /// Rows go with T, whatever their keys: these are not asked for.
    pub fn leave_members(&mut self) {
        self.members.iter_mut().for_each(Members::leave);
    }

    /// Whether keys of rows that go are asked for.
    pub fn asks_for_members(&self) -> bool {
        self.members.iter().any(Members::is_asked)
    }

    /// Whether the tags may stand for the next result, too: not if rows may go by then that are not named.
    pub fn is_lasting(&self) -> bool {
        !self.loses_none
    }

    fn is_asked(&self) -> bool {
        self.parts.iter().any(Part::is_asked) || self.asks_for_members()
    }

    /// Keys of rows to which no keys lead that are asked for are not asked for, either.
    fn drop_unled(&mut self) {
        for members in &mut self.members {
            if members.part().is_some_and(|part| !self.parts.get(part).is_some_and(Part::is_asked)) {
                members.leave();
            }
        }
    }

    /// Whether it does.
    pub fn asks_for_ranges(&self) -> bool {
        self.ranges
    }

    /// Asks for no keys of other tables than these: of those any row will matter; and for keys of rows that go of the second kind of tables
    /// alone. False if nothing is left to ask for.
    pub fn ask_only_of(
        &mut self,
        mut is_wanted: impl FnMut(TableId) -> bool,
        mut loses_rows: impl FnMut(TableId) -> bool,
    ) -> bool {
        for part in &mut self.parts {
            let wanted = is_wanted(part.table);
            part.selects.retain(|_| wanted);
        }
        // Keys of others are known only with the end of the rows that lead to them.
        let leading: Vec<usize> =
            self.parts.iter().flat_map(|part| &part.selects).filter_map(|select| select.end).collect();
        for part in &mut self.parts {
            part.end.take_if(|end| !is_wanted(part.table) && !leading.contains(&end.place));
        }
        for members in self.members.iter_mut().filter(|members| members.is_asked() && !loses_rows(members.table())) {
            members.leave();
            self.loses_none = true;
        }
        self.drop_unled();
        self.is_asked()
    }

    /// The answer is known: it has so many rows, the last of which holds these values. Keys of rows that nothing else bounds are
    /// asked for only if that row does.
    pub fn bound_by_last(&mut self, rows: u64, last: &[Field<'_>]) {
        let Some(top) = self.top.take() else { return };
        if let Some(tests) = top.bound(rows, last) {
            self.bound(top.place(), &[(top.sorted_by(), &tests)]);
        }
    }

    /// Of this reference the answer shows all rows that matter: those that pass these tests.
    pub(crate) fn bound_by_keys(&mut self, place: usize, keys: &[Term]) {
        let tests: Vec<_> = keys.iter().map(|term| (&term.column, std::slice::from_ref(&term.test))).collect();
        self.bound(place, &tests);
    }

    /// Where ways begin at this reference, its rows are those that pass one test of each of these columns.
    fn bound(&mut self, place: usize, tests: &[(&ComparedColumn, &[Test])]) {
        let name = |column: &ComparedColumn| format!("t0.{}", quoted(self.dialect, &column.name));
        let written = tests.iter().map(|(column, tests)| written_bound(column, &name(column), tests));
        let Some(conditions) = written.collect::<Option<Vec<_>>>() else { return };
        let of_parts = self.parts.iter_mut().flat_map(|part| &mut part.selects);
        for select in of_parts.chain(self.members.iter_mut().flat_map(Members::selects_mut)) {
            if select.cut.take_if(|start| *start == place).is_some() {
                select.conditions.extend_from_slice(&conditions);
                select.bounded = true;
            }
        }
    }

    /// Tables of which any row will matter because their keys are not asked for.
    pub fn left_out(&self) -> usize {
        self.parts.iter().filter(|part| !part.is_asked() && part.terms.is_empty()).count()
    }

    /// The rows that go which its tags name by their keys.
    pub fn named(&self) -> Vec<NamedRows> {
        self.members.iter().filter(|members| members.is_asked()).map(Members::named).collect()
    }

    /// Bytes of its part of the query.
    pub fn sql_bytes(&self) -> usize {
        let bytes = |select: &Select| {
            select.key.len() + select.from.len() + select.conditions.iter().map(String::len).sum::<usize>()
        };
        let ends = self.parts.iter().filter_map(|part| part.end.as_ref()).map(|end| end.sql().len());
        let of_members =
            self.members.iter().map(|members| members.selects().iter().map(bytes).sum::<usize>() * members.questions());
        self.parts.iter().flat_map(Part::asked).map(bytes).chain(ends).chain(of_members).sum()
    }

    /// The tables that it reads, sorted and distinct.
    pub fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// The tables of which a changed row may make its answer, or the tags that it tells, another: those that it reads, and those of which
    /// any row matters since it does not ask for keys. But for those of rows that go, which [`Self::named`] says.
    pub fn rests_on(&self) -> Vec<TableId> {
        let not_asked = self.parts.iter().filter(|part| !part.is_asked()).map(|part| part.table);
        self.leading.iter().copied().chain(not_asked).collect()
    }

    /// The tags that its answer tells. Without an answer, or where there are too many keys or one without a normal form, any
    /// row matters. Rows that go are told by their old images.
    pub fn deferred_tags(&self, rows: Option<&[Key]>) -> Vec<Tag> {
        let of_constants = self.members.iter().flat_map(Members::tags_of_constants);
        self.tags_of_parts(rows).into_iter().flatten().chain(of_constants).collect()
    }

    /// The same if rows that go are told by their keys, as far as these are known; None: none are.
    pub fn deferred_tags_of_members(&self, rows: &[Key]) -> Option<Vec<Tag>> {
        let mut is_one_known = false;
        let mut told = |members: Option<&Members>, terms: Option<&[Term]>, otherwise: Vec<Tag>| {
            let tags = members.and_then(|members| members.tags(terms, rows));
            is_one_known |= tags.is_some();
            tags.unwrap_or(otherwise)
        };
        let mut all = Vec::new();
        for (number, tags) in self.tags_of_parts(Some(rows)).into_iter().enumerate() {
            let members = self.members.iter().find(|members| members.part() == Some(number));
            match tags.as_slice() {
                [Tag { rows: RowSet::Where(terms), .. }] => all.extend(told(members, Some(&terms.clone()), tags)),
                _ => all.extend(tags),
            }
        }
        for members in self.members.iter().filter(|members| members.part().is_none()) {
            all.extend(told(Some(members), None, members.tags_of_constants()));
        }
        is_one_known.then_some(all)
    }

    /// The tags that each part tells.
    fn tags_of_parts(&self, rows: Option<&[Key]>) -> Vec<Vec<Tag>> {
        let parts = self.parts.iter().enumerate();
        let ends = parts.clone().filter_map(|(number, part)| Some((number, part.end.as_ref()?)));
        let known = |number, end: &End| rows.is_some_and(|rows| end.is_known(&keys_of(number, rows)));
        let unknown: Vec<usize> = ends.filter(|(number, end)| !known(*number, end)).map(|(_, end)| end.place).collect();
        let is_led = |select: &Select| select.end.is_none_or(|end| !unknown.contains(&end));
        let asked = |part: &Part| rows.filter(|_| part.is_asked() && part.selects.iter().all(is_led));
        parts.map(|(number, part)| part.tags(number, asked(part), self.ranges)).collect()
    }
}
