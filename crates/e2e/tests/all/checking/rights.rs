//! Roles without some privileges: Freshet's behaviour, and the privileges that it asks for.

use anyhow::{Context, Result, ensure};

use super::{READ, Role, SCHEMA, client, hits, is_fit, is_unfit, mends, psql, statements, without_freshet};
use crate::documents::printed_there;
use crate::support::{Database, Freshet, PATIENCE, Version, eventually, on_both};

on_both!(a_role_without_rights, an_owner_with_create, without_replication);

/// Everything that is missing is printed; with it, Freshet caches under that role.
fn a_role_without_rights(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let owner = Role::create(&database, "owner")?;
    let freshet_role = Role::create(&database, "plain")?;
    database.run(SCHEMA)?;
    // One table of another role, and one of a superuser, in which Freshet must not become a member.
    database.run(&format!("create table seat (id int primary key); alter table seat owner to {}", owner.name))?;
    // What everybody may do unless it is revoked.
    database.run("revoke execute on function pg_control_system() from public")?;
    let url = freshet_role.url();
    let said = is_unfit(
        &url,
        &[],
        &[
            "may not replicate",
            "PUBLIC may not execute pg_control_system()",
            "GRANT CREATE ON DATABASE",
            &format!("GRANT {} TO {}", owner.name, freshet_role.name),
        ],
    )?;
    ensure!(!said.stdout.contains("GRANT postgres"), "{}", said.stdout);
    // The publication for the superuser's table comes with another statement: so twice, at most.
    psql(&database, &statements(&said.stdout)).with_context(|| said.stdout.clone())?;
    is_fit(&url, &[]).with_context(|| said.stdout.clone())?;
    let freshet = Freshet::start_unready(database.address(), &url, &[])?;
    freshet.wait_ready()?;
    let mut client = client(&freshet, &database)?;
    hits(&freshet, &mut client, READ)?;
    hits(&freshet, &mut client, "select * from seat where id = 1")
}

/// The tables' owner with CREATE on the database needs no superuser, but for the event triggers; without these Freshet
/// reads the catalogue again and again, and says so.
fn an_owner_with_create(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let owner = Role::create(&database, "owner")?;
    database.run(SCHEMA)?;
    database.run(&format!(
        "alter table film owner to {0}; alter role {0} replication; grant create on database {1} to {0}",
        owner.name, database.name
    ))?;
    let freshet = Freshet::start_unready(database.address(), &owner.url(), &[])?;
    freshet.wait_ready()?;
    let mut client = client(&freshet, &database)?;
    hits(&freshet, &mut client, READ)?;
    ensure!(freshet.log().contains("found by polling"), "not a word:\n{}", freshet.log());
    for sql in ["update film set title = 'new' where id = 1", "alter table film alter title type char(9)"] {
        database.run(sql)?;
        let expected = database.connect()?.value(READ)?;
        eventually(PATIENCE, || {
            ensure!(client.value(READ)? == expected, "not seen: {sql}");
            Ok(())
        })?;
        hits(&freshet, &mut client, READ)?;
    }
    let said = is_unfit(&owner.url(), &[], &["problem  the event triggers are missing"])?;
    ensure!(said.stdout.contains("\nnot every guarantee holds: 1 problem,"), "{}", said.stdout);
    // The text of the triggers is not among the findings, which it would drown.
    ensure!(said.stdout.lines().count() < 20, "too much to be read: {}", said.stdout);
    ensure!(said.stdout.contains("freshet check --print-triggers | psql"), "{}", said.stdout);
    mends(&database, &owner.url(), &[], &said)?;
    // They are disabled, or do not fire for replicated changes.
    for state in ["disable", "enable", "enable replica"] {
        database.run(&format!("alter event trigger freshet_sql_drop {state}"))?;
        let said = is_unfit(&owner.url(), &[], &["ALTER EVENT TRIGGER freshet_sql_drop ENABLE ALWAYS;"])?;
        mends(&database, &owner.url(), &[], &said)?;
    }
    Ok(())
}

/// Without the right to replicate nothing is cached, everything is served, and the reason stands wherever one looks.
fn without_replication(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let role = Role::create(&database, "plain")?;
    database.run(SCHEMA)?;
    database.run(&format!(
        "alter table film owner to {0}; grant create on database {1} to {0}",
        role.name, database.name
    ))?;
    let freshet = Freshet::start_unready(database.address(), &role.url(), &["--admin-users", "postgres"])?;
    let mut client = client(&freshet, &database)?;
    let statement = format!("ALTER ROLE \"{}\" REPLICATION;", role.name);
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains(&statement), "not in the log:\n{}", freshet.log());
        let status = format!("{:?}", client.query("SHOW FRESHET STATUS")?);
        ensure!(status.contains("may not replicate"), "not in the status: {status}");
        let (code, health) = freshet.health()?;
        ensure!(code == 503 && health.contains("may not replicate"), "{code} {health}");
        Ok(())
    })?;
    for title in ["first", "second"] {
        client.query(&format!("update film set title = '{title}' where id = 1"))?;
        ensure!(client.value(READ)? == title, "served, but not with {title}");
    }
    ensure!(freshet.metrics()?.hits() == 0, "hits without a change stream");
    let said = is_unfit(&role.url(), &[], &["may not replicate"])?;
    let page = printed_there("rds_replication")?.replace(" freshet", &format!(" {}", role.name));
    ensure!(said.stdout.contains(&page), "not {page}: {said:#?}");
    mends(&database, &role.url(), &[], &said)?;
    // Freshet notices by itself.
    freshet.wait_ready()?;
    hits(&freshet, &mut client, READ)
}
