//! A login is one at the server, and the settings of a session are those of its own login.

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared};
use crate::support::frames::{query, startup};
use crate::support::{Login, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(a_login_has_the_settings_in_force, a_session_whose_settings_are_no_more, a_login_takes_its_turn);

/// Changes a setting of the database's logins.
fn set(pair: &Pair, work_mem: &str) -> Result<()> {
    pair.database.run(&format!("alter database {} set work_mem = '{work_mem}'", pair.database.name))
}

fn a_login_has_the_settings_in_force(version: Version) -> Result<()> {
    let pair = shared(version, "", 3)?;
    let mut before = pair.connect()?;
    let old = before.value("show work_mem")?;
    for megabytes in 7..12 {
        let now = format!("{megabytes}MB");
        set(&pair, &now)?;
        // The connections of the others are idle.
        let mut after = pair.connect()?;
        ensure!(after.value("show work_mem")? == now, "a new session has older settings");
        ensure!(after.value("show work_mem")? == now, "another connection has older settings");
        drop(after);
        let mut direct = pair.database.connect()?;
        ensure!(direct.value("show work_mem")? == now);
    }
    // As long as a connection with its settings is left.
    if let Ok(value) = before.value("show work_mem") {
        ensure!(value == old, "a session has the settings of a later login: {value}");
    }
    Ok(())
}

fn a_session_whose_settings_are_no_more(version: Version) -> Result<()> {
    let pair = shared(version, "", 1)?;
    let mut before = pair.connect()?;
    before.run("select 1")?;
    set(&pair, "7MB")?;
    let mut after = pair.connect()?;
    let replaced = after.value(PID)?;
    before.send(&query("select 2 from pg_class"))?;
    let refused = before.until(b'E')?;
    ensure!(refused.iter().any(|message| message.field(b'C').as_deref() == Some("57P01")), "{refused:?}");
    // What was opened for it is closed: nobody has any use for it.
    let open = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and backend_type = 'client backend' \
         and application_name = '' and pid <> pg_backend_pid()",
        pair.database.name
    );
    let mut direct = pair.database.connect()?;
    eventually(PATIENCE, || {
        ensure!(direct.value(&open)? == "0", "a connection is left");
        Ok(())
    })?;
    ensure!(after.value(PID)? != replaced, "a closed connection");
    ensure!(after.value("show work_mem")? == "7MB");
    Ok(())
}

/// With a pool that is full, a login waits as a statement does, and takes the place of an idle connection.
fn a_login_takes_its_turn(version: Version) -> Result<()> {
    let pair = shared(version, "create table t (v int)", 1)?;
    let mut a = pair.connect()?;
    let mine = a.value(PID)?;
    let mut b = pair.connect().context("the connection is idle")?;
    ensure!(b.value(PID)? != mine, "no login at the server");
    b.run("begin; insert into t values (1)")?;
    let mut c = RawClient::open(pair.address())?;
    let Login { user, database, .. } = pair.login();
    c.send(&startup(&[("user", user), ("database", database)]))?;
    ensure!(is_silent(&c)?, "a login without a connection");
    b.run("commit")?;
    c.until(b'Z')?;
    ensure!(c.value("select count(*) from t")? == "1");
    Ok(())
}
