//! The upstream dies or freezes during an answer: the client gets what it would get directly, and no incomplete result is cached. Keepalive detects a
//! peer that vanishes silently.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Settings, process};

use super::SCHEMA;
use crate::cached::until_hit;
use crate::support::frames::query;
use crate::support::{
    Database, Message, PATIENCE, Pair, RawClient, Version, ensure_same, eventually, on_both_at_length, time_passes,
};

on_both_at_length!(
    killed_while_a_result_passes,
    killed_while_a_result_is_kept,
    a_backend_is_frozen,
    the_server_is_frozen,
    keepalive_on_both_legs,
);

const READ: &str = "select id, name from item where id = 1";
/// Cannot be cached, and is far larger than all buffers on the way.
const PASSING: &str = "select repeat('x', 1000), i, random() < 2 from generate_series(1, 200000) i";
/// Could be cached: few rows that come one by one for many seconds.
const TRICKLE: &str = "select a.id, repeat(a.name, 100) from item a, item b, item c, item d
    where (a.id * 31 + b.id * 37 + c.id * 41 + d.id * 43) % 9973 = 1";
/// The same, but soon over.
const SHORT_TRICKLE: &str = "select a.id, repeat(a.name, 100) from item a, item b, item c
    where (a.id * 31 + b.id * 37 + c.id * 41) % 997 = 1";

fn own_pair(version: Version) -> Result<Pair> {
    Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])
}

/// The tags of all messages up to the end of the connection, which may come within a message.
fn tags_to_the_end(client: &mut RawClient) -> String {
    let mut tags = String::new();
    while let Ok(Some(message)) = client.read_unheard() {
        tags.push(char::from(message.tag));
    }
    tags
}

/// A session in which that statement runs, and its backend's process; the first row has come.
fn running(pair: &Pair, address: SocketAddr, sql: &str) -> Result<(RawClient, u32)> {
    let mut client = RawClient::login(address, pair.login())?;
    let pid = client.value("select pg_backend_pid()")?.parse()?;
    client.heard.clear();
    client.send(&query(sql))?;
    client.until(b'D')?;
    Ok((client, pid))
}

/// Kills one backend, after which the server ends all others and recovers, or everything at once.
fn kill(pair: &Pair, backend: u32, whole_server: bool) -> Result<()> {
    let mut witness = pair.database.connect()?;
    if whole_server {
        pair.database.server.kill9()?;
        pair.database.server.start()?;
    } else {
        process::kill(backend)?;
    }
    // Until then the server takes connections as if nothing had happened.
    tags_to_the_end(&mut witness);
    Ok(())
}

fn up_again(pair: &Pair) -> Result<()> {
    eventually(PATIENCE, || pair.database.connect()?.expect_silence())?;
    eventually(PATIENCE, || pair.connect()?.expect_silence())?;
    pair.freshet.wait_ready()
}

/// Neither an error nor ReadyForQuery: the connection just ends.
fn killed_while_a_result_passes(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    for whole_server in [false, true] {
        for address in [pair.database.address(), pair.address()] {
            let (mut client, pid) = running(&pair, address, PASSING)?;
            kill(&pair, pid, whole_server)?;
            let tags = tags_to_the_end(&mut client);
            ensure!(tags.chars().all(|tag| tag == 'D'), "the end: {}", tags.trim_start_matches('D'));
            up_again(&pair)?;
        }
    }
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

fn killed_while_a_result_is_kept(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    for whole_server in [false, true] {
        for address in [pair.database.address(), pair.address()] {
            let (mut client, pid) = running(&pair, address, TRICKLE)?;
            kill(&pair, pid, whole_server)?;
            let tags = tags_to_the_end(&mut client);
            ensure!(tags.chars().all(|tag| tag == 'D'), "the end: {}", tags.trim_start_matches('D'));
            up_again(&pair)?;
            // The query takes as long again: none of it was cached.
            let mut again = pair.connect()?;
            again.run("set statement_timeout = '300ms'")?;
            let answer = again.query(TRICKLE)?;
            ensure!(answer.iter().any(|m| m.field(b'C').as_deref() == Some("57014")), "an answer after {whole_server}");
        }
    }
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

/// The result waits and comes in full, and others are served meanwhile.
fn a_backend_is_frozen(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let mut other = pair.connect()?;
    until_hit(&pair, &mut other, READ)?;
    let mut direct = pair.database.connect()?;
    direct.query(SHORT_TRICKLE)?;
    let (mut client, pid) = running(&pair, pair.address(), SHORT_TRICKLE)?;
    process::pause(pid)?;
    time_passes("longer than D", Duration::from_millis(1300));
    until_hit(&pair, &mut other, READ)?;
    process::resume(pid)?;
    client.until(b'Z')?;
    ensure_same(&direct.heard, &client.heard)?;
    // What was kept of it, if anything, is the same as well.
    for _ in 0..3 {
        client.heard.clear();
        client.query(SHORT_TRICKLE)?;
        ensure_same(&direct.heard, &client.heard)?;
        crate::support::rest();
    }
    Ok(())
}

/// A stream that says nothing proves nothing: after D no hits, and no wrong answers, but a wait as for the server.
fn the_server_is_frozen(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    let expected = pair.database.connect()?.query(READ)?;
    let server = &pair.database.server;
    let processes = |server: &freshet_testbed::Server| -> Result<Vec<u32>> {
        let postmaster = server.pid().context("not running")?;
        Ok(std::iter::once(postmaster).chain(server.children()?.into_iter().map(|child| child.pid)).collect())
    };
    let frozen = processes(server)?;
    // A worker may be just ending: then it is frozen for good.
    for pid in &frozen {
        let _ = process::pause(*pid);
    }
    time_passes("longer than D", Duration::from_millis(1500));
    let before = pair.freshet.metrics()?.hits();
    client.send(&query(READ))?;
    time_passes("nothing is answered", Duration::from_millis(300));
    let hits = pair.freshet.metrics()?.hits() - before;
    for pid in &frozen {
        let _ = process::resume(*pid);
    }
    ensure!(hits == 0, "a hit although the server has been frozen for longer than D");
    let answer: Vec<Message> = client.until(b'Z')?;
    ensure!(answer == expected, "{answer:?}");
    until_hit(&pair, &mut client, READ)
}

/// The keepalive timer of a connection of this machine, in hundredths of a second; None if it has none.
pub(crate) fn keepalive(local: SocketAddr, remote: SocketAddr) -> Result<Option<u64>> {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port()),
        SocketAddr::V6(_) => String::new(),
    };
    let (local, remote) = (hex(local), hex(remote));
    for line in fs::read_to_string("/proc/net/tcp")?.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.get(1) == Some(&local.as_str()) && fields.get(2) == Some(&remote.as_str()) {
            let (kind, left) = fields.get(5).and_then(|timer| timer.split_once(':')).context("no timer field")?;
            // 2 is the keepalive timer (Documentation/networking/proc_net_tcp).
            return Ok((kind == "02").then(|| u64::from_str_radix(left, 16)).transpose()?);
        }
    }
    bail!("no connection from {local} to {remote}")
}

/// A client or a server whose machine vanishes sends nothing: the kernel asks after ten silent seconds.
fn keepalive_on_both_legs(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for more in [&[][..], &[("replication", "database")]] {
        let mut client = RawClient::login(pair.address(), crate::support::Login { more, ..pair.login() })?;
        let port: u16 =
            client.value("select client_port from pg_stat_activity where pid = pg_backend_pid()")?.parse()?;
        let legs = [
            (pair.address(), client.socket()?.local_addr()?),
            (SocketAddr::new(pair.address().ip(), port), pair.database.address()),
        ];
        for (local, remote) in legs {
            // While data is in flight another timer runs.
            let left = eventually(PATIENCE, || {
                keepalive(local, remote)?.with_context(|| format!("no keepalive to {remote}"))
            })?;
            ensure!(left <= 1000, "the first question to {remote} after {left} hundredths of a second");
        }
    }
    Ok(())
}
