//! Hints: what a statement says of its own caching in a comment, where the operator allows it.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::configuration::{File, start};
use super::ttl::{never_same, until_same};
use super::{SCHEMA, rows};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::support::frames::{bind_text, describe_portal, execute, parse, sync};
use crate::support::{Database, Metrics, PATIENCE, RawClient, Version, eventually};

const READ: &str = "select title from film where id = 1";
const NEVER: &str = "select title from film where id = 1 /* freshet: cache=never */";

/// The statement passes for the reason `rule`, and never hits.
fn passes(metrics: impl Fn() -> Result<Metrics>, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let before = metrics()?;
    eventually(PATIENCE, || {
        run()?;
        let after = metrics()?;
        ensure!(after.passed("rule") > before.passed("rule"), "{:?}", after.passed_since(&before));
        Ok(())
    })?;
    ensure!(metrics()?.hits() == before.hits(), "it hits");
    Ok(())
}

fn ignored(metrics: &Metrics) -> u64 {
    metrics.count("freshet_hints_ignored_total")
}

#[test]
fn on_postgres() -> Result<()> {
    // Roles of other tests flush the caches of a server.
    let database = Database::create(Version::V18.start(&Settings::default())?)?;
    database.run(SCHEMA)?;
    let upstream = format!("upstream = \"{}\"\n", database.url());
    let file = File::new("hints.toml", &upstream)?;
    let pair = start(database, &file, &[], &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let clock = "select clock_timestamp(), count(*) from film";
    let hinted = format!("{clock} /* freshet: ttl=1h */");
    // Without the operator's leave they are comments.
    until_hit(&pair, &mut client, NEVER)?;
    never_same(|| client.value(&hinted))?;
    ensure!(ignored(&pair.freshet.metrics()?) == 0);
    file.write(&format!("{upstream}hints = true\n"))?;
    client.run("reload")?;
    let cached = until_same(|| client.value(&hinted))?;
    until_same(|| client.value(&format!("/*freshet:ttl=1h*/ {clock}")))?;
    let explained = rows(&client.query(&format!("explain cache {hinted}"))?).concat();
    ensure!(explained.iter().any(|cell| cell.starts_with("for 3600s, by a hint")), "{explained:?}");
    // The statement without a hint is another one, and so is one with another hint.
    never_same(|| client.value(clock))?;
    until_hit(&pair, &mut client, READ)?;
    passes(|| pair.freshet.metrics(), || client.run(NEVER))?;
    let brief = format!("{clock} /* freshet: ttl=100ms */");
    let before = until_same(|| client.value(&brief))?;
    eventually(PATIENCE, || {
        ensure!(client.value(&brief)? != before, "it is still served");
        Ok(())
    })?;
    ensure!(client.value(&hinted)? == cached, "another hint's result");
    prepared(&mut client, clock)?;
    // One that is wrong is none.
    let before = ignored(&pair.freshet.metrics()?);
    until_hit(&pair, &mut client, &format!("{READ} /* freshet: cache=sometimes */"))?;
    ensure!(ignored(&pair.freshet.metrics()?) > before);
    // Rules come first.
    file.write(&format!("{upstream}hints = true\n[[rule]]\ntable = \"film\"\ncache = \"auto\"\n"))?;
    client.run("reload")?;
    until_hit(&pair, &mut client, NEVER)?;
    never_same(|| client.value(&hinted))?;
    // The leave ends at once.
    file.write(&format!("{upstream}hints = true\n"))?;
    client.run("reload")?;
    until_same(|| client.value(&hinted))?;
    file.write(&upstream)?;
    client.run("reload")?;
    never_same(|| client.value(&hinted))
}

/// By the extended protocol, in one batch and with a name.
fn prepared(client: &mut RawClient, clock: &str) -> Result<()> {
    let sql = format!("{clock} where id > $1::int");
    let hinted = format!("{sql} /* freshet: ttl=1h */");
    let run = |name: &str| [bind_text("", name, &["5"]), describe_portal(""), execute("", 0), sync()].concat();
    let batch = |sql: &str| [parse("", sql), run("")].concat();
    let mut ask = |messages: &[u8]| Ok(format!("{:?}", rows(&client.exchange(messages, 1)?)));
    until_same(|| ask(&batch(&hinted)))?;
    never_same(|| ask(&batch(&sql)))?;
    ask(&[parse("plain", &sql), sync()].concat())?;
    ask(&[parse("hinted", &hinted), sync()].concat())?;
    until_same(|| ask(&run("hinted")))?;
    never_same(|| ask(&run("plain")))
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let schema =
        "create table film (id int primary key, title varchar(20) not null); insert into film values (1, 'film 1')";
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &["--hints"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let clock = "select now(6), count(*) from film";
    until_same(|| client.value(&format!("{clock} /* freshet: ttl=1h */")))?;
    until_same(|| client.value(&format!("/*freshet:ttl=1h*/ {clock};")))?;
    never_same(|| client.value(clock))?;
    pair.until_hit(&mut client, READ)?;
    passes(|| pair.freshet.metrics(), || client.run(NEVER))?;
    let before = ignored(&pair.freshet.metrics()?);
    pair.until_hit(&mut client, &format!("{READ} /* freshet: cache=sometimes */"))?;
    ensure!(ignored(&pair.freshet.metrics()?) > before);
    let kept = client.prepare(&format!("{clock} where id > ? /* freshet: ttl=1h */"))?;
    let mut run = || {
        let answer = client.execute(kept, &[mysql::packets::Value::Integer(0)])?;
        Ok(format!("{:?}", answer.rows()))
    };
    until_same(&mut run)?;
    Ok(())
}
