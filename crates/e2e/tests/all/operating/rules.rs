//! Rules of the configuration file: what is never cached and what is refused, by statement and by session, and their change while Freshet runs.

use anyhow::{Context, Result, ensure};

use super::configuration::{File, start, until_logged};
use super::{SCHEMA, rows, sqlstate};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::mysql::support::packets::Value;
use crate::support::frames::{bind_text, describe_portal, execute, flush, parse, sync};
use crate::support::{Database, Login, Message, Metrics, PATIENCE, Pair, RawClient, Version, eventually};

const READ: &str = "select title from film where id = 1";

/// The statement hits no more, for the reason `rule`; while the catalogue is read again, this may be the reason instead.
fn passes(metrics: impl Fn() -> Result<Metrics>, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let before = metrics()?;
    for _ in 0..5 {
        run()?;
    }
    let after = eventually(PATIENCE, || {
        let after = metrics()?;
        let is_named = after.passed("rule") > before.passed("rule");
        if !is_named {
            run()?;
        }
        ensure!(is_named, "{:?}", after.passed_since(&before));
        Ok(after)
    })?;
    ensure!(after.hits() == before.hits(), "it hits: {:?}", after.passed_since(&before));
    Ok(())
}

fn message(messages: &[Message]) -> String {
    messages.iter().find_map(|message| message.field(b'M')).unwrap_or_default()
}

/// Waits for the number of rules.
fn until_rules(shown: impl FnMut() -> Result<Vec<Vec<String>>>, count: usize) -> Result<()> {
    let mut shown = shown;
    eventually(PATIENCE, || {
        let rules = shown()?;
        ensure!(rules.len() == count, "{rules:?}");
        Ok(())
    })
}

const RULES: &str = "
[[rule]]
application_name = \"report\"
cache = \"never\"
[[rule]]
query = \"FROM film WHERE id > \"
refuse = \"it's too \\\\ large\"
[[rule]]
table = \"public.actor\"
refuse = \"keep off\"
[[rule]]
application_name = \"report\"
user = \"nobody\"
cache = \"always\"
";

#[test]
fn on_postgres() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    database.run("create table actor (id int primary key)")?;
    let upstream = format!("upstream = \"{}\"\n", database.url());
    let file = File::new("rules.toml", &format!("{upstream}{RULES}"))?;
    let pair = start(database, &file, &[], &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    until_logged(&pair.freshet, "rule 4 matches nothing: rule 1 comes first and matches all of it")?;
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    of_sessions(&pair)?;
    refusals(&pair, &mut client)?;
    let shown = rows(&client.query("show rules")?);
    ensure!(shown.len() == 4, "{shown:?}");
    ensure!(shown[0][..3] == ["1", "application_name = 'report'", "cache = 'never'"], "{shown:?}");
    ensure!(shown[1][1..3] == ["query = 'FROM film WHERE id > '", "refuse = 'it's too \\ large'"], "{shown:?}");
    let matches = |at: usize| shown[at][3].parse::<u64>().with_context(|| format!("{shown:?}"));
    ensure!(matches(0)? >= 10 && matches(1)? >= 5 && matches(2)? >= 1 && matches(3)? == 0, "{shown:?}");
    unmatched(&pair, &mut client)?;
    changes(&pair, &file, &upstream, &mut client)
}

/// A rule that matches nothing is warned of, once.
fn unmatched(pair: &Pair, client: &mut RawClient) -> Result<()> {
    let metrics = pair.freshet.metrics()?;
    let matches = |rule: usize| metrics.count(&format!("freshet_rule_matches_total{{rule=\"{rule}\"}}"));
    ensure!(matches(1) >= 10 && matches(4) == 0, "{} {}", matches(1), matches(4));
    for _ in 0..10_000 {
        client.run("select 1; select 2")?;
    }
    until_logged(&pair.freshet, "rule 4 has matched none of 10000 statements (SHOW RULES)")?;
    let (log, hidden) = (pair.freshet.log(), "rule 4 matches nothing");
    ensure!(log.matches(hidden).count() == 1 && !log.contains("rule 1 has matched none"), "{log}");
    Ok(())
}

/// A rule for an application. The name may change within a session.
fn of_sessions(pair: &Pair) -> Result<()> {
    let more = &[("application_name", "report")];
    let mut report = RawClient::login(pair.address(), Login { more, ..pair.login() })?;
    passes(|| pair.freshet.metrics(), || report.run(READ))?;
    report.run("set application_name = 'web'")?;
    until_hit(pair, &mut report, READ)?;
    report.run("set application_name = 'report'")?;
    passes(|| pair.freshet.metrics(), || report.run(READ))
}

fn refusals(pair: &Pair, client: &mut RawClient) -> Result<()> {
    let refused = "select * from film where id > 5";
    let error = |answer: &[Message]| (sqlstate(answer).unwrap_or_default(), message(answer));
    let expected = ("42501".to_owned(), "it's too \\ large".to_owned());
    let answer = client.query(refused)?;
    ensure!(error(&answer) == expected && super::tags(&answer) == "EZ", "{answer:?}");
    // The block fails with it.
    client.run("begin")?;
    ensure!(error(&client.query(refused)?) == expected);
    ensure!(sqlstate(&client.query(READ)?).as_deref() == Some("25P02"), "the block goes on");
    client.run("rollback")?;
    // A whole batch, or its prepare alone.
    let run = |name: &str| [bind_text("", name, &["5"]), describe_portal(""), execute("", 0), sync()].concat();
    let sql = "select * from film where id > $1::int";
    let answer = client.exchange(&[parse("", sql), run("")].concat(), 1)?;
    ensure!(error(&answer) == expected && super::tags(&answer) == "EZ", "{answer:?}");
    let answer = client.exchange(&[parse("named", sql), sync()].concat(), 1)?;
    ensure!(error(&answer) == expected && super::tags(&answer) == "EZ", "{answer:?}");
    // Message by message.
    client.send(&[parse("", sql), flush()].concat())?;
    let answer = client.until(b'E')?;
    ensure!(error(&answer) == expected, "{answer:?}");
    client.exchange(&sync(), 1)?;
    // Of two refusals the first is told.
    client.send(&[parse("", sql), parse("", "insert into actor values (1)"), flush()].concat())?;
    let answer = client.until(b'E')?;
    ensure!(error(&answer) == expected, "{answer:?}");
    client.exchange(&sync(), 1)?;
    // Another error of the same batch is that of the server.
    client.send(&[parse("", "select * from nothing"), flush(), parse("", sql), flush()].concat())?;
    let answer = client.until(b'E')?;
    ensure!(sqlstate(&answer).as_deref() == Some("42P01"), "{answer:?}");
    client.exchange(&sync(), 1)?;
    // A write.
    let answer = client.query("insert into actor values (1)")?;
    ensure!(error(&answer) == ("42501".to_owned(), "keep off".to_owned()), "{answer:?}");
    let mut direct = RawClient::login(pair.database.address(), pair.login())?;
    ensure!(direct.value("select count(*) from actor")? == "0", "it was written");
    // The session goes on.
    until_hit(pair, client, READ)
}

/// As any Bind that fails, a refused one leaves the unnamed statement; and so does a Parse of another name. One of the unnamed statement drops it.
/// `named`: the refused statement, which is prepared as `kept`.
fn unnamed_statements_stay(client: &mut RawClient, named: &str) -> Result<()> {
    let run_unnamed = [bind_text("", "", &[]), execute("", 0), sync()].concat();
    for (refused, is_left) in
        [(bind_text("", "kept", &["7"]), true), (parse("x", named), true), (parse("", named), false)]
    {
        client.exchange(&[parse("", "select 'still there'"), sync()].concat(), 1)?;
        client.send(&[refused, flush()].concat())?;
        let answer = client.until(b'E')?;
        ensure!(sqlstate(&answer).as_deref() == Some("42501"), "{answer:?}");
        client.exchange(&sync(), 1)?;
        let answer = client.exchange(&run_unnamed, 1)?;
        let told = if is_left { "2DCZ" } else { "EZ" };
        ensure!(super::tags(&answer) == told, "{told} was expected: {answer:?}");
    }
    Ok(())
}

/// A change of the file is in force for sessions that are open; what they have prepared goes on to hit.
fn changes(pair: &Pair, file: &File, upstream: &str, client: &mut RawClient) -> Result<()> {
    let named = "select title, 'x' from film where id = $1::int";
    client.exchange(&[parse("kept", named), sync()].concat(), 1)?;
    let run = [bind_text("", "kept", &["7"]), describe_portal(""), execute("", 0), sync()].concat();
    let until_kept_hits = |client: &mut RawClient| {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            client.exchange(&run, 1)?;
            let after = pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{:?}", after.passed_since(&before));
            Ok(())
        })
    };
    until_kept_hits(client)?;
    file.write(&format!(
        "{upstream}[[rule]]\ndatabase = \"{}\"\ntable = \"film\"\ncache = \"never\"\n",
        pair.database.name
    ))?;
    let mut other = pair.connect()?;
    until_rules(|| Ok(rows(&other.query("show rules")?)), 1)?;
    passes(|| pair.freshet.metrics(), || client.run(READ))?;
    passes(|| pair.freshet.metrics(), || client.exchange(&run, 1).map(drop))?;
    // What was prepared before it was refused.
    let mut another = pair.connect()?;
    another.exchange(&[parse("kept", named), sync()].concat(), 1)?;
    file.write(&format!("{upstream}[[rule]]\nquery = \"title\"\nrefuse = \"no\"\n"))?;
    eventually(PATIENCE, || {
        let answer = client.exchange(&run, 1)?;
        ensure!(sqlstate(&answer).as_deref() == Some("42501") && super::tags(&answer) == "EZ", "{answer:?}");
        Ok(())
    })?;
    unnamed_statements_stay(&mut another, named)?;
    // A broken file changes nothing.
    file.write(&format!("{upstream}[[rule]]\nqery = \"film\"\ncache = \"never\"\n"))?;
    let answer = other.query("reload")?;
    ensure!(sqlstate(&answer).as_deref() == Some("F0000"), "{answer:?}");
    ensure!(message(&answer).contains(":3:1: unknown key \"qery\" of a rule: is query meant?"), "{answer:?}");
    until_rules(|| Ok(rows(&other.query("show rules")?)), 1)?;
    file.write(upstream)?;
    until_rules(|| Ok(rows(&other.query("show rules")?)), 0)?;
    until_hit(pair, client, READ)?;
    until_kept_hits(client)?;
    // What is cached is still true.
    pair.database.run("update film set title = 'new' where id = 1")?;
    eventually(PATIENCE, || {
        let title = client.value(READ)?;
        ensure!(title == "new", "{title}");
        Ok(())
    })
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let rules = "[[rule]]\napplication_name = \"report\"\ncache = \"never\"\n[[rule]]\ntable = \"actor\"\nrefuse = \"keep off\"\n";
    let file = File::new(&format!("rules-{kind:?}.toml"), rules)?;
    let schema =
        "create table film (id int primary key, title varchar(20) not null); insert into film values (1, 'film 1');
        create table actor (id int primary key)";
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &["--config", file.path()])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.until_hit(&mut client, READ)?;
    let login = mysql::Login { attributes: &[("program_name", "report")], ..pair.login() };
    let mut report = mysql::RawClient::login(pair.address(), login)?;
    passes(|| pair.freshet.metrics(), || report.run(READ))?;
    // Refused as text, and at its prepare.
    let refused = Some((1142, "42000".to_owned(), "keep off".to_owned()));
    client.run("begin")?;
    ensure!(client.query("insert into actor values (1)")?.error() == refused);
    ensure!(client.value(READ)? == "film 1");
    client.run("rollback")?;
    ensure!(client.try_prepare("select * from actor")?.is_none(), "it was prepared");
    let kept = client.prepare("select title, 'x' from film where id = ?")?;
    let until_kept_hits = |client: &mut mysql::RawClient| {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            client.execute(kept, &[Value::Integer(1)])?;
            let after = pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{:?}", after.passed_since(&before));
            Ok(())
        })
    };
    until_kept_hits(&mut client)?;
    let text = |cells: Vec<Option<String>>| cells.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    let mut other = pair.connect()?;
    let mut shown = || Ok(other.query("show rules")?.rows().into_iter().map(text).collect::<Vec<_>>());
    let rules: Vec<Vec<String>> = shown()?;
    ensure!(rules.len() == 2 && rules[1][1..3] == ["table = 'actor'", "refuse = 'keep off'"], "{rules:?}");
    file.write(&format!("[[rule]]\ndatabase = \"{}\"\nquery = \"title\"\ncache = \"never\"\n", pair.database.name))?;
    until_rules(&mut shown, 1)?;
    passes(|| pair.freshet.metrics(), || client.run(READ))?;
    passes(|| pair.freshet.metrics(), || client.execute(kept, &[Value::Integer(1)]).map(drop))?;
    file.write("")?;
    until_rules(&mut shown, 0)?;
    until_kept_hits(&mut client)?;
    pair.until_hit(&mut client, READ)?;
    pair.until_hit(&mut report, READ)?;
    pair.database.run("update film set title = 'new' where id = 1")?;
    eventually(PATIENCE, || {
        let title = client.value(READ)?;
        ensure!(title == "new", "{title}");
        Ok(())
    })
}
