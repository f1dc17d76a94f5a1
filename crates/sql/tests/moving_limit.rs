//! Moving limits, and the range that an answer gives.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Client, Field, Parameter, ParameterValue, Positions, Reach, ReadSet, Template, lex};
use freshet_types::{Catalog, CatalogVersion, Dialect, ValueType};

use Dialect::{MariaDb, MySql, Postgres};
use ValueType::{Bytes, Date, Float8, Int, Numeric, Text, Timestamp, TimestampTz};

fn catalog() -> Catalog {
    let columns: &[(&str, ValueType)] = &[
        ("id", Int),
        ("n", Int),
        ("m", Numeric),
        ("s", Text),
        ("d", Date),
        ("t", Timestamp),
        ("z", TimestampTz),
        ("f", Float8),
        ("y", Bytes),
    ];
    let table = fixture::table(1, "s", "x", columns);
    Catalog::new(CatalogVersion(1), vec![table], HashSet::new(), HashSet::new())
}

fn read_set(dialect: Dialect, sql: &str) -> ReadSet {
    let schemas: Vec<Arc<str>> =
        if dialect.is_mysql_family() { vec!["s".into()] } else { vec!["pg_catalog".into(), "s".into()] };
    Template::parse(dialect, &lex(dialect, sql).normalized).resolve(&catalog(), &schemas).expect(sql)
}

fn positions(dialect: Dialect, sql: &str, client: Client) -> Option<Positions> {
    let lexed = lex(dialect, sql);
    let literal = |literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 };
    let params: Vec<Parameter<'_>> = lexed.literals.iter().map(literal).collect();
    read_set(dialect, sql).positions(&params, client)
}

/// The range from an answer with these rows of one or two columns.
fn reach(dialect: Dialect, sql: &str, rows: &[&[&str]]) -> Option<Reach> {
    let at = positions(dialect, sql, Client::PLAIN)?;
    let read = |row: &&&[&'static str]| row.iter().map(|text| Field::Text(text.as_bytes())).collect::<Vec<_>>();
    // Their texts live as long as the test.
    let rows: Vec<Vec<&'static str>> =
        rows.iter().map(|row| row.iter().map(|text| &*text.to_string().leak()).collect()).collect();
    let rows: Vec<&[&'static str]> = rows.iter().map(Vec::as_slice).collect();
    read_set(dialect, sql).reach(&at, rows.iter(), read, true)
}

fn answers(dialect: Dialect, sql: &str, rows: &[&[&str]], other: &str) -> bool {
    let reach = reach(dialect, sql, rows).expect(sql);
    reach.covers(&positions(dialect, other, Client::PLAIN).expect(other))
}

#[test]
fn the_numbers_of_moving_limits() {
    for dialect in [Postgres, MySql, MariaDb] {
        for (sql, expected) in [
            ("SELECT n FROM x WHERE id = 1 AND n > 5", &[2][..]),
            ("SELECT n FROM x WHERE 5 < n", &[1]),
            ("SELECT * FROM x WHERE (id = 1 AND (n >= 5)) AND t < '2030-01-01'", &[2, 3]),
            ("SELECT n FROM x WHERE n > 5 ORDER BY id LIMIT 3", &[1]),
            ("SELECT a.n, b.id FROM x a LEFT JOIN x b ON b.id = a.n WHERE a.n > 5", &[1]),
            ("SELECT n, (SELECT count(*) FROM x) FROM x WHERE n > 5", &[1]),
            // Columns that are not in the answer, or rows that are not one row of the table.
            ("SELECT id FROM x WHERE n > 5", &[]),
            ("SELECT n + 0 FROM x WHERE n > 5", &[]),
            ("SELECT DISTINCT n FROM x WHERE n > 5", &[]),
            ("SELECT n, count(*) FROM x WHERE n > 5 GROUP BY n", &[]),
            ("SELECT n, row_number() OVER (ORDER BY id) FROM x WHERE n > 5", &[]),
            ("SELECT n FROM x WHERE n > 5 ORDER BY id LIMIT 3 OFFSET 2", &[]),
            ("SELECT n FROM x WHERE n > 5 UNION ALL SELECT 1", &[]),
            ("SELECT n FROM (SELECT n FROM x WHERE n > 5 LIMIT 3) x", &[]),
            // Conditions that are not joined by AND.
            ("SELECT n FROM x WHERE n > 5 OR id = 1", &[]),
            ("SELECT n FROM x WHERE NOT n > 5", &[]),
            ("SELECT n FROM x WHERE (n > 5) IS TRUE", &[]),
            ("SELECT n FROM x WHERE n + 1 > 5", &[]),
            ("SELECT n FROM x WHERE n NOT BETWEEN 1 AND 5", &[]),
            ("SELECT n FROM x WHERE n = 5", &[]),
            // Types without a known order.
            ("SELECT s FROM x WHERE s > 'a'", &[]),
            ("SELECT f FROM x WHERE f > 5", &[]),
        ] {
            let moving: Vec<u32> = read_set(dialect, sql).moving_parameters().collect();
            assert_eq!(moving, expected, "{dialect:?} {sql}");
        }
    }
    for dialect in [Postgres, MySql, MariaDb] {
        let between = read_set(dialect, "SELECT n FROM x WHERE n BETWEEN 1 AND 5");
        assert_eq!(between.moving_parameters().collect::<Vec<_>>(), [1, 2]);
    }
    // Used twice.
    let twice = "SELECT n FROM x WHERE n > $1 AND id < $1";
    assert_eq!(read_set(Postgres, twice).moving_parameters().count(), 0);
}

#[test]
fn an_answer_reaches_up_to_its_nearest_row() {
    let sql = |condition: &str| format!("SELECT id, n FROM x WHERE {condition}");
    for dialect in [Postgres, MySql] {
        let rows: &[&[&str]] = &[&["1", "30"], &["2", "20"], &["3", "40"]];
        for (condition, other, expected) in [
            ("n > 10", "n > 10", true),
            ("n > 10", "n > 19", true),
            ("n > 10", "n > 20", false),
            ("n > 10", "n > 9", false),
            ("n >= 10", "n >= 20", true),
            ("n >= 10", "n >= 21", false),
            ("n < 50", "n < 41", true),
            ("n < 50", "n < 40", false),
            ("n < 50", "n < 51", false),
            ("n <= 50", "n <= 40", true),
            ("n <= 50", "n <= 39", false),
            ("n > 10 AND n < 50", "n > 15 AND n < 45", true),
            ("n > 10 AND n < 50", "n > 20 AND n < 45", false),
            ("n > 10 AND n < 50", "n > 15 AND n < 40", false),
        ] {
            assert_eq!(answers(dialect, &sql(condition), rows, &sql(other)), expected, "{condition}, {other}");
        }
        // Without a row only one side is known, within the type that the server may give to the limit.
        for (condition, other, expected) in [
            ("n > 10", "n > 32767", true),
            ("n > 10", "n > 32768", false),
            ("n > 40000", "n > 2147483647", true),
            ("n > 10", "n > 9", false),
            ("n <= 10", "n <= -32768", true),
            ("n <= 10", "n <= 11", false),
        ] {
            assert_eq!(answers(dialect, &sql(condition), &[], &sql(other)), expected, "{condition}, {other}");
        }
    }
    // A row that contradicts the condition, is NULL or cannot be read, or has another width.
    for rows in [&["1", "5"], &["1", ""], &["1", "x"]] {
        assert_eq!(reach(Postgres, &sql("n > 10"), &[&["2", "20"], rows]), None, "{rows:?}");
    }
    assert_eq!(reach(Postgres, &sql("n > 10"), &[&["20"]]), None);
    // Zero bytes at the end of a time make it later.
    let time = "SELECT id, y FROM x WHERE y <= '20250101000000'";
    assert!(reach(MySql, time, &[&["1", "20240101000000"]]).is_some());
    assert_eq!(reach(MySql, time, &[&["1", "20240101000000\0\0"]]), None);
}

#[test]
fn limits_that_mysql_compares_together() {
    let sql = |limits: &str| format!("SELECT id, n FROM x WHERE n BETWEEN {limits}");
    for dialect in [MySql, MariaDb] {
        let known = |column: &str, limits: &str| {
            positions(dialect, &format!("SELECT {column} FROM x WHERE {column} BETWEEN {limits}"), Client::PLAIN)
                .is_some()
        };
        let rows: &[&[&str]] = &[&["1", "30"], &["2", "20"], &["3", "40"]];
        for (other, expected) in
            [("10 AND 50", true), ("20 AND 40", true), ("21 AND 40", false), ("20 AND 39", false), ("9 AND 50", false)]
        {
            assert_eq!(answers(dialect, &sql("10 AND 50"), rows, &sql(other)), expected, "{other}");
        }
        for (column, limits, expected) in [
            ("t", "'2030-01-01' AND '2030-01-01 10:00:00.5'", true),
            ("d", "'2030-01-01' AND '2030-01-03'", true),
            ("d", "'2030-01-01' AND '2030-01-03 10:00:00'", false),
            ("n", "'5' AND 7", true),
            // Of doubles.
            ("n", "'5' AND 9007199254740993", false),
            ("n", "5 AND 9007199254740993", true),
            // An unknown constant, or no row at all.
            ("n", "5 AND 'x'", false),
            ("n", "5 AND id", false),
            ("n", "5 AND NULL", false),
            ("t", "'2030-01-01' AND 20300102", false),
        ] {
            assert_eq!(known(column, limits), expected, "{dialect:?} {column} {limits}");
        }
    }
}

#[test]
fn moments_of_mysql() {
    let zoned = Client { utc: true, ..Client::PLAIN };
    for dialect in [MySql, MariaDb] {
        let at = |limit: &str, client| positions(dialect, &format!("SELECT z FROM x WHERE z > '{limit}'"), client);
        for (limit, expected) in [
            ("2030-01-01 10:00:00.5", true),
            ("1971-01-01 00:00:00", true),
            ("2037-12-31 23:59:59.999999", true),
            // The server compares a value that a TIMESTAMP cannot have in another way.
            ("1970-12-31 23:59:59", false),
            ("2038-01-01 00:00:00", false),
            ("2030-01-01 10:00:00-02:00", false),
        ] {
            assert_eq!(at(limit, zoned).is_some(), expected, "{dialect:?} {limit}");
            assert_eq!(at(limit, Client::PLAIN), None);
        }
        let sql = |limit: &str| format!("SELECT z FROM x WHERE z > '{limit}'");
        let (at, shown) =
            (at("2030-01-01 10:00:00", zoned).unwrap(), |row: &&'static str| vec![Field::Text(row.as_bytes())]);
        let reach = |row: &'static str| {
            read_set(dialect, &sql("2030-01-01 10:00:00")).reach(&at, std::iter::once(row), shown, true)
        };
        assert!(reach("2030-01-01 12:00:00").is_some());
        for row in ["0000-00-00 00:00:00", "2030-01-01 10:00:00"] {
            assert_eq!(reach(row), None, "{row}");
        }
        // Dates of the binary protocol.
        for (column, micros, expected) in [
            ("t", Some(1_893_499_200_000_001), true),
            ("z", Some(1_893_499_200_000_001), true),
            ("d", Some(1_893_456_000_000_000), true),
            ("d", Some(1_893_499_200_000_000), false),
            ("n", Some(5), false),
            ("t", None, false),
        ] {
            let value = Parameter { value: ParameterValue::Moment(micros), declared_type: 0 };
            let read_set = read_set(dialect, &format!("SELECT {column} FROM x WHERE {column} > ?"));
            assert_eq!(read_set.positions(&[value], zoned).is_some(), expected, "{dialect:?} {column} {micros:?}");
        }
        fractions(dialect);
    }
}

/// A limit with a fraction in binary form may be any value of its second.
fn fractions(dialect: Dialect) {
    let zoned = Client { utc: true, ..Client::PLAIN };
    let at = |column: &str, compares: &str, micros: i64| {
        let value = Parameter { value: ParameterValue::Fraction(micros), declared_type: 0 };
        read_set(dialect, &format!("SELECT {column} FROM x WHERE {column} {compares} ?")).positions(&[value], zoned)
    };
    let ten = 1_893_492_000_000_000; // 2030-01-01 10:00:00
    for (column, expected) in [("t", true), ("z", true), ("d", false), ("n", false)] {
        assert_eq!(at(column, ">", ten + 1).is_some(), expected, "{dialect:?} {column}");
    }
    assert_eq!(at("z", ">", 5), None, "a time stamp at the edge of its years");
    let between = read_set(dialect, "SELECT t FROM x WHERE t BETWEEN ? AND ?");
    let value = Parameter { value: ParameterValue::Fraction(ten + 1), declared_type: 0 };
    assert_eq!(between.positions(&[value, value], zoned), None);
    let row = |row: &&'static str| vec![Field::Text(row.as_bytes())];
    for (compares, shown, micros, expected) in [
        (">", "2030-01-01 10:00:03", 0, false),
        (">", "2030-01-01 10:00:03", 500_001, false),
        (">", "2030-01-01 10:00:03", 1_000_001, true),
        (">", "2030-01-01 10:00:03", 1_999_999, true),
        (">", "2030-01-01 10:00:03", 2_000_001, false),
        (">=", "2030-01-01 10:00:03", 2_000_001, true),
        (">=", "2030-01-01 10:00:03", 3_000_001, false),
        ("<", "2030-01-01 09:59:58", -1, true),
        ("<", "2030-01-01 09:59:58", -1_999_999, false),
        ("<=", "2030-01-01 09:59:58", -1_999_999, true),
        ("<", "2030-01-01 09:59:58", 1_000_001, false),
    ] {
        let read_set = read_set(dialect, &format!("SELECT t FROM x WHERE t {compares} ?"));
        let reach = read_set.reach(&at("t", compares, ten + 500_000).unwrap(), std::iter::once(shown), row, true);
        let covers = reach.unwrap().covers(&at("t", compares, ten + micros).unwrap());
        assert_eq!(covers, expected, "{dialect:?} {compares} {micros}");
    }
    // The second may be that of the row.
    let near = read_set(dialect, "SELECT t FROM x WHERE t > ?");
    let reach = near.reach(&at("t", ">", ten + 1).unwrap(), std::iter::once("2030-01-01 10:00:00.5"), row, true);
    assert_eq!(reach, None);
}

#[test]
fn moments_are_read_where_their_meaning_is_known() {
    let utc = Client { utc: true, ..Client::PLAIN };
    let known = |dialect, column: &str, limit: &str, client| {
        positions(dialect, &format!("SELECT {column} FROM x WHERE {column} > {limit}"), client).is_some()
    };
    for dialect in [Postgres, MySql, MariaDb] {
        for (column, limit, expected) in [
            ("t", "'2030-01-01 10:00:00.5'", true),
            ("t", "'2030-01-01'", true),
            ("d", "'2030-01-01'", true),
            ("t", "'2030-01-01 10:00:00.1234567'", false),
            ("t", "'1.1.2030'", false),
            ("t", "20300101", false),
            ("z", "'2030-01-01 10:00:00'", false),
            ("n", "5.5", false),
            ("m", "5.0", true),
            ("n", "'5'", true),
        ] {
            assert_eq!(known(dialect, column, limit, Client::PLAIN), expected, "{dialect:?} {column} {limit}");
        }
    }
    // PostgreSQL truncates the time of day, MySQL does not.
    assert!(known(Postgres, "d", "'2030-01-01 10:00:00'", Client::PLAIN));
    assert!(!known(MySql, "d", "'2030-01-01 10:00:00'", Client::PLAIN));
    assert!(known(Postgres, "z", "'2030-01-01T10:00:00.5+02:00'::timestamptz", Client::PLAIN));
    assert!(known(Postgres, "z", "'2030-01-01 10:00:00'", utc));
    assert!(!known(Postgres, "t", "'2030-01-01 10:00:00+00'::timestamptz", Client::PLAIN));
    // MediaWiki's times.
    assert!(known(MySql, "y", "'20300101100000'", Client::PLAIN));
    assert!(!known(MySql, "y", "'2030010110000'", Client::PLAIN));
    assert!(!known(MySql, "y", "'2030010110000x'", Client::PLAIN));
    let sql = |limit: &str| format!("SELECT z FROM x WHERE z > '{limit}'");
    let rows: &[&[&str]] = &[&["2030-01-01 12:00:00.5+00"]];
    for (limit, expected) in [
        ("2030-01-01 12:00:00.499999+00", true),
        ("2030-01-01 13:00:00.499999+01:00", true),
        ("2030-01-01 12:00:00.5+00", false),
        ("2030-01-01 09:59:59+00", false),
    ] {
        assert_eq!(answers(Postgres, &sql("2030-01-01 10:00:00+00"), rows, &sql(limit)), expected, "{limit}");
    }
    // Another DateStyle, or infinity.
    assert_eq!(reach(Postgres, &sql("2030-01-01 10:00:00+00"), &[&["01/01/2030 12:00:00 UTC"]]), None);
    assert!(answers(Postgres, &sql("2030-01-01 10:00:00+00"), &[&["infinity"]], &sql("9999-01-01 10:00:00+00")));
}
