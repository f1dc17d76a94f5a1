//! Sequences of one session that once gave it an older answer than it had seen, or another one than the database's.
//!
//! All of them need a failure (a row and then an error, a `Parse` of a name that is in use, a COPY that fails early) or something unusual (a second
//! portal, a temporary table that is created and dropped) combined with reads from the cache. Where the answer would only be stale, the change stream
//! is stopped first, so that the cache stays behind.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings, process};

use super::until_hit;
use crate::support::frames::{
    bind_text, close_statement, copy_data, copy_done, describe_portal, describe_statement, execute, frame, parse,
    query, sync,
};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, ensure_same, on_both, rest};

on_both!(
    rows_before_an_error_are_not_unseen,
    rows_behind_a_failed_parse_are_not_unseen,
    rows_of_one_portal_are_not_unseen_for_another,
    settings_behind_a_failed_parse,
    prepared_on_a_temporary_table,
    an_unnamed_statement_of_a_failed_batch,
    a_statement_that_was_not_deallocated,
    copies_that_fail_before_their_data,
    nothing_is_answered_behind_an_unknown_message,
    settings_show_nothing,
);

const SCHEMA: &str = "
    create table t (id int primary key, v int, exact float8 default 0.1::float8 + 0.2);
    insert into t values (1, 100), (2, 200), (3, 300);
    create schema o;
    create table o.t (id int primary key, v int);
    insert into o.t values (1, -1);";

const READ: &str = "select v from t where id = 1";

/// A database on a server on which nothing else happens: what others do to roles would flush what these tests read.
fn pair(version: Version, schema: &str) -> Result<Pair> {
    static QUIET: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    let start = || version.start(&Settings::default()).expect("the quiet server starts");
    Pair::over(Database::create(QUIET[version as usize].get_or_init(start).clone())?, schema, &[])
}

fn at_once(sql: &str) -> Vec<u8> {
    [parse("", sql), bound("")].concat()
}

fn bound(statement: &str) -> Vec<u8> {
    [bind_text("", statement, &[]), execute("", 0)].concat()
}

fn synced(messages: &[Vec<u8>]) -> Vec<u8> {
    [messages.concat(), sync()].concat()
}

/// The change stream of a database, stopped until this is dropped.
struct Stopped(Option<u32>);

impl Stopped {
    fn new(pair: &Pair) -> Result<Self> {
        if !pair.freshet.is_there() {
            return Ok(Self(None));
        }
        let stream =
            "select pid from pg_stat_activity where backend_type = 'walsender' and datname = current_database()";
        let stream = pair.database.connect()?.value(stream)?.parse()?;
        process::pause(stream)?;
        Ok(Self(Some(stream)))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            let _ = process::resume(stream);
        }
    }
}

/// What `messages` show of a write that memory does not know is shown by the next read, too. `before` prepares the session.
fn stays_seen(pair: &Pair, written: u32, before: &[u8], messages: &[u8], ready: usize) -> Result<()> {
    let mut client = pair.connect()?;
    client.exchange(before, 1)?;
    until_hit(pair, &mut client, READ)?;
    // What was read so far is to be behind the stream: only what comes now may keep memory from answering.
    rest();
    let stopped = Stopped::new(pair)?;
    pair.database.run(&format!("update t set v = {written} where id = 1"))?;
    let answer = client.exchange(messages, ready)?;
    let then = client.value(READ)?;
    drop(stopped);
    let written = written.to_string();
    let rows = answer.iter().filter(|message| message.tag == b'D');
    let shown = rows.filter_map(|row| row.columns().into_iter().next().flatten()).any(|v| v == written.as_bytes());
    ensure!(shown, "{written} is not in {answer:?}");
    ensure!(then == written, "{then} after {answer:?}");
    Ok(())
}

/// Rows that are not cached because of an error were seen all the same.
fn rows_before_an_error_are_not_unseen(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let failing = "select v from t where id = 1 union all select 1 / (id - 2) from t where id = 2";
    stays_seen(&pair, 101, &sync(), &query(failing), 1).context("one query")?;
    let batch = synced(&[at_once("select v from t where id < 2"), at_once("select 1 / (id - 2) from t")]);
    stays_seen(&pair, 102, &sync(), &batch, 1).context("a batch whose second statement fails")?;
    let statement = synced(&[parse("failing", failing)]);
    stays_seen(&pair, 103, &statement, &synced(&[bound("failing")]), 1).context("a named statement")
}

/// Neither what was to be kept of it, nor what seemed to tell nothing: it may be another statement.
fn rows_behind_a_failed_parse_are_not_unseen(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let taken = synced(&[parse("s", "select v, now() from t where id = 1")]);
    let failing = synced(&[parse("s", "select 1")]);
    let fill = [failing.clone(), synced(&[at_once("select v from t where id < 3")])].concat();
    stays_seen(&pair, 101, &taken, &fill, 2).context("a read that can be cached")?;
    let silent = [failing.clone(), synced(&[bound("s")])].concat();
    stays_seen(&pair, 102, &taken, &silent, 2).context("a statement taken for a silent one")?;
    let failing_set = synced(&[parse("s", "set timezone = 'UTC'")]);
    let setting = [failing_set, synced(&[bound("s")])].concat();
    stays_seen(&pair, 104, &taken, &setting, 2).context("a statement taken for a setting")?;
    let later = [failing, query("select 2"), synced(&[bound("s")])].concat();
    stays_seen(&pair, 103, &taken, &later, 3).context("not next to it")
}

/// A portal that tells nothing, bound before the other is executed.
fn rows_of_one_portal_are_not_unseen_for_another(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let telling = [parse("", "select v, now() from t where id = 1"), bind_text("", "", &[])].concat();
    let silent = [parse("one", "select 1"), bind_text("p", "one", &[])].concat();
    let unnamed = synced(&[telling, silent.clone(), execute("", 0)]);
    stays_seen(&pair, 101, &sync(), &unnamed, 1).context("the unnamed portal")?;
    let named = [parse("data", "select v, now() from t where id = 1"), bind_text("p", "data", &[])].concat();
    let last = [parse("one", "select 1"), bind_text("", "one", &[])].concat();
    stays_seen(&pair, 102, &sync(), &synced(&[named, last, execute("p", 0)]), 1).context("a named portal")
}

/// The same session directly and through Freshet.
struct Twins<'a> {
    pair: &'a Pair,
    direct: RawClient,
    through: RawClient,
}

impl<'a> Twins<'a> {
    fn new(pair: &'a Pair) -> Result<Self> {
        let (mut direct, mut through) = (pair.database.connect()?, pair.connect()?);
        (direct.makes_tables, through.makes_tables) = (true, true);
        Ok(Self { pair, direct, through })
    }

    /// The same messages on both sides; the answers are equal.
    fn exchange(&mut self, messages: &[u8], ready: usize) -> Result<()> {
        for client in [&mut self.direct, &mut self.through] {
            client.heard.clear();
            client.exchange(messages, ready).with_context(|| messages.escape_ascii().to_string())?;
        }
        self.ensure_same(messages)
    }

    /// The same messages on both sides, after which both connections end.
    fn last_words(&mut self, messages: &[u8]) -> Result<()> {
        for client in [&mut self.direct, &mut self.through] {
            client.heard.clear();
            client.send(messages)?;
            while client.read_or_end()?.is_some() {}
        }
        self.ensure_same(messages)
    }

    fn ensure_same(&self, messages: &[u8]) -> Result<()> {
        ensure_same(&self.direct.heard, &self.through.heard).with_context(|| messages.escape_ascii().to_string())
    }

    /// Statements, each in its own message.
    fn run(&mut self, statements: &[&str]) -> Result<()> {
        statements.iter().try_for_each(|sql| self.exchange(&query(sql), 1))
    }

    /// Whether the answer came from the cache.
    fn hits(&mut self, messages: &[u8]) -> Result<bool> {
        if !self.pair.freshet.is_there() {
            return self.exchange(messages, 1).map(|()| true);
        }
        let before = self.pair.freshet.metrics()?.hits();
        self.exchange(messages, 1)?;
        Ok(self.pair.freshet.metrics()?.hits() > before)
    }

    fn until_hit(&mut self, messages: &[u8]) -> Result<()> {
        once(|| self.hits(messages))
    }
}

/// Again until its read came from the cache; an error is not mended by trying again.
fn once(mut hits: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !hits()? {
        ensure!(start.elapsed() < PATIENCE, "nothing from the cache");
        rest();
    }
    Ok(())
}

/// The statement behind a `Parse` that failed is not the one that it was to be, but may set what keys depend on.
fn settings_behind_a_failed_parse(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let failing = synced(&[parse("s", "select 1")]);
    let set = || synced(&[bound("s")]);
    // The second is one that no version reports by ParameterStatus.
    let settings = [
        ("select set_config('search_path', 'o', false)", READ),
        ("select set_config('extra_float_digits', '-5', false)", "select exact from t where id = 1"),
    ];
    for (sets, read) in settings {
        let behind =
            [(set(), 2), ([query("select 2"), set()].concat(), 3), ([synced(&[at_once(read)]), set()].concat(), 3)];
        for (messages, ready) in behind {
            let mut twins = Twins::new(&pair)?;
            twins.exchange(&synced(&[parse("s", sets)]), 1)?;
            twins.until_hit(&query(read))?;
            twins.until_hit(&synced(&[at_once(read)]))?;
            twins.exchange(&[failing.clone(), messages].concat(), ready)?;
            for _ in 0..3 {
                twins.run(&[read])?;
                twins.exchange(&synced(&[at_once(read)]), 1)?;
                rest();
            }
            Twins::new(&pair)?.until_hit(&query(read))?;
        }
    }
    Ok(())
}

/// A statement taken on a temporary table is not the permanent table's, however the temporary one went.
fn prepared_on_a_temporary_table(version: Version) -> Result<()> {
    let functions = "create table u (id int primary key, v text);
        insert into u values (1, 'permanent');
        create function makes() returns void language plpgsql as
            $$ begin create temporary table u (id int, v int); insert into u values (1, 42); end $$;
        create function drops() returns void language plpgsql as $$ begin drop table pg_temp.u; end $$";
    let pair = pair(version, functions)?;
    let text = "select v from u where id = 1";
    let described = synced(&[parse("s", text), describe_statement("s")]);
    let on_commit = "create temporary table u on commit drop as select 1 as id, 42 as v";
    let ways: [(&[&str], &[&str]); 4] = [
        (&["begin", on_commit], &["commit"]),
        (&["begin", on_commit], &["rollback"]),
        (&["select makes()"], &["select drops()"]),
        (&["begin", "select makes()", "select drops(); select makes()"], &["select drops()", "commit"]),
    ];
    for (comes, goes) in ways {
        let mut other = Twins::new(&pair)?;
        other.exchange(&described, 1)?;
        other.until_hit(&synced(&[bound("s")]))?;
        let mut twins = Twins::new(&pair)?;
        twins.run(&[text])?;
        twins.run(comes)?;
        twins.exchange(&described, 1)?;
        twins.exchange(&synced(&[bound("s")]), 1)?;
        twins.run(goes)?;
        for _ in 0..3 {
            twins.run(&["select 1"])?;
            other.until_hit(&synced(&[bound("s")]))?;
            twins.exchange(&synced(&[bound("s")]), 1).with_context(|| format!("{comes:?} {goes:?}"))?;
        }
    }
    Ok(())
}

/// `Query` ends the unnamed statement, also if it is served from the cache and the batch of the `Parse` has failed.
fn an_unnamed_statement_of_a_failed_batch(version: Version) -> Result<()> {
    let pair = pair(version, &format!("{SCHEMA} create table k (id int, v int)"))?;
    for prepared in ["select id, v from t", "insert into k values (9, 9)"] {
        let failing = synced(&[parse("", prepared), describe_portal(""), execute("", 0)]);
        once(|| {
            let mut twins = Twins::new(&pair)?;
            twins.run(&[READ])?;
            rest();
            twins.exchange(&failing, 1)?;
            rest();
            let hit = twins.hits(&query(READ))?;
            twins.exchange(&synced(&[bound("")]), 1)?;
            twins.run(&["select count(*) from k"])?;
            Ok(hit)
        })?;
    }
    Ok(())
}

/// What was to end a statement failed or was skipped: the statement is there, and does what it does.
fn a_statement_that_was_not_deallocated(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let kept = [
        [query("begin"), query("select 1 / 0"), query("deallocate d"), query("rollback")].to_vec(),
        vec![synced(&[parse("", "selec"), close_statement("d")])],
        vec![synced(&[parse("d", "select 1")])],
    ];
    for messages in kept {
        let mut twins = Twins::new(&pair)?;
        twins.exchange(&synced(&[parse("d", "discard all")]), 1)?;
        twins.exchange(&synced(&[parse("k", READ)]), 1)?;
        twins.until_hit(&synced(&[bound("k")]))?;
        for message in &messages {
            twins.exchange(message, 1)?;
        }
        twins.exchange(&synced(&[bound("d")]), 1)?;
        // The same key as that of the deallocated statement.
        twins.until_hit(&synced(&[at_once(READ)]))?;
        twins.exchange(&synced(&[bound("k")]), 1)?;
    }
    Ok(())
}

/// A `Sync` within COPY data is ignored only if the COPY gets as far as reading it.
fn copies_that_fail_before_their_data(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}
        create table b (id int);
        create table guarded (id int);
        create function refuses() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
        create trigger refuses before insert on guarded for each statement execute function refuses();
        create view w as select 1 as x union select 3"
    );
    let pair = pair(version, &schema)?;
    let data = || [copy_data(b"1\n"), copy_done()].concat();
    let behind =
        [query("select pg_sleep(0.3), 7"), query(READ), query("set application_name = x"), query(READ)].concat();
    for copy in ["copy w from stdin", "copy b from stdin freeze", "copy guarded from stdin", "copy absent from stdin"] {
        let mut twins = Twins::new(&pair)?;
        twins.until_hit(&query(READ))?;
        let extended = [synced(&[at_once(copy)]), data(), sync(), behind.clone()].concat();
        twins.exchange(&extended, 6).context("the extended protocol")?;
        twins.run(&[READ, "select 8"])?;
        let mut twins = Twins::new(&pair)?;
        twins.until_hit(&query(READ))?;
        let simple = [query(copy), copy_data(b"1\n"), sync(), copy_done(), behind.clone()].concat();
        twins.exchange(&simple, 6).context("a query")?;
        twins.run(&[READ, "select 8"])?;
    }
    let mut twins = Twins::new(&pair)?;
    twins.until_hit(&query(READ))?;
    let with_sync = || [copy_data(b"1\n"), sync(), copy_done()].concat();
    let two = [query("copy b from stdin; copy b from stdin"), with_sync(), with_sync()].concat();
    twins.exchange(&[two, query(READ), sync(), query(READ)].concat(), 4).context("two in one query")?;
    let one = [synced(&[at_once("copy b from stdin")]), data(), sync(), query(READ), query(READ)].concat();
    twins.exchange(&one, 3).context("one that does not fail")?;
    twins.run(&["select count(*) from b", READ])
}

/// The server ends the session there; what is behind it may not be served from the cache.
fn nothing_is_answered_behind_an_unknown_message(version: Version) -> Result<()> {
    let pair = pair(version, SCHEMA)?;
    let unknown = || frame(b'z', &[]);
    let within_batch =
        [parse("", READ), bind_text("", "", &[]), unknown(), execute("", 0), sync(), query(READ)].concat();
    let conversations = [
        [query(READ), unknown(), query(READ)].concat(),
        [query(READ), unknown(), synced(&[at_once(READ)])].concat(),
        [within_batch, query(READ)].concat(),
    ];
    for messages in conversations {
        let mut twins = Twins::new(&pair)?;
        twins.until_hit(&query(READ))?;
        twins.until_hit(&synced(&[at_once(READ)]))?;
        twins.last_words(&messages)?;
    }
    Ok(())
}

/// What sessions begin with: their first read needs neither the log end nor the stream.
fn settings_show_nothing(version: Version) -> Result<()> {
    static QUIET: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    let start = || version.start(&Settings::default()).expect("the quiet server starts");
    let server = QUIET[version as usize].get_or_init(start).clone();
    let pair = Pair::over(Database::create(server)?, SCHEMA, &["--max-staleness", "10m"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let begins = [
        vec![query("select set_config('TimeZone', 'UTC', false)")],
        vec![query("set standard_conforming_strings = on")],
        vec![synced(&[at_once("set statement_timeout to 10000")])],
        vec![synced(&[at_once("select set_config('search_path', 'public', false)")])],
        vec![query("set client_min_messages to 'warning'"), query("set session timezone to 'UTC'")],
    ];
    let begun = |begin: &[Vec<u8>]| {
        let mut client = pair.connect()?;
        begin.iter().try_for_each(|messages| client.exchange(messages, 1).map(|_| ()))?;
        Ok::<_, anyhow::Error>(client)
    };
    for begin in &begins {
        until_hit(&pair, &mut begun(begin)?, READ)?;
    }
    rest();
    let stopped = Stopped::new(&pair)?;
    pair.database.run("update t set v = 0 where id = 3")?;
    for begin in &begins {
        let mut client = begun(begin)?;
        let before = pair.freshet.metrics()?;
        ensure!(client.value(READ)? == "100");
        let after = pair.freshet.metrics()?;
        let what = begin.concat().escape_ascii().to_string();
        ensure!(after.hits() == before.hits() + 1, "no hit after {what}: {:?}", after.passed_since(&before));
    }
    drop(stopped);
    Ok(())
}
