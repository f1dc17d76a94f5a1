//! `freshet check` finds faults of the server, its tables or its publication, and the printed statements correct them.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::{SCHEMA, check, is_fit, is_unfit, mends, psql, statements, without_freshet};
use crate::documents::printed_there;
use crate::support::{Database, Version, on_both};

on_both!(
    a_fit_database,
    a_server_without_logical_decoding,
    tables_without_identity,
    unfit_publications,
    chosen_tables,
    open_transactions,
    what_is_only_worth_knowing,
    a_standby,
    a_server_that_cannot_be_reached,
);

fn a_fit_database(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    is_fit(&database.url(), &[])?;
    database.run(SCHEMA)?;
    is_fit(&database.url(), &[])
}

fn a_server_without_logical_decoding(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let settings = Settings { wal_level: "replica".into(), ..Settings::default() };
    let settings = settings.with("max_replication_slots = 1").with("max_wal_senders = 0");
    let database = Database::create(version.start(&settings)?)?;
    database.run("select pg_create_physical_replication_slot('theirs')")?;
    let wrong = ["wal_level is replica", "all 1 in use", "no walsender is free"];
    let said = is_unfit(&database.url(), &[], &wrong)?;
    let page = printed_there("wal_level")?;
    ensure!(said.stdout.contains(&page), "not {page}: {said:#?}");
    let sql = statements(&said.stdout);
    ensure!(sql.matches("-- then restart the server").count() == 3, "{sql}");
    psql(&database, &sql)?;
    // Not before the restart.
    is_unfit(&database.url(), &[], &wrong)?;
    database.server.restart()?;
    is_fit(&database.url(), &[])
}

fn tables_without_identity(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(
        "create table bare (a int, b text); insert into bare values (1, 'one'), (1, 'one');
        create table keyed (a int not null, b int, c int not null);
        create unique index loose on keyed (a, b); create unique index half on keyed (a) where b > 0;
        create unique index \"The Key\" on keyed (c, a);
        create table silent (id int primary key); alter table silent replica identity nothing;
        create table orphan (id int primary key, other int not null);
        create unique index gone on orphan (other); alter table orphan replica identity using index gone;
        drop index gone;
        create table \"De ferred\" (\"I d\" int, n int not null,
            primary key (\"I d\", n) deferrable initially deferred);
        create schema \"S\";
        create table \"S\".part (day date, n int) partition by range (day);
        create table \"S\".old partition of \"S\".part for values from (minvalue) to ('2026-01-01');
        create table \"S\".new partition of \"S\".part for values from ('2026-01-01') to (maxvalue);
        insert into \"S\".part values ('2025-05-05', 1), ('2026-06-06', 2)",
    )?;
    let bare = "bare has no usable replica identity, so it is not cached";
    let said = is_unfit(&database.url(), &[], &[bare, "USING INDEX \"The Key\""])?;
    ensure!(said.stdout.matches("has no usable replica identity").count() == 7, "{}", said.stdout);
    mends(&database, &database.url(), &[], &said)?;
    let mut client = database.connect()?;
    let full = client.value("select count(*) from pg_class where relreplident = 'f'")?;
    ensure!(full == "0", "{full} tables log their whole rows");
    ensure!(client.value("select count(*) from bare where a = 1")? == "2", "rows are lost");
    Ok(())
}

fn unfit_publications(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    database.run("create schema s; create table s.seat (id int primary key, n int); create table bare (a int)")?;
    let url = database.url();
    let chosen = ["--tables", "public.film,s.seat"];
    for (publication, what) in [
        ("for all tables", "FOR ALL TABLES"),
        ("for table film with (publish = 'insert, update')", "does not send every change"),
        ("for table film with (publish_via_partition_root = true)", "does not send every change"),
        ("for table film where (id > 3)", "row filters"),
        ("for table film (id), s.seat", "column lists"),
        ("for tables in schema s", "schema s"),
        ("for table film, bare", "bare has no usable replica identity and is published, so its updates fail"),
    ] {
        for more in [&chosen[..], &["--prepared", "--tables", "public.film,s.seat"]] {
            psql(&database, &format!("create publication freshet {publication};"))?;
            let said = is_unfit(&url, more, &[what])?;
            mends(&database, &url, more, &said)?;
            database.run("drop publication if exists freshet; drop table bare; create table bare (a int)")?;
        }
    }
    Ok(())
}

fn chosen_tables(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    database.run(
        "create table bare (a int);
        create table part (id int primary key) partition by list (id); create table one partition of part for values in (1)",
    )?;
    is_unfit(&database.url(), &[], &["public.bare has no"])?;
    is_fit(&database.url(), &["--tables", "public.film,public.part"])?;
    is_unfit(&database.url(), &["--tables", "public.bare"], &["public.bare has no"])?;
    is_unfit(
        &database.url(),
        &["--tables", "public.film,public.nothing"],
        &["public.nothing: there is no such table"],
    )?;
    Ok(())
}

fn open_transactions(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let settings = Settings::default().with("max_prepared_transactions = 2");
    let database = Database::create(version.start(&settings)?)?;
    database.run(SCHEMA)?;
    let mut writer = database.connect()?;
    writer.run("set application_name = 'the slow one'; begin; update film set title = 'x' where id = 1")?;
    let pid = writer.value("select pg_backend_pid()")?;
    database.run("begin; update film set title = 'y' where id = 2; prepare transaction 'half done'")?;
    let said = check(&database.url(), &[])?;
    ensure!(said.code == Some(0), "it is no more than a warning: {said:#?}");
    let writing = format!("warning  an open write transaction (process {pid}: postgres (the slow one) in");
    for text in [writing.as_str(), "warning  prepared transaction half done", "ROLLBACK PREPARED 'half done';"] {
        ensure!(said.stdout.contains(text), "nothing of {text:?} in {}", said.stdout);
    }
    writer.run("commit")?;
    database.run("commit prepared 'half done'")?;
    let said = check(&database.url(), &[])?;
    ensure!(!said.stdout.contains("transaction"), "{}", said.stdout);
    Ok(())
}

fn what_is_only_worth_knowing(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let settings = Settings::default()
        .with("wal_sender_timeout = 0")
        .with("logical_decoding_work_mem = 1MB")
        .with("synchronous_commit = off");
    let database = Database::create(version.start(&settings)?)?;
    database.run(
        "create unlogged table draft (id int primary key);
        create table secret (id int primary key); alter table secret enable row level security;
        create table busy (id int primary key, n int); insert into busy values (1, 0);
        do $$ begin for i in 1..1000 loop update busy set n = i; end loop; end $$",
    )?;
    database.run("select pg_create_logical_replication_slot('freshet_kept', 'pgoutput')")?;
    // The counts come from the statistics, which a session hands over when it ends.
    crate::support::eventually(crate::support::PATIENCE, || {
        let said = check(&database.url(), &[])?;
        ensure!(said.code == Some(0), "{said:#?}");
        for text in [
            "hint     never cached, being unlogged: public.draft",
            "hint     not cached, having row-level security: public.secret",
            "hint     public.busy: 1000 updates",
            "warning  wal_sender_timeout is 0",
            "warning  max_slot_wal_keep_size is not set",
            "hint     logical_decoding_work_mem is 1024 kB",
            "hint     synchronous_commit is off",
        ] {
            ensure!(said.stdout.contains(text), "nothing of {text:?} in {}", said.stdout);
        }
        Ok(())
    })
}

fn a_standby(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let primary = version.start(&Settings::default())?;
    let standby = primary.standby("second")?;
    is_fit(&primary.url(), &[])?;
    is_unfit(&standby.url(), &[], &["a standby: it sends no change stream", "name it too", "1 problem, 0 warnings"])?;
    Ok(())
}

fn a_server_that_cannot_be_reached(version: Version) -> Result<()> {
    if without_freshet()? {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let nobody = format!("postgres://nobody_{}@{}/{}", database.name, database.address(), database.name);
    for url in ["postgres://127.0.0.1:1/nowhere", &nobody, &database.server.url_of("no_such_database")] {
        let said = check(url, &[])?;
        ensure!(said.code == Some(2) && said.stdout.is_empty(), "{said:#?}");
        ensure!(said.stderr.contains("cannot be looked at"), "{said:#?}");
    }
    Ok(())
}
