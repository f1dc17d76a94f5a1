//! The same for PostgreSQL: if it says that a column equals a constant or is less, the tag matches the row; with various time zones and date styles.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use freshet_sql::{Parameter, ParameterValue};
use freshet_testbed::{Postgres, Settings};
use freshet_types::{Cell, Dialect, Relation, RowSet, TableId, Term, ValueType};

use crate::{PUBLIC, Random, Server, Upstream, catalog, client, tags};

/// A column's type, and how its values compare.
const COLUMNS: &[(&str, ValueType)] = &[
    ("date", ValueType::Date),
    ("timestamp", ValueType::Timestamp),
    ("timestamp(0)", ValueType::Timestamp),
    ("timestamptz", ValueType::TimestampTz),
    ("timestamptz(2)", ValueType::TimestampTz),
    ("real", ValueType::Float4),
    ("double precision", ValueType::Float8),
    ("text COLLATE \"C\"", ValueType::OrderedText),
    ("varchar(8) COLLATE ucs_basic", ValueType::OrderedText),
    ("text", ValueType::Text),
    ("text COLLATE pg_unicode_fast", ValueType::Text),
    ("varchar(8) COLLATE pg_c_utf8", ValueType::Text),
    ("text", ValueType::Text),
    ("char(6)", ValueType::PaddedText),
    ("int", ValueType::Int),
    ("numeric(10,3)", ValueType::Numeric),
    ("uuid", ValueType::Uuid),
];

const DATES: &[&str] = &[
    "2020-01-01",
    "2020-01-02",
    "2020-01-01 00:00:00",
    "2020-01-01 10:00:00",
    "2020-01-01 10:00:00.5",
    "2020-01-01 10:00:00.500001",
    "2020-01-01 10:00:00.4999999",
    "2020-01-01 23:59:59.999999",
    "2020-01-01 24:00:00",
    "2020-03-29 02:30:00",
    "2020-03-29 01:30:00+00",
    "2020-10-25 02:30:00",
    "2020-01-01 00:00:00+00",
    "2020-01-01 00:30:00+02",
    "2020-01-01 05:30:00+05:30",
    "2020-01-01 00:30:00-00:00:30",
    "2020-01-01T10:00:00",
    "2020-01-01T10:00:00Z",
    "2020-01-01T10:00:00.000001+01:00",
    "2020-01-08 00:00:00+00",
    "2019-12-25 00:00:00",
    "2020-01-01 10:00",
    "2020-1-2",
    "20200101",
    "01/02/2020",
    "0001-01-01",
    "0044-03-15 BC",
    "9999-12-31 23:59:59",
    "10000-01-01",
    "infinity",
    "-infinity",
    "Infinity",
    "epoch",
    "2020-01-01 10:00:00 Europe/Berlin",
    " 2020-01-01 ",
];

const FLOATS: &[&str] = &[
    "0",
    "-0",
    "0.1",
    "0.10000000149011612",
    "0.1000000000000000055511151231257827",
    "-0.1",
    "1e-1",
    "1.5",
    "3",
    "+3",
    " 3 ",
    "16777216",
    "16777217",
    "9007199254740993",
    "9223372036854775807",
    "1e30",
    "1e-30",
    "1e39",
    "1e300",
    "1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "0x10",
    "1_000",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "A",
    "a ",
    "ab",
    "b",
    "é",
    "aé",
    "abcdefgh",
    "abcdefgha",
    "abcdefghb",
    "z",
    "Z",
    "~",
    "😀",
    "ﬁ",
    "\t",
    "0",
    "10",
    "9",
    "a-b",
    "ab c",
    "_",
    "!",
    "i",
    "I",
    "İ",
    "ı",
    "Straße",
    "STRASSE",
    "\u{212a}",
    "k",
    "a%b",
    "A_B",
    "a\\b",
    "\\",
    "%",
    "ſ",
    "s",
];

const NUMBERS: &[&str] =
    &["0", "1", "-1", "5", "10", "15", "1.5", "1.50", "-0.5", "0.125", "100000", "2147483647", "NaN"];

const UUIDS: &[&str] = &[
    "00000000-0000-0000-0000-000000000001",
    "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
    "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
];

/// Instead of a cast: without quotation marks.
const NUMBER: &str = "number";

/// Constants to compare columns of a type with, and its casts, each with the type that a parameter would be declared with.
fn constants(value_type: ValueType) -> (&'static [&'static str], &'static [(&'static str, u32)]) {
    match value_type {
        ValueType::Float4 | ValueType::Float8 => (
            FLOATS,
            &[
                (NUMBER, 0),
                (NUMBER, 0),
                ("", 0),
                ("", 0),
                ("::float4", 700),
                ("::float8", 701),
                ("::numeric", 1700),
                ("::int4", 23),
                ("::int8", 20),
            ],
        ),
        ValueType::Int | ValueType::Numeric => {
            (NUMBERS, &[(NUMBER, 0), ("", 0), ("::int", 23), ("::int8", 20), ("::numeric", 1700)])
        }
        ValueType::Uuid => (UUIDS, &[("", 0), ("::uuid", 2950)]),
        ValueType::Text | ValueType::OrderedText | ValueType::PaddedText => {
            (TEXTS, &[("", 0), ("", 0), ("::text", 25), ("::varchar", 1043)])
        }
        _ => (DATES, CASTS),
    }
}

/// Settings for reading constants and printing dates.
const SETTINGS: &[&str] = &[
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY';",
    "SET TimeZone = 'Europe/Berlin'; SET DateStyle = 'SQL, DMY';",
    "SET TimeZone = 'Pacific/Kiritimati'; SET DateStyle = 'German, YMD';",
    "SET TimeZone = '<x>+167:59<y>'; SET DateStyle = 'Postgres, MDY';",
    "SET TimeZone = '<x>-167:59<y>'; SET DateStyle = 'ISO, DMY';",
];

/// Casts, with the type that a parameter would be declared with.
const CASTS: &[(&str, u32)] =
    &[("", 0), ("", 0), ("", 0), ("::date", 1082), ("::timestamp", 1114), ("::timestamptz", 1184)];

/// Conditions of a column with constants.
const FORMS: &[&str] = &[
    "c = {1}",
    "c = {1}",
    "{1} = c",
    "c < {1}",
    "c <= {1}",
    "c > {1}",
    "c >= {1}",
    "{1} < c",
    "c BETWEEN {1} AND {2}",
    "c IN ({1}, {2})",
    "c IN ({1}, {2}, NULL)",
    "c = {1} OR c = {2}",
    "c >= {1} AND c < {2}",
    "c <> {1}",
    "{1} != c",
    "c NOT IN ({1}, {2})",
    "NOT (c = {1} OR c = {2})",
    "c NOT BETWEEN {1} AND {2}",
    "NOT (c < {1})",
    "NOT ({1} = c AND c IS NOT NULL)",
    "c IS DISTINCT FROM {1}",
    "c <> ALL(ARRAY[{1}, {2}])",
];

/// Conditions of a text with patterns.
const PATTERNS: &[&str] = &[
    "c LIKE {1}",
    "c NOT LIKE {1}",
    "c ILIKE {1}",
    "c NOT ILIKE {1}",
    "c::text LIKE {1}",
    "c::varchar NOT LIKE {1}",
    "upper(c) LIKE upper({1})",
    "UPPER(c::text) LIKE UPPER({1})",
    "upper(c) NOT LIKE upper({1})",
    "lower(c) LIKE {1}",
    "lower(c) NOT LIKE upper({1})",
    "c LIKE {1} ESCAPE '!'",
    "c NOT LIKE {1} ESCAPE ''",
    "upper(c) = upper({1})",
    "{1} = lower(c)",
    "lower(c) IN (lower({1}), {2})",
    "NOT (upper(c::text) = {1})",
];

struct Asked {
    column: usize,
    condition: String,
    /// One of these must hold: all of its terms.
    tag: Vec<Vec<Term>>,
}

/// The tables, and the rows in the form of the stream. Values that a type refuses are skipped.
fn store(server: Upstream<'_>) -> Result<HashMap<(usize, usize), String>> {
    let mut script = String::from(
        "CREATE FUNCTION put(q text) RETURNS void LANGUAGE plpgsql AS \
         $f$ BEGIN EXECUTE q; EXCEPTION WHEN others THEN NULL; END $f$;\nSET TimeZone = 'Europe/Berlin';",
    );
    for (at, (definition, value_type)) in COLUMNS.iter().enumerate() {
        let _ = writeln!(script, "CREATE TABLE v{at} (id int PRIMARY KEY, c {definition});");
        for (id, value) in constants(*value_type).0.iter().enumerate() {
            let _ = writeln!(
                script,
                "DO $d$ BEGIN PERFORM put($q$INSERT INTO v{at} VALUES ({id}, '{value}')$q$); END $d$;"
            );
        }
    }
    script += "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, DMY';\n";
    for at in 0..COLUMNS.len() {
        let _ = writeln!(script, "SELECT '{at}', id, c FROM v{at};");
    }
    let mut rows = HashMap::new();
    for line in server.sql(&script)?.lines() {
        let [at, id, value] = *line.split('|').collect::<Vec<_>>() else { anyhow::bail!("{line}") };
        rows.insert((at.parse()?, id.parse()?), value.to_owned());
    }
    Ok(rows)
}

/// A condition of the column, and the same with parameters.
fn condition(random: &mut Random, at: usize, settings: &str) -> Result<Asked> {
    let (texts, casts) = constants(COLUMNS[at].1);
    let mut constant = || {
        let (cast, declared_type) = casts[random.below(casts.len())];
        (texts[random.below(texts.len())], cast, declared_type)
    };
    let (one, two) = (constant(), constant());
    let as_text = matches!(COLUMNS[at].1, ValueType::Text | ValueType::OrderedText | ValueType::PaddedText);
    let as_text = as_text || matches!(COLUMNS[at].1, ValueType::Int | ValueType::Numeric | ValueType::Uuid);
    let matching = as_text && random.below(2) == 0;
    let forms = if matching { PATTERNS } else { FORMS };
    let form = *forms.get(random.below(forms.len())).context("a form")?;
    let (mut one, mut two) = (one, two);
    let patterns = [one.0, two.0].map(|text| match random.below(8) {
        0 | 1 => format!("%{text}%"),
        2 => format!("{text}%"),
        3 => format!("%{text}"),
        4 => format!("_{text}"),
        5 => format!("%{}_%", text.to_uppercase()),
        6 => format!("{}!%{}", text.to_lowercase(), ["", "%"][random.below(2)]),
        _ => text.to_owned(),
    });
    if matching {
        (one, two) = ((&*patterns[0], "", 0), (&*patterns[1], "", 0));
    }
    let filled = |one: &str, two: &str| form.replace("{1}", one).replace("{2}", two);
    let written = |(text, cast, _): (&str, &str, u32)| match cast {
        NUMBER if text.parse::<f64>().is_ok_and(f64::is_finite) => text.to_owned(),
        NUMBER => format!("'{text}'"),
        cast => format!("'{text}'{cast}"),
    };
    let sql = filled(&written(one), &written(two));
    let catalog = catalog(PUBLIC, &[(&format!("v{at}"), &[("id", ValueType::Int), ("c", COLUMNS[at].1)])]);
    // A parameter with a declared type, or with the type that the server determines, is like a constant with a cast or without.
    let prepared = random.below(2) == 0 && one.1 != NUMBER && two.1 != NUMBER;
    let own = [one, two].map(|(text, _, declared_type)| {
        let value = ParameterValue::Text(text.as_bytes());
        Parameter { value, declared_type }
    });
    let own = if form.contains("{2}") { &own[..] } else { &own[..1] };
    let (asked, own) = if prepared { (filled("$1", "$2"), own) } else { (sql.clone(), &[][..]) };
    let tags =
        tags(Dialect::Postgres, &catalog, &format!("SELECT id FROM v{at} WHERE {asked}"), own, client(settings))?;
    let tag = tags.iter().map(|tag| match &tag.rows {
        RowSet::Where(terms) => terms.to_vec(),
        _ => Vec::new(),
    });
    let tag = tag.collect();
    Ok(Asked { column: at, condition: format!("{settings} {sql} (prepared: {prepared})"), tag })
}

#[test]
fn values_that_postgresql_calls_equal_meet() -> Result<()> {
    let server = Postgres::find(None)?.start(&Settings::default())?;
    let rows = store(Upstream::Postgres(&server))?;
    let mut random = Random(0x5EED_0004);
    let mut asker = Server::new(Upstream::Postgres(&server));
    asker.connection("", 0);
    let mut asked: HashMap<usize, Asked> = HashMap::new();
    for _ in 0..20_000 {
        let at = random.below(COLUMNS.len());
        let settings = random.one_of(SETTINGS);
        let found = condition(&mut random, at, settings)?;
        let (_, rest) =
            found.condition.split_once("; SET").and_then(|(_, rest)| rest.split_once("; ")).context("SQL")?;
        let sql = rest.split(" (prepared").next().context("SQL")?.to_owned();
        asker.say(settings);
        let question = asker.ask("ask_0", &format!("string_agg(id::text, ',') FROM v{at} WHERE {sql}"));
        asked.insert(question, found);
    }
    let (mut met, mut tagged) = (0, 0);
    for (question, ids) in &asker.answers()? {
        let Some(Asked { column, condition, tag }) = asked.get(question) else { continue };
        let is_tagged = tag.iter().all(|terms| !terms.is_empty());
        tagged += usize::from(is_tagged);
        let relation = Relation { table: TableId(1), columns: vec!["c".into()] };
        for id in ids.split(',') {
            let row = rows.get(&(*column, id.parse()?)).context("a row that is not there")?;
            let cells = [Cell::Text(row.as_bytes().into())];
            let meets = tag.iter().any(|terms| terms.iter().all(|term| term.may_hold(&relation, &cells)));
            ensure!(meets, "{:?}: {condition}: {row} passes, but not {tag:?}", COLUMNS[*column]);
            met += usize::from(is_tagged && COLUMNS[*column].1.normalise_text(row.as_bytes()).is_some());
        }
    }
    eprintln!("{} asked, {tagged} tags, {met} rows met by value", asked.len());
    ensure!(tagged > 2_000 && met > 5_000, "the test does not test");
    Ok(())
}
