//! After `freshet uninstall` the database is as before.

use anyhow::{Result, ensure};

use super::{READ, Role, SCHEMA, Said, client, hits, run, without_freshet};
use crate::support::{Database, Freshet, PATIENCE, Version, eventually, on_both};

on_both!(everything_goes, what_is_in_use_stays, without_the_right_to);

/// All that Freshet makes or could make.
const MADE: &str = "select coalesce(string_agg(line, E'\\n' order by line), '') from (
    select 'publication ' || pubname as line from pg_publication
    union all select 'trigger ' || evtname from pg_event_trigger
    union all select 'function ' || oid::regprocedure from pg_proc where oid >= 16384
    union all select 'schema ' || nspname from pg_namespace where nspname !~ '^pg_'
    union all select 'relation ' || oid::regclass from pg_class where oid >= 16384 and relkind in ('r', 'v', 'm', 'S')
    union all select 'slot ' || slot_name from pg_replication_slots where database = current_database()) as made";

fn uninstall(database: &Database, more: &[&str]) -> Result<Said> {
    run(&[&["uninstall", "--upstream", &database.url()], more].concat())
}

fn made(database: &Database) -> Result<String> {
    database.connect()?.value(MADE)
}

/// The slot of a Freshet that has ended exists a moment longer.
fn without_slots(database: &Database) -> Result<()> {
    eventually(PATIENCE, || {
        let made = made(database)?;
        ensure!(!made.contains("slot "), "{made}");
        Ok(())
    })
}

fn everything_goes(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    let before = made(&database)?;
    {
        let freshet = Freshet::start(&database, &[])?;
        hits(&freshet, &mut client(&freshet, &database)?, READ)?;
    }
    without_slots(&database)?;
    // What a Freshet with a persistent slot leaves.
    database.run("select pg_create_logical_replication_slot('freshet_left', 'pgoutput')")?;
    let during = made(&database)?;
    ensure!(during.contains("publication freshet"), "{during}");

    let planned = uninstall(&database, &["--dry-run"])?;
    ensure!(planned.code == Some(0) && planned.stdout.contains("DROP PUBLICATION \"freshet\";"), "{planned:#?}");
    ensure!(made(&database)? == during, "a dry run changed something");
    let done = uninstall(&database, &[])?;
    ensure!(done.code == Some(0), "{done:#?}");
    ensure!(made(&database)? == before, "left:\n{}\nbefore:\n{before}\n{done:#?}", made(&database)?);
    let again = uninstall(&database, &[])?;
    ensure!(again.code == Some(0) && again.stdout.is_empty(), "{again:#?}");
    // What was planned is what was done.
    for line in done.stdout.lines() {
        ensure!(planned.stdout.contains(line), "{line} was not planned: {planned:#?}");
    }
    Ok(())
}

/// A slot that is in use stays, and so does a function that an administrator has added beside Freshet's own.
fn what_is_in_use_stays(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    database.run(
        "create schema if not exists freshet;
        create function freshet.user_lookup(name) returns text language sql as 'select null::text'",
    )?;
    let freshet = Freshet::start(&database, &[])?;
    let said = uninstall(&database, &[])?;
    ensure!(said.code == Some(1), "{said:#?}");
    ensure!(said.stdout.contains("-- left: replication slot freshet_"), "{said:#?}");
    ensure!(said.stdout.contains("-- left: schema freshet ("), "{said:#?}");
    drop(freshet);
    without_slots(&database)?;
    let said = uninstall(&database, &[])?;
    ensure!(said.code == Some(0), "{said:#?}");
    let left = made(&database)?;
    ensure!(left.contains("function freshet.user_lookup(name)"), "{left}");
    ensure!(!left.contains("publication"), "{left}");
    Ok(())
}

/// What may not be dropped is named, and the rest is left as it is.
fn without_the_right_to(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let role = Role::create(&database, "plain")?;
    database.run("create publication freshet; create schema if not exists freshet")?;
    let before = made(&database)?;
    let said = run(&["uninstall", "--upstream", &role.url()])?;
    ensure!(said.code == Some(1), "{said:#?}");
    for text in ["must be owner of publication freshet", "-- left: schema freshet (ERROR: must be owner"] {
        ensure!(said.stdout.contains(text), "nothing of {text:?} in {said:#?}");
    }
    ensure!(made(&database)? == before, "an object of the database is missing afterwards: {said:#?}");
    Ok(())
}
