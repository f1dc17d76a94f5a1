//! Every form of answer, from both servers, with each set of capabilities that affects it.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Mysqld;
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::ok::{self, StateChange};
use freshet_wire::mysql::packet::PACKET_PAYLOAD_MAX;
use freshet_wire::mysql::response::patch_status;

use crate::raw::{Raw, command, status_at};
use crate::{runtime, with_both};

const CONFIG: &[&str] = &["max-allowed-packet = 64M", "local-infile = ON"];

const SETUP: &str = "
    CREATE TABLE numbers (id INT PRIMARY KEY, name VARCHAR(20)) ENGINE = InnoDB;
    INSERT INTO numbers VALUES (1, 'one'), (2, NULL), (3, 'three');
    CREATE TABLE loaded (id INT, name VARCHAR(20)) ENGINE = InnoDB;
    DELIMITER //
    CREATE PROCEDURE two() BEGIN SELECT id FROM numbers; SELECT name FROM numbers LIMIT 1; END //
    CREATE PROCEDURE fails() BEGIN SELECT id FROM numbers; SELECT * FROM missing; END //
    CREATE PROCEDURE gives(OUT x INT) BEGIN SET x = 7; END //
    DELIMITER ;
";

#[test]
fn answers_end_where_they_end() -> Result<()> {
    with_both(CONFIG, |server| {
        server.sql(SETUP)?;
        runtime().block_on(async {
            let mut seen = HashSet::new();
            for wanted in shapes() {
                let what = || format!("{wanted:x}");
                let mut raw = Raw::login(&server.url(), wanted).await.with_context(what)?;
                if !seen.insert(raw.capabilities) {
                    continue;
                }
                texts(&mut raw).await.with_context(what)?;
                several(&mut raw).await.with_context(what)?;
                prepared(&mut raw).await.with_context(what)?;
                cursors(&mut raw).await.with_context(what)?;
                odd_commands(&mut raw, server).await.with_context(what)?;
                files(&mut raw).await.with_context(what)?;
            }
            let mut raw = Raw::login(&server.url(), Capabilities::DEPRECATE_EOF).await?;
            great_rows(&mut raw).await?;
            great_rows(&mut Raw::login(&server.url(), Capabilities(0)).await?).await
        })
    })
}

/// The sets of capabilities that affect the form of answers. No server has all.
fn shapes() -> [Capabilities; 8] {
    let (track, ok, none) = (Capabilities::SESSION_TRACK, Capabilities::DEPRECATE_EOF, Capabilities(0));
    let optional = Capabilities::OPTIONAL_RESULTSET_METADATA;
    let mariadb = Capabilities::MARIADB_CACHE_METADATA
        .with(Capabilities::MARIADB_EXTENDED_METADATA)
        .with(Capabilities::MARIADB_PROGRESS);
    [none, ok, track, track.with(ok), optional, optional.with(ok), mariadb, mariadb.with(track).with(ok)]
}

async fn texts(raw: &mut Raw) -> Result<()> {
    let one = raw.query("SELECT 1 AS a, NULL AS b").await?;
    ensure!(
        (one.done.columns, one.done.rows, one.done.result_sets, one.done.results) == (2, 1, 1, 1),
        "{:?}",
        one.done
    );
    ensure!(one.done.status.is_some_and(|status| status.has(Status::AUTOCOMMIT)), "{:?}", one.done);
    let places = if raw.capabilities.has(Capabilities::DEPRECATE_EOF) { 1 } else { 2 };
    ensure!(one.done.status_places.len() == places, "{:?}", one.done);
    let mut patched = one.bytes.clone();
    patch_status(&mut patched, &one.done.status_places, Status::IN_TRANS, Status::IN_TRANS.with(Status::AUTOCOMMIT));
    for place in &one.done.status_places {
        let (was, is) = (status_at(&one.bytes, *place), status_at(&patched, *place));
        ensure!(is == was.without(Status::AUTOCOMMIT).with(Status::IN_TRANS), "{was:?} {is:?}");
    }
    let none = raw.query("SELECT id FROM numbers WHERE id > 100").await?;
    ensure!((none.done.rows, none.done.result_sets) == (0, 1), "{:?}", none.done);
    let many = raw.query("SELECT a.id, b.name FROM numbers a, numbers b, numbers c, numbers d, numbers e").await?;
    ensure!(many.done.rows == 243, "{:?}", many.done);
    let wrong = raw.query("SELECT * FROM missing").await?;
    ensure!((wrong.done.error, wrong.done.status, wrong.done.rows) == (Some(1146), None, 0), "{:?}", wrong.done);
    let warned = raw.query("SELECT CAST('x' AS SIGNED)").await?;
    ensure!(warned.done.warnings == 1, "{:?}", warned.done);
    raw.query("BEGIN").await?;
    let inside = raw.query("SELECT 1").await?;
    ensure!(inside.done.status.is_some_and(|status| status.has(Status::IN_TRANS)), "{:?}", inside.done);
    let written = raw.query("UPDATE numbers SET name = 'x' WHERE id = 1").await?;
    let read = ok::Ok::parse(&written.last, raw.capabilities)?;
    ensure!((read.affected_rows, written.done.result_sets) == (1, 0), "{read:?}");
    raw.query("ROLLBACK").await?;
    let used = raw.query("USE mysql").await?;
    let read = ok::Ok::parse(&used.last, raw.capabilities)?;
    let told = ok::state_changes(read.state)?.contains(&StateChange::Schema(b"mysql"));
    ensure!(told == raw.capabilities.has(Capabilities::SESSION_TRACK), "{read:?}");
    raw.query("USE freshet").await?;
    Ok(())
}

async fn several(raw: &mut Raw) -> Result<()> {
    let batch = raw.query("SELECT id FROM numbers; SET @a = 1; SELECT 1 UNION SELECT 2").await?;
    let done = batch.done;
    ensure!((done.results, done.result_sets, done.rows, done.columns) == (3, 2, 5, 1), "{done:?}");
    let failed = raw.query("SELECT 1; SELECT * FROM missing; SELECT 2").await?.done;
    ensure!((failed.error, failed.rows, failed.results) == (Some(1146), 1, 1), "{failed:?}");
    let called = raw.query("CALL two()").await?.done;
    ensure!((called.results, called.result_sets, called.rows) == (3, 2, 4), "{called:?}");
    let failed = raw.query("CALL fails()").await?.done;
    ensure!((failed.error, failed.rows) == (Some(1146), 3), "{failed:?}");
    Ok(())
}

async fn prepared(raw: &mut Raw) -> Result<()> {
    let wrong = raw.ask(&command(0x16, b"SELECT * FROM missing")).await?.done;
    ensure!((wrong.error, wrong.prepared) == (Some(1146), None), "{wrong:?}");
    for (sql, parameters, columns) in [
        ("SELECT id, name FROM numbers WHERE id = ? OR name = ?", 2, 2),
        ("SELECT id FROM numbers", 0, 1),
        ("UPDATE numbers SET name = ? WHERE id = 99", 1, 0),
        ("SET @b = 1", 0, 0),
    ] {
        let answer = raw.ask(&command(0x16, sql.as_bytes())).await?.done;
        let statement = answer.prepared.context("no statement")?;
        ensure!((statement.parameters, statement.columns) == (parameters, columns), "{answer:?}");
        // LONGLONG 3 and VAR_STRING "one", as many as it takes.
        let mut message = execute(statement.statement, 0);
        if parameters > 0 {
            message.extend_from_slice(&[0, 1]);
            let types: &[u8] = &[8, 0, 253, 0];
            let values: &[u8] = b"\x03\0\0\0\0\0\0\0\x03one";
            let skip = usize::from(parameters == 1);
            message.extend_from_slice(&types[skip * 2..]);
            message.extend_from_slice(&values[skip * 8..]);
        }
        for _ in 0..2 {
            let answer = raw.ask(&message).await?.done;
            ensure!(answer.error.is_none() && answer.columns == u64::from(columns), "{sql}: {answer:?}");
            ensure!(answer.rows == if columns == 0 { 0 } else { u64::from(4 - columns) }, "{sql}: {answer:?}");
        }
        raw.send(&mut 0, &command(0x19, &statement.statement.to_le_bytes())).await?;
        let gone = raw.ask(&execute(statement.statement, 0)).await?.done;
        ensure!(gone.error == Some(1243), "{gone:?}");
    }
    let call = raw.ask(b"\x16CALL two()").await?.done.prepared.context("no statement")?;
    let called = raw.ask(&execute(call.statement, 0)).await?.done;
    ensure!((called.results, called.result_sets, called.rows) == (3, 2, 4), "{called:?}");
    let call = raw.ask(b"\x16CALL gives(?)").await?.done.prepared.context("no statement")?;
    let message = [&execute(call.statement, 0)[..], b"\0\x01\x08\0\0\0\0\0\0\0\0\0"].concat();
    let given = raw.ask(&message).await?.done;
    ensure!((given.result_sets, given.rows) == (1, 1), "{given:?}");
    if raw.capabilities.has(Capabilities::OPTIONAL_RESULTSET_METADATA) {
        raw.query("SET resultset_metadata = NONE").await?;
        let bare = raw.query("SELECT id, name FROM numbers").await?.done;
        ensure!(bare.without_definitions && (bare.rows, bare.columns) == (3, 2), "{bare:?}");
        let bare = raw.ask(b"\x16SELECT id FROM numbers WHERE id = ?").await?.done;
        ensure!(bare.prepared.is_some() && bare.without_definitions, "{bare:?}");
        raw.query("SET resultset_metadata = FULL").await?;
    }
    Ok(())
}

fn execute(statement: u32, flags: u8) -> Vec<u8> {
    let mut message = vec![0x17];
    message.extend_from_slice(&statement.to_le_bytes());
    message.extend_from_slice(&[flags, 1, 0, 0, 0]);
    message
}

async fn cursors(raw: &mut Raw) -> Result<()> {
    let statement = raw.ask(b"\x16SELECT id FROM numbers ORDER BY id").await?.done.prepared.context("no statement")?;
    let opened = raw.ask(&execute(statement.statement, 1)).await?.done;
    ensure!((opened.cursor, opened.rows, opened.columns) == (true, 0, 1), "{opened:?}");
    let mut fetch = command(0x1c, &statement.statement.to_le_bytes());
    fetch.extend_from_slice(&2_u32.to_le_bytes());
    let mut rows = Vec::new();
    for _ in 0..3 {
        let fetched = raw.ask(&fetch).await?.done;
        rows.push((fetched.rows, fetched.status.is_some_and(|status| status.has(Status::LAST_ROW_SENT))));
        if rows.last().is_some_and(|(_, last)| *last) {
            break;
        }
    }
    ensure!(rows.iter().map(|(rows, _)| rows).sum::<u64>() == 3 && rows.last().is_some_and(|r| r.1), "{rows:?}");
    let reset = raw.ask(&command(0x1a, &statement.statement.to_le_bytes())).await?.done;
    ensure!(reset.error.is_none(), "{reset:?}");
    let closed = raw.ask(&fetch).await?.done;
    ensure!(closed.error.is_some(), "{closed:?}");
    Ok(())
}

async fn odd_commands(raw: &mut Raw, server: &Mysqld) -> Result<()> {
    let fields = raw.ask(b"\x04numbers\0").await?.done;
    ensure!((fields.columns, fields.error) == (2, None), "{fields:?}");
    ensure!(raw.ask(b"\x04missing\0").await?.done.error == Some(1146));
    let statistics = raw.ask(b"\x09").await?;
    ensure!(statistics.last.starts_with(b"Uptime: ") && statistics.done.status.is_none());
    for option in [1_u8, 0] {
        ensure!(raw.ask(&[0x1b, option, 0]).await?.done.error.is_none());
    }
    ensure!(raw.ask(b"\x1b\0\0").await?.done.error.is_none());
    ensure!(raw.ask(b"\x02mysql").await?.done.error.is_none());
    ensure!(raw.ask(b"\x02missing").await?.done.error == Some(1049));
    ensure!(raw.ask(b"\x0d").await?.done.error.is_none());
    ensure!(raw.ask(b"\x7f").await?.done.error == Some(1047));
    ensure!(raw.ask(b"\x1f").await?.done.error.is_none());
    let named = format!("\x11{}\0\0freshet\0\x2d\0mysql_native_password\0", server.superuser());
    let changed = raw.ask(named.as_bytes()).await?.done;
    ensure!(changed.error.is_none() && changed.status.is_some(), "{changed:?}");
    // The servers differ in what they do with the connection then.
    let unknown = raw.ask_with_file(b"\x11nobody\0\0\0\x2d\0mysql_native_password\0", &[]).await?.done;
    ensure!(unknown.error.is_some(), "{unknown:?}");
    *raw = Raw::login(&server.url(), raw.capabilities).await?;
    Ok(())
}

async fn files(raw: &mut Raw) -> Result<()> {
    let load = command(0x03, b"LOAD DATA LOCAL INFILE 'anything' INTO TABLE loaded");
    let told = raw.ask_with_file(&load, &[b"1\tone\n2\t", b"two\n"]).await?;
    ensure!(told.done.sent_file && told.done.error.is_none(), "{:?}", told.done);
    ensure!(ok::Ok::parse(&told.last, raw.capabilities)?.affected_rows == 2);
    let missing = command(0x03, b"LOAD DATA LOCAL INFILE 'anything' INTO TABLE missing");
    let told = raw.ask_with_file(&missing, &[b"1\tone\n"]).await?;
    ensure!(told.done.error == Some(1146), "{:?}", told.done);
    let both = command(0x03, b"LOAD DATA LOCAL INFILE 'anything' INTO TABLE loaded; SELECT 1");
    let told = raw.ask_with_file(&both, &[b"3\tthree\n"]).await?;
    ensure!((told.done.results, told.done.rows) == (2, 1), "{:?}", told.done);
    raw.query("DELETE FROM loaded").await?;
    Ok(())
}

/// Rows around the sizes at which packets are split, of which some begin like the end of rows.
async fn great_rows(raw: &mut Raw) -> Result<()> {
    raw.piece_bytes_max = PACKET_PAYLOAD_MAX;
    for length in
        [PACKET_PAYLOAD_MAX - 5, PACKET_PAYLOAD_MAX - 4, PACKET_PAYLOAD_MAX, 17_000_000, 2 * PACKET_PAYLOAD_MAX - 9]
    {
        let told = raw.query(&format!("SELECT REPEAT('x', {length})")).await?;
        ensure!((told.done.rows, told.done.error) == (1, None), "{length}: {:?}", told.done);
        ensure!(told.bytes.len() > length && told.bytes.len() < length + 200, "{length}: {}", told.bytes.len());
    }
    Ok(())
}
