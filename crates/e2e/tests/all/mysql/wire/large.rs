//! Packets of 16 MiB and more, which are split, and answers that are too large for memory.

use std::hash::{DefaultHasher, Hasher};

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Kind, Pair, RawClient, on_both};
use crate::support::{Metrics, PATIENCE, eventually, rest};

on_both!(statements, values, lengths_at_the_edge, too_large, many_columns_and_rows, bounded_memory, slow_readers);

#[test]
#[ignore = "results of 1 GB; make test-long runs it"]
fn mariadb_at_length() -> Result<()> {
    larger_than_memory_should_hold(Kind::Mariadb)
}

#[test]
#[ignore = "results of 1 GB; make test-long runs it"]
fn mysql_at_length() -> Result<()> {
    larger_than_memory_should_hold(Kind::Mysql)
}

const PIECE: usize = 0xff_ffff;
const MIB: u64 = 1 << 20;

fn statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_as(pair.login(), |c| {
        c.query(&format!("SELECT name, LENGTH('{}') FROM item WHERE id = 1", "x".repeat(20_000_000)))?;
        c.query(&format!("SELECT name FROM item WHERE id = 1 -- {}", "x".repeat(17_000_000)))?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.expect_silence()
    })
}

fn values(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_as(pair.login(), |c| {
        c.query("SELECT id, REPEAT('y', 17000000 + id) FROM item ORDER BY id LIMIT 2")?;
        let statement = c.prepare("SELECT LENGTH(?), ?")?;
        let large = vec![b'z'; 18_000_000];
        c.execute(statement, &[Value::Bytes(&large), Value::Bytes(&large)])?;
        for _ in 0..3 {
            c.send(&packets::send_long_data(statement.id, 0, &large))?;
        }
        c.execute(statement, &[Value::Long, Value::Int(1)])?;
        c.expect_silence()
    })
}

/// The whole packet just below, at and above the length at which another piece begins.
fn lengths_at_the_edge(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_as(pair.login(), |c| {
        for whole in [PIECE - 1, PIECE, PIECE + 1] {
            let sql = "SELECT name FROM item WHERE id = 1 -- ";
            c.query(&format!("{sql}{}", "x".repeat(whole - 1 - sql.len())))?;
            // A row of one value has its length in 4 bytes before it.
            let answer = c.query(&format!("SELECT REPEAT('y', {})", whole - 4))?;
            ensure!(answer.packets.iter().any(|packet| packet.payload.len() == whole), "no packet of {whole} bytes");
            c.query("SELECT name FROM item WHERE id = 1")?;
        }
        c.expect_silence()
    })
}

/// Beyond what the server takes.
fn too_large(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_as(pair.login(), |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT LENGTH(REPEAT('y', 70000000)), name FROM item WHERE id = 1")?;
        c.expect_silence()
    })?;
    // The server answers and closes, while the client may still be sending.
    let mut client = pair.connect()?;
    let _ = client.send(&packets::query(&format!("SELECT '{}'", "x".repeat(70_000_000))));
    if let Ok(Some(packet)) = client.read_or_end() {
        ensure!(packet.payload.starts_with(&[0xff, 0x81, 0x04]), "{packet:?}");
    }
    pair.connect()?.expect_silence()
}

fn many_columns_and_rows(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let columns: Vec<String> = (0..1000).map(|n| format!("id + {n} AS c{n}")).collect();
    pair.same_with_hits(1, |c| {
        c.query("SELECT a.id, b.name FROM item a, item b, item c, item d ORDER BY 1, 2")?;
        c.query("SELECT a.id, b.name FROM item a, item b, item c, item d ORDER BY 1, 2")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        // More packets than a count of one byte; and a text that is too long to be looked at.
        c.query(&format!("SELECT {} FROM item ORDER BY id", columns.join(", ")))?;
        c.expect_silence()
    })
}

/// A result of 500 MB that the client does not read for a while, and one that it reads.
fn bounded_memory(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let large = "SELECT REPEAT('y', 1000000) FROM item a, item b, item c, item d WHERE a.id < 5";
    let mut slow: Vec<RawClient> = (0..2).map(|_| pair.connect()).collect::<Result<_>>()?;
    for client in &mut slow {
        client.send(&packets::query(large))?;
    }
    rest();
    let mut rows = 0;
    let mut client = pair.connect()?;
    client.send(&packets::query(large))?;
    while client.read()?.payload.first() != Some(&0xfe) {
        client.heard.clear();
        rows += 1;
    }
    ensure!(rows == 2 + 500, "{rows} packets");
    let peak = pair.freshet.peak_memory()?;
    ensure!(peak < 200 * MIB, "{} MiB", peak / MIB);
    drop(slow);
    pair.connect()?.expect_silence()
}

/// Results that are too large for the cache are not waited for; results of others are.
fn slow_readers(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let fills = |metrics: &Metrics| metrics.count("freshet_fills_total");
    let before = fills(&pair.freshet.metrics()?);
    let mut slow = Vec::new();
    eventually(PATIENCE, || {
        let metrics = pair.freshet.metrics()?;
        let (begun, left) = (fills(&metrics) - before, metrics.count("freshet_fills_in_flight"));
        if begun < 3 {
            // One may pass, while definitions change.
            let mut client = pair.connect()?;
            let name = format!("RPAD(a.name, 1000000, '{}')", slow.len());
            client.send(&packets::query(&format!("SELECT {name} FROM item a, item b, item c, item d")))?;
            slow.push(client);
        }
        ensure!(begun >= 3 && left == 0, "{begun} fills were begun, {left} have not ended");
        Ok(())
    })
}

/// The number of packets of an answer, their bytes, and a digest of them.
fn drained(client: &mut RawClient, payload: &[u8]) -> Result<(u64, u64, u64)> {
    let (mut packets, mut bytes, mut digest) = (0, 0, DefaultHasher::new());
    client.send(payload)?;
    loop {
        let packet = client.read()?;
        client.heard.clear();
        (packets, bytes) = (packets + 1, bytes + packet.payload.len() as u64);
        digest.write(&packet.payload);
        if packet.payload.first() == Some(&0xfe) && packet.payload.len() < 100 {
            return Ok((packets, bytes, digest.finish()));
        }
    }
}

/// Every byte of 1 GB, as text and in the binary protocol.
fn larger_than_memory_should_hold(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let sql = "SELECT REPEAT(CONCAT(a.id, b.id, c.id, d.id, 'ü '), 240000), a.name FROM item a, item b, item c, item d";
    let both = |mut client: RawClient| {
        let statement = client.prepare(sql)?;
        let binary = drained(&mut client, &packets::execute(statement.id, &[]))?;
        let text = drained(&mut client, &packets::query(sql))?;
        client.expect_silence()?;
        Ok::<_, anyhow::Error>([binary, text])
    };
    let direct = both(pair.database.connect()?)?;
    let through = both(pair.connect()?)?;
    ensure!(direct == through, "directly {direct:?}, through Freshet {through:?}");
    ensure!(direct.iter().all(|(_, bytes, _)| *bytes > 1_000_000_000), "{direct:?}");
    let peak = pair.freshet.peak_memory()?;
    ensure!(peak < 200 * MIB, "{} MiB", peak / MIB);
    Ok(())
}
