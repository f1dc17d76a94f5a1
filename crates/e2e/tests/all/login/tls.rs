//! Logins over TLS: channel binding to Freshet's certificate, and forwarded passwords.

use std::net::SocketAddr;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use freshet_testbed::{Postgres, Tls};

use super::guarded::{Attempt, Guarded, Kind, asking, settings, wrong_password};
use crate::support::{Freshet, Version, on_both};

on_both!(channel_binding);

/// A certificate that nobody trusts, which channel binding does not mind.
pub(super) fn certificate(guarded: &Guarded, name: &str) -> Result<Tls> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let cert = guarded.write(&format!("{name}.crt"), &made.cert.pem())?.into();
    let key = guarded.write(&format!("{name}.key"), &made.signing_key.serialize_pem())?.into();
    Ok(Tls { cert, key, client_ca: None })
}

/// Options that make Freshet speak TLS.
fn tls_options(tls: &Tls) -> Vec<String> {
    let path = |path: &std::path::Path| path.display().to_string();
    vec!["--tls-cert".into(), path(&tls.cert), "--tls-key".into(), path(&tls.key)]
}

/// Runs psql: Debian's, which speaks TLS.
fn psql(address: SocketAddr, attempt: Attempt<'_>, options: &str) -> Result<Output> {
    let mut command = Command::new(Postgres::find(Some(15))?.program("psql"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    let (host, port) = (address.ip(), address.port());
    let conninfo = format!(
        "host={host} port={port} user={} dbname={} connect_timeout=20 {options}",
        attempt.user, attempt.database
    );
    command.env("PGPASSWORD", attempt.password).env("LC_ALL", "C.UTF-8").env("HOME", "/nonexistent");
    command.args(["-XAtw", "-d", &conninfo, "-c", "select session_user"]);
    Ok(command.output()?)
}

/// In as this user, or out with this error.
fn expect(address: SocketAddr, attempt: Attempt<'_>, options: &str, error: Option<&str>) -> Result<()> {
    let output = psql(address, attempt, options)?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match error {
        None => ensure!(out.trim() == attempt.user, "{attempt:?} {options}: {out}{err}"),
        Some(error) => {
            ensure!(!output.status.success() && err.contains(error), "{attempt:?} {options}: {out}{err}, not {error}");
        }
    }
    Ok(())
}

const BOUND: &str = "sslmode=require channel_binding=require";

fn channel_binding(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (scram, md5) = (guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?);
    let users = guarded.users_file(&[&scram, &md5])?;
    let tls = tls_options(&certificate(&guarded, "freshet")?);
    let mut options: Vec<_> = tls.iter().map(String::as_str).collect();
    options.extend(["--users", &users]);
    let freshet = guarded.freshet(&options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let database = guarded.database.name.as_str();
    let good = Attempt { user: &scram, password: "pencil", database };
    let wrong = wrong_password(&scram).message;
    for options in [BOUND, "sslmode=require", "sslmode=require channel_binding=disable", "sslmode=disable"] {
        expect(freshet.address, good, options, None)?;
        expect(freshet.address, Attempt { password: "wrong", ..good }, options, Some(&wrong))?;
        let nobody = guarded.name("nobody");
        let unknown = wrong_password(&nobody).message;
        expect(freshet.address, Attempt { user: &nobody, ..good }, options, Some(&unknown))?;
    }
    // Where there is no TLS, no binding is pretended.
    expect(freshet.address, good, "sslmode=disable channel_binding=require", Some("channel binding"))?;
    let md5 = Attempt { user: &md5, ..good };
    expect(freshet.address, md5, "sslmode=require", None)?;
    expect(freshet.address, md5, BOUND, Some("channel binding required"))?;
    Ok(())
}

/// A database that speaks TLS, and Freshet before it that reaches it so.
fn encrypted(options: &[&str], upstream: &str) -> Result<(Guarded, Freshet)> {
    // The only version here that was built with TLS.
    let plain = Guarded::new(Version::V15)?;
    let server = Version::V15.start(&settings().with_tls(certificate(&plain, "database")?))?;
    let guarded = Guarded::on(server)?;
    let scram = guarded.role("scram", Kind::Scram, "pencil")?;
    let md5 = guarded.role("md5", Kind::Md5, "pencil")?;
    let users = guarded.users_file(&[&scram, &md5])?;
    let tls = tls_options(&certificate(&guarded, "freshet")?);
    let mut all: Vec<_> = tls.iter().map(String::as_str).collect();
    all.extend(options.iter().map(|option| if *option == "USERS" { users.as_str() } else { option }));
    let url = format!("{}?{upstream}", guarded.database.url());
    let freshet = Freshet::start_unready(guarded.database.address(), &url, &asking(&all))?;
    Ok((guarded, freshet))
}

/// With TLS on both legs and no verifiers the password is handed on, by whatever method the database asks for.
#[test]
fn passwords_are_handed_on() -> Result<()> {
    let (guarded, freshet) = encrypted(&[], "sslmode=require")?;
    if !freshet.is_there() {
        return Ok(());
    }
    for role in ["scram", "md5"] {
        let user = guarded.name(role);
        let good = Attempt { user: &user, password: "pencil", database: &guarded.database.name };
        let wrong = wrong_password(&user).message;
        // The client asks for no channel binding, as its password is asked for in clear text.
        for options in ["sslmode=require", "sslmode=disable"] {
            expect(freshet.address, good, options, None)?;
            for password in ["wrong", "pencil "] {
                expect(freshet.address, Attempt { password, ..good }, options, Some(&wrong))?;
            }
        }
        // It is asked for nothing that it did not agree to.
        expect(freshet.address, good, BOUND, Some("channel binding required"))?;
    }
    Ok(())
}

/// A database that asks for the password in clear text gets it over TLS alone.
#[test]
fn clear_text_is_not_relayed_in_the_open() -> Result<()> {
    let (guarded, freshet) = encrypted(&[], "sslmode=require")?;
    if !freshet.is_there() {
        return Ok(());
    }
    guarded.database.server.replace_hba(&[
        "host all postgres 127.0.0.1/32 trust".to_owned(),
        "hostssl all all 127.0.0.1/32 password".to_owned(),
    ])?;
    let user = guarded.name("scram");
    let good = Attempt { user: &user, password: "pencil", database: &guarded.database.name };
    crate::support::eventually(crate::support::PATIENCE, || {
        expect(guarded.database.address(), good, "sslmode=disable", Some("no pg_hba.conf entry"))
    })?;
    expect(freshet.address, good, "sslmode=require", None)?;
    let wrong = wrong_password(&user).message;
    expect(freshet.address, Attempt { password: "wrong", ..good }, "sslmode=require", Some(&wrong))?;
    expect(freshet.address, good, "sslmode=disable", Some("TLS"))
}

/// The recovered key logs in with channel binding to the database's certificate, whatever the client does itself.
#[test]
fn recovered_keys_bind_to_the_upstream() -> Result<()> {
    let (guarded, freshet) = encrypted(&["--users", "USERS"], "sslmode=require&channel_binding=require")?;
    if !freshet.is_there() {
        return Ok(());
    }
    let (scram, md5) = (guarded.name("scram"), guarded.name("md5"));
    let good = Attempt { user: &scram, password: "pencil", database: &guarded.database.name };
    for options in [BOUND, "sslmode=require", "sslmode=disable"] {
        expect(freshet.address, good, options, None)?;
        let wrong = wrong_password(&scram).message;
        expect(freshet.address, Attempt { password: "wrong", ..good }, options, Some(&wrong))?;
    }
    // MD5 binds to nothing.
    expect(freshet.address, Attempt { user: &md5, ..good }, "sslmode=require", Some("channel binding"))
}
