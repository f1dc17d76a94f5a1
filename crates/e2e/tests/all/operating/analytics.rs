//! Query analytics and advice: by SQL, as JSON, as metrics and by `freshet advise`, and all say the same.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{SCHEMA, rows};
use crate::cached::until_hit;
use crate::mysql::support::{Database as MysqlDatabase, Kind, Pair as MysqlPair};
use crate::support::{
    Database, Metrics, PATIENCE, Pair, Version, ensure_hits, eventually, get, on_both, program, undisturbed,
};

on_both!(of_postgres);

type Rows = Vec<Vec<String>>;

/// Little memory: some fifty statements fill the table of digests.
const OPTIONS: [&str; 2] = ["--memory", "8MiB"];
const OTHERS: u32 = 300;

const READ: &str = "select title from film where id = 1";

fn json(http: SocketAddr, path: &str) -> Result<Vec<Value>> {
    let (status, body) = get(http, path)?;
    ensure!(status == 200, "{path}: {status} {body}");
    serde_json::from_str(&body).with_context(|| body)
}

/// What is listed of the statement with this piece of text.
fn listed<'a>(rows: &'a Rows, piece: &str) -> Result<&'a [String]> {
    let is_it = |row: &&Vec<String>| row[1].to_lowercase().contains(piece);
    Ok(rows.iter().find(is_it).with_context(|| format!("no {piece} in {rows:?}"))?)
}

/// `queries`, `advice`: the answers to SHOW. Twenty hits or more, two statements that slept for 50 ms each and passed.
fn agree(queries: &Rows, advice: &Rows, http: SocketAddr) -> Result<()> {
    let number = |row: &[String], at: usize| row[at].parse::<f64>().with_context(|| format!("{row:?}"));
    let film = listed(queries, "from film where id")?;
    let (hits, fills) = (number(film, 2)?, number(film, 3)?);
    ensure!(hits >= 20.0 && fills >= 1.0 && number(film, 5)? > 0.5, "{film:?}");
    // Each answer has one row.
    ensure!(film[16] == film[2] && number(film, 17)? >= fills, "rows: {film:?}");
    ensure!(number(film, 18)? >= 0.0 && (0.0..=1.0).contains(&number(film, 19)?), "{film:?}");
    ensure!(film[20].contains("film "), "the table that invalidated: {film:?}");
    ensure!(number(film, 9)? > 0.0 && number(film, 10)? >= number(film, 9)?, "latency of hits: {film:?}");
    let asleep = listed(queries, "sleep")?;
    // What slept for 50 ms is in the bucket that begins at 33 ms.
    ensure!(asleep[4] == "2" && number(asleep, 11)? >= 32_768.0 && number(asleep, 13)? >= 0.1, "{asleep:?}");
    ensure!(asleep[15] == "function", "{asleep:?}");
    let has_digest = |row: &&Vec<String>| !row[0].is_empty();
    let weights = queries.iter().filter(has_digest).map(|row| Ok(number(row, 13)? + number(row, 14)?.max(0.0)));
    let weights = weights.collect::<Result<Vec<f64>>>()?;
    ensure!(weights.is_sorted_by(|a, b| *a >= b - 1e-5), "the heaviest are not first: {queries:?}");

    let advised = listed(advice, "sleep")?;
    ensure!(advised[2] == "2" && number(advised, 3)? >= 0.1, "{advised:?}");
    ensure!(advised[5].contains("sleep") && advised[6].contains("parameter"), "{advised:?}");
    ensure!(!advice.iter().any(|row| row[1].contains("from film")), "advice for what is cached: {advice:?}");

    let all = json(http, "/api/queries")?;
    let same = all.iter().find(|query| query["digest"] == film[0].as_str()).with_context(|| format!("{all:?}"))?;
    let is_alike = same["hit_rows"].as_f64() == Some(hits) && same["break_even_hit_ratio"].is_f64();
    ensure!(is_alike && same["invalidated_by"].as_object().is_some_and(|tables| tables.len() == 1), "{same}");
    ensure!(same["hits"].as_f64() == Some(hits) && same["hit_latency"]["count"].as_f64() == Some(hits), "{same}");
    let slept = all.iter().find(|query| query["digest"] == asleep[0].as_str()).with_context(|| format!("{all:?}"))?;
    ensure!(slept["passed_by_reason"]["function"] == 2, "{slept}");
    let advice = json(http, "/api/advice")?;
    ensure!(advice.iter().any(|one| one["remedy"] == advised[6].as_str()), "{advice:?}");

    let metrics = Metrics::read(http)?;
    ensure!(metrics.count("freshet_hit_duration_seconds_count") == metrics.hits(), "not each hit is in the histogram");
    ensure!(metrics.count("freshet_hit_duration_seconds_bucket{le=\"+Inf\"}") == metrics.hits(), "+Inf");
    ensure!(metrics.value("freshet_database_duration_seconds_sum") >= 0.1, "the database's time");
    ensure!(
        metrics.count("freshet_database_duration_seconds_bucket{le=\"0.032768\"}") + 2
            <= metrics.count("freshet_database_duration_seconds_count"),
        "what slept is in too low a bucket"
    );
    Ok(())
}

/// Many statements that are executed twice each, as the second execution of a digest is what displaces others.
fn others() -> impl Iterator<Item = String> {
    (0..OTHERS).flat_map(|name| (0..2).map(move |number| format!("select {number} as c{name}")))
}

/// The heaviest statement is listed though many others came, and the last row has all that is not.
fn leave_out(queries: &Rows, http: SocketAddr) -> Result<()> {
    let asleep = listed(queries, "sleep")?;
    ensure!(asleep[4] == "2", "figures of the heaviest statement were lost: {asleep:?}");
    let (last, listed) = queries.split_last().context("no rows")?;
    ensure!(last[0].is_empty() && last[1].contains("more statements"), "{last:?}");
    ensure!(listed.iter().all(|row| !row[0].is_empty()) && listed.len() < OTHERS as usize, "{} rows", listed.len());
    let executed: u64 = last[2..5].iter().map(|cell| cell.parse::<u64>()).sum::<Result<u64, _>>()?;
    ensure!(executed > 0 && last[13].parse::<f64>()? > 0.0, "{last:?}");
    let sum = |column: usize| queries.iter().map(|row| row[column].parse::<u64>()).sum::<Result<u64, _>>();
    let metrics = Metrics::read(http)?;
    let all = [sum(2)?, sum(3)?, sum(4)?];
    let expected = [metrics.hits(), metrics.count("freshet_fills_total"), metrics.passed_in_all()];
    ensure!(all == expected, "{all:?} are listed of {expected:?}");
    let json = json(http, "/api/queries")?;
    let same = json.last().context("nothing in /api/queries")?;
    ensure!(same["digest"] == "" && same["query"] == last[1].as_str(), "{same}");
    let count = |name: &str| same[name].as_u64().unwrap_or_default();
    ensure!(count("hits") + count("fills") + count("passed") == executed, "{same} is not {last:?}");
    Ok(())
}

fn advise(url: &str) -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let output = Command::new(program).args(["advise", "--limit", "3", "--at", url]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let is_whole = said.to_lowercase().contains("sleep") && said.contains("remedy") && said.contains("passed 2 times");
    ensure!(output.status.success() && is_whole, "{output:?}");
    Ok(())
}

fn of_postgres(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &OPTIONS)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut c, READ)?;
        ensure_hits(&pair.freshet, 20, || (0..20).try_for_each(|_| c.query(READ).map(drop)))
    })?;
    (0..2).try_for_each(|_| c.query("select pg_sleep(0.05), clock_timestamp()").map(drop))?;
    eventually(PATIENCE, || {
        // A change of the catalogue may have taken the result away before.
        c.query(READ)?;
        pair.database.run("update film set title = title || '.' where id = 1")?;
        let queries = rows(&c.query("SHOW FRESHET QUERIES")?);
        ensure!(listed(&queries, "from film where id")?[7] != "0", "not invalidated: {queries:?}");
        Ok(())
    })?;
    agree(&rows(&c.query("SHOW FRESHET QUERIES")?), &rows(&c.query("SHOW ADVICE")?), pair.freshet.http)?;
    others().try_for_each(|sql| c.query(&sql).map(drop))?;
    leave_out(&rows(&c.query("SHOW FRESHET QUERIES")?), pair.freshet.http)?;
    let login = pair.login();
    let password = login.password.unwrap_or_default();
    advise(&format!("postgres://{}:{password}@{}/{}", login.user, pair.address(), login.database))
}

fn of_mysql(kind: Kind) -> Result<()> {
    let database = MysqlDatabase::shared(kind)?;
    let schema = "CREATE TABLE film (id INT PRIMARY KEY, title TEXT); INSERT INTO film VALUES (1, 'film 1')";
    let pair = MysqlPair::over(database, schema, &OPTIONS)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        pair.until_hit(&mut c, READ)?;
        ensure_hits(&pair.freshet, 20, || (0..20).try_for_each(|_| c.query(READ).map(drop)))
    })?;
    (0..2).try_for_each(|_| c.query("SELECT SLEEP(0.05), NOW()").map(drop))?;
    let mut ask = |sql: &str| -> Result<Rows> {
        let cells = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
        Ok(c.query(sql)?.rows().into_iter().map(cells).collect())
    };
    eventually(PATIENCE, || {
        ask(READ)?;
        ask("UPDATE film SET title = CONCAT(title, '.') WHERE id = 1")?;
        let queries = ask("SHOW FRESHET QUERIES")?;
        ensure!(listed(&queries, "from film where id")?[7] != "0", "not invalidated: {queries:?}");
        Ok(())
    })?;
    agree(&ask("SHOW FRESHET QUERIES")?, &ask("SHOW ADVICE")?, pair.freshet.http)?;
    others().try_for_each(|sql| ask(&sql).map(drop))?;
    leave_out(&ask("SHOW FRESHET QUERIES")?, pair.freshet.http)?;
    let login = pair.login();
    advise(&format!("mysql://{}:{}@{}/", login.user, login.password, pair.address()))
}

crate::mysql::support::on_both!(of_mysql);
