//! Writes to tables on which no entry depends are acknowledged at once, and other sessions see them all the same: sessions that fill next, sessions
//! that fill during the write, and where more tables are touched than the statement names.

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, until_hit};
use crate::join_keys::stage::Session;
use crate::support::frames::{bind_text, execute, parse, query, sync};
use crate::support::races::{self, TABLES, table};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    what_nobody_reads_is_not_held,
    a_fill_that_begins_under_way_is_minded,
    what_a_new_trigger_writes_is_seen,
    what_a_fence_makes_forgotten_is_asked_for_again,
    what_foreign_keys_change_is_seen,
    what_partitions_hold_is_seen,
    acknowledged_writes_are_seen_under_races,
    without_the_rule_they_are_missed,
);

/// Acknowledgements that were held, and that were not.
fn counts(pair: &Pair) -> Result<(u64, u64)> {
    let metrics = pair.freshet.metrics()?;
    Ok((metrics.count("freshet_commit_waits_total"), metrics.count("freshet_commit_waits_skipped_total")))
}

/// Writes until a write has no commit wait: another session may define something, or an entry may depend on the table. A session that only writes
/// does not know its own context, so it reads as well.
fn until_skipped(pair: &Pair, writer: &mut RawClient, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let (_, before) = counts(pair)?;
        writer.run(sql)?;
        let (_, after) = counts(pair)?;
        ensure!(after > before, "{sql} had a commit wait");
        Ok(())
    })
}

fn what_nobody_reads_is_not_held(version: Version) -> Result<()> {
    let schema = format!("{SCHEMA} create table visit (id int primary key, film_id int not null, n int not null);");
    let pair = Pair::new(version, &schema)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, "select votes from film where id = 1")?;
    until_skipped(&pair, &mut writer, "insert into visit values (1, 1, 0) on conflict do nothing")?;
    writer.exchange(&[parse("w", "update visit set n = $1::int where id = 1"), sync()].concat(), 1)?;
    let (held, skipped) = counts(&pair)?;
    for n in 0..20 {
        writer.run(&format!("update visit set n = {n} where id = 1"))?;
        writer.exchange(&[bind_text("", "w", &[&n.to_string()]), execute("", 0), sync()].concat(), 1)?;
        for sql in ["begin", &format!("insert into visit values ({}, 2, 0)", 100 + n), "commit"] {
            writer.run(sql)?;
        }
    }
    let (held_then, skipped_then) = counts(&pair)?;
    ensure!(
        held_then == held && skipped_then == skipped + 60,
        "{held_then} held, {skipped_then} not; {held} and {skipped} before"
    );
    // What is read is seen at once, too. It is held, unless the stream was quicker than the answer.
    let (held, skipped) = (held_then, skipped_then);
    for n in 100..130 {
        let read = "select n from visit where id = 1";
        writer.run(&format!("update visit set n = {n} where id = 1"))?;
        ensure!(reader.value(read)? == n.to_string(), "{n} was acknowledged");
        until_hit(&pair, &mut reader, read)?;
        writer.run(&format!("update visit set n = -{n} where id = 1"))?;
        ensure!(reader.value(read)? == format!("-{n}"), "-{n} was acknowledged");
    }
    let (held_then, skipped_then) = counts(&pair)?;
    ensure!(
        held_then + skipped_then == held + skipped + 60,
        "{held_then} held, {skipped_then} not; {held} and {skipped} before"
    );
    // Writes that may run user-defined code have a commit wait, and so has every write while a session sends such statements.
    let (before, _) = counts(&pair)?;
    writer.run("with w as (update role set actor = actor where film_id = 1 returning 1) select count(*) from w")?;
    ensure!(counts(&pair)?.0 > before, "WITH had no commit wait");
    Ok(())
}

fn a_fill_that_begins_under_way_is_minded(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &["--admission", "always", "--refresh-share", "0"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader, mut locker) =
        (pair.connect()?, pair.connect()?, RawClient::login(pair.database.address(), pair.login())?);
    let read = "select actor from role where film_id = 1 order by actor limit 1";
    until_hit(&pair, &mut reader, read)?;
    for round in 0..20 {
        // Invalidates what rests on the table, so that the next write is sent as one that need not be held.
        until_skipped(&pair, &mut writer, "update role set actor = 'b' || actor where film_id = 1")?;
        locker.run("begin")?;
        locker.run("select 1 from role where film_id = 1 for update")?;
        writer.send(&query(&format!("update role set actor = 'a{round}' || actor where film_id = 1")))?;
        until_hit(&pair, &mut reader, read)?;
        let before = reader.value(read)?;
        locker.run("commit")?;
        writer.until(b'Z')?;
        let now = reader.value(read)?;
        ensure!(now != before && now.starts_with(&format!("a{round}")), "{now} is read, {before} before the write");
    }
    Ok(())
}

/// The trigger is committed just before the write runs, and may not be delivered when that is answered.
fn what_a_new_trigger_writes_is_seen(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA} create table visit (id int primary key, n int not null); insert into visit values (1, 0);
         create function counted() returns trigger language plpgsql as
            $$ begin update film set votes = new.n where id = 70; return new; end $$;"
    );
    let pair = Pair::new(version, &schema)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut definer, mut reader) = (pair.connect()?, pair.connect()?, pair.connect()?);
    let mut watcher = pair.database.connect()?;
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let read = "select votes from film where id = 70";
    for n in 1000..1020 {
        until_skipped(&pair, &mut writer, "update visit set n = 0 where id = 1")?;
        until_hit(&pair, &mut reader, read)?;
        definer.run("begin")?;
        definer.run("create trigger counts after update on visit for each row execute function counted()")?;
        writer.send(&query(&format!("update visit set n = {n} where id = 1")))?;
        // It has been judged, and waits for the trigger's transaction.
        eventually(PATIENCE, || {
            ensure!(watcher.value(waiting)? == "1", "the write does not wait");
            Ok(())
        })?;
        definer.send(&query("commit"))?;
        writer.until(b'Z')?;
        let value = reader.value(read)?;
        ensure!(value == n.to_string(), "{n} was written by a trigger and acknowledged, {value} is read");
        definer.until(b'Z')?;
        definer.run("drop trigger counts on visit")?;
    }
    Ok(())
}

/// A write takes its session's context with it, the next question tells it, and then a fence does; a session that only writes learns it all the same.
fn what_a_fence_makes_forgotten_is_asked_for_again(version: Version) -> Result<()> {
    let schema =
        format!("{SCHEMA} create table visit (id int primary key, n int not null); insert into visit values (1, 0);");
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, &schema, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, "select votes from film where id = 1")?;
    let update = "update visit set n = n + 1 where id = 1";
    until_skipped(&pair, &mut writer, update)?;
    let walsender = super::walsender(&pair)?;
    process::pause(walsender)?;
    let fences = pair.freshet.metrics()?.count("freshet_fences_total");
    let wrote = writer.run("with w as (update film set votes = 7 where id = 1 returning 1) select count(*) from w");
    process::resume(walsender)?;
    wrote?;
    ensure!(pair.freshet.metrics()?.count("freshet_fences_total") > fences, "nothing was fenced");
    until_skipped(&pair, &mut writer, update)
}

fn what_foreign_keys_change_is_seen(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA} create table owner (id int primary key);
         create table thing (id int primary key, owner_id int references owner on delete cascade);"
    );
    let pair = Pair::new(version, &schema)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select count(*) from thing where owner_id = 1";
    for _ in 0..20 {
        writer.run("insert into owner values (1)")?;
        writer.run("insert into thing values (1, 1)")?;
        ensure!(reader.value(read)? == "1", "the insert was acknowledged");
        until_hit(&pair, &mut reader, read)?;
        writer.run("delete from owner where id = 1")?;
        ensure!(reader.value(read)? == "0", "the delete was acknowledged");
        until_hit(&pair, &mut reader, read)?;
    }
    // An action that comes later counts at once.
    writer.run("alter table role drop constraint role_film_id_fkey")?;
    writer.run("alter table role add constraint acts foreign key (film_id) references film on delete cascade")?;
    for film in 1..10 {
        let read = format!("select count(*) from role where film_id = {film}");
        until_hit(&pair, &mut reader, &read)?;
        writer.run(&format!("delete from film where id = {film}"))?;
        ensure!(reader.value(&read)? == "0", "the delete of film {film} was acknowledged");
    }
    Ok(())
}

fn what_partitions_hold_is_seen(version: Version) -> Result<()> {
    let schema = "create table event (id int, n int not null, primary key (id)) partition by range (id);
         create table event_1 partition of event for values from (0) to (100);
         create table event_2 partition of event for values from (100) to (200);
         insert into event select i, 0 from generate_series(1, 199) i;";
    let pair = Pair::new(version, schema)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    for n in 1..15 {
        for (written, read) in [("event", "event_1"), ("event_1", "event"), ("event_2", "event_1"), ("event", "event")]
        {
            let read = format!("select n from {read} where id = 7");
            until_hit(&pair, &mut reader, &read)?;
            let before = reader.value(&read)?;
            writer.run(&format!("update {written} set n = n + 1 where id = 7"))?;
            let expected = before.parse::<i32>()? + i32::from(written != "event_2");
            ensure!(reader.value(&read)? == expected.to_string(), "round {n}: {written} was written");
        }
    }
    Ok(())
}

fn acknowledged_writes_are_seen_under_races(version: Version) -> Result<()> {
    let schema = (0..TABLES).map(table).collect::<String>();
    let pair = Pair::over(Database::shared(version)?, &schema, &["--admission", "always", "--refresh-share", "0"])?;
    let missed = races::missed(|| Ok(Session::Postgres(pair.connect()?)), None)?;
    if pair.freshet.is_there() {
        let (hits, (held, skipped)) = (pair.freshet.metrics()?.hits(), counts(&pair)?);
        ensure!(hits > 50 && skipped > 50 && held > 10, "{hits} hits, {held} commit waits, {skipped} skipped");
    }
    ensure!(missed == 0, "{missed} reads missed an acknowledged write");
    Ok(())
}

/// Where no acknowledgement waits, the result of before the write is served behind it.
fn without_the_rule_they_are_missed(version: Version) -> Result<()> {
    let options = ["--test-fault", "skip-all-commit-waits", "--admission", "always", "--max-staleness", "10m"];
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &options)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let read = "select votes from film where id = 70";
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut writer, read)?;
    until_hit(&pair, &mut reader, read)?;
    let walsender = super::walsender(&pair)?;
    process::pause(walsender)?;
    let seen = writer.run("update film set votes = 700 where id = 70").and_then(|()| reader.value(read));
    process::resume(walsender)?;
    let seen = seen?;
    ensure!(seen == "70", "{seen} is read: the fault was not found");
    Ok(())
}
