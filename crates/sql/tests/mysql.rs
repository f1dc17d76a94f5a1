//! Statements of MySQL's dialect: their normalized queries and effects, the reason why one passes, or the tags of its result.

mod fixture;
mod shown;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Admin, Bracket, Client, Effect, Hint, Lexed, LiteralKind, Parameter, ParameterValue, Template};
use freshet_types::{
    Cascade, Catalog, CatalogVersion, Columns, Dialect, RelationKind, RowSet, Table, TableId, ValueType,
};
use proptest::prelude::*;

use shown::show_terms;

fn lex(sql: &str) -> Lexed {
    freshet_sql::lex(Dialect::MySql, sql)
}

fn parse(sql: &str) -> Template {
    Template::parse(Dialect::MySql, &lex(sql).normalized)
}

fn schemas() -> [Arc<str>; 1] {
    ["shop".into()]
}

fn table(id: u32, name: &str, columns: &[(&str, ValueType)]) -> Table {
    Table { runs_code: name == "logged", ..fixture::table(id, "shop", name, columns) }
}

fn catalog() -> Catalog {
    use ValueType::{ExactText, FoldedText, Int, Numeric, Other, Time, Timestamp, TimestampTz, Unsigned};
    let t: &[(&str, ValueType)] = &[
        ("id", Int),
        ("Name", FoldedText),
        ("code", ExactText),
        ("price", Numeric),
        ("big", Unsigned),
        ("at", Timestamp),
        ("weight", Other),
    ];
    let view = |id, name: &str, text: &str| Table {
        kind: RelationKind::View,
        definition: Some(text.into()),
        ..table(id, name, &[("id", Int), ("name", FoldedText)])
    };
    let tables = vec![
        table(1, "t", t),
        table(2, "T", t),
        table(3, "u", &[("id", Int), ("t_id", Int), ("title", FoldedText)]),
        table(4, "hours", &[("id", Int), ("opens", Time), ("since", TimestampTz)]),
        table(5, "logged", t),
        table(6, "só", t),
        Table { kind: RelationKind::NotLogged, ..table(7, "kept_in_memory", t) },
        Table { schema: "other".into(), ..table(8, "t", t) },
        view(
            20,
            "cheap",
            "select `shop`.`t`.`id` AS `id`,`shop`.`t`.`Name` AS `name` from `shop`.`t` where (`shop`.`t`.`price` < 10)",
        ),
        view(
            21,
            "named",
            "select `x`.`id` AS `id`,concat(`x`.`Name`,_utf8mb4'!') AS `name` from (`shop`.`t` `x` join `shop`.`u` \
             on((`x`.`id` = `shop`.`u`.`t_id`)))",
        ),
        view(22, "counted", "select `next_one`() AS `id`,`shop`.`t`.`Name` AS `name` from `shop`.`t`"),
        view(23, "today", "select `shop`.`t`.`id` AS `id`,curdate() AS `name` from `shop`.`t`"),
    ];
    let own = HashSet::from(["mine".into(), "soundex".into()]);
    Catalog::new(CatalogVersion(1), tables, own, HashSet::new())
}

fn verdict_of(sql: &str, own: &[ParameterValue<'_>]) -> String {
    let (catalog, lexed) = (catalog(), lex(sql));
    let read_set = match Template::parse(Dialect::MySql, &lexed.normalized).resolve(&catalog, &schemas()) {
        Ok(read_set) => read_set,
        Err(reason) => return reason.label().to_owned(),
    };
    let literals = lexed.literals.iter().map(ParameterValue::Literal);
    let params = own.iter().copied().chain(literals).map(|value| Parameter { value, declared_type: 0 });
    let tags = match read_set.bind(&params.collect::<Vec<_>>(), Client::PLAIN) {
        Ok(bound) => bound.tags,
        Err(reason) => return reason.label().to_owned(),
    };
    let mut shown: Vec<String> = tags
        .iter()
        .map(|tag| {
            let table = catalog.table(tag.table).unwrap();
            let schema = if &*table.schema == "shop" { "" } else { "other." };
            let rows = match &tag.rows {
                RowSet::Any => "*".to_owned(),
                RowSet::Definition => "definition".to_owned(),
                RowSet::Later => "later".to_owned(),
                RowSet::Where(terms) => show_terms(terms, true),
                RowSet::Enters(terms) => format!("enters {}", show_terms(terms, true)),
            };
            format!("{schema}{}({rows})", table.name)
        })
        .collect();
    shown.sort_unstable();
    shown.join(" ")
}

fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(sql, expected)| (sql, expected, verdict_of(sql, &[])))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(sql, expected, found)| {
            format!("{sql}\n  expected {expected}\n  found    {found}\n  normalized    {}", lex(sql).normalized)
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn shapes_and_literals() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("SELECT  A,\tb\nFROM  T ;  ; ", "select A, b from T", &[]),
        ("select 1, 1.5, .5, 1e3, 1.", "select $1, $2, $3, $4, $5", &["1", "1.5", ".5", "1e3", "1."]),
        ("SELECT 'it''s', \"say \"\"x\"\"\", 'a\"b'", "select $1, $2, $3", &["'it's", "'say \"x\"", "'a\"b"]),
        (r"SELECT 'a\'b\\', 'a\nb\%c\_d\e'", "select $1, $2", &["'a'b\\", "'a\nb\\%c\\_de"]),
        ("SELECT 'a' 'b', 'c'\n\"d\" , 'e'", "select 'a' 'b', 'c'\n\"d\" , $1", &["'e"]),
        ("SELECT'a'b", "select $1 b", &["'a"]),
        ("SELECT a--1, b", "select a--$1, b", &["1"]),
        ("SELECT a -- 1, b", "select a", &[]),
        ("SELECT a--/**/1, b", "select a--/**/$1, b", &["1"]),
        ("SELECT a--;", "select a--/**/", &[]),
        ("SELECT a--/**/;", "select a--/**/", &[]),
        ("SELECT a---- 1", "select a--/**/", &[]),
        ("SELECT 1@?", "select $2@ $1", &["1"]),
        ("SELECT $4`x`, `x`$4", "select `$4` `x`, `x` `$4`", &[]),
        ("SELECT a # 1, '\n, b", "select a , b", &[]),
        ("SELECT a/* ' */, 1", "select a , $1", &["1"]),
        (
            "SELECT x'1F', b'01', 0x1F, 0b01, N'n', _utf8'x', 5",
            "select $1, $2, $3, $4, N'n', _utf8'x', $5",
            &["x1F", "b01", "b1F", "b01", "5"],
        ),
        (
            r#"SELECT _binary'a\'b', _BINARY"c", _binary 'd', _binary'e' 'f', t._binary'g'"#,
            "select $1, $2, _binary 'd', _binary'e' 'f', t._binary'g'",
            &["x612762", "x63"],
        ),
        ("SELECT _binary'a", "select _binary'a", &[]),
        ("SELECT 1a, 0X1F, t.1, 0x, 1..2", "select 1a, 0X1F, t.1, 0x, 1..2", &[]),
        ("SELECT ?, 'a', ? FROM t LIMIT ?,10", "select $1, $4, $2 from t limit $3,$5", &["'a", "10"]),
        ("SELECT a?b", "select a $1 b", &[]),
        // No identifier passes for a placeholder.
        ("SELECT $1, a$1, `$1`, 1", "select `$1`, a$1, `$1`, $1", &["1"]),
        ("SELECT t.Select, `Select`", "select t.Select, `Select`", &[]),
        (
            "SELECT a AS 'x', date '2020-01-01', interval '1' day",
            "select a as 'x', date '2020-01-01', interval '1' day",
            &[],
        ),
        ("SELECT @a, @@sql_mode, @`b c`, 1", "select @a, @@sql_mode, @`b c`, $1", &["1"]),
        ("SELECT /*! 1, */ 'a'", "select $1, $2", &["1", "'a"]),
        (
            "SELECT/*! STRAIGHT_JOIN*/a,1 /*!40001 FROM t*/LIMIT 2",
            "select straight_join a,$1 from t limit $2",
            &["1", "2"],
        ),
        ("SELECT '/*! ' */*! */ 'a'", "select $1 * $2", &["'/*! ", "'a"]),
        ("SELECT 2 */* ! */ 3", "select $1 * $2", &["2", "3"]),
        ("SELECT /*M! 1, */ 'a'", "select/*M!*/ /*M! 1, */ 'a'", &[]),
        ("SELECT /*+ BKA(t) */ 'a'", "select /*+ BKA(t) */ 'a'", &[]),
        ("SELECT 'abc", "select 'abc", &[]),
        (r"SELECT 'abc\'", r"select 'abc\'", &[]),
        ("SELECT `abc", "select `abc", &[]),
        ("SELECT 1 /* x", "select $1 /* x", &["1"]),
        ("SELECT 'a\0b' # \0\n'", "select $1 # \0\n'", &["'a\0b"]),
    ];
    for (sql, normalized, expected) in cases {
        let lexed = lex(sql);
        assert_eq!(lexed.normalized, *normalized, "{sql}");
        let shown = lexed.literals.iter().map(|l| match l.kind {
            LiteralKind::String => format!("'{}", String::from_utf8_lossy(&l.text)),
            LiteralKind::Number => String::from_utf8_lossy(&l.text).into_owned(),
            LiteralKind::Bytes => l.text.iter().fold("x".to_owned(), |text, byte| format!("{text}{byte:02X}")),
            LiteralKind::Bits => l.text.iter().fold("b".to_owned(), |text, byte| format!("{text}{byte:02X}")),
        });
        assert_eq!(shown.collect::<Vec<_>>(), *expected, "{sql}");
    }
    assert_eq!(lex("SELECT ?, 1, ?").own_params, 2);
}

#[test]
fn tags() {
    check(&[
        ("SELECT * FROM t WHERE id = 5", "t(id=5)"),
        ("SELECT * FROM T WHERE ID = 5 AND nAmE = 'Heat '", "T(Name='heat',id=5)"),
        ("SELECT * FROM `t` WHERE `t`.`Id` = 5", "t(id=5)"),
        ("SELECT * FROM shop.t WHERE shop.t.id = 5", "t(id=5)"),
        ("SELECT * FROM other.t WHERE id = 5", "other.t(id=5)"),
        ("SELECT * FROM só WHERE id = 5", "só(id=5)"),
        ("SELECT * FROM t x WHERE x.id = 5 AND X.id = 6", "t(id=5)"),
        ("SELECT * FROM t WHERE id = 5.0 AND price = 1.50", "t(id=5,price=1.5)"),
        ("SELECT * FROM t WHERE id = -5", "t(id=-5)"),
        ("SELECT * FROM t WHERE id = '5' AND price = '1.5'", "t(id=5)"),
        ("SELECT * FROM t WHERE id = '05'", "t(*)"),
        ("SELECT * FROM t WHERE id = '5a'", "t(*)"),
        ("SELECT * FROM t WHERE id = '9007199254740993'", "t(*)"),
        ("SELECT * FROM t WHERE id = 5e0", "t(*)"),
        ("SELECT * FROM t WHERE big = 18446744073709551615", "t(big=18446744073709551615.)"),
        ("SELECT * FROM t WHERE price = 1.0000000000000000000000000000000001", "t(*)"),
        ("SELECT * FROM t WHERE name = 5", "t(*)"),
        ("SELECT * FROM t WHERE name = 'é'", "t(*)"),
        ("SELECT * FROM t WHERE name = 'The Café'", "t(Name=the ca*)"),
        ("SELECT * FROM t WHERE name IN ('The Café', 'x')", "t(*)"),
        ("SELECT * FROM t WHERE name = \"Heat\" AND code = 'Ab'", "t(Name='heat',code='Ab')"),
        ("SELECT * FROM t WHERE name = 'a' COLLATE utf8mb4_bin", "t(*)"),
        ("SELECT * FROM t WHERE BINARY name = 'a' AND id = 1", "t(id=1)"),
        ("SELECT * FROM t WHERE id = 1 AND code = BINARY 'a' OR price = 2", "t(id=1) t(price=2)"),
        ("SELECT * FROM t WHERE at = '2020-01-01' AND weight = 1", "t(at=2020-01-01 00:00:00.000000)"),
        ("SELECT price FROM t WHERE id = 1 ORDER BY name DESC, price LIMIT 20, 10", "t(id=1)"),
        ("SELECT MAX(at) FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT * FROM t WHERE at IN ('2020-01-01', '2020-1-2')", "t(*)"),
        ("SELECT * FROM t WHERE at >= '2020-01-01 10:00:00.5' AND at < 20200102", "t(at=2020-01-01 10:00:00.500000..)"),
        ("SELECT * FROM t WHERE at BETWEEN '2020-01-01' AND 20200102", "t(*)"),
        // The session's zone is not known.
        (
            "SELECT * FROM hours WHERE since = '2020-01-10'",
            "hours(since=2020-01-08 00:00:00.000000+00..2020-01-12 00:00:00.000000+00)",
        ),
        ("SELECT * FROM t WHERE id <=> 5", "t(id=5)"),
        ("SELECT * FROM t WHERE id IN (5)", "t(id=5)"),
        ("SELECT * FROM t WHERE id = 1 OR name = 'a'", "t(Name='a') t(id=1)"),
        ("SELECT * FROM t WHERE id = 1 && price = 2", "t(id=1,price=2)"),
        ("SELECT * FROM t WHERE id = 1 AND price = 2 XOR code = 'a'", "t((id price code))"),
        ("SELECT * FROM t WHERE id = 1 XOR price = 2", "t((id price))"),
        ("SELECT * FROM t WHERE NOT id = 1", "t(id<>1)"),
        ("SELECT * FROM t WHERE id = 5 --/**/1 OR 1 = 1", "t(*)"),
        ("SELECT * FROM t WHERE id = 7 DIV 2", "t(*)"),
        ("SELECT id MOD 2, id % 2, MOD(id, 2), id ^ 1, id << 1 FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT * FROM t WHERE id = 1 AND name RLIKE '^a' AND name NOT REGEXP 'b'", "t(id=1)"),
        ("SELECT * FROM t, u WHERE t.id = u.t_id AND u.id = 3", "t(later) u(id=3)"),
        ("SELECT * FROM t STRAIGHT_JOIN u ON t.id = u.t_id AND t.id = 5", "t(id=5) u(t_id=5)"),
        ("SELECT * FROM t CROSS JOIN u ON t.id = 5 AND t_id = 5", "t(id=5) u(t_id=5)"),
        ("SELECT * FROM t LEFT JOIN u ON t.id = u.t_id AND t.id = 5 AND u.id = 3", "t(*) u(id=3)"),
        ("SELECT * FROM t LEFT JOIN u JOIN T x ON x.id = u.id ON u.t_id = t.id AND t.id = 1", "T(*) t(*) u(*)"),
        ("SELECT * FROM t JOIN u USING (ID) WHERE id = 5", "t(*) u(*)"),
        ("SELECT * FROM t USE INDEX (a) IGNORE INDEX FOR ORDER BY (b) WHERE id = 1 LIMIT 5, 10", "t(id=1)"),
        ("SELECT SQL_CACHE DISTINCT HIGH_PRIORITY SQL_BIG_RESULT id FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT GROUP_CONCAT(DISTINCT name ORDER BY id DESC SEPARATOR ', ') FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT * FROM t WHERE MATCH (name, code) AGAINST ('x' IN BOOLEAN MODE) AND id = 1", "t(id=1)"),
        ("SELECT COUNT (*), CAST(id AS CHAR(3) CHARSET utf8mb4), CAST(id AS CHAR CHARACTER SET latin1) FROM t", "t(*)"),
        ("SELECT IF(id > 1, 'a', 'b'), CASE id WHEN 1 THEN 'x' ELSE 'y' END, name->'$.a', name->>'$.b' FROM t", "t(*)"),
        (
            "SELECT CAST(id AS CHAR), CAST(name AS SIGNED), CONVERT(name USING utf8), CONVERT(id, DECIMAL(10,2)) FROM t",
            "t(*)",
        ),
        (
            "SELECT at + INTERVAL 1 DAY, DATE_ADD(at, INTERVAL 1 MONTH), EXTRACT(YEAR FROM at) FROM t WHERE id = 2",
            "t(id=2)",
        ),
        ("SELECT id, COUNT(*) c FROM t WHERE id = 2 GROUP BY id WITH ROLLUP HAVING c > 1 ORDER BY NULL", "t(id=2)"),
        ("SELECT * FROM (SELECT id FROM t WHERE id = 2) x WHERE x.id = 3", "t(id=2)"),
        ("WITH x AS (SELECT id FROM t WHERE id = 2) SELECT * FROM x", "t(id=2)"),
        ("SELECT id FROM t WHERE id = 1 UNION ALL SELECT id FROM u WHERE id = 2", "t(id=1) u(id=2)"),
        ("SELECT row_number() OVER (PARTITION BY name ORDER BY id) FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.id = 4)", "t(later) u(id=4)"),
        ("SELECT DATABASE(), TRUE FROM t WHERE id = 1", "t(id=1)"),
        ("(SELECT * FROM t WHERE id = 1)", "t(id=1)"),
        ("SELECT * FROM cheap WHERE id = 1", "cheap(definition) t(id=1,price=..10)"),
        ("SELECT * FROM named", "named(definition) t(*) u(*)"),
        ("SELECT `count`.id FROM t `count` WHERE `count`.id = 1", "t(id=1)"),
        // Of the words that both servers reserve, none is a name behind a point.
        ("SELECT t.key FROM t WHERE id = 1", "t(id=1)"),
    ]);
}

#[test]
fn predicates() {
    check(&[
        ("SELECT * FROM t WHERE id IN (5, 3) AND name IN ('B', 'a ')", "t(Name='a'|'b',id=3|5)"),
        ("SELECT * FROM t WHERE id IN (5, 'x')", "t(*)"),
        // Compared all in one way.
        ("SELECT * FROM t WHERE id IN (5, '6')", "t(id=5|6)"),
        ("SELECT * FROM t WHERE id IN (9007199254740993, '6')", "t(*)"),
        ("SELECT * FROM t WHERE id IN (5.5, '6')", "t(*)"),
        ("SELECT * FROM t WHERE id IN (1.5, 18446744073709551615)", "t(*)"),
        ("SELECT * FROM t WHERE big IN (1.5, -1)", "t(*)"),
        ("SELECT * FROM t WHERE big IN (1, '-1')", "t(*)"),
        ("SELECT * FROM t WHERE id BETWEEN 18446744073709551615 AND -1", "t(*)"),
        ("SELECT * FROM t WHERE id BETWEEN 1 AND '5a'", "t(*)"),
        ("SELECT * FROM t WHERE id BETWEEN 1 AND price", "t(*)"),
        ("SELECT * FROM t WHERE id = 1 OR id = 2 OR price = 3", "t(id=1|2) t(price=3)"),
        ("SELECT * FROM t WHERE id = 1 XOR id = 2 OR price = 3", "t((id)) t(price=3)"),
        ("SELECT * FROM t WHERE id < 5 AND price > 1.5 AND big >= 7", "t(big=7..,id=..4,price=1..)"),
        ("SELECT * FROM t WHERE id < '5' AND id > 1.5", "t(id=1..4)"),
        ("SELECT * FROM t WHERE id < '5a' AND price < '1' AND weight < 1 AND at < 5", "t(*)"),
        ("SELECT * FROM t WHERE id BETWEEN 2 AND 4", "t(id=2..4)"),
        ("SELECT * FROM t WHERE id BETWEEN 2 AND 4 IN (0)", "t(*)"),
        ("SELECT * FROM t WHERE id NOT BETWEEN 2 AND 4", "t(id=..1) t(id=5..)"),
        ("SELECT * FROM t WHERE weight IS NULL AND name IS NULL AND at IS NULL", "t(Name null,weight null)"),
        ("SELECT * FROM t LEFT JOIN u ON u.t_id = t.id WHERE u.id IS NULL AND t.id = 5", "t(id=5) u(t_id=5)"),
        ("SELECT * FROM t JOIN u RIGHT JOIN T x ON x.id = u.id WHERE t.name IS NULL", "T(*) t(*) u(*)"),
        ("SELECT * FROM t WHERE name LIKE 'Ab  %'", "t(Name=ab*)"),
        ("SELECT * FROM t WHERE code LIKE 'Ab_%'", "t(code=Ab*)"),
        ("SELECT * FROM t WHERE name LIKE ' %'", "t(Name~ *i)"),
        ("SELECT * FROM t WHERE name LIKE 'é%'", "t(Name not null)"),
        ("SELECT * FROM t WHERE name LIKE 'a%' ESCAPE '!'", "t(Name=a*)"),
        ("SELECT * FROM t WHERE name LIKE BINARY 'a%' AND name NOT LIKE 'b%'", "t(Name=a*,Name!~b*i)"),
        ("SELECT * FROM t WHERE id LIKE '5%'", "t(id not null)"),
        ("SELECT * FROM t JOIN u ON u.title = t.name WHERE t.name = 'a'", "t(Name='a') u(later)"),
        (
            "SELECT * FROM t x JOIN T y ON x.code = y.code AND y.big = x.price WHERE x.code = 'a' AND y.big = 5",
            "T(big=5,code='a') t(code='a',price=5)",
        ),
        ("SELECT * FROM t WHERE id = 5 AND EXISTS (SELECT 1 FROM u T WHERE T.t_id = t.id)", "t(id=5) u(*)"),
    ]);
}

/// The columns of each tag.
fn columns(sql: &str) -> String {
    let (catalog, lexed) = (catalog(), lex(sql));
    let read_set = Template::parse(Dialect::MySql, &lexed.normalized).resolve(&catalog, &schemas()).unwrap();
    let literals = lexed.literals.iter().map(ParameterValue::Literal);
    let params: Vec<Parameter<'_>> = literals.map(|value| Parameter { value, declared_type: 0 }).collect();
    let shown = read_set.bind(&params, Client::PLAIN).unwrap().tags.into_iter().map(|tag| match tag.columns {
        Columns::All => format!("{}(*)", catalog.table(tag.table).unwrap().name),
        Columns::Only(names) => format!("{}({})", catalog.table(tag.table).unwrap().name, names.join(",")),
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort_unstable();
    shown.join(" ")
}

#[test]
fn mentioned_columns() {
    for (sql, expected) in [
        ("SELECT id FROM t WHERE weight = 1 ORDER BY name DESC LIMIT 5", "t(Name,id,weight)"),
        ("SELECT COUNT(*) FROM t", "t()"),
        ("SELECT COUNT (*) FROM t WHERE ID = 5", "t(id)"),
        ("SELECT NAME FROM t ORDER BY 1", "t(Name)"),
        ("SELECT t.price FROM t JOIN u USING (ID)", "t(id,price) u(id)"),
        ("SELECT price FROM t NATURAL JOIN u", "t(*) u(*)"),
        ("SELECT price FROM t WHERE MATCH (name, t.code) AGAINST ('x')", "t(Name,code,price)"),
        (
            "SELECT GROUP_CONCAT(code ORDER BY big DESC) FROM t GROUP BY name WITH ROLLUP HAVING MAX(price) > 1",
            "t(Name,big,code,price)",
        ),
        ("SELECT _rowid FROM t", "t(*)"),
        ("SELECT `größe` FROM t", "t(*)"),
        ("SELECT t FROM (SELECT id AS t FROM t) x", "t(id)"),
        ("SELECT name->'$.a', CONVERT(code USING utf8), EXTRACT(YEAR FROM at) FROM t", "t(Name,at,code)"),
    ] {
        assert_eq!(columns(sql), expected, "{sql}");
    }
}

#[test]
fn what_the_context_decides() {
    check(&[
        ("SELECT 1", ""),
        ("SELECT @@version_comment LIMIT 1", ""),
        ("SELECT @@SESSION.sql_mode, @@local.Time_Zone AS zone, VERSION()", ""),
        ("SELECT DATABASE(), CURRENT_USER, CURRENT_USER()", ""),
        ("SELECT id FROM t WHERE name = CURRENT_USER()", "t(*)"),
        ("SELECT id FROM t WHERE name = CURRENT_USER", "function"),
        ("SELECT @@global.sql_mode", "construct"),
        ("SELECT @@GLOBAL.read_only", ""),
        ("SELECT @@read_only AS Value", ""),
        ("SELECT @@global.Server_id `id`", ""),
        ("SELECT @@server_id AS id", ""),
        ("SELECT @@innodb_read_only", ""),
        ("SELECT @@session.read_only", "construct"),
        ("SELECT @@GLOBAL.read_only, 1", "construct"),
        ("SELECT -@@GLOBAL.read_only", "construct"),
        ("SELECT @@GLOBAL.read_only FROM t", "construct"),
        ("SELECT @@GLOBAL.super_read_only", "construct"),
        ("SELECT @@GLOBAL.version, @@global.Hostname, @@datadir, @@port", ""),
        ("SELECT @@session.datadir", "construct"),
        ("SELECT @@autocommit", "construct"),
        ("SELECT @version", "construct"),
        ("SELECT @@sql_mode, @a", "construct"),
        ("SELECT @@sql_mode FROM t", "construct"),
        ("SELECT (SELECT @@sql_mode FROM t)", "construct"),
    ]);
}

#[test]
fn times_of_dates() {
    check(&[
        ("SELECT TIME(since) FROM hours", "hours(*)"),
        (
            "SELECT SEC_TO_TIME(SUM(id)) AS total, DATE(since) FROM hours GROUP BY DATE(since) ORDER BY total",
            "hours(*)",
        ),
        ("SELECT since FROM hours WHERE TIME(since) BETWEEN '09:00' AND '17:00'", "hours(*)"),
        ("SELECT id FROM hours WHERE TIME(since) >= '09:00' AND id = 1 ORDER BY TIME(since)", "hours(id=1)"),
        ("SELECT HOUR(TIME(since)), TIME_FORMAT(SEC_TO_TIME(id), '%H') FROM hours", "hours(*)"),
        ("SELECT id FROM hours WHERE opens = '10:00' AND DATE(since) = '2024-01-01'", "hours(*)"),
        ("SELECT since FROM hours WHERE TIME(since) > since", "construct"),
        ("SELECT since FROM hours WHERE TIME(since) > DATE '2024-01-01'", "construct"),
        ("SELECT DATE(TIME(since)) FROM hours", "construct"),
        ("SELECT IF(id, TIME(since), since) FROM hours", "construct"),
        ("SELECT TIME(since) AS a, since AS b FROM hours HAVING a > b", "construct"),
        ("SELECT TIME(since) UNION SELECT since FROM hours", "construct"),
        ("SELECT * FROM (SELECT TIME(since) AS a, since AS b FROM hours) x WHERE a > b", "construct"),
        ("SELECT COUNT(*), DATE(since) FROM hours", "hours(*)"),
    ]);
    let sql = "SELECT id FROM hours WHERE TIME(since) = ?";
    assert_eq!(verdict_of(sql, &[ParameterValue::Text(b"10:00")]), "hours(*)");
    assert_eq!(verdict_of(sql, &[ParameterValue::Moment(Some(0))]), "construct");
}

#[test]
fn zones_shapes_json_hints_and_partitions() {
    check(&[
        ("SELECT CONVERT_TZ(at, '+00:00', '-05:30') FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT id FROM t WHERE CONVERT_TZ(at, '+00:00', '+2:00') > '2024-01-01'", "t(*)"),
        ("SELECT CONVERT_TZ(at, 'UTC', '+01:00') FROM t", "function"),
        ("SELECT CONVERT_TZ(at, '+00:00', 'SYSTEM') FROM t", "function"),
        ("SELECT CONVERT_TZ(at, '+00:00', name) FROM t", "function"),
        ("SELECT ST_X(weight), MBRContains(weight, POINT(1, 2)) FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT st_distance_sphere(weight, weight), MBREquals(weight, weight) FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT ST_Collect(weight) FROM t", "function"),
        // Functions of one server only, and unknown ones: such a name may be a stored function.
        ("SELECT ST_Transform(weight, 4326) FROM t", "function"),
        ("SELECT st_total(1)", "function"),
        ("SELECT ST_Random() FROM t", "function"),
        ("SELECT mbr_of(id) FROM t", "function"),
        ("SELECT st_(id) FROM t", "function"),
        ("SELECT j.a FROM t, JSON_TABLE(t.name, '$[*]' COLUMNS (a INT PATH '$.a')) AS j WHERE t.id = 1", "t(id=1)"),
        (
            "SELECT * FROM t LEFT JOIN JSON_TABLE(name, '$' COLUMNS (n FOR ORDINALITY, NESTED PATH '$.b' COLUMNS \
             (b VARCHAR(9) PATH '$'))) AS j ON TRUE WHERE t.id = 1",
            "t(id=1)",
        ),
        ("SELECT * FROM hours, JSON_TABLE(id, '$' COLUMNS (a TIME PATH '$')) AS j WHERE j.a > since", "construct"),
        ("SELECT /*+ MAX_EXECUTION_TIME(1000) NO_MERGE(t) */ id FROM t WHERE id = 1", "t(id=1)"),
        ("SELECT id FROM t PARTITION (p0, p1) WHERE id = 1", "t(*)"),
        ("SELECT id FROM t PARTITION (p0) AS x JOIN u ON u.t_id = x.id WHERE u.id = 1", "t(*) u(id=1)"),
        (
            "SELECT id FROM u WHERE id = 1 AND NOT EXISTS (SELECT 1 FROM t PARTITION (p0) WHERE t.id = u.t_id)",
            "t(*) u(id=1)",
        ),
    ]);
    assert_eq!(columns("SELECT id FROM t PARTITION (p0)"), "t(*)");
    let sql = "SELECT CONVERT_TZ(at, ?, ?) FROM t WHERE id = 1";
    let (text, null) = (ParameterValue::Text, ParameterValue::Null);
    assert_eq!(verdict_of(sql, &[text(b"+00:00"), text(b"-11:00")]), "t(id=1)");
    assert_eq!(verdict_of(sql, &[text(b"+00:00"), null]), "t(id=1)");
    assert_eq!(verdict_of(sql, &[text(b"+00:00"), text(b"Europe/Berlin")]), "function");
}

#[test]
fn passes() {
    check(&[
        ("SELECT * FROM Users", "unknown_table"),
        ("SELECT * FROM kept_in_memory", "table_kind"),
        ("SELECT 1 FROM DUAL", "unknown_table"),
        ("SELECT * FROM information_schema.tables", "unknown_table"),
        ("SELECT * FROM t WHERE id = 1 FOR UPDATE", "locks_rows"),
        ("SELECT * FROM t WHERE id = 1 FOR SHARE SKIP LOCKED", "locks_rows"),
        ("SELECT * FROM t WHERE id = 1 LOCK IN SHARE MODE", "locks_rows"),
        ("SELECT * FROM t WHERE id = 1 LOCK IN SHARE MODE NOWAIT", "locks_rows"),
        ("SELECT id INTO @a FROM t", "construct"),
        ("SELECT id FROM t INTO OUTFILE '/x'", "construct"),
        ("SELECT @a FROM t", "construct"),
        ("SELECT id FROM t WHERE id = @@server_id", "construct"),
        ("SELECT @a := id FROM t", "construct"),
        ("SELECT SQL_NO_CACHE id FROM t", "construct"),
        ("SELECT /*+ SET_VAR(sql_mode='') */ id FROM t", "construct"),
        ("SELECT /*+ SET_VAR(sql_mode='*/ ') */ id FROM t", "not_parsed"),
        ("SELECT /*+ SET_VAR(sql_select_limit = 1) */ id FROM t", "construct"),
        ("SELECT /*! SQL_NO_CACHE */ id FROM t", "construct"),
        ("SELECT /*!50700 STRAIGHT_JOIN */ id FROM t", "not_parsed"),
        ("SELECT /*!080001 STRAIGHT_JOIN */ id FROM t", "not_parsed"),
        ("SELECT id FROM t PROCEDURE ANALYSE()", "construct"),
        ("SELECT id || name FROM t", "operator"),
        ("SELECT NOW(), id FROM t", "function"),
        ("SELECT current_timestamp, id FROM t", "function"),
        ("SELECT utc_date, id FROM t", "function"),
        ("SELECT RAND() FROM t", "function"),
        ("SELECT UNIX_TIMESTAMP() FROM t", "function"),
        ("SELECT LAST_INSERT_ID() FROM t", "function"),
        ("SELECT FOUND_ROWS() FROM t", "function"),
        ("SELECT mine(id) FROM t", "function"),
        ("SELECT shop.lower(name) FROM t", "function"),
        ("SELECT `lower`(name) FROM t", "function"),
        ("SELECT SOUNDEX(name) FROM t", "user_defined"),
        ("SELECT * FROM t WHERE id = 0x05 AND ! id", "not_parsed"),
        ("SELECT \\N FROM t", "not_parsed"),
        ("SELECT {d '2020-01-01'} FROM t", "not_parsed"),
        ("TABLE t", "not_parsed"),
        ("SELECT * FROM t; SELECT * FROM u", "several_statements"),
        ("SELECT * FROM counted", "function"),
        ("SELECT * FROM today", "function"),
        ("SELECT NEXT VALUE FOR s FROM t", "not_parsed"),
        ("SHOW TABLES", "not_select"),
        // The current date completes a TIME that is combined with a date.
        ("SELECT * FROM hours ORDER BY opens, since", "hours(*)"),
        ("SELECT opens, since FROM hours WHERE opens > '10:00' ORDER BY since", "hours(*)"),
        (
            "SELECT opens, since FROM hours WHERE since > '2020-01-01' GROUP BY opens",
            "hours(since=2019-12-30 00:00:00.000000+00..)",
        ),
        ("SELECT * FROM hours WHERE opens > since", "construct"),
        ("SELECT CAST(opens AS DATETIME) FROM hours", "construct"),
        ("SELECT opens + INTERVAL 1 DAY FROM hours", "construct"),
        ("SELECT DATE(opens) FROM hours", "construct"),
        ("SELECT opens FROM hours UNION SELECT since FROM hours", "construct"),
        ("SELECT * FROM (SELECT opens AS a, since AS b FROM hours) x WHERE a = b", "construct"),
        ("WITH x AS (SELECT opens, since FROM hours) SELECT * FROM x", "construct"),
        ("SELECT TIME '10:00' + at FROM t", "construct"),
        ("SELECT a.opens FROM hours a NATURAL JOIN hours b", "construct"),
    ]);
    let mut deep = "SELECT id FROM t WHERE id = 1".to_owned();
    deep += &" OR id = 1".repeat(600);
    assert_eq!(verdict_of(&deep, &[]), "too_long");
    let mut joins = "SELECT 1 FROM t".to_owned();
    joins += &" JOIN t".repeat(100);
    assert_eq!(verdict_of(&joins, &[]), "t(*)");
    assert_eq!(verdict_of(&(joins + " JOIN t"), &[]), "too_long");
}

#[test]
fn parameters() {
    use ParameterValue::{Integer, Moment, Null, Opaque, Text, Time};
    let sql = "SELECT * FROM t WHERE id = ? AND name = ? AND price = ?";
    assert_eq!(verdict_of(sql, &[Integer(5), Text(b"Ab"), Integer(7)]), "t(Name='ab',id=5,price=7)");
    assert_eq!(verdict_of(sql, &[Text(b"5"), Integer(5), Text(b"7")]), "t(id=5)");
    assert_eq!(verdict_of(sql, &[Null, Opaque, Text(b"7")]), "t(*)");
    assert_eq!(verdict_of("SELECT * FROM t WHERE id <=> ?", &[Null]), "t(*)");
    assert_eq!(
        verdict_of("SELECT * FROM t WHERE big = ?", &[Integer(u64::MAX.into())]),
        "t(big=18446744073709551615.)"
    );
    assert_eq!(verdict_of("SELECT * FROM t WHERE id = -?", &[Integer(5)]), "t(*)");
    assert_eq!(
        verdict_of("SELECT * FROM t WHERE id = ? AND price = 2 LIMIT ?", &[Integer(1), Integer(9)]),
        "t(id=1,price=2)"
    );
    let sql = "SELECT * FROM hours WHERE opens > ?";
    assert_eq!(verdict_of(sql, &[Text(b"10:00")]), "hours(*)");
    assert_eq!(verdict_of(sql, &[Time]), "hours(*)");
    assert_eq!(verdict_of(sql, &[Moment(None)]), "construct");
    assert_eq!(verdict_of("SELECT * FROM t WHERE at > ?", &[Moment(None)]), "t(*)");
    let noon = Moment(Some(1_893_499_200_000_000));
    assert_eq!(
        verdict_of("SELECT * FROM t WHERE at = ?", &[noon]),
        verdict_of("SELECT * FROM t WHERE at = '2030-01-01 12:00:00'", &[])
    );
    assert_eq!(verdict_of("SELECT * FROM t WHERE name = ? AND price = ?", &[noon, noon]), "t(*)");
    assert_eq!(verdict_of("SELECT * FROM hours WHERE since = ?", &[noon]), "hours(*)");
    assert_eq!(verdict_of("SELECT * FROM t WHERE at > ?", &[Time]), "construct");
    assert_eq!(verdict_of("SELECT * FROM t WHERE id = 1 AND ? < ?", &[Moment(None), Time]), "construct");
}

#[test]
fn effects() {
    use Effect::{Definition, Forgets, Pure, Settings, Signal, TransactionControl, Write};
    let cases: &[(&str, Effect)] = &[
        ("", Pure),
        ("SELECT 1", Pure),
        ("SELECT @@version_comment LIMIT 1", Pure),
        ("SELECT @a := 1", Settings),
        ("SELECT NOW(), SLEEP(1), f.x FROM t f", Pure),
        ("SELECT f(1)", Write),
        ("SELECT st_total(1)", Write),
        ("SELECT ST_Boundary(p) FROM t", Pure),
        ("SELECT shop.now()", Write),
        ("SELECT id FROM t FOR UPDATE", Write),
        ("SELECT id FROM t WHERE a MEMBER OF (b)", Pure),
        ("SELECT ! id FROM t", Write),
        ("WITH x AS (SELECT 1) DELETE FROM t", Write),
        ("WITH x AS (SELECT 1) UPDATE t SET id = 1", Write),
        ("SELECT NEXTVAL(s)", Write),
        ("SELECT NEXT VALUE FOR s", Write),
        ("(SELECT 1) UNION (SELECT ! 2)", Pure),
        ("insert into t values (1)", Write),
        ("REPLACE t SET id = 1", Write),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", Write),
        ("CALL p()", Definition),
        ("DO RELEASE_LOCK('a')", Signal),
        ("do 0", Signal),
        ("DO 1, SLEEP(0.1)", Signal),
        ("DO f(1)", Write),
        ("DO shop.now()", Write),
        ("DO @a := 1", Write),
        ("DO (SELECT MAX(id) FROM t)", Write),
        ("DO NEXTVAL(s)", Write),
        ("DO NEXT VALUE FOR s", Write),
        ("SET NAMES utf8mb4", Settings),
        ("SET @a = 1", Settings),
        ("USE shop", Settings),
        ("show warnings", Pure),
        ("EXPLAIN t", Pure),
        ("EXPLAIN SELECT 1", Write),
        ("START TRANSACTION", TransactionControl),
        ("XA START 'a'", TransactionControl),
        ("LOCK TABLES t READ", TransactionControl),
        ("CREATE TABLE x (id INT PRIMARY KEY)", Definition),
        ("TRUNCATE t", Definition),
        ("EXECUTE s", Definition),
        ("DEALLOCATE PREPARE s", Pure),
        ("START SLAVE", Definition),
        ("BEGIN NOT ATOMIC SELECT 1; END", Forgets),
        ("/*!40101 SET NAMES utf8 */", Settings),
        ("/*!40101 SET @a = 'x' */", Settings),
        ("/*!80000 SET @a = 'x' */", Forgets),
        ("FROBNICATE", Forgets),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; END", Definition),
        ("INSERT INTO t VALUES (1); SELECT 1", Write),
    ];
    for (sql, effect) in cases {
        assert_eq!(parse(sql).effect(), *effect, "{sql}");
    }
    let in_catalog = |sql: &str| parse(sql).effect_in(&catalog(), &schemas());
    assert_eq!(in_catalog("SELECT * FROM cheap"), Pure);
    assert_eq!(in_catalog("SELECT * FROM counted"), Write);
    assert_eq!(in_catalog("SELECT * FROM nowhere"), Write);
    assert_eq!(in_catalog("SELECT * FROM INFORMATION_SCHEMA.tables"), Pure);
    assert_eq!(in_catalog("SELECT 1 FROM DUAL"), Pure);
    assert_eq!(in_catalog("SELECT soundex(name) FROM t"), Write);
}

#[test]
fn brackets() {
    let begin = Some(Bracket::Begin(None));
    let cases = [
        ("BEGIN", begin),
        ("begin work", begin),
        ("START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT", begin),
        ("COMMIT", Some(Bracket::End)),
        ("ROLLBACK WORK AND NO CHAIN NO RELEASE", Some(Bracket::End)),
        ("COMMIT AND CHAIN", Some(Bracket::Other)),
        ("COMMIT RELEASE", Some(Bracket::Other)),
        ("ROLLBACK TO SAVEPOINT a", Some(Bracket::Savepoint)),
        ("RELEASE SAVEPOINT a", Some(Bracket::Savepoint)),
        ("CREATE INDEX i ON t (id)", Some(Bracket::End)),
        ("CREATE TEMPORARY TABLE x (id INT)", None),
        ("SET autocommit = 0", Some(Bracket::Other)),
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", Some(Bracket::Other)),
        ("SET @@transaction_isolation = 'READ-COMMITTED'", Some(Bracket::Other)),
        ("SET NAMES utf8", None),
        ("XA COMMIT 'a'", Some(Bracket::Other)),
        ("LOCK TABLES t WRITE", Some(Bracket::Other)),
        ("SELECT 1", None),
        ("INSERT INTO t VALUES (1)", None),
        ("BEGIN; SELECT 1", Some(Bracket::Other)),
    ];
    for (sql, bracket) in cases {
        assert_eq!(parse(sql).bracket(), bracket, "{sql}");
    }
}

#[test]
fn a_plain_write_names_all_that_it_touches() {
    let schemas = schemas();
    let mut catalog = catalog();
    let (t, u, hours) = (TableId(1), TableId(3), TableId(4));
    // As if its rows were deleted with those of `t`, and those of `hours` with its own.
    catalog.cascades.insert(t, Cascade { columns: vec!["id".into()], tables: vec![u, hours] });
    let written = |sql: &str| parse(sql).written(&catalog, &schemas);
    for (sql, tables) in [
        ("UPDATE u SET title = 'x' WHERE id IN (SELECT id FROM t)", &[u][..]),
        ("INSERT INTO shop.u SELECT * FROM cheap", &[u]),
        ("REPLACE INTO other.t VALUES (1)", &[TableId(8)]),
        ("DELETE FROM t WHERE id = 1", &[t, u, hours]),
        ("INSERT INTO t (id, name) VALUES (1, ?) ON DUPLICATE KEY UPDATE id = 2", &[t, u, hours]),
    ] {
        assert_eq!(written(sql).as_deref(), Some(tables), "{sql}");
    }
    for sql in [
        "UPDATE u JOIN hours ON hours.id = u.id SET u.title = ''",
        "UPDATE u, view_that_is_not_seen v SET v.id = u.id",
        "DELETE u FROM u JOIN hours USING (id)",
        "LOAD DATA INFILE 'x' INTO TABLE u",
        "INSERT INTO logged VALUES (1)",
        "INSERT INTO u VALUES (f(1))",
        "UPDATE cheap SET name = ''",
        "INSERT INTO kept_in_memory VALUES (1)",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO u VALUES (1); COMMIT",
        "UPDATE u SET id = 1; UPDATE hours SET id = 1",
        "HANDLER u OPEN",
        "TRUNCATE u",
        "CALL p()",
        "XA COMMIT 'a'",
        "SELECT * FROM u FOR UPDATE",
        "SELECT * FROM u",
        "DO RELEASE_LOCK('a')",
    ] {
        assert_eq!(written(sql), None, "{sql}");
    }
}

#[test]
fn temporary_tables_that_are_created() {
    for (sql, name) in [
        ("CREATE TEMPORARY TABLE x (id INT)", Some((None, "x"))),
        ("CREATE TEMPORARY TABLE IF NOT EXISTS `shop`.x SELECT 1", Some((Some("shop"), "x"))),
        ("CREATE TEMPORARY TABLE shop.1item (id INT)", None),
        ("CREATE TEMPORARY TABLE `shop`.1 (id INT)", None),
        ("CREATE TEMPORARY TABLE 1item (id INT)", None),
    ] {
        let template = parse(sql);
        let created = template.creates_temporary().map(|(schema, name)| (schema.as_deref(), &**name));
        assert_eq!(created, name, "{sql}");
    }
    assert!(parse("SELECT db.\"f\"()").makes_temporary(&catalog(), &schemas()));
    assert!(parse("SELECT \"f\"()").makes_temporary(&catalog(), &schemas()));
}

/// The normalized query is quoted as without the session's modes.
#[test]
fn modes_quote_otherwise() {
    use freshet_sql::{Modes, lex_under};
    let ansi = Modes { ansi_quotes: true, ..Modes::NONE };
    let plain = Modes { plain_backslash: true, ..Modes::NONE };
    let both = Modes { ansi_quotes: true, plain_backslash: true, ..Modes::NONE };
    for (modes, text, same) in [
        (
            ansi,
            r#"SELECT "a""b`c" FROM "t" WHERE "t"."x" = 'it''s "so"'"#,
            r#"SELECT `a"b``c` FROM `t` WHERE `t`.`x` = 'it''s "so"'"#,
        ),
        (ansi, r#"SELECT 'a' "b", 'x\'y' FROM t"#, r"SELECT 'a' `b`, 'x\'y' FROM t"),
        (ansi, r#"SELECT "a\" FROM "t""#, r"SELECT `a\` FROM `t`"),
        (ansi, r#"SELECT date"d" FROM t"#, r"SELECT date`d` FROM t"),
        (plain, r#"SELECT 'a\', "b\" FROM t WHERE x = 'c\n'"#, r#"SELECT 'a\\', "b\\" FROM t WHERE x = 'c\\n'"#),
        (plain, r"SELECT date '\' FROM t", r"SELECT date '\\' FROM t"),
        (both, r#"SELECT '\' AS "\" FROM t"#, r"SELECT '\\' AS `\` FROM t"),
    ] {
        let (said, meant) = (lex_under(Dialect::MySql, modes, text), lex(same));
        assert_eq!((&said.normalized, &said.literals), (&meant.normalized, &meant.literals), "{text}");
    }
    // Text that does not end, or has no equivalent without the modes, is not analysed.
    for (modes, text) in
        [(ansi, "SELECT 1 FROM \"t"), (plain, r"SELECT 'a\' 'b' FROM t"), (plain, r"SELECT n'\' FROM t")]
    {
        let normalized = lex_under(Dialect::MySql, modes, text).normalized;
        assert!(Template::parse(Dialect::MySql, &normalized).refusal().is_some(), "{text}");
    }
}

/// By the server's version, the code of an executable comment is part of the text, or a comment.
#[test]
fn executable_comments_of_versions() {
    use freshet_sql::{Modes, Version, lex_under};
    let version = |is_mariadb, number| Modes { version: Some(Version { is_mariadb, number }), ..Modes::NONE };
    let (mysql, mariadb) = (version(false, 80_015), version(true, 101_106));
    for (text, by_mysql, by_mariadb) in [
        ("/*!50700 WHERE id = 'a' */", Some("where id = $1"), Some("")),
        ("/*!50503WHERE id=1*/ OR 2", Some("where id=$1 or $2"), Some("where id=$1 or $2")),
        ("/*! WHERE '*/' = id -- */\n*/", Some("where $1 = id"), Some("where $1 = id")),
        ("/*!99999 ' it's \" */ WHERE 1", Some("where $1"), Some("where $1")),
        ("/*!80015 WHERE 1 */", Some("where $1"), Some("")),
        ("/*!80016 WHERE 1 */", Some(""), Some("")),
        ("/*!100100 WHERE 1 */", None, Some("where $1")),
        ("/*!101107 WHERE 1 */", None, Some("")),
        ("/*M!101106 WHERE 1 */", Some(""), Some("where $1")),
        ("/*M!80001 WHERE 1 */", Some(""), Some("where $1")),
        ("/*M!WHERE 1 */", Some(""), Some("where $1")),
        ("/*M! ' */", Some(""), None),
        ("/*Many */ WHERE 1", Some("where $1"), Some("where $1")),
        ("/*!123 */", Some("$1"), Some("$1")),
        // What is not read.
        ("/*! WHERE 1 /* a */ OR 2 */", None, None),
        ("/*!99999 a /* b */ c */ WHERE 1", None, None),
        ("/*! WHERE name = 'a' */ 'b'", None, None),
        ("/*! WHERE 1", None, None),
        ("/*!99999 WHERE 1", None, None),
        ("/*!1234567 WHERE 1 */", None, None),
    ] {
        for (modes, expected) in [(mysql, by_mysql), (mariadb, by_mariadb)] {
            let normalized = lex_under(Dialect::MySql, modes, &format!("SELECT id FROM t {text}")).normalized;
            let template = Template::parse(Dialect::MySql, &normalized);
            match expected {
                Some(rest) => assert_eq!(normalized, format!("select id from t {rest}").trim_end(), "{text}"),
                None => assert!(
                    template.refusal().is_some_and(|reason| reason.label() == "not_parsed"),
                    "{text}: {normalized}"
                ),
            }
        }
    }
}

/// `||` is OR or CONCAT by the session's mode, and closer than `*` if it is CONCAT.
#[test]
fn pipes_by_mode() {
    use freshet_sql::{Modes, lex_under};
    let under = |pipes_concat, text: &str| {
        let lexed = lex_under(Dialect::MySql, Modes { pipes_concat, ..Modes::NONE }, text);
        let template = Template::parse(Dialect::MySql, &lexed.normalized);
        let read_set = template.resolve(&catalog(), &schemas()).map(|read_set| {
            let literals = lexed.literals.iter().map(ParameterValue::Literal);
            let params: Vec<_> = literals.map(|value| Parameter { value, declared_type: 0 }).collect();
            let bound = read_set.bind(&params, Client::PLAIN).unwrap();
            format!("{:?}", bound.tags.iter().map(|tag| &tag.rows).collect::<Vec<_>>())
        });
        (lexed.normalized, read_set)
    };
    let plain = |text| under(Some(false), text).1.unwrap();
    for (text, or, same) in [
        (
            "SELECT id FROM t WHERE id=1||id = 2",
            "select id from t where id=$1 or id = $2",
            "SELECT id FROM t WHERE id=1 OR id=2",
        ),
        (
            "SELECT id FROM t WHERE id = 1 || Name='a'",
            "select id from t where id = $1 or Name=$2",
            "SELECT id FROM t WHERE id=1 OR Name='a'",
        ),
    ] {
        assert_eq!((under(Some(false), text).0.as_str(), plain(text)), (or, plain(same)), "{text}");
        // As one value, which is not known.
        let joined = under(Some(true), text).1.unwrap();
        assert!(joined == "[Any]" || joined.contains("[Unknown, Constant"), "{text}: {joined}");
        assert!(under(None, text).1.is_err_and(|reason| reason.label() == "operator"), "{text}");
    }
    let text = "SELECT Name || 2 * 3 || 'x' FROM t WHERE id = 5 AND Name || 'x' = 'ax'";
    assert_eq!(under(Some(true), text).1.unwrap(), plain("SELECT id FROM t WHERE id = 5"));
    assert!(
        under(Some(true), "SELECT id ||| 1 FROM t").1.is_err()
            && under(Some(false), "SELECT id ||| 1 FROM t").1.is_err()
    );
}

/// Texts of a wide character set have other bytes than those that were sent.
#[test]
fn wide_texts_are_not_compared_with_bytes() {
    let mut tables = vec![table(1, "u", &[("id", ValueType::Bytes)])];
    tables.push(table(2, "t", &[("id", ValueType::Int)]));
    let catalog = Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new());
    for sql in ["SELECT id FROM u WHERE id = 'ab'", "SELECT id FROM u WHERE id LIKE 'ab%'"] {
        let lexed = lex(sql);
        let read_set = Template::parse(Dialect::MySql, &lexed.normalized).resolve(&catalog, &schemas()).unwrap();
        let literals = lexed.literals.iter().map(ParameterValue::Literal);
        let params: Vec<_> = literals.map(|value| Parameter { value, declared_type: 0 }).collect();
        let rows = |wide: bool| {
            let client = Client { utf8: !wide, as_sent: false, wide, ..Client::PLAIN };
            let bound = read_set.bind(&params, client).unwrap();
            format!("{:?}", bound.tags.iter().map(|tag| &tag.rows).collect::<Vec<_>>())
        };
        assert!(rows(false).contains("97, 98") || rows(false).contains("6162"), "{}", rows(false));
        assert!(!rows(true).contains("97, 98") && !rows(true).contains("6162"), "{}", rows(true));
    }
}

/// MySQL reads a parameter beyond the signed integers as a negative double: 18446744073709551615 as -1.
#[test]
fn large_parameters_are_no_doubles() {
    let columns = [("f", ValueType::Float8), ("n", ValueType::Unsigned)];
    let catalog = Catalog::new(CatalogVersion(1), vec![table(1, "k", &columns)], HashSet::new(), HashSet::new());
    for (column, number, precise) in
        [("f", i64::MAX.into(), true), ("f", u64::MAX.into(), false), ("n", u64::MAX.into(), true)]
    {
        let lexed = lex(&format!("SELECT f FROM k WHERE {column} = ?"));
        let read_set = Template::parse(Dialect::MySql, &lexed.normalized).resolve(&catalog, &schemas()).unwrap();
        let params = [Parameter { value: ParameterValue::Integer(number), declared_type: 0 }];
        let rows = &read_set.bind(&params, Client::PLAIN).unwrap().tags[0].rows;
        assert_eq!(matches!(rows, RowSet::Where(terms) if !terms.is_empty()), precise, "{column} = {number}");
    }
}

/// Constants of bytes, and what other keys are compared with.
#[test]
fn keys_of_other_kinds() {
    let columns = [("raw", ValueType::Bytes), ("bits", ValueType::Bit), ("at", ValueType::Inet4)];
    let catalog = Catalog::new(CatalogVersion(1), vec![table(1, "k", &columns)], HashSet::new(), HashSet::new());
    let is_precise = |condition: &str| {
        let lexed = lex(&format!("SELECT raw FROM k WHERE {condition}"));
        let read_set = Template::parse(Dialect::MySql, &lexed.normalized).resolve(&catalog, &schemas()).unwrap();
        let literals = lexed.literals.iter().map(ParameterValue::Literal);
        let params: Vec<_> = literals.map(|value| Parameter { value, declared_type: 0 }).collect();
        matches!(&read_set.bind(&params, Client::PLAIN).unwrap().tags[0].rows, RowSet::Where(terms) if terms.len() == 1)
    };
    for condition in [
        "raw = x'61'",
        "raw IN (0x61, 0b1, b'1')",
        "raw = _binary'a'",
        "raw = UNHEX('6162')",
        "UUID_TO_BIN('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11') = raw",
        "bits = 5",
        "bits = b'101'",
        "bits IN (0x05, 7)",
        "at = '10.0.0.1'",
        "at = x'0a000001'",
    ] {
        assert!(is_precise(condition), "{condition}");
    }
    for condition in [
        "raw = UNHEX('616')",
        "raw = UNHEX('x1')",
        "raw = UUID_TO_BIN('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 1)",
        "raw = HEX('61')",
        "bits = x'05'",
        "bits = _binary'5'",
        "bits = '5'",
        "bits = 0xffffffffffffff",
        "at = '10.0.0.01'",
        "at = x'0a00'",
        "at > '10.0.0.1'",
    ] {
        assert!(!is_precise(condition), "{condition}");
    }
}

/// Bytes in a text that is no UTF-8, as drivers send them.
#[test]
fn raw_bytes() {
    use freshet_sql::Modes;
    let read = |modes: Modes, text: &[u8]| freshet_sql::without_raw_bytes(modes, text);
    let plain = Modes { plain_backslash: true, ..Modes::NONE };
    for (modes, text, expected) in [
        (
            Modes::NONE,
            &b"SELECT 'a' FROM t WHERE id=_binary'\xff\\0\\'\\\\\xe9' OR id = _BINARY\"\xfe\"/* x */"[..],
            "SELECT 'a' FROM t WHERE id=x'ff00275ce9' OR id = x'fe'/* x */",
        ),
        (plain, b"SELECT _binary'\xff\\', '\xc3\xa9'", "SELECT x'ff5c', '\u{e9}'"),
        (
            Modes::NONE,
            b"INSERT INTO t VALUES (_binary'\xc3\xa9', _binary'\xc3')",
            "INSERT INTO t VALUES (_binary'\u{e9}', x'c3')",
        ),
    ] {
        assert_eq!(read(modes, text).as_deref(), Some(expected));
    }
    for text in [
        &b"SELECT '\xff'"[..],
        b"SELECT `\xff`, _binary'\xff'",
        b"SELECT 1 /* \xff */",
        b"SELECT _binary'\xff",
        b"SELECT _binary '\xff'",
        b"SELECT _binary'\xff' 'a'",
        b"SELECT 1 -- \xff",
    ] {
        assert_eq!(read(Modes::NONE, text), None, "{}", text.escape_ascii());
    }
}

#[test]
fn what_a_session_must_know() {
    let (catalog, schemas) = (catalog(), schemas());
    let keeps = |sql: &str| parse(sql).keeps_settings(&catalog, &schemas);
    let temporary = |sql: &str| parse(sql).makes_temporary(&catalog, &schemas);
    for sql in [
        "SELECT * FROM t",
        "SELECT * FROM cheap FOR UPDATE",
        "SELECT /*+ BKA(t) */ lower(name) FROM t",
        "SELECT NEXTVAL(s)",
        "BEGIN",
        "SHOW TABLES",
        "INSERT INTO t (id, name) VALUES (1, concat('a', ?)) ON DUPLICATE KEY UPDATE name = VALUES(name)",
        "INSERT INTO shop.t SELECT * FROM cheap",
        "UPDATE t SET name = 'x' WHERE id IN (SELECT id FROM u)",
        "update t x set x.name = upper(name)",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t JOIN u ON t.id = u.t_id SET t.name = u.title",
        "DELETE t FROM t JOIN u USING (id)",
        "DO RELEASE_LOCK('a')",
    ] {
        assert!(keeps(sql) && !temporary(sql), "{sql}");
    }
    let many = format!("INSERT INTO t (id, name) VALUES {}", vec!["(1, 'a')"; 150].join(", "));
    assert!(keeps(&many) && !temporary(&many), "constants are no names");
    for sql in [
        "SELECT f(1)",
        "SELECT * FROM counted",
        "SELECT soundex(name) FROM t",
        "SELECT ! id FROM counted",
        "INSERT INTO logged VALUES (1)",
        "UPDATE t JOIN logged ON t.id = logged.id SET t.name = ''",
        "UPDATE cheap SET name = ''",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO t VALUES (f(1))",
        "CALL p()",
        "EXECUTE s",
        "SELECT /*! f(1) */ 1",
        "INSERT INTO t VALUES (1); CALL p()",
        "FROBNICATE",
    ] {
        assert!(!keeps(sql) && temporary(sql), "{sql}");
    }
    assert!(temporary("CREATE TEMPORARY TABLE x (id INT)"));
    assert!(!keeps("LOCK TABLES t READ") && !keeps("UNLOCK TABLES") && !keeps("FLUSH TABLES t WITH READ LOCK"));
    assert!(!temporary("CREATE TABLE x (id INT)") && !keeps("CREATE TABLE x (id INT)"));
    assert!(!temporary("SET NAMES utf8") && !keeps("SET NAMES utf8"));
    let reads = |sql: &str| parse(sql).reads_diagnostics();
    for sql in [
        "SELECT FOUND_ROWS()",
        "SELECT row_count(), id FROM t",
        "SHOW WARNINGS",
        "SHOW COUNT(*) ERRORS",
        "SELECT @@warning_count",
        "SET @n = @@session.error_count",
        "GET DIAGNOSTICS @n = NUMBER",
        "INSERT INTO t VALUES (ROW_COUNT())",
        "CALL p()",
        "SELECT f()",
    ] {
        assert!(reads(sql), "{sql}");
    }
    for sql in ["SELECT LAST_INSERT_ID()", "SHOW TABLES", "INSERT INTO t VALUES (1)", "SELECT id FROM t", "COMMIT"] {
        assert!(!reads(sql), "{sql}");
    }
    let snapshot = |sql: &str| parse(sql).takes_snapshot(&catalog, &schemas);
    for sql in [
        "SELECT * FROM t WHERE id = 1",
        "SELECT name, COUNT(*) FROM t GROUP BY name",
        "SELECT * FROM t LEFT JOIN u ON t.id = u.id",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    ] {
        assert!(snapshot(sql), "{sql}");
    }
    for sql in [
        "SELECT 1",
        "SELECT COUNT(*) FROM t",
        "SELECT * FROM cheap",
        "SELECT * FROM u RIGHT JOIN t ON t.id = u.id",
        "SELECT * FROM (SELECT 1) x",
        "SELECT 1 UNION SELECT id FROM t",
        "WITH t AS (SELECT 1) SELECT * FROM t",
        "START TRANSACTION",
    ] {
        assert!(!snapshot(sql), "{sql}");
    }
    assert_eq!(parse("SELECT SQL_CACHE id FROM t").hint(), Some(Hint::Cache));
    assert_eq!(parse("select sql_no_cache id FROM t").hint(), Some(Hint::NoCache));
    assert_eq!(parse("SELECT id FROM t").hint(), None);
}

/// A query that certainly reads its table takes the snapshot even without a row.
#[test]
fn reads_that_find_nothing() {
    let columns = [("id", ValueType::Int), ("small", ValueType::Int), ("name", ValueType::FoldedText)];
    let columns = [&columns[..], &[("raw", ValueType::Bytes), ("other", ValueType::Other)]].concat();
    let known = Table { capacities: vec![0x7fff_ffff, 0x7f, 10, 8, 0], ..table(1, "t", &columns) };
    let tables = vec![known, table(2, "parts", &columns)];
    let catalog = Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new());
    let sure_in = |sql: &str, client: Client| {
        let lexed = lex(sql);
        let literals = lexed.literals.iter().map(ParameterValue::Literal);
        let params: Vec<_> = literals.map(|value| Parameter { value, declared_type: 0 }).collect();
        parse(sql).surely_takes_snapshot(&catalog, &schemas(), &params, client)
    };
    let sure = |sql: &str| sure_in(sql, Client::PLAIN);
    for sql in [
        "SELECT * FROM t",
        "SELECT id FROM t LIMIT 1",
        "SELECT id FROM t WHERE id = 2147483647 ORDER BY name LIMIT 5 OFFSET 3",
        "SELECT id FROM t WHERE t.id = 5 AND (name = 'ten--bytes')",
        "SELECT id FROM t x WHERE x.id IN (1, '2', 3) AND raw = 'é'",
        "SELECT id FROM t WHERE (id = 1 AND name = 'a') OR (id = 2 AND name = 'b')",
        "SELECT id FROM t WHERE (id = 1 OR small = 2) AND raw = ''",
        "SELECT DISTINCT name FROM t WHERE small = 127",
    ] {
        assert!(sure(sql), "{sql}");
    }
    for sql in [
        "SELECT id FROM t LIMIT 0",
        "SELECT id FROM t LIMIT 5, 0",
        "SELECT id FROM t WHERE id = 2147483648",
        "SELECT id FROM t WHERE small = 128",
        "SELECT id FROM t WHERE small = -1",
        "SELECT id FROM t WHERE id = 1.5",
        "SELECT id FROM t WHERE id = '1x'",
        "SELECT id FROM t WHERE id = NULL",
        "SELECT id FROM t WHERE id IS NULL",
        "SELECT id FROM t WHERE name = 'eleven-byte'",
        "SELECT id FROM t WHERE name = 'é'",
        "SELECT id FROM t WHERE name = 5",
        "SELECT id FROM t WHERE raw = '9--bytes-'",
        "SELECT id FROM t WHERE other = 'a'",
        "SELECT id FROM t WHERE nowhere = 1",
        "SELECT id FROM t WHERE id = 1 AND id = 2",
        "SELECT id FROM t WHERE (id = 1 OR small = 2) AND id = 3",
        "SELECT id FROM t WHERE id = 1 AND 1 = 0",
        "SELECT id FROM t WHERE id = 1 OR 1 = 0",
        "SELECT id FROM t WHERE id = small",
        "SELECT id FROM t WHERE NOT id = 1",
        "SELECT id FROM t WHERE id IN (1, NULL)",
        "SELECT id FROM t WHERE id IN (1, 3000000000)",
        "SELECT id FROM t WHERE id = (SELECT 1)",
        "SELECT COUNT(*) FROM t WHERE id = 1",
        "SELECT id FROM t GROUP BY id HAVING 1 = 0",
        "SELECT t.id FROM t JOIN t u ON t.id = u.id WHERE t.small = 1",
        "SELECT id FROM parts WHERE id = 1",
        "SELECT id FROM parts",
        "SELECT 1",
    ] {
        assert!(!sure(sql), "{sql}");
    }
    let converted = Client { as_sent: false, ..Client::PLAIN };
    assert!(
        !sure_in("SELECT id FROM t WHERE raw = 'é'", converted)
            && sure_in("SELECT id FROM t WHERE raw = 'e'", converted)
    );
    assert!(!sure_in("SELECT id FROM t WHERE raw = 'e'", Client { wide: true, ..Client::PLAIN }));
}

#[test]
fn questions_about_the_query_cache() {
    let admin = |sql: &str| freshet_sql::admin(Dialect::MySql, sql);
    let status = |pattern: &str| Some(Ok(Admin::QueryCacheStatus(pattern.to_owned())));
    assert_eq!(admin("SHOW STATUS LIKE 'Qcache%'"), status("Qcache%"));
    assert_eq!(admin("show global status like \"qcache_hits\";"), status("qcache_hits"));
    assert_eq!(
        admin("SHOW VARIABLES LIKE 'query\\_cache\\_%'"),
        Some(Ok(Admin::QueryCacheVariables("query\\_cache\\_%".to_owned())))
    );
    assert_eq!(admin("SHOW CACHES"), Some(Ok(Admin::ShowCaches)));
    for other in ["SHOW STATUS", "SHOW STATUS LIKE '%'", "SHOW VARIABLES LIKE 'q%'", "SHOW STATUS LIKE 'Qcache%' x"] {
        assert_eq!(admin(other), None, "{other}");
    }
    assert_eq!(freshet_sql::admin(Dialect::Postgres, "SHOW STATUS LIKE 'Qcache%'"), None);
}

/// Near-statements: pieces that are dangerous next to each other.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "SELECT ",
        "select",
        " FROM ",
        " t ",
        " u x",
        " WHERE ",
        " AND ",
        " OR ",
        " XOR ",
        " NOT ",
        " id ",
        "x.id",
        "`id`",
        " = ",
        "<=>",
        "5",
        "'a'",
        "\"a\"",
        "'",
        "\"",
        "`",
        "\\",
        "''",
        "?",
        "$1",
        "@a",
        "@@b",
        ":=",
        "||",
        "&&",
        "(",
        ")",
        ",",
        ";",
        ".",
        "-- ",
        "#",
        "/*",
        "*/",
        "/*!",
        "/*+",
        "\n",
        " ",
        "*",
        "-",
        "->",
        "BINARY ",
        " DIV ",
        " MOD ",
        " JOIN ",
        " LEFT JOIN ",
        " ON ",
        " USING (id)",
        "UPDATE t SET ",
        "INSERT INTO t VALUES ",
        "BEGIN",
        "CALL p()",
        "lower(",
        "f(",
        " IN (",
        " INTO ",
        " LIMIT 5",
        " UNION ",
        "é",
        "\0",
        "0x1F",
        "x'1'",
        "_utf8'x'",
        "N'x'",
        "1e5",
        "1a",
        " COLLATE c ",
        "INTERVAL 1 DAY",
        "WITH x AS (",
        "CREATE PROCEDURE ",
        "SET ",
    ]);
    prop::collection::vec(piece, 0..28).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_analysed(text in any::<String>(), pieces in pieces()) {
        let (catalog, schemas) = (catalog(), schemas());
        for text in [text, pieces] {
            let template = parse(&text);
            let verdict = template.resolve(&catalog, &schemas);
            if verdict.is_ok() {
                prop_assert_eq!(template.effect_in(&catalog, &schemas), Effect::Pure, "{}", text);
                prop_assert!(template.keeps_settings(&catalog, &schemas), "{}", text);
            }
            prop_assert!(!(template.keeps_settings(&catalog, &schemas) && template.makes_temporary(&catalog, &schemas)));
            let _ = freshet_sql::admin(Dialect::MySql, &text);
            let _ = verdict_of(&text, &[]);
        }
    }
}

#[test]
fn negatives_and_patterns_of_a_row() {
    check(&[
        ("SELECT id FROM t WHERE NOT (name = 'X' AND name IS NOT NULL)", "t(Name<>'X'?)"),
        ("SELECT id FROM t WHERE name NOT IN ('x', 'y') AND id <> 5", "t(Name<>'x'|'y',id<>5)"),
        ("SELECT id FROM t WHERE name <> 5", "t(Name not null)"),
        ("SELECT id FROM t WHERE NOT (id <=> 5)", "t(id<>5?)"),
        ("SELECT id FROM t WHERE id NOT BETWEEN 5 AND '7a'", "t(*)"),
        ("SELECT id FROM t WHERE name LIKE '%X%'", "t(Name~*X*i)"),
        ("SELECT id FROM t WHERE name LIKE 'X'", "t(Name='x')"),
        ("SELECT id FROM t WHERE name LIKE BINARY '%X%'", "t(Name~*X*)"),
        ("SELECT id FROM t WHERE name LIKE BINARY 'aB%'", "t(Name=ab*)"),
        ("SELECT id FROM t WHERE UPPER(name) = UPPER('x') AND UCASE(name) LIKE '%\\_'", "t(Name='x',Name~*_i)"),
        ("SELECT id FROM t WHERE CAST(name AS CHAR) LIKE '%x%'", "t(*)"),
    ]);
}
