//! Rows: every kind of change, every type of column, every row image.

use anyhow::Result;
use freshet_testbed::MysqlSettings;

use crate::fixture::{Database, Fixture};

const SCHEMA: &str = "
    CREATE TABLE pk (id INT PRIMARY KEY, v VARCHAR(20), big TEXT);
    CREATE TABLE keyless (id INT, v VARCHAR(20));
    CREATE TABLE parent (id INT PRIMARY KEY);
    CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE);";

fn follow(server: Database) -> Result<Fixture> {
    server.sql(SCHEMA)?;
    let fixture = Fixture::follow(server)?;
    fixture.catalogue.learn("pk", &["id", "v", "big"]);
    fixture.catalogue.learn("keyless", &["id", "v"]);
    fixture.catalogue.learn("parent", &["id"]);
    fixture.catalogue.learn("child", &["id", "parent"]);
    fixture.recorder.connected()?;
    Ok(fixture)
}

fn every_kind_of_change(server: Database) -> Result<()> {
    let fixture = follow(server)?;
    fixture.check(&[
        ("INSERT INTO pk VALUES (1, NULL, 'z'), (2, 'é', '')", "+1,-,z +2,é,"),
        ("UPDATE pk SET v = 'x' WHERE id = 1", "1,-,z>1,x,z"),
        ("UPDATE pk SET id = 3 WHERE id = 1", "1,x,z>3,x,z"),
        ("REPLACE INTO pk VALUES (3, 'y', NULL)", "3,x,z>3,y,-"),
        ("INSERT INTO pk VALUES (3, 'n', NULL) ON DUPLICATE KEY UPDATE v = 'w'", "3,y,->3,w,-"),
        ("DELETE FROM pk ORDER BY id", "-2,é, -3,w,-"),
        ("UPDATE pk, keyless SET pk.v = 'x'; INSERT INTO keyless VALUES (1, 'a')", "+1,a"),
    ])?;
    // A value that is too large to store, and packets of more than 16 MiB.
    fixture.server.sql("SET GLOBAL max_allowed_packet = 1 << 30")?;
    fixture.check(&[
        ("INSERT INTO pk VALUES (1, 'a', REPEAT('z', 1025))", "+1,a,?"),
        ("ALTER TABLE pk MODIFY big LONGTEXT", "redefined:pk"),
        ("UPDATE pk SET big = REPEAT('z', 20000000)", "1,a,?>1,a,?"),
        ("UPDATE pk SET big = 'small'", "1,a,?>1,a,small"),
    ])?;
    // The log does not contain the effects of cascades.
    fixture.check(&[
        ("INSERT INTO parent VALUES (1)", "+1"),
        ("INSERT INTO child VALUES (5, 1)", "+5,1"),
        ("DELETE FROM parent", "-1"),
    ])?;
    // Without names, and with a wrong number of names, any row may have changed.
    fixture.catalogue.learn("keyless", &["id"]);
    fixture.check(&[
        ("INSERT INTO keyless VALUES (2, 'b'), (3, 'c')", "any"),
        ("CREATE TABLE unknown (a INT)", "redefined:unknown"),
        ("INSERT INTO unknown VALUES (1)", "any"),
    ])?;
    named_by_the_log(&fixture)?;
    generated(&fixture)?;
    images(&fixture)?;
    fixture.finish()
}

/// `binlog_row_metadata = FULL`
fn named_by_the_log(fixture: &Fixture) -> Result<()> {
    fixture.server.sql("SET GLOBAL binlog_row_metadata = FULL")?;
    fixture.server.sql("INSERT INTO keyless VALUES (2, 'b')")?;
    let commit = fixture.recorder.commit()?;
    let freshet_types::ChangeSet::Rows(changes) = &commit.changes else { anyhow::bail!("{commit:?}") };
    let [freshet_types::Change::Insert { relation, .. }] = changes.as_slice() else { anyhow::bail!("{commit:?}") };
    assert_eq!(relation.columns.iter().map(|name| &**name).collect::<Vec<_>>(), ["id", "v"]);
    assert_eq!(relation.table, fixture.catalogue.names.id("freshet", "keyless"));
    fixture.server.sql("SET GLOBAL binlog_row_metadata = MINIMAL")?;
    fixture.catalogue.learn("keyless", &["id", "v"]);
    Ok(())
}

fn generated(fixture: &Fixture) -> Result<()> {
    fixture.server.sql("CREATE TABLE g (a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)")?;
    fixture.recorder.commit()?;
    fixture.catalogue.learn("g", &["a", "v", "s"]);
    fixture.check(&[
        ("INSERT INTO g (a) VALUES (1)", "+1,2,3"),
        ("UPDATE g SET a = 2", "1,2,3>2,3,4"),
        ("SET binlog_row_image = MINIMAL; DELETE FROM g", "-2,3,4"),
    ])?;
    // Generated columns change with the columns that they depend on, without being named.
    fixture
        .server
        .sql("CREATE TABLE h (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED, b INT)")?;
    fixture.recorder.commit()?;
    fixture.catalogue.learn("h", &["id", "a", "v", "s", "b"]);
    fixture.check(&[
        ("INSERT INTO h (id, a) VALUES (1, 1)", "+1,1,2,3,-"),
        // MariaDB omits virtual columns in new images: no tag tests them.
        (
            "SET binlog_row_image = MINIMAL; UPDATE h SET a = 2",
            if fixture.server.is_mariadb() { "1,?,?,?,?>1,2,=,4,=" } else { "1,?,?,?,?>1,2,3,4,=" },
        ),
        (
            "SET binlog_row_image = MINIMAL; UPDATE h SET b = 2",
            if fixture.server.is_mariadb() { "1,?,?,?,?>1,=,=,4,2" } else { "1,?,?,?,?>1,=,=,=,2" },
        ),
    ])?;
    if !fixture.server.is_mariadb() {
        // A generated column that is a key changes with its source, without being named.
        fixture.server.sql("CREATE TABLE k (a INT, s INT AS (a + 2) STORED PRIMARY KEY, b INT)")?;
        fixture.recorder.commit()?;
        fixture.catalogue.learn("k", &["a", "s", "b"]);
        fixture.check(&[
            ("INSERT INTO k (a) VALUES (1)", "+1,3,-"),
            ("SET binlog_row_image = MINIMAL; UPDATE k SET a = 2", "?,3,?>2,4,="),
        ])?;
    }
    fixture.check(&[
        (
            "CREATE TRIGGER tr BEFORE UPDATE ON pk FOR EACH ROW SET NEW.id = NEW.id + 100; INSERT INTO pk VALUES (50, 'k', '')",
            "everything",
        ),
    ])?;
    fixture.recorder.commit()?;
    // So does one that a trigger changes.
    fixture.check(&[
        ("SET binlog_row_image = MINIMAL; UPDATE pk SET v = 'l' WHERE id = 50", "50,?,?>150,l,="),
        ("DROP TRIGGER tr", "everything"),
        ("DELETE FROM pk WHERE id = 150", "-150,l,"),
    ])
}

fn images(fixture: &Fixture) -> Result<()> {
    fixture.check(&[
        ("SET binlog_row_image = MINIMAL; UPDATE pk SET v = 'm'", "1,?,?>1,m,="),
        ("SET binlog_row_image = MINIMAL; UPDATE pk SET id = 2", "1,?,?>2,=,="),
        ("SET binlog_row_image = MINIMAL; UPDATE pk SET v = NULL, big = NULL", "2,?,?>2,-,-"),
        ("SET binlog_row_image = MINIMAL; INSERT INTO pk (id) VALUES (9)", "+9,?,?"),
        // MySQL omits all columns, so nothing is known.
        (
            "SET binlog_row_image = MINIMAL; INSERT INTO keyless () VALUES ()",
            if fixture.server.is_mariadb() { "+-,-" } else { "any" },
        ),
        ("SET binlog_row_image = MINIMAL; DELETE FROM pk WHERE id = 9", "-9,?,?"),
        ("SET binlog_row_image = NOBLOB; UPDATE pk SET v = 'n'", "2,-,?>2,n,="),
        ("SET binlog_row_image = NOBLOB; UPDATE pk SET big = 'b'", "2,n,?>2,n,b"),
        ("SET binlog_row_image = NOBLOB; DELETE FROM pk", "-2,n,?"),
    ])
}

#[test]
fn every_kind_of_change_on_mariadb() -> Result<()> {
    every_kind_of_change(Database::mariadb(MysqlSettings::default())?)
}

#[test]
fn every_kind_of_change_on_mysql() -> Result<()> {
    every_kind_of_change(Database::mysql(&MysqlSettings::default())?)
}

/// Columns, a value for each, and the value that is reported.
type Type = (&'static str, &'static str, &'static str);

const TYPES: &[Type] = &[
    ("TINYINT", "-128", "-128"),
    ("TINYINT UNSIGNED", "255", "255"),
    ("SMALLINT", "-32768", "-32768"),
    ("SMALLINT UNSIGNED", "65535", "65535"),
    ("MEDIUMINT", "-8388608", "-8388608"),
    ("MEDIUMINT UNSIGNED", "16777215", "16777215"),
    ("INT", "-1", "-1"),
    ("INT UNSIGNED", "4294967295", "4294967295"),
    ("BIGINT", "-9223372036854775808", "-9223372036854775808"),
    ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615"),
    ("BOOL", "TRUE", "1"),
    ("FLOAT", "0.1", "0.1"),
    ("FLOAT", "-1.5e30", "-1500000000000000000000000000000"),
    ("DOUBLE UNSIGNED", "0.1", "0.1"),
    ("INT UNSIGNED", "4000000000", "4000000000"),
    ("DECIMAL(5,2)", "-12.3", "-12.30"),
    (
        "DECIMAL(65,30)",
        "12345678901234567890123456789012345.000000000000000000000000000001",
        "12345678901234567890123456789012345.000000000000000000000000000001",
    ),
    ("DECIMAL(20,0)", "-99999999999999999999", "-99999999999999999999"),
    ("DECIMAL(10,10)", "0.0000000001", "0.0000000001"),
    ("BIT(13)", "b'1010'", "\0\n"),
    ("DATE", "'2024-02-29'", "2024-02-29"),
    ("TIME", "'-1:02:03'", "?"),
    ("TIME(3)", "'1:02:03.5'", "?"),
    ("DATETIME", "'2024-02-29 01:02:03'", "2024-02-29 01:02:03.000000"),
    ("DATETIME(3)", "'9999-12-31 23:59:59.5'", "9999-12-31 23:59:59.500000"),
    ("DATETIME(6)", "'2024-02-29 01:02:03.456789'", "2024-02-29 01:02:03.456789"),
    ("TIMESTAMP NULL", "FROM_UNIXTIME(1709168523)", "2024-02-29 01:02:03.000000+00"),
    ("TIMESTAMP(1) NULL", "FROM_UNIXTIME(1709168523.4)", "2024-02-29 01:02:03.400000+00"),
    ("CHAR(3)", "'a '", "a"),
    ("CHAR(0)", "''", ""),
    ("CHAR(255) CHARACTER SET utf8mb4", "'é'", "é"),
    ("CHAR(10) CHARACTER SET latin1", "'x'", "x"),
    ("VARCHAR(3)", "'a '", "a "),
    ("VARCHAR(300)", "'long'", "long"),
    ("BINARY(3)", "'a'", "a"),
    ("VARBINARY(300)", "'bin'", "bin"),
    ("TINYTEXT", "'tiny'", "tiny"),
    ("MEDIUMTEXT", "'medium'", "medium"),
    ("LONGBLOB", "'blob'", "blob"),
    ("ENUM('a','b')", "'b'", "?"),
    ("SET('a','b','c')", "'a,c'", "?"),
    ("POINT", "ST_GeomFromText('POINT(1 2)')", "?"),
    ("GEOMETRY", "NULL", "-"),
    // Whether its sign is in the log depends on the version, and so do the signs of the columns behind it.
    ("YEAR", "2024", "?"),
    ("INT", "42", "42"),
];

/// All types in one table, so that a misread value displaces those behind it.
fn every_type(server: Database, more: &[Type]) -> Result<()> {
    let types: Vec<_> = TYPES.iter().chain(more).chain(&[("INT", "43", "43")]).collect();
    let names: Vec<String> = (0..types.len()).map(|at| format!("c{at}")).collect();
    let columns: Vec<String> = names.iter().zip(&types).map(|(name, (kind, ..))| format!("{name} {kind}")).collect();
    let values: Vec<&str> = types.iter().map(|(_, value, _)| *value).collect();
    server.sql(&format!("CREATE TABLE t ({}) CHARACTER SET utf8mb4", columns.join(", ")))?;
    let fixture = Fixture::follow(server)?;
    fixture.recorder.connected()?;
    fixture.catalogue.learn("t", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let expected: Vec<&str> = types.iter().map(|(.., told)| *told).collect();
    let expected = expected.join(",");
    let insert = format!("INSERT INTO t VALUES ({})", values.join(", "));
    assert_eq!(fixture.after(&insert)?, [format!("+{expected}")]);
    let nulls = vec!["-"; types.len()].join(",");
    let assignments: Vec<String> = names.iter().map(|name| format!("{name} = NULL")).collect();
    assert_eq!(fixture.after(&format!("UPDATE t SET {}", assignments.join(", ")))?, [format!("{expected}>{nulls}")]);
    if fixture.server.is_mariadb() {
        // Without signedness, a value with the highest bit set is one of two numbers.
        fixture.server.sql("SET GLOBAL binlog_row_metadata = NO_LOG")?;
        let unsure = |(kind, value, told): &&Type| {
            let highest_bit = kind.contains("UNSIGNED") || value.starts_with('-');
            if highest_bit && kind.contains("INT") { "?" } else { *told }
        };
        let expected: Vec<&str> = types.iter().map(unsure).collect();
        let inserted = fixture.after(&insert)?;
        assert_eq!(inserted, [format!("+{}", expected.join(","))]);
    }
    fixture.finish()
}

#[test]
fn every_type_on_mariadb() -> Result<()> {
    let more = [
        ("JSON", "'{}'", "{}"),
        ("INET6", "'::1'", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}"),
        ("UUID", "NULL", "-"),
        ("TEXT COMPRESSED", "REPEAT('a', 500)", "?"),
        ("VARCHAR(600) COMPRESSED", "REPEAT('a', 500)", "?"),
    ];
    every_type(Database::mariadb(MysqlSettings::default().with("binlog-row-metadata = MINIMAL"))?, &more)
}

#[test]
fn every_type_on_mysql() -> Result<()> {
    every_type(Database::mysql(&MysqlSettings::default())?, &[("JSON", "'{}'", "?")])
}
