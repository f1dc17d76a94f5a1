//! Rules that SQL creates: CREATE CACHE, DROP CACHE, and the state file in which they survive a restart.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::configuration::{File, start, until_logged};
use super::ttl::{never_same, until_same};
use super::{SCHEMA, connect_as, reader, rows, sqlstate};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::support::frames::{sync, unnamed};
use crate::support::{Database, Metrics, PATIENCE, Pair, RawClient, Version, eventually};

const READ: &str = "select title from film where id = 1";
const CLOCK: &str = "select clock_timestamp(), count(*) from film";
const CLOCK_OF_MYSQL: &str = "select now(6), count(*) from film";

/// A state file of this test, with what is beside it; removed at the end.
struct StateFile(PathBuf);

impl StateFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("freshet-state-{}-{name}.toml", std::process::id())))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.0.with_extension(format!("toml.{suffix}"))
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        for path in [self.0.clone(), self.beside("new"), self.beside("broken")] {
            let _ = fs::remove_file(path);
        }
    }
}

/// A statement hits, and nothing was filled since `before`: its entry was still there.
fn still_hits(
    before: &Metrics,
    metrics: impl Fn() -> Result<Metrics>,
    mut run: impl FnMut() -> Result<()>,
) -> Result<()> {
    let hits = metrics()?.hits();
    eventually(PATIENCE, || {
        run()?;
        ensure!(metrics()?.hits() > hits, "it does not hit");
        Ok(())
    })?;
    let fills = |metrics: &Metrics| metrics.count("freshet_fills_total");
    let (now, then) = (fills(&metrics()?), fills(before));
    ensure!(now == then, "its entry was gone: {now} fills, before {then}");
    Ok(())
}

fn message(answer: &[crate::support::Message]) -> String {
    answer.iter().find_map(|message| message.field(b'M')).unwrap_or_default()
}

/// The value of a row with this name.
fn named(rows: &[Vec<String>], name: &str) -> Result<String> {
    let row = rows.iter().find(|row| row[0] == name).with_context(|| format!("no {name} in {rows:?}"))?;
    Ok(row[1].clone())
}

#[test]
fn on_postgres() -> Result<()> {
    // Roles of other tests flush the caches of a server.
    let database = Database::create(Version::V18.start(&Settings::default())?)?;
    database.run(SCHEMA)?;
    let state = StateFile::new("postgres");
    let file = File::new(
        "created.toml",
        &format!(
            "upstream = \"{}\"\nstate_file = \"{}\"\n[[rule]]\nname = \"reports\"\napplication_name = \"report\"\ncache = \"never\"\n",
            database.url(),
            state.0.display()
        ),
    )?;
    let pair = start(database, &file, &[], &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    let mut run = |sql: &str| client.query(sql);
    // What follows the clock needs a time.
    let answer = run(&format!("create cache from {CLOCK}"))?;
    ensure!(sqlstate(&answer).as_deref() == Some("0A000") && message(&answer).contains("TTL '10s'"), "{answer:?}");
    let before = pair.freshet.metrics()?;
    let created = rows(&run(&format!("create cache Front ttl '1h' from {CLOCK}"))?);
    ensure!(named(&created, "name")? == "front" && named(&created, "kept")?.starts_with("in /"), "{created:?}");
    let digest = named(&created, "digest")?;
    still_hits(&before, || pair.freshet.metrics(), || client.run(READ))?;
    until_same(|| client.value(CLOCK))?;
    refusals(&mut client, &digest, &state)?;
    shown(&pair, &mut client, &digest)?;
    // Its results go with it, and no others.
    let before = pair.freshet.metrics()?;
    let dropped = client.exchange(&[unnamed("drop cache front", &[]), sync()].concat(), 1)?;
    ensure!(rows(&dropped) == [[digest.clone(), "front".to_owned()]], "{dropped:?}");
    still_hits(&before, || pair.freshet.metrics(), || client.run(READ))?;
    never_same(|| client.value(CLOCK))?;
    // A shorter time is in force at once.
    client.run(&format!("create cache ttl '1h' from {digest}"))?;
    let cached = until_same(|| client.value(CLOCK))?;
    client.run(&format!("drop cache {digest}"))?;
    client.run(&format!("create cache \"For a moment\" ttl '100ms' from {digest}"))?;
    eventually(PATIENCE, || {
        ensure!(client.value(CLOCK)? != cached, "served as long as by the rule of before");
        Ok(())
    })?;
    drop(client);
    restarted(pair, &file, &state, &digest)
}

/// A statement that changes nothing.
fn refusals(client: &mut RawClient, digest: &str, state: &StateFile) -> Result<()> {
    let kept = fs::read_to_string(&state.0)?;
    for (sql, expected) in [
        ("create cache from 0123456789abcdef".to_owned(), "42704"),
        ("drop cache nothing".to_owned(), "42704"),
        ("drop cache reports".to_owned(), "42704"),
        (format!("create cache front from {READ}"), "42710"),
        (format!("create cache other ttl '1h' from {digest}"), "42710"),
        (format!("create cache a ttl 'soon' from {READ}"), "22023"),
        (format!("create cache a ttl '1ms' from {READ}"), "22023"),
        (format!("create cache \"{digest}\" from {READ}"), "42602"),
        ("create cache from insert into film values (1000, 'x')".to_owned(), "0A000"),
        ("create cache from select nextval('nothing')".to_owned(), "0A000"),
        ("create cache a b from select 1".to_owned(), "42601"),
    ] {
        let answer = client.query(&sql)?;
        ensure!(sqlstate(&answer).as_deref() == Some(expected), "{sql}: {answer:?}");
    }
    // What cannot be written is not in force.
    fs::create_dir(state.beside("new"))?;
    let answer = client.query(&format!("create cache from {READ}"))?;
    ensure!(sqlstate(&answer).as_deref() == Some("58030"), "{answer:?}");
    let answer = client.query("drop all caches")?;
    fs::remove_dir(state.beside("new"))?;
    ensure!(sqlstate(&answer).as_deref() == Some("58030"), "{answer:?}");
    let rules = rows(&client.query("show rules")?);
    ensure!(rules.len() == 2 && fs::read_to_string(&state.0)? == kept, "{rules:?}");
    Ok(())
}

fn shown(pair: &Pair, client: &mut RawClient, digest: &str) -> Result<()> {
    let rules = rows(&client.query("show rules")?);
    let expected = |at: usize, is: [&str; 3], name: &str, origin: &str| {
        let rule = &rules[at];
        ensure!(rule[..3] == is && rule[5..] == [name, origin], "{rules:?}");
        Ok(())
    };
    let conditions = format!("digest = '{digest}'");
    expected(0, ["1", &conditions, "cache = 'always', ttl = '3600s'"], "front", "sql")?;
    expected(1, ["1", "application_name = 'report'", "cache = 'never'"], "reports", "file")?;
    let count = pair.freshet.metrics()?.count(&format!("freshet_rule_matches_total{{rule=\"{digest}\"}}"));
    ensure!(count >= 1 && rules[0][3] == count.to_string(), "{count}: {rules:?}");
    let toml = rows(&client.query("SHOW RULES AS TOML;")?).concat();
    let digest = format!("digest = \"{digest}\"");
    ensure!(toml == ["[[rule]]", "name = \"front\"", &digest, "cache = \"always\"", "ttl = \"3600s\""], "{toml:?}");
    let explained = rows(&client.query(&format!("explain cache {CLOCK}"))?);
    ensure!(named(&explained, "cached")?.starts_with("for 3600s, by a rule"), "{explained:?}");
    Ok(())
}

/// The rules survive a restart, a crash too. A broken file does not prevent the start.
fn restarted(pair: Pair, file: &File, state: &StateFile, digest: &str) -> Result<()> {
    let again = |pair: Pair| {
        let Pair { mut freshet, database } = pair;
        freshet.end()?;
        drop(freshet);
        start(database, file, &[], &[])
    };
    let pair = again(pair)?;
    let mut client = pair.connect()?;
    let rules = rows(&client.query("show rules")?);
    ensure!(rules.len() == 2 && rules[0][5..] == ["For a moment", "sql"] && rules[0][1].contains(digest), "{rules:?}");
    client.run("drop cache \"For a moment\"")?;
    client.run(&format!("create cache ttl '1h' from {CLOCK}"))?;
    until_same(|| client.value(CLOCK))?;
    let broken = format!("{}\nnonsense = 1\n", fs::read_to_string(&state.0)?);
    drop(client);
    fs::write(&state.0, &broken)?;
    let pair = again(pair)?;
    until_logged(&pair.freshet, "and none of its rules is in force")?;
    ensure!(fs::read_to_string(state.beside("broken"))? == broken, "it is not aside");
    let mut client = pair.connect()?;
    ensure!(rows(&client.query("show rules")?).len() == 1);
    for sql in [READ, CLOCK] {
        client.run(&format!("create cache ttl '1h' from {sql}"))?;
    }
    let mut other = connect_as(&pair, &reader(&pair, "created")?)?;
    for sql in [&format!("create cache from {READ}"), "drop cache front", "drop all caches", "show rules as toml"] {
        let answer = other.query(sql)?;
        ensure!(sqlstate(&answer).as_deref() == Some("42501"), "{sql}: {answer:?}");
    }
    let dropped = rows(&client.query("drop all caches")?);
    ensure!(dropped.len() == 2 && rows(&client.query("drop all caches")?).is_empty(), "{dropped:?}");
    ensure!(!fs::read_to_string(&state.0)?.contains("[[rule]]"), "they are still in the file");
    Ok(())
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let schema =
        "create table film (id int primary key, title varchar(20) not null); insert into film values (1, 'film 1')";
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.until_hit(&mut client, READ)?;
    let text = |cells: Vec<Option<String>>| cells.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    let mut ask = |sql: &str| -> Result<Vec<Vec<String>>> {
        let answer = client.query(sql)?;
        ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
        Ok(answer.rows().into_iter().map(text).collect())
    };
    let before = pair.freshet.metrics()?;
    let created = ask(&format!("create cache `Front` ttl '1h' from {CLOCK_OF_MYSQL}"))?;
    ensure!(
        named(&created, "name")? == "Front" && named(&created, "kept")?.contains("--state-file is not set"),
        "{created:?}"
    );
    let digest = named(&created, "digest")?;
    still_hits(&before, || pair.freshet.metrics(), || ask(READ).map(drop))?;
    until_same(|| Ok(ask(CLOCK_OF_MYSQL)?.concat().concat()))?;
    let toml = ask("show rules as toml")?.concat();
    ensure!(toml.contains(&"ttl = \"3600s\"".to_owned()) && toml.len() == 5, "{toml:?}");
    for (sql, code) in [
        ("create cache from 0123456789abcdef".to_owned(), 1305),
        ("drop cache nothing".to_owned(), 1305),
        (format!("create cache `Front` from {READ}"), 1304),
        (format!("create cache ttl '1h' from {digest}"), 1304),
        (format!("create cache ttl '1ms' from {READ}"), 1231),
        (format!("create cache from {CLOCK_OF_MYSQL}, film"), 1235),
        ("drop cache".to_owned(), 1064),
    ] {
        let error = client.query(&sql)?.error();
        ensure!(error.as_ref().is_some_and(|(is, ..)| *is == code), "{sql}: {error:?}");
    }
    let before = pair.freshet.metrics()?;
    let dropped = client.query("drop cache `Front`")?.rows().into_iter().map(text).collect::<Vec<_>>();
    ensure!(dropped == [[digest, "Front".to_owned()]], "{dropped:?}");
    still_hits(&before, || pair.freshet.metrics(), || client.run(READ))?;
    never_same(|| client.value(CLOCK_OF_MYSQL))
}
