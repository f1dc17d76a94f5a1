//! Clients that vanish silently, as with a cable that is pulled: packets to them are never acknowledged, and nothing arrives from them, not even a
//! FIN.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::{Database, Kind, Pair, RawClient, on_both, packets};
use crate::support::{PATIENCE, eventually};
use crate::wire::deaths::keepalive;

on_both!(keepalive_on_both_legs);

/// The kernel asks ten times or so, five seconds apart, before it gives a connection up.
const SILENCE: Duration = Duration::from_secs(150);
const CLIENTS: usize = 20;
const MIB: u64 = 1 << 20;

/// Drops all that comes to a socket before TCP hears of it: a filter that takes nothing (`SO_ATTACH_FILTER`).
const DEAFEN: &str = "
import ctypes, socket, struct
s = socket.socket(fileno=0)
nothing = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))
s.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HP', 1, ctypes.addressof(nothing)))
s.detach()
";

fn vanish(client: &RawClient) -> Result<()> {
    let socket: OwnedFd = client.socket()?.into();
    let output = Command::new("python3").args(["-c", DEAFEN]).stdin(Stdio::from(socket)).output().context("python3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
#[ignore = "keepalive takes a minute; make test-long runs it"]
fn mariadb_at_length() -> Result<()> {
    clients_that_vanish(Kind::Mariadb)
}

#[test]
#[ignore = "keepalive takes a minute; make test-long runs it"]
fn mysql_at_length() -> Result<()> {
    clients_that_vanish(Kind::Mysql)
}

/// After ten silent seconds the kernel asks the other end whether it is there.
fn keepalive_on_both_legs(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let own = "SELECT SUBSTRING_INDEX(host, ':', -1) FROM information_schema.processlist WHERE id = CONNECTION_ID()";
    let port: u16 = client.value(own)?.parse()?;
    let legs = [
        (pair.address(), client.socket()?.local_addr()?),
        (SocketAddr::new(pair.address().ip(), port), pair.database.address()),
    ];
    for (local, remote) in legs {
        // While data is in flight another timer runs.
        let left =
            eventually(PATIENCE, || keepalive(local, remote)?.with_context(|| format!("no keepalive to {remote}")))?;
        ensure!(left <= 1000, "the first question to {remote} after {left} hundredths of a second");
    }
    Ok(())
}

/// What Freshet holds: open descriptors and resident bytes.
fn held(pair: &Pair) -> Result<(usize, u64)> {
    let pid = pair.freshet.pid().context("no process")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let resident = line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024;
    Ok((fs::read_dir(format!("/proc/{pid}/fd"))?.count(), resident))
}

/// Sessions on the server by these numbers.
fn left(watcher: &mut RawClient, numbers: &[String]) -> Result<String> {
    let numbers = numbers.join(",");
    watcher.value(&format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id IN ({numbers})"))
}

/// Their locks are free, their blocks are rolled back, and all that Freshet held for them is given back.
fn clients_that_vanish(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut watcher = pair.database.connect()?;
    pair.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE id = 1").map(drop)
    })?;
    let sessions = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.value("freshet_sessions"));
    let none = || {
        let sessions = sessions()?;
        ensure!(sessions == 0.0, "{sessions} sessions");
        Ok(())
    };
    eventually(PATIENCE, none)?;
    let before = held(&pair)?;
    let mut resting: Vec<RawClient> = (0..CLIENTS).map(|_| pair.connect()).collect::<Result<_>>()?;
    for client in &mut resting {
        client.run("SELECT name FROM item WHERE id = 1")?;
        vanish(client)?;
    }
    let mut locker = pair.connect()?;
    locker.run("SELECT GET_LOCK('gone', 0); BEGIN; INSERT INTO log (line) VALUES ('rolled back')")?;
    vanish(&locker)?;
    // What is on its way to one that vanished is sent again for many minutes. The server does not wait for so long.
    let mut reading: Vec<RawClient> = (0..2).map(|_| pair.connect()).collect::<Result<_>>()?;
    let mut numbers: Vec<String> = Vec::new();
    for client in &mut reading {
        numbers.push(client.handshake.connection.to_string());
        client.run("SET SESSION net_write_timeout = 1")?;
        vanish(client)?;
        client.send(&packets::query("SELECT REPEAT('y', 1000000) FROM item a, item b, item c, item d"))?;
    }
    eventually(SILENCE, || {
        ensure!(left(&mut watcher, &numbers)? == "0", "the server waits for who reads nothing");
        Ok(())
    })?;
    numbers = resting.iter().chain([&locker]).map(|client| client.handshake.connection.to_string()).collect();
    eventually(SILENCE, || {
        let (there, sessions) = (left(&mut watcher, &numbers)?, sessions()?);
        ensure!(there == "0" && sessions <= 2.0, "{there} sessions on the server, {sessions} in Freshet");
        Ok(())
    })?;
    ensure!(watcher.value("SELECT IS_FREE_LOCK('gone')")? == "1", "its lock is not free");
    ensure!(watcher.value("SELECT COUNT(*) FROM log")? == "0", "its block was not rolled back");
    drop(reading); // which sends an end
    eventually(PATIENCE, || {
        none()?;
        let now = held(&pair)?;
        ensure!(now.0 <= before.0 && now.1 < before.1 + 16 * MIB, "{before:?} became {now:?}");
        Ok(())
    })
}
