//! Sessions whose state differs from what flags, earlier answers or the servers' defaults suggest.

use anyhow::{Context, Result, ensure};

use crate::mysql::support::packets::{self, Value, capability, status};
use crate::mysql::support::{Database, Kind, Login, Pair, RawClient, SESSION_MODE, on_both};
use crate::support::{PATIENCE, eventually, rest};

use super::SCHEMA;

on_both!(
    no_autocommit_by_default,
    quotes_after_a_fresh_start,
    quotes_after_procedures,
    quotes_and_hits,
    collations_of_columns,
    a_failing_start,
    watched_statements,
    levels_of_the_next_transaction,
    locks_by_the_way,
);

const READ: &str = "SELECT name FROM item WHERE id = 1";

fn over(kind: Kind, setting: &str) -> Result<Pair> {
    over_with(kind, setting, &[])
}

fn over_with(kind: Kind, setting: &str, more: &[&str]) -> Result<Pair> {
    let database = Database::create(kind.start(&Kind::settings().with(setting))?)?;
    let options = [&["--admission", "always"], more].concat();
    Pair::over(database, &format!("SET autocommit = 1, sql_mode = ''; {SCHEMA}"), &options)
}

/// Reads until the answer comes from the cache.
fn until_hit(pair: &Pair, c: &mut RawClient, sql: &str, expected: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let value = c.value(sql)?;
        ensure!(value == expected, "{sql}: {value} instead of {expected}");
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql}: no hit; {:?}", after.passed_since(&before));
        rest();
        Ok(())
    })
}

/// MySQL 8.0.15 says AUTOCOMMIT in each answer to a session that has inherited the opposite.
fn no_autocommit_by_default(kind: Kind) -> Result<()> {
    let pair = over(kind, "autocommit = 0")?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut other = pair.connect()?;
    other.run("SET autocommit = 1")?;
    until_hit(&pair, &mut other, READ, "item 1")?;
    let mut c = pair.connect()?;
    for round in 1..=2 {
        let (before, after) = (c.value(READ)?, format!("round {round}"));
        pair.database.run(&format!("UPDATE item SET name = '{after}' WHERE id = 1; COMMIT"))?;
        until_hit(&pair, &mut other, READ, &after)?;
        for _ in 0..2 {
            let value = c.value(READ)?;
            ensure!(value == before, "{value} instead of {before}: not of the transaction's snapshot");
        }
        c.run("COMMIT")?;
        let value = c.value(READ)?;
        ensure!(value == after, "{value} instead of {after}");
        c.run("COMMIT")?;
    }
    // The second read of each transaction may come from the cache.
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        for sql in [READ, READ, "COMMIT"] {
            c.run(sql)?;
        }
        ensure!(pair.freshet.metrics()?.hits() > before, "no hit");
        rest();
        Ok(())
    })?;
    // With the same flags, also behind a statement that fails.
    pair.same_with_hits(2, |c| {
        for sql in [READ, READ, "COMMIT", READ, READ, "SELECT * FROM no_such_table", READ, READ, "COMMIT", READ, READ] {
            c.query(sql)?;
        }
        c.command(&packets::reset_connection())?;
        for sql in [READ, READ, "COMMIT", "SET autocommit = 1", READ, READ, "SET autocommit = 0", READ, READ] {
            c.query(sql)?;
        }
        c.expect_silence()
    })
}

/// In which `"` begins a name, and `\` is nothing special within.
const HIDING: &str = r#"SELECT 1 AS "a\"; CREATE TEMPORARY TABLE item (id INT, name VARCHAR(9)); SELECT 2 AS x -- ""#;

fn quotes_after_a_fresh_start(kind: Kind) -> Result<()> {
    let pair = over(kind, "sql-mode = ANSI_QUOTES")?;
    let mut warm = pair.connect()?;
    warm.run("SET sql_mode = ''")?;
    if pair.freshet.is_there() {
        until_hit(&pair, &mut warm, READ, "item 1")?;
    }
    for by_login in [false, true] {
        pair.same(|c| {
            c.query("SET sql_mode = ''")?;
            ensure!(c.query(READ)?.rows.len() == 1);
            if by_login {
                c.change_user(pair.login())?;
            } else {
                c.command(&packets::reset_connection())?;
            }
            c.query(HIDING)?;
            c.query("SET sql_mode = ''")?;
            ensure!(c.query(READ)?.rows.is_empty(), "not of the temporary table");
            c.expect_silence()
        })
        .with_context(|| format!("by a login: {by_login}"))?;
    }
    Ok(())
}

/// A procedure's own mode stays in the flags of the server's answers when it has ended.
fn quotes_after_procedures(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.database.run("CREATE PROCEDURE plain() SET SESSION sql_mode = ''")?;
    pair.same_with_hits(1, |c| {
        for _ in 0..2 {
            c.query(READ)?;
        }
        c.query("SET sql_mode = 'NO_BACKSLASH_ESCAPES'")?;
        c.query("CALL plain()")?;
        c.query(r"SELECT 'a\'; CREATE TEMPORARY TABLE item (id INT, name VARCHAR(9)); SELECT 'b'")?;
        c.query("SET sql_mode = ''")?;
        ensure!(c.query(READ)?.rows.is_empty(), "not of the temporary table");
        c.expect_silence()
    })
}

/// Texts whose meaning depends on settings are not interpreted until the session is reset.
fn quotes_and_hits(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(6, |c| {
        c.query("TRUNCATE log")?;
        let fresh: [fn(&mut RawClient) -> Result<()>; 3] = [
            |_| Ok(()),
            |c| c.command(&packets::reset_connection()).map(drop),
            |c| c.query("SET @mode = @@sql_mode, sql_mode = @mode").map(drop),
        ];
        for begin in fresh {
            begin(c)?;
            let insert = r#"INSERT INTO log (line) VALUES ('it\'s {"a": "b\\n"} ✓\\')"#;
            ensure!(c.query(insert)?.affected == 1);
            for _ in 0..3 {
                c.query(READ)?;
            }
        }
        c.expect_silence()
    })
}

/// `SET NAMES` decides the number that the columns of results bear, `collation_connection` does not.
fn collations_of_columns(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(6, |c| {
        let statement = c.prepare("SELECT name, born FROM item WHERE id = ?")?;
        for settings in [
            ["SET NAMES utf8mb4 COLLATE utf8mb4_bin", "SET @x = 1"],
            ["SET NAMES utf8mb4", "SET collation_connection = utf8mb4_bin"],
            ["SET NAMES utf8mb4", "SET character_set_results = NULL"],
            ["SET NAMES utf8mb4", "SET @x = 1"],
        ] {
            for setting in settings {
                c.query(setting)?;
            }
            for _ in 0..3 {
                c.query(READ)?;
                c.execute(statement, &[Value::Int(1)])?;
            }
        }
        c.expect_silence()
    })
}

/// The server says why it ends the connection in answer to the first statement, which may be one of Freshet's own.
fn a_failing_start(kind: Kind) -> Result<()> {
    let pair = over_with(kind, "max-connections = 301", SESSION_MODE)?;
    let clause = match kind {
        Kind::Mariadb => "IDENTIFIED BY 'word'",
        Kind::Mysql => "IDENTIFIED WITH mysql_native_password BY 'word'",
    };
    pair.database.run(&format!(
        "CREATE USER reader@'%' {clause}; GRANT ALL ON {}.* TO reader@'%'; \
         SET GLOBAL init_connect = 'SELECT * FROM nowhere.at_all'",
        pair.database.name
    ))?;
    let login = Login { user: "reader", password: "word", ..pair.login() };
    for address in [pair.database.address(), pair.address()] {
        let [read, begin, other] = [READ, "BEGIN", "DO 1"].map(packets::query);
        for first in [read, begin, other, packets::prepare(READ), packets::ping()] {
            let mut c = RawClient::login(address, login)?;
            let answer = c.command(&first)?;
            // ER_NEW_ABORTING_CONNECTION
            let code = answer.error().map(|(code, ..)| code);
            ensure!(code == Some(1184), "{answer:?}");
            ensure!(c.read_or_end()?.is_none(), "it goes on");
        }
    }
    // What it sets is in no flag of the login. A client that tracks the session's state would hear of it once, and Freshet's question
    // takes that.
    let login = Login { capabilities: capability::OLD, ..login };
    pair.database.run("SET GLOBAL init_connect = 'SET autocommit = 0'")?;
    pair.same_as(login, |c| {
        for sql in [READ, READ, "COMMIT", READ] {
            let answer = c.query(sql)?;
            ensure!(answer.status & status::AUTOCOMMIT == 0, "{sql}: {answer:?}");
        }
        c.expect_silence()
    })
}

/// Freshet asks nothing of a session that sees which statements are run in it.
fn watched_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query(READ)?;
        c.query("SET optimizer_trace = 'enabled=on'")?;
        for _ in 0..3 {
            c.query(READ)?;
            c.query("SELECT QUERY FROM information_schema.OPTIMIZER_TRACE")?;
        }
        c.expect_silence()
    })?;
    let mut profiles = Vec::new();
    for address in [pair.database.address(), pair.address()] {
        let mut c = RawClient::login(address, pair.login())?;
        c.run("SET profiling = 1")?;
        for sql in [READ, "DO 1", "UPDATE item SET name = 'item 1' WHERE id = 1", READ, READ] {
            c.run(sql)?;
        }
        let shown = c.query("SHOW PROFILES")?.rows();
        profiles.push(shown.into_iter().map(|row| row.into_iter().nth(2).flatten()).collect::<Vec<_>>());
    }
    ensure!(profiles[0] == profiles[1] && profiles[0].len() == 5, "{profiles:?}");
    Ok(())
}

/// `SET TRANSACTION` that runs otherwise than by its own text: the transaction behind it has the snapshot of its level.
fn levels_of_the_next_transaction(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let connect = || -> Result<RawClient> {
        let mut c = pair.connect()?;
        c.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        Ok(c)
    };
    let mut ways = vec![
        &["PREPARE s FROM 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ'", "EXECUTE s"][..],
        &["SET @way = 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ'", "PREPARE s FROM @way", "DO 0", "EXECUTE s"],
        &["DO 0;SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"],
        &["/*!40101 SET TRANSACTION ISOLATION LEVEL REPEATABLE READ */"],
    ];
    match kind {
        Kind::Mariadb => ways.push(&["SET @@`tx_isolation` = 'REPEATABLE-READ'"]),
        Kind::Mysql => ways.push(&["SET @@`transaction_isolation` = 'REPEATABLE-READ'"]),
    }
    let mut other = connect()?;
    let mut before = "item 1".to_owned();
    for (round, way) in ways.into_iter().enumerate() {
        let (mut c, after) = (connect()?, format!("round {round}"));
        until_hit(&pair, &mut c, READ, &before)?;
        way.iter().try_for_each(|statement| c.run(statement))?;
        c.run("BEGIN")?;
        ensure!(c.value(READ)? == before, "{way:?}");
        pair.database.run(&format!("UPDATE item SET name = '{after}' WHERE id = 1"))?;
        until_hit(&pair, &mut other, READ, &after)?;
        let value = c.value(READ)?;
        ensure!(value == before, "{value} instead of {before} after {way:?}");
        c.run("COMMIT")?;
        // It was for one transaction.
        until_hit(&pair, &mut c, READ, &after)?;
        before = after;
    }
    Ok(())
}

/// Tables that are locked otherwise than by a text of `LOCK TABLES` alone: others cannot be read.
fn locks_by_the_way(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut ways = vec![&["DO 0; LOCK TABLES log READ"][..], &["/*!40101 LOCK TABLES log READ */"]];
    match kind {
        Kind::Mariadb => ways.push(&["PREPARE s FROM 'LOCK TABLES log READ'", "EXECUTE s"]),
        Kind::Mysql => ways.push(&["LOCK TABLES log READ", "UNLOCK INSTANCE"]),
    }
    for way in ways {
        let mut c = pair.connect()?;
        if pair.freshet.is_there() {
            until_hit(&pair, &mut c, READ, "item 1")?;
        }
        way.iter().try_for_each(|statement| c.run(statement))?;
        for _ in 0..2 {
            let error = c.query(READ)?.error();
            ensure!(error.as_ref().is_some_and(|(code, ..)| *code == 1100), "{error:?} after {way:?}");
        }
        c.run("UNLOCK TABLES")?;
        if pair.freshet.is_there() {
            until_hit(&pair, &mut c, READ, "item 1")?;
        }
    }
    Ok(())
}
