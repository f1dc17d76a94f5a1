//! The test suites of drivers: each test that passes directly passes through Freshet.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::{testbed, unpacked};
use crate::clients::left_out;
use crate::mysql::support as mysql;
use crate::support::{Database, Pair, Version};

/// Seconds after which a suite is ended: it hangs.
const SECONDS_MAX: &str = "600";
/// Bytes of a test's output that a failure shows.
const SHOWN_MAX: usize = 4000;

/// Tests that need another machine: the first, of go-sql-driver, connects to a public address, the second, of pgx, looks up
/// a name.
const SKIPPED: &str =
    "-skip=^(TestConnectorReturnsTimeout|TestConnectFailsWithResolveFailureAndFailedConnectionAttempts)$";

/// A driver's tests.
struct Suite {
    /// Its folder.
    name: &'static str,
    /// How many of its tests pass directly at least: else it was not set up as it wants to be.
    passes: usize,
    /// Tests that may fail through Freshet, and why. A name that ends with `*` means all that begin with it.
    known: &'static [(&'static str, &'static str)],
}

const PGX: Suite = Suite { name: "pgx", passes: 1500, known: &[] };
const GO_SQL_DRIVER: Suite = Suite {
    name: "go-sql-driver",
    passes: 350,
    known: &[
        (
            "github.com/go-sql-driver/mysql TestTLS*",
            "Freshet offers TLS with a certificate that it is given; here it has none",
        ),
        ("github.com/go-sql-driver/mysql TestIssue1567*", "it asks for TLS, too"),
    ],
};
const ASYNCPG: Suite = Suite { name: "asyncpg", passes: 250, known: &[] };
const PSYCOPG2: Suite = Suite { name: "psycopg2", passes: 400, known: &[] };

#[test]
#[ignore = "a driver's own tests; make test-long runs them"]
fn pgx() -> Result<()> {
    let schema = "create extension hstore; create extension ltree; create domain uint64 as numeric(20, 0);
        create user \" tricky, ' } \"\" \\ test user \" superuser password 'secret'";
    let Some(folder) = unpacked(PGX.name) else { return left_out("the tests of pgx") };
    let pair = postgres(schema)?;
    PGX.same(pair.database.address(), pair.address(), |address| {
        let login = pair.login();
        let password = login.password.unwrap_or_default();
        let (host, port) = (address.ip(), address.port());
        let way = format!("host={host} port={port} user={} password={password} dbname={}", login.user, login.database);
        let mut command = go_test(&folder, &[".", "./pgconn", "./pgxpool", "./stdlib"]);
        command.env("PGX_TEST_DATABASE", way);
        command
    })
}

#[test]
#[ignore = "a driver's own tests; make test-long runs them"]
fn asyncpg() -> Result<()> {
    let Some(folder) = unpacked(ASYNCPG.name) else { return left_out("the tests of asyncpg") };
    let pair = postgres("")?;
    ASYNCPG.same(pair.database.address(), pair.address(), |address| {
        let login = pair.login();
        let mut command = unittests(&folder);
        command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
        command.env("PGUSER", login.user).env("PGDATABASE", login.database);
        command.env("PGPASSWORD", login.password.unwrap_or_default());
        command
    })
}

#[test]
#[ignore = "a driver's own tests; make test-long runs them"]
fn psycopg2() -> Result<()> {
    let Some(folder) = unpacked(PSYCOPG2.name) else { return left_out("the tests of psycopg2") };
    let pair = postgres("create extension hstore")?;
    PSYCOPG2.same(pair.database.address(), pair.address(), |address| {
        let login = pair.login();
        let mut command = unittests(&folder);
        command.env("PSYCOPG2_TESTDB_HOST", address.ip().to_string());
        command.env("PSYCOPG2_TESTDB_PORT", address.port().to_string());
        command.env("PSYCOPG2_TESTDB_USER", login.user).env("PSYCOPG2_TESTDB", login.database);
        command.env("PSYCOPG2_TESTDB_PASSWORD", login.password.unwrap_or_default());
        command
    })
}

#[test]
#[ignore = "a driver's own tests; make test-long runs them"]
fn go_sql_driver_mariadb() -> Result<()> {
    go_sql_driver(mysql::Kind::Mariadb)
}

#[test]
#[ignore = "a driver's own tests; make test-long runs them"]
fn go_sql_driver_mysql() -> Result<()> {
    go_sql_driver(mysql::Kind::Mysql)
}

fn go_sql_driver(kind: mysql::Kind) -> Result<()> {
    let Some(folder) = unpacked(GO_SQL_DRIVER.name) else { return left_out("the tests of go-sql-driver") };
    let settings = mysql::Kind::settings().with("local-infile = 1");
    let pair = mysql::Pair::over(mysql::Database::create(kind.start(&settings)?)?, "", &[])?;
    GO_SQL_DRIVER.same(pair.database.address(), pair.address(), |address| {
        let login = pair.login();
        let mut command = go_test(&folder, &["."]);
        command.env("MYSQL_TEST_ADDR", address.to_string()).env("MYSQL_TEST_DBNAME", &pair.database.name);
        command.env("MYSQL_TEST_USER", login.user).env("MYSQL_TEST_PASS", login.password);
        command.env("MYSQL_TEST_CONCURRENT", "1");
        command
    })
}

/// A PostgreSQL that these suites find all they want in, and Freshet in front of it.
fn postgres(schema: &str) -> Result<Pair> {
    let settings = Settings::default().with("max_prepared_transactions = 10");
    Pair::over(Database::create(Version::V15.start(&settings)?)?, schema, &[])
}

/// One package after the other, for they share the database.
fn go_test(folder: &Path, packages: &[&str]) -> Command {
    let mut command = bounded("go", folder);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", testbed().join("bin").display()));
    command.args(["test", "-json", "-count=1", "-p=1", SKIPPED]).args(packages);
    command
}

fn unittests(folder: &Path) -> Command {
    let mut command = bounded(testbed().join("venv/bin/python"), folder);
    command.args(["-B", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/suites/unittests.py"), "tests"]);
    command
}

fn bounded(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(program).current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8");
    command
}

/// Whether each test passed, and what was printed.
struct Run {
    passed: BTreeMap<String, bool>,
    printed: String,
}

impl Suite {
    /// Runs it directly, then through Freshet.
    fn same(&self, direct: SocketAddr, through: SocketAddr, tests: impl Fn(SocketAddr) -> Command) -> Result<()> {
        let direct = Run::of(tests(direct))?;
        let passed: Vec<_> = direct.passed.iter().filter(|(_, passed)| **passed).map(|(name, _)| name).collect();
        eprintln!("{}: {} of {} tests pass directly", self.name, passed.len(), direct.passed.len());
        ensure!(passed.len() >= self.passes, "{}: {}", self.name, tail(&direct.printed));
        let through = Run::of(tests(through))?;
        let fails = |name: &&&String| through.passed.get(name.as_str()) != Some(&true);
        let differ: Vec<_> = passed.iter().filter(fails).filter(|name| !self.is_known(name)).collect();
        for name in &differ {
            eprintln!("--- {name}\n{}", through.printed_of(name));
        }
        ensure!(differ.is_empty(), "{}: pass directly alone: {differ:#?}", self.name);
        Ok(())
    }

    fn is_known(&self, test: &str) -> bool {
        self.known.iter().any(|(name, _)| name.strip_suffix('*').map_or(test == *name, |head| test.starts_with(head)))
    }
}

impl Run {
    fn of(mut command: Command) -> Result<Self> {
        let output = command.stderr(Stdio::null()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self { passed: printed.lines().filter_map(outcome).collect(), printed })
    }

    /// What is printed of a test: up to the line that names its outcome or, of Python's, behind it.
    fn printed_of(&self, test: &str) -> String {
        let Some((package, name)) = test.split_once(' ') else {
            let behind = self.printed.split_once(&format!("outcome fail {test}\n")).map_or("", |(_, behind)| behind);
            return behind.split("outcome ").next().unwrap_or_default().to_owned();
        };
        let [package, name] = [format!("\"Package\":\"{package}\""), format!("\"Test\":\"{name}\"")];
        let lines = self.printed.lines().filter(|line| line.contains(&package) && line.contains(&name));
        tail(&lines.filter_map(|line| field(line, "Output")).collect::<String>()).replace("\\n", "\n")
    }
}

fn tail(printed: &str) -> String {
    let from = printed.char_indices().rev().nth(SHOWN_MAX).map_or(0, |(at, _)| at);
    printed.get(from..).unwrap_or_default().to_owned()
}

/// The test that a line names, and whether it passed.
fn outcome(line: &str) -> Option<(String, bool)> {
    if let Some(outcome) = line.strip_prefix("outcome ") {
        let (outcome, name) = outcome.split_once(' ')?;
        return Some((name.to_owned(), outcome == "pass"));
    }
    let passed = match field(line, "Action")? {
        "pass" => true,
        "fail" => false,
        _ => return None,
    };
    let (package, test) = (field(line, "Package")?, field(line, "Test")?);
    // A temporary folder has a random number in its name.
    let temporary = test.contains(&*std::env::temp_dir().to_string_lossy());
    let test = if temporary { test.replace(char::is_numeric, "") } else { test.to_owned() };
    Some((format!("{package} {test}"), passed))
}

/// A field of a line that `go test -json` prints, its escapes as they are.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!("\"{name}\":\""))?;
    let mut escaped = false;
    let end = value.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    value.get(..end)
}
