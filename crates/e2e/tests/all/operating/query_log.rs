//! The slow query log: pt-query-digest reads it, it is rotated, and it can be restricted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use super::configuration::{File, until_logged};
use crate::cached::until_hit;
use crate::clients::left_out;
use crate::mysql::support::{Database as MysqlDatabase, Kind, Pair as MysqlPair};
use crate::support::{Database, PATIENCE, Pair, Version, ensure_hits, eventually, on_both_at_length, undisturbed};

on_both_at_length!(of_postgres);

const READ: &str = "select title from film where id = 1";

/// A file of its own for a test; it is removed at the end.
struct LogFile(PathBuf);

impl LogFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("freshet-query-log-{}-{name}", std::process::id())))
    }

    fn option(&self) -> [String; 2] {
        ["--query-log".to_owned(), self.0.display().to_string()]
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn count(text: &str, piece: &str) -> usize {
    text.matches(piece).count()
}

/// What pt-query-digest makes of the log.
fn digest(log: &Path) -> Result<String> {
    let output = Command::new("pt-query-digest").args(["--limit=100%", "--no-version-check"]).arg(log).output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && errors.is_empty(), "{printed}{errors}");
    Ok(printed)
}

/// At least ten hits, and one statement that passed, are in the log and in its digest.
fn is_read(log: &LogFile, user: &str) -> Result<()> {
    let text = eventually(PATIENCE, || {
        let text = log.text();
        let is_whole = count(&text, "# QC_Hit: Yes\n") >= 10 && text.contains("sleep(") && text.ends_with(";\n");
        ensure!(is_whole, "not there yet: {text}");
        Ok(text)
    })?;
    ensure!(text.contains(&format!("# User@Host: {user}[{user}] @  [127.0.0.1]")), "{text}");
    ensure!(!text.to_lowercase().contains("sleep(0"), "a literal is in the log: {text}");
    let no_digest = Command::new("pt-query-digest").arg("--version").stdout(Stdio::null()).status().is_err();
    if no_digest {
        return left_out("percona-toolkit");
    }
    let printed = digest(&log.0)?;
    let overall = printed.lines().find(|line| line.starts_with("# Overall:")).context("no summary")?;
    let events = count(&text, "# Query_time:");
    ensure!(overall.contains(&format!(" {events} total,")), "not {events}: {overall}");
    let of_film = printed.split("# Query ").find(|part| part.to_lowercase().contains("from film where id"));
    let of_film = of_film.with_context(|| printed.clone())?;
    let has_hits = of_film.lines().any(|line| line.starts_with("# QC Hit") && line.contains("% yes"));
    ensure!(has_hits, "no QC_Hit: {of_film}");
    Ok(())
}

fn of_postgres(version: Version) -> Result<()> {
    let log = LogFile::new(&format!("{version:?}"));
    let [option, path] = log.option();
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &[&option, &path])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut client, READ)?;
        ensure_hits(&pair.freshet, 10, || (0..10).try_for_each(|_| client.query(READ).map(drop)))
    })?;
    client.query("select pg_sleep(0.03)")?;
    is_read(&log, pair.login().user)?;
    // Rotation: the file is renamed, and the next statements are in a new one.
    let old = LogFile::new(&format!("{version:?}-old"));
    fs::rename(&log.0, &old.0)?;
    client.query("RELOAD")?;
    eventually(PATIENCE, || {
        client.query(READ)?;
        ensure!(log.text().contains("# QC_Hit: Yes\n"), "no new file");
        Ok(())
    })
}

/// What takes less than the threshold is not logged, and what is sampled says how.
fn restricted(version: Version) -> Result<()> {
    let log = LogFile::new("restricted");
    let [option, path] = log.option();
    let more = ["--query-log-min-duration", "50ms", "--query-log-sample", "0.5"];
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &[&[option.as_str(), &path][..], &more].concat())?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    (0..4).try_for_each(|_| client.query("select pg_sleep(0.06)").map(drop))?;
    eventually(PATIENCE, || {
        let text = log.text();
        ensure!(count(&text, "pg_sleep") == 2 && text.ends_with(";\n"), "not one of two: {text}");
        Ok(())
    })?;
    let text = log.text();
    ensure!(
        !text.contains("QC_Hit: Yes") && count(&text, "Log_slow_rate_limit: 2") == count(&text, "QC_Hit"),
        "{text}"
    );
    Ok(())
}

#[test]
fn it_can_be_restricted() -> Result<()> {
    restricted(Version::V18)
}

/// What a rule wants in the log is there, and nothing else: neither the threshold nor the sample matters.
fn has_what_a_rule_wants(log: &LogFile) -> Result<()> {
    let text = eventually(PATIENCE, || {
        let text = log.text();
        let is_whole = text.contains("QC_Hit: Yes") && text.contains("QC_Hit: No") && text.ends_with(";\n");
        ensure!(is_whole, "not there yet: {text}");
        Ok(text)
    })?;
    let is_all = count(&text, "# Query_time:") == count(&text, "film where id =");
    ensure!(is_all && !text.contains("Log_slow_rate_limit"), "{text}");
    Ok(())
}

const RULE: &str = "[[rule]]\nquery = \"^select title from film\"\nlog = true\n";
const NOTHING_BY_ITSELF: [&str; 4] = ["--query-log-min-duration", "1h", "--query-log-sample", "0.001"];

#[test]
fn rules_log_on_postgres() -> Result<()> {
    let (log, file) = (LogFile::new("by-rule"), File::new("log.toml", RULE)?);
    let [option, path] = log.option();
    let options = [&[option.as_str(), &path, "--config", file.path()][..], &NOTHING_BY_ITSELF].concat();
    let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &options)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select count(*) from film")?;
    until_hit(&pair, &mut client, READ)?;
    has_what_a_rule_wants(&log)?;
    // Without a file for it, the operator is warned.
    let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &["--config", file.path()])?;
    until_logged(&pair.freshet, "a rule has log = true, but there is no query log (--query-log)")
}

mod rules_log {
    use super::on_mysql_family;

    crate::mysql::support::on_both!(on_mysql_family);
}

fn on_mysql_family(kind: Kind) -> Result<()> {
    let name = format!("by-rule-{kind:?}");
    let (log, file) = (LogFile::new(&name), File::new(&format!("log-{kind:?}.toml"), RULE)?);
    let [option, path] = log.option();
    let options = [&[option.as_str(), &path, "--config", file.path()][..], &NOTHING_BY_ITSELF].concat();
    let schema = "CREATE TABLE film (id INT PRIMARY KEY, title TEXT); INSERT INTO film VALUES (1, 'film 1')";
    let pair = MysqlPair::over(MysqlDatabase::shared(kind)?, schema, &options)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.until_hit(&mut client, "select count(*) from film")?;
    pair.until_hit(&mut client, READ)?;
    has_what_a_rule_wants(&log)
}

#[test]
fn of_mariadb() -> Result<()> {
    let log = LogFile::new("mariadb");
    let [option, path] = log.option();
    let schema = "CREATE TABLE film (id INT PRIMARY KEY, title TEXT); INSERT INTO film VALUES (1, 'film 1')";
    let pair = MysqlPair::over(MysqlDatabase::shared(Kind::Mariadb)?, schema, &[&option, &path])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    undisturbed(&pair.freshet, || {
        pair.until_hit(&mut client, READ)?;
        ensure_hits(&pair.freshet, 10, || (0..10).try_for_each(|_| client.query(READ).map(drop)))
    })?;
    client.query("select sleep(0.03)")?;
    is_read(&log, pair.login().user)?;
    let text = log.text();
    ensure!(text.contains("  Id: ") && !text.contains("  Id: 0\n"), "no number of the session: {text}");
    // The schema is the one in force.
    client.query("USE information_schema")?;
    client.query("select sleep(0.02), 'elsewhere'")?;
    eventually(PATIENCE, || {
        let text = log.text();
        let last = text.rsplit("# User@Host").next().unwrap_or_default();
        ensure!(last.starts_with(": ") && last.contains("# Schema: information_schema "), "{text}");
        Ok(())
    })
}
