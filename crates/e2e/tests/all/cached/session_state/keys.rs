//! Settings: those that change results are in the key, all others share results.

use std::time::Duration;

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::{READ, Twins, each, pair, pair_of, same};
use crate::support::frames::{bind_text, execute, parse, query, sync, unnamed};
use crate::support::{Database, Message, PATIENCE, Pair, Version, eventually, on_both, pace, time_passes};

on_both!(
    settings_with_keys_of_their_own,
    settings_that_share_keys,
    ways_back,
    search_paths,
    settings_that_bypass,
    backslashes_in_constants,
    backslashes_behind_an_unanswered_set,
    settings_by_function,
    settings_by_triggers,
    the_context_comes_with_the_end_of_the_log,
    the_end_of_the_log_is_asked_for_where_it_is_used,
    a_reloaded_configuration,
    a_reloaded_configuration_under_shared_readings,
);

const OWN_KEYS: &[&str] = &[
    "set timezone = 'Asia/Tokyo'",
    "set time zone interval '+05:30' hour to minute",
    "set datestyle = 'sql, dmy'",
    "set datestyle = 'german'",
    "set intervalstyle = 'iso_8601'",
    "set extra_float_digits = -10",
    "set extra_float_digits = 3",
    "set bytea_output = 'escape'",
    "set client_encoding = 'latin1'",
    "set xmlbinary = 'hex'",
    "set xmloption = 'document'",
    "set lc_monetary = 'C.UTF-8'",
    "set lc_numeric = 'C.UTF-8'",
    "set lc_time = 'C.UTF-8'",
    "set row_security = off",
    "set array_nulls = off",
    "set transform_null_equals = on",
    "set quote_all_identifiers = on",
    "set timezone_abbreviations = 'India'",
    "set search_path = other",
];

fn settings_with_keys_of_their_own(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    each(OWN_KEYS, |set| {
        twins.run(&[set])?;
        twins.new_key(READ)?;
        twins.run(&["reset all"])?;
        twins.known_key(READ)
    })?;
    // Each of them is still known, to this session and to others.
    let mut others = Twins::new(&pair)?;
    each(OWN_KEYS, |set| {
        others.run(&[set])?;
        others.known_key(READ)?;
        others.run(&["reset all"])
    })
}

/// None of them can change what is read, so none may cost a hit.
fn settings_that_share_keys(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    let shared = [
        "set application_name = 'another'",
        "set statement_timeout = '30s'",
        "set lock_timeout = '10s'",
        "set idle_in_transaction_session_timeout = '30s'",
        "set work_mem = '8MB'",
        "set maintenance_work_mem = '8MB'",
        "set enable_seqscan = off",
        "set random_page_cost = 1.1",
        "set jit = off",
        "set plan_cache_mode = force_generic_plan",
        "set synchronous_commit = off",
        "set default_transaction_read_only = on",
        "set default_transaction_isolation = 'repeatable read'",
        "set session characteristics as transaction read only",
        "set lc_messages = 'C.UTF-8'",
        "set log_min_duration_statement = 1000",
        "set session_replication_role = replica",
        "set default_tablespace = ''",
        "set a_custom.setting = 'tenant 7'",
    ];
    each(&shared, |set| {
        twins.run(&[set])?;
        twins.known_key(READ)
    })?;
    twins.run(&["reset all"])?;
    twins.known_key(READ)
}

/// However a setting is taken back, the old key is found again.
fn ways_back(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    twins.run(&["set timezone = 'Asia/Tokyo'"])?;
    twins.new_key(READ)?;
    let back = [
        "reset timezone",
        "reset all",
        "set timezone to default",
        "set time zone local",
        "discard all",
        "set session timezone = default",
        "reset time zone",
        "select set_config('timezone', reset_val, false) from pg_settings where name = 'TimeZone'",
    ];
    each(&back, |sql| {
        twins.run(&[sql])?;
        twins.known_key(READ)?;
        twins.run(&["set timezone = 'Asia/Tokyo'"])?;
        twins.known_key(READ)
    })?;
    twins.run(&["discard all"])?;
    let harmless = ["discard plans", "discard sequences", "discard temp", "set names 'utf8'", "deallocate all"];
    each(&harmless, |sql| {
        twins.run(&[sql])?;
        twins.known_key(READ)
    })
}

/// The same name means another table; a qualified one does not, but Freshet may keep it twice.
fn search_paths(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for path in ["other", "other, public", "\"$user\", other", "public", "nowhere, other", "pg_catalog, other"] {
        twins.run(&[&format!("set search_path = {path}")])?;
        twins.new_key(READ)?;
        twins.run(&["reset search_path"])?;
        twins.known_key(READ)?;
    }
    twins.run(&["set schema 'other'"])?;
    twins.fills_until_hit(&query(READ))?;
    twins.run(&["set search_path = other, pg_catalog"])?;
    // Built-in functions and operators could be shadowed.
    twins.passes(READ, "construct")
}

fn settings_that_bypass(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for (set, reason) in [
        ("set default_transaction_isolation = 'serializable'", "serializable"),
        ("set session characteristics as transaction isolation level serializable", "serializable"),
        ("set client_min_messages = debug5", "setting"),
    ] {
        twins.run(&[set])?;
        twins.passes(READ, reason)?;
        twins.run(&["reset all"])?;
        twins.known_key(READ)?;
    }
    Ok(())
}

/// Under `standard_conforming_strings = off` they are escapes.
fn backslashes_in_constants(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    let escaped = r"select id, name, 'it\'s' as q from sample where name = 'a\\b' or name = '\'' -- '";
    let plain = r"select id, name from sample where name = 'a\\b'";
    twins.new_key(plain)?; // there is no such row
    twins.run(&["set standard_conforming_strings = off"])?;
    twins.new_key(READ)?;
    // The server warns of each.
    twins.run(&[plain, plain])?;
    twins.run(&["set escape_string_warning = off"])?;
    twins.new_key(plain)?;
    twins.new_key(escaped)?;
    let bound = [unnamed(escaped, &[]), sync()].concat();
    twins.fills_until_hit(&bound)?;
    twins.exchange(&[parse("s", plain), sync()].concat(), 1)?;
    let prepared = [bind_text("", "s", &[]), execute("", 0), sync()].concat();
    twins.fills_until_hit(&prepared)?;
    for write in [r"update sample set name = 'a\\b' where id = 1", r"update sample set name = '\'' where id = 2"] {
        twins.run(&[write])?;
        twins.fills_until_hit(&query(plain))?;
        twins.fills_until_hit(&query(escaped))?;
        twins.fills_until_hit(&prepared)?;
    }
    twins.fills_until_hit(&query(READ))?;
    // One statement, not three.
    twins.run(&[r"select '\'; set timezone = \'Asia/Tokyo\'; select \'', name from sample where id = 1"])?;
    twins.known_key(READ)?;
    // Two that look like one.
    twins.run(&[r"select '\\'; set timezone = 'Asia/Tokyo' --'"])?;
    twins.new_key(READ)?;
    twins.run(&["reset all", plain])?;
    twins.exchange(&prepared, 1)?;
    twins.fills_until_hit(&query(plain))?;
    twins.exchange(&prepared, 1)?;
    // What was read as the settings at its Parse say is not taken for what they would make of it now, nor is it read again.
    twins.run(&["set escape_string_warning = off"])?;
    twins.exchange(&[parse("t", plain), sync()].concat(), 1)?;
    twins.run(&["set standard_conforming_strings = off"])?;
    twins.passes_as(&[bind_text("", "t", &[]), execute("", 0), sync()].concat(), "settings_unknown")
}

/// What is parsed behind a SET that is not answered yet is read as the SET says, or not at all.
fn backslashes_behind_an_unanswered_set(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let plain = r"select id, name from sample where name = 'a\\b'";
    for (before, after) in [("on", "off"), ("off", "on")] {
        let mut twins = Twins::new(&pair)?;
        let set = |value: &str| query(&format!("set standard_conforming_strings = {value}"));
        twins.run(&["set escape_string_warning = off"])?;
        twins.exchange(&set(before), 1)?;
        twins.fills_until_hit(&query(plain))?;
        let bound = [bind_text("", "s", &[]), execute("", 0), sync()].concat();
        let pipelined = [set(after), parse("s", plain), sync(), bound.clone(), bound.clone()].concat();
        twins.exchange(&pipelined, 4)?;
        for name in ["a", r"a\b", "a", r"a\\b", "a"] {
            for _ in 0..4 {
                twins.exchange(&bound, 1)?;
                twins.exchange(&query(plain), 1)?;
            }
            twins.run(&[&format!("update sample set name = e'{}' where id = 1", name.replace('\\', r"\\"))])?;
        }
        twins.exchange(&bound, 1)?;
    }
    Ok(())
}

fn settings_by_function(version: Version) -> Result<()> {
    let schema = format!(
        "{}
        create function hide() returns void language plpgsql as $$ begin set search_path = other; end $$;
        create function within(int) returns int language sql set timezone = 'Asia/Tokyo' as 'select $1';",
        super::SCHEMA
    );
    let pair = pair_of(version, &schema)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    // The function's own setting ends with it.
    twins.run(&["select within(1)"])?;
    twins.known_key(READ)?;
    let sets = [
        "select set_config('timezone', 'Asia/Tokyo', false)",
        "do $$ begin perform set_config('timezone', 'Asia/Kolkata', false); end $$",
        "update pg_settings set setting = 'Asia/Dhaka' where name = 'TimeZone'",
        "select hide()",
    ];
    each(&sets, |set| {
        twins.run(&[set])?;
        twins.new_key(READ)?;
        twins.run(&["reset all"])?;
        twins.known_key(READ)
    })?;
    // Until the end of the transaction, which is the statement's own.
    twins.run(&["select set_config('timezone', 'Asia/Tokyo', true)"])?;
    twins.known_key(READ)
}

/// A table whose rows change a setting of who writes them.
const TRIGGER: &str = "
    create table note (digits text);
    create function set_digits() returns trigger language plpgsql as $$ begin
        if new.digits is not null then perform set_config('extra_float_digits', new.digits, false); end if;
        return new; end $$;
    create trigger set_digits before insert on note for each row execute function set_digits();";

fn settings_by_triggers(version: Version) -> Result<()> {
    let pair = pair_of(version, &format!("{}{TRIGGER}", super::SCHEMA))?;
    let mut twins = Twins::new(&pair)?;
    let (changes, quiet, back) =
        ("insert into note values ('-10')", "insert into note values (null)", "insert into note values ('1')");
    twins.new_key(READ)?;
    twins.run(&[quiet])?;
    twins.known_key(READ)?;
    twins.run(&[changes])?;
    twins.new_key(READ)?;
    let batch = |sql| [unnamed(sql, &[]), sync()].concat();
    let ways: [&[Vec<u8>]; 5] = [
        &[query(changes)],
        &[batch(changes)],
        &[query("begin"), query(changes), query("commit")],
        &[query("begin"), query(READ), query(quiet), query(changes), query("commit")],
        &[query("begin"), query(changes), query("savepoint s"), query(back), query("rollback to s"), query("commit")],
    ];
    each(&ways, |way| {
        twins.run(&[back])?;
        twins.known_key(READ)?;
        way.iter().try_for_each(|message| twins.exchange(message, 1))?;
        twins.known_key(READ)?;
        twins.run(&[back, "begin", changes, "rollback"])?;
        twins.known_key(READ)?;
        // Without waiting for each answer.
        let reads = || query(READ);
        let all = [query(changes), reads(), query(back), reads(), query(changes), batch(quiet), reads()];
        twins.exchange(&all.concat(), all.len())
    })
}

/// A session that reads and writes by turns asks for its context with the end of the log, behind the write, and not once more.
fn the_context_comes_with_the_end_of_the_log(version: Version) -> Result<()> {
    let pair = pair_of(version, &format!("{}{TRIGGER}", super::SCHEMA))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    let quiet = "insert into note values (null)";
    let ways: [&[&str]; 2] = [&[quiet], &["begin", READ, quiet, "commit"]];
    for way in ways {
        twins.run(way)?;
        twins.known_key(READ)?;
        let alone = asked(&mut twins, "_freshet_context")?;
        let with_end = asked(&mut twins, "_freshet_end_context")?;
        for _ in 0..5 {
            twins.run(way)?;
            twins.run(&[READ])?;
        }
        let more = asked(&mut twins, "_freshet_context")? - alone;
        // Once behind the question that counts, which may be taken for a write.
        ensure!(more <= 1, "the context was asked for {more} more times");
        let more = asked(&mut twins, "_freshet_end_context")? - with_end;
        ensure!(more >= 4, "the context came with the end of the log {more} times");
        // Of several writes in a row the first one, behind the question that counts.
        let before = asked(&mut twins, "_freshet_end_context")?;
        twins.run(&[quiet, quiet, quiet, quiet])?;
        let more = asked(&mut twins, "_freshet_end_context")? - before;
        ensure!(more <= 1, "the context came with the end of the log {more} times although nothing was read");
    }
    Ok(())
}

/// Behind a read that passes the end of the log is asked for where the next look-up needs it, and hardly where another statement comes first, or
/// nothing is looked up any more.
fn the_end_of_the_log_is_asked_for_where_it_is_used(version: Version) -> Result<()> {
    let pair =
        pair_of(version, &format!("{} create table plain (n int); insert into plain values (1)", super::SCHEMA))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    let passes = "select random() < 2, * from sample";
    // In forty times: how often it is asked for, and how many reads do not hit since the change stream is late; these ask for
    // themselves.
    let mut asked_in = |way: &[&str]| -> Result<(u64, u64)> {
        twins.known_key(READ)?;
        let before = asked(&mut twins, "_freshet_end")?;
        let hits = pair.freshet.metrics()?.hits();
        (0..40).try_for_each(|_| twins.run(way))?;
        let hits = pair.freshet.metrics()?.hits() - hits;
        Ok((asked(&mut twins, "_freshet_end")? - before, 40 - hits))
    };
    for way in [&[passes, READ][..], &["begin", passes, "commit", READ]] {
        let (used, _) = asked_in(way)?;
        ensure!(used >= 30, "{way:?}: asked {used} times of 40");
    }
    // No entry depends on that table, so that its writes need no commit wait for themselves.
    let written = "update plain set n = n + 1";
    for way in [&[passes, passes, READ], &[passes, written, READ], &[written, passes, READ]] {
        let (used, late) = asked_in(way)?;
        let expected = 30..=50 + late;
        ensure!(
            expected.contains(&used),
            "{way:?}: asked {used} times, needed 40 times, of 80; {late} reads were late"
        );
    }
    let (unused, _) = asked_in(&[passes])?;
    ensure!(unused <= 5, "asked {unused} times for nothing, of 40");
    Ok(())
}

/// How often a statement of Freshet's own was run on the session.
///
/// By a view: for a statement that names the system's Freshet closes its own.
pub(super) fn asked(twins: &mut Twins<'_>, name: &str) -> Result<u64> {
    let count = format!("select coalesce(sum(generic_plans + custom_plans), 0) from prepared where name = '{name}'");
    Ok(twins.through.value(&count)?.parse()?)
}

/// A setting of the whole server changes under idle sessions: they notice together, within D.
fn a_reloaded_configuration(version: Version) -> Result<()> {
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, super::SCHEMA, &[])?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for zone in ["Asia/Tokyo", "America/Lima"] {
        pair.database.server.set("timezone", zone)?;
        let expected = eventually(PATIENCE, || {
            let answer = twins.direct.query(READ)?;
            let reported = twins
                .direct
                .heard
                .iter()
                .any(|m| m.tag == b'S' && m.body.windows(zone.len()).any(|w| w == zone.as_bytes()));
            ensure!(reported, "the server has not noticed {zone}");
            Ok(answer.into_iter().filter(|m| m.tag != b'S').collect::<Vec<_>>())
        })?;
        eventually(PATIENCE, || {
            let answer = twins.through.query(READ)?.into_iter().filter(|m| m.tag != b'S').collect::<Vec<_>>();
            ensure!(answer == expected, "{answer:?} rather than {expected:?}");
            let told = twins
                .through
                .heard
                .iter()
                .any(|m| m.tag == b'S' && m.body.windows(zone.len()).any(|w| w == zone.as_bytes()));
            ensure!(told, "the client got no report of {zone}");
            Ok(())
        })?;
        twins.fills_until_hit(&query(READ))?;
    }
    Ok(())
}

/// A change that the server does not report: results that wait for a shared probe are not cached under the old setting.
fn a_reloaded_configuration_under_shared_readings(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = Pair::over(Database::create(server)?, super::SCHEMA, &["--test-fault", "share-probes"])?;
    let mut twins = Twins::new(&pair)?;
    let read = |number: u32| format!("select bytes, {number} from sample where id = 1");
    let shown = [("escape", "\\000\\377"), ("hex", "\\x00ff"), ("escape", "\\000\\377")];
    for (round, (output, shown)) in shown.into_iter().enumerate() {
        // Shared from the second fill on, once a process has been started since the last change.
        for number in 0..20 {
            twins.fills_until_hit(&query(&read(number)))?;
            pace(Duration::from_millis(100));
        }
        pair.database.server.set("bytea_output", output)?;
        let first = 100 * (round as u32 + 1);
        let mut asked = first;
        eventually(PATIENCE, || {
            asked += 1;
            let (direct, through) = (twins.direct.query(&read(asked))?, twins.through.query(&read(asked))?);
            let noticed = |m: &Message| m.body.windows(shown.len()).any(|bytes| bytes == shown.as_bytes());
            ensure!(direct.iter().any(noticed), "the server has not noticed {output}");
            let (old, both) = (twins.direct.query(&read(0))?, twins.through.query(&read(0))?);
            ensure!(same(&direct, &through) && same(&old, &both), "{through:?}, {both:?}");
            Ok(())
        })?;
        // These may have passed; Freshet notices within D.
        time_passes("D", Duration::from_millis(1_100));
        for number in (0..20).chain(first..asked + 20) {
            twins.fills_until_hit(&query(&read(number)))?;
        }
    }
    Ok(())
}
