//! Python's drivers and what is built on them: psycopg 3, psycopg2, asyncpg, SQLAlchemy, Django.

use std::path::{Path, PathBuf};

use anyhow::Result;
use freshet_testbed::Settings;

use super::{SCHEMA, left_out, output_of, same};
use crate::support::{Database, Pair, Version, on_both};

on_both!(psycopg3, psycopg2, asyncpg, habits, sqlalchemy_psycopg, sqlalchemy_psycopg2, sqlalchemy_asyncpg);

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

/// The interpreter with all packages, or None where `script/setup` has not been run.
fn interpreter() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed/venv/bin/python");
    python.exists().then_some(python)
}

/// Runs a session's script both ways.
fn script(database: Database, name: &str, arguments: &[&str]) -> Result<()> {
    let Some(python) = interpreter() else { return left_out("Python's drivers") };
    let pair = Pair::over(database, SCHEMA, &[])?;
    let script = folder().join(name).with_extension("py");
    same(&pair, SCHEMA, 5, |way| {
        let mut command = way.command(&python);
        command.arg("-B").arg(&script).args(arguments);
        output_of(&command, 0)
    })
}
