//! The server reports to Freshet which commits it acknowledges; the client does not see these reports.

use anyhow::Result;

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value, capability, status};
use crate::mysql::support::{Kind, Login, Pair, RawClient, on_both};

on_both!(unasked, variables, changes, asked_for, begun_anew, without_autocommit, told_by_default, as_another);

/// All that a client can say about it.
const CAPABILITIES: [u32; 4] = [
    capability::OLD,
    capability::OLD | capability::SESSION_TRACK,
    capability::OLD | capability::DEPRECATE_EOF,
    capability::MODERN,
];
/// The statements that show whether commits are told.
const SHOWING: [&str; 2] = ["@@session_track_system_variables", "@@session_track_gtids"];

fn same(pair: &Pair, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
    CAPABILITIES
        .iter()
        .try_for_each(|capabilities| pair.same_as(Login { capabilities: *capabilities, ..pair.login() }, &conversation))
}

fn showing(kind: Kind) -> &'static str {
    if kind == Kind::Mariadb { SHOWING[0] } else { SHOWING[1] }
}

fn write(c: &mut RawClient) -> Result<()> {
    c.query("UPDATE item SET price = price + 1 WHERE id = 1").map(drop)
}

/// Statements of every kind that commit something, or do not.
fn unasked(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut direct = pair.database.connect()?;
    direct.run(
        "CREATE PROCEDURE twice() BEGIN UPDATE item SET price = price + 1; SELECT 1; DELETE FROM log; SELECT 2; END",
    )?;
    direct.run(
        "CREATE PROCEDURE half() BEGIN DELETE FROM log; UPDATE item SET price = price + 1; SELECT * FROM nowhere; END",
    )?;
    direct.run("CREATE PROCEDURE zone() BEGIN SET time_zone = '+01:00'; SELECT 1; DELETE FROM log; SELECT 2; END")?;
    same(&pair, |c| {
        c.query("TRUNCATE log")?;
        write(c)?;
        let statement = c.prepare("UPDATE item SET price = price + ? WHERE id = 2")?;
        c.execute(statement, &[Value::Int(3)])?;
        for sql in [
            "UPDATE item SET price = price + 1 WHERE id = 77",
            "SELECT name FROM item WHERE id = 1",
            "SELECT FOUND_ROWS(), ROW_COUNT()",
            "BEGIN",
            "INSERT INTO log (line) VALUES ('a')",
            "SAVEPOINT s",
            "COMMIT",
            "START TRANSACTION",
            "SELECT COUNT(*) FROM log",
            "COMMIT",
            "INSERT INTO log (line) VALUES ('b'); SELECT 1; DELETE FROM log; SELECT 2; DELETE FROM log",
            "BEGIN; UPDATE item SET price = price + 1 WHERE id = 1; COMMIT",
            "CALL twice()",
            "UPDATE item SET price = price + 1 WHERE id = 1",
            "CALL half()",
            "SELECT 1",
            "DO 1",
            "UPDATE item SET price = price + 1 WHERE id = 1",
            "CALL zone()",
            "UPDATE item SET price = price + 1 WHERE id = 1",
            "INSERT INTO item (id) VALUES (1)",
            "SHOW WARNINGS",
            "UPDATE item SET price = price + 1 WHERE id = 1",
            "SELECT name FROM item WHERE id = 1 FOR UPDATE",
            "CREATE TABLE made (id INT PRIMARY KEY)",
            "INSERT INTO made VALUES (1), (2)",
            "BEGIN",
            "INSERT INTO made VALUES (3)",
            "DROP TABLE made",
            "CREATE TEMPORARY TABLE mine (id INT)",
            "INSERT INTO mine VALUES (1)",
            "XA START 'x'",
            "UPDATE item SET price = price + 1 WHERE id = 1",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
            "USE mysql",
            "SET @x = 1, time_zone = '+02:00'",
        ] {
            c.query(sql)?;
        }
        c.command(&packets::init_db(&pair.database.name))?;
        write(c)?;
        if kind == Kind::Mariadb {
            c.query("INSERT INTO log (line) VALUES ('c') RETURNING line")?;
            c.query("BEGIN")?;
            c.query("ROLLBACK")?;
            write(c)?;
        }
        c.expect_silence()
    })
}

/// A query returns the values that the server was set to.
fn variables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let showing = showing(kind);
    same(&pair, |c| {
        for sql in [
            format!("SELECT {showing}"),
            "SHOW VARIABLES LIKE 'session_track%'".to_owned(),
            format!("SET @seen = {showing}"),
            "SHOW SESSION VARIABLES LIKE '%track_g%'".to_owned(),
        ] {
            write(c)?;
            c.query(&sql)?;
            write(c)?;
            c.query("BEGIN")?;
            c.query("COMMIT")?;
            c.query(&sql)?;
            c.query("SELECT @seen")?;
        }
        write(c)?;
        c.query(&format!("PREPARE look FROM 'SELECT {showing}'"))?;
        write(c)?;
        c.query("EXECUTE look")?;
        write(c)?;
        let statement = c.prepare(&format!("SELECT {showing}"))?;
        write(c)?;
        c.execute(statement, &[])?;
        c.expect_silence()
    })?;
    // It shows after a write alone, too, on a connection that has not looked before.
    same(&pair, |c| {
        write(c)?;
        c.query(&format!("SELECT {showing}"))?;
        c.expect_silence()
    })
}

/// The client gets all reports that it requested.
fn changes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    same(&pair, |c| {
        for sql in
            ["SET autocommit = 0", "SET NAMES latin1", "SET time_zone = '+03:00'", "USE mysql", "SET autocommit = 1"]
        {
            write(c)?;
            c.query(sql)?;
        }
        c.command(&packets::init_db(&pair.database.name))?;
        c.query("SET session_track_state_change = 1")?;
        write(c)?;
        c.query("SET @x = 1; UPDATE item SET price = price + 1 WHERE id = 1; SET @y = 1")?;
        c.expect_silence()
    })
}

/// What clients ask for they get, commits too. Their numbers differ, so nothing but the statements' form is compared.
fn asked_for(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let ask = match kind {
        Kind::Mariadb => "SET SESSION session_track_system_variables = 'last_gtid,autocommit'",
        Kind::Mysql => "SET SESSION session_track_gtids = OWN_GTID",
    };
    for early in [true, false] {
        let mut c = pair.connect()?;
        if !early {
            write(&mut c)?;
        }
        c.run(ask)?;
        for _ in 0..2 {
            let answer = c.query("UPDATE item SET price = price + 1 WHERE id = 1")?;
            assert_ne!(answer.status & status::SESSION_STATE_CHANGED, 0, "{answer:?}");
        }
        assert_eq!(c.query("UPDATE item SET price = 1 WHERE id = 77")?.status & status::SESSION_STATE_CHANGED, 0);
        c.command(&packets::reset_connection())?;
        let answer = c.query("UPDATE item SET price = price + 1 WHERE id = 1")?;
        assert_eq!(answer.status & status::SESSION_STATE_CHANGED, 0, "{answer:?}");
        c.expect_silence()?;
    }
    Ok(())
}

fn begun_anew(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let showing = showing(kind);
    for capabilities in CAPABILITIES {
        let login = Login { capabilities, ..pair.login() };
        pair.same_as(login, |c| {
            for _ in 0..2 {
                write(c)?;
                c.command(&packets::reset_connection())?;
                c.query(&format!("SELECT {showing}"))?;
                write(c)?;
                c.change_user(login)?;
                write(c)?;
                c.query(&format!("SELECT {showing}"))?;
                c.change_user(login)?;
            }
            c.expect_silence()
        })?;
    }
    Ok(())
}

fn without_autocommit(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let showing = showing(kind);
    same(&pair, |c| {
        c.query("SET autocommit = 0")?;
        for _ in 0..3 {
            c.query("SELECT price FROM item WHERE id = 2")?;
            write(c)?;
            c.query("COMMIT")?;
            write(c)?;
            c.query("COMMIT")?;
        }
        c.query("ROLLBACK")?;
        c.query(&format!("SELECT {showing}"))?;
        c.expect_silence()
    })
}

/// A server that reports commits by default is not changed.
fn told_by_default(kind: Kind) -> Result<()> {
    let settings = Kind::settings();
    let settings = match kind {
        Kind::Mariadb => settings.with("session-track-system-variables = autocommit,last_gtid"),
        Kind::Mysql => settings.with("session-track-gtids = OWN_GTID"),
    };
    let database = crate::mysql::support::Database::create(kind.start(&settings)?)?;
    let pair = Pair::over(database, SCHEMA, &[])?;
    let showing = showing(kind);
    for capabilities in CAPABILITIES {
        let login = Login { capabilities, ..pair.login() };
        let told = |address| -> Result<Vec<(u16, usize)>> {
            let mut c = RawClient::login(address, login)?;
            let mut told = Vec::new();
            for sql in [
                "UPDATE item SET price = price + 1 WHERE id = 1",
                "BEGIN",
                &format!("SELECT {showing}"),
                "DELETE FROM log",
            ] {
                let answer = c.query(sql)?;
                told.push((answer.status, answer.packets.len()));
            }
            c.expect_silence()?;
            Ok(told)
        };
        assert_eq!(told(pair.database.address())?, told(pair.address())?, "{capabilities:#x}");
    }
    Ok(())
}

/// Freshet logs in by itself, and the client hears the same.
fn as_another(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for capabilities in CAPABILITIES {
        for database in [None, pair.login().database] {
            let login = Login { database, capabilities, ..pair.login() };
            let ok = |address| -> Result<Vec<u8>> { Ok(RawClient::open(address)?.start(login)?.payload) };
            assert_eq!(ok(pair.database.address())?, ok(pair.address())?, "{capabilities:#x}");
        }
    }
    Ok(())
}
