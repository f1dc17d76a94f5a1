//! How many connections there are, for whom, and in which mode.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::operator::{console, row};
use super::{PID, is_silent, shared_with};
use crate::support::frames::{query, startup};
use crate::support::{Database, Login, PATIENCE, Pair, RawClient, Version, eventually, on_both, time_passes};

on_both!(
    the_reserve_helps_who_waits,
    a_minimum_stays_open,
    one_user_does_not_keep_others_out,
    users_have_modes,
    statement_mode_refuses_transactions,
    too_many_clients,
    a_database_is_dropped,
);

const SCHEMA: &str = "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)";

/// A role of its own for this test.
fn role(pair: &Pair) -> Result<String> {
    let role = format!("{}_other", pair.database.name);
    pair.database.run(&format!("create role \"{role}\" login; grant all on t to \"{role}\""))?;
    Ok(role)
}

/// The server connections of the clients.
fn open(pair: &Pair) -> Result<String> {
    let name = &pair.database.name;
    pair.database.connect()?.value(&format!(
        "select count(*) from pg_stat_activity where datname = '{name}' and application_name = '' \
         and backend_type = 'client backend' and pid <> pg_backend_pid()"
    ))
}

fn the_reserve_helps_who_waits(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 1, &["--reserve-pool-size", "1", "--reserve-pool-timeout", "500ms"])?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("begin; update t set v = 11 where id = 1")?;
    b.run("update t set v = 21 where id = 2").context("there is a reserve")?;
    b.run("begin; update t set v = 22 where id = 2")?;
    let mut c = RawClient::open(pair.address())?;
    let Login { user, database, .. } = pair.login();
    c.send(&startup(&[("user", user), ("database", database), ("application_name", "c")]))?;
    time_passes("the reserve is used up", Duration::from_millis(900));
    ensure!(is_silent(&c)?, "more than the reserve");
    a.run("commit")?;
    c.until(b'Z')?;
    b.run("commit")
}

fn a_minimum_stays_open(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 4, &["--min-pool-size", "2", "--server-idle-timeout", "1s"])?;
    let mut client = pair.connect()?;
    client.run("select 1 from t")?;
    eventually(PATIENCE, || {
        ensure!(open(&pair)? == "2", "{} connections", open(&pair)?);
        Ok(())
    })?;
    // More are closed, and lost ones are replaced.
    let all = (0..4).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    drop(all);
    eventually(PATIENCE, || {
        ensure!(open(&pair)? == "2", "{} connections", open(&pair)?);
        Ok(())
    })?;
    let first = client.value(PID)?;
    pair.database.run(&format!("select pg_terminate_backend({first}, 10000)"))?;
    ensure!(client.value("select v from t where id = 2")? == "20");
    eventually(PATIENCE, || {
        ensure!(open(&pair)? == "2", "{} connections", open(&pair)?);
        Ok(())
    })?;
    drop(client);
    eventually(PATIENCE, || {
        ensure!(open(&pair)? == "0", "there is no client");
        Ok(())
    })
}

fn one_user_does_not_keep_others_out(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 4, &["--max-db-connections", "1"])?;
    let other = role(&pair)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| -> Result<u64> {
                    let (mut client, mut count) = (pair.connect()?, 0);
                    while !done.load(Relaxed) {
                        client.run("update t set v = v + 1 where id = 1")?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        let poor = (|| {
            let mut client = RawClient::login(pair.address(), pair.database.login_as(&other))?;
            for _ in 0..5 {
                client.run("update t set v = v + 1 where id = 2")?;
            }
            Ok(())
        })();
        done.store(true, Relaxed);
        let counts = busy.into_iter().map(|one| one.join().expect("no panic")).collect::<Result<Vec<_>>>()?;
        ensure!(counts.iter().all(|count| *count > 0), "{counts:?}");
        poor
    })
}

fn users_have_modes(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let other = format!("{}_other", database.name);
    let modes = format!("{other}=session");
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "1", "--pool-users", &modes];
    let pair = Pair::over(database, SCHEMA, &options)?;
    role(&pair)?;
    let mut own = RawClient::login(pair.address(), pair.database.login_as(&other))?;
    let mut own_too = RawClient::login(pair.address(), pair.database.login_as(&other))?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("begin; update t set v = 11 where id = 1")?;
    b.send(&query("update t set v = 12 where id = 1"))?;
    ensure!(is_silent(&b)?);
    own.run("set work_mem = '1MB'")?;
    own_too.run("update t set v = 21 where id = 2")?;
    ensure!(own.value("show work_mem")? == "1MB");
    let mut console = console(&pair)?;
    for (user, mode, servers) in [(other.as_str(), "session", "2"), (pair.login().user, "transaction", "1")] {
        let row = row(&mut console, "show pools", ("user", user))?;
        ensure!(row["pool_mode"] == mode && row["sv_active"] == servers, "{row:?}");
    }
    ensure!(row(&mut console, "show databases", ("name", pair.login().database))?["current_connections"] == "3");
    a.run("commit")?;
    b.until(b'Z').map(drop)
}

fn statement_mode_refuses_transactions(version: Version) -> Result<()> {
    let options = ["--auth", "trust", "--pool", "statement", "--default-pool-size", "1"];
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &options)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("begin; update t set v = 11 where id = 1; commit")?;
    for round in 0..3 {
        b.run("update t set v = v + 1 where id = 1")?;
        ensure!(a.value("select v from t where id = 1")? == (12 + round).to_string());
    }
    a.send(&query("begin; update t set v = 99 where id = 1"))?;
    let error = a.until(b'E')?.pop().context("no error")?;
    let said = (error.field(b'C').unwrap_or_default(), error.field(b'M').unwrap_or_default());
    ensure!(said.0 == "08P01" && said.1 == "transaction blocks not allowed in statement pooling mode", "{said:?}");
    ensure!(a.bytes_to_end()?.is_empty());
    ensure!(b.value("select v from t where id = 1")? == "14", "the transaction was not rolled back");
    let row = row(&mut console(&pair)?, "show databases", ("name", pair.login().database))?;
    ensure!(row["pool_mode"] == "statement", "{row:?}");
    Ok(())
}

fn too_many_clients(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 4, &["--max-client-conn", "2"])?;
    let (first, _second) = (pair.connect()?, pair.connect()?);
    let mut third = RawClient::open(pair.address())?;
    let refused = third.start(pair.login())?;
    let said = refused.last().and_then(|message| message.field(b'M'));
    ensure!(said.as_deref() == Some("no more connections allowed (max_client_conn)"), "{refused:?}");
    console(&pair).context("the console is open")?;
    drop(first);
    eventually(PATIENCE, || pair.connect())?.run("select 1 from t")
}

/// The idle connections to a database are in nobody's way who drops, renames or copies it.
fn a_database_is_dropped(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 4, &[])?;
    let (mut owner, other) = (pair.connect()?, format!("{}_other", pair.database.name));
    for end in [
        "drop database \"{}\"",
        "alter database \"{}\" rename to \"{}_new\"",
        "create database \"{}_copy\" template \"{}\"",
    ] {
        owner.run(&format!("create database \"{other}\""))?;
        let login = Login { database: &other, ..pair.login() };
        let mut clients = (0..3).map(|_| RawClient::login(pair.address(), login)).collect::<Result<Vec<_>>>()?;
        for client in &mut clients {
            client.run("begin; create table u (id int); drop table u; commit")?;
        }
        owner.run(&end.replace("{}", &other))?;
        for name in [&other, &format!("{other}_new"), &format!("{other}_copy")] {
            owner.run(&format!("drop database if exists \"{name}\""))?;
        }
    }
    // Its own connections stay.
    let before = owner.value(PID)?;
    owner.run(&format!("create database \"{other}\""))?;
    owner.run(&format!("drop database \"{other}\""))?;
    ensure!(owner.value(PID)? == before, "its connection is a new one");
    Ok(())
}
