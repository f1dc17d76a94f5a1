//! If a server says that a column equals a constant, is less, or matches it, the tag must match the row: all types, all collations whose values have
//! normal forms, constants in the text and through prepared statements.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use freshet_sql::{Client, Parameter, ParameterValue};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld};
use freshet_types::{Catalog, Cell, Dialect, Relation, RowSet, TableId, Term, ValueType};

use crate::{DATABASE, Random, Server, Upstream, catalog, tags, unhex};

/// Numbers, and texts that are more or less numbers.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "05",
    "5.0",
    "5.00000000000000000000001",
    "1.0000000000000000000000000000000000001",
    "5e0",
    "0.5",
    ".5",
    "-0.0",
    "1.10",
    "1.1",
    "255",
    "256",
    "2020",
    "20",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "99999999999999999999999999999999999999",
    "1e10",
    "10000000000",
    "123456.789",
    "123456.79",
    "0.1",
    "1e-1",
    "2147483647",
];
/// Texts.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "a ",
    "a  ",
    " a",
    "b",
    "ab",
    "aB",
    "AB ",
    "ä",
    "á",
    "e",
    "é",
    "E\u{301}",
    "ss",
    "ß",
    "SS",
    "s",
    "ſ",
    "i",
    "I",
    "ı",
    "İ",
    "k",
    "K",
    "\u{212a}",
    "fi",
    "ﬁ",
    "ae",
    "æ",
    "o",
    "ø",
    "l",
    "ł",
    "n",
    "ñ",
    "lj",
    "ǉ",
    "ch",
    "CH",
    "a\t",
    "a\u{1}",
    "a\u{0}",
    "\u{0}",
    "a\u{ad}",
    "a\u{200b}",
    "a\n",
    "a\u{a0}",
    "\u{3000}",
    "\u{ff41}",
    "😀",
    "☃",
    "\u{7f}",
    "a_b",
    "a-b",
    "A-B",
    "5",
    "05",
    " 5",
    "5 ",
    "5a",
    "5.0",
    "0x05",
    "1",
    "true",
    "null",
    "it's",
    "\\",
    "\"",
    "`",
    "~",
    "^",
    "[",
    "{",
    "@",
    "2020-01-01",
    "12:00",
];

/// Dates and times, some in unusual forms.
const DATES: &[&str] = &[
    "2020-01-01",
    "2020-01-02",
    "2020-01-01 00:00:00",
    "2020-01-01 10:00:00",
    "2020-01-01 10:00:00.5",
    "2020-01-01 10:00:00.50",
    "2020-01-01 10:00:00.500001",
    "2020-01-01 10:00:00.4999995",
    "2020-01-01 09:59:59.999999",
    "2020-01-01 09:59:59.9999995",
    "2020-01-01 23:59:59.999999",
    "2020-01-01 24:00:00",
    "2020-03-29 02:30:00",
    "2020-12-31 23:59:59",
    "1970-01-01 00:00:01",
    "2038-01-19 03:14:07",
    "0001-01-01",
    "0099-12-31",
    "9999-12-31 23:59:59",
    "0000-00-00",
    "2020-00-00",
    "2020-02-00",
    "2020-02-30",
    "2020-1-1",
    "20-01-01",
    "20200101",
    "20200101100000",
    "2020-01-01T10:00:00",
    "2020-01-01 10:00",
    "2020-01-01 10:00:00 ",
    " 2020-01-01",
    "2020/01/01",
    "2020-01-01+02:00",
    "2020-01-01 10:00:00+02:00",
    "infinity",
];

/// UUIDs and addresses.
const OTHERS: &[&str] = &[
    "00000000-0000-0000-0000-000000000000",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
    "a0eebc999c0b4ef8bb6d6bb9bd380a11",
    "a0eebc99-9c0b-1ef8-bb6d-6bb9bd380a11",
    "019a0000-9c0b-7ef8-bb6d-6bb9bd380a11",
    "::",
    "::1",
    "0::0:1",
    "2001:DB8::1",
    "2001:db8:0:0:0:0:0:1",
    "2001:db8:1:2::10",
    "3a3a:3100::",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "10.0.0.1",
    "10.0.0.01",
    "0.0.0.0",
];
/// Bytes.
const BYTES: &[&str] = &[
    "x''",
    "x'00'",
    "X'31'",
    "x'05'",
    "0x05",
    "0x5",
    "0x35",
    "0x3132",
    "b'101'",
    "0b101",
    "B'1'",
    "b'0'",
    "x'0005'",
    "0xFFFFFFFFFFFFFFFF",
    "x'6100'",
    "x'61'",
    "x'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
    "x'3a3a3100000000000000000000000000'",
    "x'323030313a6462383a313a323a3a3130'",
    "x'00000000000000000000000000000001'",
    "x'0a000001'",
    "_binary'a'",
    "_BINARY'a\\0'",
    "_binary''",
    "_binary'5'",
    "_binary\"it's\"",
    "_binary'2001:db8:1:2::10'",
    "UNHEX('6100')",
    "UNHEX('fF')",
    "UNHEX('A0EEBC999C0B4EF8BB6D6BB9BD380A11')",
    "UNHEX('x')",
];

/// Constants as SQL, each with its value in the binary protocol.
fn constants(random: &mut Random, count: usize) -> Vec<(String, Own)> {
    let mut found: Vec<(String, Own)> = Vec::new();
    for number in NUMBERS {
        let own = number.parse().map_or(Own::Other, Own::Integer);
        let plain = number.parse::<i128>().is_ok_and(|integer| integer.to_string() == **number);
        found.push(((*number).to_owned(), if plain { own } else { Own::Other }));
        found.push((quoted(number), Own::Text((*number).to_owned())));
    }
    found.push(("20200101".to_owned(), Own::Integer(20_200_101)));
    found.extend(BYTES.iter().map(|bytes| ((*bytes).to_owned(), Own::Other)));
    found.extend(TEXTS.iter().chain(DATES).chain(OTHERS).map(|text| (quoted(text), Own::Text((*text).to_owned()))));
    while found.len() < count {
        let text: String = (0..=random.below(2)).map(|_| random.one_of(TEXTS)).collect();
        found.push((quoted(&text), Own::Text(text)));
    }
    // Every printable character, in both cases.
    found.extend((b' '..=b'~').map(|byte| char::from(byte).to_string()).map(|text| (quoted(&text), Own::Text(text))));
    found
}

/// A parameter of the binary protocol.
enum Own {
    Integer(i128),
    Text(String),
    Other,
}

impl Own {
    fn value(&self) -> ParameterValue<'_> {
        match self {
            Self::Integer(integer) => ParameterValue::Integer(*integer),
            Self::Text(text) => ParameterValue::Text(text.as_bytes()),
            Self::Other => ParameterValue::Opaque,
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0"))
}

/// A column: its type, and its rows in the form of the stream.
struct Stored {
    definition: String,
    value_type: ValueType,
    rows: HashMap<usize, Box<[u8]>>,
}

impl Stored {
    /// Whether a row that the server found may match, and whether its value decided it.
    fn meets(&self, tag: &[Vec<Term>], row: &[u8]) -> (bool, bool) {
        let relation = Relation { table: TableId(1), columns: vec!["c".into()] };
        let told = tag.iter().all(|terms| !terms.is_empty()) && self.value_type.normalise_text(row).is_some();
        let passes = |term: &Term| term.may_hold(&relation, &[Cell::Text(row.into())]);
        (tag.iter().any(|terms| terms.iter().all(passes)), told)
    }
}

/// One table with one column for each type. The values that a type refuses are left out.
fn store(server: &Mysqld, types: &[String], values: &[String]) -> Result<Vec<Stored>> {
    let mut script = "SET sql_mode = 'NO_ENGINE_SUBSTITUTION', time_zone = '+00:00';\n".to_owned();
    for (at, definition) in types.iter().enumerate() {
        let _ = writeln!(script, "CREATE TABLE v{at} (id INT PRIMARY KEY, c {definition});");
        let offset = if definition.starts_with("TIMESTAMP") { "+00" } else { "" };
        // The shortest digits of the exact number; FLOAT columns print rounded.
        let shown = match definition.as_str() {
            "FLOAT" | "DOUBLE" => "c + 0e0".to_owned(),
            _ => format!("CONCAT(CAST(c AS BINARY), '{offset}')"),
        };
        let rows: Vec<String> = (1..).zip(values).map(|(id, value)| format!("({id},{value})")).collect();
        let _ =
            writeln!(script, "INSERT IGNORE INTO v{at} VALUES {}; DELETE FROM v{at} WHERE c IS NULL;", rows.join(","));
        let _ = writeln!(
            script,
            "SELECT 'type', {at}, data_type, column_type, COALESCE(collation_name, '') FROM information_schema.columns \
             WHERE table_schema = DATABASE() AND table_name = 'v{at}' AND column_name = 'c';\n\
             SELECT 'row', {at}, id, HEX(CONCAT({shown}, '')) FROM v{at};"
        );
    }
    let mut found: Vec<Stored> = Vec::new();
    for line in server.sql(&script)?.lines() {
        match *line.split('\t').collect::<Vec<_>>() {
            ["type", at, data_type, column_type, collation] => {
                let collation = Some(collation).filter(|name| !name.is_empty());
                let value_type = ValueType::of_mysql_column(data_type, column_type, collation);
                found.push(Stored {
                    definition: types[at.parse::<usize>()?].clone(),
                    value_type,
                    rows: HashMap::new(),
                });
            }
            ["row", at, id, bytes] => {
                let stored = &mut found[at.parse::<usize>()?];
                let mut bytes = unhex(bytes).context("no hexadecimal digits")?;
                if stored.definition.starts_with("BINARY") {
                    // As in the stream.
                    bytes.truncate(bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count());
                }
                stored.rows.insert(id.parse()?, bytes.into());
            }
            _ => {}
        }
    }
    ensure!(found.len() == types.len());
    Ok(found)
}

/// The condition on the column that the statement depends on: one of these conjunctions; empty: any row.
fn tag(catalog: &Catalog, names: &str, sql: &str, own: &[Parameter<'_>]) -> Result<Vec<Vec<Term>>> {
    // The procedure's text, which is of utf8mb4, is converted.
    let client = Client { as_sent: names.starts_with("utf8mb4"), ..Client::PLAIN };
    let tags = tags(Dialect::MySql, catalog, sql, own, client)?;
    let terms = tags.iter().map(|tag| match &tag.rows {
        RowSet::Where(terms) => terms.iter().filter(|term| &*term.column.name == "c").cloned().collect(),
        _ => Vec::new(),
    });
    Ok(terms.collect())
}

/// A condition on the column with a constant; `other` is a second constant.
fn condition(random: &mut Random, (sql, own): &(String, Own), (other, _): &(String, Own)) -> String {
    let text = if let Own::Text(text) = own { text } else { "" };
    let pattern = match random.below(6) {
        0 => text.to_owned(),
        1 => format!("%{text}%"),
        2 => format!("%{text}"),
        3 => format!("_{text}%"),
        4 => format!("%{}_", text.to_uppercase()),
        _ => format!("{text}%"),
    };
    let like = quoted(&pattern);
    let (case, other_case) = (random.one_of(&["UPPER", "LOWER", "LCASE"]), random.one_of(&["UPPER", "LOWER"]));
    let not = random.one_of(&["", "NOT "]);
    match random.below(24) {
        0 => format!("{sql} = c"),
        1 => format!("c <=> {sql}"),
        2 => format!("c IN ({sql})"),
        3 => format!("c IN ({sql}, {other})"),
        4 => format!("c {not}BETWEEN {sql} AND {other}"),
        5 => format!("c < {sql}"),
        6 => format!("{sql} <= c"),
        7 | 8 => format!("c LIKE {like}"),
        9..=11 => format!("c <> {sql}"),
        12 | 13 => format!("c NOT IN ({sql}, {other})"),
        14 => format!("NOT (c <=> {sql})"),
        15 => format!("NOT (c > {sql} AND c IS NOT NULL)"),
        16 | 17 => format!("c NOT LIKE {like}"),
        18 => format!("c {not}LIKE BINARY {like}"),
        19 => format!("{case}(c) = {case}({sql})"),
        20 => format!("{case}(c) IN ({sql}, {other_case}({other}))"),
        21 => format!("{case}(c) {not}LIKE {case}({like})"),
        22 => format!("{case}(c) {not}LIKE {other_case}({like})"),
        _ => format!("c = {sql}"),
    }
}

/// One query about one column, and its tag.
struct Asked {
    column: usize,
    sql: String,
    tag: Vec<Vec<Term>>,
}

fn values_meet(server: &Mysqld, types: &[String], connections: &[&str]) -> Result<()> {
    let mut random = Random(0x5EED_0001);
    let constants = constants(&mut random, 240);
    let columns = store(server, types, &constants.iter().map(|(sql, _)| sql.clone()).collect::<Vec<_>>())?;
    let mut asker = Server::new(Upstream::Mysql(server));
    let mut asked: HashMap<usize, Asked> = HashMap::new();
    for (number, names) in connections.iter().enumerate() {
        asker.connection(names, number);
        asker.say(&format!("SET time_zone = '{}';", ["+00:00", "+13:00", "-11:30", "+02:00", "-01:00"][number % 5]));
        for (at, column) in columns.iter().enumerate() {
            let catalog =
                catalog(DATABASE, &[(&format!("v{at}"), &[("id", ValueType::Int), ("c", column.value_type)])]);
            for constant in &constants {
                let (sql, own) = constant;
                // Types without a normal form have no tags.
                let tagged = column.rows.values().any(|row| column.value_type.normalise_text(row).is_some());
                if !tagged || random.below(connections.len() * 2) > 0 {
                    continue;
                }
                let other = &constants[random.below(constants.len())];
                let condition = condition(&mut random, constant, other);
                let text = format!("group_concat(id) FROM v{at} WHERE {condition}");
                let said = tag(&catalog, names, &format!("SELECT {text}"), &[])?;
                let question = asker.ask(&format!("ask_{number}"), &text);
                asked.insert(question, Asked { column: at, sql: format!("{names}: {condition}"), tag: said });

                let prepared = random.one_of(&[
                    "c = ?",
                    "c = ?",
                    "c < ?",
                    "c >= ?",
                    "c LIKE ?",
                    "c <> ?",
                    "c NOT IN (?)",
                    "UPPER(c) = UPPER(?)",
                ]);
                let text = format!("group_concat(id) FROM v{at} WHERE {prepared}");
                let own = Parameter { value: own.value(), declared_type: 0 };
                let said = tag(&catalog, names, &format!("SELECT {text}"), &[own])?;
                asker.say(&format!("SET @p = {};", sql.replace('\n', "\\n")));
                let question = asker.ask(&format!("ask_with_{number}"), &text);
                asked.insert(question, Asked { column: at, sql: format!("{names}: {prepared} with {sql}"), tag: said });
            }
        }
    }
    let (mut equal, mut precise) = (0, 0);
    let answers = asker.answers()?;
    for (question, ids) in &answers {
        let Some(Asked { column, sql, tag }) = asked.get(question) else { continue };
        let column = &columns[*column];
        for id in ids.split(',').filter_map(|id| id.parse::<usize>().ok()) {
            equal += 1;
            let row = column.rows.get(&id).context("a row that is not there")?;
            let (meets, told) = column.meets(tag, row);
            precise += usize::from(told);
            let types = (&column.definition, column.value_type);
            ensure!(meets, "{types:?}, {sql}: row {id}, {:?}, passes, but not {tag:?}", constants[id - 1].0);
        }
    }
    let tagged = asked.values().filter(|asked| asked.tag.iter().all(|terms| !terms.is_empty())).count();
    eprintln!(
        "{} questions, {} answers, {tagged} tags; {equal} found, {precise} of them by value",
        asked.len(),
        answers.len()
    );
    ensure!(precise > 500 && answers.len() * 10 > asked.len() * 9, "the test does not test");
    Ok(())
}

/// All collations of the server whose texts have normal forms, and the types.
fn types(server: &Mysqld) -> Result<Vec<String>> {
    let mut types: Vec<String> = [
        "TINYINT",
        "TINYINT(1)",
        "SMALLINT UNSIGNED",
        "MEDIUMINT",
        "INT",
        "INT UNSIGNED",
        "BIGINT",
        "BIGINT UNSIGNED",
        "DECIMAL(10,2)",
        "DECIMAL(65,30)",
        "DECIMAL(38,0) UNSIGNED",
        "DOUBLE",
        "FLOAT",
        "BIT(1)",
        "BIT(8)",
        "BIT(64)",
        "YEAR",
        "DATE",
        "DATETIME",
        "DATETIME(1)",
        "DATETIME(6)",
        "TIMESTAMP NULL",
        "TIMESTAMP(6) NULL",
        "TIME",
        "VARBINARY(40)",
        "BINARY(8)",
        "BLOB",
        "ENUM('a','b','5')",
        "SET('a','b','5')",
    ]
    .map(str::to_owned)
    .to_vec();
    let collations = server.sql("SHOW COLLATION")?;
    for line in collations.lines() {
        let Some(name) = line.split('\t').next() else { continue };
        // MariaDB lists `uca1400_ai_ci` for all character sets at once.
        let full = if name.starts_with("uca1400") { format!("utf8mb4_{name}") } else { name.to_owned() };
        let charset = full.split('_').next().unwrap_or_default();
        if ValueType::of_mysql_column("varchar", "", Some(&full)) == ValueType::Other || charset == "binary" {
            continue;
        }
        let of = |data_type| format!("{data_type} CHARACTER SET {charset} COLLATE {full}");
        types.push(of("VARCHAR(40)"));
        if full.ends_with("_bin") || full.ends_with("general_ci") {
            types.extend([of("CHAR(40)"), of("TEXT")]);
        }
    }
    ensure!(types.len() > 40, "{collations}");
    Ok(types)
}

#[test]
fn values_that_mariadb_calls_equal_meet() -> Result<()> {
    let server = Mariadb::start(&MysqlSettings::default())?;
    let connections = [
        "utf8mb4",
        "utf8mb4 COLLATE utf8mb4_bin",
        "utf8mb4 COLLATE utf8mb4_turkish_ci",
        "utf8mb4 COLLATE utf8mb4_uca1400_croatian_ai_ci",
        "utf8mb3 COLLATE utf8mb3_unicode_520_nopad_ci",
    ];
    let mut types = types(&server)?;
    types.extend(["UUID", "INET4", "INET6"].map(str::to_owned));
    values_meet(&server, &types, &connections)
}

#[test]
fn values_that_mysql_calls_equal_meet() -> Result<()> {
    let server = Mysql::start(&MysqlSettings::default())?;
    let connections = [
        "utf8mb4",
        "utf8mb4 COLLATE utf8mb4_bin",
        "utf8mb4 COLLATE utf8mb4_tr_0900_ai_ci",
        "utf8mb4 COLLATE utf8mb4_general_ci",
        "utf8 COLLATE utf8_hungarian_ci",
    ];
    values_meet(&server, &types(&server)?, &connections)
}
