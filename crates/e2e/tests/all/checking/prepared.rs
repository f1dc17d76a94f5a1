//! A database that an administrator prepared, and a Freshet that changes nothing in it.

use anyhow::{Context, Result, ensure};

use super::{READ, Role, SCHEMA, client, hits, is_fit, is_unfit, psql, run, without_freshet};
use crate::support::{Database, Freshet, PATIENCE, Version, eventually, on_both, rest};

on_both!(the_script_prepares_everything, a_table_is_published_meanwhile, no_publication);

/// All that Freshet could have changed.
const MADE: &str = "select string_agg(line, ' ' order by line) from (
    select 'publication ' || oid || ' ' || xmin as line from pg_publication
    union all select 'table ' || prrelid || ' ' || xmin from pg_publication_rel
    union all select 'trigger ' || oid || ' ' || xmin from pg_event_trigger
    union all select 'function ' || oid || ' ' || xmin from pg_proc where oid >= 16384
    union all select 'schema ' || oid || ' ' || xmin from pg_namespace where oid >= 16384 and nspname !~ '^pg_') as made";

/// Runs the printed script; it may be run again.
fn prepare(database: &Database, role: &Role<'_>, more: &[&str]) -> Result<String> {
    let said = run(&[&["check", "--upstream", &database.url(), "--print-setup", "--role", &role.name], more].concat())?;
    ensure!(said.code == Some(0), "{said:#?}");
    for time in ["first", "second"] {
        psql(database, &said.stdout).with_context(|| format!("the {time} time: {}", said.stdout))?;
    }
    Ok(said.stdout)
}

fn serve(role: &Role<'_>) -> Result<Freshet> {
    Freshet::start_unready(role.database.address(), &role.url(), &["--prepared", "--admin-users", "postgres"])
}

fn the_script_prepares_everything(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    database.run(
        "create table \"Odd, name\" (id int primary key); create table bare (a int);
        create table part (id int primary key) partition by list (id); create table one partition of part for values in (1);
        create unlogged table draft (id int primary key)",
    )?;
    let role = Role::named(&database, "freshet");
    let script = prepare(&database, &role, &[])?;
    ensure!(
        script.contains("-- Left out, having no usable replica identity (see freshet check): public.bare"),
        "{script}"
    );
    let published = "select string_agg(prrelid::regclass::text, ' ' order by prrelid) from pg_publication_rel";
    let tables = database.connect()?.value(published)?;
    ensure!(tables == "film \"Odd, name\" one", "{tables}");
    let chosen = ["--prepared", "--tables", "public.film,public.part,public.\"Odd, name\""];
    // The name with a comma cannot be given; the others can.
    is_fit(&role.url(), &["--prepared", "--tables", "public.film,public.part"])?;
    is_unfit(&role.url(), &chosen, &["there is no such table"])?;

    let before = database.connect()?.value(MADE)?;
    let freshet = serve(&role)?;
    freshet.wait_ready()?;
    let mut client = client(&freshet, &database)?;
    hits(&freshet, &mut client, READ)?;
    hits(&freshet, &mut client, "select * from \"Odd, name\" where id = 1")?;
    database.run("update film set title = 'new' where id = 1")?;
    eventually(PATIENCE, || {
        ensure!(client.value(READ)? == "new", "the old title");
        Ok(())
    })?;
    let after = database.connect()?.value(MADE)?;
    ensure!(before == after, "Freshet changed something:\n{before}\n{after}");
    Ok(())
}

/// A table that is not published is not cached, with the reason. Once it is published, it is cached as soon as no transaction that wrote to it before
/// can still commit.
fn a_table_is_published_meanwhile(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    database.run("create table seat (id int primary key, n int); insert into seat values (1, 1)")?;
    let role = Role::named(&database, "freshet");
    prepare(&database, &role, &["--tables", "public.film"])?;
    is_unfit(&role.url(), &["--prepared"], &["not in publication freshet, so not cached: public.seat"])?;
    let freshet = serve(&role)?;
    freshet.wait_ready()?;
    let mut client = client(&freshet, &database)?;
    hits(&freshet, &mut client, READ)?;
    let read = "select n from seat where id = 1";
    eventually(PATIENCE, || {
        ensure!(client.value(read)? == "1", "the row");
        let why = format!("{:?}", client.query(&format!("EXPLAIN CACHE {read}"))?);
        ensure!(why.contains("not in publication freshet"), "{why}");
        Ok(())
    })?;
    let mut writer = database.connect()?;
    writer.run("begin; update seat set n = 2 where id = 1")?;
    let said = is_unfit(&role.url(), &["--prepared"], &["public.seat"])?;
    psql(&database, &super::statements(&said.stdout))?;
    eventually(PATIENCE, || {
        let state = format!("{:?}", client.query(&format!("EXPLAIN CACHE {read}"))?);
        ensure!(state.contains("seat (not published yet)"), "{state}");
        Ok(())
    })?;
    // Published, and noticed. The next looks at who holds locks come every few milliseconds.
    let before = freshet.metrics()?.hits();
    for _ in 0..20 {
        ensure!(client.value(read)? == "1", "an uncommitted write is seen");
        rest();
    }
    ensure!(freshet.metrics()?.hits() == before, "a hit while a writer from before the publication is open");
    writer.run("commit")?;
    hits(&freshet, &mut client, read)?;
    ensure!(client.value(read)? == "2", "the write of the transaction that was open is missing");
    Ok(())
}

/// Without the publication it is not made, but asked for; until then everything is served uncached.
fn no_publication(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    let role = Role::create(&database, "freshet")?;
    database.run(&format!("alter role {0} replication; alter table film owner to {0}", role.name))?;
    let freshet = serve(&role)?;
    let mut client = client(&freshet, &database)?;
    eventually(PATIENCE, || {
        ensure!(client.value(READ)? == "film 1", "not served");
        let status = format!("{:?}", client.query("SHOW FRESHET STATUS")?);
        ensure!(status.contains("run CREATE PUBLICATION"), "{status}");
        ensure!(freshet.log().contains("freshet check --print-setup"), "{}", freshet.log());
        Ok(())
    })?;
    ensure!(database.connect()?.value("select count(*) from pg_publication")? == "0", "a publication was made");
    let said = is_unfit(&role.url(), &["--prepared"], &["publication freshet is missing"])?;
    psql(&database, &super::statements(&said.stdout))?;
    is_fit(&role.url(), &["--prepared"])?;
    freshet.wait_ready()?;
    hits(&freshet, &mut client, READ)
}
