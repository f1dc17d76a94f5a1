//! Writes to tables on which no entry depends are acknowledged at once, and other sessions see them all the same: sessions that fill next, sessions
//! that fill during the write, and where more tables are touched than the statement names.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::support::packets::{self, Value};
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::join_keys::stage::Session;
use crate::support::races::{self, TABLES, table};
use crate::support::{PATIENCE, eventually, pace};

on_both!(
    what_nobody_reads_is_not_held,
    transactions,
    a_fill_that_begins_under_way_is_minded,
    what_a_new_trigger_writes_is_seen,
    what_foreign_keys_change_is_seen,
    acknowledged_writes_are_seen_under_races,
);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO item VALUES (1, 0), (2, 0), (70, 0); \
     CREATE TABLE visit (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO visit VALUES (1, 0)";

/// On a server of its own: definitions in other databases come with the same binlog, and then writes are held for a moment.
fn alone(kind: Kind) -> Result<Pair> {
    let settings = match kind {
        Kind::Mariadb => Kind::settings(), // Freshet has it tell its commits
        Kind::Mysql => Kind::settings().with("session-track-gtids = OWN_GTID"),
    };
    Pair::over(Database::create(kind.start(&settings)?)?, SCHEMA, &[])
}

/// Acknowledgements that were held, and that were not.
fn counts(pair: &Pair) -> Result<(u64, u64)> {
    let metrics = pair.freshet.metrics()?;
    Ok((metrics.count("freshet_commit_waits_total"), metrics.count("freshet_commit_waits_skipped_total")))
}

/// Writes until a write has no commit wait: another session may define something, or an entry may depend on the table. A session that only writes
/// does not know its own context, so it reads as well.
fn until_skipped(pair: &Pair, writer: &mut RawClient, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        writer.run("SELECT n FROM item WHERE id = 2")?;
        let (_, before) = counts(pair)?;
        writer.run(sql)?;
        let (_, after) = counts(pair)?;
        ensure!(after > before, "{sql} had a commit wait");
        Ok(())
    })
}

fn what_nobody_reads_is_not_held(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_skipped(&pair, &mut writer, "UPDATE visit SET n = n + 1 WHERE id = 1")?;
    let statement = writer.prepare("UPDATE visit SET n = ? WHERE id = 1")?;
    let (held, skipped) = counts(&pair)?;
    for n in 0..20 {
        writer.run(&format!("UPDATE visit SET n = 1000 + {n} WHERE id = 1"))?;
        writer.execute(statement, &[Value::Int(2000 + n)])?;
        for sql in ["BEGIN", &format!("INSERT INTO visit VALUES ({}, 2)", 100 + n), "COMMIT"] {
            writer.run(sql)?;
        }
    }
    let (held_then, skipped_then) = counts(&pair)?;
    ensure!(
        held_then == held && skipped_then == skipped + 60,
        "{held_then} held, {skipped_then} not; {held} and {skipped} before"
    );
    // After its own write a session reads from the cache: the commit in the write's answer serves as a log end.
    pair.until_hit(&mut writer, "SELECT n FROM item WHERE id = 2")?;
    let before = pair.freshet.metrics()?;
    for n in 0..20 {
        writer.run(&format!("UPDATE visit SET n = 3000 + {n} WHERE id = 1"))?;
        writer.run("SELECT n FROM item WHERE id = 2")?;
    }
    let hits = pair.freshet.metrics()?.hits() - before.hits();
    // It waits for a few milliseconds at the most, which may be too short on a busy machine.
    ensure!(hits > 5, "{hits} hits of 20");
    // What is read is seen at once, too.
    for n in 100..130 {
        let read = "SELECT n FROM visit WHERE id = 1";
        writer.run(&format!("UPDATE visit SET n = {n} WHERE id = 1"))?;
        ensure!(reader.value(read)? == n.to_string(), "{n} was acknowledged");
        pair.until_hit(&mut reader, read)?;
        writer.run(&format!("UPDATE visit SET n = -{n} WHERE id = 1"))?;
        ensure!(reader.value(read)? == format!("-{n}"), "-{n} was acknowledged");
    }
    // What names more than one table is held.
    let (before, _) = counts(&pair)?;
    writer.run("UPDATE visit v JOIN item i ON i.id = v.id SET v.n = v.n + 1")?;
    ensure!(counts(&pair)?.0 > before, "a join had no commit wait");
    Ok(())
}

/// What a transaction touched is all that it wrote, also behind an error.
fn transactions(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let (read, other) = ("SELECT n FROM item WHERE id = 1", "SELECT n FROM item WHERE id = 2");
    until_skipped(&pair, &mut writer, "UPDATE visit SET n = n + 1 WHERE id = 1")?;
    for n in 1..20 {
        pair.until_hit(&mut reader, read)?;
        // No write here touches it, so that an entry depends on the table all the time; and the writer's session knows its context.
        pair.until_hit(&mut writer, other)?;
        let (_, before) = counts(&pair)?;
        writer.run("UPDATE visit SET n = n + 1000 WHERE id = 1")?;
        let (_, skipped) = counts(&pair)?;
        ensure!(skipped == before + 1, "round {n}: a write on which no entry depends had a commit wait");
        writer.run("BEGIN")?;
        writer.run(&format!("UPDATE item SET n = {n} WHERE id = 1"))?;
        if n % 2 == 0 {
            ensure!(writer.query("INSERT INTO visit VALUES (1, 1)")?.error().is_some(), "no error");
        }
        writer.run(&format!("UPDATE visit SET n = {n} WHERE id = 1"))?;
        writer.run("COMMIT")?;
        ensure!(reader.value(read)? == n.to_string(), "{n} was acknowledged");
        writer.run("SET autocommit = 0")?;
        writer.run(other)?;
        writer.run(&format!("UPDATE item SET n = -{n} WHERE id = 1"))?;
        writer.run("UPDATE visit SET n = n + 1 WHERE id = 1")?;
        writer.run("SET autocommit = 1")?;
        ensure!(reader.value(read)? == format!("-{n}"), "-{n} was acknowledged");
        ensure!(counts(&pair)?.1 == skipped, "round {n}: a transaction that wrote to the table had no commit wait");
    }
    Ok(())
}

fn a_fill_that_begins_under_way_is_minded(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &["--admission", "always", "--refresh-share", "0"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader, mut locker) =
        (pair.connect()?, pair.connect()?, RawClient::login(pair.database.address(), pair.login())?);
    let read = "SELECT n FROM visit WHERE id = 1";
    pair.until_hit(&mut reader, read)?;
    for round in 1..20 {
        // Invalidates the entries that depend on the table.
        until_skipped(&pair, &mut writer, "UPDATE visit SET n = n + 1000 WHERE id = 1")?;
        locker.run("BEGIN")?;
        locker.run("SELECT n FROM visit WHERE id = 1 FOR UPDATE")?;
        writer.send(&packets::query(&format!("UPDATE visit SET n = {round} WHERE id = 1")))?;
        pair.until_hit(&mut reader, read)?;
        locker.run("COMMIT")?;
        ensure!(writer.answer()?.error().is_none(), "the write failed");
        let now = reader.value(read)?;
        ensure!(now == round.to_string(), "{now} is read, {round} was acknowledged");
    }
    Ok(())
}

/// The trigger is made just before the write runs, and may not be delivered when that is answered.
fn what_a_new_trigger_writes_is_seen(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut definer, mut reader) = (pair.connect()?, pair.connect()?, pair.connect()?);
    let read = "SELECT n FROM item WHERE id = 70";
    for n in 1000u32..1015 {
        until_skipped(&pair, &mut writer, "UPDATE visit SET n = n + 1 WHERE id = 1")?;
        pair.until_hit(&mut reader, read)?;
        let trigger =
            "CREATE TRIGGER counts AFTER UPDATE ON visit FOR EACH ROW UPDATE item SET n = NEW.n WHERE id = 70";
        definer.send(&packets::query(trigger))?;
        if n % 2 == 0 {
            pace(Duration::from_micros(u64::from(500 * (n % 8))));
        }
        writer.run(&format!("UPDATE visit SET n = {n} WHERE id = 1"))?;
        let value = reader.value(read)?;
        ensure!(definer.answer()?.error().is_none(), "no trigger");
        // The write came before the trigger, or the trigger's write is seen.
        let direct = RawClient::login(pair.database.address(), pair.login())?.value(read)?;
        ensure!(value == direct, "{value} is read, {direct} was written by a trigger before {n} was acknowledged");
        definer.run("DROP TRIGGER counts")?;
    }
    Ok(())
}

fn what_foreign_keys_change_is_seen(kind: Kind) -> Result<()> {
    let schema = format!(
        "{SCHEMA}; CREATE TABLE owner (id INT PRIMARY KEY);
         CREATE TABLE thing (id INT PRIMARY KEY, owner_id INT, FOREIGN KEY (owner_id) REFERENCES owner (id) ON DELETE CASCADE)"
    );
    let pair = Pair::new(kind, &schema)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "SELECT COUNT(*) FROM thing WHERE owner_id = 1";
    writer.run(read)?;
    for _ in 0..20 {
        writer.run("INSERT INTO owner VALUES (1)")?;
        writer.run("INSERT INTO thing VALUES (1, 1)")?;
        ensure!(reader.value(read)? == "1", "the insert was acknowledged");
        pair.until_hit(&mut reader, read)?;
        writer.run("DELETE FROM owner WHERE id = 1")?;
        ensure!(reader.value(read)? == "0", "the delete was acknowledged");
        pair.until_hit(&mut reader, read)?;
    }
    Ok(())
}

/// Without the rule they are missed: `races::acknowledgements`.
fn acknowledged_writes_are_seen_under_races(kind: Kind) -> Result<()> {
    let schema = [SCHEMA, ";"].into_iter().map(str::to_owned).chain((0..TABLES).map(table)).collect::<String>();
    let pair = Pair::over(Database::shared(kind)?, &schema, &["--admission", "always", "--refresh-share", "0"])?;
    let missed = races::missed(|| Ok(Session::Mysql(pair.connect()?)), Some("SELECT n FROM item WHERE id = 2"))?;
    if pair.freshet.is_there() {
        let (hits, (held, skipped)) = (pair.freshet.metrics()?.hits(), counts(&pair)?);
        ensure!(hits > 50 && skipped > 50 && held > 10, "{hits} hits, {held} commit waits, {skipped} skipped");
    }
    ensure!(missed == 0, "{missed} reads missed an acknowledged write");
    Ok(())
}
