//! Reads from the cache are distinguished by everything that decides their answers, and are never older than what a client has seen.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::support::packets::{self, Value, capability};
use super::support::{Database, Kind, Login, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest, undisturbed};

on_both!(
    settings,
    rights,
    own_writes,
    others_writes,
    named_writes,
    temporary_tables,
    failed_prepares,
    views_elsewhere,
    after_hits,
    pages,
    figures,
    wide_rows
);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), made TIMESTAMP NULL); \
     INSERT INTO item VALUES (1, 'kettle', 10, '2024-01-02 03:04:05'), (2, 'Käse', 20, '2024-06-07 08:09:10'); \
     CREATE TABLE open_to_all (id INT PRIMARY KEY)";

const READ: &str = "SELECT name FROM item WHERE id = 1";
const READS: [&str; 4] = [
    READ,
    "SELECT name, made FROM item ORDER BY id",
    "SELECT price / 7 FROM item WHERE id = 2",
    "SELECT GROUP_CONCAT(name ORDER BY id) FROM item",
];

fn settings(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        for setting in [
            "group_concat_max_len = 6",
            "div_precision_increment = 8",
            "time_zone = '+05:00'",
            "sql_select_limit = 1",
            "character_set_results = latin1",
            "lc_time_names = 'en_GB'",
            "sql_mode = 'ANSI_QUOTES'",
            "transaction_isolation = 'SERIALIZABLE'",
        ] {
            c.query(&format!("SET SESSION {setting}"))?;
            for read in READS.iter().chain(&READS) {
                c.query(read)?;
            }
            c.command(&packets::reset_connection())?;
        }
        let statement = c.prepare("SELECT name, made FROM item WHERE id = ?")?;
        for read in READS.iter().chain(&READS) {
            c.query(read)?;
            c.execute(statement, &[Value::Int(1)])?;
            c.execute(statement, &[Value::Int(2)])?;
        }
        c.expect_silence()
    })
}

/// Reads until the answer comes from the cache, and is the one that is expected.
fn until_hit(pair: &Pair, c: &mut RawClient, sql: &str, expected: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        assert_eq!(c.value(sql)?, expected, "{sql}");
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql}: no hit; {:?}", after.passed_since(&before));
        rest();
        Ok(())
    })
}

fn rights(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let reader = format!("{}_reader", pair.database.name);
    let identified = match kind {
        Kind::Mariadb => "IDENTIFIED BY 'word'",
        Kind::Mysql => "IDENTIFIED WITH mysql_native_password BY 'word'",
    };
    pair.database.run(&format!(
        "CREATE USER {reader}@'%' {identified}; GRANT SELECT ON {}.open_to_all TO {reader}@'%'",
        pair.database.name
    ))?;
    let login = Login { user: &reader, password: "word", ..pair.login() };
    let mut owner = pair.connect()?;
    until_hit(&pair, &mut owner, READ, "kettle")?;
    let mut other = RawClient::login(pair.address(), login)?;
    let refused = |c: &mut RawClient| Ok::<_, anyhow::Error>(c.query(READ)?.error().map(|(code, ..)| code));
    assert_eq!(refused(&mut other)?, Some(1142), "not granted yet");
    owner.run(&format!("GRANT SELECT ON {}.item TO {reader}@'%'", pair.database.name))?;
    until_hit(&pair, &mut other, READ, "kettle")?;
    owner.run(&format!("REVOKE SELECT ON {}.item FROM {reader}@'%'", pair.database.name))?;
    assert_eq!(refused(&mut other)?, Some(1142), "revoked");
    pair.database.run(&format!("DROP USER {reader}@'%'"))
}

fn own_writes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ, "kettle")?;
    let statement = c.prepare("UPDATE item SET name = ? WHERE id = 1")?;
    for number in 0..200 {
        let name = format!("kettle {number}");
        if number % 2 == 0 {
            c.execute(statement, &[Value::Text(&name)])?;
        } else {
            c.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
        }
        assert_eq!(c.value(READ)?, name);
    }
    until_hit(&pair, &mut c, READ, "kettle 199")
}

fn others_writes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, READ, "kettle")?;
    for number in 0..100 {
        let name = format!("kettle {number}");
        match number % 3 {
            0 => writer.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?,
            1 => {
                writer.run("BEGIN")?;
                writer.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
                writer.run("COMMIT")?;
            }
            _ => {
                writer.run("SET autocommit = 0")?;
                writer.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
                writer.run("SET autocommit = 1")?;
            }
        }
        assert_eq!(reader.value(READ)?, name, "an acknowledged write is missed");
    }
    until_hit(&pair, &mut reader, READ, "kettle 99")
}

/// Writes that the server names in its OK packets are waited for by name, and no end of the log is read for them.
fn named_writes(kind: Kind) -> Result<()> {
    let settings = match kind {
        // Freshet asks for it.
        Kind::Mariadb => Kind::settings(),
        Kind::Mysql => Kind::settings().with("session-track-gtids = OWN_GTID"),
    };
    let pair = Pair::over(Database::create(kind.start(&settings)?)?, SCHEMA, &[])?;
    let mut direct = pair.database.connect()?;
    let mut probes = || -> Result<u64> {
        let rows = direct.query("SHOW GLOBAL STATUS LIKE 'Com_show_%master%'")?.rows();
        let rows = if rows.is_empty() {
            direct.query("SHOW GLOBAL STATUS LIKE 'Com_show_binlog_status'")?.rows()
        } else {
            rows
        };
        Ok(rows.first().and_then(|row| row.get(1).cloned()).flatten().context("no counter")?.parse()?)
    };
    for capabilities in [capability::OLD, capability::MODERN] {
        let login = Login { capabilities, ..pair.login() };
        let mut writer = RawClient::login(pair.address(), login)?;
        let mut reader = pair.connect()?;
        let statement = writer.prepare("UPDATE item SET name = ? WHERE id = 1")?;
        writer.run("UPDATE item SET name = 'kettle' WHERE id = 1")?;
        until_hit(&pair, &mut reader, READ, "kettle")?;
        for number in 0..100 {
            let name = format!("kettle {number}");
            let text = format!("UPDATE item SET name = '{name}' WHERE id = 1");
            match number % 4 {
                0 => drop(writer.execute(statement, &[Value::Text(&name)])?),
                1 => writer.run(&text)?,
                2 => writer.run(&format!("UPDATE item SET price = price + 1; {text}"))?,
                _ => {
                    writer.run("BEGIN")?;
                    writer.run(&text)?;
                    writer.run("COMMIT")?;
                }
            }
            assert_eq!(reader.value(READ)?, name, "an acknowledged write is missed");
            assert_eq!(writer.value(READ)?, name, "an own write is missed");
        }
        eventually(PATIENCE, || {
            let (start, before) = (Instant::now(), probes()?);
            for number in 0..50 {
                writer.run(&format!("UPDATE item SET price = {number} WHERE id = 2"))?;
            }
            // There is one every 50 ms in any case, and for a commit that is late.
            let (read, usual) = (probes()? - before, start.elapsed().as_millis() as u64 / 50);
            ensure!(read <= usual + 25, "{read} probes for 50 writes, {usual} were due");
            Ok(())
        })?;
    }
    Ok(())
}

fn temporary_tables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ, "kettle")?;
    c.run("CREATE TEMPORARY TABLE item (id INT, name VARCHAR(20))")?;
    c.run("INSERT INTO item VALUES (1, 'mine')")?;
    until_hit(&pair, &mut other, READ, "kettle")?;
    assert_eq!(c.value(READ)?, "mine");
    c.command(&packets::reset_connection())?;
    until_hit(&pair, &mut c, READ, "kettle")
}

/// An execution of a statement that the server does not know does nothing; one of which Freshet knows nothing might.
fn failed_prepares(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ, "kettle")?;
    ensure!(c.try_prepare("SELECT nothing FROM item WHERE id = ?")?.is_none());
    // The number that MariaDB's connectors send behind a prepare, and another one that was never given.
    for number in [u32::MAX, 7] {
        let answer = c.command(&packets::execute(number, &[Value::Int(1)]))?;
        ensure!(answer.error().is_some_and(|(number, ..)| number == 1243), "{:?}", answer.error());
    }
    until_hit(&pair, &mut c, READ, "kettle")
}

/// MariaDB tells in the answer which database the session is in, which is no change.
fn views_elsewhere(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let elsewhere = format!("{}_elsewhere", pair.database.name);
    let read = format!("SELECT name FROM {elsewhere}.names WHERE id = 1");
    pair.database.run(&format!(
        "CREATE DATABASE {elsewhere}; CREATE VIEW {elsewhere}.names AS SELECT id, name FROM {}.item",
        pair.database.name
    ))?;
    let reads = |c: &mut RawClient| {
        let statement = c.prepare(&read)?;
        (0..4).try_for_each(|_| c.query(&read).map(drop))?;
        (0..4).try_for_each(|_| c.execute(statement, &[]).map(drop))
    };
    // To some clients the flag comes alone that the state has changed, to some the state, and to some neither.
    let outcome = pair.same_with_hits(8, reads).and_then(|()| {
        let without_state = pair.login().capabilities & !capability::SESSION_TRACK;
        for login in [Login { capabilities: without_state, ..pair.login() }, Login { database: None, ..pair.login() }] {
            if pair.freshet.is_there() {
                until_hit(&pair, &mut RawClient::login(pair.address(), login)?, &read, "kettle")?;
            }
            pair.same_as(login, reads)?;
        }
        // Nor is it otherwise in a session whose commits are told to Freshet.
        let mut writer = RawClient::login(pair.address(), Login { capabilities: without_state, ..pair.login() })?;
        for name in ["pan", "kettle"] {
            writer.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
            if pair.freshet.is_there() {
                until_hit(&pair, &mut writer, &read, name)?;
            }
        }
        pair.same_as(Login { capabilities: without_state, ..pair.login() }, reads)
    });
    pair.database.run(&format!("DROP DATABASE {elsewhere}"))?;
    outcome
}

/// What a statement leaves behind is there after a hit too.
fn after_hits(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        for read in READS {
            for question in ["SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW WARNINGS", "SELECT @@warning_count"] {
                c.query("SELECT 1 / 0")?;
                c.query(read)?;
                c.query(question)?;
            }
            c.query(read)?;
            c.query("SET @a = 1")?;
            c.query("SELECT FOUND_ROWS()")?;
        }
        let statement = c.prepare("SELECT name FROM item WHERE id > ?")?;
        c.execute(statement, &[Value::Int(0)])?;
        c.query("SELECT FOUND_ROWS()")?;
        c.expect_silence()
    })
}

/// A page of a list, and the number of rows on all of its pages.
fn pages(kind: Kind) -> Result<()> {
    const PAGE: &str = "SELECT SQL_CALC_FOUND_ROWS name FROM item ORDER BY id LIMIT 1";
    const COUNT: &str = "SELECT FOUND_ROWS()";
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        for _ in 0..6 {
            for question in [COUNT, COUNT, "select found_rows() as n"] {
                c.query(PAGE)?;
                c.query(question)?;
                c.query(question)?;
            }
            c.query(PAGE)?;
            c.query("SET @a = 1")?;
            c.query(COUNT)?;
            c.query(PAGE)?;
            c.query(READ)?;
            c.query(COUNT)?;
        }
        c.expect_silence()
    })?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    for rows in 2..6 {
        let expected = rows.to_string();
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.hits();
            c.query(PAGE)?;
            let count = c.value(COUNT)?;
            ensure!(count == expected, "{count} rows found of {expected}");
            ensure!(pair.freshet.metrics()?.hits() == before + 2, "not both from the cache");
            Ok(())
        })?;
        c.run(&format!("INSERT INTO item VALUES ({}, 'new', 1, NULL)", rows + 1))?;
    }
    Ok(())
}

/// Monitoring that was made for the query cache of old sees Freshet's figures, and admin statements are answered.
fn figures(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    let hits = |c: &mut RawClient| -> Result<u64> {
        let rows = c.query("SHOW STATUS LIKE 'Qcache_hits'")?.rows();
        let value = rows.first().and_then(|row| row.get(1).cloned()).flatten();
        Ok(value.context("no row")?.parse()?)
    };
    until_hit(&pair, &mut c, READ, "kettle")?;
    let before = hits(&mut c)?;
    until_hit(&pair, &mut c, READ, "kettle")?;
    assert!(hits(&mut c)? > before);
    assert_eq!(
        c.query("SHOW VARIABLES LIKE 'query_cache_type'")?.rows(),
        [[Some("query_cache_type".to_owned()), Some("ON".to_owned())]]
    );
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut c, READ, "kettle")?;
        let caches = c.query("SHOW CACHES")?.rows();
        ensure!(caches.iter().flatten().flatten().any(|text| text.contains("item")), "{caches:?}");
        Ok(())
    })?;
    c.run("FRESHET BYPASS ON")?;
    let before = pair.freshet.metrics()?.hits();
    assert_eq!((c.value(READ)?, pair.freshet.metrics()?.hits()), ("kettle".to_owned(), before));
    c.run("FRESHET BYPASS OFF")?;
    eventually(PATIENCE, || {
        let explained = c.query(&format!("EXPLAIN CACHE {READ}"))?.rows();
        let is_cached = explained.iter().any(|row| row[..] == [Some("cached".to_owned()), Some("yes".to_owned())]);
        ensure!(is_cached, "{explained:?}");
        Ok(())
    })?;
    let wrong = c.query("EXPLAIN CACHE")?.error().map(|(code, state, _)| (code, state));
    assert_eq!(wrong, Some((1064, "42000".to_owned())));
    c.expect_silence()
}

/// Changes are remembered for a time: not more of them than the limit allows, however wide their rows are.
fn wide_rows(kind: Kind) -> Result<()> {
    const ROW_BYTES: u64 = 60_000; // longer TEXT is not remembered at all
    const CHANGES: u64 = 1500;
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let schema = "CREATE TABLE document (id INT PRIMARY KEY, body VARCHAR(60000) CHARACTER SET latin1 NOT NULL); INSERT INTO document VALUES (1, 'short')";
    let pair = Pair::over(database, schema, &["--memory", "32MiB", "--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let read = "SELECT LENGTH(body) FROM document WHERE id = 1";
    until_hit(&pair, &mut c, read, "5")?;
    let before = pair.freshet.peak_memory()?;
    for change in 1..=CHANGES {
        c.run(&format!("UPDATE document SET body = REPEAT(CHAR(97 + {change} % 26), {ROW_BYTES}) WHERE id = 1"))?;
    }
    until_hit(&pair, &mut c, read, &ROW_BYTES.to_string())?;
    let taken = pair.freshet.peak_memory()?.saturating_sub(before);
    ensure!(taken < 40 << 20, "{CHANGES} changes of rows of {ROW_BYTES} bytes took {taken} bytes more");
    c.expect_silence()
}
