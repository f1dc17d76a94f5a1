//! Ways to name the upstream: connection strings, environment, sockets, several hosts.
//!
//! The parser's tests check that Freshet understands a connection string as libpq does. These tests check that each way leads to the server, for
//! Freshet's own connections and for its clients', and that no password is exposed.

mod failover;
mod faults;
mod lagging;
mod leader_key;
mod patroni;
mod replica_faults;
mod replicas;
mod routing;
mod servers;
mod standby;
mod start;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings, StopMode};

use crate::support::{
    Database, Freshet, Login, PATIENCE, RawClient, Version, connect, eventually, eventually_async, frames, on_both,
    pace,
};
use start::{Home, command};

on_both!(
    a_key_value_string,
    the_environment_and_the_password_file,
    a_service,
    a_unix_socket,
    a_unix_socket_vouches_for_nobody,
    a_host_that_is_down,
    a_standby_that_is_not_wanted,
    only_a_standby_where_a_primary_is_wanted,
    a_standby_that_is_promoted,
    a_wrong_password_and_an_open_password_file,
);

const SCHEMA: &str = "create table film (id int primary key, title text not null);
    insert into film select i, 'film ' || i from generate_series(1, 100) i";
const READ: &str = "select title from film where id = 1";
/// The superuser's, which occurs nowhere else.
const PASSWORD: &str = "Unm1stakable!";

/// A server that asks for passwords, and a database with its owner's name and something in it.
fn guarded(version: Version) -> Result<Database> {
    let server = version.start(&Settings::default().with_scram())?;
    let role = format!("create role boss superuser login password '{PASSWORD}';");
    let database = "create database \"my films\" owner boss;\n\\connect \"my films\"\n";
    server.psql(&format!("{role} {database} {SCHEMA}"))?;
    Ok(Database { name: "my films".into(), server })
}

/// A database on the shared server, with something in it.
fn open(version: Version) -> Result<Database> {
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    Ok(database)
}

/// A client that logs in with a password reads from the cache, and sees what it writes.
fn serves_with_password(freshet: &Freshet, database: &Database) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let login = Login { user: "boss", database: &database.name, password: Some(PASSWORD), more: &[] };
        let client = connect(freshet.address, login).await?;
        eventually_async(PATIENCE, async || {
            client.query_one(READ, &[]).await?;
            ensure!(!freshet.is_there() || freshet.metrics()?.hits() > 0, "no hits");
            Ok(())
        })
        .await?;
        client.execute("update film set title = 'new' where id = 1", &[]).await?;
        let row = client.query_one(READ, &[]).await?;
        ensure!(row.get::<_, &str>(0) == "new", "{row:?}");
        Ok(())
    })
}

/// Waits until it has logged this.
fn wait_logged(freshet: &Freshet, text: &str) -> Result<()> {
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains(text), "no {text:?} in the log:\n{}", freshet.log());
        Ok(())
    })
}

/// The same without a password request; the client continues.
fn serves(freshet: &Freshet, database: &Database) -> Result<RawClient> {
    let mut client = RawClient::login(freshet.address, database.login())?;
    if freshet.is_there() {
        eventually(PATIENCE, || {
            client.query(READ)?;
            ensure!(freshet.metrics()?.hits() > 0, "no hits");
            Ok(())
        })?;
    }
    client.run("update film set title = 'new' where id = 1")?;
    expect_value(&mut client, READ, "new")?;
    Ok(client)
}

fn expect_value(client: &mut RawClient, sql: &str, expected: &str) -> Result<()> {
    let value = client.value(sql)?;
    ensure!(value == expected, "{sql}: {value}, not {expected}");
    Ok(())
}

/// A CancelRequest finds the server, too.
fn cancels(freshet: &Freshet, database: &Database, client: &mut RawClient) -> Result<()> {
    client.send(&frames::query("select pg_sleep(60)"))?;
    let sleeps = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    let mut watcher = database.connect()?;
    eventually(PATIENCE, || expect_value(&mut watcher, sleeps, "1"))?;
    RawClient::open(freshet.address)?.send(&frames::cancel(&client.key_data))?;
    let messages = client.until(b'Z')?;
    let error = messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C'));
    ensure!(error.as_deref() == Some("57014"), "{messages:?}");
    Ok(())
}

fn no_password_in(log: &str) -> Result<()> {
    ensure!(!log.contains(PASSWORD), "the password is in the log");
    Ok(())
}

fn a_key_value_string(version: Version) -> Result<()> {
    let (database, home) = (guarded(version)?, Home::new()?);
    let port = database.server.port();
    let upstream = format!(
        "host=127.0.0.1 port = {port}\tuser=boss dbname='my films' password='{PASSWORD}' \
         options='-c work_mem=5MB' target_session_attrs=read-write keepalives=1 sslmode=prefer"
    );
    let freshet = Freshet::spawn(database.address(), command(Some(&upstream), &[], &home.0)?)?;
    serves_with_password(&freshet, &database)?;
    no_password_in(&freshet.log())
}

fn the_environment_and_the_password_file(version: Version) -> Result<()> {
    let (database, home) = (guarded(version)?, Home::new()?);
    let port = database.server.port().to_string();
    let lines = format!("127.0.0.1:{port}:my films:other:wrong\n127.0.0.1:{port}:*:boss:{PASSWORD}\n");
    home.write(".pgpass", &lines, 0o600)?;
    let variables = [("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "boss"), ("PGDATABASE", "my films")];
    let freshet = Freshet::spawn(database.address(), command(None, &variables, &home.0)?)?;
    serves_with_password(&freshet, &database)?;
    no_password_in(&freshet.log())
}

fn a_service(version: Version) -> Result<()> {
    let (database, home) = (guarded(version)?, Home::new()?);
    let port = database.server.port();
    let lines = format!("[films]\nhost=127.0.0.1\nport={port}\nuser=boss\ndbname=my films\npassword={PASSWORD}\n");
    home.write(".pg_service.conf", &lines, 0o600)?;
    let freshet = Freshet::spawn(database.address(), command(Some("service=films"), &[], &home.0)?)?;
    serves_with_password(&freshet, &database)?;
    no_password_in(&freshet.log())
}

/// The directory of the server's socket.
fn socket_directory(server: &Server) -> Result<PathBuf> {
    let directory = server.log_path().parent().context("the log lies in a directory")?.to_owned();
    ensure!(directory.join(format!(".s.PGSQL.{}", server.port())).exists(), "no socket in {}", directory.display());
    Ok(directory)
}

fn a_unix_socket(version: Version) -> Result<()> {
    let (database, home) = (open(version)?, Home::new()?);
    let directory = socket_directory(&database.server)?.display().to_string();
    let (port, name) = (database.server.port(), &database.name);
    let upstreams = [
        format!("host={directory} port={port} user=postgres dbname={name}"),
        format!("postgres://postgres@{}:{port}/{name}", directory.replace('/', "%2F")),
        // TLS is not spoken over sockets, whatever is asked for.
        format!("postgres:///{name}?host={directory}&port={port}&user=postgres&sslmode=require"),
    ];
    for upstream in upstreams {
        // The server trusts every connection over the socket, and that is Freshet.
        let mut command = command(Some(&upstream), &[], &home.0)?;
        if let Some(command) = &mut command {
            command.args(["--auth", "trust"]);
        }
        let freshet = Freshet::spawn(database.address(), command)?;
        let mut client = serves(&freshet, &database).context(upstream)?;
        if freshet.is_there() {
            // The session's own, those for Freshet's statements, and that of the change stream.
            let over_tcp = "select count(client_addr) from pg_stat_activity where datname = current_database()";
            expect_value(&mut client, over_tcp, "0")?;
        }
        cancels(&freshet, &database, &mut client)?;
        database.run("update film set title = 'film 1' where id = 1")?;
    }
    Ok(())
}

/// A server that trusts connections over the socket (peer, trust) has authenticated Freshet, not its clients.
fn a_unix_socket_vouches_for_nobody(version: Version) -> Result<()> {
    let (database, home) = (open(version)?, Home::new()?);
    let directory = socket_directory(&database.server)?.display().to_string();
    let upstream = format!("host={directory} port={} user=postgres dbname={}", database.server.port(), database.name);
    let freshet = Freshet::spawn(database.address(), command(Some(&upstream), &[], &home.0)?)?;
    if !freshet.is_there() {
        return Ok(());
    }
    for user in ["postgres", "nobody"] {
        let messages = RawClient::open(freshet.address)?.start(database.login_as(user))?;
        ensure!(messages.iter().all(|m| m.tag != b'R' && m.tag != b'Z'), "{user} was let in: {messages:?}");
        let code = messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C'));
        ensure!(code.as_deref() == Some("28000"), "{messages:?}");
    }
    Ok(())
}

/// A port without a listener.
fn dead_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn a_host_that_is_down(version: Version) -> Result<()> {
    let (database, home) = (open(version)?, Home::new()?);
    let (dead, port, name) = (dead_port()?, database.server.port(), &database.name);
    let upstreams = [
        format!("postgres://postgres@127.0.0.1:{dead},127.0.0.1:{port}/{name}"),
        format!("host=/nonexistent,127.0.0.1 port={port} user=postgres dbname={name}"),
    ];
    for upstream in upstreams {
        let freshet = Freshet::spawn(database.address(), command(Some(&upstream), &[], &home.0)?)?;
        let mut client = serves(&freshet, &database).context(upstream)?;
        cancels(&freshet, &database, &mut client)?;
        database.run("update film set title = 'film 1' where id = 1")?;
    }
    Ok(())
}

/// A primary with a database, and its standby.
fn replicated(version: Version) -> Result<(Database, Server)> {
    let database = Database::create(version.start(&Settings::default())?)?;
    database.run(SCHEMA)?;
    let standby = database.server.standby("second")?;
    Ok((database, standby))
}

/// The standby and then the primary, with this `target_session_attrs`.
fn both_hosts(database: &Database, standby: &Server, attribute: &str) -> String {
    let (first, second, name) = (standby.port(), database.server.port(), &database.name);
    format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{name}?target_session_attrs={attribute}")
}

fn a_standby_that_is_not_wanted(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    for attribute in ["primary", "read-write"] {
        let upstream = both_hosts(&database, &standby, attribute);
        let freshet = Freshet::spawn(database.address(), command(Some(&upstream), &[], &home.0)?)?;
        let mut client = serves(&freshet, &database).context(attribute)?;
        expect_value(&mut client, "select pg_is_in_recovery()", "f")?;
        // Clients that come later, too.
        for _ in 0..5 {
            let mut later = RawClient::login(freshet.address, database.login())?;
            expect_value(&mut later, "show transaction_read_only", "off")?;
        }
        database.run("update film set title = 'film 1' where id = 1")?;
    }
    Ok(())
}

/// Whom the operator wants on a primary never gets to a standby, even while no primary is there.
fn only_a_standby_where_a_primary_is_wanted(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    database.server.stop(StopMode::Fast)?;
    let upstream = format!("{}&connect_timeout=1", both_hosts(&database, &standby, "primary"));
    let Some(command) = command(Some(&upstream), &[], &home.0)? else { return Ok(()) };
    let freshet = Freshet::spawn(database.address(), Some(command))?;
    for _ in 0..3 {
        let messages = RawClient::open(freshet.address)?.start(database.login())?;
        ensure!(messages.last().is_some_and(|m| m.tag == b'E'), "a client was let in to a standby: {messages:?}");
        pace(Duration::from_millis(100));
    }
    // Once the primary is back, all is well without a restart of Freshet.
    database.server.start()?;
    eventually(PATIENCE, || RawClient::login(freshet.address, database.login()).map(drop))?;
    serves(&freshet, &database)?;
    Ok(())
}

/// After a failover the other host is found, and the cache follows it.
fn a_standby_that_is_promoted(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    let upstream = both_hosts(&database, &standby, "primary");
    let Some(command) = command(Some(&upstream), &[], &home.0)? else { return Ok(()) };
    let freshet = Freshet::spawn(database.address(), Some(command))?;
    wait_logged(&freshet, "change stream established")?;
    serves(&freshet, &database)?;
    database.server.stop(StopMode::Fast)?;
    standby.psql("select pg_promote()")?;
    let mut client = eventually(PATIENCE, || {
        let mut client = RawClient::login(freshet.address, database.login())?;
        client.run("update film set title = 'promoted' where id = 1")?;
        Ok(client)
    })?;
    let before = freshet.metrics()?.hits();
    eventually(PATIENCE, || {
        expect_value(&mut client, READ, "promoted")?;
        ensure!(freshet.metrics()?.hits() > before, "no hits after the failover");
        Ok(())
    })
}

/// Freshet says what is wrong, and not what the password is.
fn a_wrong_password_and_an_open_password_file(version: Version) -> Result<()> {
    let (database, home) = (guarded(version)?, Home::new()?);
    let port = database.server.port();
    let upstream = format!("host=127.0.0.1 port={port} user=boss dbname='my films'");
    home.write(".pgpass", &format!("*:*:*:*:{PASSWORD}\n"), 0o644)?;
    let command_with = |upstream: &str| command(Some(upstream), &[], &home.0);
    let open = Freshet::spawn(database.address(), command_with(&upstream)?)?;
    let wrong = Freshet::spawn(database.address(), command_with(&format!("{upstream} password={PASSWORD}x"))?)?;
    if open.is_there() {
        wait_logged(&open, "chmod 600")?;
        wait_logged(&wrong, "password authentication failed for user \"boss\"")?;
    }
    no_password_in(&open.log())?;
    no_password_in(&wrong.log())
}

/// What a connection string that cannot be used makes Freshet say before it gives up.
#[test]
fn unusable_connection_strings_end_the_start() -> Result<()> {
    let home = Home::new()?;
    let missing = home.0.join("root.crt").display().to_string();
    let table = [
        (format!("oracle://me:{PASSWORD}@h/d"), "begin with postgres:// or postgresql://"),
        (format!("postgres://me:{PASSWORD}/x@h/d"), "%2F"),
        (format!("host=h password={PASSWORD} again"), "has no \"=\""),
        (format!("host=h passwort={PASSWORD}"), "\"passwort\" does not exist"),
        (format!("host=h password={PASSWORD} gssencmode=require"), "gssencmode"),
        (format!("host=h password={PASSWORD} sslmode=verify-full"), "sslrootcert"),
        (format!("host=h password={PASSWORD} sslmode=verify-full sslrootcert={missing}"), "root.crt"),
        (format!("host=h password={PASSWORD} sslrootcert=system sslmode=require"), "verify-full"),
        ("host=a,b port=1,2,3".into(), "as many as hosts"),
        ("service=nowhere".into(), "nowhere"),
    ];
    for (upstream, expected) in table {
        let Some(mut command) = command(Some(&upstream), &[], &home.0)? else { return Ok(()) };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        // If it still runs, that is the failure.
        let _ = eventually(PATIENCE, || child.try_wait()?.context("it runs"));
        let _ = child.kill();
        let done = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code().is_some_and(|code| code != 0), "{upstream}: {}: {said}", done.status);
        ensure!(said.contains("--upstream"), "{upstream}: no word of --upstream: {said}");
        ensure!(said.contains(expected), "{upstream}: no {expected:?} in: {said}");
        no_password_in(&said)?;
    }
    Ok(())
}
