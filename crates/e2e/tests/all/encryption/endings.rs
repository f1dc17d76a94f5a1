//! The end of encrypted connections, and large data through them in bounded memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::Settings;

use super::Front;
use super::handshakes::{Encrypted, encrypt, open, read_byte, read_message, startup};
use super::link::{Link, Negotiation, Trust};
use super::workshop::{Authority, Workshop};
use crate::support::{Database, PATIENCE, RawClient, Version, eventually, frames, on_both_at_length};

on_both_at_length!(
    last_words,
    sessions_end_with_their_connections,
    broken_records,
    large_results,
    replication_connections
);

fn start(address: SocketAddr, authority: &Authority, packet: &[u8]) -> Result<Encrypted> {
    let mut stream = open(address)?;
    stream.write_all(&frames::ssl_request())?;
    ensure!(read_byte(&mut stream)? == b'S');
    let mut stream = encrypt(stream, Trust::authority(authority)?.offering(&[]))?;
    stream.write_all(packet)?;
    Ok(stream)
}

fn login(front: &Front) -> Result<Encrypted> {
    let mut stream = start(front.freshet.address, &front.authority, &startup(&front.database))?;
    while read_message(&mut stream)?.tag != b'Z' {}
    Ok(stream)
}

/// What is still heard, and whether the end was told (close_notify): without that it could be an attacker's.
fn rest_of(stream: &mut Encrypted) -> Result<(String, bool)> {
    let mut tags = String::new();
    while let Ok(message) = read_message(stream) {
        tags.push(char::from(message.tag));
    }
    match stream.read(&mut [0]) {
        Ok(0) => Ok((tags, true)),
        Ok(_) => bail!("more than messages"),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok((tags, false)),
        Err(error) => Err(error.into()),
    }
}

/// Terminate, a refused login, a session ended by the server: the last message arrives, and then the end is told, as by
/// the server itself.
fn last_words(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let mut differ = Vec::new();
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let tls = workshop.leaf("server", &["localhost"], &authority)?;
    // The only version here with TLS.
    let direct = Database::create(Version::V15.start(&Settings::default().with_tls(tls))?)?;
    for (database, address, authority) in
        [(&direct, direct.address(), &authority), (&front.database, front.freshet.address, &front.authority)]
    {
        let packet = startup(database);
        let nowhere = frames::startup(&[("user", "postgres"), ("database", "nowhere")]);
        for (packet, then, tags) in [
            (&packet, frames::terminate(), ""),
            (&packet, frames::query("select pg_terminate_backend(pg_backend_pid())"), "TDE"),
            (&nowhere, Vec::new(), "RE"),
        ] {
            let mut stream = start(address, authority, packet)?;
            if *packet != nowhere {
                while read_message(&mut stream)?.tag != b'Z' {}
            }
            stream.write_all(&then)?;
            stream.flush()?;
            let end = rest_of(&mut stream)?;
            if end != (tags.to_owned(), true) {
                differ.push(format!(
                    "{} {tags}: {end:?}",
                    if address == front.freshet.address { "through" } else { "direct" }
                ));
            }
        }
    }
    ensure!(differ.is_empty(), "tags, and whether the end is reported: {differ:?}");
    Ok(())
}

/// However a client goes, its session in the database goes too.
fn sessions_end_with_their_connections(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let name = &front.database.name;
    let sessions = format!("select count(*) from pg_stat_activity where application_name = 'leaves {name}'");
    let mut direct = front.database.connect()?;
    let mut leaving = Vec::new();
    for _ in 0..4 {
        let mut stream = login(&front)?;
        stream.write_all(&frames::query(&format!("set application_name to 'leaves {name}'")))?;
        while read_message(&mut stream)?.tag != b'Z' {}
        leaving.push(stream);
    }
    ensure!(direct.value(&sessions)? == "4");
    // Terminate; the end of TLS; the end of TCP without it; half of a record.
    let [terminated, notified, cut, broken] = leaving.as_mut_slice() else { bail!("four sessions") };
    terminated.write_all(&frames::terminate())?;
    terminated.flush()?;
    notified.conn.send_close_notify();
    notified.flush()?;
    cut.sock.shutdown(Shutdown::Both)?;
    broken.sock.write_all(&[0x17, 3, 3, 0x40, 0, 1, 2, 3])?;
    broken.sock.shutdown(Shutdown::Write)?;
    eventually(PATIENCE, || {
        let left = direct.value(&sessions)?;
        ensure!(left == "0", "{left} sessions are left");
        Ok(())
    })
}

/// A record that cannot be decrypted ends its own connection and no other.
fn broken_records(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let (mut victim, mut bystander) = (login(&front)?, login(&front)?);
    let mut record = vec![0x17, 3, 3, 0, 64];
    record.extend([0x5a; 64]);
    victim.sock.write_all(&record)?;
    victim.sock.write_all(&frames::query("select 1"))?;
    let mut answer = Vec::new();
    // The alert, encrypted, and the end.
    let _ = victim.sock.read_to_end(&mut answer);
    ensure!(answer.len() < 100, "{answer:?}");
    bystander.write_all(&frames::query("select 1"))?;
    let mut tags = String::new();
    while !tags.ends_with('Z') {
        tags.push(char::from(read_message(&mut bystander)?.tag));
    }
    ensure!(tags == "TDCZ", "{tags}");
    Ok(())
}

/// By how much the process may grow while 100 MB pass through it.
const GROWTH_MAX: u64 = 24 * 1024 * 1024;

fn large_results(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let link = front.link(Negotiation::Request)?;
    let mut client = RawClient::login(link.address, front.database.login())?;
    client.expect_silence()?;
    let before = front.freshet.peak_memory()?;
    for sql in ["select repeat('x', 1000), i from generate_series(1, 50000) i", "select repeat('x', 50000000)"] {
        client.send(&frames::query(sql))?;
        // What is not read waits in the server.
        eventually(PATIENCE, || {
            let waits = front.database.connect()?.value(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'",
            )?;
            ensure!(waits != "0", "no backend waits for its client");
            Ok(())
        })?;
        let mut bytes = 0;
        loop {
            let message = client.read_unheard()?.context("closed")?;
            match message.tag {
                b'Z' => break,
                b'D' => bytes += message.body.len(),
                _ => {}
            }
        }
        ensure!(bytes >= 50_000_000, "only {bytes} bytes arrived");
    }
    client.expect_silence()?;
    let growth = front.freshet.peak_memory()? - before;
    ensure!(growth < GROWTH_MAX, "the process grew by {growth} bytes");
    Ok(())
}

/// Clients that follow changes themselves, encrypted.
fn replication_connections(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let link: Link = front.link(Negotiation::Direct)?;
    let conversation = |address: SocketAddr| -> Result<_> {
        let more = [("replication", "database")];
        let login = crate::support::Login { more: &more, ..front.database.login() };
        let mut client = RawClient::login(address, login)?;
        client.run("SHOW wal_level")?;
        client.run("CREATE_REPLICATION_SLOT tls_test TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT")?;
        client.heard.pop();
        client.query("START_REPLICATION SLOT nowhere LOGICAL 0/0 (proto_version '1', publication_names 'none')")?;
        client.run("SELECT title FROM film WHERE id = 1")?;
        // Positions differ.
        client.heard.retain(|message| message.tag != b'D' || !message.body.windows(8).any(|part| part == b"tls_test"));
        Ok(client.heard)
    };
    crate::support::ensure_same(&conversation(front.database.address())?, &conversation(link.address)?)
}
