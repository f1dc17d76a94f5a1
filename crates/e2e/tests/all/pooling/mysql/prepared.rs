//! Prepared statements of the binary protocol, of sessions that share connections.

use anyhow::{Context, Result, ensure};

use super::stage::{READ, Stage};
use crate::mysql::support::answer::Answer;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Kind, Packet, RawClient, Statement, ensure_same, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(
    statements_keep_no_connection,
    three_sessions_over_one_connection,
    hits_need_no_connection,
    hits_of_closed_statements,
    what_holds_a_connection,
    long_data,
    cursors,
    definitions_in_between,
    other_settings,
    another_database,
    numbers_of_nobody,
    resets,
    few_stay_prepared,
    none_stay_prepared,
    characteristics_of_the_next_transaction,
);

/// A prepared statement keeps no connection, and is executed on others.
fn statements_keep_no_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let mut client = stage.connect()?;
    let statement = client.prepare("SELECT CAST(n AS CHAR) FROM line WHERE id = ?")?;
    ensure!(stage.is_free()?, "behind the prepare");
    for id in [1, 2, 3] {
        ensure!(rows(&mut client, statement, &[Value::Int(id)])? == [id.to_string()]);
        ensure!(stage.is_free()?, "behind an execution");
    }
    client.send(&packets::close(statement.id))?;
    ensure!(client.value("SELECT COUNT(*) FROM item")? == "3");
    ensure!(stage.is_free()?);
    Ok(())
}

/// Waits until the session keeps no connection: it may do so until the catalogue shows that no routine was run.
pub(super) fn until_free(stage: &Stage, client: &mut RawClient) -> Result<()> {
    eventually(PATIENCE, || {
        ensure!(client.command(&packets::ping())?.error().is_none());
        ensure!(stage.is_free()?);
        Ok(())
    })
}

/// The rows of an execution with one column of text.
pub(super) fn rows(client: &mut RawClient, statement: Statement, values: &[Value<'_>]) -> Result<Vec<String>> {
    let answer = client.execute(statement, values)?;
    ensure!(answer.error().is_none(), "{:?}", answer.error());
    Ok(texts(&answer))
}

/// A binary row of one text is two bytes of zero and the text, which might as well be three texts.
fn texts(answer: &Answer) -> Vec<String> {
    answer.rows().into_iter().filter_map(|mut row| row.pop().flatten()).collect()
}

/// Forgets what they have heard so far.
fn hear_anew(clients: &mut [RawClient]) {
    for client in clients {
        client.heard.clear();
    }
}

/// What three sessions hear that take turns.
fn turns(stage: &Stage, address: std::net::SocketAddr) -> Result<Vec<Vec<Packet>>> {
    let database = &stage.pair.database;
    database.run("TRUNCATE line")?;
    database.run("INSERT INTO line (n) VALUES (1), (2), (3)")?;
    let mut clients = (0..3).map(|_| RawClient::login(address, stage.login())).collect::<Result<Vec<_>>>()?;
    hear_anew(&mut clients);
    let texts = [
        "SELECT n, ? FROM line WHERE id = ?",
        "SELECT id, name, ? FROM item WHERE id = ?",
        "UPDATE line SET n = ? WHERE id = ?",
        "SELECT n, ? FROM line WHERE id = ?",
    ];
    let mut statements = Vec::new();
    for (at, client) in clients.iter_mut().enumerate() {
        // The same numbers stand for other texts.
        let own = (0..texts.len()).map(|text| client.prepare(texts[(text + at) % texts.len()]));
        statements.push(own.collect::<Result<Vec<_>>>()?);
    }
    let values = |round: i32, at: i32, which: i32| {
        let id = 1 + (round + at + which) % 3;
        match (round + which + at) % 4 {
            0 => [Value::Int(round), Value::Int(id)],
            1 => [Value::Text("some"), Value::Integer(i64::from(id))],
            2 => [Value::Null, Value::Int(id)],
            _ => [Value::Double(0.5), Value::Int(id)],
        }
    };
    for round in 0..12_i32 {
        for ((at, client), statements) in (0..).zip(&mut clients).zip(&statements) {
            for (which, statement) in (0..).zip(statements) {
                if round > 0 {
                    // With the types of the session's last execution, since which others have sent theirs.
                    let again = values(round - 1, at, which);
                    client.command(&packets::execute_with(statement.id, 0, &again, false))?;
                }
                client.execute(*statement, &values(round, at, which))?;
            }
        }
    }
    Ok(clients.into_iter().map(|client| client.heard).collect())
}

fn three_sessions_over_one_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    // The only direct one would differ by what it caches: nothing.
    let direct = turns(&stage, stage.pair.database.address())?;
    for time in 0..2 {
        let through = turns(&stage, stage.pair.address())?;
        for (at, (direct, through)) in direct.iter().zip(&through).enumerate() {
            ensure_same(direct, through).with_context(|| format!("session {at}, time {time}"))?;
        }
    }
    ensure!(stage.connections()? <= 1);
    Ok(())
}

/// Reads until an execution comes from the cache.
pub(super) fn until_hit(
    stage: &Stage,
    client: &mut RawClient,
    statement: Statement,
    values: &[Value<'_>],
) -> Result<()> {
    eventually(PATIENCE, || {
        let before = stage.pair.freshet.metrics()?;
        client.execute(statement, values)?;
        let after = stage.pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "no hit: {:?}", after.passed_since(&before));
        Ok(())
    })
}

/// Executions are served from the cache while another session has the only connection.
fn hits_need_no_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    eventually(PATIENCE, || {
        let (mut reader, mut writer) = (stage.connect()?, stage.connect()?);
        let statement = reader.prepare("SELECT name FROM item WHERE id = ?")?;
        until_hit(&stage, &mut reader, statement, &[Value::Int(1)])?;
        writer.run("BEGIN")?;
        writer.run("UPDATE line SET n = 0 WHERE id = 2")?;
        let before = stage.pair.freshet.metrics()?.hits();
        for _ in 0..10 {
            ensure!(rows(&mut reader, statement, &[Value::Int(1)])? == ["kettle"]);
        }
        ensure!(stage.pair.freshet.metrics()?.hits() == before + 10);
        writer.run("COMMIT")?;
        reader.send(&packets::close(statement.id))?;
        // Its number is nobody's now.
        let closed = reader.execute(statement, &[Value::Int(1)])?.error();
        ensure!(closed.as_ref().is_some_and(|(code, ..)| *code == 1243), "{closed:?}");
        Ok(())
    })
}

/// FOUND_ROWS() behind a hit whose statement was closed, on a connection that never had it; the types were left out.
fn hits_of_closed_statements(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut reader, mut other) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT name FROM item WHERE id <= ? LIMIT 1";
    let first = reader.prepare(sql)?;
    until_hit(&stage, &mut reader, first, &[Value::Int(2)])?;
    for _ in 0..3 {
        let statement = reader.prepare(sql)?;
        reader.execute(statement, &[Value::Int(3)])?;
        reader.command(&packets::execute_with(statement.id, 0, &[Value::Int(2)], false))?;
        reader.send(&packets::close(statement.id))?;
        ensure!(other.value("SELECT COUNT(*) FROM item")? == "3");
        ensure!(reader.value("SELECT FOUND_ROWS()")? == "1");
        ensure!(stage.is_free()?);
    }
    Ok(())
}

/// The session keeps its connection for these.
fn what_holds_a_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let kept = |pin: &str| {
        Ok::<_, anyhow::Error>(stage.pair.freshet.metrics()?.value(&format!("freshet_pins_total{{reason=\"{pin}\"}}")))
    };
    let mut client = stage.connect()?;
    let statement = client.prepare("SELECT n FROM line WHERE id <= ?")?;
    client.command(&packets::execute_with(statement.id, 1, &[Value::Int(3)], true))?;
    ensure!(!stage.is_free()? && kept("cursor")? > 0.0);
    client.fetch(&packets::fetch(statement.id, 2))?;
    ensure!(!stage.is_free()?);
    // The last row closes the cursor.
    client.fetch(&packets::fetch(statement.id, 2))?;
    ensure!(stage.is_free()?, "behind the last row");
    client.command(&packets::execute_with(statement.id, 1, &[Value::Int(3)], true))?;
    client.command(&packets::reset_statement(statement.id))?;
    ensure!(stage.is_free()?, "behind COM_STMT_RESET");
    client.command(&packets::reset_statement(statement.id))?;

    let text = client.prepare("SELECT CONCAT(?, name) FROM item WHERE id = 1")?;
    client.send(&packets::send_long_data(text.id, 0, b"a "))?;
    ensure!(client.command(&packets::ping())?.error().is_none());
    ensure!(!stage.is_free()? && kept("long_data")? > 0.0);
    ensure!(rows(&mut client, text, &[Value::Long])? == ["a kettle"]);
    ensure!(stage.is_free()?, "behind the execution");

    client.run("SET sql_mode = 'ANSI_QUOTES'")?;
    ensure!(!stage.is_free()? && kept("prepared_statement")? > 0.0, "under other settings");
    client.run("SET time_zone = '+01:00'")?;
    client.send(&packets::close(text.id))?;
    client.send(&packets::close(statement.id))?;
    until_free(&stage, &mut client).context("all are closed")?;
    Ok(())
}

/// Pieces of parameters, of several statements of one text and of several sessions.
fn long_data(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT CONCAT(?, name) FROM item WHERE id = 1";
    let (one, two, three) = (a.prepare(sql)?, a.prepare(sql)?, b.prepare(sql)?);
    for round in 0..3 {
        let piece = "x".repeat(round * 100_000 + 1);
        a.send(&packets::send_long_data(one.id, 0, piece.as_bytes()))?;
        b.send(&packets::send_long_data(three.id, 0, b"c"))?;
        ensure!(rows(&mut a, two, &[Value::Text("b")])? == ["bkettle"], "another statement of the same text");
        ensure!(rows(&mut b, three, &[Value::Long])? == ["ckettle"]);
        a.send(&packets::send_long_data(one.id, 0, b"y"))?;
        ensure!(rows(&mut a, one, &[Value::Long])? == [format!("{piece}ykettle")]);
        ensure!(rows(&mut a, one, &[Value::Text("z")])? == ["zkettle"], "it is used once");
    }
    Ok(())
}

/// A cursor of one session while others use statements of the same text.
fn cursors(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT CAST(n AS CHAR) FROM line WHERE id >= ? ORDER BY id";
    let (one, two, three) = (a.prepare(sql)?, a.prepare(sql)?, b.prepare(sql)?);
    a.command(&packets::execute_with(one.id, 1, &[Value::Int(1)], true))?;
    let mut read = Vec::new();
    for _ in 0..3 {
        read.extend(texts(&a.fetch(&packets::fetch(one.id, 1))?));
        ensure!(rows(&mut a, two, &[Value::Int(2)])? == ["2", "3"]);
        ensure!(rows(&mut b, three, &[Value::Int(3)])? == ["3"]);
    }
    ensure!(read == ["1", "2", "3"], "{read:?}");
    Ok(())
}

/// Tables change between executions: the answers are those of a session with a connection of its own.
fn definitions_in_between(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let play = |address| {
        let database = &stage.pair.database;
        database.run("DROP TABLE IF EXISTS changing; CREATE TABLE changing (id INT PRIMARY KEY, n INT)")?;
        database.run("INSERT INTO changing VALUES (1, 7)")?;
        let mut clients = [RawClient::login(address, stage.login())?, RawClient::login(address, stage.login())?];
        hear_anew(&mut clients);
        let mut prepare = |sql: &str| clients.each_mut().map(|client| client.prepare(sql));
        let all = prepare("SELECT * FROM changing WHERE id = ?");
        let insert = prepare("INSERT INTO changing (id, n) VALUES (?, 1)");
        let (all, insert) = ([all[0].as_ref(), all[1].as_ref()], [insert[0].as_ref(), insert[1].as_ref()]);
        for (step, ddl) in [
            "ALTER TABLE changing ADD COLUMN more VARCHAR(10) DEFAULT 'x'",
            "ALTER TABLE changing MODIFY n VARCHAR(20)",
            "DROP TABLE changing",
            "CREATE TABLE changing (id BIGINT PRIMARY KEY, n INT, m INT)",
            "ALTER TABLE changing DROP COLUMN m",
        ]
        .into_iter()
        .enumerate()
        {
            database.run(ddl)?;
            for (at, client) in clients.iter_mut().enumerate() {
                let id = Value::Int(i32::try_from(10 * step + at)?);
                let (all, insert) = (all[at].expect("prepared"), insert[at].expect("prepared"));
                client.execute(*insert, std::slice::from_ref(&id))?;
                client.execute(*all, &[id])?;
                client.query("SELECT COUNT(*) FROM item")?;
            }
        }
        Ok::<_, anyhow::Error>(clients.map(|client| without_changed_columns(client.heard)))
    };
    let direct = play(stage.pair.database.address()).context("direct")?;
    let through = play(stage.pair.address()).context("through Freshet")?;
    for (direct, through) in direct.iter().zip(&through) {
        ensure_same(direct, through)?;
    }
    Ok(())
}

/// MariaDB reports that the columns of a prepared statement have changed. A statement that was prepared since has always had these columns.
fn without_changed_columns(mut heard: Vec<Packet>) -> Vec<Packet> {
    const METADATA_CHANGED: u8 = 4;
    for packet in &mut heard {
        if let [0xfe, 0, 0, _, flags, ..] = packet.payload.as_mut_slice() {
            *flags &= !METADATA_CHANGED;
        }
    }
    heard
}

/// A statement keeps the meaning that its text had with the settings at its prepare.
fn other_settings(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let sql = "SELECT \"name\" FROM item WHERE id = ?";
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let plain = a.prepare(sql)?;
    let text = |client: &mut RawClient, statement| rows(client, statement, &[Value::Int(1)]);
    ensure!(text(&mut a, plain)? == ["name"]);
    b.run("SET sql_mode = 'ANSI_QUOTES'")?;
    let quoted = b.prepare(sql)?;
    ensure!(text(&mut b, quoted)? == ["kettle"] && text(&mut a, plain)? == ["name"]);
    for _ in 0..2 {
        ensure!(text(&mut a, plain)? == ["name"] && text(&mut b, quoted)? == ["kettle"]);
    }
    // The connection had it last for the other session.
    a.run("SET sql_mode = 'ANSI_QUOTES'")?;
    ensure!(text(&mut a, plain)? == ["name"]);
    let own = a.prepare(sql)?;
    ensure!(text(&mut a, own)? == ["kettle"] && text(&mut a, plain)? == ["name"]);
    a.send(&packets::close(plain.id))?;
    ensure!(text(&mut a, own)? == ["kettle"]);
    until_free(&stage, &mut a)?;
    ensure!(text(&mut b, quoted)? == ["kettle"]);
    // What does not concern the meaning of texts holds nothing.
    b.run("SET autocommit = 1, SESSION wait_timeout = 3000")?;
    until_free(&stage, &mut b)?;
    ensure!(text(&mut b, quoted)? == ["kettle"]);
    Ok(())
}

fn another_database(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let statement = a.prepare("SELECT CAST(COUNT(*) AS CHAR) FROM item WHERE id > ?")?;
    let own = b.prepare("SELECT CAST(COUNT(*) AS CHAR) FROM item WHERE id > ?")?;
    ensure!(rows(&mut b, own, &[Value::Int(1)])? == ["2"]);
    a.command(&packets::init_db("information_schema"))?;
    ensure!(rows(&mut a, statement, &[Value::Int(0)])? == ["3"]);
    ensure!(a.value("SELECT DATABASE()")? == "information_schema" && !stage.is_free()?);
    a.run(&format!("USE {}", stage.pair.database.name))?;
    until_free(&stage, &mut a).context("it is in its database again")?;
    ensure!(rows(&mut b, own, &[Value::Int(1)])? == ["2"]);
    ensure!(rows(&mut a, statement, &[Value::Int(1)])? == ["2"]);
    Ok(())
}

/// Numbers that a session has not been given are not those of others.
fn numbers_of_nobody(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let play = |address| {
        let mut clients = [RawClient::login(address, stage.login())?, RawClient::login(address, stage.login())?];
        hear_anew(&mut clients);
        let [a, b] = &mut clients;
        let secret = a.prepare("SELECT name FROM item WHERE id = ?")?;
        a.execute(secret, &[Value::Int(1)])?;
        for number in 1..12 {
            b.command(&packets::execute(number, &[Value::Int(1)]))?;
            b.fetch(&packets::fetch(number, 1))?;
            b.command(&packets::reset_statement(number))?;
            b.send(&packets::send_long_data(number, 0, b"x"))?;
            b.send(&packets::close(number))?;
        }
        a.execute(secret, &[Value::Int(2)])?;
        a.fetch(&packets::fetch(secret.id, 1))?;
        b.query("SELECT 1")?;
        Ok::<_, anyhow::Error>(clients.map(|client| client.heard))
    };
    let (direct, through) = (play(stage.pair.database.address())?, play(stage.pair.address())?);
    for (direct, through) in direct.iter().zip(&through) {
        ensure_same(direct, through)?;
    }
    Ok(())
}

/// COM_RESET_CONNECTION closes the session's statements, and those of nobody else.
fn resets(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT CAST(n AS CHAR) FROM line WHERE id = ?";
    let (one, other) = (a.prepare(sql)?, b.prepare(sql)?);
    ensure!(rows(&mut b, other, &[Value::Int(2)])? == ["2"]);
    for _ in 0..2 {
        a.command(&packets::reset_connection())?;
        let gone = a.execute(one, &[Value::Int(1)])?.error();
        ensure!(gone.as_ref().is_some_and(|(code, ..)| *code == 1243), "{gone:?}");
        // The error is gone, too.
        ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
        ensure!(rows(&mut b, other, &[Value::Int(2)])? == ["2"]);
    }
    let again = a.prepare(sql)?;
    ensure!(again.id != one.id && rows(&mut a, again, &[Value::Int(3)])? == ["3"]);
    Ok(())
}

/// The statements that are prepared on the connection, by the server's counters.
pub(super) fn prepared_there(client: &mut RawClient) -> Result<i64> {
    let answer = client.query("SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_prepare', 'Com_stmt_close')")?;
    let of = |name: &str| -> Result<i64> {
        let row = answer.rows().into_iter().find(|row| row[0].as_deref() == Some(name)).context("a counter")?;
        row[1].clone().context("a value")?.parse().context("a number")
    };
    Ok(of("Com_stmt_prepare")? - of("Com_stmt_close")?)
}

/// No more than the limit stay prepared on a connection; more can be used.
fn few_stay_prepared(kind: Kind) -> Result<()> {
    let options = ["--default-pool-size", "1", "--query-wait-timeout", "500ms", "--max-prepared-statements", "3"];
    let stage = Stage::with(kind, &options)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let prepare = |client: &mut RawClient, from: i32| {
        (from..from + 8)
            .map(|n| client.prepare(&format!("SELECT CAST(n + {n} AS CHAR) FROM line WHERE id = ?")))
            .collect::<Result<Vec<_>>>()
    };
    let (of_a, of_b) = (prepare(&mut a, 0)?, prepare(&mut b, 4)?);
    for _ in 0..2 {
        for at in 0..8 {
            ensure!(rows(&mut a, of_a[at], &[Value::Int(1)])? == [(1 + at).to_string()]);
            ensure!(rows(&mut b, of_b[7 - at], &[Value::Int(2)])? == [(2 + 4 + 7 - at).to_string()]);
        }
    }
    let there = prepared_there(&mut a)?;
    ensure!((1..=4).contains(&there), "{there} statements, one of them for a hit before the question");
    for statement in of_a {
        a.send(&packets::close(statement.id))?;
    }
    ensure!(prepared_there(&mut b)? <= 4);
    Ok(())
}

/// With a limit of none, statements keep their connection, as they did before.
fn none_stay_prepared(kind: Kind) -> Result<()> {
    let options = ["--default-pool-size", "1", "--query-wait-timeout", "500ms", "--max-prepared-statements", "0"];
    let stage = Stage::with(kind, &options)?;
    let mut client = stage.connect()?;
    let statement = client.prepare("SELECT CAST(n AS CHAR) FROM line WHERE id = ?")?;
    ensure!(!stage.is_free()? && rows(&mut client, statement, &[Value::Int(1)])? == ["1"]);
    client.send(&packets::close(statement.id))?;
    ensure!(client.value(READ)? == "kettle" && stage.is_free()?);
    Ok(())
}

/// SET TRANSACTION is for the next statement of the session, and not for a prepare of Freshet's own before it.
fn characteristics_of_the_next_transaction(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let play = |address| {
        stage.pair.database.run("TRUNCATE line")?;
        let (mut a, mut b) = (RawClient::login(address, stage.login())?, RawClient::login(address, stage.login())?);
        a.heard.clear();
        let insert = a.prepare("INSERT INTO line (n) VALUES (?)")?;
        let read_only = if kind == Kind::Mariadb { "tx_read_only" } else { "transaction_read_only" };
        let read = a.prepare(&format!("SELECT @@{read_only}, n FROM line WHERE id >= ?"))?;
        for statement in [insert, read] {
            // The other session has the connection on which they are prepared.
            b.run("BEGIN")?;
            b.run("UPDATE item SET name = 'kettle' WHERE id = 1")?;
            a.run("SET TRANSACTION READ ONLY")?;
            for _ in 0..2 {
                a.execute(statement, &[Value::Int(1)])?;
            }
            a.run("SET TRANSACTION READ ONLY")?;
            a.run("BEGIN")?;
            a.execute(insert, &[Value::Int(2)])?;
            a.query("SHOW WARNINGS")?;
            a.run("ROLLBACK")?;
            b.run("COMMIT")?;
            a.query("SELECT n FROM line")?;
        }
        Ok::<_, anyhow::Error>(a.heard)
    };
    ensure_same(&play(stage.pair.database.address())?, &play(stage.pair.address())?)
}
