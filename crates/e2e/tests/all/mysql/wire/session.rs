//! The state of a session: settings, transactions, variables, temporary tables, locks; and resetting it.

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value, capability, status};
use crate::mysql::support::{Kind, Login, Pair, RawClient, on_both};
use crate::support::rest;

on_both!(
    another_user,
    a_refused_change_of_user,
    reset_connection,
    databases,
    settings,
    tracked_settings,
    user_variables,
    temporary_tables,
    locks,
    killed_by_another,
    killed_by_itself,
);

/// An account with a password by the oldest plugin; its name begins with that of the database.
fn account(pair: &Pair, name: &str) -> Result<String> {
    let name = format!("{}_{name}", pair.database.name);
    pair.database.run(&format!(
        "CREATE USER {name}@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON {}.item TO {name}@'%'",
        pair.database.name
    ))?;
    if !pair.database.server.sql("SELECT VERSION()")?.contains("MariaDB") {
        pair.database.run(&format!("ALTER USER {name}@'%' IDENTIFIED WITH mysql_native_password BY 'secret'"))?;
    }
    Ok(name)
}

fn another_user(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let name = account(&pair, "reader")?;
    for capabilities in [capability::MODERN, capability::OLD] {
        let login = Login { capabilities, ..pair.login() };
        let reader = Login { user: &name, password: "secret", ..login };
        pair.same_as(login, |c| {
            let statement = c.prepare("SELECT name FROM item WHERE id = ?")?;
            c.query("SET @x = 5, sql_mode = 'ANSI'")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.change_user(reader)?;
            c.query("SELECT CURRENT_USER() LIKE '%reader@%', DATABASE(), @x, @@sql_mode")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.query("INSERT INTO log (line) VALUES ('refused')")?;
            c.execute(statement, &[Value::Int(1)])?;
            // Without a database, and as the one before.
            c.change_user(Login { database: None, ..reader })?;
            c.query("SELECT DATABASE()")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.change_user(login)?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.expect_silence()
        })?;
    }
    pair.database.run(&format!("DROP USER {name}"))
}

fn a_refused_change_of_user(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let login = pair.login();
    for wrong in [
        Login { password: "wrong", ..login },
        Login { user: "nobody", ..login },
        Login { database: Some("no_such_database"), ..login },
    ] {
        pair.same_as(login, |c| {
            c.query("SELECT name FROM item WHERE id = 1")?;
            let last = c.change_user(wrong)?;
            ensure!(last.payload.first() == Some(&0xff), "{last:?}");
            // The server ends the connection, or goes on as nobody.
            if c.send(&packets::query("SELECT name FROM item WHERE id = 1")).is_ok() {
                c.read_or_end()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn reset_connection(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query("TRUNCATE log")?;
        for _ in 0..2 {
            let statement = c.prepare("SELECT name FROM item WHERE id = ?")?;
            c.query("SET @x = 5, sql_mode = 'ANSI_QUOTES', NAMES latin1, autocommit = 0")?;
            c.query("CREATE TEMPORARY TABLE item (id INT, name VARCHAR(40))")?;
            c.query("INSERT INTO item VALUES (1, 'temporary')")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("INSERT INTO log (line) VALUES ('rolled back')")?;
            let answer = c.command(&packets::reset_connection())?;
            ensure!(answer.status & status::AUTOCOMMIT != 0, "{answer:?}");
            c.query("SELECT @x, @@sql_mode, @@autocommit, @@character_set_client, DATABASE()")?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.execute(statement, &[Value::Int(1)])?;
        }
        c.expect_silence()
    })
}

fn databases(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let other = format!("{}_other", pair.database.name);
    pair.database.run(&format!(
        "CREATE DATABASE {other}; CREATE TABLE {other}.item (id INT, name VARCHAR(40));
         INSERT INTO {other}.item VALUES (1, 'another')"
    ))?;
    pair.same_with_hits(2, |c| {
        for _ in 0..2 {
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query(&format!("USE {other}"))?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.command(&packets::init_db(&pair.database.name))?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.command(&packets::init_db(&other))?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query(&format!("SELECT name FROM {}.item WHERE id = 1", pair.database.name))?;
            c.query(&format!("USE `{}`", pair.database.name))?;
        }
        c.expect_silence()
    })?;
    // No database any more.
    pair.same(|c| {
        c.query("USE no_such_database")?;
        c.query("CREATE DATABASE vanishing; USE vanishing")?;
        c.query("DROP DATABASE vanishing")?;
        c.query("SELECT DATABASE()")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.expect_silence()
    })?;
    pair.database.run(&format!("DROP DATABASE {other}"))
}

fn settings(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let reads = |c: &mut RawClient| -> Result<()> {
        c.query("SELECT id, name, seen FROM item WHERE id IN (1, 5)")?;
        c.query("SELECT \"name\" FROM item WHERE id = 1")?;
        c.query("SELECT name || 'x' FROM item WHERE id = 1")?;
        c.query("SELECT UNIX_TIMESTAMP(seen), price / 7, GROUP_CONCAT(name) FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE name = 'ÜNÏCODE ✓'")?;
        c.query("SELECT DATE_FORMAT(born, '%M %W') FROM item WHERE id = 1").map(drop)
    };
    pair.same_with_hits(2, |c| {
        reads(c)?;
        for sql in [
            "SET NAMES latin1",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "SET character_set_results = NULL",
            "SET NAMES utf8mb4",
            "SET time_zone = '+05:00'",
            "SET sql_mode = 'ANSI_QUOTES'",
            "SET sql_mode = 'PIPES_AS_CONCAT'",
            "SET sql_mode = DEFAULT",
            "SET SESSION sql_select_limit = 1",
            "SET SESSION sql_select_limit = DEFAULT",
            "SET div_precision_increment = 10",
            "SET group_concat_max_len = 4",
            "SET lc_time_names = 'en_GB'",
            "SET @@session.transaction_isolation = 'SERIALIZABLE'",
            "SET autocommit = 0",
            "COMMIT",
        ] {
            c.query(sql)?;
            reads(c)?;
        }
        c.expect_silence()
    })
}

fn tracked_settings(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    // Such a session is not served from the cache: it would see Freshet's own questions. Of a client that cannot hear of
    // it, MariaDB keeps a flag in EOF packets.
    pair.same_as(pair.login(), |c| {
        for sql in [
            "SET SESSION session_track_transaction_info = 'CHARACTERISTICS'",
            "BEGIN",
            "SELECT name FROM item WHERE id = 1",
            "UPDATE item SET name = name WHERE id = 1",
            "COMMIT",
            "SELECT name FROM item WHERE id = 1",
        ] {
            c.query(sql)?;
        }
        c.expect_silence()
    })?;
    pair.same_with_hits(1, |c| {
        for sql in [
            "SET SESSION session_track_system_variables = '*'",
            "SET SESSION session_track_schema = 1, session_track_state_change = 1",
            "SET time_zone = '+01:00'",
            "SELECT name FROM item WHERE id = 1",
            "SELECT name FROM item WHERE id = 1",
            "USE mysql",
            "SET @x = 1",
            "BEGIN",
            "SELECT COUNT(*) FROM user WHERE FALSE",
            "COMMIT",
        ] {
            c.query(sql)?;
        }
        c.command(&packets::init_db(&pair.database.name))?;
        for _ in 0..3 {
            c.query("SELECT name FROM item WHERE id = 1")?;
            rest();
        }
        c.expect_silence()
    })
}

fn user_variables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("SET @id = 1, @n = 0")?;
        c.query("SELECT name FROM item WHERE id = @id")?;
        c.query("SET @id = 2")?;
        c.query("SELECT name FROM item WHERE id = @id")?;
        c.query("SELECT @n := @n + 1, id FROM item ORDER BY id")?;
        c.query("SELECT @n := @n + 1, id FROM item ORDER BY id")?;
        c.query("SELECT COUNT(*), MAX(price) INTO @count, @max FROM item")?;
        c.query("SELECT @count, @max")?;
        c.query("SELECT GET_LOCK(DATABASE(), 0), IS_USED_LOCK(DATABASE()) = CONNECTION_ID()")?;
        c.query("SELECT RELEASE_LOCK(DATABASE())")?;
        c.expect_silence()
    })
}

fn temporary_tables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for _ in 0..2 {
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("CREATE TEMPORARY TABLE item (id INT, name VARCHAR(40))")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("INSERT INTO item VALUES (1, 'temporary')")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.query("DROP TEMPORARY TABLE item")?;
            c.query("SELECT name FROM item WHERE id = 1")?;
        }
        c.expect_silence()
    })
}

fn locks(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("LOCK TABLES item READ")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.query("UPDATE item SET name = name")?;
        c.query("UNLOCK TABLES")?;
        c.query("SELECT COUNT(*) FROM log WHERE FALSE")?;
        c.query("SELECT GET_LOCK('freshet', 0), IS_FREE_LOCK('freshet'), RELEASE_LOCK('freshet')")?;
        c.query("SELECT name FROM item WHERE id = 1 FOR UPDATE")?;
        c.expect_silence()
    })
}

fn killed_by_another(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    pair.same(|c| {
        let mut killer = pair.connect()?;
        let victim = c.value("SELECT CONNECTION_ID()")?;
        ensure!(victim == c.handshake.connection.to_string(), "{victim} is not {}", c.handshake.connection);
        c.heard.clear();
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.send(&packets::query("SELECT SLEEP(20) FROM item"))?;
        let running =
            format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {victim} AND state = 'User sleep'");
        while killer.value(&running)? == "0" {}
        killer.run(&format!("KILL QUERY {victim}"))?;
        c.answer()?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        killer.command(&packets::process_kill(victim.parse()?))?;
        while killer.value(&format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {victim}"))? == "1"
        {
        }
        // MariaDB says why before it closes, MySQL does not.
        if c.send(&packets::query("SELECT name FROM item WHERE id = 2")).is_ok() {
            let _ = c.read_or_end()?;
        }
        Ok(())
    })
}

fn killed_by_itself(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        let answer = c.query("KILL CONNECTION_ID()").context("the error")?;
        ensure!(answer.error().is_some_and(|(code, ..)| code == 1317 || code == 1927), "{answer:?}");
        c.read_or_end()?;
        Ok(())
    })
}
