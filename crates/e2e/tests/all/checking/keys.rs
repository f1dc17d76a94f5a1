//! Tables whose keys Freshet may not read: the answers are right all the same, and the report says how to make invalidation precise.

use anyhow::{Context, Result, ensure};

use super::{Role, check, client, hits, is_fit, psql, run, without_freshet};
use crate::join_keys::movies::{rating, schema};
use crate::support::{Database, Freshet, Metrics, PATIENCE, RawClient, Version, eventually, on_both};

on_both!(a_role_that_reads_no_tables, a_parent_is_read_by_itself);

/// A change of another movie's rating; returns how many results went with it.
fn invalidated_by_another(freshet: &Freshet, database: &Database, votes: u32) -> Result<u64> {
    let before = freshet.metrics()?;
    database.run(&format!("update title_rating set num_votes = {votes} where title_id = 2"))?;
    eventually(PATIENCE, || {
        let after = freshet.metrics()?;
        ensure!(after.count("freshet_commits_total") > before.count("freshet_commits_total"), "not delivered");
        Ok(after.count("freshet_invalidations_total") - before.count("freshet_invalidations_total"))
    })
}

fn reads_and_failures(metrics: &Metrics) -> (u64, u64) {
    (metrics.count("freshet_key_queries_total"), metrics.count("freshet_key_query_failures_total{class=\"no_right\"}"))
}

/// The statements of the finding about keys; none if they may be read.
fn told(upstream: &str) -> Result<String> {
    let said = check(upstream, &["--prepared"])?;
    ensure!(said.code == Some(0), "{said:#?}");
    let Some((_, rest)) = said.stdout.split_once("may not read ") else {
        ensure!(said.stdout.contains("may read the keys by which results join tables"), "{said:#?}");
        return Ok(String::new());
    };
    ensure!(said.stdout.contains("\nhint "), "{said:#?}");
    let statements: Vec<&str> = rest.lines().skip(1).take_while(|line| line.starts_with("   ")).collect();
    Ok(statements.join("\n"))
}

fn a_role_that_reads_no_tables(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(&schema(false))?;
    let role = Role::named(&database, "freshet");
    let script = run(&["check", "--upstream", &database.url(), "--print-setup", "--role", &role.name])?;
    psql(&database, &script.stdout).with_context(|| script.stdout.clone())?;
    ensure!(told(&role.url())?.is_empty(), "the script does not let the role read the keys: {}", script.stdout);
    database.run(&format!("revoke select on all tables in schema public from {}", role.name))?;

    let freshet = Freshet::start_unready(
        database.address(),
        &role.url(),
        &["--prepared", "--admin-users", "postgres", "--refresh-share", "0"],
    )?;
    freshet.wait_ready()?;
    let mut c = client(&freshet, &database)?;
    let read = rating("movie 1");
    hits(&freshet, &mut c, &read)?;
    // The next write of a role in another test may flush everything once more.
    eventually(PATIENCE, || {
        hits(&freshet, &mut c, &read)?;
        ensure!(invalidated_by_another(&freshet, &database, 100)? > 0, "what any row touches stays");
        Ok(())
    })?;
    right_answers(&database, &mut c, &read)?;
    // What was refused once is not asked for again, but by each reader and after each change of the catalogue.
    for number in 3..33 {
        c.query(&rating(&format!("movie {number}")))?;
    }
    let (reads, failures) = reads_and_failures(&freshet.metrics()?);
    ensure!(reads == 0 && failures > 0 && failures < 20, "{reads} reads, {failures} failures");

    let statements = told(&role.url())?;
    ensure!(statements.contains("GRANT SELECT ON "), "{statements}");
    psql(&database, &statements).with_context(|| statements.clone())?;
    ensure!(told(&role.url())?.is_empty(), "after {statements}");
    is_fit(&role.url(), &["--prepared"])?;
    let mut votes = 200;
    eventually(PATIENCE, || {
        hits(&freshet, &mut c, &read)?;
        votes += 1;
        let invalidated = invalidated_by_another(&freshet, &database, votes)?;
        ensure!(
            invalidated == 0,
            "{invalidated} results were invalidated, none was expected: {:?}",
            reads_and_failures(&freshet.metrics()?)
        );
        ensure!(reads_and_failures(&freshet.metrics()?).0 > 0, "no keys are read");
        Ok(())
    })?;
    right_answers(&database, &mut c, &read)
}

fn right_answers(database: &Database, c: &mut RawClient, read: &str) -> Result<()> {
    for votes in 1000..1010 {
        c.run(&format!("update title_rating set num_votes = {votes} where title_id = 1"))?;
        let (rows, expected) = (c.query(read)?, database.connect()?.query(read)?);
        ensure!(rows == expected, "{rows:?}, not {expected:?}");
    }
    Ok(())
}

/// A statement that names a parent needs the right to the parent.
fn a_parent_is_read_by_itself(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(
        "create schema \"Odd\"; create table \"Odd\".whole (id int primary key) partition by list (id);
        create table \"Odd\".part partition of \"Odd\".whole for values in (1)",
    )?;
    let role = Role::named(&database, "freshet");
    let script = run(&["check", "--upstream", &database.url(), "--print-setup", "--role", &role.name])?;
    psql(&database, &script.stdout).with_context(|| script.stdout.clone())?;
    ensure!(told(&role.url())?.is_empty(), "{}", script.stdout);
    for right in ["select on \"Odd\".whole", "usage on schema \"Odd\""] {
        database.run(&format!("revoke {right} from {}", role.name))?;
        let statements = told(&role.url())?;
        ensure!(!statements.is_empty(), "without {right} no statement is printed");
        psql(&database, &statements).with_context(|| statements.clone())?;
        ensure!(told(&role.url())?.is_empty(), "after {statements}");
    }
    Ok(())
}
