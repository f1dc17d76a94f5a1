//! Python's drivers and libraries on top of them: psycopg 3, psycopg2, asyncpg, SQLAlchemy, Django.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use freshet_testbed::Settings;

use super::{SCHEMA, Way, left_out, lines, output_of, same};
use crate::support::{Database, Pair, Version, on_both_at_length};

on_both_at_length!(psycopg3, psycopg2, asyncpg, habits, sqlalchemy_psycopg, sqlalchemy_psycopg2, sqlalchemy_asyncpg);

fn psycopg3(version: Version) -> Result<()> {
    script(two_phase(version)?, "psycopg3_session", &[])
}

fn psycopg2(version: Version) -> Result<()> {
    script(two_phase(version)?, "psycopg2_session", &[])
}

fn asyncpg(version: Version) -> Result<()> {
    script(Database::shared(version)?, "asyncpg_session", &[])
}

/// What drivers and pools send around each read.
fn habits(version: Version) -> Result<()> {
    script(Database::shared(version)?, "habits_session", &[])
}

fn sqlalchemy_psycopg(version: Version) -> Result<()> {
    script(Database::shared(version)?, "sqlalchemy_session", &["psycopg"])
}

fn sqlalchemy_psycopg2(version: Version) -> Result<()> {
    script(Database::shared(version)?, "sqlalchemy_session", &["psycopg2"])
}

fn sqlalchemy_asyncpg(version: Version) -> Result<()> {
    script(Database::shared(version)?, "sqlalchemy_session", &["asyncpg"])
}

/// A server on which two-phase commits are switched on.
fn two_phase(version: Version) -> Result<Database> {
    Database::create(version.start(&Settings::default().with("max_prepared_transactions = 10"))?)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/clients/python")
}

/// Where `script/setup` puts what it installs.
fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed")
}

/// The interpreter, if it has all packages in the versions that are asked for now.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let installed = std::fs::read_to_string(testbed().join("venv/requirements.txt")).ok()?;
    (installed == include_str!("python/requirements.txt")).then(|| testbed().join("venv/bin/python"))
}

/// Runs a session's script both ways.
fn script(database: Database, name: &str, arguments: &[&str]) -> Result<()> {
    let Some(python) = interpreter() else { return left_out("Python's drivers") };
    let pair = Pair::over(database, SCHEMA, &[])?;
    let script = folder().join(name).with_extension("py");
    // Each script sees to it that its reads are served from the cache at least once; none has fewer than four.
    same(&pair, SCHEMA, 4, |way| {
        let mut command = way.command(&python);
        command.arg("-B").arg(&script).args(arguments);
        output_of(&command, 0)
    })
}

/// What is tested of Django's own database layer. Version 15, since the one of version 18 comes without some extensions
/// and collations that these tests use.
const DJANGO_LABELS: &str = "backends basic introspection select_for_update transactions";
/// By `make test-long` besides.
const MORE_DJANGO_LABELS: &str = "bulk_create many_to_many postgres_tests queries schema";
/// What is tested again with repeated reads, outside of transactions; see `python/repeating`.
const REPEATED_LABELS: &str = "basic";
/// By `make test-long` besides.
const MORE_REPEATED_LABELS: &str = "aggregation many_to_many";

#[test]
fn django() -> Result<()> {
    django_tests(DJANGO_LABELS, (REPEATED_LABELS, 50))
}

#[test]
#[ignore = "a thousand more of Django's tests; make test-long runs them"]
fn django_at_length() -> Result<()> {
    let labels = format!("{DJANGO_LABELS} {MORE_DJANGO_LABELS}");
    django_tests(&labels, (&format!("{REPEATED_LABELS} {MORE_REPEATED_LABELS}"), 200))
}

/// `hits`: how many of the repeated reads come from the cache at least.
fn django_tests(labels: &str, (repeated, hits): (&str, u64)) -> Result<()> {
    let (Some(python), Some(suite)) = (interpreter(), django_suite()?) else { return left_out("Django's tests") };
    let settings = Settings { initdb: vec!["--locale=C.UTF-8".into()], ..Settings::default() };
    let pair = Pair::over(Database::create(Version::V15.start(&settings)?)?, "", &[])?;
    let run = |way: Way<'_>, labels: &str, repeat: bool| {
        // The second database that some tests want, passed through by Freshet.
        let other = format!("{}_other", pair.database.name);
        pair.database.run(&format!("drop database if exists {other}"))?;
        pair.database.run(&format!("create database {other}"))?;
        let mut tests = way.command(&python);
        tests.arg("-B").arg(suite.join("runtests.py")).args(["--settings=django_settings", "--parallel=1"]);
        tests.args(["--keepdb", "--noinput", "--verbosity=2"]).args(labels.split(' ')).current_dir(&suite);
        tests.env("PYTHONPATH", folder());
        if repeat {
            tests.env("REPEAT_READS", "1");
        }
        let printed = output_of(&tests, 0)?;
        // Each test with its outcome.
        Ok(lines(&printed, |line| line.contains(" ... ")))
    };
    same(&pair, "", 0, |way| run(way, labels, false))?;
    same(&pair, "", hits, |way| run(way, repeated, true))
}

/// The folder with the tests of the Django that is installed.
fn django_suite() -> Result<Option<PathBuf>> {
    let pin = include_str!("python/requirements.txt").lines().find_map(|line| line.strip_prefix("Django=="));
    let suite = testbed().join(format!("django-{}/tests", pin.context("Django is not pinned")?));
    Ok(suite.is_dir().then_some(suite))
}
