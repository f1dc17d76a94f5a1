//! PostgreSQL's own programs, and sysbench.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::{SCHEMA, Way, ensure_same, left_out, lines, output_of, same};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length};

on_both_at_length!(psql, pgbench, sysbench, dump_and_restore);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/clients/tools")
}

// --- psql ------------------------------------------------------------------------------------------------------

/// Its script is typed in, as it were: standard input, on which COPY's data is as well.
fn psql_session(way: Way<'_>, script: &str, arguments: &[&str], status: i32) -> Result<String> {
    let mut psql = way.command(&way.program("psql"));
    psql.args(["-X", "-a"]).args(arguments).arg("-f").arg(folder().join(script));
    let printed = output_of(&psql, status)?;
    // Ports and process ids; and \d shows the publication that Freshet adds tables to.
    let words = ["at port \"", "Backend PID", "Server Port", "with PID", "Publications:", "    \"freshet"];
    let differs = |line: &str| words.iter().any(|word| line.contains(word));
    Ok(lines(&printed, |line| !differs(line)))
}

fn psql(version: Version) -> Result<()> {
    // On a server of its own: \du lists the roles that other tests make.
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])?;
    // The session ends with a lost connection, which psql answers with status 2.
    same(&pair, SCHEMA, 4, |way| psql_session(way, "session.sql", &[], 2))?;
    if version == Version::V18 {
        same(&pair, SCHEMA, 3, |way| psql_session(way, "new.sql", &[], 0))?;
    }
    // A script that stops at its first error, in one transaction.
    same(&pair, SCHEMA, 0, |way| psql_session(way, "session.sql", &["-1", "-v", "ON_ERROR_STOP=1"], 3))
}

// --- pgbench ---------------------------------------------------------------------------------------------------

/// Reads of few rows, which soon come from the cache.
const SELECTS: &str = "
\\set aid random(1, 20)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
";

/// A write is seen by the same session's next read; if it is not, the client is aborted.
const OWN_WRITES: &str = "
\\set aid 1000 + :client_id
\\set balance random(1, 1000000)
UPDATE pgbench_accounts SET abalance = :balance WHERE aid = :aid;
SELECT abalance AS got FROM pgbench_accounts WHERE aid = :aid \\gset
\\if :got != :balance
SELECT 1 / 0;
\\endif
SELECT abalance AS got FROM pgbench_accounts WHERE aid = :aid \\gset
\\if :got != :balance
SELECT 1 / 0;
\\endif
UPDATE pgbench_accounts SET abalance = 0 WHERE aid = :aid;
";

const PIPELINE: &str = "
\\set aid random(1, 20)
\\startpipeline
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid + 1;
UPDATE pgbench_accounts SET abalance = abalance WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
\\endpipeline
\\startpipeline
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 2000 + :client_id;
UPDATE pgbench_accounts SET abalance = abalance - 1 WHERE aid = 2000 + :client_id;
END;
\\endpipeline
";

fn pgbench(version: Version) -> Result<()> {
    let pair = Pair::new(version, "")?;
    let way = Way { pair: &pair, through: true };
    let mut initialise = way.command(&way.program("pgbench"));
    output_of(initialise.args(["--initialize", "--quiet", "--foreign-keys"]), 0)?;
    let protocols = ["simple", "extended", "prepared"];
    for protocol in protocols {
        pgbench_run(way, protocol, 100, &["--builtin=tpcb-like"])?;
    }
    // All sums are the same, whoever counts.
    let sums = "select sum(abalance) = (select sum(bbalance) from pgbench_branches), sum(abalance) =
        (select sum(tbalance) from pgbench_tellers), sum(abalance) = (select sum(delta) from pgbench_history)
        from pgbench_accounts";
    for _ in 0..5 {
        let mut psql = way.command(&way.program("psql"));
        let printed = output_of(psql.args(["-X", "-A", "-t", "-c", sums]), 0)?;
        ensure!(printed.trim() == "t|t|t", "the sums differ: {printed}");
    }
    for protocol in protocols {
        pgbench_run(way, protocol, 200, &["--builtin=simple-update"])?;
        pgbench_run(way, protocol, 500, &["--builtin=select-only"])?;
        pgbench_run(way, protocol, 10, &["--builtin=select-only", "--connect"])?;
        pgbench_script(way, protocol, 100, OWN_WRITES)?;
        if protocol != "simple" {
            pgbench_script(way, protocol, 100, PIPELINE)?;
        }
        let before = pair.freshet.metrics()?;
        pgbench_script(way, protocol, 1000, SELECTS)?;
        let after = pair.freshet.metrics()?;
        let hits = after.hits() - before.hits();
        let enough = hits > 500 || !pair.freshet.is_there();
        ensure!(enough, "{protocol}: {hits} hits; {:?}", after.passed_since(&before));
    }
    Ok(())
}

/// A run of four clients, all of whose transactions have to succeed.
fn pgbench_run(way: Way<'_>, protocol: &str, transactions: u32, what: &[&str]) -> Result<()> {
    let mut pgbench = way.command(&way.program("pgbench"));
    pgbench.args(["--no-vacuum", "--client=4", "--jobs=2", "--protocol", protocol]);
    let printed = output_of(pgbench.arg(format!("--transactions={transactions}")).args(what), 0)?;
    let all = format!("actually processed: {0}/{0}", transactions * 4);
    let good = printed.contains(&all) && printed.contains("failed transactions: 0 ");
    ensure!(good, "{protocol} {what:?}: {printed}");
    Ok(())
}

fn pgbench_script(way: Way<'_>, protocol: &str, transactions: u32, script: &str) -> Result<()> {
    let file = TemporaryPath::new(way.pair, "pgbench")?;
    std::fs::write(&file.0, script)?;
    pgbench_run(way, protocol, transactions, &[&format!("--file={}", file.0.display())])
}

/// A path of its own for a file or folder, which is removed at the end.
struct TemporaryPath(PathBuf);

impl TemporaryPath {
    fn new(pair: &Pair, what: &str) -> Result<Self> {
        let name = format!("freshet-{what}-{}-{}", pair.database.server.port(), pair.database.name);
        let path = std::env::temp_dir().join(name);
        ensure!(!path.exists(), "{} is there already", path.display());
        Ok(Self(path))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}

// --- sysbench --------------------------------------------------------------------------------------------------

fn sysbench(version: Version) -> Result<()> {
    if Command::new("sysbench").arg("--version").output().is_err() {
        return left_out("sysbench");
    }
    let pair = Pair::new(version, "")?;
    let mut reader = pair.connect()?;
    for prepared in ["auto", "disable"] {
        let run = |script: &str, more: &[&str]| sysbench_run(&pair, prepared, script, more);
        run("oltp_point_select", &["prepare"])?;
        // The tables are new, and on a busy machine the catalogue takes as long as all that follows.
        until_hit(&pair, &mut reader, "SELECT c FROM sbtest1 WHERE id = 1")?;
        let before = pair.freshet.metrics()?;
        run("oltp_point_select", &["--threads=4", "--events=4000", "run"])?;
        run("oltp_read_only", &["--threads=4", "--skip_trx=on", "--events=100", "run"])?;
        let after = pair.freshet.metrics()?;
        let hits = after.hits() - before.hits();
        let enough = hits > 1000 || !pair.freshet.is_there();
        ensure!(enough, "{prepared}: {hits} hits; {:?}", after.passed_since(&before));
        run("oltp_read_only", &["--events=30", "run"])?;
        run("oltp_read_write", &["--threads=4", "--events=100", "run"])?;
        run("oltp_read_write", &["--skip_trx=on", "--events=50", "run"])?;
        run("oltp_point_select", &["cleanup"])?;
    }
    Ok(())
}

fn sysbench_run(pair: &Pair, prepared: &str, script: &str, more: &[&str]) -> Result<()> {
    let address = pair.address();
    let mut sysbench = Way { pair, through: true }.command(Path::new("sysbench"));
    sysbench.arg(script).args(["--db-driver=pgsql", "--tables=2", "--table-size=100", "--rand-seed=1", "--time=0"]);
    sysbench.arg(format!("--pgsql-host={}", address.ip())).arg(format!("--pgsql-port={}", address.port()));
    sysbench.arg(format!("--pgsql-user={}", pair.login().user));
    sysbench.arg(format!("--pgsql-db={}", pair.database.name)).arg(format!("--db-ps-mode={prepared}"));
    let printed = output_of(sysbench.args(more), 0)?;
    let lost = more.last() == Some(&"run") && !printed.contains("reconnects:                          0 ");
    ensure!(!lost && !printed.contains("FATAL"), "{script} {more:?}: {printed}");
    Ok(())
}

// --- pg_dump, pg_restore ---------------------------------------------------------------------------------------

fn dump_and_restore(version: Version) -> Result<()> {
    let schema = std::fs::read_to_string(folder().join("rich.sql"))?;
    let pair = Pair::new(version, &schema)?;
    let mut reader = pair.connect()?;
    let count = "select count(*) from film";
    ensure!(until_hit(&pair, &mut reader, count)? == "200", "not the film that was made");
    let (direct, through) = (Way { pair: &pair, through: false }, Way { pair: &pair, through: true });
    for form in [&[][..], &["--schema-only"], &["--data-only", "--column-inserts", "--rows-per-insert=50"]] {
        ensure_same(&dump(direct, "", form)?, &dump(through, "", form)?).with_context(|| format!("{form:?}"))?;
    }
    let plain = dump(direct, "", &["--no-publications"])?;
    let file = TemporaryPath::new(&pair, "dump")?;
    let path = file.0.to_str().context("a path in UTF-8")?;
    // Two workers share a snapshot: each has a connection of its own.
    for form in [&["--format=directory", "--jobs=2"][..], &["--format=custom"]] {
        let _ = std::fs::remove_dir_all(&file.0);
        dump(through, "", &[form, &["--file", path]].concat())?;
        // Into another database, and over the one whose reads are cached.
        pair.database.run("create database restored")?;
        // Without Freshet's publication: while it is gone, Freshet makes it anew, and the restore finds it there.
        let options = ["--jobs=2", "--no-publications", path];
        let restored = restore(through, &[&["--dbname=restored"], &options[..]].concat())
            .and_then(|()| dump(direct, "restored", &["--no-publications"]));
        pair.database.run("drop database restored")?;
        ensure_same(&plain, &restored?).context("restored in another database")?;
        pair.database.run("delete from role; delete from film where id > 100")?;
        restore(through, &[&["--dbname", &pair.database.name, "--clean", "--if-exists"], &options[..]].concat())?;
        ensure_same(&plain, &dump(direct, "", &["--no-publications"])?).context("restored over itself")?;
        eventually(PATIENCE, || {
            let seen = reader.value(count)?;
            ensure!(seen == "200", "{seen} films after the restore");
            Ok(())
        })?;
        ensure!(until_hit(&pair, &mut reader, count)? == "200", "stale after the restore");
    }
    Ok(())
}

/// What pg_dump prints, without the key that it draws anew each time; an empty name is the pair's database.
fn dump(way: Way<'_>, database: &str, options: &[&str]) -> Result<String> {
    let mut pg_dump = way.command(&way.program("pg_dump"));
    if !database.is_empty() {
        pg_dump.env("PGDATABASE", database);
    }
    let printed = output_of(pg_dump.args(options), 0)?;
    let drawn = |line: &str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
    Ok(lines(&printed, |line| !drawn(line)))
}

fn restore(way: Way<'_>, options: &[&str]) -> Result<()> {
    let mut pg_restore = way.command(&way.program("pg_restore"));
    output_of(pg_restore.arg("--exit-on-error").args(options), 0).map(drop)
}

/// Reads until a read comes from the cache; returns its value.
fn until_hit(pair: &Pair, reader: &mut RawClient, sql: &str) -> Result<String> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let value = reader.value(sql)?;
        let after = pair.freshet.metrics()?;
        let hit = after.hits() > before.hits() || !pair.freshet.is_there();
        ensure!(hit, "{sql} does not hit: {:?}", after.passed_since(&before));
        Ok(value)
    })
}
