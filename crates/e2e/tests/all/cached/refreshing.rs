//! Results that a change invalidated while they were in use are refreshed before the next reader asks.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings};

use super::{SCHEMA, until_hit};
use crate::support::frames::{bind, describe_portal, describe_statement, execute, parse, query, sync};
use crate::support::{Database, Login, Message, Metrics, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    a_hot_row_under_writes,
    what_is_not_used_does_not_come_back,
    answers_are_those_of_the_session,
    answers_are_those_of_the_role,
    backslashes_are_read_as_the_session_reads_them,
    the_share_is_kept,
    none_without_a_share_or_while_switched_off,
);

const READ: &str = "select votes from film where id = 1";

/// Refreshing has all the time it wants.
fn pair(version: Version) -> Result<Option<Pair>> {
    with_share(version, "1")
}

fn with_share(version: Version, share: &str) -> Result<Option<Pair>> {
    on_server(quiet(version), share)
}

fn on_server(server: Arc<Server>, share: &str) -> Result<Option<Pair>> {
    let pair = Pair::over(Database::create(server)?, SCHEMA, &["--refresh-share", share])?;
    Ok(pair.freshet.is_there().then_some(pair))
}

/// A server on which no test makes or changes roles, which would have the cache flushed.
fn quiet(version: Version) -> Arc<Server> {
    static SERVERS: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    SERVERS[version as usize].get_or_init(|| version.start(&Settings::default()).expect("the server starts")).clone()
}

fn refreshed(metrics: &Metrics) -> u64 {
    metrics.count("freshet_refreshed_total")
}

/// Waits until so many results have been read again since.
fn until_refreshed(pair: &Pair, before: &Metrics, count: u64) -> Result<()> {
    refreshed_within(PATIENCE, pair, before, count)
}

fn refreshed_within(patience: Duration, pair: &Pair, before: &Metrics, count: u64) -> Result<()> {
    eventually(patience, || {
        let now = pair.freshet.metrics()?;
        let more = refreshed(&now) - refreshed(before);
        ensure!(more >= count, "{more} of {count} are refreshed; the log:\n{}", pair.freshet.log());
        Ok(())
    })
}

/// Every read after a write sees it, nearly all come from the cache, and the database runs the statement once per write.
fn a_hot_row_under_writes(version: Version) -> Result<()> {
    const WRITES: u64 = 40;
    let Some(pair) = pair(version)? else { return Ok(()) };
    let (mut writer, mut readers) = (pair.connect()?, [pair.connect()?, pair.connect()?, pair.connect()?]);
    for reader in &mut readers {
        until_hit(&pair, reader, READ)?;
    }
    let start = pair.freshet.metrics()?;
    let (mut fills, mut missed) = (0, 0);
    for write in 0..WRITES {
        let before = pair.freshet.metrics()?;
        let votes = 1000 + write;
        writer.run(&format!("update film set votes = {votes} where id = 1"))?;
        if write % 4 == 3 {
            // At once: for every reader of the row the answer is the new one.
            for reader in &mut readers {
                ensure!(reader.value(READ)? == votes.to_string(), "an old answer after write {write}");
            }
            until_hit(&pair, &mut readers[0], READ)?;
            continue;
        }
        if let Err(error) = refreshed_within(PATIENCE / 6, &pair, &before, 1) {
            // On a busy machine one may be given up, or the result be flushed before the write: the stream tells late of the definitions that were made at the start.
            missed += 1;
            ensure!(missed < 4, "{error}");
        }
        for reader in &mut readers {
            ensure!(reader.value(READ)? == votes.to_string(), "an old answer after write {write}");
        }
        until_hit(&pair, &mut readers[0], READ)?;
        fills += pair.freshet.metrics()?.count("freshet_fills_total") - before.count("freshet_fills_total");
    }
    let end = pair.freshet.metrics()?;
    let read_again = end.count("freshet_refreshes_total") - start.count("freshet_refreshes_total");
    ensure!(read_again <= WRITES, "{read_again} times for {WRITES} writes");
    // Who asks at once may have to: only the others are counted.
    ensure!(
        fills <= WRITES / 8 + missed,
        "{fills} times readers had to fill the cache; {:?}",
        end.passed_since(&start)
    );
    Ok(())
}

fn what_is_not_used_does_not_come_back(version: Version) -> Result<()> {
    let Some(pair) = pair(version)? else { return Ok(()) };
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let other = "select votes from film where id = 2";
    until_hit(&pair, &mut c, READ)?;
    let before = pair.freshet.metrics()?;
    writer.run("update film set votes = 1001 where id = 1")?;
    until_refreshed(&pair, &before, 1)?;
    // It was not read since.
    writer.run("update film set votes = 1002 where id = 1")?;
    // What comes later is refreshed later.
    until_hit(&pair, &mut c, other)?;
    let later = pair.freshet.metrics()?;
    writer.run("update film set votes = 1003 where id = 2")?;
    until_refreshed(&pair, &later, 1)?;
    let all = pair.freshet.metrics()?.count("freshet_refreshes_total") - before.count("freshet_refreshes_total");
    ensure!(all == 2, "{all} results were read again");
    ensure!(c.value(READ)? == "1002" && c.value(other)? == "1003", "old answers");
    Ok(())
}

/// Statements by both protocols, text and binary.
fn conversations() -> Vec<Vec<u8>> {
    let sql = "select shot, born, data, score, span from scene where id = ";
    let bound = |results: &[i16], [statement, portal]: [bool; 2]| {
        let described = |is: bool, message: Vec<u8>| if is { message } else { Vec::new() };
        let values = crate::support::frames::Bound { formats: &[], values: &[Some(b"1")], results };
        let parse = [parse("", &format!("{sql}$1")), described(statement, describe_statement(""))].concat();
        [parse, bind("", "", values), described(portal, describe_portal("")), execute("", 0), sync()].concat()
    };
    vec![
        query(&format!("{sql}1")),
        bound(&[0], [false, true]),
        bound(&[1], [false, true]),
        bound(&[1, 0, 1, 0, 1], [false, false]),
        bound(&[1], [true, false]),
    ]
}

const SETTINGS: [&str; 4] = [
    "set timezone = 'UTC'",
    "set timezone = 'Asia/Kathmandu'; set datestyle = 'German, DMY'; set bytea_output = 'escape'",
    "set timezone = '<+02>-02'; set intervalstyle = 'iso_8601'; set extra_float_digits = -3; set datestyle = 'SQL'",
    "set search_path = pg_catalog, \"o'dd \"\"schema\", public; set client_min_messages = warning",
];

fn answers_are_those_of_the_session(version: Version) -> Result<()> {
    let Some(pair) = pair(version)? else { return Ok(()) };
    pair.database.run(
        "create table scene (id int primary key, shot timestamptz, born date, data bytea, score float8, span interval);
         insert into scene values (1, '2026-07-01 12:00+00', '2026-02-03', '\\x00ff41', 0.1, '1 day 02:03');
         create schema \"o'dd \"\"schema\";
         create table \"o'dd \"\"schema\".scene (like public.scene including all);
         insert into \"o'dd \"\"schema\".scene select id, shot, born, 'other', score, span from public.scene",
    )?;
    let mut sessions = Vec::new();
    for settings in SETTINGS {
        let (mut direct, mut through) = (pair.database.connect()?, pair.connect()?);
        direct.run(settings)?;
        through.run(settings)?;
        sessions.push((settings, direct, through));
    }
    for round in 0..3 {
        for (_, _, through) in &mut sessions {
            for conversation in conversations() {
                hits(&pair, through, &conversation)?;
            }
        }
        let before = pair.freshet.metrics()?;
        let change = format!("score = 0.1 + {round}, shot = shot + interval '1 day', data = data || '\\x5c'");
        pair.connect()?.run(&format!(
            "update scene set {change} where id = 1; update \"o'dd \"\"schema\".scene set {change} where id = 1"
        ))?;
        until_refreshed(&pair, &before, (SETTINGS.len() * conversations().len()) as u64)?;
        for (settings, direct, through) in &mut sessions {
            for conversation in conversations() {
                let truth = direct.exchange(&conversation, 1)?;
                let filled = pair.freshet.metrics()?.count("freshet_fills_total");
                let (answer, _) = hits(&pair, through, &conversation)?;
                ensure!(answer == truth, "{settings}: {answer:?} instead of {truth:?}");
                let fills = pair.freshet.metrics()?.count("freshet_fills_total") - filled;
                ensure!(fills == 0, "{settings}: a reader had to fill the cache");
            }
        }
    }
    Ok(())
}

/// Asks until the answer comes from the cache; how often that was.
fn hits(pair: &Pair, client: &mut RawClient, conversation: &[u8]) -> Result<(Vec<Message>, u64)> {
    let mut times = 0;
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let answer = client.exchange(conversation, 1)?;
        times += 1;
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "no hit: {:?}", after.passed_since(&before));
        Ok((answer, times))
    })
}

/// A result that one role's session has filled is refreshed as that role; its answer is for no other role.
fn answers_are_those_of_the_role(version: Version) -> Result<()> {
    let Some(pair) = on_server(version.start(&Settings::default())?, "1")? else { return Ok(()) };
    let role = |name: &str| format!("{}_{name}", pair.database.name);
    let (reader, member, blind) = (role("reader"), role("mem ber\"s"), role("blind"));
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    pair.database.run(&format!(
        "create role {0} login; create role {1} login; create role {2} login; grant {0} to {1};
         grant select on film to {0};
         create schema {2}; grant usage on schema {2} to {2};
         create table {2}.film (like film including all); insert into {2}.film select * from film;
         update {2}.film set votes = -1; grant select on {2}.film to {2}",
        quoted(&reader),
        quoted(&member),
        quoted(&blind)
    ))?;
    let connect = |user: &str| RawClient::login(pair.address(), Login { user, ..pair.login() });
    let (mut plain, mut as_role, mut other) = (connect(&reader)?, connect(&member)?, connect(&blind)?);
    as_role.run(&format!("set role {}", quoted(&reader)))?;
    let mut own = pair.connect()?;
    for round in 0..3 {
        for client in [&mut plain, &mut as_role, &mut own, &mut other] {
            until_hit(&pair, client, READ)?;
        }
        let before = pair.freshet.metrics()?;
        let mut writer = pair.connect()?;
        writer.run(&format!("update film set votes = {} where id = 1", 2000 + round))?;
        writer.run(&format!("update {}.film set votes = {} where id = 1", quoted(&blind), -2000 - round))?;
        until_refreshed(&pair, &before, 4)?;
        for client in [&mut plain, &mut as_role, &mut own] {
            ensure!(client.value(READ)? == (2000 + round).to_string(), "not what this role reads");
        }
        ensure!(other.value(READ)? == (-2000 - round).to_string(), "not what the other role reads");
    }
    // A result that a role may no longer read is not refreshed for it.
    pair.database.run(&format!("revoke select on film from {}", quoted(&reader)))?;
    pair.connect()?.run("update film set votes = 3000 where id = 1")?;
    let refused = plain.query(READ)?;
    let refused = refused.iter().find(|m| m.tag == b'E').context("the answer of one who may not read")?;
    ensure!(refused.field(b'C').as_deref() == Some("42501"), "{refused:?}");
    ensure!(own.value(READ)? == "3000", "an old answer");
    Ok(())
}

/// Under `standard_conforming_strings = off` one backslash of two is meant, whoever reads the text: the reader's own row invalidates it each time.
fn backslashes_are_read_as_the_session_reads_them(version: Version) -> Result<()> {
    let Some(pair) = pair(version)? else { return Ok(()) };
    pair.database.run(r"insert into film values (901, 'a\b'), (902, 'a\\b')")?;
    let (mut through, mut writer) = (pair.connect()?, pair.connect()?);
    through.run("set standard_conforming_strings = off; set escape_string_warning = off")?;
    let read = r"select sum(votes) from film where title = 'a\\b'";
    for round in 1..8 {
        until_hit(&pair, &mut through, read)?;
        until_hit(&pair, &mut through, READ)?;
        let before = pair.freshet.metrics()?;
        writer.run(&format!(r"update film set votes = {round} where title = 'a\b' or id = 1"))?;
        // The other one's refresh shows that there was time for this one's.
        until_refreshed(&pair, &before, 1)?;
        let now = through.value(read)?;
        ensure!(now == round.to_string(), "{now} after write {round}");
    }
    Ok(())
}

/// In the long run; at first something is saved up.
fn the_share_is_kept(version: Version) -> Result<()> {
    const SHARE: f64 = 0.02;
    let Some(pair) = with_share(version, &SHARE.to_string())? else { return Ok(()) };
    let start = Instant::now();
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    // It takes a while.
    let sql = "select count(*) from film a, film b, role c where a.votes + b.votes + c.film_id > 100
        and c.film_id < 4";
    let mut longest = Duration::ZERO;
    // What refreshing took in one round, one statement as a rule: on a busy machine far longer than where it was measured.
    let (mut last, mut most) = (0.0, 0.0_f64);
    for round in 0..30 {
        let before = Instant::now();
        writer.query(sql)?;
        longest = longest.max(before.elapsed());
        until_hit(&pair, &mut c, sql)?;
        let so_far = pair.freshet.metrics()?.value("freshet_refresh_seconds_total");
        most = most.max(so_far - last);
        last = so_far;
        writer.run(&format!("update film set votes = {round} where id = 1"))?;
    }
    let metrics = pair.freshet.metrics()?;
    let spent = metrics.value("freshet_refresh_seconds_total");
    // What was saved up, and one statement, which begins while there is time left; for a busy machine, two.
    let allowed = SHARE * start.elapsed().as_secs_f64() + 0.2 + most.max(2.0 * longest.as_secs_f64());
    ensure!(spent <= allowed, "{spent} s of {allowed} s");
    Ok(())
}

fn none_without_a_share_or_while_switched_off(version: Version) -> Result<()> {
    for share in ["0", "1"] {
        let Some(pair) = with_share(version, share)? else { return Ok(()) };
        let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
        for round in 0..5 {
            until_hit(&pair, &mut c, READ)?;
            if share == "1" {
                writer.query("freshet bypass on")?;
            }
            let before = pair.freshet.metrics()?.count("freshet_invalidations_total");
            writer.run(&format!("update film set votes = {} where id = 1", 1000 + round))?;
            ensure!(c.value(READ)? == (1000 + round).to_string(), "an old answer");
            // The stream may come later than the write's acknowledgement, which is not held for ever.
            eventually(PATIENCE, || {
                let invalidated = pair.freshet.metrics()?.count("freshet_invalidations_total") > before;
                ensure!(invalidated, "the write was not delivered");
                Ok(())
            })?;
            writer.query("freshet bypass off")?;
        }
        let metrics = pair.freshet.metrics()?;
        ensure!(metrics.count("freshet_refreshes_total") == 0, "share {share}: something was read again");
    }
    Ok(())
}
