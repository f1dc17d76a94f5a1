//! Settings that sessions have set go with them from connection to connection: each session finds its own, and none keeps a connection for them.

use anyhow::{Context, Result, ensure};

use super::operator::{console, shown};
use super::{PID, is_silent, shared, shared_by_one};
use crate::support::frames::{bind_text, describe_portal, describe_statement, execute, parse, query, sync};
use crate::support::{
    Database, PATIENCE, Pair, RawClient, Version, ensure_hits, ensure_same, eventually, on_both, undisturbed,
};

on_both!(
    sessions_have_their_own_settings,
    reads_hit_under_the_settings_of_the_session,
    drivers_begin_without_a_pin,
    each_has_the_settings_of_a_connection_of_its_own,
    a_setting_that_cannot_be_set_again,
    prepared_statements_belong_to_settings,
    a_statement_of_earlier_settings_keeps_the_connection,
    settings_outlive_the_server_and_not_the_login,
    a_reload_of_the_configuration_is_seen_by_all,
);

const SCHEMA: &str = "create table t (id int primary key, at timestamptz); insert into t values (1, '2024-02-01 12:00+00');
    create schema one; create table one.w as select 'one' as v; create schema two; create table two.w as select 'two' as v;
    create function one.zone() returns void language plpgsql as $$ begin perform set_config('timezone', 'Asia/Tokyo', false); end $$;
    create function one.memory() returns void language plpgsql as $$ begin perform set_config('work_mem', '123MB', false); end $$";

/// No session has a pin.
fn without_pins(pair: &Pair) -> Result<()> {
    let mut console = console(pair)?;
    let mut pins = || -> Result<Vec<String>> {
        let rows = shown(&mut console, "show clients")?;
        Ok(rows.into_iter().map(|row| row["pin"].clone()).filter(|pin| !pin.is_empty()).collect())
    };
    eventually(PATIENCE, || {
        let pins = pins()?;
        ensure!(pins.is_empty(), "pinned by {pins:?}");
        Ok(())
    })
}

/// What three sessions set, and what they see then.
const OWN: [(&str, &str, &str); 3] = [
    (
        "set timezone = 'Asia/Tokyo'; set search_path = one; set application_name = 'it''s \\ \"one\"'",
        "Thu 01 Feb 21:00:00 2024 JST",
        "one|it's \\ \"one\"|Postgres, DMY|Asia/Tokyo|0",
    ),
    (
        "set datestyle = 'German'; set search_path = \"two\", \"$user\"; set statement_timeout = 90500",
        "01.02.2024 12:00:00 UTC",
        "two||German, DMY|UTC|90500ms",
    ),
    (
        "set standard_conforming_strings = off; set search_path = one, two",
        "2024-02-01 12:00:00+00",
        "one||ISO, MDY|UTC|0",
    ),
];
const SHOWN: &str = "select v || '|' || current_setting('application_name') || '|' || current_setting('datestyle') || '|' || \
                     current_setting('timezone') || '|' || current_setting('statement_timeout') from w for share";
const AT: &str = "select at from public.t where id = 1";

/// Three sessions, which know of no settings but UTC and their own.
fn three(pair: &Pair) -> Result<Vec<RawClient>> {
    let name = &pair.database.name;
    pair.database.run(&format!(
        "alter database {name} set timezone = 'UTC'; alter database {name} set datestyle = 'ISO, MDY'"
    ))?;
    let mut clients = Vec::new();
    for (set, _, _) in OWN {
        let mut client = pair.connect()?;
        client.run(set)?;
        clients.push(client);
    }
    clients[0].run("set datestyle = 'Postgres, DMY'")?;
    Ok(clients)
}

fn sessions_have_their_own_settings(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut clients = three(&pair)?;
    // It is there from the beginning: a login may need the only connection's place.
    let mut other = pair.connect()?;
    let plain = other.value(PID)?;
    for round in 0..5 {
        for at in [0, 1, 2, 1, 0, 2] {
            let (_, time, all) = OWN[at];
            let told = clients[at].query(SHOWN)?;
            ensure!(told.iter().all(|message| message.tag != b'S'), "round {round}, {at}: {told:?}");
            ensure!(clients[at].value(SHOWN)? == all, "round {round}, {at}: {}", clients[at].value(SHOWN)?);
            ensure!(clients[at].value(&format!("{AT} for share"))? == time, "round {round}, {at}");
        }
        ensure!(other.value("show search_path")? == "\"$user\", public");
        ensure!(other.value(PID)? == plain, "another connection");
    }
    without_pins(&pair)?;
    ensure!(pair.freshet.metrics()?.count("freshet_pool_settings_sent_total") >= 25);
    // The next one to log in has none of them.
    let mut direct = pair.database.connect()?;
    for name in ["timezone", "datestyle", "search_path", "statement_timeout", "standard_conforming_strings"] {
        let show = format!("show {name}");
        ensure!(pair.connect()?.value(&show)? == direct.value(&show)?, "{name}");
    }
    Ok(())
}

fn reads_hit_under_the_settings_of_the_session(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut clients = three(&pair)?;
    let mut busy = pair.connect()?;
    eventually(PATIENCE, || {
        ensure_hits(&pair.freshet, 3, || {
            for (client, (_, time, _)) in clients.iter_mut().zip(OWN) {
                ensure!(client.value(AT)? == time);
            }
            Ok(())
        })
    })?;
    undisturbed(&pair.freshet, || {
        for (client, (_, time, _)) in clients.iter_mut().zip(OWN) {
            ensure!(client.value(AT)? == time && client.value(AT)? == time);
        }
        // No connection is free: only the cache can answer.
        busy.run("begin; select 1 from public.t for share")?;
        let hit = ensure_hits(&pair.freshet, 9, || {
            for _ in 0..3 {
                for (client, (_, time, _)) in clients.iter_mut().zip(OWN) {
                    ensure!(client.value(AT)? == time, "a hit of other settings");
                }
            }
            Ok(())
        });
        busy.run("commit")?;
        hit
    })?;
    // Behind a change each of them sees the new row, and hits again.
    busy.run("update public.t set at = '2024-02-01 13:00+00' where id = 1")?;
    undisturbed(&pair.freshet, || {
        for (client, (_, time, _)) in clients.iter_mut().zip(OWN) {
            let later = time.replace("12:00", "13:00").replace("21:00", "22:00");
            ensure!(client.value(AT)? == later && client.value(AT)? == later);
            ensure_hits(&pair.freshet, 1, || client.value(AT))?;
        }
        Ok(())
    })
}

/// What Rails, Django, JDBC, node-postgres with Knex and psql send at first.
const BEGINNINGS: [&[&str]; 5] = [
    &[
        "SET client_encoding TO 'unicode'",
        "SET client_min_messages TO 'warning'",
        "SET standard_conforming_strings = on",
        "SET intervalstyle = iso_8601",
        "SET SESSION timezone TO 'UTC'",
        "SELECT t.oid, t.typname FROM pg_type as t WHERE t.typname IN ('int2', 'int4', 'int8', 'bool')",
        "SET statement_timeout TO '30s'",
    ],
    &["SELECT set_config('TimeZone', 'Europe/Berlin', false)", "SET default_transaction_isolation TO 'read committed'"],
    &[
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    ],
    &["SET TIME ZONE -3", "SET search_path TO \"one\",\"public\""],
    &["SET client_encoding TO 'LATIN1'", "SET row_security = on", "SET lock_timeout = 0"],
];

fn drivers_begin_without_a_pin(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut clients = Vec::new();
    for statements in BEGINNINGS {
        for _ in 0..2 {
            let (mut direct, mut client) = (pair.database.connect()?, pair.connect()?);
            for sql in statements {
                ensure_same(&direct.query(sql)?, &client.query(sql)?).with_context(|| (*sql).to_owned())?;
            }
            clients.push((direct, client));
        }
    }
    for round in 0..2 {
        for (direct, client) in &mut clients {
            for sql in [
                "show all",
                "update public.t set at = at where id = 1 returning at, 1.1::float8",
                "begin",
                "select now() = now()",
                "commit",
            ] {
                ensure_same(&direct.query(sql)?, &client.query(sql)?)
                    .with_context(|| format!("round {round}: {sql}"))?;
            }
        }
    }
    without_pins(&pair)
}

/// Statements of one session, between which another one uses the connection.
const CONVERSATIONS: [&[&str]; 9] = [
    &["begin", "set timezone = 'Asia/Tokyo'", "rollback", "show timezone"],
    &[
        "begin",
        "set timezone = 'Asia/Tokyo'",
        "commit",
        "show timezone",
        "begin",
        "set timezone = 'UTC'",
        "rollback",
        "show timezone",
    ],
    &["set datestyle = German", "begin", "set local datestyle = 'SQL'", "show datestyle", "commit", "show datestyle"],
    &[
        "begin",
        "savepoint s",
        "set work_mem = '7MB'",
        "rollback to s",
        "set jit = off",
        "commit",
        "show work_mem",
        "show jit",
    ],
    &["select one.zone()", "show timezone", "select one.memory()", "show work_mem", "show timezone"],
    &[
        "select set_config('intervalstyle', 'iso_8601', false)",
        "select '1 day'::interval",
        "reset intervalstyle",
        "select '1 day'::interval",
    ],
    &[
        "set timezone = 'Asia/Tokyo'; set work_mem = '9MB'",
        "show timezone",
        "reset all",
        "show timezone",
        "show work_mem",
    ],
    &[
        "set timezone = 'Asia/Tokyo'",
        "set search_path = two",
        "select v from w",
        "discard all",
        "select v from w",
        "show timezone",
    ],
    &[
        "set timezone = 'Asia/Tokyo'; set timezone = 'nowhere'",
        "show timezone",
        "set timezone to default",
        "show timezone",
        "set local timezone = 'UTC'",
        "show timezone",
    ],
];

fn each_has_the_settings_of_a_connection_of_its_own(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut others = three(&pair)?;
    for (number, conversation) in CONVERSATIONS.iter().enumerate() {
        let (mut direct, mut client) = (pair.database.connect()?, pair.connect()?);
        let mut open = false;
        for (step, sql) in conversation.iter().enumerate() {
            ensure_same(&direct.query(sql)?, &client.query(sql)?)
                .with_context(|| format!("{conversation:?}: {sql}"))?;
            open = match *sql {
                "begin" => true,
                "commit" | "rollback" => false,
                _ => open,
            };
            if !open {
                let at = (number + step) % 3;
                ensure!(others[at].value(SHOWN)? == OWN[at].2, "{conversation:?}: {sql}");
            }
        }
    }
    without_pins(&pair)
}

fn a_setting_that_cannot_be_set_again(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    pair.database.run("create text search configuration one.mine (copy = simple)")?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("set default_text_search_config = 'one.mine'")?;
    ensure!(
        b.value("select current_setting('default_text_search_config') = 'one.mine' from public.t for share")? == "f"
    );
    ensure!(a.value("select current_setting('default_text_search_config') from public.t for share")? == "one.mine");
    pair.database.run("drop text search configuration one.mine")?;
    b.run("select 1 from public.t for share")?;
    a.send(&query("select 1 from public.t for share"))?;
    let told = a.until(b'E')?;
    ensure!(told.iter().any(|message| message.field(b'C').as_deref() == Some("57P01")), "{told:?}");
    for mut client in [b, pair.connect()?] {
        ensure!(
            client
                .value("select current_setting('default_text_search_config') = 'one.mine' from public.t for share")?
                == "f"
        );
    }
    without_pins(&pair)
}

fn prepare(name: &str, sql: &str) -> Vec<u8> {
    [parse(name, sql), describe_statement(name), sync()].concat()
}

fn run(name: &str) -> Vec<u8> {
    [bind_text("", name, &[]), describe_portal(""), execute("", 0), sync()].concat()
}

const DATES: &str = "select '03/02/2024'::date - '2024-01-01'::date, v from w for share";

fn prepared_statements_belong_to_settings(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let sets =
        ["set datestyle = 'SQL, DMY'; set search_path = one", "set datestyle = 'SQL, MDY'; set search_path = two"];
    let mut twins = Vec::new();
    // Several at once: the server has not answered yet what the first has set.
    for set in sets.iter().chain(&sets) {
        let (mut direct, mut client) = (pair.database.connect()?, pair.connect()?);
        for twin in [&mut direct, &mut client] {
            twin.run(set)?;
        }
        ensure_same(&direct.exchange(&prepare("s", DATES), 1)?, &client.exchange(&prepare("s", DATES), 1)?)?;
        twins.push((direct, client));
    }
    for round in 0..3 {
        for (number, (direct, client)) in twins.iter_mut().enumerate() {
            let (expected, got) = (direct.exchange(&run("s"), 1)?, client.exchange(&run("s"), 1)?);
            ensure_same(&expected, &got).with_context(|| format!("round {round}, {number}"))?;
        }
    }
    without_pins(&pair)
}

fn a_statement_of_earlier_settings_keeps_the_connection(version: Version) -> Result<()> {
    let pair = shared_by_one(version, SCHEMA, 2)?;
    let (mut direct, mut client, mut other) = (pair.database.connect()?, pair.connect()?, pair.connect()?);
    let mut both = |bytes: &[u8], ready: usize, what: &str| -> Result<()> {
        ensure_same(&direct.exchange(bytes, ready)?, &client.exchange(bytes, ready)?)
            .with_context(|| what.to_owned())?;
        other.run("select 1 from public.t for share")
    };
    let sets = "set search_path = one; set datestyle = 'SQL, MDY'";
    both(&query(sets), 1, sets)?;
    both(&prepare("s", DATES), 1, "prepared")?;
    both(&query("set datestyle = 'SQL, DMY'"), 1, "changed")?;
    both(&run("s"), 1, "as before")?;
    both(&prepare("later", DATES), 1, "prepared later")?;
    both(&[run("later"), run("s")].concat(), 2, "both")?;
    let mine = client.value(PID)?;
    other.run("begin")?;
    ensure!(other.value(PID)? != mine, "another session has the connection");
    other.run("commit")?;
    // Back again, only the later one keeps it.
    let mut both = |bytes: &[u8], ready: usize| -> Result<()> {
        ensure_same(&direct.exchange(bytes, ready)?, &client.exchange(bytes, ready)?)
    };
    both(&query("set datestyle = 'SQL, MDY'"), 1)?;
    both(&[run("later"), run("s")].concat(), 2)?;
    both(&[crate::support::frames::close_statement("later"), sync()].concat(), 1)?;
    without_pins(&pair)?;
    both(&run("s"), 1)
}

fn settings_outlive_the_server_and_not_the_login(version: Version) -> Result<()> {
    let server = version.start(&freshet_testbed::Settings::default())?;
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "1"];
    let pair = Pair::over(Database::create(server.clone())?, SCHEMA, &options)?;
    let mut clients = three(&pair)?;
    let mut console = console(&pair)?;
    console.query("pause")?;
    server.restart()?;
    console.query("resume")?;
    for _ in 0..2 {
        for (client, (_, time, all)) in clients.iter_mut().zip(OWN) {
            ensure!(client.value(SHOWN)? == all && client.value(AT)? == time);
        }
    }
    // A setting that they have not set themselves would be another one.
    pair.database.run(&format!("alter database {} set work_mem = '77MB'", pair.database.name))?;
    let mut later = pair.connect()?;
    ensure!(later.value("show work_mem")? == "77MB");
    clients[0].send(&query(SHOWN))?;
    let told = clients[0].until(b'E')?;
    ensure!(told.iter().any(|message| message.field(b'C').as_deref() == Some("57P01")), "{told:?}");
    later.send(&query("select 'free' from public.t for share"))?;
    ensure!(!is_silent(&later)?);
    Ok(())
}

fn a_reload_of_the_configuration_is_seen_by_all(version: Version) -> Result<()> {
    let server = version.start(&freshet_testbed::Settings::default())?;
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "1"];
    let pair = Pair::over(Database::create(server)?, SCHEMA, &options)?;
    let mut twins = Vec::new();
    for set in
        ["set timezone = 'UTC'", "set timezone = 'Asia/Tokyo'; set jit = off", "set timezone = 'UTC'; set jit = off"]
    {
        let (mut direct, mut client) = (pair.database.connect()?, pair.connect()?);
        direct.run(set)?;
        client.run(set)?;
        twins.push((direct, client));
    }
    let same = |twins: &mut Vec<(RawClient, RawClient)>| -> Result<()> {
        for (direct, client) in twins.iter_mut() {
            let (expected, got) = (direct.value(AT)?, client.value(AT)?);
            ensure!(expected == got, "{got}, not {expected}");
        }
        Ok(())
    };
    for (round, style) in ["German", "SQL, DMY", "ISO, MDY"].into_iter().enumerate() {
        for _ in 0..4 {
            same(&mut twins)?;
        }
        // In one round while the connection is idle, in the others while a session has it.
        if round > 0 {
            twins[1].1.run("begin; select 1 from public.t for share")?;
        }
        pair.database.run(&format!("alter system set datestyle = '{style}'"))?;
        pair.database.run("select pg_reload_conf()")?;
        if round > 0 {
            twins[1].1.run("commit")?;
        }
        eventually(PATIENCE, || {
            ensure!(
                pair.database.connect()?.value("show datestyle")?.starts_with(style.split(',').next().unwrap_or(style)),
                "not reloaded yet"
            );
            same(&mut twins)
        })?;
        twins[1].1.run("do $$ begin perform 1; end $$")?;
    }
    for _ in 0..4 {
        same(&mut twins)?;
    }
    Ok(())
}
