//! SIGUSR2 with sessions that share server connections: they go on in the new process, between two statements.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::configuration::{File, until_logged};
use super::upgrades::{Installed, Successor, all_go_on, old_ends_well};
use super::{SCHEMA, ends_by_command};
use crate::support::frames::{bind_text, cancel, execute, parse, query, startup, sync};
use crate::support::{Database, Freshet, PATIENCE, Pair, RawClient, Version, eventually, on_both, program};

on_both!(
    idle_sessions_go_on,
    busy_sessions_go_on,
    hurried_sessions_go_on,
    sessions_go_on_behind_the_grace,
    clients_that_do_not_read_are_not_waited_for,
    a_lost_socket_ends_one_session
);

const READ: &str = "select title from film where id = 1";
const CLIENTS: usize = 4;
/// Rounds of each client before, during and after the upgrade.
const ROUNDS: u64 = 25;

fn shared(version: Version) -> Result<Pair> {
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "2", "--upgrade-grace", "3600s"];
    Pair::over(Database::shared(version)?, SCHEMA, &[&options[..], &["--admission", "always"]].concat())
}

pub(crate) fn sessions_are(freshet: &Freshet, count: u64) -> Result<()> {
    eventually(PATIENCE, || {
        let sessions = freshet.metrics()?.count("freshet_sessions");
        ensure!(sessions == count, "{sessions} sessions, not {count}:\n{}", freshet.log());
        Ok(())
    })
}

/// The first value of an execution of a prepared statement.
fn executed(client: &mut RawClient, statement: &str, value: &str) -> Result<String> {
    let answer = client.exchange(&[bind_text("", statement, &[value]), execute("", 0), sync()].concat(), 1)?;
    let row = answer.iter().find(|message| message.tag == b'D').with_context(|| format!("{answer:?}"))?;
    let value = row.columns().swap_remove(0).context("null")?;
    Ok(String::from_utf8(value)?)
}

fn hits(freshet: &Freshet, mut read: impl FnMut() -> Result<()>) -> Result<()> {
    eventually(PATIENCE, || {
        let before = freshet.metrics()?.hits();
        read()?;
        ensure!(freshet.metrics()?.hits() > before, "no hit");
        Ok(())
    })
}

fn idle_sessions_go_on(version: Version) -> Result<()> {
    let Pair { mut freshet, database } = shared(version)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let connect = || RawClient::login(freshet.address, database.login());
    let (fresh, mut read, mut set, mut named) = (connect()?, connect()?, connect()?, connect()?);
    let (mut unnamed, mut busy, mut pinned) = (connect()?, connect()?, connect()?);
    hits(&freshet, || read.query(READ).map(drop))?;
    set.run("set timezone = 'Asia/Tokyo'")?;
    set.run("set application_name = 'carried'")?;
    let by_id = "select title from film where id = $1";
    for name in ["one", "two"] {
        named.exchange(&[parse(name, by_id), sync()].concat(), 1)?;
        ensure!(executed(&mut named, name, "2")? == "film 2");
    }
    unnamed.exchange(&[parse("", by_id), sync()].concat(), 1)?;
    busy.run("begin; update film set title = 'new' where id = 3")?;
    pinned.run("create temporary table own (v int); insert into own values (7)")?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;

    // All but those in a transaction, or with something of theirs at the server.
    sessions_are(&freshet, 5)?;
    ensure!(read.value(READ)? == "film 1");
    ensure!(set.value("show timezone")? == "Asia/Tokyo" && set.value("show application_name")? == "carried");
    ensure!(executed(&mut named, "one", "4")? == "film 4" && executed(&mut named, "two", "5")? == "film 5");
    let again = named.exchange(&[parse("two", by_id), sync()].concat(), 1)?;
    ensure!(again.iter().any(|message| message.field(b'C').as_deref() == Some("42P05")), "forgotten: {again:?}");
    ensure!(executed(&mut unnamed, "", "6")? == "film 6");
    ensure!(pinned.value("select v from own")? == "7", "a temporary table is gone");
    ensure!(freshet.is_alive(), "the old process has left a session");
    let mut fresh = fresh;
    ensure!(fresh.value("select title from film where id = 3")? == "film 3");
    busy.run("commit")?;
    sessions_are(&freshet, 6)?;
    ensure!(busy.value("select title from film where id = 3")? == "new");

    // A cancel request, which reaches the new process, finds its session.
    read.send(&query("select pg_sleep(600)"))?;
    let mut watcher = database.connect()?;
    let sleeping = "select count(*) from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active' \
                    and datname = current_database()";
    eventually(PATIENCE, || {
        ensure!(watcher.value(sleeping)? == "1", "not begun");
        Ok(())
    })?;
    let mut other = RawClient::open(freshet.address)?;
    other.send(&cancel(&read.key_data))?;
    other.bytes_to_end()?;
    let cancelled = read.until(b'Z')?;
    ensure!(cancelled.iter().any(|message| message.field(b'C').as_deref() == Some("57014")), "{cancelled:?}");

    drop(pinned);
    old_ends_well(&mut freshet)?;
    freshet.wait_ready()?;
    hits(&freshet, || read.query(READ).map(drop))?;
    hits(&freshet, || executed(&mut named, "one", "7").map(drop))?;
    hits(&freshet, || set.query(READ).map(drop))?;
    successor.end()?;
    for client in [&mut fresh, &mut read, &mut set, &mut named, &mut unnamed, &mut busy] {
        ends_by_command(client)?;
    }
    Ok(())
}

/// A transaction that ends behind the grace does not end its session.
fn sessions_go_on_behind_the_grace(version: Version) -> Result<()> {
    let options = ["--auth", "trust", "--pool", "transaction", "--upgrade-grace", "0s", "--drain-timeout", "3600s"];
    let Pair { mut freshet, database } = Pair::over(Database::shared(version)?, SCHEMA, &options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let connect = || RawClient::login(freshet.address, database.login());
    let (mut plain, mut set, mut pinned, mut own) = (connect()?, connect()?, connect()?, connect()?);
    plain.run("begin; update film set title = 'new' where id = 3")?;
    set.run("begin")?;
    set.run("set timezone = 'Asia/Tokyo'")?;
    pinned.run("begin; create temporary table own (v int)")?;
    // What Freshet itself answers is known to this process alone.
    own.exchange(&[parse("own", "show caches"), sync()].concat(), 1)?;
    own.run("begin")?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    until_logged(&freshet, "sessions end as soon as they are at rest")?;
    plain.run("commit")?;
    set.run("commit")?;
    ensure!(plain.value("select title from film where id = 3")? == "new");
    ensure!(set.value("show timezone")? == "Asia/Tokyo");
    for client in [&mut pinned, &mut own] {
        client.run("commit")?;
        ends_by_command(client)?;
    }
    old_ends_well(&mut freshet)?;
    ensure!(plain.value("select title from film where id = 3")? == "new");
    successor.end()
}

/// Its next statements are there before it has read the answer to the last.
fn hurried_sessions_go_on(version: Version) -> Result<()> {
    let Pair { mut freshet, database } = shared(version)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut client = RawClient::login(freshet.address, database.login())?;
    // As long as what is read at once, with whole statements, which the server does not see.
    let statement = query(&format!("{:58}", "show caches"));
    ensure!(statement.len() == 64, "{} bytes", statement.len());
    let (mut socket, stop) = (client.socket()?, AtomicBool::new(false));
    thread::scope(|scope| {
        let sending = scope.spawn(|| -> Result<usize> {
            let mut sent = 0;
            while !stop.load(Relaxed) {
                socket.write_all(&statement.repeat(128))?;
                sent += 128;
            }
            socket.write_all(&query("select 'the last'"))?;
            Ok(sent + 1)
        });
        let reading = scope.spawn(|| -> Result<usize> {
            let mut answers = 0;
            loop {
                let message = client.read_unheard()?.context("the session has ended")?;
                answers += usize::from(message.tag == b'Z');
                if message.tag == b'D' && message.columns() == [Some(b"the last".to_vec())] {
                    return Ok(answers + 1);
                }
            }
        });
        let upgraded = || -> Result<Successor> {
            let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
            sessions_are(&freshet, 1)?;
            Ok(successor)
        };
        let successor = upgraded();
        stop.store(true, Relaxed);
        let (sent, answers) = (sending.join().expect("no panic")?, reading.join().expect("no panic")?);
        ensure!(sent == answers, "{answers} answers to {sent} statements");
        successor
    })
    .and_then(|successor| {
        old_ends_well(&mut freshet)?;
        successor.end()
    })
}

/// Such a session has a last answer that its client does not receive, and nothing else to do.
fn clients_that_do_not_read_are_not_waited_for(version: Version) -> Result<()> {
    let folder = Installed::new(&format!("unread-{version:?}"))?;
    let Some(path) = folder.as_ref().and_then(|folder| folder.path.to_str()) else { return Ok(()) };
    let options = ["--auth", "trust", "--pool", "transaction", "--upgrade-grace", "0s", "--drain-timeout", "3600s"];
    let options = [&options[..], &["--listen", path]].concat();
    let Pair { mut freshet, database } = Pair::over(Database::shared(version)?, SCHEMA, &options)?;
    let login = database.login();
    // Its buffer does not grow.
    let mut client = UnixStream::connect(format!("{path}/.s.PGSQL.0"))?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(&startup(&[("user", login.user), ("database", login.database)]))?;
    until_ready(&mut client, b'I')?;
    client.write_all(&query("begin"))?;
    until_ready(&mut client, b'T')?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    until_logged(&freshet, "sessions end as soon as they are at rest")?;
    // More than the buffer takes, by less than Freshet takes.
    let buffer: usize = fs::read_to_string("/proc/sys/net/core/wmem_default")?.trim().parse()?;
    let answer = buffer * 3 / 2 + 40_000;
    client.write_all(&query(&format!("commit; select repeat('x', {answer})")))?;
    old_ends_well(&mut freshet)?;
    let mut received = Vec::new();
    client.read_to_end(&mut received)?;
    ensure!(received.len() < answer, "{} bytes: all was sent", received.len());
    successor.end()
}

fn until_ready(client: &mut UnixStream, status: u8) -> Result<()> {
    let mut received = Vec::new();
    while !received.ends_with(&[b'Z', 0, 0, 0, 5, status]) {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        received.extend(byte);
    }
    Ok(())
}

/// The new process has no descriptor for one of them: it has gone, and the others stay.
fn a_lost_socket_ends_one_session(version: Version) -> Result<()> {
    let Pair { mut freshet, database } = shared(version)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let connect = || RawClient::login(freshet.address, database.login());
    let (mut lost, mut next) = (connect()?, connect()?);
    lost.run("begin")?;
    next.run("begin")?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    let limit = |files: &str| -> Result<()> {
        let process = successor.0.to_string();
        let status = Command::new("prlimit").args(["--pid", &process, &format!("--nofile={files}:")]).status()?;
        ensure!(status.success(), "prlimit: {status}");
        Ok(())
    };
    limit("3")?;
    lost.run("commit")?;
    until_logged(&freshet, "no descriptor is left for a session of the process before this one")?;
    ensure!(lost.bytes_to_end()?.is_empty(), "something came");
    limit("1024")?;
    until_logged(&freshet, "the new process takes no more sessions")?;
    next.run("commit")?;
    ensure!(next.value("select title from film where id = 4")? == "film 4");
    ensure!(freshet.is_alive(), "the old process has not kept it");
    drop(next);
    old_ends_well(&mut freshet)?;
    successor.end()
}

/// Each client has one connection, and its reads must not miss its writes.
fn busy_sessions_go_on(version: Version) -> Result<()> {
    let Pair { mut freshet, database } = shared(version)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let (address, stop) = (freshet.address, AtomicBool::new(false));
    let rounds: [AtomicU64; CLIENTS] = Default::default();
    let advance = || all_go_on(&rounds, ROUNDS, &stop);
    let run = |id: usize| -> Result<()> {
        let mut client = RawClient::login(address, database.login())?;
        let read = format!("select title from film where id = {id}");
        while !stop.load(Relaxed) {
            let title = format!("title {}", rounds[id - 1].load(Relaxed));
            client.run("begin")?;
            client.run(&format!("update film set title = '{title}' where id = {id}"))?;
            client.run("commit")?;
            for _ in 0..3 {
                let read = client.value(&read)?;
                ensure!(read == title, "{read:?} is read after {title:?} was written");
            }
            rounds[id - 1].fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|id| {
                let (run, stop) = (&run, &stop);
                scope.spawn(move || {
                    let done = run(id);
                    stop.store(true, Relaxed);
                    done
                })
            })
            .collect();
        let upgrade = || -> Result<Successor> {
            advance()?;
            let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
            advance()?;
            Ok(successor)
        };
        let successor = upgrade();
        let successor = successor.and_then(|successor| {
            // No session keeps it.
            old_ends_well(&mut freshet)?;
            freshet.wait_ready()?;
            let before = freshet.metrics()?.hits();
            advance()?;
            ensure!(freshet.metrics()?.hits() > before, "the new process caches nothing");
            Ok(successor)
        });
        stop.store(true, Relaxed);
        let ended: Result<Vec<()>> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        ended.with_context(|| freshet.log())?;
        successor?.end()
    })
}

/// The new process leads the same clients to another address.
#[test]
fn sessions_do_not_go_to_another_server() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let settings = |url: &str| {
        format!(
            "upstream = \"{url}\"\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nauth = \"trust\"\npool = \"transaction\"\n\
             upgrade_grace = \"3600s\"\n"
        )
    };
    let (url, config) = (database.url(), File::new("carried-elsewhere.toml", &settings(&database.url()))?);
    let mut command = Command::new(program);
    command.args(["serve", "--config", config.path()]);
    let mut freshet = Freshet::spawn(database.address(), Some(command))?;
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    client.run("select 1")?;
    let elsewhere = url.replace("127.0.0.1", "localhost");
    ensure!(elsewhere != url, "{url}");
    config.write(&settings(&elsewhere))?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    ends_by_command(&mut client)?;
    old_ends_well(&mut freshet)?;
    successor.end()
}
