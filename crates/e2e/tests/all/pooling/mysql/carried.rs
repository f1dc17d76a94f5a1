//! Prepared statements of the binary protocol that go from one connection to another: types of parameters, diagnostics, settings, messages that have no
//! answer.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::prepared::{prepared_there, rows, until_hit};
use super::stage::Stage;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Database, Kind, Packet, RawClient, ensure_same, on_both};

on_both!(
    types_of_large_messages,
    messages_without_an_answer,
    a_piece_that_is_lost,
    the_server_has_too_many,
    other_types_are_apart,
    settings_of_no_label,
    diagnostics_of_the_statement_before,
    the_last_of_too_many,
);

/// Another session takes the connection that this one has had.
fn take(other: &mut RawClient) -> Result<()> {
    other.run("BEGIN")?;
    other.run("UPDATE item SET name = 'kettle' WHERE id = 1")
}

/// A large message that leaves out the types, on a connection where no other message had them: nothing but it is executed.
fn types_of_large_messages(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    stage.pair.database.run("CREATE TABLE large (id INT AUTO_INCREMENT PRIMARY KEY, a LONGTEXT, b INT)")?;
    let play = |address| {
        stage.pair.database.run("TRUNCATE large")?;
        let (mut a, mut b) = (RawClient::login(address, stage.login())?, RawClient::login(address, stage.login())?);
        let insert = a.prepare("INSERT INTO large (a, b) VALUES (?, ?)")?;
        let read = a.prepare("SELECT b, ? FROM large WHERE id = ?")?;
        a.heard.clear();
        let (large, short) = ("x".repeat(300_000), "y");
        a.execute(insert, &[Value::Text(short), Value::Int(0)])?;
        a.execute(read, &[Value::Text(short), Value::Int(1)])?;
        for round in 1..4 {
            take(&mut b)?;
            for text in [&large, short] {
                a.command(&packets::execute_with(insert.id, 0, &[Value::Text(text), Value::Int(round)], false))?;
                a.command(&packets::execute_with(read.id, 0, &[Value::Text(text), Value::Int(round)], false))?;
            }
            b.run("ROLLBACK")?;
        }
        a.query("SELECT id, LENGTH(a), b FROM large")?;
        Ok::<_, anyhow::Error>(a.heard)
    };
    ensure_same(&play(stage.pair.database.address())?, &play(stage.pair.address())?)
}

/// What Freshet sends ahead of a command has its own answer, also if the command has none, or is not sent.
fn messages_without_an_answer(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    stage.pair.database.run("CREATE TABLE gone (id INT)")?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let gone = a.prepare("SELECT id FROM gone WHERE id = ?")?;
    stage.pair.database.run("DROP TABLE gone")?;
    for round in 0..8 {
        let text = a.prepare("SELECT CONCAT(?, name) FROM item WHERE id = 1")?;
        let own = |client: &mut RawClient| {
            client.run("INSERT INTO line (n) VALUES (1)")?;
            client.value("SELECT LAST_INSERT_ID()")
        };
        let (of_a, of_b) = (own(&mut a)?, own(&mut b)?);
        ensure!(of_a != of_b);
        match round % 4 {
            0 => {
                a.send(&packets::send_long_data(text.id, 0, b"x"))?;
                a.send(&packets::close(text.id))?;
            }
            1 => {
                a.send(&packets::send_long_data(text.id, 0, b"x"))?;
                ensure!(rows(&mut a, text, &[Value::Long])? == ["xkettle"]);
            }
            2 => {
                a.send(&packets::close(text.id))?;
                ensure!(a.execute(gone, &[Value::Int(1)])?.error().is_some_and(|(code, ..)| code == 1146));
                ensure!(a.command(&packets::reset_statement(gone.id))?.error().is_none());
                ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
            }
            _ => {
                ensure!(a.execute(gone, &[Value::Int(1)])?.error().is_some_and(|(code, ..)| code == 1146));
                ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
            }
        }
        for _ in 0..2 {
            ensure!(b.value("SELECT LAST_INSERT_ID()")? == of_b, "round {round}");
            ensure!(a.value("SELECT LAST_INSERT_ID()")? == of_a, "round {round}");
        }
    }
    Ok(())
}

/// The server cannot get a piece of a parameter: nothing is ever executed without it.
fn a_piece_that_is_lost(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let stage = Stage::over(database, kind, &["--default-pool-size", "2"])?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let insert = a.prepare("INSERT INTO item VALUES (?, ?)")?;
    ensure!(a.execute(insert, &[Value::Int(11), Value::Text("one")])?.error().is_none());
    a.value("SELECT n FROM line WHERE id = 2")?;
    // The other session has the connection on which it is prepared.
    b.run("BEGIN")?;
    b.run("UPDATE line SET n = n WHERE id = 3")?;
    stage.pair.database.run("SET GLOBAL max_prepared_stmt_count = 1")?;
    a.send(&packets::send_long_data(insert.id, 1, b"first "))?;
    let refused = a.answer()?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1461), "{refused:?}");
    stage.pair.database.run("SET GLOBAL max_prepared_stmt_count = 100")?;
    ensure!(a.run("DO 1").is_err(), "the session goes on");
    b.run("COMMIT")?;
    ensure!(b.value("SELECT COUNT(*) FROM item")? == "4");
    Ok(())
}

/// A server may keep what it has derived from the types of the first execution: a statement is executed with one list of types only.
fn other_types_are_apart(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT CONCAT(?, name) FROM item WHERE id = 1";
    let (one, two) = (a.prepare(sql)?, b.prepare(sql)?);
    for _ in 0..3 {
        ensure!(rows(&mut a, one, &[Value::Int(1)])? == ["1kettle"]);
        ensure!(rows(&mut b, two, &[Value::Text("t")])? == ["tkettle"]);
    }
    ensure!(prepared_there(&mut a)? == 2);
    // In a transaction the session has its statement to itself. Behind it nobody has it.
    a.run("BEGIN")?;
    ensure!(rows(&mut a, one, &[Value::Int(1)])? == ["1kettle"]);
    ensure!(rows(&mut a, one, &[Value::Double(0.5)])? == ["0.5kettle"]);
    a.run("COMMIT")?;
    ensure!(prepared_there(&mut b)? == 1);
    ensure!(rows(&mut b, two, &[Value::Int(2)])? == ["2kettle"]);
    Ok(())
}

/// A SET of what is not a constant is in no label: statements keep the settings of their prepare, and are looked up under these.
fn settings_of_no_label(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let sql = "SELECT \"name\" FROM item WHERE id = ?";
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let plain = a.prepare(sql)?;
    until_hit(&stage, &mut a, plain, &[Value::Int(1)])?;
    let create = "CREATE TABLE gone (id INT, name VARCHAR(10)); INSERT INTO gone VALUES (1, 'a')";
    stage.pair.database.run(create)?;
    let gone = a.prepare("SELECT \"name\" FROM gone WHERE id = ?")?;
    stage.pair.database.run("DROP TABLE gone")?;
    // The connection that has them is another session's.
    take(&mut b)?;
    a.run("SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")?;
    b.run("ROLLBACK")?;
    // It could not be prepared before the SET, and would be another statement now.
    stage.pair.database.run(create)?;
    let refused = a.execute(gone, &[Value::Int(1)])?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1615), "{refused:?}");
    let own = a.prepare(sql)?;
    until_hit(&stage, &mut a, own, &[Value::Int(1)])?;
    for _ in 0..10 {
        ensure!(rows(&mut a, plain, &[Value::Int(1)])? == ["name"]);
        ensure!(rows(&mut a, own, &[Value::Int(1)])? == ["kettle"]);
    }
    let other = b.prepare(sql)?;
    for _ in 0..10 {
        ensure!(rows(&mut b, other, &[Value::Int(1)])? == ["name"]);
    }
    Ok(())
}

/// A statement that asks for the diagnostics of the one before it finds those, and not those of a prepare ahead of it.
fn diagnostics_of_the_statement_before(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let play = |address: SocketAddr, text: &str| -> Result<Vec<Packet>> {
        stage.pair.database.run("TRUNCATE line; INSERT INTO line (n) VALUES (1), (2), (3)")?;
        let (mut a, mut b) = (RawClient::login(address, stage.login())?, RawClient::login(address, stage.login())?);
        // In a new session of MariaDB, FOUND_ROWS() is what an earlier session has left.
        a.query("SELECT id FROM item")?;
        let (asks, reads) = (a.prepare(text)?, a.prepare("SELECT name FROM item WHERE id <= ?")?);
        a.execute(asks, &[])?;
        a.heard.clear();
        for _ in 0..2 {
            take(&mut b)?;
            a.run("BEGIN")?;
            for sql in ["SELECT CAST('7x' AS SIGNED)", "UPDATE line SET n = n + 1", "INSERT INTO line (n) VALUES (0)"] {
                a.query(sql)?;
                a.execute(asks, &[])?;
            }
            a.execute(reads, &[Value::Int(2)])?;
            a.execute(asks, &[])?;
            a.query("SELECT nothing FROM item")?;
            a.execute(asks, &[])?;
            a.run("ROLLBACK")?;
            b.run("ROLLBACK")?;
            a.execute(asks, &[])?;
        }
        Ok(a.heard)
    };
    let mut texts = vec!["SELECT ROW_COUNT()", "SELECT FOUND_ROWS()", "SELECT LAST_INSERT_ID()"];
    if kind == Kind::Mariadb {
        texts.extend(["SHOW WARNINGS", "SELECT @@warning_count"]);
    }
    for text in texts {
        let direct = play(stage.pair.database.address(), text)?;
        ensure_same(&direct, &play(stage.pair.address(), text)?).context(text)?;
    }
    Ok(())
}

/// Beyond the limit of a session a prepare is refused, and there is no last statement to execute (MariaDB's number for it).
fn the_last_of_too_many(kind: Kind) -> Result<()> {
    const STATEMENTS_MAX: usize = 16_384;
    const LAST: u32 = u32::MAX;
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run("SET GLOBAL max_prepared_stmt_count = 100000")?;
    let stage = Stage::over(database, kind, &["--default-pool-size", "1"])?;
    let mut client = stage.connect()?;
    for _ in 0..STATEMENTS_MAX / 512 {
        for _ in 0..512 {
            client.send(&packets::prepare("DO 1"))?;
        }
        for _ in 0..512 {
            ensure!(client.read()?.payload.first() == Some(&0));
        }
    }
    let refused = client.command(&packets::prepare("DO 2"))?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1461), "{refused:?}");
    let nothing = client.command(&packets::execute(LAST, &[]))?.error();
    ensure!(nothing.as_ref().is_some_and(|(code, ..)| *code == 1243), "{nothing:?}");
    ensure!(client.value("SELECT COUNT(*) FROM item")? == "3");
    Ok(())
}

/// The server refuses to prepare a statement again: that is the error of its execution.
fn the_server_has_too_many(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let options = ["--default-pool-size", "2", "--query-wait-timeout", "500ms"];
    let stage = Stage::over(database, kind, &options)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let statement = a.prepare("SELECT CAST(n AS CHAR) FROM line WHERE id = ?")?;
    ensure!(rows(&mut a, statement, &[Value::Int(1)])? == ["1"]);
    // The other session has the connection on which it is prepared.
    b.run("BEGIN")?;
    b.run("UPDATE line SET n = n WHERE id = 3")?;
    stage.pair.database.run("SET GLOBAL max_prepared_stmt_count = 1")?;
    a.run("BEGIN")?;
    let refused = a.execute(statement, &[Value::Int(1)])?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1461), "{refused:?}");
    stage.pair.database.run("SET GLOBAL max_prepared_stmt_count = 100")?;
    ensure!(rows(&mut a, statement, &[Value::Int(1)])? == ["1"]);
    a.run("COMMIT")?;
    b.run("COMMIT")?;
    Ok(())
}
