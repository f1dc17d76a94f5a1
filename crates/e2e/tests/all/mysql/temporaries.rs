//! Temporary tables hide other tables from their session only, and no server lists them. A statement that cannot create one, or creates one with
//! another name, must not end the caching of a session. A statement that creates one must be noticed, however it is hidden.

use anyhow::{Context, Result, ensure};

use super::support::packets::{self, Value};
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(
    sessions_that_go_on,
    sequences_that_go_on,
    names_that_are_used,
    tables_that_hide_others,
    names_that_are_odd,
    code_that_is_new,
    code_that_the_catalogue_lacks,
    snapshots_of_others
);

pub(super) const READ: &str = "SELECT name FROM item WHERE id = 1";

const SCHEMA: &[&str] = &[
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO item VALUES (1, 'kettle')",
    "CREATE TABLE logged (id INT PRIMARY KEY, n INT)",
    "INSERT INTO logged VALUES (1, 1)",
    "CREATE TABLE fired (id INT PRIMARY KEY, n INT)",
    "INSERT INTO fired VALUES (1, 1)",
    "CREATE TABLE events (n INT, what VARCHAR(100))",
    "CREATE TABLE blobs (id INT PRIMARY KEY AUTO_INCREMENT, body MEDIUMTEXT)",
    "CREATE TABLE isam (id INT) ENGINE = MyISAM",
    "CREATE TRIGGER logs AFTER UPDATE ON logged FOR EACH ROW
       INSERT INTO events VALUES (NEW.n, 'a temporary thing, to execute')",
    "CREATE FUNCTION doubled (n INT) RETURNS INT DETERMINISTIC RETURN n * 2 /* not temporary */",
    "CREATE FUNCTION quadrupled (n INT) RETURNS INT DETERMINISTIC RETURN doubled(doubled(n))",
    "CREATE VIEW counted AS SELECT doubled(id) AS n FROM item",
    "CREATE PROCEDURE counts () BEGIN SELECT COUNT(*) FROM counted; UPDATE logged SET n = n + 1; END",
    "CREATE PROCEDURE scratches () BEGIN DROP TEMPORARY TABLE IF EXISTS scratch;
       CREATE TEMPORARY TABLE IF NOT EXISTS scratch (n INT); END",
    "CREATE PROCEDURE hides () BEGIN CREATE TEMPORARY TABLE item (id INT, name VARCHAR(20));
       INSERT INTO item VALUES (1, 'mine'); END",
    "CREATE PROCEDURE hides_with_a_table (the_name VARCHAR(20)) BEGIN
       SET @made = CONCAT('CREATE TEMPORARY TABLE ', the_name, ' SELECT 1 AS id, ''mine'' AS name');
       PREPARE made FROM @made; EXECUTE made; END",
    "CREATE PROCEDURE runs (the_text TEXT) BEGIN SET @made = the_text; PREPARE made FROM @made; EXECUTE made; END",
    "CREATE PROCEDURE hides_and_flushes () BEGIN CALL hides_with_a_table('item'); FLUSH STATUS; END",
    "CREATE PROCEDURE prepares () BEGIN SET @made = 'CALL hides()'; PREPARE s FROM @made; END",
    "CREATE PROCEDURE `hides oddly` () CALL hides()",
    "CREATE PROCEDURE nests () BEGIN CALL counts(); CALL `hides oddly`(); END",
    "CREATE PROCEDURE fails () BEGIN CALL hides(); SELECT nothing FROM nowhere; END",
    "CREATE PROCEDURE renames () ALTER TABLE scratch RENAME TO item",
    "CREATE FUNCTION hiding () RETURNS INT DETERMINISTIC BEGIN CALL hides(); RETURN 1; END",
    "CREATE VIEW hiding_view AS SELECT hiding() AS n",
    "CREATE TRIGGER fires AFTER UPDATE ON fired FOR EACH ROW BEGIN DECLARE n INT; SET n = hiding(); END",
    "CREATE VIEW cheap AS SELECT id, name FROM item",
];

pub(super) fn pair(kind: Kind) -> Result<Pair> {
    prepared(Pair::new(kind, "")?)
}

/// On a server of its own: definitions of other tests could drop code before it is known.
pub(super) fn alone(kind: Kind) -> Result<Pair> {
    prepared(Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &[])?)
}

fn prepared(pair: Pair) -> Result<Pair> {
    SCHEMA.iter().try_for_each(|statement| pair.database.run(statement))?;
    let mut c = pair.connect()?;
    // All of it is known.
    if pair.freshet.is_there() {
        until_hit(&pair, &mut c, "SELECT name FROM cheap WHERE id = 1")?;
    }
    Ok(pair)
}

/// Reads until the answer comes from the cache.
pub(super) fn until_hit(pair: &Pair, c: &mut RawClient, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        assert_eq!(c.value(sql)?, "kettle", "{sql}");
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql}: no hit; {:?}", after.passed_since(&before));
        rest();
        Ok(())
    })
}

fn sessions_that_go_on(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let words = "INSERT INTO blobs (body) VALUES ('it''s \\'temporary\\', so execute or prepare; rename')";
    let long = format!("{words}{}", ", ('a temporary \"text\" of `words`; -- /* yes')".repeat(3000));
    let very_long = format!("{words}{}", format!(", ('{}')", "temporary ".repeat(100)).repeat(20_000));
    let failing = long.replace("blobs", "nowhere");
    let calling = long.replacen("('it", "(doubled(1)), ('it", 1);
    let mut statements = vec![
        "SELECT quadrupled(1)",
        "SELECT SUM(n) FROM counted",
        "CALL counts()",
        "CALL scratches()",
        "UPDATE logged SET n = n + 1",
        &long,
        &very_long,
        &failing,
        &calling,
        "CREATE TEMPORARY TABLE other (id INT)",
        "CREATE TEMPORARY TABLE other SELECT 1 AS n; INSERT INTO other VALUES (1); DROP TEMPORARY TABLE other",
        "CREATE TEMPORARY TABLE item (nothing NOTYPE)",
        "SELEC 1",
        "SELECT * FROM nowhere",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO isam VALUES (1)",
        "SELECT nofunction(1)",
        "CALL noprocedure()",
        "INSERT INTO blobs (body) VALUES ('{\\\"a\\\":\\\"temporary\\\"}')",
        "INSERT INTO blobs (body) VALUES (\"{\\\"a\\\":\\\"temporary\\\"}\")",
        "/*!40101 SET NAMES utf8mb4 */",
        "SELECT /*! STRAIGHT_JOIN */ name FROM item WHERE id = 1",
        "INSERT /*!99999 nothing */ INTO blobs (body) VALUES ('x')",
        "UPDATE logged SET n = 2 -- don't make it temporary",
    ];
    if kind == Kind::Mariadb {
        statements.extend(["SET STATEMENT max_statement_time = 60 FOR SELECT 1", "SELECT SFORMAT('{}', 'x')"]);
    }
    for statement in statements {
        let head = statement.get(..100).unwrap_or(statement);
        let mut c = pair.connect()?;
        let before = pair.freshet.metrics()?;
        c.query(statement)?;
        until_hit(&pair, &mut c, READ)
            .with_context(|| format!("after {head}: {:?}", pair.freshet.metrics().map(|m| m.passed_since(&before))))?;
    }
    for read in
        ["SELECT /*! STRAIGHT_JOIN */ name FROM item WHERE id = 1", "SELECT name /*!40101 FROM item */ WHERE id = 1"]
    {
        until_hit(&pair, &mut pair.connect()?, read).context(read)?;
    }
    // As prepared statements.
    let mut c = pair.connect()?;
    for text in [
        "UPDATE logged SET n = ?",
        "SELECT doubled(?)",
        &format!("SELECT doubled(?) /* {} */", "it's temporary ".repeat(10_000)),
    ] {
        let statement = c.prepare(text)?;
        c.execute(statement, &[Value::Int(1)])?;
        until_hit(&pair, &mut c, READ).with_context(|| text.get(..30).unwrap_or(text).to_owned())?;
    }
    Ok(())
}

/// Statements that are what they are by the one before them.
fn sequences_that_go_on(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let both = |first: &'static str, second: &'static str| [first, second];
    let mut sequences = vec![
        // A SELECT that is not cached is the first.
        both("SELECT @@session.sql_mode AS mode", "INSERT INTO blobs (body) VALUES ('it\\'s easy to rename')"),
        both("PREPARE s FROM 'SELECT name FROM item WHERE id = 1'", "EXECUTE s"),
        both("PREPARE s FROM 'CREATE TEMPORARY TABLE other (id INT)'", "EXECUTE s"),
        both("PREPARE s FROM 'CALL counts()'", "EXECUTE s"),
        both("PREPARE s FROM 'UPDATE logged SET n = ?'", "SET @n = 7; EXECUTE s USING @n"),
        both("PREPARE `s` FROM 'SELECT 1'", "DEALLOCATE PREPARE s"),
        both("SET @text = 'UPDATE logged SET n = n + 1'; SET @n = 1", "PREPARE s FROM @text"),
        both("SET @text := 'UPDATE logged SET n = n + 1'", "PREPARE S FROM @text"),
    ];
    if kind == Kind::Mariadb {
        sequences.extend([
            both("SET @n = 1", "EXECUTE IMMEDIATE 'UPDATE logged SET n = ?' USING @n"),
            both("SET @text = 'SELECT 1'", "EXECUTE IMMEDIATE @text"),
        ]);
    }
    for sequence in sequences {
        let mut c = pair.connect()?;
        for statement in sequence.iter().flat_map(|text| text.split("; ")) {
            c.query(statement)?;
        }
        if sequence[1].starts_with("PREPARE S") {
            c.run("EXECUTE s")?;
        }
        until_hit(&pair, &mut c, READ).with_context(|| sequence.join("; "))?;
    }
    Ok(())
}

/// What reads a table of the name passes, as long as there is one.
fn names_that_are_used(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut other = pair.connect()?;
    let mut c = pair.connect()?;
    for round in 0..3 {
        until_hit(&pair, &mut c, READ)?;
        c.run("CREATE TEMPORARY TABLE IF NOT EXISTS item SELECT 1 AS id, 'mine' AS name")?;
        for _ in 0..5 {
            assert_eq!(c.value(READ)?, "mine");
            assert_eq!(c.value("SELECT i.name FROM item AS i JOIN logged ON i.id = logged.id")?, "mine");
            until_hit(&pair, &mut other, READ)?;
        }
        let before = pair.freshet.metrics()?.hits();
        eventually(PATIENCE, || {
            c.value("SELECT n FROM fired WHERE id = 1")?;
            ensure!(pair.freshet.metrics()?.hits() > before, "no hit on another table");
            Ok(())
        })?;
        explains(&mut c, "the session has temporary tables")?;
        match round {
            0 => c.run("DROP TEMPORARY TABLE item")?,
            1 => c.run(&format!("DROP TABLE IF EXISTS nowhere, `{}` . item", pair.database.name))?,
            _ => drop(c.command(&packets::reset_connection())?),
        }
    }
    until_hit(&pair, &mut c, READ)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    c.run("CALL hides_with_a_table('scratch')")?;
    explains(&mut c, "may have made temporary tables")
}

/// The read is not served in this session, and this is why.
pub(super) fn explains(c: &mut RawClient, why: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let explained = c.query(&format!("EXPLAIN CACHE {READ}"))?.rows();
        ensure!(explained.iter().flatten().flatten().any(|text| text.contains(why)), "{explained:?}");
        Ok(())
    })
}

fn tables_that_hide_others(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let long = format!("CALL hides_with_a_table('item'/*{}*/)", "x".repeat(100_000));
    let immediate: &[&[&str]] = &[
        &["EXECUTE IMMEDIATE 'CALL hides()'"],
        &["SET @text = 'CALL hides()'", "EXECUTE IMMEDIATE @text"],
        &[
            "SET @text = 'SELECT 1'",
            "SET @other = 1",
            "SET @text = CONCAT('CALL ', 'hides()')",
            "EXECUTE IMMEDIATE @text",
        ],
    ];
    let immediate = if kind == Kind::Mariadb { immediate } else { &[] };
    let all = [
        &["CREATE TEMPORARY TABLE item SELECT 1 AS id, 'mine' AS name"][..],
        &[
            "create temporary table `ITEM` (id int)",
            "create /* x */ temporary -- y\n table item select 1 as id, 'mine' as name",
        ],
        &["CREATE TEMPORARY TABLE scratch SELECT 1 AS id, 'mine' AS name", "ALTER TABLE scratch RENAME item"],
        &["CREATE TEMPORARY TABLE scratch SELECT 1 AS id, 'mine' AS name", "CALL renames()"],
        &["SELECT 1; CREATE TEMPORARY TABLE item SELECT 1 AS id, 'mine' AS name; SELECT 2"],
        &["CREATE /*!40000 TEMPORARY */ TABLE item SELECT 1 AS id, 'mine' AS name"],
        &["PREPARE s FROM 'CREATE TEMPORARY TABLE item SELECT 1 AS id, ''mine'' AS name'", "EXECUTE s"],
        &["PREPARE s FROM 'SELECT 1'", "PREPARE S FROM 'CALL hides()'", "EXECUTE s"],
        &["PREPARE s FROM 'SELECT 1'", "PREPARE s FROM 'CALL hides()'; SELECT 1", "EXECUTE s"],
        &["SET @text = 'CALL hides()'", "PREPARE s FROM @text", "EXECUTE s"],
        &["SET @text = 'SELECT 1'", "SET @text = 'CALL hides()', @other = 1", "PREPARE s FROM @text", "EXECUTE s"],
        &["PREPARE s FROM 'SELECT ?'", "SET @n = 1", "EXECUTE s USING @n", "CALL hides()"],
        &["SET @text = CONCAT('SELECT ', 'hiding()')", "PREPARE s FROM @text", "EXECUTE s"],
        &["SET @text = CONCAT('SELECT ', 1), @text = 'CALL hides()'", "PREPARE s FROM @text", "EXECUTE s"],
        &[
            "SET @text = 'CALL hides()'",
            "SET @text = CONCAT('SELECT ', nothing())",
            "PREPARE s FROM @text",
            "EXECUTE s",
        ],
        &["CALL hides()"],
        &["CALL hides_with_a_table('item')"],
        &[&long],
        &["CALL nests()"],
        &["CALL fails()"],
        &["SELECT hiding()"],
        &["SELECT n FROM hiding_view"],
        &["UPDATE fired SET n = n + 1"],
        &["SET sql_mode = 'ANSI_QUOTES'", "UPDATE \"fired\" SET n = n + 1"],
        &["SET sql_mode = 'ANSI_QUOTES'", "CALL \"hides\"()", "SET sql_mode = ''"],
        &["SET sql_mode = 'ANSI_QUOTES'", "SELECT \"hiding\"()", "SET sql_mode = ''"],
        &["SET sql_mode = 'ANSI_QUOTES'", "SELECT n FROM \"hiding_view\"", "SET sql_mode = ''"],
        &["SET sql_mode = 'ANSI_QUOTES'", "UPDATE \"fired\" SET n = n + 1", "SET sql_mode = ''"],
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SELECT '\\', hiding(), '\\'"],
        &["CREATE PROCEDURE goes () CALL hides()", "CALL goes()", "DROP PROCEDURE goes"],
        &["CREATE VIEW going AS SELECT hiding() AS n", "SELECT n FROM going", "DROP VIEW going"],
        &["PREPARE s FROM 'SELECT 1'", "SET @n = 1; PREPARE s FROM 'CALL hides()'", "EXECUTE s"],
    ];
    all.iter().chain(immediate).try_for_each(|statements| hide_item(&pair, statements))
}

/// Behind these the session reads its own table.
pub(super) fn hide_item(pair: &Pair, statements: &[&str]) -> Result<()> {
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    if pair.freshet.is_there() {
        until_hit(pair, &mut c, READ)?;
        until_hit(pair, &mut c, "SELECT name FROM cheap WHERE id = 1")?;
    }
    for statement in statements {
        c.query(statement)?;
        direct.query(statement)?;
    }
    let mut other = pair.connect()?;
    for read in [READ, "SELECT name FROM cheap WHERE id = 1"] {
        let expected = direct.value(read)?;
        ensure!(read != READ || expected == "mine", "{statements:?} is no example: {expected}");
        assert_eq!(c.value(read)?, expected, "{read} after {statements:?}");
        if pair.freshet.is_there() {
            until_hit(pair, &mut other, read)?;
        }
        for _ in 0..2 {
            assert_eq!(c.value(read)?, expected, "{read} after {statements:?}");
        }
    }
    // And none was cached.
    assert_eq!(other.value(READ)?, "kettle", "after {statements:?}");
    Ok(())
}

/// Tables whose names need quotes.
fn names_that_are_odd(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    c.run("CREATE TABLE `my-items` (id INT PRIMARY KEY, name VARCHAR(20))")?;
    c.run("INSERT INTO `my-items` VALUES (1, 'kettle')")?;
    let read = "SELECT name FROM `my-items` WHERE id = 1";
    for statements in [
        &["CREATE TEMPORARY TABLE `my-items` SELECT 1 AS id, 'mine' AS name"][..],
        &["CREATE TEMPORARY TABLE scratch SELECT 1 AS id, 'mine' AS name", "ALTER TABLE scratch RENAME TO `my-items`"],
    ] {
        let mut c = pair.connect()?;
        until_hit(&pair, &mut c, read)?;
        statements.iter().try_for_each(|statement| c.run(statement))?;
        for _ in 0..3 {
            assert_eq!(c.value(read)?, "mine", "after {statements:?}");
        }
        assert_eq!(pair.connect()?.value(read)?, "kettle", "after {statements:?}");
    }
    Ok(())
}

/// Code that was made a moment ago may be another than the catalogue has.
fn code_that_is_new(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    for round in 0..20 {
        let mut c = pair.connect()?;
        until_hit(&pair, &mut c, READ)?;
        let through = round % 2 == 0;
        let makes = "CREATE TEMPORARY TABLE item SELECT 1 AS id, 'mine' AS name";
        for (body, expected) in [("SET @n = 1", "kettle"), (makes, "mine")] {
            let name = format!("p_{}", round / 4);
            for statement in
                [&format!("DROP PROCEDURE IF EXISTS {name}"), &format!("CREATE PROCEDURE {name} () {body}")]
            {
                if through { c.run(statement)? } else { direct.run(statement)? }
            }
            c.run(&format!("CALL {name}()"))?;
            assert_eq!(c.value(READ)?, expected, "round {round}");
        }
    }
    Ok(())
}

/// Code that a session defines, and a statement that runs it.
const DEFINED_AND_RUN: [[&str; 2]; 4] = [
    ["CREATE VIEW newly AS SELECT hiding() AS n", "SELECT n FROM newly"],
    ["CREATE TRIGGER late AFTER UPDATE ON logged FOR EACH ROW SET @n = hiding()", "UPDATE logged SET n = n + 1"],
    ["CREATE VIEW lately AS SELECT hiding() AS n", "SET @a = (SELECT n FROM lately)"],
    ["CREATE OR REPLACE VIEW cheap AS SELECT hiding() AS n", "SELECT GET_LOCK('a', 0), n FROM cheap"],
];

/// While the catalogue is read, for as long as it takes, code that the session has defined is run by names that the one in use does not have.
fn code_that_the_catalogue_lacks(kind: Kind) -> Result<()> {
    if kind == Kind::Mysql {
        return Ok(()); // it reads `information_schema` beside any statement
    }
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    // A full reading of the catalogue ends with this table.
    let mut locks = pair.database.connect()?;
    locks.run("LOCK TABLES mysql.func WRITE")?;
    let mut sessions = DEFINED_AND_RUN.iter().map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    let mut of_tables = pair.connect()?;
    for c in sessions.iter_mut().chain([&mut of_tables]) {
        until_hit(&pair, c, READ)?;
    }
    for (c, [defines, _]) in sessions.iter_mut().zip(DEFINED_AND_RUN) {
        c.run(defines)?;
    }
    of_tables.run("CREATE TABLE migrated (id INT PRIMARY KEY)")?;
    // The catalogue was looked at, and is still to be read.
    rest();
    for (c, [_, runs]) in sessions.iter_mut().zip(DEFINED_AND_RUN) {
        c.run(runs)?;
    }
    // Tables are no code.
    of_tables.run("SELECT COUNT(*) FROM events")?;
    of_tables.run("CREATE VIEW of_tables AS SELECT id FROM migrated")?;
    locks.run("UNLOCK TABLES")?;
    let mut other = pair.connect()?;
    until_hit(&pair, &mut other, READ)?;
    for c in &mut sessions {
        for _ in 0..3 {
            assert_eq!(c.value(READ)?, "mine");
        }
    }
    // None was cached, and sessions that ran no such code go on.
    until_hit(&pair, &mut of_tables, READ)?;
    until_hit(&pair, &mut other, READ)
}

/// A read of a temporary table takes no snapshot.
fn snapshots_of_others(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let read = "SELECT n FROM logged WHERE id = 1";
    c.run("CREATE TEMPORARY TABLE item (id INT, name VARCHAR(20)) ENGINE = MyISAM")?;
    c.run("INSERT INTO item VALUES (1, 'mine')")?;
    for n in 0..20 {
        c.run("BEGIN")?;
        assert_eq!(c.value(READ)?, "mine");
        writer.run(&format!("UPDATE logged SET n = {n}"))?;
        writer.value(read)?;
        let expected = n.to_string();
        assert_eq!(c.value(read)?, expected);
        assert_eq!(c.value(read)?, expected);
        c.run("COMMIT")?;
    }
    Ok(())
}
