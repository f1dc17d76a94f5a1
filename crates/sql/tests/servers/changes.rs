//! After a commit, every changed result must have been invalidated by the tags that it had before.
//!
//! Queries of all forms are run on random tables, then again within transactions that change some rows and are rolled back, so that each finds the
//! same tables and the same tags. Old rows of some tables have the primary key alone, as in PostgreSQL without REPLICA IDENTITY FULL, or in MySQL
//! under `binlog_row_image = MINIMAL`. Invalidations without a change of the answer are counted, too: a table of these is printed at the end, the
//! worst forms first.
//!
//! `FRESHET_TAG_CHANGES` sets the number of changes on each server (`make soak-tags`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use freshet_sql::{AnswerEnd, Bound, Field, Keys, LimitBound};
use freshet_testbed::{Postgres, Settings};
use freshet_types::{Catalog, Cell, Change, Dialect, ReplicaIdentity, Row, RowSet, Table, TableId, Tag, ValueType};

use crate::conditions::{ROWS, Stored, cell, create, mariadb, mysql, set_deferred, types, values, zone};
use crate::queries::{COLUMNS, Queries, TABLES};
use crate::{DATABASE, PUBLIC, Random, Server, Upstream, bound, catalog, client, views};

/// Changes on each server, by default.
const CHANGES: usize = 500;
/// Queries that are run around each change.
const TOGETHER: usize = 8;
/// Changes around which the same queries are run.
const CHANGES_OF_GROUP: usize = 25;
/// Groups between which the tables stay the same.
const GROUPS: usize = 20;

/// A query with its dependencies.
struct Asked {
    shape: [&'static str; 2],
    text: String,
    tags: Vec<Tag>,
    /// For an unordered LIMIT: the rows that it may return, and the limit.
    open: Option<(String, usize)>,
}

/// A transaction: its statements, and its changes as the stream reports them.
struct Commit {
    script: String,
    changes: Vec<Change>,
}

/// How often results of one form were invalidated.
#[derive(Default)]
struct Precision {
    /// Results, counted once for each commit.
    asked: usize,
    /// Commits that changed them.
    changed: usize,
    needless: usize,
    /// Those of them by a tag for any row.
    by_any_row: usize,
    /// Changed results with result keys or member keys.
    keyed: usize,
}

/// Creates commits. Each begins with the original rows.
struct Writer<'r> {
    random: &'r mut Random,
    postgres: bool,
    stored: &'r [Stored],
    /// Tables whose old rows have the primary key alone.
    keyed: &'r [bool],
}

impl Writer<'_> {
    fn commit(&mut self) -> Commit {
        let mut commit = Commit { script: String::new(), changes: Vec::new() };
        // Each row once.
        let mut ids: Vec<usize> = Vec::new();
        for number in 0..[1, 1, 1, 2, 3][self.random.below(5)] {
            let id = self.random.below(ROWS);
            if ids.contains(&id) {
                continue;
            }
            ids.push(id);
            let (statement, change) = self.change(id, 1_000 + number);
            let is_undone = self.random.below(8) == 0;
            let lines = if is_undone {
                format!("SAVEPOINT s;\n{statement}\nROLLBACK TO SAVEPOINT s;\n")
            } else {
                commit.changes.push(change);
                format!("{statement}\n")
            };
            commit.script += &lines;
        }
        commit
    }

    /// A change of the row with this number, or an insertion of another.
    fn change(&mut self, id: usize, free: usize) -> (String, Change) {
        let table = self.random.below(self.stored.len());
        let Stored { name, relation, rows } = &self.stored[table];
        // The old row in the stream.
        let told = |mut old: Row| {
            if self.keyed[table] {
                old[1..].fill(Cell::Absent);
            }
            old
        };
        let relation = relation.clone();
        let fresh = values(self.random, self.postgres);
        let others: Row = types(self.postgres).into_iter().zip(std::iter::once("").chain(fresh)).map(cell).collect();
        let numbered = |id: usize, mut row: Row| {
            row[0] = cell((ValueType::Int, &id.to_string()));
            row
        };
        let old = rows[id].clone();
        match self.random.below(8) {
            0 => (
                format!("INSERT INTO {name} VALUES ({free}, {});", fresh.join(", ")),
                Change::Insert { relation, new: numbered(free, others) },
            ),
            1 => (format!("DELETE FROM {name} WHERE id = {id};"), Change::Delete { relation, old: told(old) }),
            kind => {
                let mut new = old.clone();
                if self.keyed[table] && !self.postgres {
                    // With MySQL, neither are unchanged values.
                    new.fill(Cell::Unchanged);
                } else if self.keyed[table] && self.random.below(4) == 0 {
                    // Large values that did not change are not sent.
                    let unsent = [Cell::Absent, Cell::Unchanged][self.random.below(2)].clone();
                    new[1 + self.random.below(COLUMNS.len() - 1)] = unsent;
                }
                let mut assignments = Vec::new();
                for _ in 0..kind.div_ceil(3) {
                    let column = 1 + self.random.below(COLUMNS.len() - 1);
                    assignments.push((column, format!("{} = {}", COLUMNS[column], fresh[column - 1])));
                    new[column] = others[column].clone();
                }
                if self.random.below(20) == 0 {
                    assignments.push((0, format!("id = {free}")));
                    new = numbered(free, new);
                }
                assignments.sort();
                assignments.dedup();
                let assignments: Vec<String> = assignments.into_iter().map(|(_, assignment)| assignment).collect();
                let statement = format!("UPDATE {name} SET {} WHERE id = {id};", assignments.join(", "));
                (statement, Change::Update { relation, old: told(old), new })
            }
        }
    }
}

/// Queries with tags computed by the server; those of each group in its time zone.
fn analysed(
    upstream: Upstream<'_>,
    catalog: &Catalog,
    random: &mut Random,
    dialect: Dialect,
    (zones, names): (&[&str], &str),
    views: Vec<&'static str>,
) -> Result<Vec<Asked>> {
    let mut queries = Queries { random, postgres: dialect == Dialect::Postgres, shape: [""; 2], views };
    let (mut bounds, mut shapes): (Vec<(String, Bound)>, Vec<[&str; 2]>) = (Vec::new(), Vec::new());
    let (mut cuts, mut opens) = (Vec::new(), HashMap::new());
    let plain =
        |query: &str| TABLES.iter().fold(query.to_owned(), |text, name| text.replace(&format!("{{{name}}}"), name));
    // PostgreSQL's show their keys, too.
    let cuts_share = if dialect == Dialect::Postgres { 2 } else { 4 };
    while bounds.len() < TOGETHER * GROUPS {
        let cut = (queries.random.below(cuts_share) == 0).then(|| queries.cut());
        let query = cut.as_ref().map_or_else(|| queries.query(), |cut| cut.statement.clone());
        let client = client(zones[bounds.len() / TOGETHER]);
        if let Ok(bound) = bound(dialect, catalog, &format!("SELECT {}", plain(&query)), &[], client) {
            let text = cut.as_ref().map_or(query, |cut| cut.all.clone());
            if let Some(cut) = cut.filter(|_| bound.limit_bound.is_some() || bound.keys.is_some()) {
                let of_keys = bound.keys.iter().flat_map(Keys::columns);
                let of_page = bound.derived_limit.iter().flat_map(|page| page.columns().iter().copied());
                let columns: Vec<usize> =
                    bound.limit_bound.iter().map(LimitBound::column).chain(of_keys).chain(of_page).collect();
                let rows = plain(&cut.rows(&columns, dialect == Dialect::Postgres));
                opens.extend(cut.open.map(|rows_max| (bounds.len(), rows_max)));
                cuts.push(Told { place: bounds.len(), columns, rows, width: cut.names.len() });
            }
            bounds.push((plain(&text), bound));
            shapes.push(queries.shape);
        }
    }
    let mut shown = tell_rows(upstream, (zones, names), &cuts, &mut bounds)?;
    set_deferred(upstream, &mut bounds)?;
    let asked = bounds.into_iter().zip(shapes).enumerate();
    Ok(asked
        .map(|(place, ((text, Bound { tags, .. }), shape))| {
            let open = opens.get(&place).and_then(|rows_max| Some((shown.remove(&place)?, *rows_max)));
            Asked { shape, text, tags, open }
        })
        .collect())
}

/// A query with deferred tags.
struct Told {
    /// Its place among all queries.
    place: usize,
    /// The columns of the answer that give them, and the number of columns.
    columns: Vec<usize>,
    width: usize,
    /// A query for the rows' values in these columns.
    rows: String,
}

/// Adds the tags from the rows of the answers, by the queries' places.
fn tell_rows(
    upstream: Upstream<'_>,
    (zones, names): (&[&str], &str),
    cuts: &[Told],
    bounds: &mut [(String, Bound)],
) -> Result<HashMap<usize, String>> {
    let postgres = matches!(upstream, Upstream::Postgres(_));
    let mut asker = Server::new(upstream);
    asker.say(if postgres { "DROP FUNCTION IF EXISTS ask_0;" } else { "DROP PROCEDURE IF EXISTS ask_0;" });
    asker.say(if postgres { "" } else { "DROP PROCEDURE IF EXISTS ask_with_0;" });
    asker.connection(names, 0);
    asker.say(if postgres { "" } else { "SET sql_mode = '';" });
    let mut numbers = Vec::new();
    for told in cuts {
        asker.say(zones[told.place / TOGETHER]);
        numbers.push(asker.ask("ask_0", &told.rows));
    }
    let answers = asker.answers()?;
    let mut shown = HashMap::new();
    for (told, number) in cuts.iter().zip(numbers) {
        let Bound { limit_bound, keys, tags, join_keys, derived_limit } = &mut bounds[told.place].1;
        // An error has no answer: then an unreadable row stands for all.
        let answer = answers.get(&number).map(|answer| answer.split_once('|').unwrap_or((answer, "")));
        shown.extend(answer.map(|(_, shown)| (told.place, shown.to_owned())));
        let rows = answer.map_or_else(|| vec![Vec::new()], |(answer, _)| told.rows_of(answer));
        let end = AnswerEnd::of(derived_limit.as_ref(), rows.iter(), |row| Vec::clone(row));
        if let Some(join_keys) = join_keys.as_mut() {
            join_keys.bound_by_last(end.rows, &end.last);
        }
        if let Some(bound) = limit_bound {
            tags.extend(bound.deferred_tags(end.rows, &end.last));
        }
        if let Some(keys) = keys {
            tags.extend(keys.deferred_tags(rows.iter(), |row| Vec::clone(row), &end, join_keys.as_mut()));
        }
    }
    Ok(shown)
}

impl Told {
    /// The values of each row, from the answer to its query.
    fn rows_of<'a>(&self, answer: &'a str) -> Vec<Vec<Field<'a>>> {
        let (count, rows) = answer.split_once(';').unwrap_or(("0", ""));
        let row = |text: &'a str| {
            let mut row = vec![Field::Other; self.width];
            for (at, cell) in self.columns.iter().zip(text.split(',')) {
                row[*at] = if cell == "NULL" { Field::Null } else { Field::Text(cell.as_bytes()) };
            }
            row
        };
        rows.split(';').take(count.parse().unwrap_or(0)).map(row).collect()
    }
}

/// The number of the query before all changes, then the numbers after each of them.
type Numbers = (usize, Vec<usize>);

/// The same with the primary key as replica identity of these tables.
fn with_keys<'s>(catalog: &Catalog, tables: impl Iterator<Item = &'s Stored>) -> Catalog {
    let numbers: HashSet<TableId> = tables.map(|stored| stored.relation.table).collect();
    let tables = numbers
        .iter()
        .filter_map(|number| catalog.table(*number))
        .map(|table| Table { identity: ReplicaIdentity::Columns(vec![COLUMNS[0].into()]), ..Table::clone(table) });
    catalog.with_anew(catalog.version, &numbers, tables.collect())
}

/// As many changes as fit between two creations of the tables; returns their number.
fn batch(
    upstream: Upstream<'_>,
    random: &mut Random,
    dialect: Dialect,
    found: &mut BTreeMap<[&'static str; 2], Precision>,
) -> Result<usize> {
    let postgres = dialect == Dialect::Postgres;
    views::drop(upstream)?;
    for table in TABLES {
        upstream.sql(&format!("DROP TABLE IF EXISTS {table}; DROP TABLE IF EXISTS other_{table};"))?;
    }
    let stored = create(upstream, random)?;
    let columns: Vec<(&str, ValueType)> = COLUMNS.into_iter().zip(types(postgres)).collect();
    let catalog = catalog(if postgres { PUBLIC } else { DATABASE }, &TABLES.map(|table| (table, columns.as_slice())));
    let keyed: Vec<bool> = stored.iter().map(|_| random.below(3) > usize::from(!postgres)).collect();
    let catalog = with_keys(&catalog, stored.iter().zip(&keyed).filter(|(_, keyed)| **keyed).map(|(table, _)| table));
    let zones: Vec<&str> = (0..GROUPS).map(|_| zone(random, postgres)).collect();
    let (catalog, views) = views::create(upstream, random, &catalog)?;
    // In some collations the capital of `i` is another letter.
    let names = random.one_of(&["utf8mb4", "utf8mb4 COLLATE utf8mb4_turkish_ci"]);
    let all = analysed(upstream, &catalog, random, dialect, (&zones, names), views)?;
    let mut asker = Server::new(upstream);
    asker.say(if postgres { "DROP FUNCTION IF EXISTS ask_0;" } else { "DROP PROCEDURE IF EXISTS ask_0;" });
    asker.say(if postgres { "" } else { "DROP PROCEDURE IF EXISTS ask_with_0;" });
    asker.connection(names, 0);
    asker.say(if postgres { "" } else { "SET sql_mode = '';" });
    let utc = if postgres { "SET TimeZone = 'UTC';" } else { "SET time_zone = '+00:00';" };
    let (mut commits, mut numbers): (Vec<Vec<Commit>>, Vec<Numbers>) = (Vec::new(), Vec::new());
    for (group, zone) in all.chunks(TOGETHER).zip(zones) {
        asker.say(zone);
        let before = group.iter().map(|asked| (asker.ask("ask_0", &asked.text), Vec::new()));
        let first = numbers.len();
        numbers.extend(before.collect::<Vec<_>>());
        let mut writer = Writer { random, postgres, stored: &stored, keyed: &keyed };
        let of_group: Vec<Commit> = (0..CHANGES_OF_GROUP).map(|_| writer.commit()).collect();
        for commit in &of_group {
            // What is written says no zone.
            asker.say(&format!("START TRANSACTION;\n{utc}\n{}{zone}", commit.script));
            for (asked, (_, behind)) in group.iter().zip(&mut numbers[first..]) {
                behind.push(asker.ask("ask_0", &asked.text));
            }
            asker.say("ROLLBACK;");
        }
        commits.push(of_group);
    }
    let answers = asker.answers()?;
    for (group, (asked, commits)) in all.chunks(TOGETHER).zip(&commits).enumerate() {
        for (asked, numbers) in asked.iter().zip(&numbers[group * TOGETHER..]) {
            judge(asked, numbers, commits, &answers, found.entry(asked.shape).or_default())?;
        }
    }
    Ok(commits.iter().flatten().map(|commit| commit.changes.len()).sum())
}

/// Whether a result is no longer a correct answer. `all`: a correct one; if there are several, all rows that may be returned.
fn is_another(before: &str, open: Option<&(String, usize)>, all: &str) -> bool {
    let rows = |text: &str| if text == "none" { Vec::new() } else { text.split(',').map(str::to_owned).collect() };
    let Some((shown, rows_max)) = open else { return before != all };
    let (shown, mut all): (Vec<String>, Vec<String>) = (rows(shown), rows(all));
    let count = all.len().min(*rows_max);
    let mut take = |row: &String| all.iter().position(|of_all| of_all == row).map(|at| all.swap_remove(at));
    shown.len() != count || shown.iter().any(|row| take(row).is_none())
}

/// Whether one result was invalidated if necessary.
fn judge(
    asked: &Asked,
    (before, behind): &Numbers,
    commits: &[Commit],
    answers: &HashMap<usize, String>,
    precision: &mut Precision,
) -> Result<()> {
    let Some(before) = answers.get(before) else { return Ok(()) };
    ensure!(!is_another(before, asked.open.as_ref(), before), "{}: {:?} of {before}", asked.text, asked.open);
    for (commit, number) in commits.iter().zip(behind) {
        // An error has no answer: a row on which the result does not depend may raise it (see `analyze/mod.rs`).
        let Some(after) = answers.get(number) else { continue };
        let hits = |tag: &&Tag| tag.rows != RowSet::Later && commit.changes.iter().any(|change| tag.may_be_hit(change));
        let hit = asked.tags.iter().find(hits);
        let changed = is_another(before, asked.open.as_ref(), after);
        let Asked { text, tags, open, .. } = asked;
        ensure!(
            hit.is_some() || !changed,
            "{text}\n  {before}\nof which {open:?}\nbehind {}  {after:?}\nby {:?}\nwith {tags:?}",
            commit.script,
            commit.changes
        );
        precision.asked += 1;
        precision.changed += usize::from(changed);
        let is_keyed = open.is_some() || tags.iter().any(|tag| matches!(tag.rows, RowSet::Enters(_)));
        precision.keyed += usize::from(changed && is_keyed);
        precision.needless += usize::from(hit.is_some() && !changed);
        precision.by_any_row += usize::from(hit.is_some_and(|tag| tag.rows == RowSet::Any) && !changed);
    }
    Ok(())
}

/// The worst forms first.
fn report(changes: usize, found: &BTreeMap<[&'static str; 2], Precision>) -> String {
    let mut lines: Vec<_> = found.iter().collect();
    lines.sort_by_key(|(_, precision)| std::cmp::Reverse(precision.needless * 1_000 / precision.asked.max(1)));
    let mut text = format!("{changes} changes\n");
    let _ = writeln!(text, "{:<44} {:>8} {:>8} {:>8} {:>6} {:>8}", "", "asked", "changed", "needless", "%", "any row");
    for ([select, from], Precision { asked, changed, needless, by_any_row, .. }) in lines {
        let (shape, percent) = (format!("{select} of {from}"), needless * 100 / (*asked).max(1));
        let _ = writeln!(text, "{shape:<44} {asked:>8} {changed:>8} {needless:>8} {percent:>6} {by_any_row:>8}");
    }
    text
}

fn what_changes_is_hit(upstream: Upstream<'_>, dialect: Dialect) -> Result<()> {
    let wanted = match std::env::var("FRESHET_TAG_CHANGES") {
        Ok(number) => number.parse().context("FRESHET_TAG_CHANGES")?,
        Err(_) => CHANGES,
    };
    let mut random = Random(0x5EED_0005);
    let mut found = BTreeMap::new();
    let mut changes = 0;
    while changes < wanted {
        changes += batch(upstream, &mut random, dialect, &mut found)?;
    }
    eprintln!("{dialect:?}: {}", report(changes, &found));
    let changed: usize = found.values().map(|precision| precision.changed).sum();
    let keyed: usize = found.values().map(|precision| precision.keyed).sum();
    eprintln!("{keyed} of {changed} other results show keys");
    let tests = changed * 50 > changes && (dialect != Dialect::Postgres || keyed * 50 > changes);
    ensure!(tests, "the test does not test");
    Ok(())
}

#[test]
fn mariadb_hits_what_changes() -> Result<()> {
    let server = mariadb()?;
    what_changes_is_hit(Upstream::Mysql(&server), Dialect::MariaDb)
}

#[test]
fn mysql_hits_what_changes() -> Result<()> {
    let server = mysql()?;
    what_changes_is_hit(Upstream::Mysql(&server), Dialect::MySql)
}

#[test]
fn postgresql_hits_what_changes() -> Result<()> {
    let server = Postgres::find(None)?.start(&Settings::default())?;
    what_changes_is_hit(Upstream::Postgres(&server), Dialect::Postgres)
}
