//! Real programs over TLS: psql with the libpq of version 15, psycopg with that of version 18.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use freshet_testbed::{Postgres, Tls};

use super::Front;
use super::link::Negotiation;
use super::workshop::text;
use crate::support::{Version, on_both_at_length};

on_both_at_length!(psql, libpq_18);

/// A program free of the caller's PostgreSQL settings.
pub(super) fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8").env("HOME", "/nonexistent");
    command
}

/// psql that speaks TLS runs one statement.
pub(super) fn psql_output(conninfo: &str, sql: &str) -> Result<Output> {
    let mut command = clean(Postgres::find(Some(15))?.program("psql"));
    Ok(command.args(["-XAtw", "-d", conninfo, "-c", sql]).output()?)
}

/// The connection string of a front, by name, for certificates.
pub(super) fn conninfo(front: &Front, user: &str, more: &str) -> String {
    let (address, database) = (front.freshet.address, &front.database.name);
    let at = format!("host=localhost hostaddr={} port={}", address.ip(), address.port());
    format!("{at} dbname={database} user={user} connect_timeout=20 {more}")
}

/// Options that show a certificate.
pub(super) fn showing(tls: &Tls) -> String {
    format!("sslcert={} sslkey={}", text(&tls.cert), text(&tls.key))
}

fn psql(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let root = format!("sslrootcert={}", text(&front.authority.cert));
    for (options, encrypted) in [
        ("sslmode=disable", false),
        // libpq asks in plain first, and Freshet takes both.
        ("sslmode=allow", false),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
        (&format!("sslmode=verify-ca {root}"), true),
        (&format!("sslmode=verify-full {root}"), true),
        (&format!("sslmode=verify-full {root} sslsni=0 ssl_max_protocol_version=TLSv1.2"), true),
        (&format!("sslmode=require gssencmode=prefer {root}"), true),
    ] {
        let output = psql_output(&conninfo(&front, "postgres", options), "\\conninfo")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{options}: {err}");
        ensure!(out.contains("SSL connection (protocol: TLSv1.") == encrypted, "{options}: {out}");
    }
    let other = front.workshop.authority("other")?;
    let strange = format!("sslmode=verify-ca sslrootcert={}", text(&other.cert));
    ensure!(!psql_output(&conninfo(&front, "postgres", &strange), "select 1")?.status.success());
    Ok(())
}

/// The interpreter with psycopg, which brings its own libpq.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed/venv/bin/python");
    python.exists().then_some(python)
}

/// Direct TLS, and cancel requests over TLS, which libpq sends since version 17.
const SCRIPT: &str = "
import sys, threading, psycopg
assert psycopg.pq.version() >= 170000, psycopg.pq.version()
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    assert connection.pgconn.ssl_in_use
    print(connection.execute('select title from film where id = %s', (1,)).fetchone()[0])
    timer = threading.Timer(1, connection.cancel_safe)
    timer.start()
    try:
        connection.execute('select pg_sleep(60)')
    except psycopg.errors.QueryCanceled:
        print('cancelled')
";

fn libpq_18(version: Version) -> Result<()> {
    let front = Front::start(version, &["--tls-required"])?;
    if front.is_absent() {
        return Ok(());
    }
    let Some(python) = python() else {
        ensure!(std::env::var_os("FRESHET_TEST_STRICT").is_none(), "psycopg: run script/setup test");
        eprintln!("left out: psycopg; run script/setup test");
        return Ok(());
    };
    let root = text(&front.authority.cert);
    for negotiation in [Negotiation::Request, Negotiation::Direct] {
        let name = if negotiation == Negotiation::Direct { "direct" } else { "postgres" };
        let options = format!("sslmode=verify-full sslrootcert={root} sslnegotiation={name}");
        let output = clean(&python).args(["-c", SCRIPT, &conninfo(&front, "postgres", &options)]).output()?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(out == "film 1\ncancelled\n", "{name}: {out}{err}");
    }
    Ok(())
}
