//! Promises 1 to 4 as a single application sees them; the stress test checks them under concurrency.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::{SCHEMA, SEEN_WITHIN, until_hit};
use crate::support::frames::{sync, unnamed};
use crate::support::relaying::{listen, pass_on};
use crate::support::{Database, Freshet, Pair, RawClient, Version, eventually, on_both, under_way};

on_both!(
    a_write_around_is_seen,
    a_write_through_is_seen_at_once,
    a_write_is_seen_by_other_sessions,
    rows_that_were_not_there,
    joins_and_aggregates,
    writes_by_functions_triggers_and_cascades,
    transactions_are_seen_when_they_commit,
    prepared_transactions,
    copy_and_truncate,
    memory_is_bounded,
    reads_of_a_far_database,
    a_stalled_stream_is_noticed,
);

/// A change made directly is seen through Freshet within D, and from then on always.
fn seen(pair: &Pair, client: &mut RawClient, read: &str, write: &str, expected: &str) -> Result<()> {
    until_hit(pair, client, read)?;
    pair.database.run(write)?;
    soon(client, read, expected).with_context(|| write.to_owned())?;
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        for client in [&mut *client, &mut pair.connect()?] {
            let value = client.value(read)?;
            ensure!(value == expected, "{read} went back to {value} after {write}");
        }
    }
    until_hit(pair, client, read)?;
    let value = client.value(read)?;
    ensure!(value == expected, "{read} gives {value} from the cache, not {expected}");
    Ok(())
}

fn a_write_around_is_seen(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let read = "select title from film where id = 7";
    seen(&pair, &mut c, read, "update film set title = 'new' where id = 7", "new")?;
    seen(
        &pair,
        &mut c,
        read,
        "delete from role where film_id = 7; delete from film where id = 7;
        insert into film (id, title) values (7, 'again')",
        "again",
    )?;
    let count = "select count(*) from film where id = 7";
    seen(&pair, &mut c, count, "delete from film where id = 7", "0")?;
    seen(&pair, &mut c, count, "insert into film (id, title) values (7, 'back')", "1")?;
    // The row leaves and enters what the query selects.
    let by_title = "select count(*) from film where title = 'moved'";
    seen(&pair, &mut c, by_title, "update film set title = 'moved' where id = 8", "1")?;
    seen(&pair, &mut c, by_title, "update film set title = 'gone' where id = 8", "0")?;
    let moved = "select count(*) from film where id = 1007";
    seen(&pair, &mut c, moved, "update film set id = 1007 where id = 7", "1")
}

fn a_write_through_is_seen_at_once(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let read = "select votes from film where id = 9";
    until_hit(&pair, &mut c, read)?;
    for votes in 0..100 {
        let write = format!("update film set votes = {votes} where id = 9");
        match votes % 3 {
            0 => c.query(&write).map(drop)?,
            1 => c.exchange(&[unnamed(&write, &[]), sync()].concat(), 1).map(drop)?,
            _ => c.query(&format!("begin; {write}; commit")).map(drop)?,
        }
        let value = c.value(read)?;
        ensure!(value == votes.to_string(), "wrote {votes}, read {value}");
        if votes % 10 == 0 {
            until_hit(&pair, &mut c, read)?;
        }
    }
    Ok(())
}

/// Written in one session, seen by all sessions of this Freshet within D.
fn a_write_is_seen_by_other_sessions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select votes from film where id = 9";
    for votes in 0..20 {
        until_hit(&pair, &mut reader, read)?;
        let write = format!("update film set votes = {votes} where id = 9");
        match votes % 2 {
            0 => writer.query(&write)?,
            _ => writer.exchange(&[unnamed(&write, &[]), sync()].concat(), 1)?,
        };
        soon(&mut reader, read, &votes.to_string())?;
    }
    Ok(())
}

/// Waits until a session reads this.
fn soon(client: &mut RawClient, read: &str, expected: &str) -> Result<()> {
    eventually(SEEN_WITHIN, || {
        let value = client.value(read)?;
        ensure!(value == expected, "{read} gives {value}, not {expected}");
        Ok(())
    })
}

/// An empty result depends on the rows that are missing.
fn rows_that_were_not_there(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let read = "select count(*) from film where genre = 'western'";
    seen(&pair, &mut c, read, "insert into film (id, title, genre) values (500, 'new', 'western')", "1")?;
    let join = "select count(r.actor) from film f left join role r on r.film_id = f.id where f.id = 500";
    seen(&pair, &mut c, join, "insert into role values (500, 'someone')", "1")?;
    let absent = "select count(*) from film f where f.id = 501 or not exists (select 1 from role where film_id = 500)";
    seen(&pair, &mut c, absent, "delete from role where film_id = 500", "201")
}

fn joins_and_aggregates(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let join = "select count(*) from role r join film f on f.id = r.film_id where f.title = 'film 20'";
    seen(&pair, &mut c, join, "insert into role values (20, 'one more')", "4")?;
    seen(&pair, &mut c, join, "update film set title = 'other' where id = 20", "0")?;
    let sum = "select sum(votes) from film where genre = 'drama' and id <= 9";
    seen(&pair, &mut c, sum, "update film set votes = 100 where id = 3", "115")?;
    seen(&pair, &mut c, sum, "update film set genre = null where id = 3", "15")?;
    let top = "select title from film order by votes desc, id limit 1";
    seen(&pair, &mut c, top, "update film set votes = 999 where id = 5", "film 5")?;
    let sub = "select max(votes) from film where id in (select film_id from role where actor = 'nobody yet') or id = 1";
    seen(&pair, &mut c, sub, "insert into role values (5, 'nobody yet')", "999")
}

fn writes_by_functions_triggers_and_cascades(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}
        alter table role drop constraint role_film_id_fkey;
        alter table role add foreign key (film_id) references film on delete cascade;
        create table total (id int primary key, films bigint);
        insert into total select 1, count(*) from film;
        create function count_films() returns trigger language plpgsql as
            $$ begin update total set films = (select count(*) from film) where id = 1; return null; end $$;
        create trigger counts after insert or delete on film for each statement execute function count_films();
        create function vote(film int) returns int language sql as
            $$ update film set votes = votes + 1 where id = $1 returning votes $$;"
    );
    let pair = Pair::new(version, &schema)?;
    let mut c = pair.connect()?;
    let (total, roles) = ("select films from total where id = 1", "select count(*) from role where film_id = 30");
    until_hit(&pair, &mut c, total)?;
    until_hit(&pair, &mut c, roles)?;
    c.query("delete from film where id = 30")?;
    ensure!(c.value(total)? == "199" && c.value(roles)? == "0", "a trigger's or a cascade's write is not seen");
    // A SELECT that writes.
    let votes = "select votes from film where id = 31";
    until_hit(&pair, &mut c, votes)?;
    ensure!(c.value("select vote(31)")? == "32", "the function");
    ensure!(c.value(votes)? == "32", "a function's write is not seen");
    until_hit(&pair, &mut c, votes)?;
    c.query("with w as (update film set votes = 50 where id = 31 returning votes) select * from w")?;
    ensure!(c.value(votes)? == "50", "the write of a WITH is not seen");
    until_hit(&pair, &mut c, votes)?;
    c.query("do $$ begin update film set votes = 51 where id = 31; end $$")?;
    ensure!(c.value(votes)? == "51", "the write of a DO is not seen");
    until_hit(&pair, &mut c, votes)?;
    c.query("insert into film values (31, 'x') on conflict (id) do update set votes = 52")?;
    ensure!(c.value(votes)? == "52", "an upsert is not seen");
    until_hit(&pair, &mut c, votes)?;
    c.query("prepare w (int) as update film set votes = $1 where id = 31; execute w(53)")?;
    ensure!(c.value(votes)? == "53", "the write of a prepared statement is not seen");
    Ok(())
}

fn transactions_are_seen_when_they_commit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select votes from film where id = 40";
    until_hit(&pair, &mut reader, read)?;
    writer.query("begin")?;
    writer.query("update film set votes = 1000 where id = 40")?;
    ensure!(writer.value(read)? == "1000", "a transaction does not see its own write");
    ensure!(reader.value(read)? == "40", "an uncommitted write is seen");
    writer.query("savepoint s")?;
    writer.query("update film set votes = 2000 where id = 40")?;
    writer.query("rollback to s")?;
    ensure!(writer.value(read)? == "1000", "a rolled back write is seen");
    until_hit(&pair, &mut reader, read)?;
    writer.query("commit")?;
    ensure!(writer.value(read)? == "1000", "a committed write is not seen by its session");
    soon(&mut reader, read, "1000")?;
    until_hit(&pair, &mut reader, read)?;
    writer.query("begin; update film set votes = 3000 where id = 40")?;
    writer.query("rollback")?;
    ensure!(writer.value(read)? == "1000", "a rolled back write is seen");
    // A snapshot that is older than the entry.
    writer.query("begin isolation level repeatable read")?;
    ensure!(writer.value(read)? == "1000", "the first read of the snapshot");
    reader.query("update film set votes = 4000 where id = 40")?;
    soon(&mut reader, read, "4000")?;
    until_hit(&pair, &mut reader, read)?;
    ensure!(writer.value(read)? == "1000", "a snapshot sees later commits");
    writer.query("commit")?;
    ensure!(writer.value(read)? == "4000", "after the snapshot");
    Ok(())
}

fn prepared_transactions(version: Version) -> Result<()> {
    let settings = freshet_testbed::Settings::default().with("max_prepared_transactions = 5");
    let pair = Pair::over(Database::create(version.start(&settings)?)?, SCHEMA, &[])?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select votes from film where id = 41";
    until_hit(&pair, &mut reader, read)?;
    writer.run("begin; update film set votes = 7 where id = 41; prepare transaction 'two phases'")?;
    ensure!(reader.value(read)? == "41", "a prepared write is seen too early");
    writer.run("commit prepared 'two phases'")?;
    ensure!(writer.value(read)? == "7", "a prepared and committed write is not seen by its session");
    soon(&mut reader, read, "7")
}

fn copy_and_truncate(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let count = "select count(*) from role";
    until_hit(&pair, &mut c, count)?;
    c.send(&crate::support::frames::query("copy role from stdin"))?;
    c.until(b'G')?;
    let data = [crate::support::frames::copy_data(b"1\tcopied\n"), crate::support::frames::copy_done()];
    c.exchange(&data.concat(), 1)?;
    ensure!(c.value(count)? == "501", "copied rows are not seen");
    seen(&pair, &mut c, count, "truncate role", "0")?;
    until_hit(&pair, &mut c, "select count(*) from film")?;
    c.query("truncate film cascade")?;
    ensure!(c.value("select count(*) from film")? == "0", "a TRUNCATE is not seen");
    Ok(())
}

fn memory_is_bounded(version: Version) -> Result<()> {
    let schema = "create table wide (id int primary key, content text);
        insert into wide select i, repeat(md5(i::text), 300) from generate_series(1, 3000) i;";
    let pair = Pair::over(Database::shared(version)?, schema, &["--memory", "8MiB"])?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, "select content from wide where id = 1")?;
    // 3000 results of about 10 kB: nearly four times the limit. What is asked for again and again takes the place of what was
    // asked for once.
    for id in 1..=3000 {
        for _ in 0..if id <= 1500 { 1 } else { 4 } {
            c.query(&format!("select content from wide where id = {id}"))?;
        }
        if id % 500 == 0 && pair.freshet.is_there() {
            let metrics = pair.freshet.metrics()?;
            let (bytes, entries) = (metrics.value("freshet_bytes"), metrics.value("freshet_entries"));
            ensure!(bytes <= 8.0 * 1024.0 * 1024.0, "{bytes} bytes are cached, more than allowed");
            ensure!(entries > 0.0, "no result is cached: {metrics:?}");
        }
    }
    if pair.freshet.is_there() {
        let evicted = pair.freshet.metrics()?.value("freshet_evictions_total");
        ensure!(evicted > 0.0, "nothing was evicted");
        ensure!(pair.freshet.peak_memory()? < 96 * 1024 * 1024, "{} bytes", pair.freshet.peak_memory()?);
    }
    Ok(())
}

/// Promise 2: a stream that does not advance is noticed within D; then reads bypass instead of getting stale.
fn a_stalled_stream_is_noticed(version: Version) -> Result<()> {
    let server = version.start(&freshet_testbed::Settings::default())?;
    let pair = Pair::over(Database::create(server)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let read = "select votes from film where id = 50";
    until_hit(&pair, &mut c, read)?;
    let walsender = super::walsender(&pair)?;
    freshet_testbed::process::pause(walsender)?;
    let stalled = (|| {
        pair.database.run("update film set votes = 5000 where id = 50")?;
        let written = Instant::now();
        eventually(SEEN_WITHIN, || {
            ensure!(c.value(read)? == "5000", "stale for {:?}", written.elapsed());
            Ok(())
        })?;
        let before = pair.freshet.metrics()?;
        for _ in 0..20 {
            ensure!(c.value(read)? == "5000", "stale again");
        }
        ensure!(pair.freshet.metrics()?.hits() == before.hits(), "hits without a stream");
        Ok(())
    })();
    freshet_testbed::process::resume(walsender)?;
    stalled?;
    until_hit(&pair, &mut c, read)?;
    ensure!(c.value(read)? == "5000", "stale after the stall");
    Ok(())
}

/// Who has read from a database that is some way off is served from the cache again at once, though it asks before Freshet can know how
/// new that answer was.
fn reads_of_a_far_database(version: Version) -> Result<()> {
    const WAY: Duration = Duration::from_millis(3);
    // Not the shared server: other tests' changes would hold its stream up for longer than look-ups wait.
    let database = Database::create(version.start(&Settings::default())?)?;
    database.run(SCHEMA)?;
    let near = database.address();
    let far = listen(near, |client, server| pass_on(client, server, |_| {}, |_| under_way(WAY)))?;
    let url = database.url().replace(&near.to_string(), &far.to_string()) + "?sslmode=disable";
    let freshet = Freshet::start_unready(near, &url, &[])?;
    freshet.wait_ready()?;
    if !freshet.is_there() {
        return Ok(());
    }
    let (read, passes) = ("select title from film where id = 7", "select random() < 2");
    let mut client = RawClient::login(freshet.address, database.login())?;
    eventually(SEEN_WITHIN, || {
        let before = freshet.metrics()?.hits();
        client.run(read)?;
        ensure!(freshet.metrics()?.hits() > before, "no hit");
        Ok(())
    })?;
    for way in ["text", "unnamed"] {
        let before = freshet.metrics()?;
        for _ in 0..20 {
            client.run(passes)?;
            for _ in 0..3 {
                if way == "text" {
                    client.run(read)?;
                } else {
                    client.exchange(&[unnamed(read, &[]), sync()].concat(), 1)?;
                }
            }
        }
        let after = freshet.metrics()?;
        let hits = after.hits() - before.hits();
        ensure!(hits >= 55, "{way}: {hits} hits of 60: {:?}", after.passed_since(&before));
    }
    Ok(())
}
