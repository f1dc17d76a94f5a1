//! Logins need no server connection, and show what the server would say; the settings of a session are those of its own login.

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared};
use crate::support::frames::{query, startup};
use crate::support::{Database, Login, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    a_login_has_the_settings_in_force,
    a_session_whose_settings_are_no_more,
    a_login_takes_its_turn,
    clients_whose_reads_hit_hold_no_connection,
    a_login_is_refused_as_by_the_server,
    a_server_that_is_down_refuses_logins,
    a_login_behind_reconnect_is_one_at_the_server,
);

/// One connection for all, and a server without other tests: a role that they change makes each next login one at the server.
fn alone(version: Version, schema: &str, more: &[&str]) -> Result<Pair> {
    let server = version.start(&freshet_testbed::Settings::default())?;
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "1"];
    Pair::over(Database::create(server)?, schema, &[&options, more].concat())
}

/// Other clients' connections to the server.
fn open(pair: &Pair) -> Result<String> {
    let name = &pair.database.name;
    pair.database.connect()?.value(&format!(
        "select count(*) from pg_stat_activity where datname = '{name}' and application_name = '' \
         and backend_type = 'client backend' and pid <> pg_backend_pid()"
    ))
}

fn clients_whose_reads_hit_hold_no_connection(version: Version) -> Result<()> {
    let schema = "create table t (id int primary key, v int); insert into t values (1, 10)";
    let pair = alone(version, schema, &["--server-idle-timeout", "1s"])?;
    let read = "select v from t where id = 1";
    let mut first = pair.connect()?;
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        ensure!(first.value(read)? == "10");
        ensure!(pair.freshet.metrics()?.hits() == before + 1, "no hit");
        Ok(())
    })?;
    // One that knows the catalogue with which reads hit.
    pair.connect()?;
    // The only connection is taken.
    first.run("begin; select 1 from t for update")?;
    let before = pair.freshet.metrics()?.hits();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = pair.connect()?;
        ensure!(client.value(read)? == "10");
        clients.push(client);
    }
    ensure!(pair.freshet.metrics()?.hits() == before + 200, "not all are hits");
    first.run("commit")?;
    ensure!(open(&pair)? == "1");
    eventually(PATIENCE, || {
        ensure!(open(&pair)? == "0", "a connection is left");
        Ok(())
    })?;
    for client in &mut clients[..20] {
        ensure!(client.value("select 11 from t for update")? == "11");
    }
    ensure!(open(&pair)? == "1");
    Ok(())
}

/// The server's parameters and errors at a login, direct and through Freshet.
fn both(pair: &Pair, login: Login<'_>) -> Result<[Vec<String>; 2]> {
    let told = |address| -> Result<Vec<String>> {
        let mut client = RawClient::open(address)?;
        let messages = client.start(login)?;
        let shown = |message: &crate::support::Message| match message.tag {
            b'E' => Some(format!("{:?} {:?}", message.field(b'C'), message.field(b'M'))),
            b'S' => Some(String::from_utf8_lossy(&message.body).into_owned()),
            _ => None,
        };
        let mut told: Vec<_> = messages.iter().filter_map(shown).collect();
        told.sort();
        Ok(told)
    };
    Ok([told(pair.database.address())?, told(pair.address())?])
}

fn a_login_is_refused_as_by_the_server(version: Version) -> Result<()> {
    let pair = shared(version, "create table t (v int)", 3)?;
    let role = format!("{}_other", pair.database.name);
    pair.database.run(&format!("create role \"{role}\" login"))?;
    let name = &pair.database.name;
    let more = [("application_name", "named"), ("options", "-c datestyle=German")];
    for change in [
        "select 1".to_owned(),
        format!("alter role \"{role}\" set timezone = 'Asia/Tokyo'"),
        format!("alter role \"{role}\" in database {name} set intervalstyle = 'iso_8601'"),
        format!("alter role \"{role}\" nologin"),
        format!("alter role \"{role}\" login; revoke connect on database {name} from public"),
        format!("grant connect on database {name} to \"{role}\""),
        format!("alter role \"{role}\" rename to \"{role}_2\""),
        format!("alter role \"{role}_2\" rename to \"{role}\"; alter database {name} connection limit 0"),
        format!("alter database {name} connection limit -1"),
    ] {
        pair.database.run(&change)?;
        for login in [pair.database.login_as(&role), Login { more: &more, ..pair.database.login_as(&role) }] {
            for time in 0..2 {
                let [direct, through] = both(&pair, login)?;
                ensure!(direct == through, "{change}, {time}: {direct:?}, {through:?}");
            }
        }
    }
    Ok(())
}

/// Logins that are remembered fail as those that are not, and go on once the server is back.
fn a_server_that_is_down_refuses_logins(version: Version) -> Result<()> {
    let pair = alone(version, "create table t (v int)", &[])?;
    for _ in 0..2 {
        pair.connect()?.run("select 1 from t")?;
    }
    pair.database.server.stop(freshet_testbed::StopMode::Fast)?;
    let told = |more: &[(&str, &str)]| -> Result<(String, Option<String>, Option<String>)> {
        let messages = RawClient::open(pair.address())?.start(Login { more, ..pair.login() })?;
        let last = messages.last().context("no answer")?;
        Ok((char::from(last.tag).to_string(), last.field(b'C'), last.field(b'M')))
    };
    let unknown = told(&[("application_name", "unknown")])?;
    ensure!(unknown.0 == "E", "{unknown:?}");
    for _ in 0..3 {
        let known = told(&[])?;
        ensure!(known == unknown, "{known:?}, not {unknown:?}");
    }
    pair.database.server.start()?;
    eventually(PATIENCE, || pair.connect()?.run("insert into t values (1)"))
}

/// RECONNECT closes what logins are remembered from, and the next one finds the settings in force.
fn a_login_behind_reconnect_is_one_at_the_server(version: Version) -> Result<()> {
    let pair = alone(version, "", &[])?;
    let (mut first, mut console) = (pair.connect()?, super::operator::console(&pair)?);
    let mut before = first.value(PID)?;
    for megabytes in 7..10 {
        set(&pair, &format!("{megabytes}MB"))?;
        console.run("reconnect")?;
        let mut client = pair.connect()?;
        let value = client.value("show work_mem")?;
        ensure!(value == format!("{megabytes}MB"), "{value}");
        let now = client.value(PID)?;
        ensure!(now != before, "the same connection");
        before = now;
    }
    Ok(())
}

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

/// With a pool that is full, a login that is not known waits as a statement does, and takes the place of an idle connection.
fn a_login_takes_its_turn(version: Version) -> Result<()> {
    let pair = alone(version, "create table t (v int)", &[])?;
    let mut a = pair.connect()?;
    let mine = a.value(PID)?;
    let more = [("application_name", "b")];
    let other = Login { more: &more, ..pair.login() };
    let mut b = RawClient::login(pair.address(), other).context("the connection is idle")?;
    ensure!(b.value(PID)? != mine, "no login at the server");
    b.run("begin; insert into t values (1)")?;
    RawClient::login(pair.address(), other).context("known, and needs no connection")?;
    let mut c = RawClient::open(pair.address())?;
    let Login { user, database, .. } = pair.login();
    c.send(&startup(&[("user", user), ("database", database), ("application_name", "c")]))?;
    ensure!(is_silent(&c)?, "a login without a connection");
    b.run("commit")?;
    c.until(b'Z')?;
    ensure!(c.value("select count(*) from t")? == "1");
    Ok(())
}
