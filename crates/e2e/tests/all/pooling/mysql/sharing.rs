//! Sessions that use one connection in turns.

use std::thread;

use anyhow::{Result, ensure};

use super::stage::{READ, Stage};
use crate::mysql::support::{Kind, RawClient, on_both, packets};
use crate::support::{PATIENCE, eventually};

on_both!(
    two_share_one,
    hits_need_none,
    settings_follow_their_session,
    diagnostics_follow_their_session,
    counts_are_cached_with_their_pages,
    a_server_that_ends_an_idle_connection,
    clients_that_vanish,
    waiting_in_line,
    kill_meets_its_session,
    last_gtid,
);

/// Two sessions over one connection: reads, writes, transactions.
fn two_share_one(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for round in 0..20 {
        for client in [&mut a, &mut b] {
            client.run("BEGIN")?;
            client.run(&format!("UPDATE line SET n = {round} WHERE id = 1"))?;
            client.run("COMMIT")?;
            ensure!(client.value("SELECT n FROM line WHERE id = 1")? == round.to_string());
        }
    }
    ensure!(stage.connections()? <= 1, "{} connections", stage.connections()?);
    Ok(())
}

/// A session is served from the cache while another one has the only connection.
fn hits_need_none(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let mut refused = eventually(PATIENCE, || {
        let (mut reader, mut writer) = (stage.connect()?, stage.connect()?);
        stage.pair.until_hit(&mut reader, READ)?;
        writer.run("BEGIN")?;
        writer.run("UPDATE line SET n = 0 WHERE id = 2")?;
        let before = stage.pair.freshet.metrics()?.hits();
        for _ in 0..10 {
            // DDL of another test may have changed the catalogue: then the session asks once.
            ensure!(reader.value(READ)? == "kettle");
        }
        ensure!(stage.pair.freshet.metrics()?.hits() == before + 10);
        writer.run("COMMIT")?;
        writer.run("BEGIN")?;
        // A statement that must reach the server waits, and is refused in the end.
        let refused = reader.query("SELECT n FROM line WHERE id = 3")?.error();
        Ok((refused, reader))
    })?;
    ensure!(refused.0.as_ref().is_some_and(|(code, state, _)| *code == 1040 && state == "08004"), "{:?}", refused.0);
    ensure!(refused.1.read_or_end()?.is_none(), "the session goes on");
    ensure!(stage.connect()?.value("SELECT n FROM line WHERE id = 2")? == "0");
    Ok(())
}

/// What SET has set is in force for the session that has set it, and for no other.
fn settings_follow_their_session(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let ask =
        |client: &mut RawClient| client.value("SELECT CONCAT_WS(' ', @@time_zone, @@sql_mode, @@character_set_client)");
    let plain = ask(&mut b)?;
    a.run("SET time_zone = '+01:00', sql_mode = 'ANSI_QUOTES'")?;
    a.run("SET NAMES latin1")?;
    let mine = ask(&mut a)?;
    ensure!(mine != plain && mine.starts_with("+01:00") && mine.ends_with("latin1"), "{mine}");
    for _ in 0..3 {
        ensure!(ask(&mut b)? == plain);
        ensure!(ask(&mut a)? == mine);
    }
    a.run(&format!("USE {}", stage.pair.database.name))?;
    ensure!(ask(&mut b)? == plain && ask(&mut a)? == mine);
    // Without a default database, and with another one.
    b.command(&packets::init_db("information_schema"))?;
    ensure!(b.value("SELECT DATABASE()")? == "information_schema");
    ensure!(a.value("SELECT DATABASE()")? == stage.pair.database.name);
    ensure!(b.value("SELECT DATABASE()")? == "information_schema");
    ensure!(stage.connections()? <= 1);
    Ok(())
}

/// FOUND_ROWS(), ROW_COUNT() and LAST_INSERT_ID() are those of the session.
fn diagnostics_follow_their_session(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    a.run("BEGIN")?;
    a.run("INSERT INTO line (n) VALUES (10), (11)")?;
    a.run("COMMIT")?;
    let first = a.value("SELECT MAX(id) - 1 FROM line")?;
    ensure!(b.value("SELECT LAST_INSERT_ID()")? == "0");
    ensure!(b.query("SELECT id FROM item")?.rows().len() == 3);
    a.query("SELECT SQL_CALC_FOUND_ROWS id FROM line LIMIT 1")?;
    ensure!(b.value("SELECT FOUND_ROWS()")? == "3");
    ensure!(a.value("SELECT FOUND_ROWS()")? == "5");
    ensure!(a.value("SELECT LAST_INSERT_ID()")? == first);
    ensure!(b.value("SELECT 1")? == "1");
    a.run("SET autocommit = 1")?;
    ensure!(a.value("SELECT ROW_COUNT()")? == "0");
    ensure!(a.value("SELECT ROW_COUNT()")? == "-1");
    Ok(())
}

/// FOUND_ROWS() behind a fill is cached with it, although the session has given its connection back in between.
fn counts_are_cached_with_their_pages(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let mut c = stage.connect()?;
    eventually(PATIENCE, || {
        let before = stage.pair.freshet.metrics()?.hits();
        c.query("SELECT SQL_CALC_FOUND_ROWS name FROM item ORDER BY id LIMIT 1")?;
        ensure!(c.value("SELECT FOUND_ROWS()")? == "3");
        ensure!(stage.pair.freshet.metrics()?.hits() == before + 2, "not both from the cache");
        Ok(())
    })
}

/// The server ends a connection that no session has: nobody notices.
fn a_server_that_ends_an_idle_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let mut client = stage.connect()?;
    ensure!(client.value("SELECT n FROM line WHERE id = 1")? == "1");
    let mut direct = stage.pair.database.connect()?;
    let ids = direct.query(&format!("SELECT id FROM information_schema.processlist WHERE user = '{}'", stage.user))?;
    ensure!(!ids.rows().is_empty());
    for row in ids.rows() {
        if let Some(Some(id)) = row.first() {
            direct.run(&format!("KILL {id}"))?;
        }
    }
    eventually(PATIENCE, || {
        ensure!(stage.connections()? == 0);
        Ok(())
    })?;
    ensure!(client.value("SELECT n FROM line WHERE id = 2")? == "2");
    Ok(())
}

/// A client that vanishes within a transaction: it is rolled back, and its place is free.
fn clients_that_vanish(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    for _ in 0..3 {
        let mut client = stage.connect()?;
        client.run("BEGIN")?;
        client.run("UPDATE line SET n = 99 WHERE id = 1")?;
        drop(client);
        eventually(PATIENCE, || {
            ensure!(stage.connect()?.value("SELECT n FROM line WHERE id = 1 FOR UPDATE")? == "1");
            Ok(())
        })?;
    }
    Ok(())
}

/// Sessions that wait are served in turn, each when its turn comes.
fn waiting_in_line(kind: Kind) -> Result<()> {
    let stage = Stage::with(kind, &["--default-pool-size", "1", "--query-wait-timeout", "1m"])?;
    let address = stage.pair.address();
    thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut client = RawClient::login(address, stage.login())?;
                    for _ in 0..20 {
                        client.run("BEGIN")?;
                        client.run("UPDATE line SET n = n + 1 WHERE id = 3")?;
                        client.run("COMMIT")?;
                    }
                    Ok(())
                })
            })
            .collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))
    })?;
    ensure!(stage.connect()?.value("SELECT n FROM line WHERE id = 3")? == "163");
    Ok(())
}

/// KILL of the number that a client has from its login meets the session, whatever connection it has, or has none.
fn kill_meets_its_session(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut idle, mut busy, mut killer) = (stage.connect()?, stage.connect()?, stage.connect()?);
    let (idle_number, busy_number) = (idle.handshake.connection, busy.handshake.connection);
    // All have used the only connection.
    for client in [&mut idle, &mut busy, &mut killer] {
        ensure!(client.value("SELECT n FROM line WHERE id = 1")? == "1");
    }
    busy.run("BEGIN")?;
    busy.send(&packets::query("SELECT SLEEP(60), n FROM line WHERE id = 1"))?;
    eventually(PATIENCE, || {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}' AND info LIKE '%SLEEP(60)%'",
            stage.user
        );
        ensure!(stage.pair.database.connect()?.value(&sql)? == "1");
        Ok(())
    })?;
    // That of a session without a connection stops nobody.
    killer.run(&format!("KILL QUERY {idle_number}"))?;
    killer.run(&format!("KILL QUERY {busy_number}"))?;
    // SLEEP that is interrupted returns 1, or its statement fails.
    busy.answer()?;
    busy.run("ROLLBACK")?;
    ensure!(busy.value("SELECT n FROM line WHERE id = 1")? == "1");
    ensure!(idle.value("SELECT n FROM line WHERE id = 1")? == "1");
    killer.run(&format!("KILL {idle_number}"))?;
    ensure!(idle.bytes_to_end()?.get(4) == Some(&0xff), "the killed session goes on");
    let unknown = killer.query(&format!("KILL {idle_number}"))?.error();
    ensure!(unknown.as_ref().is_some_and(|(code, ..)| *code == 1094), "{unknown:?}");
    ensure!(killer.value("SELECT n FROM line WHERE id = 1")? == "1");
    Ok(())
}

/// MariaDB: `@@last_gtid` is that of the session, or else not known.
fn last_gtid(kind: Kind) -> Result<()> {
    if kind != Kind::Mariadb {
        return Ok(());
    }
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let write = |client: &mut RawClient| {
        ["BEGIN", "UPDATE line SET n = n + 1 WHERE id = 1", "COMMIT"].into_iter().try_for_each(|sql| client.run(sql))
    };
    write(&mut a)?;
    write(&mut b)?;
    // That of the connection is the other's.
    let refused = a.query("SELECT @@last_gtid")?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1105), "{refused:?}");
    write(&mut a)?;
    ensure!(!stage.is_free()?, "the connection is free");
    let last = a.value("SELECT @@last_gtid")?;
    ensure!(last.split('-').count() == 3, "{last}");
    Ok(())
}
