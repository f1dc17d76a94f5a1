//! EXPLAIN LAST STATEMENT: what the session's last statement met.

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, connect_as, reader, rows, tags};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::mysql::support::packets::Value;
use crate::support::frames::{sync, unnamed};
use crate::support::{Pair, RawClient, Version, on_both, undisturbed};

on_both!(on_postgres);

const ASK: &str = "EXPLAIN LAST STATEMENT";
const READ: &str = "select title from film where id = 1";
/// Another statement, which nothing has cached.
const OTHER: &str = "select title from film where id = 7 and title <> 'x'";

/// The values of these rows; empty: there is no such row.
fn values<const N: usize>(told: &[Vec<String>], names: [&str; N]) -> [String; N] {
    names.map(|name| told.iter().find(|row| row[0] == name).map(|row| row[1].clone()).unwrap_or_default())
}

fn outcome(told: &[Vec<String>]) -> String {
    let [outcome] = values(told, ["outcome"]);
    outcome
}

fn asked(client: &mut RawClient) -> Result<Vec<Vec<String>>> {
    Ok(rows(&client.query(ASK)?))
}

/// By the extended protocol.
fn asked_bound(client: &mut RawClient) -> Result<Vec<Vec<String>>> {
    Ok(rows(&client.exchange(&[unnamed(ASK, &[]), sync()].concat(), 1)?))
}

/// What a statement that passes is told, whoever asks.
fn ensure_locks_rows(told: &[Vec<String>]) -> Result<()> {
    let [outcome, query, reason, detail, remedy] = values(told, ["outcome", "query", "reason", "detail", "remedy"]);
    ensure!((&*outcome, &*reason, &*detail) == ("pass", "locks_rows", "the statement locks rows"), "{told:?}");
    ensure!(query.to_lowercase().ends_with("for update") && !query.contains("= 1"), "{told:?}");
    ensure!(remedy.starts_with("Leave the locking clause out"), "{told:?}");
    Ok(())
}

fn on_postgres(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let other = reader(&pair, "last")?;
    let mut c = connect_as(&pair, &other)?;
    ensure!(asked(&mut c)? == [["outcome", "none"]], "{:?}", asked(&mut c)?);
    let mut c = pair.connect()?;
    c.query(&format!("{READ} for update"))?;
    for told in [asked(&mut c)?, asked_bound(&mut c)?, asked(&mut c)?] {
        ensure_locks_rows(&told)?;
    }
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut c, READ)?;
        c.query(READ)?;
        // The look-up of a simple query replaces the key, so the bound one comes first.
        let told = asked_bound(&mut c)?;
        let [outcome_of_hit, query, reason] = values(&told, ["outcome", "query", "reason"]);
        ensure!(outcome_of_hit == "hit" && query.contains("from film") && reason.is_empty(), "{told:?}");
        ensure!(outcome(&asked(&mut c)?) == "hit", "{:?}", asked(&mut c)?);
        // Several executions, the last of which decides.
        let both = [unnamed(READ, &[]), unnamed(&format!("{READ} for update"), &[]), sync()].concat();
        c.exchange(&both, 1)?;
        ensure_locks_rows(&asked(&mut c)?)?;
        c.exchange(&[unnamed(READ, &[]), sync()].concat(), 1)?;
        Ok(())
    })?;
    undisturbed(&pair.freshet, || {
        c.run("update film set title = title || '.' where id = 7")?;
        c.query(OTHER)?;
        let told = asked(&mut c)?;
        let [outcome, query] = values(&told, ["outcome", "query"]);
        ensure!(outcome == "fill" && query.contains("<>") && !query.contains("'x'"), "{told:?}");
        Ok(())
    })?;
    c.query("select nothing from nowhere")?;
    ensure!(outcome(&asked(&mut c)?) == "pass", "{:?}", asked(&mut c)?);
    let answer = c.query("EXPLAIN LAST STATEMENT x")?;
    ensure!(tags(&answer) == "EZ", "{answer:?}");
    c.expect_silence()
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

fn asked_mysql(client: &mut mysql::RawClient) -> Result<Vec<Vec<String>>> {
    let rows = client.query(ASK)?.rows();
    Ok(rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect())
}

fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let schema = "create table film (id int primary key, title varchar(20) not null); \
                  insert into film values (1, 'film 1'), (7, 'film 7')";
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    ensure!(asked_mysql(&mut c)? == [["outcome", "none"]], "{:?}", asked_mysql(&mut c)?);
    c.query(&format!("{READ} for update"))?;
    for told in [asked_mysql(&mut c)?, asked_mysql(&mut c)?] {
        ensure_locks_rows(&told)?;
    }
    let prepared = c.prepare("select title from film where id = ?").context("prepare")?;
    undisturbed(&pair.freshet, || {
        pair.until_hit(&mut c, READ)?;
        let told = asked_mysql(&mut c)?;
        let [outcome_of_hit, query, reason] = values(&told, ["outcome", "query", "reason"]);
        ensure!(outcome_of_hit == "hit" && query.contains("from film") && reason.is_empty(), "{told:?}");
        ensure!(asked_mysql(&mut c)? == told, "{:?}", asked_mysql(&mut c)?);
        // What is only prepared is no statement.
        c.prepare("select title from film where id > ?")?;
        ensure!(outcome(&asked_mysql(&mut c)?) == "hit", "{:?}", asked_mysql(&mut c)?);
        Ok(())
    })?;
    undisturbed(&pair.freshet, || {
        let before = pair.freshet.metrics()?.hits();
        for _ in 0..20 {
            c.execute(prepared, &[Value::Integer(7)])?;
        }
        let hits = pair.freshet.metrics()?.hits() - before;
        let told = asked_mysql(&mut c)?;
        let [outcome, query] = values(&told, ["outcome", "query"]);
        ensure!(hits > 0 && outcome == "hit" && query.contains("from film"), "{hits} {told:?}");
        Ok(())
    })?;
    undisturbed(&pair.freshet, || {
        c.run("update film set title = concat(title, '.') where id = 7")?;
        c.query(OTHER)?;
        let told = asked_mysql(&mut c)?;
        let [outcome, query] = values(&told, ["outcome", "query"]);
        ensure!(outcome == "fill" && query.contains("<>") && !query.contains("'x'"), "{told:?}");
        Ok(())
    })?;
    c.query("select nothing from nowhere")?;
    ensure!(outcome(&asked_mysql(&mut c)?) == "pass", "{:?}", asked_mysql(&mut c)?);
    c.expect_silence()
}
