//! Settings of applications, as row-level security uses them: set for a transaction they keep no connection, and no session sees those of another.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::operator::{console, row};
use super::{PID, is_silent, shared, shared_by_one};
use crate::support::frames::{bind_text, describe_portal, execute, parse, query, sync};
use crate::support::{PATIENCE, Pair, RawClient, Version, ensure_same, eventually, on_both};

on_both!(
    a_transaction_with_a_setting_keeps_no_connection,
    names_are_as_direct,
    a_value_keeps_the_connection,
    names_that_cannot_be_read_keep_the_connection,
    blocks_without_reads_leave_an_empty_setting,
    values_of_the_login_are_shared,
);

const SCHEMA: &str =
    "create table t (id int primary key, v int, owner text); insert into t values (1, 10, 'a'), (2, 20, 'b')";

/// The server connections of the clients.
fn open(pair: &Pair) -> Result<String> {
    let name = &pair.database.name;
    pair.database.connect()?.value(&format!(
        "select count(*) from pg_stat_activity where datname = '{name}' and application_name = '' \
         and backend_type = 'client backend' and pid <> pg_backend_pid()"
    ))
}

/// Whether it keeps the only connection from the other.
fn keeps(client: &mut RawClient, other: &mut RawClient, sql: &str) -> Result<bool> {
    client.run(sql).with_context(|| sql.to_owned())?;
    other.send(&query("select 'free' from t for share"))?;
    is_silent(other)
}

fn a_transaction_with_a_setting_keeps_no_connection(version: Version) -> Result<()> {
    let pair = shared_by_one(version, SCHEMA, 2)?;
    let mut clients = (0..10).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let name = format!("{round}.{number}");
            client.run("begin")?;
            client.run(&format!("set local app.user_name = '{name}'"))?;
            client.run("update t set v = v + 1 where id = 1")?;
            ensure!(client.value("select current_setting('app.user_name')")? == name);
            client.run("commit")?;
            client.run(&format!("select set_config('app.other', '{name}', true)"))?;
            // By the extended protocol.
            let set = parse("", "select set_config('app.user_name', $1, true)");
            let batch = [set, bind_text("", "", &[&name]), describe_portal(""), execute("", 0), sync()].concat();
            client.exchange(&batch, 1)?;
            ensure!(
                client.value("select current_setting('app.user_name') || current_setting('app.other')")?.is_empty()
            );
        }
    }
    ensure!(open(&pair)? == "2");
    ensure!(clients[0].value("select v from t where id = 1")? == "40");
    let mut console = console(&pair)?;
    eventually(PATIENCE, || {
        let pinned = row(&mut console, "show pools", ("user", pair.login().user))?;
        ensure!(pinned["sv_active"] == "0", "{pinned:?}");
        Ok(())
    })?;
    // Sessions that know the names share what the others have used.
    let pids = clients.iter_mut().map(|client| client.value(PID)).collect::<Result<BTreeSet<_>>>()?;
    ensure!(pids.len() <= 2 && open(&pair)? == "2", "other connections: {pids:?}");
    // With the connections in use, reads behind such transactions still hit.
    let read = "select v from t where id = 2";
    for client in &mut clients {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.hits();
            ensure!(client.value(read)? == "20");
            ensure!(pair.freshet.metrics()?.hits() == before + 1, "no hit");
            Ok(())
        })?;
    }
    let (busy, others) = clients.split_at_mut(2);
    for client in busy {
        client.run("begin; select 1 from t for share")?;
    }
    let before = pair.freshet.metrics()?.hits();
    for client in others.iter_mut() {
        ensure!(client.value(read)? == "20");
    }
    ensure!(pair.freshet.metrics()?.hits() == before + 8);
    Ok(())
}

/// Statements that define names or show them; behind each conversation nothing keeps the connection.
const CONVERSATIONS: [&[&str]; 9] = [
    &[
        "begin",
        "set local app.x = 'v'",
        "show app.x",
        "commit",
        "show app.x",
        "reset app.x",
        "show app.x",
        "discard all",
        "show app.x",
    ],
    &["begin", "set local app.x = 'v'", "rollback", "show app.x"],
    &["begin", "savepoint s", "set local app.x = 'v'", "rollback to s", "commit", "show app.x", "show app.y"],
    &[
        "select set_config('app.x', 'v', true), current_setting('app.x')",
        "show app.x",
        "select current_setting('app.y', true)",
    ],
    &["set app.x = 'v'", "show app.x", "reset app.x", "show app.x", "set app.x to default", "show app.x", "show app.y"],
    &["set App.Y = 'v'; discard all", "show app.y", "select current_setting('app.x', true)"],
    &["reset app.y", "show app.y", "show app.x"],
    &[
        "do $$ begin perform set_config('app.x', 'v', true); end $$",
        "show app.x",
        "select 1/0",
        "set local app.y = 1",
        "show app.y",
    ],
    &[
        "select 'set app.x = 1'",
        "show app.x",
        "set /* here */ app.x = ''",
        "show app.x",
        "begin",
        "select 1/0",
        "set local app.y = 1",
        "rollback",
        "show app.y",
    ],
];

/// Each session beside others that know other names.
fn names_are_as_direct(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let mut sessions = Vec::new();
    for _ in CONVERSATIONS {
        sessions.push((pair.database.connect()?, pair.connect()?));
    }
    for round in 0..3 {
        for (number, (direct, through)) in sessions.iter_mut().enumerate() {
            // Later, each knows what it has said before.
            let first = if round == 2 { CONVERSATIONS.len() - 1 - number } else { number };
            for sql in CONVERSATIONS[first] {
                let (expected, got) = (direct.query(sql)?, through.query(sql)?);
                ensure_same(&expected, &got).with_context(|| format!("round {round}, session {number}: {sql}"))?;
            }
        }
    }
    Ok(())
}

fn a_value_keeps_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    for (sets, resets) in [
        ("set app.x = 'v'", "reset app.x"),
        ("select set_config('app.x', 'v', false)", "set app.x = ''"),
        ("begin; set app.x = 'v'; commit", "discard all"),
    ] {
        ensure!(keeps(&mut a, &mut b, sets)?, "{sets}");
        ensure!(a.value("show app.x")? == "v");
        a.run(resets)?;
        b.until(b'Z').context(resets)?;
        ensure!(b.value("select current_setting('app.x', true) is null")? == "t", "{sets}: another session sees it");
    }
    Ok(())
}

fn names_that_cannot_be_read_keep_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    for sets in [
        "select set_config('app' || '.x', 'v', true)",
        "select set_config('App.x', 'v', true)",
        "do $$ begin execute 'set local app.' || 'x = 1'; end $$",
        &(0..20).map(|number| format!("set local app.n{number} = 1")).collect::<Vec<_>>().join("; "),
    ] {
        let (mut a, mut b) = (pair.connect()?, pair.connect()?);
        ensure!(keeps(&mut a, &mut b, sets)?, "{sets}");
        drop(a);
        b.until(b'Z')?;
        ensure!(b.value("select concat(current_setting('app.x', true), current_setting('app.n1', true)) = ''")? == "t");
    }
    Ok(())
}

/// A setting that there was not is empty behind the block, not NULL, in an answer from the cache, too.
fn blocks_without_reads_leave_an_empty_setting(version: Version) -> Result<()> {
    const READ: &str = "select coalesce(current_setting('app.x', true), 'null') from t where id = 1";
    for options in [&["--auth", "trust", "--pool", "transaction", "--default-pool-size", "1"][..], &[]] {
        let pair = Pair::over(crate::support::Database::shared(version)?, SCHEMA, options)?;
        let (mut first, mut client) = (pair.connect()?, pair.connect()?);
        let is_hit = |client: &mut RawClient, expected: &str| {
            eventually(PATIENCE, || {
                let before = pair.freshet.metrics()?.hits();
                let value = client.value(READ)?;
                assert!(value == expected, "{value}, not {expected}");
                ensure!(pair.freshet.metrics()?.hits() == before + 1, "no hit");
                Ok(())
            })
        };
        is_hit(&mut first, "null")?;
        for _ in 0..3 {
            let before = client.value(READ)?;
            is_hit(&mut client, &before)?;
            client.run("begin")?;
            client.run("set local app.x = 'v'")?;
            client.run("commit")?;
            is_hit(&mut client, "")?;
            is_hit(&mut first, "null")?;
        }
    }
    Ok(())
}

/// With a value that the database or the role gives to each login, all sessions know the name.
fn values_of_the_login_are_shared(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let name = &pair.database.name;
    pair.database.run(&format!("alter database {name} set app.x = ''; alter database {name} set app.y = 'a'"))?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let mine = a.value(PID)?;
    for _ in 0..3 {
        for client in [&mut a, &mut b] {
            client.run("begin")?;
            client.run("set local app.x = '1'; set local app.y = '2'")?;
            client.run("commit")?;
            ensure!(client.value("select current_setting('app.x') || current_setting('app.y')")? == "a");
        }
    }
    ensure!(b.value(PID)? == a.value(PID)?);
    ensure!(keeps(&mut a, &mut b, "set app.y = 'b'")?);
    a.run("reset app.y")?;
    b.until(b'Z')?;
    ensure!(mine == b.value(PID)?, "another connection");
    // A later login has another value, and no session changes over to it.
    pair.database.run(&format!("alter database {name} set app.y = 'c'"))?;
    let mut c = pair.connect()?;
    ensure!(c.value("select current_setting('app.y')")? == "c");
    if let Ok(value) = a.value("select current_setting('app.y') from t where id = 2") {
        ensure!(value == "a", "it has become {value}");
    }
    Ok(())
}
