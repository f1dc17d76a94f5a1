//! Rows and columns without a tag do not matter: a query over tables without the rows that no tag matches has the same answer, and so has one over
//! tables with other values in the columns that no tag names.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use freshet_sql::{Bound, JoinKeys, Key, Parameterised};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Postgres, Settings};
use freshet_types::{Catalog, Cell, Columns, Dialect, Relation, Row, RowSet, TableId, Tag, ValueType};

use crate::queries::{COLUMNS, Queries, TABLES};
use crate::{DATABASE, PUBLIC, Random, Server, Upstream, bound, catalog, client};

pub(crate) const ROWS: usize = 18;
const KEY_QUERIES_AT_ONCE: usize = 7;

/// A table on the server and in the stream.
pub(crate) struct Stored {
    pub(crate) name: &'static str,
    pub(crate) relation: Arc<Relation>,
    /// By their `id`.
    pub(crate) rows: Vec<Row>,
}

pub(crate) fn types(postgres: bool) -> [ValueType; COLUMNS.len()] {
    use ValueType::{Date, ExactText, FoldedText, OrderedText, Text, Timestamp, TimestampTz};
    use ValueType::{Float4, Float8, Int, Numeric, Unsigned};
    let (k, s, e) = if postgres { (Int, Text, OrderedText) } else { (Unsigned, FoldedText, ExactText) };
    [Int, Int, Int, Numeric, k, s, e, Date, Timestamp, TimestampTz, Float4, Float8]
}

/// The values of a row without its id, as SQL.
pub(crate) fn values(random: &mut Random, postgres: bool) -> [&'static str; COLUMNS.len() - 1] {
    let dates: &[&str] = if postgres { &["NULL", "'infinity'", "'0044-03-15 BC'"] } else { &["NULL", "'0000-00-00'"] };
    let moments: &[&str] = if postgres { &["'-infinity'"] } else { &["'0000-00-00 00:00:00'"] };
    let floats: &[&str] = if postgres { &["'NaN'", "'Infinity'", "'-0'"] } else { &["-0e0"] };
    let of = |random: &mut Random, everywhere: &[&'static str], here: &[&'static str]| {
        random.one_of(&everywhere.iter().chain(here).copied().collect::<Vec<_>>())
    };
    let integer = ["NULL", "0", "1", "2", "1", "-1"];
    let large = if postgres { "9223372036854775807" } else { "18446744073709551615" };
    [
        random.one_of(&integer),
        random.one_of(&integer),
        random.one_of(&["NULL", "-1.5", "-0.5", "0.0", "0.5", "1.0", "1.0", "1.5", "2.0"]),
        random.one_of(&["NULL", "0", "1", "1", "2", "9007199254740993", large]),
        random.one_of(&[
            "NULL",
            "'x'",
            "'X '",
            "'y'",
            "'1'",
            "''",
            "'xy'",
            "'x y'",
            "'xé'",
            "'é'",
            "'abcdefghij'",
            "'x_y'",
            "'X%y'",
            "'\u{212a}'",
            "'abcdefghz'",
            "'ß'",
            "'ss'",
            "'xi'",
            "'XI'",
        ]),
        random.one_of(&["NULL", "'x'", "'X'", "'y'", "'x '", "''", "'xy'", "'xé'", "'é'", "'abcdefghij'", "'x_'"]),
        of(random, &["'2026-01-01'", "'2026-01-01'", "'2026-01-02'", "'2026-03-29'", "'2025-12-31'"], dates),
        of(
            random,
            &[
                "NULL",
                "'2026-01-01 00:00:00'",
                "'2026-01-01 10:00:00'",
                "'2026-01-01 10:00:00.5'",
                "'2026-01-02 00:00:00'",
                "'2026-03-29 02:30:00'",
            ],
            moments,
        ),
        of(
            random,
            &[
                "NULL",
                "'2026-01-01 00:00:00'",
                "'2026-01-01 23:30:00'",
                "'2025-12-31 22:30:00'",
                "'2026-01-01 10:00:00.5'",
                "'2026-01-20 00:00:00'",
                "'2026-03-29 01:30:00'",
            ],
            moments,
        ),
        of(random, &["NULL", "0", "0.1", "-0.1", "1.5", "16777216", "2"], floats),
        of(random, &["NULL", "0", "0.1", "-0.1", "1.5", "16777217", "1e-300"], floats),
    ]
}

/// Settings with unusual forms of dates, for input and output.
pub(crate) fn zone(random: &mut Random, postgres: bool) -> &'static str {
    if postgres {
        random.one_of(&[
            "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY';",
            "SET TimeZone = 'Europe/Berlin'; SET DateStyle = 'SQL, DMY';",
            "SET TimeZone = 'Pacific/Kiritimati'; SET DateStyle = 'German, YMD';",
            "SET TimeZone = '<x>+167'; SET DateStyle = 'Postgres, MDY';",
        ])
    } else {
        random.one_of(&[
            "SET time_zone = '+00:00';",
            "SET time_zone = '+13:00';",
            "SET time_zone = '-12:00';",
            "SET time_zone = '+02:00';",
        ])
    }
}

pub(crate) fn cell((value_type, value): (ValueType, &str)) -> Cell {
    let text = value.trim_matches('\'');
    match value_type {
        _ if value == "NULL" => Cell::Null,
        ValueType::TimestampTz if !value.contains("infinity") => Cell::Text(format!("{text}+00").into_bytes().into()),
        _ => Cell::Text(text.as_bytes().into()),
    }
}

/// Creates the tables, each with a second one in which the columns of the same rows have other values.
pub(crate) fn create(upstream: Upstream<'_>, random: &mut Random) -> Result<Vec<Stored>> {
    let postgres = matches!(upstream, Upstream::Postgres(_));
    let columns = if postgres {
        "a INT, b INT, n NUMERIC(6,1), k BIGINT, s VARCHAR(12), e TEXT COLLATE \"C\", d DATE, t TIMESTAMP(3), \
         z TIMESTAMPTZ, f REAL, g DOUBLE PRECISION"
    } else {
        // Not NOT NULL: IS NULL is true of zero dates there, but not in a sub-query.
        "a INT, b INT, n DECIMAL(6,1), k BIGINT UNSIGNED, s VARCHAR(12), e VARCHAR(12) COLLATE utf8mb4_bin, \
         d DATE, t DATETIME(3), z TIMESTAMP(3) NULL, f FLOAT, g DOUBLE"
    };
    let types = types(postgres);
    let mut script = String::new();
    script += if postgres { "SET TimeZone = 'UTC';" } else { "SET time_zone = '+00:00'; SET sql_mode = '';" };
    let mut found = Vec::new();
    for (table, number) in TABLES.into_iter().zip(1..) {
        let _ = writeln!(script, "CREATE TABLE {table} (id INT PRIMARY KEY, {columns});");
        let _ = writeln!(script, "CREATE TABLE other_{table} (old INT PRIMARY KEY, id INT, {columns});");
        let mut rows: Vec<Row> = Vec::new();
        for id in 0..ROWS {
            let values = values(random, postgres);
            let others = self::values(random, postgres).join(", ");
            let _ = writeln!(script, "INSERT INTO {table} VALUES ({id}, {});", values.join(", "));
            let _ = writeln!(script, "INSERT INTO other_{table} VALUES ({id}, {}, {others});", 100 + (id * 7) % ROWS);
            let id = id.to_string();
            rows.push(types.into_iter().zip(std::iter::once(&*id).chain(values)).map(cell).collect());
        }
        let columns = COLUMNS.map(Into::into).to_vec();
        let relation = Arc::new(Relation { table: TableId(number), columns });
        found.push(Stored { name: table, relation, rows });
    }
    upstream.sql(&script)?;
    Ok(found)
}

/// A table without the rows on which the result does not depend.
fn filtered(stored: &Stored, tags: &[&Tag]) -> String {
    let matters = |row: &Row| {
        tags.iter().any(|tag| match &tag.rows {
            RowSet::Where(terms) => terms.iter().all(|term| term.may_hold(&stored.relation, row)),
            // Another tag determines the rows.
            RowSet::Later => false,
            _ => true,
        })
    };
    let ids = (0..).zip(&stored.rows).filter(|(_, row)| matters(row)).map(|(id, _): (usize, _)| id.to_string());
    let ids: Vec<String> = std::iter::once("-1".to_owned()).chain(ids).collect();
    format!("(SELECT * FROM {} WHERE id IN ({}))", stored.name, ids.join(", "))
}

/// A table with other values in the columns on which the result does not depend.
fn scrambled(stored: &Stored, tags: &[&Tag]) -> String {
    let matters = |column: &str| {
        tags.iter().any(|tag| match &tag.columns {
            Columns::All => true,
            Columns::Only(names) => names.iter().any(|name| **name == *column),
        })
    };
    let columns = COLUMNS.map(|column| format!("{}.{column}", if matters(column) { "o" } else { "z" }));
    let name = stored.name;
    format!("(SELECT {} FROM {name} o JOIN other_{name} z ON z.old = o.id)", columns.join(", "))
}

/// Queries that must have the same answer.
struct Asked {
    whole: String,
    /// With fewer rows, with other columns.
    parts: [(usize, String); 2],
}

fn ask(asker: &mut Server<'_>, stored: &[Stored], catalog: &Catalog, query: &str, tags: &[Tag]) -> (usize, Asked) {
    let with = |table: &dyn Fn(&Stored, &[&Tag]) -> String| {
        stored.iter().fold(query.to_owned(), |text, stored| {
            let of_table = |tag: &&Tag| catalog.table(tag.table).is_some_and(|found| *found.name == *stored.name);
            let tags: Vec<&Tag> = tags.iter().filter(of_table).collect();
            text.replace(&format!("{{{}}}", stored.name), &table(stored, &tags))
        })
    };
    let whole = with(&|stored, _| stored.name.to_owned());
    let first = asker.ask("ask_0", &whole);
    let parts = [with(&filtered), with(&scrambled)].map(|part| (asker.ask("ask_0", &part), part));
    (first, Asked { whole, parts })
}

/// Adds the deferred tags of all, with keys from the server; returns how many have some.
pub(crate) fn set_deferred(upstream: Upstream<'_>, analysed: &mut [(String, Bound)]) -> Result<usize> {
    // For some, the minimum and maximum of the keys.
    for (_, Bound { join_keys, .. }) in analysed.iter_mut().skip(1).step_by(3) {
        let _ = join_keys.as_mut().is_some_and(JoinKeys::ask_for_ranges);
    }
    let all_join_keys: Vec<&JoinKeys> = analysed.iter().filter_map(|(_, bound)| bound.join_keys.as_ref()).collect();
    // As the proxy does: each as a prepared statement, or several in one query.
    let (at_once, between, first) = if let Upstream::Postgres(_) = upstream {
        (1, '|', "\\pset null NULL\n")
    } else {
        (KEY_QUERIES_AT_ONCE, '\t', "")
    };
    let asked = |some: &[&JoinKeys]| match some {
        [join_keys] if at_once == 1 => executed(&join_keys.parameterised()),
        _ => JoinKeys::sql(some.iter().copied()),
    };
    let script: Vec<String> = all_join_keys
        .chunks(at_once)
        .map(asked)
        .map(|sql| format!("SELECT 'of', '-';{}\n", if sql.is_empty() { sql } else { format!("{sql};") }))
        .collect();
    let mut keys: HashMap<usize, Vec<Key>> = HashMap::new();
    let mut chunks = 0;
    for line in upstream.sql(&format!("{first}{}", script.concat()))?.lines() {
        // The last line has lost its blanks: an empty text.
        let (place, key) = line.split_once(between).unwrap_or((line, ""));
        if place == "of" {
            chunks += 1;
            continue;
        }
        let (number, part) = place.split_once('.').with_context(|| line.to_owned())?;
        let of = (chunks - 1) * at_once + number.parse::<usize>()?;
        let key = (key != "NULL").then(|| key.as_bytes().to_vec());
        keys.entry(of).or_default().push((part.parse()?, key));
    }
    let mut led = 0;
    for (_, bound) in analysed.iter_mut() {
        if let Some(join_keys) = &bound.join_keys {
            let keys = keys.get(&led).map_or(&[][..], Vec::as_slice);
            let of_members = join_keys.deferred_tags_of_members(keys);
            bound.tags.extend(of_members.unwrap_or_else(|| join_keys.deferred_tags(Some(keys))));
            led += 1;
        }
    }
    Ok(led)
}

/// Prepared and executed.
fn executed(Parameterised { sql, parameters }: &Parameterised) -> String {
    if sql.is_empty() {
        return String::new();
    }
    let values: Vec<String> = parameters.iter().map(|value| format!("'{}'", value.replace('\'', "''"))).collect();
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    format!("PREPARE asked AS {sql};\nEXECUTE asked{values};\nDEALLOCATE asked")
}

fn what_no_tag_says_does_not_matter(upstream: Upstream<'_>, dialect: Dialect) -> Result<()> {
    let mut random = Random(0x5EED_0003);
    let postgres = dialect == Dialect::Postgres;
    let stored = create(upstream, &mut random)?;
    let columns: Vec<(&str, ValueType)> = COLUMNS.into_iter().zip(types(postgres)).collect();
    let schema = if postgres { PUBLIC } else { DATABASE };
    let catalog = catalog(schema, &TABLES.map(|table| (table, columns.as_slice())));
    let mut refused = 0;
    let mut queries = Queries { random: &mut random, postgres, shape: [""; 2], views: Vec::new() };
    let (mut analysed, mut zones): (Vec<(String, Bound)>, Vec<&str>) = (Vec::new(), Vec::new());
    for _ in 0..2_600 {
        let query = queries.query();
        let whole = TABLES.iter().fold(query.clone(), |text, name| text.replace(&format!("{{{name}}}"), name));
        let zone = zone(queries.random, postgres);
        match bound(dialect, &catalog, &format!("SELECT {whole}"), &[], client(zone)) {
            Ok(bound) => {
                analysed.push((query, bound));
                zones.push(zone);
            }
            Err(_) => refused += 1,
        }
    }
    let led = set_deferred(upstream, &mut analysed)?;
    let mut asker = Server::new(upstream);
    asker.connection("utf8mb4", 0);
    let mut asked: HashMap<usize, Asked> = HashMap::new();
    let (mut precise, mut narrow) = (0, 0);
    for ((query, Bound { tags, .. }), zone) in analysed.iter().zip(zones) {
        precise += usize::from(tags.iter().any(|tag| matches!(tag.rows, RowSet::Where(_))));
        narrow += usize::from(tags.iter().any(|tag| tag.columns != Columns::All));
        asker.say(zone);
        let (question, all) = ask(&mut asker, &stored, &catalog, query, tags);
        asked.insert(question, all);
    }
    let answers = asker.answers()?;
    let (mut equal, mut empty, mut failed) = (0, 0, 0);
    for (first, Asked { whole, parts }) in &asked {
        let Some(answer) = answers.get(first) else { continue };
        for (question, part) in parts {
            // With another order of tables, a sum may be computed for rows that another condition would have dropped, and overflow.
            let Some(other) = answers.get(question) else {
                failed += 1;
                continue;
            };
            ensure!(answer == other, "{whole}\n  {answer}\n{part}\n  {other}");
        }
        equal += 1;
        empty += usize::from(answer == "none" || answer == "0");
    }
    eprintln!(
        "{} asked, {refused} not analysed, {precise} with fewer rows, {led} with keys from others, {narrow} with fewer columns; \
         {equal} equal, {empty} of them empty",
        asked.len()
    );
    ensure!(equal - empty > 400 && precise > 500 && narrow > 500 && led > 100, "the test does not test");
    ensure!(failed * 100 < equal, "{failed} parts have no answer");
    Ok(())
}

/// Nested derived tables are joins of dozens of tables: considering all join orders takes hours.
fn settings() -> MysqlSettings {
    MysqlSettings::default().with("optimizer-search-depth = 4")
}

/// MariaDB 10.11 computes nested outer joins wrongly with join buffers: the number of rows depends on `join_buffer_size`.
pub(crate) fn mariadb() -> Result<Mariadb> {
    Mariadb::start(&settings().with("optimizer-switch = outer_join_with_cache=off"))
}

pub(crate) fn mysql() -> Result<Mysql> {
    Mysql::start(&settings())
}

#[test]
fn mariadb_needs_nothing_without_a_tag() -> Result<()> {
    let server = mariadb()?;
    what_no_tag_says_does_not_matter(Upstream::Mysql(&server), Dialect::MariaDb)
}

#[test]
fn mysql_needs_nothing_without_a_tag() -> Result<()> {
    let server = mysql()?;
    what_no_tag_says_does_not_matter(Upstream::Mysql(&server), Dialect::MySql)
}

#[test]
fn postgresql_needs_nothing_without_a_tag() -> Result<()> {
    let server = Postgres::find(None)?.start(&Settings::default())?;
    what_no_tag_says_does_not_matter(Upstream::Postgres(&server), Dialect::Postgres)
}
