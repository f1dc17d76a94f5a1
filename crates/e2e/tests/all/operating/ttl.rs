//! Rules with `ttl`: what changes do not invalidate is served for a time, and for that time only.

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::configuration::{File, start};
use super::{SCHEMA, rows};
use crate::mysql::support as mysql;
use crate::mysql::support::packets::Value;
use crate::support::frames::{bind_text, describe_portal, execute, parse, sync};
use crate::support::{Database, Login, PATIENCE, Pair, RawClient, Version, eventually};

/// Everything for an hour, but for what names `briefly`.
const RULES: &str = "[[rule]]\nquery = \"briefly\"\nttl = \"2s\"\n[[rule]]\nttl = \"1h\"\n";
/// Only what is cached gives the same twice.
const CLOCK: &str = "select clock_timestamp(), count(*) from note";

/// Waits until the same answer comes twice.
pub(super) fn until_same(mut ask: impl FnMut() -> Result<String>) -> Result<String> {
    let mut last = String::new();
    eventually(PATIENCE, || {
        let before = std::mem::replace(&mut last, ask()?);
        ensure!(before == last, "{before:?}, then {last:?}");
        Ok(())
    })?;
    Ok(last)
}

/// A read may pass while the stream is behind. What is cached comes again then; had it been invalidated, another would.
fn until_is(cached: &str, mut ask: impl FnMut() -> Result<String>) -> Result<()> {
    eventually(PATIENCE, || {
        let answer = ask()?;
        ensure!(answer == cached, "{cached} was invalidated: {answer}");
        Ok(())
    })
}

/// No two answers are the same.
pub(super) fn never_same(mut ask: impl FnMut() -> Result<String>) -> Result<()> {
    let mut last = ask()?;
    for _ in 0..5 {
        let before = std::mem::replace(&mut last, ask()?);
        ensure!(before != last, "{last:?} came twice");
    }
    Ok(())
}

#[test]
fn on_postgres() -> Result<()> {
    // Roles of other tests flush the caches of a server.
    let database = Database::create(Version::V18.start(&Settings::default())?)?;
    database.run(SCHEMA)?;
    database.run(
        "create unlogged table note (id int primary key, v int); insert into note values (1, 1);
         create sequence numbers; create table secret (id int primary key); insert into secret values (1);
         alter table secret enable row level security; create policy p on secret using (true)",
    )?;
    let file = File::new("ttl.toml", &format!("upstream = \"{}\"\n{RULES}", database.url()))?;
    let pair = start(database, &file, &[], &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let cached = until_same(|| client.value(CLOCK))?;
    // A change does not invalidate it, and the session does not see its own.
    client.run("insert into note values (2, 2)")?;
    let mut other = pair.connect()?;
    until_is(&cached, || client.value(CLOCK))?;
    until_is(&cached, || other.value(CLOCK))?;
    ensure!(pair.freshet.metrics()?.count("freshet_ttl_hits_total") > 2);
    never(&pair, &mut client, &cached)?;
    shown(&mut client)?;
    // By the extended protocol, too.
    let sql = "select clock_timestamp(), v from note where id = $1::int";
    let run = [parse("", sql), bind_text("", "", &["1"]), describe_portal(""), execute("", 0), sync()].concat();
    until_same(|| Ok(format!("{:?}", rows(&client.exchange(&run, 1)?))))?;
    // Its time ends.
    let brief = "select clock_timestamp() as briefly from note";
    let before = until_same(|| client.value(brief))?;
    eventually(PATIENCE, || {
        ensure!(client.value(brief)? != before, "it is still served");
        Ok(())
    })?;
    // A definition invalidates it, and a right that is gone.
    client.run("alter table note add column w int")?;
    ensure!(client.value(CLOCK)? != cached, "the definition has changed");
    // What can be followed is true at once.
    let film = "select title from film where id = 1";
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        client.run(film)?;
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{:?}", after.passed_since(&before));
        Ok(())
    })?;
    client.run("update film set title = 'new' where id = 1")?;
    ensure!(client.value(film)? == "new", "the rule made it stale");
    Ok(())
}

/// What no rule caches.
fn never(pair: &Pair, client: &mut RawClient, cached: &str) -> Result<()> {
    never_same(|| client.value("select nextval('numbers'), v from note"))?;
    never_same(|| client.value("select gen_random_uuid(), v from note"))?;
    never_same(|| client.value("select (select clock_timestamp()), pg_backend_pid(), v from note"))?;
    never_same(|| client.value("select clock_timestamp(), v from note for update"))?;
    never_same(|| client.value("select clock_timestamp(), id from secret"))?;
    // A setting of another session.
    client.run("set work_mem = '7MB'")?;
    let set = "select setting from pg_settings where name = 'work_mem'";
    (0..5).try_for_each(|_| client.value(set).map(drop))?;
    ensure!(client.value(set)? == "7168" && pair.connect()?.value(set)? != "7168", "the setting of another session");
    // A transaction that has written.
    client.run("begin")?;
    until_is(cached, || client.value(CLOCK)).context("a transaction that has not written")?;
    client.run("update film set title = 'x' where id = 2")?;
    never_same(|| client.value(CLOCK))?;
    client.run("rollback")?;
    // Another user, and another time zone.
    pair.database.run("create role reader login; grant pg_read_all_data to reader")?;
    let mut reader = RawClient::login(pair.address(), Login { user: "reader", ..pair.login() })?;
    ensure!(until_same(|| reader.value(CLOCK))? != cached, "the result of another user");
    let mut zoned = pair.connect()?;
    zoned.run("set timezone = 'Asia/Tokyo'")?;
    ensure!(until_same(|| zoned.value(CLOCK))?.contains("+09"), "the result of another time zone");
    Ok(())
}

/// That it is served by time is told.
fn shown(client: &mut RawClient) -> Result<()> {
    let explained = rows(&client.query(&format!("explain cache {CLOCK}"))?);
    let text = format!("{explained:?}");
    ensure!(text.contains("for 3600s, by a rule: changes do not invalidate it, since"), "{text}");
    let explained = format!("{:?}", rows(&client.query("explain cache select clock_timestamp(), pg_backend_pid()")?));
    ensure!(explained.contains("cannot overrule: function pg_backend_pid"), "{explained}");
    let rules = rows(&client.query("show rules")?);
    ensure!(rules[1][2] == "ttl = '3600s'" && rules[0][2] == "ttl = '2s'", "{rules:?}");
    let queries = rows(&client.query("show freshet queries")?);
    let of = |text: &str| queries.iter().find(|row| row[1] == text).and_then(|row| row.last()).cloned();
    ensure!(of(CLOCK).as_deref() == Some("3600"), "{queries:?}");
    Ok(())
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let file = File::new(&format!("ttl-{kind:?}.toml"), RULES)?;
    let schema =
        "create table film (id int primary key, title varchar(20) not null); insert into film values (1, 'film 1')";
    // What other tests define on a server makes Freshet read results again.
    let own = mysql::Database::create(kind.start(&mysql::Kind::settings())?)?;
    let pair = mysql::Pair::over(own, schema, &["--config", file.path()])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let clock = "select sysdate(6), title from film";
    let mut client = pair.connect()?;
    let cached = until_same(|| client.value(clock))?;
    client.run("update film set title = 'new'")?;
    let mut other = pair.connect()?;
    until_is(&cached, || client.value(clock))?;
    until_is(&cached, || other.value(clock))?;
    ensure!(pair.freshet.metrics()?.count("freshet_ttl_hits_total") > 2);
    let prepared = client.prepare("select sysdate(6), title from film where id = ?")?;
    until_same(|| Ok(format!("{:?}", client.execute(prepared, &[Value::Integer(1)])?.rows())))?;
    // What no rule caches.
    never_same(|| client.value("select uuid(), title from film"))?;
    never_same(|| client.value("select sysdate(6), connection_id() from film"))?;
    never_same(|| client.value("select sysdate(6), title from film for update"))?;
    never_same(|| client.value("select sysdate(6), @x from film"))?;
    client.run("begin")?;
    client.run("update film set title = 'x'")?;
    never_same(|| client.value(clock))?;
    client.run("rollback")?;
    // Who sets the clock reads it, and gives it to nobody.
    let now = "select now(), title from film";
    let cached = until_same(|| client.value(now))?;
    let mut set = pair.connect()?;
    set.run("set timestamp = 1000000000")?;
    let theirs = set.value(now)?;
    ensure!(theirs.starts_with("2001-09-0"), "{theirs}");
    until_is(&cached, || client.value(now))?;
    // Its time ends.
    let brief = "select sysdate(6) as briefly from film";
    let before = until_same(|| client.value(brief))?;
    eventually(PATIENCE, || {
        ensure!(client.value(brief)? != before, "it is still served");
        Ok(())
    })?;
    let explained = client.query(&format!("explain cache {clock}"))?.rows();
    let text = format!("{explained:?}");
    ensure!(text.contains("for 3600s, by a rule"), "{text}");
    client.run("alter table film add column w int").context("alter")?;
    ensure!(client.value(clock)? != cached, "the definition has changed");
    Ok(())
}
