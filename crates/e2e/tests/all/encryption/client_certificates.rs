//! `--auth cert`: a client with a certificate for a user is that user.

use anyhow::{Result, ensure};
use freshet_testbed::Tls;

use super::programs::{conninfo, psql_output, showing};
use super::workshop::{Workshop, text};
use super::{Front, READ};
use crate::support::{RawClient, Version, on_both_at_length};

on_both_at_length!(certificates_for_users, asked_for_and_not_needed);

/// A Freshet that knows authorities of clients.
fn front(version: Version, workshop: &Workshop, options: &[&str]) -> Result<(Front, super::Authority, String)> {
    let clients = workshop.authority("clients")?;
    let path = text(&clients.cert);
    let front = Front::start(version, &[&["--tls-client-ca", path.as_str()], options].concat())?;
    let user = front.database.name.clone();
    front.database.run(&format!("create role {user} login; grant select on film to {user}"))?;
    Ok((front, clients, user))
}

fn certificates_for_users(version: Version) -> Result<()> {
    let workshop = Workshop::open()?;
    let (front, clients, user) = front(version, &workshop, &["--auth", "cert"])?;
    if front.is_absent() {
        return drop_role(&front, &user);
    }
    let elsewhere = Workshop::open()?;
    let forged = elsewhere.leaf(&user, &[], &elsewhere.authority("strangers")?)?;
    let own = workshop.leaf(&user, &[], &clients)?;
    let other = workshop.leaf("other", &[], &clients)?;
    let failed = format!("FATAL:  certificate authentication failed for user \"{user}\"");
    let needed = "FATAL:  connection requires a valid client certificate".to_owned();
    let checks: [(Option<&Tls>, &str, Option<&str>); 5] = [
        (Some(&own), &user, None),
        (Some(&other), &user, Some(&failed)),
        (Some(&own), "postgres", Some("certificate authentication failed for user \"postgres\"")),
        (None, &user, Some(&needed)),
        (None, "postgres", Some(&needed)),
    ];
    for (tls, name, error) in checks {
        expect(&front, tls, name, error)?;
    }
    expect(&front, Some(&forged), &user, Some("unknown ca"))?;
    let late = workshop.expired("late", &[], &clients)?;
    expect(&front, Some(&late), &user, Some("expired"))?;
    // Without TLS there is no certificate.
    let messages = RawClient::open(front.freshet.address)?.start(front.database.login_as(&user))?;
    let error = messages.last().and_then(|message| message.field(b'C'));
    ensure!(error.as_deref() == Some("28000"), "{messages:?}");
    drop_role(&front, &user)
}

/// With authorities and another way to log in, a certificate is welcome and proves nothing.
fn asked_for_and_not_needed(version: Version) -> Result<()> {
    let workshop = Workshop::open()?;
    let (front, clients, user) = front(version, &workshop, &[])?;
    if front.is_absent() {
        return drop_role(&front, &user);
    }
    let other = workshop.leaf("other", &[], &clients)?;
    let forged = workshop.leaf("forged", &[], &workshop.authority("strangers")?)?;
    expect(&front, None, &user, None)?;
    expect(&front, Some(&other), &user, None)?;
    expect(&front, Some(&forged), &user, Some("unknown ca"))?;
    drop_role(&front, &user)
}

/// In as this user, or out with this error.
fn expect(front: &Front, tls: Option<&Tls>, user: &str, error: Option<&str>) -> Result<()> {
    let root = format!("sslmode=verify-full sslrootcert={}", text(&front.authority.cert));
    let options = tls.map_or_else(|| root.clone(), |tls| format!("{root} {}", showing(tls)));
    let output = psql_output(&conninfo(front, user, &options), READ)?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match error {
        None => ensure!(out == "film 1\n", "{user} {tls:?}: {out}{err}"),
        Some(error) => ensure!(!output.status.success() && err.contains(error), "{user} {tls:?}: {out}{err}"),
    }
    Ok(())
}

fn drop_role(front: &Front, user: &str) -> Result<()> {
    front.database.run(&format!("drop owned by {user}; drop role {user}"))
}
