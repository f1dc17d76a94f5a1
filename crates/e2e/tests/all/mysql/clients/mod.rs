//! Real programs and drivers of this family work unchanged.
//!
//! As for PostgreSQL (`crate::clients`): each session runs directly and through Freshet over the same data, must print the same both times, and some
//! of its reads must have been served from the cache. The programs of the languages are beside those for PostgreSQL's drivers. Programs that are
//! missing on a machine are skipped; `FRESHET_TEST_STRICT=1` makes this a failure.

mod django;
mod languages;
mod programs;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Database, Kind, Pair};
use crate::support::{PATIENCE, rest_of};

/// The data of these sessions. Created again for each run, so that all of them begin with the same data.
const SCHEMA: &str = "
    DROP TABLE IF EXISTS role, film, kinds;
    CREATE TABLE film (id INT PRIMARY KEY, title VARCHAR(40) NOT NULL, genre VARCHAR(20), votes INT NOT NULL);
    INSERT INTO film SELECT n, CONCAT('film ', n), ELT(n % 3 + 1, 'drama', 'comedy'), n FROM
        (SELECT 1 + a.d + 10 * b.d + 100 * c.d AS n FROM
            (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
                UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a,
            (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
                UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b,
            (SELECT 0 AS d UNION SELECT 1) c) numbers;
    CREATE TABLE role (id INT PRIMARY KEY AUTO_INCREMENT, film_id INT NOT NULL, actor VARCHAR(40) NOT NULL,
        FOREIGN KEY (film_id) REFERENCES film (id));
    INSERT INTO role (film_id, actor) SELECT id, CONCAT('actor ', id) FROM film;
    CREATE TABLE kinds (id INT PRIMARY KEY, big BIGINT, exact DECIMAL(20, 6), approx DOUBLE, day DATE, at DATETIME(3),
        bytes VARBINARY(10), letters CHAR(4));
    INSERT INTO kinds VALUES (1, 9007199254740993, 1234567.890100, 0.1, '2024-02-29', '2024-02-29 12:34:56.789', X'00ff10',
        'ab'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

/// Seconds after which a program is ended: it hangs.
const SECONDS_MAX: &str = "400";
/// For how long a program is run through Freshet again and again until enough of its reads came from the cache.
const HITS_PATIENCE: Duration = Duration::from_secs(120);

/// A program and its arguments, in which `{host}`, `{port}`, `{database}`, `{user}`, `{password}` and `{url}` stand for
/// the way to the database.
struct Session<'a> {
    /// Succeeds, run in `.testbed`, if all is there that it needs.
    installed: &'a [&'a str],
    command: &'a [&'a str],
    /// How many of its reads come from the cache at least.
    hits: u64,
    /// The lines that are compared.
    compared: fn(&str) -> bool,
}

const ALL: fn(&str) -> bool = |_| true;
const NONE: fn(&str) -> bool = |_| false;

/// Where `script/setup` puts what it installs.
fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed")
}

/// A command that finds what was installed, in the folder of the clients' programs.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    let (bin, venv) = (testbed().join("bin"), testbed().join("venv/bin"));
    command.env("PATH", format!("{}:{}:{path}", bin.display(), venv.display()));
    let node = ["node/node_modules", "prisma/node_modules", "prisma"].map(|path| testbed().join(path));
    command.env("NODE_PATH", node.map(|path| path.display().to_string()).join(":"));
    command.env("CLASSPATH", testbed().join("java/lib/*"));
    command.env("LC_ALL", "C.UTF-8").current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/clients"));
    command.stdin(Stdio::null());
    command
}

impl Session<'_> {
    fn is_installed(&self) -> bool {
        let [program, arguments @ ..] = self.installed else { return true };
        let mut check = command(program);
        check.args(arguments).current_dir(testbed()).stdout(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    }

    /// Runs it; the lines that are compared, if it succeeds.
    fn run(&self, database: &Database, address: std::net::SocketAddr) -> Result<String> {
        let login = database.login();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let url = format!("mysql://{}:{}@{address}/{}", login.user, login.password, database.name);
        let fill = |argument: &&str| {
            let argument = argument.replace("{host}", &host).replace("{port}", &port).replace("{url}", &url);
            let argument = argument.replace("{user}", login.user).replace("{password}", login.password);
            argument.replace("{database}", &database.name)
        };
        let mut command = command("timeout");
        command.args(["--kill-after=5", SECONDS_MAX]).args(self.command.iter().map(fill));
        let output = command.output()?;
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{command:?}: {}\n{printed}\n{errors}", output.status);
        Ok(printed.split_inclusive('\n').filter(|line| (self.compared)(line)).collect())
    }

    /// It prints the same directly and through Freshet, where enough of its reads came from the cache.
    fn same(&self, kind: Kind, schema: &str) -> Result<()> {
        self.same_with(kind, schema, &[])
    }

    /// The same, and reads that hold these pieces were among those from the cache.
    fn same_with(&self, kind: Kind, schema: &str, pieces: &[&str]) -> Result<()> {
        if !self.is_installed() {
            return crate::clients::left_out(&format!("{:?}", self.command));
        }
        self.same_over(&Pair::new(kind, schema)?, schema, pieces)
    }

    /// The same where it shares a few connections with other sessions, which read all the time.
    fn same_among_others(&self, kind: Kind, schema: &str) -> Result<()> {
        if !self.is_installed() {
            return crate::clients::left_out(&format!("{:?}", self.command));
        }
        let pair = Pair::sharing(kind, schema, 4)?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..3)
                .map(|at| {
                    let (pair, is_over) = (&pair, &is_over);
                    scope.spawn(move || read_until(pair, at, is_over))
                })
                .collect();
            let same = self.same_over(&pair, schema, &[]);
            is_over.store(true, Ordering::Relaxed);
            others.into_iter().try_for_each(|other| other.join().expect("no panic"))?;
            same
        })
    }

    /// The same over a pair whose schema is new.
    fn same_over(&self, pair: &Pair, schema: &str, pieces: &[&str]) -> Result<()> {
        let direct = self.run(&pair.database, pair.database.address())?;
        // Other tests create tables on the same server, and until the catalogue has been read again nothing is cached.
        let deadline = Instant::now() + HITS_PATIENCE;
        loop {
            if !schema.is_empty() {
                pair.database.run(schema)?;
            }
            let before = pair.freshet.metrics()?;
            let through = self.run(&pair.database, pair.address())?;
            crate::clients::ensure_same(&direct, &through)?;
            if !pair.freshet.is_there() {
                return Ok(());
            }
            let after = pair.freshet.metrics()?;
            let (seen, missed) = (after.hits() - before.hits(), never_hit(pair, pieces)?);
            if seen >= self.hits && missed.is_empty() {
                return Ok(());
            }
            eprintln!("{seen} hits, not {}: {:?}; none of {missed:?}", self.hits, after.passed_since(&before));
            ensure!(Instant::now() < deadline, "{seen} hits in the last run, not {}; none of {missed:?}", self.hits);
        }
    }
}

/// Another session: statements with the numbers of all others, in blocks and outside.
fn read_until(pair: &Pair, at: usize, is_over: &AtomicBool) -> Result<()> {
    let mut client = pair.connect()?;
    let own = client.prepare(&format!("SELECT {at}, n.k FROM (SELECT 1 AS k UNION SELECT 2) n WHERE n.k <= ?"))?;
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let more = client.prepare(&format!("SELECT ?, {round}"))?;
        client.run("BEGIN")?;
        let answer = client.execute(own, &[Value::Integer(1)])?;
        client.run("COMMIT")?;
        ensure!(answer.error().is_none() && answer.rows().len() == 1, "{:?}", answer.error());
        let answer = client.execute(more, &[Value::Text("x")])?;
        ensure!(answer.error().is_none() && answer.rows().len() == 1, "{:?}", answer.error());
        client.send(&packets::close(more.id))?;
        rest_of(pair.freshet.http, PATIENCE)?;
    }
    Ok(())
}

/// Those of these pieces that are in no statement that was served from the cache.
fn never_hit<'a>(pair: &Pair, pieces: &[&'a str]) -> Result<Vec<&'a str>> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let rows = pair.connect()?.query("SHOW CACHES")?.rows();
    // The second column is the statement, the third its hits.
    let statements = rows.iter().filter(|row| row.get(2) != Some(&Some("0".to_owned())));
    let hit: Vec<&String> = statements.filter_map(|row| row.get(1)?.as_ref()).collect();
    let missed: Vec<_> =
        pieces.iter().copied().filter(|piece| !hit.iter().any(|statement| statement.contains(piece))).collect();
    if !missed.is_empty() {
        let passed = pair.connect()?.query("SHOW PROXIED QUERIES")?.rows();
        eprintln!("from the cache: {hit:#?}\npassed: {passed:#?}");
    }
    Ok(missed)
}
