//! `freshet check`, `freshet uninstall` and `freshet serve --prepared`: the printed statements prepare a database.
//!
//! A statement for an administrator is tested by running it: for each fault, the statements that are printed below the problems are run by psql
//! unchanged, and then the check must find nothing.

mod keys;
mod prepared;
mod problems;
mod rights;
mod uninstall;

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::support::{Database, Freshet, Login, PATIENCE, RawClient, eventually, program};

/// A table that lacks nothing.
const SCHEMA: &str = "create table film (id int primary key, title text not null);
    insert into film select i, 'film ' || i from generate_series(1, 20) i";
const READ: &str = "select title from film where id = 1";

/// What a run of the program said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program to its end.
fn run(arguments: &[&str]) -> Result<Said> {
    let program = program()?.context("these tests need a Freshet")?;
    let mut command = Command::new(program);
    command.args(["--log", "warn"]).args(arguments).env_remove("FRESHET_UPSTREAM");
    let output = command.output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
}

/// Whether there is no Freshet to test.
fn without_freshet() -> Result<bool> {
    Ok(program()?.is_none())
}

fn check(upstream: &str, more: &[&str]) -> Result<Said> {
    run(&[&["check", "--upstream", upstream], more].concat())
}

/// Nothing is missing.
fn is_fit(upstream: &str, more: &[&str]) -> Result<()> {
    let said = check(upstream, more)?;
    ensure!(said.code == Some(0), "not fit: {said:#?}");
    ensure!(said.stdout.contains("\nevery guarantee holds: 0 problems"), "{said:#?}");
    Ok(())
}

/// Something is missing, and the report says each of these.
fn is_unfit(upstream: &str, more: &[&str], texts: &[&str]) -> Result<Said> {
    let said = check(upstream, more)?;
    ensure!(said.code == Some(1), "fit: {said:#?}");
    for text in texts {
        ensure!(said.stdout.contains(text), "nothing of {text:?} in: {said:#?}");
    }
    Ok(said)
}

/// What stands below the problems, as it stands.
fn statements(report: &str) -> String {
    let (findings, _) = report.rsplit_once("\n\n").expect("a report ends with a verdict");
    let mut below_problem = false;
    let mut statements = String::new();
    for line in findings.lines() {
        if ["ok       ", "hint     ", "warning  ", "problem  "].iter().any(|mark| line.starts_with(mark)) {
            below_problem = line.starts_with("problem");
        } else if below_problem && line.contains("freshet check --print-triggers") {
            // An administrator runs it, and feeds psql with what it prints.
            statements.push_str(&run(&["check", "--print-triggers"]).expect("it needs no database").stdout);
        } else if below_problem {
            statements.push_str(line);
            statements.push('\n');
        }
    }
    statements
}

/// Runs SQL as an administrator would, with psql in the database.
fn psql(database: &Database, sql: &str) -> Result<String> {
    database.server.psql(&format!("\\connect {}\n{sql}", database.name))
}

/// Does what the report says, and then the database is fit.
fn mends(database: &Database, upstream: &str, more: &[&str], said: &Said) -> Result<()> {
    psql(database, &statements(&said.stdout)).with_context(|| said.stdout.clone())?;
    is_fit(upstream, more).with_context(|| format!("after what this said: {}", said.stdout))
}

/// A role of this test alone. Roles belong to the whole server, so it goes with the test.
struct Role<'a> {
    database: &'a Database,
    name: String,
}

impl<'a> Role<'a> {
    /// A name for a role that is made by somebody else.
    fn named(database: &'a Database, suffix: &str) -> Self {
        Self { database, name: format!("{}_{suffix}", database.name) }
    }

    fn create(database: &'a Database, suffix: &str) -> Result<Self> {
        let role = Self::named(database, suffix);
        database.run(&format!("create role {} login", role.name))?;
        Ok(role)
    }

    fn url(&self) -> String {
        format!("postgres://{}@{}/{}", self.name, self.database.address(), self.database.name)
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        let sql = format!("reassign owned by {name} to postgres; drop owned by {name}; drop role {name}");
        // It may never have been made.
        let _ = self.database.run(&sql);
    }
}

/// A client of Freshet's, as the superuser.
fn client(freshet: &Freshet, database: &Database) -> Result<RawClient> {
    RawClient::login(freshet.address, Login { user: "postgres", ..database.login() })
}

/// Reads until a read comes from the cache.
fn hits(freshet: &Freshet, client: &mut RawClient, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = freshet.metrics()?;
        client.query(sql)?;
        let after = freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql} does not hit: {:?}", after.passed_since(&before));
        Ok(())
    })
}
