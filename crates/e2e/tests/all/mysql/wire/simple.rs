//! COM_QUERY and the small commands.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::mysql::support::{Kind, Pair, on_both, packets};

on_both!(
    reads,
    reads_in_other_spellings,
    many_types,
    small_commands,
    several_statements,
    errors_among_several_statements,
    writes,
    errors,
    warnings,
    found_rows,
    row_count_and_insert_id,
    affected_or_found,
    results_that_are_not_tables,
    empty_statements,
    schema_changes_between_reads,
);

fn reads(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(5, |c| {
        for _ in 0..2 {
            c.query("SELECT id, name, price, born, seen FROM item WHERE id = 1")?;
            c.query("SELECT id, name, price, born, seen FROM item WHERE id = 3")?;
            c.query("SELECT * FROM item ORDER BY id")?;
            c.query("SELECT * FROM item WHERE id = 4711")?;
            c.query("SELECT COUNT(*), SUM(price) FROM item")?;
        }
        c.expect_silence()
    })
}

fn reads_in_other_spellings(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        for _ in 0..2 {
            c.query("select `name` from `item` where `id`=2 -- a remark")?;
            c.query("/* a remark */ SELECT name FROM item WHERE id IN (1, 2, 3) ORDER BY 1 DESC LIMIT 2;")?;
            c.query(&format!("SELECT i.name FROM {}.item AS i WHERE i.id = 5", pair.database.name))?;
            c.query("SELECT name FROM item WHERE name = 'ITEM 1'")?;
            c.query("SELECT name FROM item WHERE name = \"item 2\"")?;
            c.query("SELECT a.id, b.name FROM item a JOIN item b USING (id) WHERE a.price > 2 ORDER BY 1")?;
            // Not cached, each for another reason.
            c.query("SELECT SQL_NO_CACHE name FROM item WHERE id = 1")?;
            c.query("SELECT name FROM item WHERE id = 1 FOR UPDATE")?;
            c.query("SELECT name FROM item WHERE id = 1 LOCK IN SHARE MODE")?;
            c.query("SELECT name, RAND() < 2 FROM item WHERE id = 1")?;
            c.query("SELECT name INTO @name FROM item WHERE id = 1")?;
            c.query("SELECT @name")?;
            c.query("SELECT @n := id FROM item WHERE id = 4")?;
            c.query("SELECT @n")?;
        }
        c.expect_silence()
    })
}

fn many_types(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE wide (id BIGINT UNSIGNED PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d BIGINT,
            e FLOAT, f DOUBLE, g DECIMAL(30,10), h BIT(10), i DATE, j TIME(3), k DATETIME(6), l TIMESTAMP NULL, m YEAR,
            n CHAR(5), o VARCHAR(300), p BINARY(4), q VARBINARY(10), r TEXT, s LONGBLOB, t ENUM('x', 'y'), u SET('p', 'q'),
            v JSON, w INT(5) ZEROFILL, x VARCHAR(5) CHARACTER SET latin1, y GEOMETRY);
        INSERT INTO wide VALUES (18446744073709551615, -128, 65535, -5, -9223372036854775808, 1.5, -2.25e300,
            12345678901234567890.0123456789, b'1000000001', '9999-12-31', '-838:59:59', '2024-02-29 23:59:59.999999',
            '2024-01-01 00:00:00', 2024, 'ab', REPEAT('o', 300), 'xy', X'00ff', 'text', REPEAT('blob', 20000), 'y', 'p,q',
            '{\"a\": [1, null]}', 42, 'é', ST_GeomFromText('POINT(1 2)')),
            (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
    let pair = Pair::new(kind, schema)?;
    pair.same_with_hits(2, |c| {
        c.query("SELECT * FROM wide ORDER BY id")?;
        c.query("SELECT s FROM wide WHERE id = 18446744073709551615")?;
        let statement = c.prepare("SELECT * FROM wide WHERE id > ?")?;
        c.execute(statement, &[packets::Value::Int(0)])?;
        c.expect_silence()
    })
}

fn small_commands(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.command(&packets::ping())?;
        c.command(&packets::init_db(&pair.database.name))?;
        c.command(&packets::init_db("no_such_database"))?;
        c.command(&packets::init_db(""))?;
        c.fetch(&packets::field_list("item", ""))?;
        c.fetch(&packets::field_list("item", "n%"))?;
        c.fetch(&packets::field_list("no_such_table", ""))?;
        for option in [0, 1, 7] {
            c.command(&packets::set_option(option))?;
            c.query("SELECT 1; SELECT 2")?;
        }
        c.command(&packets::reset_connection())?;
        // COM_SLEEP, a number that nobody has given out, and no command at all.
        c.command(&[0])?;
        c.command(&[99])?;
        c.expect_silence()
    })?;
    let mut client = pair.connect()?;
    client.send(&packets::statistics())?;
    let answer = client.read()?;
    ensure!(String::from_utf8_lossy(&answer.payload).contains("Uptime: "), "{answer:?}");
    client.send(&packets::quit())?;
    ensure!(client.bytes_to_end()?.is_empty(), "said after COM_QUIT");
    Ok(())
}

fn several_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1; SELECT name FROM item WHERE id = 2")?;
        c.query(
            "SELECT name FROM item WHERE id = 1; UPDATE item SET name = name WHERE id = 1; SELECT ROW_COUNT(); DO 1",
        )?;
        c.query("SET @a = 1; SELECT @a; SELECT name FROM item WHERE id = @a;")?;
        c.query("BEGIN; SELECT name FROM item WHERE id = 1; COMMIT")?;
        c.query("SELECT name FROM item WHERE id = 1;")?;
        c.expect_silence()
    })
}

fn errors_among_several_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("SELECT 1; SELECT * FROM no_such_table; SELECT 2")?;
        c.query("SELECT 1; nonsense; SELECT 2")?;
        c.query(
            "INSERT INTO log (id, line) VALUES (1, 'one'); INSERT INTO log (id, line) VALUES (1, 'again'); SELECT 3",
        )?;
        c.query("SELECT line FROM log")?;
        c.query("DELETE FROM log")?;
        c.query("START TRANSACTION; SELECT * FROM no_such_table")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("ROLLBACK")?;
        c.expect_silence()
    })
}

fn writes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        c.query("INSERT INTO log (line) VALUES ('a'), ('b'), ('c')")?;
        c.query("SELECT * FROM log ORDER BY id")?;
        c.query("UPDATE log SET n = id WHERE id > 1")?;
        c.query("SELECT * FROM log ORDER BY id")?;
        c.query("UPDATE log SET n = id WHERE id > 1")?;
        c.query("INSERT INTO log (id, line) VALUES (2, 'x') ON DUPLICATE KEY UPDATE line = VALUES(line)")?;
        c.query("REPLACE INTO log (id, line) VALUES (3, 'y')")?;
        c.query("INSERT IGNORE INTO log (id, line) VALUES (3, 'z'), (9, 'nine')")?;
        c.query("SELECT * FROM log ORDER BY id")?;
        c.query("DELETE FROM log WHERE id = 9")?;
        c.query("DELETE FROM log WHERE id = 9")?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.query("INSERT INTO log (line) SELECT name FROM item WHERE name IS NOT NULL")?;
        c.query("SELECT * FROM log ORDER BY id")?;
        c.expect_silence()
    })
}

fn errors(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for wrong in [
            "SELEC 1",
            "SELECT * FROM no_such_table",
            "SELECT no_such_column FROM item",
            "SELECT * FROM no_such_database.item",
            "SELECT no_such_function(1)",
            "SELECT name FROM item WHERE id = (SELECT id FROM item)",
            "INSERT INTO log (line) VALUES (NULL)",
            "INSERT INTO item VALUES (1, 'twice', 0, NULL, NULL)",
            "INSERT INTO item VALUES (1)",
            "SELECT * FROM item WHERE id = 'unclosed",
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ünïcode', MYSQL_ERRNO = 4711",
            "CREATE TABLE item (n INT)",
            "DROP TABLE no_such_table",
            "KILL 999999999",
            "SET no_such_variable = 1",
            "ROLLBACK TO SAVEPOINT nowhere",
            "SELECT EXP(100000), 1 FROM item",
        ] {
            let answer = c.query(wrong)?;
            ensure!(answer.error().is_some(), "no error of {wrong}: {answer:?}");
            c.query("SELECT name FROM item WHERE id = 1")?;
        }
        c.expect_silence()
    })
}

fn warnings(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let answer = c.query("SELECT id, name = 0 FROM item WHERE id = 1")?;
        ensure!(answer.warnings > 0, "no warning: {answer:?}");
        c.query("SHOW WARNINGS")?;
        c.query("SELECT id, name = 0 FROM item WHERE id = 1")?;
        c.query("SHOW COUNT(*) WARNINGS")?;
        c.query("SELECT 1 / 0, name FROM item WHERE id = 2")?;
        c.query("SELECT name FROM item WHERE id = 2")?;
        // Of the read without warnings, which may have come from the cache.
        c.query("SHOW WARNINGS")?;
        c.query("SELECT * FROM no_such_table")?;
        c.query("SHOW ERRORS")?;
        c.query("SELECT name = 0 FROM item WHERE id = 2")?;
        c.query("SELECT name FROM item WHERE id = 2")?;
        c.query("SELECT @@warning_count, @@error_count")?;
        c.query("DROP TABLE IF EXISTS no_such_table")?;
        c.query("SELECT @@warning_count")?;
        c.query("DROP TABLE IF EXISTS no_such_table")?;
        c.query("SELECT name FROM item WHERE id = 2")?;
        c.query("GET DIAGNOSTICS @number = NUMBER, @rows = ROW_COUNT")?;
        c.query("SELECT @number, @rows")?;
        c.expect_silence()
    })
}

fn found_rows(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        for _ in 0..2 {
            c.query("SELECT name FROM item ORDER BY id LIMIT 3")?;
            c.query("SELECT FOUND_ROWS()")?;
            c.query("SELECT name FROM item WHERE id IN (1, 2)")?;
            c.query("SELECT FOUND_ROWS()")?;
            c.query("SELECT SQL_CALC_FOUND_ROWS name FROM item ORDER BY id LIMIT 2")?;
            c.query("SELECT FOUND_ROWS()")?;
            c.query("SELECT FOUND_ROWS()")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("SET @n = FOUND_ROWS()")?;
            c.query("SELECT @n")?;
            c.query("SELECT name FROM item WHERE id IN (1, 2)")?;
            let statement = c.prepare("SELECT FOUND_ROWS()")?;
            c.execute(statement, &[])?;
            c.command(&packets::ping())?;
        }
        c.expect_silence()
    })
}

fn row_count_and_insert_id(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(3, |c| {
        c.query("TRUNCATE log")?;
        for _ in 0..2 {
            c.query("INSERT INTO log (line) VALUES ('a'), ('b')")?;
            c.query("SELECT ROW_COUNT(), LAST_INSERT_ID()")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("SELECT ROW_COUNT()")?;
            c.query("UPDATE log SET n = 1")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("SELECT LAST_INSERT_ID(), ROW_COUNT()")?;
            c.query("SELECT LAST_INSERT_ID(42)")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("SELECT LAST_INSERT_ID()")?;
            c.query("SELECT id, line FROM log WHERE id = LAST_INSERT_ID()")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("DO 1")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
        }
        // sql_auto_is_null: the row that was inserted last.
        c.query("SET sql_auto_is_null = 1")?;
        c.query("INSERT INTO log (line) VALUES ('last')")?;
        c.query("SELECT line FROM log WHERE id IS NULL")?;
        c.query("SELECT line FROM log WHERE id IS NULL")?;
        c.expect_silence()
    })
}

fn affected_or_found(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut login = pair.login();
    for flag in [0, packets::capability::FOUND_ROWS] {
        login.capabilities |= flag;
        pair.same_as(login, |c| {
            let answer = c.query("UPDATE item SET name = name WHERE id < 3")?;
            ensure!(answer.affected == if flag == 0 { 0 } else { 2 }, "{answer:?}");
            c.query("SELECT name FROM item WHERE id = 1")?;
            Ok(())
        })?;
    }
    Ok(())
}

fn results_that_are_not_tables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for sql in [
            "SHOW CREATE TABLE item",
            "SHOW COLUMNS FROM item",
            "SHOW INDEX FROM item",
            "SHOW VARIABLES LIKE 'character_set_%'",
            "SHOW TABLES",
            "DESCRIBE item",
            "EXPLAIN SELECT * FROM item WHERE id = 1",
            "CHECK TABLE item",
            "SHOW GRANTS",
            "SELECT DATABASE(), USER(), CURRENT_USER(), SCHEMA()",
            "SELECT @@sql_mode, @@autocommit, @@time_zone, @@tx_isolation",
            "SELECT table_name, table_rows >= 0 FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1",
            "HANDLER item OPEN",
            "HANDLER item READ FIRST",
            "HANDLER item CLOSE",
            "HELP 'nothing of the kind'",
            "VALUES (1, 2), (3, 4)",
            "TABLE item",
        ] {
            c.query(sql)?;
        }
        c.expect_silence()
    })
}

fn empty_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for sql in ["", " ", ";", "-- nothing", "/* nothing */", "/*!40101 SELECT 1 */", "SELECT 1;;", "SELECT 1\0"] {
            c.query(sql)?;
        }
        c.query(&format!("SELECT 1 {}", " ".repeat(100_000)))?;
        c.query("SELECT name FROM item WHERE id = 1 /*!99999 AND no_such_column */ /*!40101 AND name = 'item 1' */")?;
        c.expect_silence()
    })
}

fn schema_changes_between_reads(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for _ in 0..2 {
            c.query("CREATE TABLE changing (id INT PRIMARY KEY, a INT)")?;
            c.query("INSERT INTO changing VALUES (1, 10)")?;
            c.query("SELECT * FROM changing WHERE id = 1")?;
            c.query("SELECT * FROM changing WHERE id = 1")?;
            c.query("ALTER TABLE changing ADD b VARCHAR(5) DEFAULT 'new' FIRST")?;
            c.query("SELECT * FROM changing WHERE id = 1")?;
            c.query("RENAME TABLE changing TO changed")?;
            c.query("SELECT * FROM changing WHERE id = 1")?;
            c.query("SELECT * FROM changed WHERE id = 1")?;
            c.query("CREATE VIEW changing AS SELECT a FROM changed")?;
            c.query("SELECT * FROM changing")?;
            c.query("SELECT * FROM changing")?;
            c.query("DROP VIEW changing")?;
            c.query("SELECT * FROM changing")?;
            c.query("TRUNCATE changed")?;
            c.query("SELECT * FROM changed WHERE id = 1")?;
            c.query("DROP TABLE changed")?;
            c.query("SELECT * FROM changed WHERE id = 1")?;
        }
        c.expect_silence()
    })
}
