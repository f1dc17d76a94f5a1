//! Normal operation logs no warning: DDL beside reads, a stream that breaks and is established again, the end by SIGTERM.

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, process};

use super::SCHEMA;
use crate::cached::until_hit;
use crate::mysql::support::{Database as MysqlDatabase, Kind, Pair as MysqlPair};
use crate::support::{Database, Freshet, PATIENCE, Pair, Version, eventually, on_both_at_length};

on_both_at_length!(only_the_cut_is_a_warning);

fn warnings(log: &str) -> Vec<&str> {
    // A machine without a processor for it is no normal life, and the tests' password is on the command line.
    let is_meant = |line: &&str| {
        let is_of_tests = line.contains("late ") || line.contains("process list");
        (line.contains(" WARN ") || line.contains(" ERROR ")) && !is_of_tests
    };
    log.lines().filter(is_meant).collect()
}

/// One, that there is no stream, and nothing that is not so.
fn only_the_cut_is_told(freshet: &mut Freshet) -> Result<()> {
    let Some(pid) = freshet.pid() else { return Ok(()) };
    process::terminate(pid)?;
    eventually(PATIENCE, || freshet.ended()?.map(|_| ()).ok_or_else(|| anyhow::anyhow!("it does not end")))?;
    let log = freshet.log();
    let warnings = warnings(&log);
    ensure!(warnings.len() == 1 && warnings[0].contains("no change stream"), "{warnings:#?}");
    ensure!(!log.contains("other server") && !log.contains("tables published"), "{log}");
    Ok(())
}

fn only_the_cut_is_a_warning(version: Version) -> Result<()> {
    let mut pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut owner) = (pair.connect()?, pair.database.connect()?);
    for n in 0..30 {
        owner.run(&format!("create table brief_{n} (id int primary key); insert into brief_{n} values (1)"))?;
        c.query(&format!("select id from brief_{n} where id = 1"))?;
        owner.run(&format!("drop table brief_{n}"))?;
    }
    until_hit(&pair, &mut c, "select title from film where id = 1")?;
    ensure!(warnings(&pair.freshet.log()).is_empty(), "{:#?}", warnings(&pair.freshet.log()));
    owner.run("select pg_terminate_backend(active_pid) from pg_replication_slots")?;
    eventually(PATIENCE, || {
        ensure!(!warnings(&pair.freshet.log()).is_empty(), "the cut is not told");
        Ok(())
    })?;
    until_hit(&pair, &mut c, "select title from film where id = 2")?;
    only_the_cut_is_told(&mut pair.freshet)
}

fn on_mysql(kind: Kind) -> Result<()> {
    let database = MysqlDatabase::create(kind.start(&Kind::settings())?)?;
    let mut pair =
        MysqlPair::over(database, "CREATE TABLE item (id INT PRIMARY KEY); INSERT INTO item VALUES (1)", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut owner) = (pair.connect()?, pair.database.connect()?);
    for n in 0..30 {
        owner.run(&format!("CREATE TABLE brief_{n} (id INT PRIMARY KEY); INSERT INTO brief_{n} VALUES (1)"))?;
        c.query(&format!("SELECT id FROM brief_{n} WHERE id = 1"))?;
        owner.run(&format!("DROP TABLE brief_{n}"))?;
    }
    ensure!(warnings(&pair.freshet.log()).is_empty(), "{:#?}", warnings(&pair.freshet.log()));
    let dump = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let id = owner.value(dump)?;
    owner.run(&format!("KILL {id}"))?;
    eventually(PATIENCE, || {
        ensure!(!warnings(&pair.freshet.log()).is_empty(), "the cut is not told");
        Ok(())
    })?;
    pair.freshet.wait_ready()?;
    only_the_cut_is_told(&mut pair.freshet)
}

#[test]
fn on_mariadb_only_the_cut_is_a_warning() -> Result<()> {
    on_mysql(Kind::Mariadb)
}

#[test]
fn on_mysql_only_the_cut_is_a_warning() -> Result<()> {
    on_mysql(Kind::Mysql)
}
