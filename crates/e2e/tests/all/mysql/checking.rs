//! `freshet check` and `freshet uninstall` with MariaDB and MySQL: the printed statements prepare a server.
//!
//! A statement for an administrator is tested by running it: the statements that are printed below the problems are run unchanged, and then the check
//! must find nothing.

use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use freshet_testbed::{Mariadb, MysqlSettings};

use super::support::{Database, Kind, RawClient, on_both};
use crate::documents::printed_there;
use crate::support::{Freshet, PATIENCE, eventually, program, rest};

on_both!(
    what_is_fit,
    settings_of_the_binlog,
    a_filtered_log,
    an_account_without_rights,
    rights_on_one_database,
    views_of_other_definers,
    every_database_is_cached,
    tables_that_are_unfit,
    the_script_prepares_everything,
    nothing_to_remove,
);

/// What a run of the program said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program to its end; none if there is no Freshet to test.
fn run(arguments: &[&str]) -> Result<Option<Said>> {
    let Some(program) = program()? else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(["--log", "warn"]).args(arguments).env_remove("FRESHET_UPSTREAM");
    let output = command.output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some(Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }))
}

fn check(url: &str, more: &[&str]) -> Result<Option<Said>> {
    run(&[&["check", "--upstream", url], more].concat())
}

/// Nothing is missing.
fn is_fit(url: &str, more: &[&str]) -> Result<()> {
    let Some(said) = check(url, more)? else { return Ok(()) };
    ensure!(said.code == Some(0), "not fit: {said:#?}");
    ensure!(said.stdout.contains("\nevery guarantee holds: 0 problems"), "{said:#?}");
    Ok(())
}

/// Something is missing, and the report says each of these. What stands below the problems is run, but for comments.
fn mends(database: &Database, url: &str, texts: &[&str]) -> Result<()> {
    let Some(said) = check(url, &[])? else { return Ok(()) };
    ensure!(said.code == Some(1), "fit: {said:#?}");
    for text in texts {
        ensure!(said.stdout.contains(text), "nothing of {text:?} in: {said:#?}");
    }
    let (findings, _) = said.stdout.rsplit_once("\n\n").context("a verdict")?;
    let mut below_problem = false;
    for line in findings.lines() {
        if ["ok       ", "hint     ", "warning  ", "problem  "].iter().any(|mark| line.starts_with(mark)) {
            below_problem = line.starts_with("problem") || line.starts_with("warning");
        } else if below_problem && !line.trim_start().starts_with("--") {
            database.run(line.trim()).with_context(|| said.stdout.clone())?;
        }
    }
    is_fit(url, &[]).with_context(|| format!("after what this said: {}", said.stdout))
}

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40))";

fn what_is_fit(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    is_fit(&database.url(), &[])?;
    is_fit(&database.url(), &["--tables", &format!("{}.item", database.name)])?;
    let Some(said) = check(&database.url(), &["--tables", "no.such"])? else { return Ok(()) };
    ensure!(said.code == Some(1) && said.stdout.contains("there is no such table"), "{said:#?}");
    let Some(said) = check("mysql://root@127.0.0.1:1/", &[])? else { return Ok(()) };
    ensure!(said.code == Some(2) && said.stdout.is_empty() && said.stderr.contains("127.0.0.1:1"), "{said:#?}");
    Ok(())
}

#[test]
fn a_server_without_a_binlog() -> Result<()> {
    let server = Mariadb::start(&MysqlSettings::default())?;
    let Some(said) = check(&server.url(), &[])? else { return Ok(()) };
    ensure!(said.code == Some(1), "{said:#?}");
    let text = "problem  log_bin is OFF, as by default: there is no change stream, so nothing is cached until it is on\n         \
                -- in the option file, under [mysqld]: log-bin = binlog; binlog-format = ROW; server-id = 1";
    ensure!(said.stdout.contains(text), "{said:#?}");
    ensure!(said.stdout.contains(&printed_there("log_bin")?), "{said:#?}");
    Ok(())
}

fn settings_of_the_binlog(kind: Kind) -> Result<()> {
    let mut settings = Kind::settings().with("binlog-format = MIXED").with("binlog-row-image = MINIMAL");
    if kind == Kind::Mysql {
        settings = settings.with("gtid-mode = OFF").with("enforce-gtid-consistency = OFF");
    }
    let database = Database::create(kind.start(&settings)?)?;
    let mut texts = vec!["binlog_format is MIXED", "binlog_row_image is MINIMAL"];
    if kind == Kind::Mysql {
        texts.push("gtid_mode is OFF, as by default: there is no change stream, so nothing is cached until it is ON");
    }
    let pages = [printed_there("binlog_format")?, printed_there("gtid_mode")?];
    if kind == Kind::Mysql {
        texts.extend(pages.iter().map(String::as_str));
    }
    mends(&database, &database.url(), &texts)
}

/// A hint, which the server follows.
#[test]
fn commits_that_are_not_named() -> Result<()> {
    let database = Database::create(Kind::Mysql.start(&Kind::settings())?)?;
    let Some(said) = check(&database.url(), &[])? else { return Ok(()) };
    let mend = "SET PERSIST session_track_gtids = OWN_GTID";
    ensure!(said.stdout.contains("hint     session_track_gtids is OFF, as by default"), "{said:#?}");
    ensure!(said.stdout.contains(mend), "{said:#?}");
    database.run(mend)?;
    let Some(said) = check(&database.url(), &[])? else { return Ok(()) };
    ensure!(said.code == Some(0) && !said.stdout.contains("session_track_gtids"), "{said:#?}");
    Ok(())
}

fn a_filtered_log(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings().with("binlog-ignore-db = hidden"))?)?;
    let Some(said) = check(&database.url(), &[])? else { return Ok(()) };
    ensure!(said.code == Some(1), "{said:#?}");
    ensure!(said.stdout.contains("problem  binlog-ignore-db is hidden"), "{said:#?}");
    ensure!(said.stdout.contains("-- remove binlog-ignore-db from the option file"), "{said:#?}");
    Ok(())
}

/// An account of this test alone. Accounts belong to the whole server, so it goes with the test.
struct Account<'a> {
    database: &'a Database,
    name: String,
}

impl Account<'_> {
    fn url(&self) -> String {
        format!("mysql://{}:secret@{}/", self.name, self.database.address())
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = self.database.run(&format!("DROP USER {}@'%'", self.name));
    }
}

fn an_account_without_rights(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    let account = Account { name: format!("{}_poor", database.name), database: &database };
    let plugin = if kind == Kind::Mysql { "WITH mysql_native_password BY" } else { "BY" };
    database.run(&format!("CREATE USER {}@'%' IDENTIFIED {plugin} 'secret'", account.name))?;
    let texts = ["may not ask for the end of the binlog", "may not read the binlog", "may not read the tables of *.*"];
    mends(&database, &account.url(), &texts)
}

/// What an application of one database needs: nothing is missing for it, and it is cached.
fn rights_on_one_database(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    database.run("INSERT INTO item VALUES (1, 'one'); CREATE VIEW shown AS SELECT id, name FROM item")?;
    let account = Account { name: format!("{}_tenant", database.name), database: &database };
    let plugin = if kind == Kind::Mysql { "WITH mysql_native_password BY" } else { "BY" };
    database.run(&format!(
        "CREATE USER {0}@'%' IDENTIFIED {plugin} 'secret'; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {0}@'%'; \
         GRANT ALTER, DROP ON `{1}`.* TO {0}@'%'",
        account.name, database.name
    ))?;
    let url = account.url() + &database.name;
    // A view whose text is hidden, and a database that may not be read.
    mends(
        &database,
        &url,
        &[&format!("problem  '{}'@'%' may not read the tables of `{}`.*", account.name, database.name)],
    )?;
    database.run(&format!(
        "REVOKE SHOW VIEW ON `{}`.* FROM {}@'%'; CREATE VIEW later AS SELECT id FROM item",
        database.name, account.name
    ))?;
    mends(
        &database,
        &url,
        &[&format!("is not shown what these views are made of, so they are not cached: {}.later", database.name)],
    )?;
    let Some(said) = check(&url, &[])? else { return Ok(()) };
    let hint = format!("hint     '{}'@'%' may read tables of {} alone", account.name, database.name);
    ensure!(said.stdout.contains(&hint), "{said:#?}");
    let freshet = Freshet::start_unready(database.address(), &url, &["--admission", "always"])?;
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    hits(&freshet, &mut client, "SELECT name FROM item WHERE id = 1")?;
    hits(&freshet, &mut client, "SELECT name FROM shown WHERE id = 1")
}

/// MySQL shows the text of a view to its definer and hardly anybody else.
fn views_of_other_definers(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    let account = reader(&database, kind)?;
    database.run(
        "INSERT INTO item VALUES (1, 'one'); CREATE VIEW plain AS SELECT id, name FROM item WHERE name <> '\\''; \
         CREATE VIEW `named (` (`a) AS`, b) AS SELECT id, name FROM plain WHERE id < 5 WITH LOCAL CHECK OPTION",
    )?;
    let url = account.url() + &database.name;
    if let Some(said) = check(&url, &[])? {
        ensure!(!said.stdout.contains("is not shown what these views are made of"), "{said:#?}");
    }
    let freshet = Freshet::start_unready(database.address(), &url, &["--admission", "always"])?;
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    let reads = ["SELECT name FROM plain WHERE id = 1", "SELECT b FROM `named (` WHERE `a) AS` = 1"];
    for read in reads {
        hits(&freshet, &mut client, read)?;
    }
    database.run("UPDATE item SET name = 'two' WHERE id = 1")?;
    for read in reads {
        eventually(PATIENCE, || {
            let found = client.value(read)?;
            ensure!(found == "two", "{read}: {found}");
            Ok(())
        })?;
    }
    // Another definition, over another table.
    let plain = "SELECT name FROM plain WHERE id = 1";
    database.run(
        "CREATE TABLE other (id INT PRIMARY KEY, name VARCHAR(40)); INSERT INTO other VALUES (1, 'one'); \
         CREATE OR REPLACE VIEW plain AS SELECT id, name FROM other",
    )?;
    hits(&freshet, &mut client, plain)?;
    hits(&freshet, &mut client, "SELECT b FROM `named (` WHERE `a) AS` = 1")?;
    database.run("UPDATE other SET name = 'two' WHERE id = 1")?;
    eventually(PATIENCE, || {
        let found = client.value(plain)?;
        ensure!(found == "two", "{found}");
        Ok(())
    })?;
    // In between the view is invalid.
    database.run("DROP TABLE other")?;
    eventually(PATIENCE, || client.value(plain).map_or(Ok(()), |found| bail!("still there: {found}")))?;
    database.run("CREATE TABLE other (name VARCHAR(50), id INT PRIMARY KEY); INSERT INTO other VALUES ('one', 1)")?;
    hits(&freshet, &mut client, plain)
}

/// An account with the documented rights, which has defined nothing.
fn reader(database: &Database, kind: Kind) -> Result<Account<'_>> {
    let account = Account { name: format!("{}_reader", database.name), database };
    let plugin = if kind == Kind::Mysql { "WITH mysql_native_password BY" } else { "BY" };
    database.run(&format!(
        "CREATE USER {0}@'%' IDENTIFIED {plugin} 'secret'; \
         GRANT SELECT, SHOW VIEW, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {0}@'%'",
        account.name
    ))?;
    Ok(account)
}

/// Waits until a session waits for the lock of a table.
fn locked(database: &Database) -> Result<()> {
    let mut client = database.connect()?;
    eventually(PATIENCE, || {
        let waiting =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'";
        ensure!(client.value(waiting)? == "1", "no session waits for the lock");
        Ok(())
    })
}

/// The text of the view cannot be read meanwhile. All else is served. MariaDB opens tables to tell of them, and waits itself.
#[test]
fn a_table_under_a_view_is_locked() -> Result<()> {
    let kind = Kind::Mysql;
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    let account = reader(&database, kind)?;
    database.run(
        "CREATE TABLE other LIKE item; INSERT INTO other VALUES (1, 'one'); CREATE TABLE held (id INT PRIMARY KEY); \
         CREATE VIEW above AS SELECT id FROM held",
    )?;
    let freshet =
        Freshet::start_unready(database.address(), &(account.url() + &database.name), &["--admission", "always"])?;
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    let read = "SELECT name FROM other WHERE id = 1";
    hits(&freshet, &mut client, read)?;
    let (mut holder, mut locker) = (database.connect()?, database.connect()?);
    holder.run("BEGIN")?;
    holder.query("SELECT * FROM item")?;
    thread::scope(|scope| {
        // It has the exclusive lock of the one table, and waits for that of the other.
        let renaming = scope.spawn(|| locker.run("RENAME TABLE held TO held_before, item TO item_before"));
        let outcome = locked(&database).and_then(|()| {
            for right in ["INSERT", "UPDATE", "DELETE"] {
                // The whole catalogue is read again.
                database.run(&format!("GRANT {right} ON {}.other TO {}@'%'", database.name, account.name))?;
                rest();
                hits(&freshet, &mut client, read)?;
            }
            Ok(())
        });
        holder.run("COMMIT")?;
        renaming.join().map_err(|_| anyhow!("a panic"))??;
        outcome
    })
}

/// Reads until a read comes from the cache.
fn hits(freshet: &Freshet, client: &mut RawClient, read: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = freshet.metrics()?;
        ensure!(client.value(read)? == "one", "another row");
        let after = freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{read}: {:?}", after.passed_since(&before));
        Ok(())
    })
}

/// As the documents say: not only the one that the URL names.
fn every_database_is_cached(kind: Kind) -> Result<()> {
    let (named, other) = (Database::shared(kind)?, Database::shared(kind)?);
    other.run(&format!("{SCHEMA}; INSERT INTO item VALUES (1, 'one')"))?;
    let freshet = Freshet::start_unready(named.address(), &named.url(), &["--admission", "always"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, other.login())?;
    hits(&freshet, &mut client, "SELECT name FROM item WHERE id = 1")
}

fn tables_that_are_unfit(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    database.run(
        "CREATE TABLE `odd``name` (id INT PRIMARY KEY) ENGINE = MyISAM; CREATE TABLE heap (a INT) ENGINE = MEMORY",
    )?;
    mends(
        &database,
        &database.url(),
        &["1 of 3 tables can be cached", "odd`name is not of InnoDB", "of another engine"],
    )
}

fn the_script_prepares_everything(kind: Kind) -> Result<()> {
    let settings = Kind::settings().with("binlog-format = MIXED");
    let database = Database::create(kind.start(&settings)?)?;
    database.run(SCHEMA)?;
    let account = Account { name: format!("{}_freshet", database.name), database: &database };
    let arguments = ["check", "--upstream", &database.url(), "--print-setup", "--role", &account.name];
    let Some(said) = run(&arguments)? else { return Ok(()) };
    ensure!(said.code == Some(0), "{said:#?}");
    for time in ["first", "second"] {
        for line in said.stdout.lines().filter(|line| !line.is_empty() && !line.starts_with("--")) {
            database.run(line).with_context(|| format!("the {time} time: {}", said.stdout))?;
        }
    }
    let plugin = if kind == Kind::Mysql { "WITH mysql_native_password BY" } else { "BY" };
    let sql = format!("ALTER USER {}@'%' IDENTIFIED {plugin} 'secret' ACCOUNT UNLOCK", account.name);
    database.run(&sql)?;
    is_fit(&account.url(), &[])
}

fn nothing_to_remove(kind: Kind) -> Result<()> {
    let database = Database::shared(kind)?;
    let Some(said) = run(&["uninstall", "--upstream", &database.url()])? else { return Ok(()) };
    ensure!(said.code == Some(0) && said.stdout.contains("there is nothing to remove"), "{said:#?}");
    Ok(())
}
