//! Guessing is slow, and connections that never log in do not lock out others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};

use super::guarded::{Attempt, Guarded, Kind, Refused, wrong_password};
use super::malformed::{initial, sasl_first};
use crate::support::{PATIENCE, RawClient, Version, eventually, on_both_at_length};

on_both_at_length!(
    failures_per_address,
    failures_are_counted_for_relayed_logins,
    silent_clients,
    a_flood_of_silent_clients
);

fn at(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// The default: 20 a minute.
fn failures_per_address(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let unknown = guarded.name("nobody");
    let users = guarded.users_file(&[&user])?;
    let freshet = guarded.freshet(&["--users", &users])?;
    let attempt = |user: &str, password, from| {
        Attempt { user, password, database: &guarded.database.name }.from(Some(at(from)), freshet.address)
    };
    for i in 0..20 {
        // Good logins in between earn nothing, and unknown users count.
        ensure!(attempt(&user, "pencil", 1)?.as_ref() == Ok(&user), "attempt {i}");
        let user = if i % 2 == 0 { &user } else { &unknown };
        ensure!(attempt(user, "wrong", 1)? == Err(wrong_password(user)), "attempt {i}");
    }
    if !freshet.is_there() {
        return Ok(());
    }
    for (user, password) in [(&user, "wrong"), (&user, "pencil"), (&unknown, "wrong")] {
        // On a slow machine the address has earned another attempt by now.
        eventually(PATIENCE, || {
            let refused = attempt(user, password, 1)?.err();
            let spent = |it: &Refused| it.severity == "FATAL" && it.message.contains("too many failed logins");
            if !refused.as_ref().is_some_and(spent) {
                let _ = attempt(&unknown, "wrong", 1)?;
                bail!("after too many failures: {refused:?}");
            }
            Ok(())
        })?;
    }
    // Other addresses are not punished.
    ensure!(attempt(&user, "pencil", 2)?.as_ref() == Ok(&user), "the other address is locked out");
    ensure!(attempt(&user, "wrong", 2)? == Err(wrong_password(&user)), "the other address");
    Ok(())
}

/// Where the database decides, guesses are limited all the same.
fn failures_are_counted_for_relayed_logins(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = [guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?];
    let freshet = guarded.freshet(&["--login-failures-max", "3"])?;
    let attempt = |user: &str, password, from| {
        Attempt { user, password, database: &guarded.database.name }.from(Some(at(from)), freshet.address)
    };
    for (from, user) in (1..).zip(&roles) {
        for i in 0..3 {
            ensure!(attempt(user, "wrong", from)? == Err(wrong_password(user)), "attempt {i}");
        }
        let outcome = attempt(user, "pencil", from)?;
        let refused = outcome.as_ref().err().map(|refused| refused.message.contains("too many failed logins"));
        ensure!(!freshet.is_there() || refused == Some(true), "{outcome:?}");
    }
    ensure!(attempt(&roles[0], "pencil", 9)?.is_ok(), "another address");
    Ok(())
}

/// Clients that stop in the middle, at each point, delay no other client.
fn silent_clients(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (scram, md5) = (guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?);
    let users = guarded.users_file(&[&scram, &md5])?;
    for options in [vec!["--users", &users], vec![]] {
        let freshet = guarded.freshet(&options)?;
        let mut silent = Vec::new();
        for _ in 0..5 {
            silent.push(RawClient::open(freshet.address)?);
            for user in [&scram, &md5] {
                silent.push(sasl_first(freshet.address, user, &guarded.database.name)?.0);
            }
            let (mut client, _) = sasl_first(freshet.address, &scram, &guarded.database.name)?;
            client.send(&initial("SCRAM-SHA-256", b"n,,n=,r=x"))?;
            client.read()?;
            silent.push(client);
            let (mut client, _) = sasl_first(freshet.address, &scram, &guarded.database.name)?;
            client.send(&initial("SCRAM-SHA-256", b"n,,n=,r=x").split_off(20))?;
            silent.push(client);
        }
        for user in [&scram, &md5] {
            let outcome = Attempt { user, password: "pencil", database: &guarded.database.name }.at(freshet.address)?;
            ensure!(outcome.as_ref() == Ok(user), "{options:?}: {outcome:?}");
        }
        ensure!(freshet.is_alive(), "{}", freshet.log());
    }
    Ok(())
}

/// More than may be half open at a time (1,000): the oldest make room.
fn a_flood_of_silent_clients(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let users = guarded.users_file(&[&user])?;
    let freshet = guarded.freshet(&["--users", &users])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut silent = open_many(freshet.address, 1100)?;
    let outcome = Attempt { user: &user, password: "pencil", database: &guarded.database.name }.at(freshet.address)?;
    ensure!(outcome.as_ref() == Ok(&user), "{outcome:?}");
    let oldest = silent.first_mut().context("none")?;
    ensure!(oldest.bytes_to_end()?.is_empty(), "the oldest hears something");
    // The database never saw them.
    let count = format!("select count(*) from pg_stat_activity where datname = '{}'", guarded.database.name);
    eventually(PATIENCE, || {
        let count: u32 = guarded.database.connect()?.value(&count)?.parse()?;
        ensure!(count < 20, "{count} connections");
        Ok(())
    })?;
    let last = silent.last_mut().context("none")?;
    // Also the newest can still log in: it was not closed.
    last.send(&crate::support::frames::startup(&[("user", "nobody"), ("database", &guarded.database.name)]))?;
    let offer = last.read()?;
    ensure!(offer.tag == b'R', "{:?}", Refused::of(&offer));
    Ok(())
}

fn open_many(address: SocketAddr, count: usize) -> Result<Vec<RawClient>> {
    (0..count).map(|i| RawClient::open(address).with_context(|| format!("connection {i}"))).collect()
}
