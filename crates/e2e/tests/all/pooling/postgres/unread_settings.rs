//! Settings of applications whose names no text shows, or whose value no catalogue shows: no session sees those of another.

use anyhow::{Context, Result, ensure};

use super::{is_silent, shared};
use crate::support::frames::{bind_text, execute, frame, query, sync};
use crate::support::{Login, PATIENCE, Pair, RawClient, Version, ensure_hits, eventually, on_both};

on_both!(
    texts_that_are_not_read_keep_the_connection,
    texts_that_are_not_read_keep_what_nobody_can_ask_for,
    long_texts_that_set_nothing_keep_none,
    an_empty_value_does_not_become_the_logins,
    names_are_given_without_a_right,
    a_sequence_that_others_have_advanced_is_not_read,
);

const SCHEMA: &str = "create table t (id int primary key, v text); insert into t values (1, 'a')";
const IS_UNKNOWN: &str = "select current_setting('app.x', true) is null from t where id = 1 for share";

/// `set_config('app.x', '7', false)` as a call of a function by its number.
const CALL: &[u8] = b"\0\0\x08\x1e\0\x01\0\0\0\x03\0\0\0\x05app.x\0\0\0\x017\0\0\0\x01f\0\0";

/// A text that is too long to be looked at.
fn long(behind: &str) -> String {
    format!("select '{}'; {behind}", "a set of words. ".repeat(10_000))
}

fn with(pair: &Pair, more: &[(&str, &str)]) -> Result<RawClient> {
    RawClient::login(pair.address(), Login { more, ..pair.login() })
}

fn texts_that_are_not_read_keep_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let simple = |sql: &str| query(sql);
    let set = format!("select /*{}*/ set_config('app.x', '7', false)", "x".repeat(100_000));
    let unnamed = |text: &[u8]| {
        [frame(b'P', &[b"\0", text, b"\0\0\0"].concat()), bind_text("", "", &[]), execute("", 0), sync()].concat()
    };
    for (what, sent) in [
        ("another encoding", frame(b'Q', b"set app.x = 'M\xfcller'\0")),
        ("another encoding, prepared", unnamed(b"set app.x = 'M\xfcller'")),
        ("a long text", simple(&long("set app.x = '7'"))),
        ("a long text, prepared", unnamed(set.as_bytes())),
        ("a call", frame(b'F', CALL)),
        ("a name by format", simple("do $$ begin execute format('set %s = %L', 'app.x', '7'); end $$")),
        ("a name that is joined", simple("do $$ begin execute 'set ' || 'app.x = 7'; end $$")),
        ("a hidden comment", simple("select '/*'; set /*c*/ app.x = 7")),
        ("an escape", simple("select U&\"set\\005fconfig\"('app.x', '7', false)")),
    ] {
        let (mut a, mut b) = (with(&pair, &[("client_encoding", "LATIN1")])?, pair.connect()?);
        let answer = a.exchange(&sent, 1).context(what)?;
        ensure!(answer.iter().all(|message| message.tag != b'E'), "{what}: {answer:?}");
        b.send(&query(IS_UNKNOWN))?;
        ensure!(is_silent(&b)?, "{what} keeps no connection");
        a.run("show app.x").context(what)?;
        drop(a);
        b.until(b'Z').context(what)?;
        ensure!(b.value(IS_UNKNOWN)? == "t", "{what}: another session sees it");
    }
    // Code that puts a name together.
    pair.database.run(
        "create function f(k text) returns void language plpgsql as \
         $$ begin execute format('SET SESSION %s = %L', k, '7'); end $$; \
         create function g(k text) returns void language plpgsql as $$ begin execute 'set ' || k || ' = 7'; end $$",
    )?;
    for sql in ["select f('app.x')", "select g('app.x')"] {
        let (mut a, mut b) = (pair.connect()?, pair.connect()?);
        a.run(sql)?;
        b.send(&query(IS_UNKNOWN))?;
        ensure!(is_silent(&b)?, "{sql} keeps no connection");
        drop(a);
        b.until(b'Z')?;
        ensure!(b.value(IS_UNKNOWN)? == "t", "{sql}");
    }
    Ok(())
}

/// What changes the server process unseen keeps the connection, however its text is sent.
fn texts_that_are_not_read_keep_what_nobody_can_ask_for(version: Version) -> Result<()> {
    let pair = shared(version, &format!("{SCHEMA}; create sequence s"), 1)?;
    let prepared = |text: &str| {
        let parse = frame(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat());
        [parse, bind_text("", "", &[]), execute("", 0), sync()].concat()
    };
    let setseed = format!("select '{}', setseed(0.5)", "x".repeat(100_000));
    for (what, sent) in [
        ("a library", query(&long("load 'plpgsql'"))),
        ("a library, first", query(&format!("load 'plpgsql'; select '{}'", "x".repeat(100_000)))),
        ("a library behind another statement", query("select 1; load 'plpgsql'")),
        ("a seed", query(&long("select setseed(0.5)"))),
        ("a seed, prepared", prepared(&setseed)),
        ("a seed in another encoding", frame(b'Q', b"select setseed(0.5), 'M\xfcller'\0")),
        ("a sequence", query(&long("select nextval('s'), currval('s')"))),
    ] {
        let (mut a, mut b) = (with(&pair, &[("client_encoding", "LATIN1")])?, pair.connect()?);
        let answer = a.exchange(&sent, 1).context(what)?;
        ensure!(answer.iter().all(|message| message.tag != b'E'), "{what}: {answer:?}");
        b.send(&query(IS_UNKNOWN))?;
        ensure!(is_silent(&b)?, "{what} keeps no connection");
        drop(a);
        b.until(b'Z').context(what)?;
    }
    Ok(())
}

/// Words of constants are no settings, where the session knows what a statement may run: it does not at once, nor always behind a text that is too long.
fn long_texts_that_set_nothing_keep_none(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let long =
        format!("insert into t values (2, '{}') on conflict (id) do update set v = 'b'", "a set of ".repeat(20_000));
    for sql in [
        &*long,
        "insert into t values (3, 'we reset U.S. policy, and set \"A\".b by set_config') on conflict do nothing",
        "update t set v = 'select set_config(''a'' || ''.b'', 1)'",
    ] {
        eventually(PATIENCE, || {
            let (mut a, mut b) = (pair.connect()?, pair.connect()?);
            for client in [&mut a, &mut b] {
                eventually(PATIENCE, || {
                    ensure_hits(&pair.freshet, 1, || client.value("select v from t where id = 1"))
                })?;
            }
            a.run(sql)?;
            b.send(&query("select 1 from t where id = 1 for share"))?;
            ensure!(!is_silent(&b)?, "{}", sql.chars().take(80).collect::<String>());
            Ok(())
        })?;
    }
    Ok(())
}

fn an_empty_value_does_not_become_the_logins(version: Version) -> Result<()> {
    const TENANT: &str = "select current_setting('app.tenant') from t where id = 1 for share";
    let pair = shared(version, SCHEMA, 2)?;
    let options = [("options", "-c app.tenant=a")];
    for more in [&options[..], &[]] {
        if more.is_empty() {
            let name = &pair.database.name;
            pair.database.run(&format!("alter database {name} set app.tenant = 'a'"))?;
        }
        let (mut a, mut b, mut c) = (with(&pair, more)?, with(&pair, more)?, with(&pair, more)?);
        ensure!(a.value(TENANT)? == "a");
        a.run("set app.tenant = ''")?;
        // The connection that it had is in use, if it was given back.
        b.run("set app.tenant = ''")?;
        b.run("begin; select 1 from t for share")?;
        if let Ok(tenant) = a.value(TENANT) {
            ensure!(tenant.is_empty(), "it has become {tenant}");
        }
        drop((a, b));
        ensure!(c.value(TENANT)? == "a", "{more:?}");
    }
    Ok(())
}

fn names_are_given_without_a_right(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    pair.database
        .run("revoke execute on function set_config from public; create role plain login; grant all on t to plain")?;
    let login = Login { user: "plain", ..pair.login() };
    let (mut a, mut b) = (RawClient::login(pair.address(), login)?, RawClient::login(pair.address(), login)?);
    for client in [&mut a, &mut b] {
        client.run("begin; set local app.\"select\" = '1'; commit")?;
    }
    b.run("begin; select 1 from t for share")?;
    let mut c = RawClient::login(pair.address(), login)?;
    c.run("begin; set local app.\"select\" = '1'; commit")?;
    for client in [&mut a, &mut c] {
        ensure!(client.value("select current_setting('app.select') = '' from t for share")? == "t");
    }
    Ok(())
}

/// The connection was another session's meanwhile, and is kept for another reason before the sequence is read.
fn a_sequence_that_others_have_advanced_is_not_read(version: Version) -> Result<()> {
    let pair = shared(version, &format!("{SCHEMA}; create sequence s"), 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    ensure!(a.value("select nextval('s')")? == "1" && b.value("select nextval('s')")? == "2");
    drop(b);
    a.run("select setseed(0.5)")?;
    a.send(&query("select currval('s')"))?;
    let answer = a.until(b'E')?;
    let error = answer.last().and_then(|message| message.field(b'C'));
    ensure!(error.as_deref() == Some("55000"), "{answer:?}");
    Ok(())
}
