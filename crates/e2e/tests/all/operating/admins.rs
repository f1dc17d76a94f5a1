//! Users who may ask Freshet about others.

use anyhow::{Result, ensure};

use super::{SCHEMA, connect_as, reader, rows, sqlstate};
use crate::cached::until_hit;
use crate::support::frames::{sync, unnamed};
use crate::support::{Database, Pair, RawClient, Version, on_both_at_length};

on_both_at_length!(
    only_those_who_are_listed,
    names_are_exact,
    roles_lend_nothing,
    within_transactions,
    explain_shows_only_ones_own
);

const STATEMENTS: [&str; 6] = [
    "SHOW CACHES",
    "SHOW PROXIED QUERIES",
    "SHOW FRESHET QUERIES",
    "SHOW ADVICE",
    "SHOW FRESHET STATUS",
    "FRESHET BYPASS OFF",
];

/// All of them are answered, or all are refused.
fn may(client: &mut RawClient, may: bool) -> Result<()> {
    for sql in STATEMENTS {
        let answers = [client.query(sql)?, client.exchange(&[unnamed(sql, &[]), sync()].concat(), 1)?];
        for answer in answers {
            let refused = sqlstate(&answer);
            let good = if may { refused.is_none() } else { refused.as_deref() == Some("42501") };
            ensure!(good && may != rows(&answer).is_empty(), "{sql}, {may}: {answer:?}");
        }
    }
    Ok(())
}

fn pair(version: Version, options: &[&str]) -> Result<Option<Pair>> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, options)?;
    if pair.freshet.is_there() {
        // Something to show.
        until_hit(&pair, &mut pair.connect()?, "select title from film where id = 1")?;
        pair.connect()?.query("select now(), title from film")?;
    }
    Ok(pair.freshet.is_there().then_some(pair))
}

/// Not even superusers, unless they are listed.
fn only_those_who_are_listed(version: Version) -> Result<()> {
    let Some(pair) = pair(version, &[])? else { return Ok(()) };
    let other = reader(&pair, "other")?;
    pair.database.run(&format!("create role \"{other} super\" superuser login"))?;
    may(&mut pair.connect()?, true)?;
    may(&mut connect_as(&pair, &other)?, false)?;
    may(&mut connect_as(&pair, &format!("{other} super"))?, false)?;
    pair.database.run(&format!("drop role \"{other} super\""))
}

fn names_are_exact(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let (listed, other) = (format!("{}_Ops", database.name), format!("{}_ops", database.name));
    database.run(&format!("create role \"{listed}\" login; create role \"{other}\" login"))?;
    let pair = Pair::over(database, SCHEMA, &["--admin-users", &format!("{listed},nobody")])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    until_hit(&pair, &mut pair.connect()?, "select title from film where id = 1")?;
    pair.connect()?.query("select now(), title from film")?;
    may(&mut connect_as(&pair, &listed)?, true)?;
    may(&mut connect_as(&pair, &other)?, false)?;
    may(&mut pair.connect()?, false)
}

/// Who is listed is the session user. A member of an admin's role is not that admin, and an admin stays one under
/// another role, since it can always go back.
fn roles_lend_nothing(version: Version) -> Result<()> {
    let Some(pair) = pair(version, &[])? else { return Ok(()) };
    let other = reader(&pair, "other")?;
    let admin = pair.login().user;
    pair.database.run(&format!("grant \"{admin}\" to \"{other}\""))?;
    let mut member = connect_as(&pair, &other)?;
    member.run(&format!("set role \"{admin}\""))?;
    ensure!(member.value("select current_user")? == admin, "the role was not taken");
    may(&mut member, false)?;
    member.query(&format!("set session authorization \"{admin}\""))?;
    may(&mut member, false)?;
    member.query(&format!("select set_config('session_authorization', '{admin}', false)"))?;
    may(&mut member, false)?;
    let mut c = pair.connect()?;
    c.run(&format!("set role \"{other}\""))?;
    may(&mut c, true)?;
    c.run("reset role")?;
    c.run(&format!("set session authorization \"{other}\""))?;
    may(&mut c, false)?;
    c.run("reset session authorization")?;
    may(&mut c, true)?;
    pair.database.run(&format!("revoke \"{admin}\" from \"{other}\""))
}

/// Drivers without autocommit begin a transaction before the first statement: nothing can be asked of the server then.
fn within_transactions(version: Version) -> Result<()> {
    let Some(pair) = pair(version, &[])? else { return Ok(()) };
    let other = reader(&pair, "other")?;
    for (user, listed) in [(pair.login().user, true), (&other, false)] {
        let mut c = connect_as(&pair, user)?;
        c.run("begin")?;
        may(&mut c, listed)?;
        c.query("select 1/0")?;
        may(&mut c, listed)?;
        c.run("rollback")?;
        may(&mut c, listed)?;
        c.expect_silence()?;
    }
    Ok(())
}

fn explain_shows_only_ones_own(version: Version) -> Result<()> {
    let Some(pair) = pair(version, &[])? else { return Ok(()) };
    let other = reader(&pair, "other")?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, "select title as secret_name from film where title = 'secret value'")?;
    let mut asker = connect_as(&pair, &other)?;
    for sql in ["select title from film where id = 1", "select title from film where title = $1", "secret", "select 1"]
    {
        let answer = asker.query(&format!("EXPLAIN CACHE {sql}"))?;
        let text = answer.iter().map(|m| String::from_utf8_lossy(&m.body).into_owned()).collect::<String>();
        ensure!(!text.contains("secret_name") && !text.contains("secret value"), "{sql}: {text}");
        ensure!(sql == "secret" || !rows(&answer).is_empty(), "{sql}: {answer:?}");
    }
    Ok(())
}
