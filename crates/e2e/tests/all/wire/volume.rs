//! Gigabytes in bounded memory, on the newest version only: one result, one statement, one parameter, one copy; and the behaviour when either side
//! stops reading.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Settings, process};

use crate::cached::until_hit;
use crate::support::frames::{copy_data, copy_done, execute, parse, query, sync};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, time_passes};

const MEGABYTE: usize = 1 << 20;
/// By how much the process may grow, whatever passes through it.
const GROWTH_MAX: u64 = 24 << 20;

fn pair() -> Result<Pair> {
    Pair::new(Version::V18, "create table filled (content text)")
}

/// Skips to ReadyForQuery: how many bytes came, and the tag of the message before it.
fn skim(client: &RawClient) -> Result<(u64, u8)> {
    let mut socket = client.socket()?;
    let mut chunk = vec![0; 4 * MEGABYTE];
    let (mut bytes, mut last) = (0, 0);
    loop {
        let mut head = [0; 5];
        socket.read_exact(&mut head)?;
        let [tag, length @ ..] = head;
        let mut left = usize::try_from(u32::from_be_bytes(length))?.checked_sub(4).context("a length below 4")?;
        bytes += left as u64 + 5;
        while left > 0 {
            let piece = left.min(chunk.len());
            socket.read_exact(chunk.get_mut(..piece).context("a piece")?)?;
            left -= piece;
        }
        match tag {
            b'Z' => return Ok((bytes, last)),
            b'E' => bail!("an error: {}", chunk.escape_ascii().take(300).collect::<Vec<_>>().escape_ascii()),
            tag => last = tag,
        }
    }
}

/// Runs it; the memory that Freshet holds stays bounded.
fn bounded(pair: &Pair, pass: impl FnOnce(&mut RawClient) -> Result<()>) -> Result<()> {
    let mut client = pair.connect()?;
    client.expect_silence()?;
    let before = pair.freshet.peak_memory()?;
    pass(&mut client)?;
    let growth = pair.freshet.peak_memory()? - before;
    ensure!(growth < GROWTH_MAX, "the process grew by {growth} bytes");
    client.expect_silence()
}

#[test]
fn a_result_of_more_than_a_gigabyte() -> Result<()> {
    bounded(&pair()?, |client| {
        client.send(&query("select repeat('x', 1048576) from generate_series(1, 1100)"))?;
        let (bytes, last) = skim(client)?;
        ensure!(bytes > 1100 << 20 && last == b'C', "{bytes} bytes, then {last}");
        Ok(())
    })
}

/// A message of so many blocks of `x` between a head and a tail; nothing holds all of it.
fn send_large(socket: &mut TcpStream, tag: u8, head: &[u8], blocks: usize, tail: &[u8]) -> Result<()> {
    let length = head.len() + blocks * MEGABYTE + tail.len() + 4;
    socket.write_all(&[&[tag], u32::try_from(length)?.to_be_bytes().as_slice(), head].concat())?;
    let block = vec![b'x'; MEGABYTE];
    for _ in 0..blocks {
        socket.write_all(&block)?;
    }
    Ok(socket.write_all(tail)?)
}

/// PostgreSQL itself takes no longer messages than 1 GB, and needs several times as much memory for one.
#[test]
fn statements_and_parameters_of_hundreds_of_megabytes() -> Result<()> {
    let blocks = 256;
    bounded(&pair()?, |client| {
        let mut socket = client.socket()?;
        send_large(&mut socket, b'Q', b"select length('", blocks, b"')\0")?;
        ensure!(skim(client)?.1 == b'C', "no answer to the statement");
        client.send(&parse("", "select length($1::text), random() < 2"))?;
        // The unnamed portal and statement, text, one value, results in text.
        let size = u32::try_from(blocks * MEGABYTE)?.to_be_bytes();
        let head = [b"\0\0\0\0\0\x01".as_slice(), &size].concat();
        send_large(&mut socket, b'B', &head, blocks, b"\0\0")?;
        client.send(&[execute("", 0), sync()].concat())?;
        ensure!(skim(client)?.1 == b'C', "no answer to the parameter");
        Ok(())
    })
}

/// The server waits until the client reads again; Freshet neither swells nor keeps others waiting.
#[test]
fn a_client_that_does_not_read() -> Result<()> {
    let pair = pair()?;
    bounded(&pair, |client| {
        let pid = client.value("select pg_backend_pid()")?;
        client.send(&query("select repeat('x', 1048576) from generate_series(1, 100)"))?;
        let mut watcher = pair.connect()?;
        for _ in 0..3 {
            eventually(PATIENCE, || {
                let waits = watcher.value(&format!("select wait_event from pg_stat_activity where pid = {pid}"))?;
                ensure!(waits == "ClientWrite", "the server waits for {waits}");
                Ok(())
            })?;
            time_passes("it goes on waiting", Duration::from_millis(300));
        }
        ensure!(skim(client)?.0 > 100 << 20, "not all came");
        Ok(())
    })
}

fn cpu_seconds(pair: &Pair) -> Result<f64> {
    pair.freshet.pid().map_or(Ok(0.0), process::cpu_seconds)
}

/// A thousand sessions that have read something and now say nothing: their memory, and that others are still served.
#[test]
fn a_thousand_idle_sessions() -> Result<()> {
    let settings = Settings::default().with("max_connections = 1100").with("max_wal_senders = 5");
    let schema = "create table small (id int primary key, name text); insert into small values (1, 'one')";
    let pair = Pair::over(Database::create(Version::V18.start(&settings)?)?, schema, &[])?;
    let read = "select name from small where id = 1";
    let mut sessions = vec![pair.connect()?];
    until_hit(&pair, &mut sessions[0], read)?;
    let before = pair.freshet.peak_memory()?;
    while sessions.len() < 1000 {
        let mut session = pair.connect()?;
        ensure!(session.value(read)? == "one", "another answer");
        sessions.push(session);
    }
    let each = (pair.freshet.peak_memory()? - before) / 1000;
    ensure!(each < 64 << 10, "{each} bytes for each idle session");
    let idle = cpu_seconds(&pair)?;
    time_passes("a second of silence", Duration::from_secs(1));
    let idle = cpu_seconds(&pair)? - idle;
    ensure!(idle < 0.5, "{idle} seconds of processor time in a second of silence");
    for session in sessions.iter_mut().step_by(50) {
        ensure!(session.value(read)? == "one", "another answer");
    }
    Ok(())
}

/// The client waits until the server reads again: what it may send ahead is bounded.
#[test]
fn a_server_that_does_not_read() -> Result<()> {
    let pair = pair()?;
    bounded(&pair, |client| {
        let pid = client.value("select pg_backend_pid()")?.parse()?;
        client.send(&query("copy filled from stdin"))?;
        client.until(b'G')?;
        process::pause(pid)?;
        let mut socket = client.socket()?;
        socket.set_write_timeout(Some(Duration::from_secs(1)))?;
        let line = copy_data(&[vec![b'x'; MEGABYTE - 1], b"\n".to_vec()].concat());
        let mut sent = 0;
        let stuck = loop {
            // All of it must arrive in the end, so what a time-out has cut is sent on from there.
            match socket.write(line.get(sent % line.len()..).unwrap_or_default()) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) => bail!("{error}"),
            }
            if sent > 200 * MEGABYTE {
                break false;
            }
        };
        process::resume(pid)?;
        ensure!(stuck, "{sent} bytes were taken although the server does not read");
        socket.set_write_timeout(Some(Duration::from_secs(30)))?;
        socket.write_all(line.get(sent % line.len()..).unwrap_or_default())?;
        client.exchange(&copy_done(), 1)?;
        let lines = sent / line.len() + 1;
        ensure!(client.value("select count(*) from filled")? == lines.to_string(), "not all lines came");
        Ok(())
    })
}
