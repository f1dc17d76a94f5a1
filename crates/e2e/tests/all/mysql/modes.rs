//! Sessions with their own quoting modes, or that send bytes: results are cached for each of them, are invalidated by changes, and are never those of
//! a session that reads the same text differently.

use anyhow::{Result, ensure};

use super::support::answer::Answer;
use super::support::packets::Value;
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(
    binary_texts,
    quoted_names,
    plain_backslashes,
    modes_do_not_share,
    modes_at_a_prepare,
    backslashes_in_comments,
    comments_of_versions,
    pipes,
    writes_of_bytes
);

const SCHEMA: &[&str] = &[
    "CREATE TABLE page (id INT PRIMARY KEY, title VARBINARY(255) NOT NULL, ci VARCHAR(20), exact VARCHAR(20) COLLATE utf8mb4_bin, \
     latin VARCHAR(20) CHARACTER SET latin1, path VARCHAR(20), KEY (title), KEY (ci)) \
     CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "INSERT INTO page VALUES (1, 'Main', 'Main', 'Main', 'Main', 'a\\\\b'), (2, 'Z\u{fc}rich', 'Z\u{fc}rich', 'Z\u{fc}rich', \
     'Z\u{fc}rich', 'a%b'), (3, 'other', 'other', 'other', 'other', 'other')",
];

/// On a server of its own: what other tests define flushes the cache.
fn pair(kind: Kind) -> Result<Pair> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &["--admission", "always"])?;
    SCHEMA.iter().try_for_each(|statement| pair.database.run(statement))?;
    Ok(pair)
}

/// A session's question, as text or prepared.
#[derive(Clone, Copy)]
struct Read<'a> {
    sql: &'a str,
    /// Of the prepared statement.
    value: Option<&'a [u8]>,
}

fn text(sql: &str) -> Read<'_> {
    Read { sql, value: None }
}

fn bound<'a>(sql: &'a str, value: &'a str) -> Read<'a> {
    Read { sql, value: Some(value.as_bytes()) }
}

fn asked(c: &mut RawClient, read: Read<'_>) -> Result<Vec<Vec<u8>>> {
    let answer = match read.value {
        None => c.query(read.sql)?,
        Some(value) => {
            let statement = c.prepare(read.sql)?;
            c.execute(statement, &[Value::Text(std::str::from_utf8(value)?)])?
        }
    };
    ensure!(answer.error().is_none(), "{}: {answer:?}", read.sql);
    Ok(payloads(&answer))
}

fn payloads(answer: &Answer) -> Vec<Vec<u8>> {
    answer.packets.iter().map(|packet| packet.payload.clone()).collect()
}

/// Each read hits until a write changes what it shows, and then shows that.
fn hits_and_goes(pair: &Pair, set: &[&str], reads: &[(Read<'_>, &str)]) -> Result<()> {
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    for statement in set {
        c.run(statement)?;
        direct.run(statement)?;
    }
    let mut writer = pair.database.connect()?;
    for (read, write) in reads {
        until_hit(pair, &mut c, &mut direct, *read)?;
        let before = asked(&mut direct, *read)?;
        writer.run(write)?;
        let after = asked(&mut direct, *read)?;
        ensure!(before != after, "{} is no example of {write}", read.sql);
        eventually(PATIENCE, || {
            let found = asked(&mut c, *read)?;
            ensure!(found == after, "{}: {found:?}, not {after:?}", read.sql);
            Ok(())
        })?;
        until_hit(pair, &mut c, &mut direct, *read)?;
    }
    Ok(())
}

fn until_hit(pair: &Pair, c: &mut RawClient, direct: &mut RawClient, read: Read<'_>) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let found = asked(c, read)?;
        let expected = asked(direct, read)?;
        assert_eq!(found, expected, "{}", read.sql);
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{}: no hit; {:?}", read.sql, after.passed_since(&before));
        rest();
        Ok(())
    })
}

/// Those that are combinations of others.
#[test]
fn modes_of_other_products() -> Result<()> {
    for mode in ["POSTGRESQL", "DB2", "MAXDB"] {
        let pair = pair(Kind::Mariadb)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        let set = format!("SET sql_mode = '{mode}'");
        let reads = [
            (text("SELECT \"id\" FROM page WHERE \"ci\" = 'main'"), "UPDATE page SET id = 11 WHERE id = 1"),
            (bound("SELECT COUNT (*) FROM \"page\" WHERE ci = ?", "main"), "UPDATE page SET ci = 'x' WHERE id = 11"),
        ];
        hits_and_goes(&pair, &[&set], &reads)?;
        // Another session reads another text.
        let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
        until_hit(&pair, &mut c, &mut direct, text("SELECT id FROM page WHERE \"ci\" = 'ci'"))?;
    }
    Ok(())
}

fn binary_texts(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    // Constants compare as their columns do: `ci` in any case.
    let reads = [
        (text("SELECT id FROM page WHERE title = 'Z\u{fc}rich'"), "UPDATE page SET id = 12 WHERE id = 2"),
        (text("SELECT id FROM page WHERE ci = 'mAiN '"), "UPDATE page SET id = 11 WHERE id = 1"),
        (text("SELECT id, title FROM page WHERE ci = 'zurich'"), "UPDATE page SET title = 'Z' WHERE id = 12"),
        (text("SELECT COUNT(*) FROM page WHERE exact = 'Z\u{fc}rich'"), "UPDATE page SET exact = 'Z' WHERE id = 12"),
        (text("SELECT COUNT(*) FROM page WHERE ci LIKE LOWER('MA%')"), "UPDATE page SET ci = 'x' WHERE id = 11"),
        (text("SELECT COUNT(*) FROM page WHERE exact LIKE LOWER('Ma%')"), "UPDATE page SET exact = 'x' WHERE id = 11"),
        (
            text("SELECT latin AS `\u{fc}` FROM page ORDER BY title LIMIT 1"),
            "UPDATE page SET latin = 'x' WHERE id = 11",
        ),
        (bound("SELECT id FROM page WHERE title = ?", "Z"), "UPDATE page SET id = 2 WHERE id = 12"),
        (bound("SELECT id FROM page WHERE latin = ?", "X"), "UPDATE page SET id = 1 WHERE id = 11"),
        (bound("SELECT COUNT(*) FROM page WHERE ci <> ?", "OTHER"), "UPDATE page SET ci = 'other' WHERE id = 1"),
    ];
    hits_and_goes(&pair, &["SET NAMES binary"], &reads)?;
    // Both are other texts than before.
    let reads = [
        (
            text("SELECT COUNT(*) FROM page WHERE latin = 'Z\u{c3}'"),
            "UPDATE page SET latin = 'Z\u{c3}\u{192}' WHERE id = 3",
        ),
        (text("SELECT COUNT(*) FROM page WHERE title = 'Z'"), "UPDATE page SET title = 'y' WHERE id = 2"),
    ];
    hits_and_goes(&pair, &["SET character_set_connection = binary"], &reads)?;
    hits_and_goes(
        &pair,
        &["SET NAMES binary", "SET character_set_connection = utf8mb4"],
        &[(text("SELECT id FROM page WHERE ci = 'zurich'"), "UPDATE page SET id = 4 WHERE id = 2")],
    )
}

fn quoted_names(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let reads = [
        (text("SELECT \"title\" FROM \"page\" WHERE \"id\" = 1"), "UPDATE page SET title = 'x' WHERE id = 1"),
        (
            text("SELECT 'it''s' \"a\"\"b`c\", ci FROM page AS \"p\" WHERE \"p\".\"ci\" = 'MAIN'"),
            "UPDATE page SET ci = 'main' WHERE id = 1",
        ),
        (bound("SELECT \"ci\" FROM \"page\" WHERE \"title\" = ?", "other"), "UPDATE page SET ci = 'y' WHERE id = 3"),
    ];
    for modes in ["SET sql_mode = 'ANSI_QUOTES'", "SET sql_mode = 'ANSI'"] {
        hits_and_goes(&pair, &[modes], &reads)?;
        pair.database.run(
            "UPDATE page SET title = 'Main', ci = 'Main' WHERE id = 1; UPDATE page SET ci = 'other' WHERE id = 3",
        )?;
    }
    // A session that has never been asked.
    let mut c = pair.connect()?;
    c.run("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")?;
    let mut direct = pair.database.connect()?;
    direct.run("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")?;
    until_hit(&pair, &mut c, &mut direct, text("SELECT \"ci\" FROM \"page\" WHERE \"id\" = 3"))
}

fn plain_backslashes(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let reads = [
        (text("SELECT id FROM page WHERE path = 'a\\b'"), "UPDATE page SET id = 11 WHERE id = 1"),
        (text("SELECT '\\', id FROM page WHERE path = 'a%b' OR path = '\\'"), "UPDATE page SET id = 12 WHERE id = 2"),
        (
            text("SELECT COUNT(*) FROM page WHERE path LIKE 'a\\%'"),
            "UPDATE page SET path = IF(id = 3, 'a%', 'a\\\\c') WHERE id IN (3, 11)",
        ),
        (text("SELECT COUNT(*) FROM page WHERE path NOT LIKE 'a\\%'"), "DELETE FROM page WHERE id = 12"),
        (bound("SELECT '\\', COUNT(*) FROM page WHERE ci = ?", "main"), "UPDATE page SET ci = 'x' WHERE id = 11"),
    ];
    hits_and_goes(&pair, &["SET sql_mode = 'NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"], &reads)
}

/// One text, read in different ways.
fn modes_do_not_share(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let settings = [
        "SET sql_mode = ''",
        "SET sql_mode = 'ANSI_QUOTES'",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'PIPES_AS_CONCAT'",
        "SET NAMES binary",
        "SET NAMES binary, sql_mode = 'ANSI_QUOTES'",
    ];
    let reads = [
        "SELECT \"ci\" FROM page WHERE id = 1",
        "SELECT COUNT(*) FROM page WHERE \"ci\" = ci",
        "SELECT 'a\\\\b' AS x, \"path\" FROM page WHERE path = 'a\\\\b'",
        "SELECT latin, 'Z\u{fc}' FROM page WHERE latin = 'Z\u{fc}rich'",
        "SELECT id || ci FROM page WHERE id = 1",
        "SELECT id FROM page WHERE ci = \"ci\" OR path = \"a\\\\b\"",
    ];
    for _ in 0..4 {
        for setting in settings {
            let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
            c.run(setting)?;
            direct.run(setting)?;
            for read in reads {
                for _ in 0..2 {
                    let (found, expected) = (c.query(read)?, direct.query(read)?);
                    assert_eq!(found.rows(), expected.rows(), "{read} after {setting}");
                    assert_eq!(found.error(), expected.error(), "{read} after {setting}");
                }
            }
        }
    }
    Ok(())
}

/// A prepared statement keeps the meaning that it had.
fn modes_at_a_prepare(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for (first, second) in [("", "ANSI_QUOTES"), ("ANSI_QUOTES", ""), ("NO_BACKSLASH_ESCAPES", "ANSI_QUOTES")] {
        let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
        let mut said = Vec::new();
        for c in [&mut c, &mut direct] {
            c.run(&format!("SET sql_mode = '{first}'"))?;
            let statement = c.prepare("SELECT \"ci\", 'a\\\\b' FROM page WHERE id = ?")?;
            let mut rows = Vec::new();
            for mode in [first, second, first, second] {
                c.run(&format!("SET sql_mode = '{mode}'"))?;
                for _ in 0..3 {
                    rows.extend(payloads(&c.execute(statement, &[Value::Int(1)])?));
                    rows.extend(payloads(&c.query("SELECT \"ci\", 'a\\\\b' FROM page WHERE id = 1")?));
                }
            }
            said.push(rows);
        }
        assert_eq!(said.first(), said.last(), "{first}, then {second}");
    }
    Ok(())
}

/// Comments are not read: a session hits whose every statement has a backslash in a comment, from its first statement on.
fn backslashes_in_comments(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let read = r"SELECT /* Page\Store::get it's */ title FROM page WHERE id = 3";
    let mut writer = pair.database.connect()?;
    for expected in ["other", "changed", "again"] {
        writer.run(&format!("UPDATE page SET title = '{expected}' WHERE id = 3"))?;
        eventually(PATIENCE, || {
            let mut c = pair.connect()?;
            c.run(r"SET /* Database\Base::open */ group_concat_max_len = 262144, `sql_mode` = ''")?;
            c.run(r"BEGIN /* Database\Base::begin (Page\Store) */")?;
            // It takes the snapshot.
            c.run(r"SELECT /* Page\Store */ id FROM page WHERE id = 1")?;
            let before = pair.freshet.metrics()?;
            let found = c.value(read)?;
            let after = pair.freshet.metrics()?;
            c.run(r"COMMIT /* \ */")?;
            ensure!(found == expected, "{found}");
            ensure!(after.hits() > before.hits(), "no hit; {:?}", after.passed_since(&before));
            Ok(())
        })?;
    }
    Ok(())
}

/// A write that is not valid text counts as a write, and invalidates the results that it changes.
fn writes_of_bytes(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    c.run("SET NAMES binary")?;
    let read = "SELECT HEX(title) FROM page WHERE id = 3";
    pair.until_hit(&mut c, read)?;
    let before = pair.freshet.metrics()?;
    let write = [b"\x03UPDATE /* Store\\set */ page SET title = '\xff\xfe\\'' WHERE id = 3".as_slice()].concat();
    let answer = c.command(&write)?;
    ensure!(answer.error().is_none(), "{answer:?}");
    let after = pair.freshet.metrics()?;
    ensure!(after.passed("not_select") == before.passed("not_select") + 1, "{:?}", after.passed_since(&before));
    ensure!(c.value(read)? == "FFFE27");
    Ok(())
}

/// The server runs the code of a comment or not, by its version: what it runs is cached, and invalidated.
fn comments_of_versions(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let reads = [
        "SELECT title FROM page WHERE id = 3 /*!50700 + 100 */",
        "SELECT title FROM page WHERE id = 3 /*!80000 AND ci = 'other' */",
        "SELECT title /*!50503 , ci */ FROM page WHERE /*! id = */ 3",
        "SELECT title FROM page WHERE id = 3 /*!99999 AND it's \" not read */",
        "SELECT title FROM page WHERE id = 3 /*!100100 AND ci = 'other' */",
        "SELECT title FROM page /*M!100100 FORCE INDEX (PRIMARY) */ WHERE id = 3 /*M! AND 1 = 1 */",
        "/*!40001 SELECT */ /*M! SQL_NO_CACHE */ title FROM page WHERE id = 3",
    ];
    // MySQL takes six digits for five and a number; each server passes what is not cached there.
    let (cached, passed) = match kind {
        Kind::Mysql => ([0, 1, 2, 3, 5, 6], 4),
        Kind::Mariadb => ([0, 1, 2, 3, 4, 5], 6),
    };
    let (mut direct, mut c) = (pair.database.connect()?, pair.connect()?);
    for title in ["changed", "other"] {
        for at in cached {
            pair.until_hit(&mut c, reads[at])?;
        }
        c.run(&format!("UPDATE page SET title = '{title}' WHERE id = 3"))?;
        for read in reads {
            let (expected, got) = (direct.query(read)?.packets, c.query(read)?.packets);
            ensure!(expected == got, "{read}: {got:?} rather than {expected:?}");
        }
    }
    let before = pair.freshet.metrics()?.hits();
    for _ in 0..3 {
        c.query(reads[passed])?;
    }
    ensure!(pair.freshet.metrics()?.hits() == before, "{} hits", reads[passed]);
    // No such statement ends the caching of its session.
    let read = "SELECT title FROM page WHERE id = 3";
    for statement in [
        "/*!80000 SET NAMES utf8mb4 */",
        "/*!80000 SET @a = 1 */ /*M! ; */",
        "UPDATE page SET /*M!100100 ci = ci, */ title = /*!80000 title, title = */ title WHERE id = 3",
        "CREATE TEMPORARY TABLE x /*!80000 (id INT) */ /*M! (id INT) */",
        reads[passed],
    ] {
        let mut c = pair.connect()?;
        c.query(statement)?;
        pair.until_hit(&mut c, read)?;
    }
    // One that hides a table is noticed.
    let mut c = pair.connect()?;
    let hides = match kind {
        Kind::Mysql => "CREATE /*!80000 TEMPORARY */ TABLE page /*M!100000 (id INT) */ (id INT, title INT)",
        Kind::Mariadb => "CREATE /*M!100000 TEMPORARY */ TABLE page /*!80000 (id INT) */ (id INT, title INT)",
    };
    pair.until_hit(&mut c, read)?;
    ensure!(c.query(hides)?.error().is_none(), "{hides}");
    ensure!(c.query(read)?.rows().is_empty(), "behind {hides}");
    Ok(())
}

/// `||` means OR or CONCAT by the session's mode, and sessions of different modes share no result.
fn pipes(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let reads = [
        "SELECT id FROM page WHERE id = 1||ci = 'other' ORDER BY id",
        "SELECT id FROM page WHERE ci || '' = 'other' OR id = 1 ORDER BY id",
        "SELECT id FROM page WHERE id = 3 AND ci || 'x' || exact = 'otherxother'",
        "SELECT id||1, 1 || 0 FROM page WHERE id = 3",
    ];
    let mut sessions = [(pair.connect()?, pair.database.connect()?), (pair.connect()?, pair.database.connect()?)];
    for ((through, direct), mode) in sessions.iter_mut().zip(["", "PIPES_AS_CONCAT"]) {
        for c in [through, direct] {
            c.run(&format!("SET sql_mode = '{mode}'"))?;
        }
    }
    for change in ["UPDATE page SET ci = 'new' WHERE id = 3", "UPDATE page SET ci = 'other' WHERE id = 3"] {
        for (through, direct) in &mut sessions {
            for read in reads {
                // MySQL warns of mixed types in some of them.
                if direct.query(read)?.warnings == 0 {
                    pair.until_hit(through, read)?;
                }
            }
        }
        pair.connect()?.run(change)?;
        for (through, direct) in &mut sessions {
            for read in reads {
                let (expected, got) = (direct.query(read)?.packets, through.query(read)?.packets);
                ensure!(expected == got, "{read} after {change}: {got:?} rather than {expected:?}");
            }
        }
    }
    Ok(())
}
