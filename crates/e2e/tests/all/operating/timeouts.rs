//! Rules with `timeout`: the database is asked to cancel the statement, and never another one.

use std::net::Shutdown;

use anyhow::{Result, ensure};

use super::configuration::{File, start};
use super::{SCHEMA, rows, sqlstate, tags};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::mysql::support::packets::Value;
use crate::support::frames::{bind_text, describe_portal, execute, flush, parse, query, sync};
use crate::support::{Database, Login, Message, PATIENCE, Pair, RawClient, Version, eventually, undisturbed};

const RULES: &str = "
[[rule]]
query = \"hurried\"
timeout = \"50ms\"
[[rule]]
query = \"from film\"
application_name = \"report\"
timeout = \"250ms\"
[[rule]]
query = \"^copy\"
timeout = \"1h\"
";
const READ: &str = "select title from film where id = 1";
const LATE: &str = "select pg_sleep(600) as hurried";
/// Statements that end when their time does, so that some are cancelled and some are not.
const ROUNDS: usize = 60;

#[test]
fn on_postgres() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let file = File::new("timeouts.toml", &format!("upstream = \"{}\"\n{RULES}", database.url()))?;
    let pair = start(database, &file, &[], &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    of_any_protocol(&mut client)?;
    until_hit(&pair, &mut client, READ)?;
    behind_and_before(&mut client)?;
    in_blocks(&mut client)?;
    of_fills(&pair)?;
    // What a client sent before it left is executed.
    let mut left = pair.connect()?;
    left.send(&[query(LATE), query("insert into film values (502, 'film 502')")].concat())?;
    left.socket()?.shutdown(Shutdown::Write)?;
    eventually(PATIENCE, || {
        ensure!(client.value("select count(*) from film where id = 502")? == "1", "it was lost");
        Ok(())
    })?;
    // The data of a COPY goes on.
    client.send(&query("copy film from stdin"))?;
    client.until(b'G')?;
    let row: &[u8] = b"501\tfilm 501\n";
    let data = [&b"d"[..], &(row.len() as u32 + 4).to_be_bytes(), row, b"c\0\0\0\x04"].concat();
    let answer = client.exchange(&data, 1)?;
    ensure!(tags(&answer) == "CZ", "{answer:?}");
    ensure!(client.value("select title from film where id = 501")? == "film 501");
    let shown = rows(&client.query("show rules")?);
    ensure!(shown[0][1..3] == ["query = 'hurried'", "timeout = '50ms'"], "{shown:?}");
    until_hit(&pair, &mut client, READ)
}

fn is_cancelled(answer: &[Message]) -> Result<()> {
    let message = answer.iter().find_map(|message| message.field(b'M')).unwrap_or_default();
    let expected = "canceling statement due to the timeout of a rule (50ms)";
    ensure!(sqlstate(answer).as_deref() == Some("57014") && message == expected, "{answer:?}");
    Ok(())
}

fn of_any_protocol(client: &mut RawClient) -> Result<()> {
    let answer = client.query(LATE)?;
    is_cancelled(&answer)?;
    // The server describes the result as soon as it begins.
    ensure!(tags(&answer).ends_with("EZ"), "{answer:?}");
    let run = |name: &str| [bind_text("", name, &[]), describe_portal(""), execute("", 0), sync()].concat();
    is_cancelled(&client.exchange(&[parse("", LATE), run("")].concat(), 1)?)?;
    client.exchange(&[parse("late", LATE), sync()].concat(), 1)?;
    is_cancelled(&client.exchange(&run("late"), 1)?)?;
    client.send(&[bind_text("", "late", &[]), execute("", 0), flush()].concat())?;
    is_cancelled(&client.until(b'E')?)?;
    client.exchange(&sync(), 1)?;
    Ok(())
}

/// A statement with a time limit among others that are sent at once, by the simple and the extended protocol.
fn behind_and_before(client: &mut RawClient) -> Result<()> {
    let run = |sql: &str| [parse("", sql), bind_text("", "", &[]), execute("", 0), sync()].concat();
    for round in 0..ROUNDS {
        let late = format!("select pg_sleep({}), {round} as hurried", 0.045 + 0.0002 * round as f64);
        let next = format!("select {round}, pg_sleep(0.002)");
        let (late, next) = if round % 2 == 0 { (query(&late), query(&next)) } else { (run(&late), run(&next)) };
        let answers = client.exchange(&[next.clone(), late, next].concat(), 3)?;
        let mut parts = answers.split_inclusive(|message| message.tag == b'Z');
        let mut part = || parts.next().unwrap_or_default();
        let (first, second, third) = (part(), part(), part());
        ensure!(rows(first).len() == 1 && rows(third).len() == 1, "round {round}: {answers:?}");
        if rows(second).is_empty() {
            is_cancelled(second)?;
        }
    }
    // One that is cancelled does not end the wait of the next.
    let answers = client.exchange(&[query(LATE), query("select pg_sleep(0.3)")].concat(), 2)?;
    ensure!(rows(&answers).len() == 1 && tags(&answers).matches('E').count() == 1, "{answers:?}");
    Ok(())
}

fn in_blocks(client: &mut RawClient) -> Result<()> {
    client.run("begin; insert into film values (500, 'never')")?;
    is_cancelled(&client.query(LATE)?)?;
    ensure!(sqlstate(&client.query(READ)?).as_deref() == Some("25P02"), "the block goes on");
    client.run("rollback; begin; savepoint a")?;
    is_cancelled(&client.query(LATE)?)?;
    client.run("rollback to a")?;
    ensure!(client.value("select count(*) from film where id = 500")? == "0");
    client.run("commit")
}

/// A read that is to be cached waits for a lock. Other applications are not limited.
fn of_fills(pair: &Pair) -> Result<()> {
    let more = &[("application_name", "report")];
    let mut report = RawClient::login(pair.address(), Login { more, ..pair.login() })?;
    let mut direct = RawClient::login(pair.database.address(), pair.login())?;
    undisturbed(&pair.freshet, || {
        direct.run("rollback")?;
        until_hit(pair, &mut report, READ)?;
        direct.run("begin; lock film in access exclusive mode")?;
        let answer = report.query("select title from film where id = 2")?;
        ensure!(sqlstate(&answer).as_deref() == Some("57014"), "{answer:?}");
        let answer = report.query(READ)?;
        ensure!(rows(&answer) == [["film 1"]], "what is cached needs no lock: {answer:?}");
        Ok(())
    })?;
    let mut client = pair.connect()?;
    client.send(&query("select title from film where id = 2"))?;
    eventually(PATIENCE, || {
        let waiting =
            direct.value("select count(*) from pg_locks where relation = 'film'::regclass and not granted")?;
        ensure!(waiting == "1", "{waiting} wait");
        Ok(())
    })?;
    direct.run("commit")?;
    ensure!(rows(&client.until(b'Z')?) == [["film 2"]]);
    until_hit(pair, &mut report, "select title from film where id = 2")
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let file = File::new(&format!("timeouts-{kind:?}.toml"), RULES)?;
    let schema = "create table film (id int primary key, title varchar(20) not null);
        insert into film values (1, 'film 1'), (2, 'film 2'), (3, 'film 3')";
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &["--config", file.path()])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.until_hit(&mut client, READ)?;
    let (code, state) = if kind == mysql::Kind::Mariadb { (1969, "70100") } else { (3024, "HY000") };
    let over = |after: &str| {
        Some((code, state.to_owned(), format!("canceling statement due to the timeout of a rule ({after})")))
    };
    let late = "select id as hurried from film where id > 1 or sleep(600)";
    ensure!(client.query(late)?.error() == over("50ms"));
    let prepared = client.prepare("select id as hurried from film where id > ? or sleep(600)")?;
    let answer = client.execute(prepared, &[Value::Integer(5)])?;
    ensure!(answer.error() == over("50ms"), "{answer:?}");
    pair.until_hit(&mut client, READ)?;
    // What comes next is never cancelled.
    for round in 0..ROUNDS {
        let late =
            format!("select sleep({}), {round} as hurried from film where id = 1", 0.045 + 0.0002 * round as f64);
        let error = client.query(&late)?.error();
        ensure!(error.is_none() || error == over("50ms"), "round {round}: {error:?}");
        ensure!(client.value("select sleep(0.002)")? == "0", "round {round}");
    }
    // A read that is to be cached waits for a lock.
    let login = mysql::Login { attributes: &[("program_name", "report")], ..pair.login() };
    let mut report = mysql::RawClient::login(pair.address(), login)?;
    let mut direct = mysql::RawClient::login(pair.database.address(), pair.login())?;
    direct.run("lock tables film write")?;
    ensure!(report.query("select title from film where id = 2")?.error() == over("250ms"));
    direct.run("unlock tables")?;
    pair.until_hit(&mut report, "select title from film where id = 2")?;
    // A transaction goes on behind it, as behind any statement that is killed.
    client.run("begin")?;
    client.run("insert into film values (4, 'film 4')")?;
    ensure!(client.query(late)?.error() == over("50ms"));
    ensure!(client.value("select count(*) from film")? == "4");
    client.run("rollback")?;
    ensure!(client.value("select count(*) from film")? == "3");
    pair.until_hit(&mut client, READ)
}
