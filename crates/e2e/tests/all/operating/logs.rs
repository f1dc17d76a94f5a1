//! The log at the most verbose level: no password and no value of the application. And the messages that must be logged.
//!
//! The logins themselves are in `login::secrets`; these tests cover every path of a value through Freshet.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, rows, tags};
use crate::cached::until_hit;
use crate::support::frames::{self, bind_text, execute, parse, sync, unnamed};
use crate::support::{
    Database, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length, program, time_passes,
};

on_both_at_length!(no_value_is_logged, a_process_without_a_processor_says_so, so_does_one_whose_database_has_none);

/// Part of every secret value, however it is written.
const SECRET: &str = "Zk7uQ";

const TABLES: &str = "
    create table diary (id int primary key, entry text unique not null, check (entry <> 'Zk7uQ-forbidden'));
    insert into diary values (1, 'Zk7uQ-row'), (2, 'other');
    create function tell(what text) returns int language plpgsql as
        $$ begin raise notice 'Zk7uQ-notice %', what; return 1; end $$;
    create table unpublished (entry text); insert into unpublished values ('Zk7uQ-unpublished');";

/// Everything at its most talkative, and hits checked against the database if that can be asked for.
fn options() -> Result<Vec<&'static str>> {
    let mut options = vec!["--log", "trace"];
    if let Some(program) = program()? {
        let help = Command::new(program).args(["serve", "--help"]).output().context("freshet serve --help")?;
        if String::from_utf8_lossy(&help.stdout).contains("--verify") {
            options.extend(["--verify", "0.5"]);
        }
    }
    Ok(options)
}

fn no_value_is_logged(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, &format!("{SCHEMA}{TABLES}"), &options()?)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    by_simple_query(&pair)?;
    by_extended_query(&pair)?;
    by_copy(&pair)?;
    by_start_up(&pair)?;
    by_broken_messages(&pair)?;
    // What is logged last, and by others, may take a moment: the change of a row is the last to arrive.
    let before = pair.freshet.metrics()?.count("freshet_commits_total");
    pair.database.run("update diary set entry = 'Zk7uQ-last' where id = 1")?;
    eventually(PATIENCE, || {
        ensure!(pair.freshet.metrics()?.count("freshet_commits_total") > before, "the change does not arrive");
        Ok(())
    })?;
    let log = pair.freshet.log();
    ensure!(log.contains("DEBUG"), "nothing is logged at these levels:\n{log}");
    let told = log.lines().find(|line| line.to_lowercase().contains(&SECRET.to_lowercase()));
    ensure!(told.is_none(), "{told:?}");
    Ok(())
}

/// Nothing else tells an operator why nothing hits then.
fn a_process_without_a_processor_says_so(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &[])?;
    let Some(pid) = pair.freshet.pid() else { return Ok(()) };
    let late =
        || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.value("freshet_main_thread_scheduling_delay_seconds_total"));
    let before = late()?;
    process::pause(pid)?;
    time_passes("a second without a processor", Duration::from_secs(1));
    process::resume(pid)?;
    eventually(PATIENCE, || {
        ensure!(late()? - before > 0.5, "late by {} s", late()? - before);
        ensure!(pair.freshet.log().contains("it was late by"), "nothing is said");
        Ok(())
    })
}

fn so_does_one_whose_database_has_none(version: Version) -> Result<()> {
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let late = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.value("freshet_log_end_probe_delay_seconds_total"));
    let before = late()?;
    let asking = "select pid from pg_stat_activity where query like 'SELECT%pg_current_wal_insert_lsn()%'";
    let pids = rows(&pair.database.connect()?.query(asking)?);
    let pids = pids.iter().flatten().map(|pid| Ok(pid.parse()?)).collect::<Result<Vec<u32>>>()?;
    ensure!(!pids.is_empty(), "nobody asks for the end of the log");
    pids.iter().try_for_each(|pid| process::pause(*pid))?;
    time_passes("a second without a processor", Duration::from_secs(1));
    pids.iter().try_for_each(|pid| process::resume(*pid))?;
    eventually(PATIENCE, || {
        ensure!(late()? - before > 0.5, "late by {} s", late()? - before);
        ensure!(pair.freshet.log().contains("was late to tell the end of the log by"), "nothing is said");
        Ok(())
    })
}

fn by_simple_query(pair: &Pair) -> Result<()> {
    let mut c = pair.connect()?;
    until_hit(pair, &mut c, "select * from diary where entry = 'Zk7uQ-row'")?;
    until_hit(pair, &mut c, "select entry from diary where id = 1")?;
    let role = format!("{}_writer", pair.database.name);
    for sql in [
        "insert into diary values (3, 'Zk7uQ-insert')",
        "insert into diary values (4, 'Zk7uQ-insert')",
        "insert into diary values (5, 'Zk7uQ-forbidden')",
        "select 'Zk7uQ-number'::int",
        "select 'Zk7uQ-unended",
        "select $tag$Zk7uQ-dollar$tag$, e'Zk7uQ\\x41', u&'Zk7uQ', b'0', x'Zk7uQ' from diary",
        "select \"Zk7uQ-column\" from diary",
        "select entry from diary where entry = 'Zk7uQ-a' or entry similar to 'Zk7uQ-b' or entry like 'Zk7uQ-c%'",
        "set application_name = 'Zk7uQ-application'; set x.y = 'Zk7uQ-setting'",
        "/* Zk7uQ-comment */ select 1 -- Zk7uQ-comment",
        "select tell('Zk7uQ-argument')",
        "do $$ begin raise exception 'Zk7uQ-exception'; end $$",
        "prepare p as select * from diary where entry = 'Zk7uQ-prepared'",
        "execute p",
        "begin; update diary set entry = 'Zk7uQ-uncommitted' where id = 2; rollback",
        "select pg_notify('channel', 'Zk7uQ-payload')",
        "select entry from unpublished",
        "explain cache select entry from diary where entry = 'Zk7uQ-explained'",
        "explain cache Zk7uQ-explained",
    ] {
        c.query(sql)?;
    }
    c.query(&format!("create role \"{role}\" login password 'Zk7uQ-password'"))?;
    c.query(&format!("alter role \"{role}\" password 'Zk7uQ-password'"))?;
    c.query(&format!("drop role \"{role}\""))?;
    c.expect_silence()
}

fn by_extended_query(pair: &Pair) -> Result<()> {
    let mut c = pair.connect()?;
    let sql = "select entry, 'Zk7uQ-literal' from diary where entry = $1";
    for _ in 0..20 {
        c.exchange(&[unnamed(sql, &["Zk7uQ-row"]), sync()].concat(), 1)?;
    }
    c.exchange(&[parse("Zk7uQ-statement", sql), sync()].concat(), 1)?;
    let run = [bind_text("Zk7uQ-portal", "Zk7uQ-statement", &["Zk7uQ-other"]), execute("Zk7uQ-portal", 0), sync()];
    ensure!(tags(&c.exchange(&run.concat(), 1)?).starts_with('2'), "the portal does not run: {:?}", c.heard);
    c.exchange(&[unnamed("select $1::int", &["Zk7uQ-number"]), sync()].concat(), 1)?;
    c.exchange(&[bind_text("", "Zk7uQ-missing", &["Zk7uQ-unused"]), execute("", 0), sync()].concat(), 1)?;
    c.expect_silence()
}

fn by_copy(pair: &Pair) -> Result<()> {
    let mut c = pair.connect()?;
    for (data, end) in [
        ("10\tZk7uQ-copied\n", frames::copy_done()),
        ("11\tZk7uQ-copied\tZk7uQ-too-much\n", frames::copy_done()),
        ("12\tZk7uQ-unfinished\n", frames::copy_fail("Zk7uQ-failure")),
    ] {
        c.send(&frames::query("copy diary from stdin"))?;
        c.until(b'G')?;
        c.exchange(&[frames::copy_data(data.as_bytes()), end].concat(), 1)?;
    }
    c.query("copy diary to stdout")?;
    c.expect_silence()
}

fn by_start_up(pair: &Pair) -> Result<()> {
    let login = pair.login();
    let packets = [
        frames::startup(&[("user", "Zk7uQ-user"), ("database", "Zk7uQ-database")]),
        frames::startup(&[("user", login.user), ("database", login.database), ("options", "-c x.y=Zk7uQ-option")]),
        frames::startup(&[("user", login.user), ("database", login.database), ("Zk7uQ-parameter", "Zk7uQ-value")]),
        frames::startup(&[("user", login.user), ("database", login.database), ("_pq_.Zk7uQ", "Zk7uQ-value")]),
        frames::startup_of(0x0002_0000, &[("user", "Zk7uQ-user")]),
        frames::frame(b'Q', b"Zk7uQ-no-start-up\0"),
        b"Zk7uQ-no-packet-at-all, and long enough to be one".to_vec(),
        b"\0\0\0\x20\0\x03\0\0Zk7uQ-without-an-end-of-it".to_vec(),
        frames::cancel(b"Zk7uQ-ke"),
        frames::password("Zk7uQ-password"),
    ];
    for packet in packets {
        let c = RawClient::open(pair.address())?;
        say_and_leave(c, &[packet, frames::password("Zk7uQ-password"), frames::terminate()].concat())?;
    }
    Ok(())
}

fn by_broken_messages(pair: &Pair) -> Result<()> {
    let messages = [
        frames::frame(b'Q', b"select 'Zk7uQ-without-an-end'"),
        frames::frame(b'P', b"Zk7uQ-parse\0select 'Zk7uQ'\0\x7f\xff"),
        frames::frame(b'B', b"\0\0\0\x01\0\x00\0\x01\0\0\0\x7fZk7uQ-short"),
        frames::frame(b'!', b"Zk7uQ-unknown-message"),
        b"Q\0\0\0\x01Zk7uQ-impossible-length".to_vec(),
        b"Q\0\0\0\x40select 'Zk7uQ-half".to_vec(),
    ];
    for message in messages {
        say_and_leave(pair.connect()?, &[message, sync()].concat())?;
    }
    Ok(())
}

/// Says all of it at once, since the answer to its beginning may be the end of the connection, and hears the rest:
/// whatever it is, or that there is none.
fn say_and_leave(mut c: RawClient, bytes: &[u8]) -> Result<()> {
    c.send(bytes)?;
    let _ = c.socket()?.shutdown(std::net::Shutdown::Write);
    let _ = c.bytes_to_end();
    Ok(())
}
