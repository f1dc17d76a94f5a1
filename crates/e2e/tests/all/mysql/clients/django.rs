//! A part of Django's own test suite, with mysqlclient.
//!
//! Django 5.2 requires MariaDB 10.5 or MySQL 8.0.11, so it runs on both servers. The labels are those of PostgreSQL's test
//! (`crate::clients::python`), except those for that database only and those that create too many tables: `schema`, and on MySQL, which is slower,
//! `queries`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Session, testbed};
use crate::mysql::support::{Database, Kind, Pair, on_both_at_length};

on_both_at_length!(django);

/// What is tested of Django's own database layer.
const LABELS: &str = "backends basic introspection select_for_update transactions";
/// By `make test-long` besides.
const MORE_LABELS: &str = "bulk_create many_to_many";
/// What is tested again with repeated reads, outside of transactions; see `python/repeating_mysql`.
const REPEATED_LABELS: &str = "basic";
/// By `make test-long` besides.
const MORE_REPEATED_LABELS: &str = "many_to_many";
/// What that tests on MariaDB besides, either way.
const MARIADB_LABELS: [&str; 2] = ["queries", "aggregation"];

fn django(kind: Kind) -> Result<()> {
    tests(kind, LABELS, (REPEATED_LABELS, 50))
}

#[test]
#[ignore = "more of Django's tests; make test-long runs them"]
fn mariadb_at_length() -> Result<()> {
    at_length(Kind::Mariadb, MARIADB_LABELS)
}

#[test]
#[ignore = "more of Django's tests; make test-long runs them"]
fn mysql_at_length() -> Result<()> {
    at_length(Kind::Mysql, [""; 2])
}

fn at_length(kind: Kind, [more, more_repeated]: [&str; 2]) -> Result<()> {
    let repeated = format!("{REPEATED_LABELS} {MORE_REPEATED_LABELS} {more_repeated}");
    tests(kind, &format!("{LABELS} {MORE_LABELS} {more}"), (&repeated, 200))
}

/// `hits`: how many of the repeated reads come from the cache at least.
fn tests(kind: Kind, labels: &str, (repeated, hits): (&str, u64)) -> Result<()> {
    let Some(suite) = suite()? else { return crate::clients::left_out("Django's tests") };
    // A server of its own: other tests would lose what is cached for them with each of its hundreds of tables.
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &[])?;
    run(&pair, &suite, ("", labels), 0)?;
    run(&pair, &suite, ("REPEAT_READS=1", repeated), hits)
}

/// All of the tests of these labels end alike directly and through Freshet, with this in their environment.
fn run(pair: &Pair, suite: &str, (environment, labels): (&str, &str), hits: u64) -> Result<()> {
    let session = format!(
        "cd {suite}
        export DATABASE_HOST={{host}} DATABASE_PORT={{port}} DATABASE_USER={{user}} DATABASE_PASSWORD={{password}}
        export DATABASE_NAME={{database}} PYTHONPATH={programs}/mysql/clients/python:{programs}/clients/python {environment}
        exec python -B runtests.py --settings=django_mysql_settings --parallel=1 --keepdb --noinput --verbosity=2 {labels} 2>&1",
        programs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all"),
    );
    let session = Session { installed: &[], command: &["sh", "-c", &session], hits, compared: is_outcome };
    let name = &pair.database.name;
    // The second database is for the tests that want two.
    let fresh = format!(
        "DROP DATABASE {name}; CREATE DATABASE {name}; DROP DATABASE IF EXISTS {name}_other; CREATE DATABASE {name}_other"
    );
    pair.database.run(&fresh)?;
    session.same_over(pair, &fresh, &[])
}

/// A line that tells how a test ended.
fn is_outcome(line: &str) -> bool {
    line.contains(" ... ")
}

/// The folder with the tests of the Django that is installed, if it is there.
fn suite() -> Result<Option<String>> {
    let asked = include_str!("../../clients/python/requirements.txt");
    let installed = std::fs::read_to_string(testbed().join("venv/requirements.txt"));
    let pin = asked.lines().find_map(|line| line.strip_prefix("Django=="));
    let suite: PathBuf = testbed().join(format!("django-{}/tests", pin.context("Django is not pinned")?));
    let there = installed.is_ok_and(|installed| installed == asked) && suite.is_dir();
    Ok(there.then(|| suite.display().to_string()))
}
