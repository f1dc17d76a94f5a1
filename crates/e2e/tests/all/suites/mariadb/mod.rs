//! Files of MariaDB's `main` suite: each answer is the same directly and through Freshet.
//!
//! As with PostgreSQL's files, they run on three servers, on two of them directly. The tests' own driver sends the statements of each file, not the
//! suite's program: only files for one connection, without the commands for that program. Temporary tables become ordinary ones.

mod script;

use std::collections::HashSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::comparing::{Answers, Outcome, lasting, rows};
use super::unpacked;
use crate::clients::left_out;
use crate::mysql::support::answer::Reader;
use crate::mysql::support::packets::status;
use crate::mysql::support::{Database, Kind, Packet, Pair, RawClient};
use crate::support::{pace, time_passes};

/// The files that are run: those that read most, and of what changes rows. All files take hours.
const FILES: &str = "select select_found group_by fetch_first join join_outer join_nested subselect4 subselect_innodb subselect_extra
    subselect_partial_match having order_by distinct set_operation intersect_all table_value_constr cte_recursive
    derived_view win olap case null range row func_in func_if func_like func_time func_test func_hybrid_type type_int
    type_float type_newdecimal type_enum type_bit type_blob type_date type_datetime type_time type_timestamp type_year
    varbinary endspace ctype_latin1 ctype_collate bigint auto_increment insert insert_select
    insert_returning replace delete delete_returning single_delete_update multi_update_innodb truncate partition_range
    partition_explicit_prune partition_pruning func_rollback sp_trans sp-error sp-vars signal get_diagnostics trigger_null
    query_cache set_statement brackets rownum parser odbc";
/// Statements that are not sent: a file, a piece of the statement, and why.
const LEFT_OUT: [(&str, &str, &str); 4] = [
    ("having", "default(b)", "the default is a random number"),
    ("select", "select found_rows()", "after a hit and INSERT … SELECT it says how many rows the hit has"),
    ("func_time", "sys_guid()", "a random value, with which the number of warnings changes"),
    (
        "group_by",
        "information_schema.tables t",
        "the server names the database only with the next change of the session's state, and Freshet has commits told",
    ),
];
/// Status flags: no good index was used, or none; and the one of the second byte, that it was slow.
const INDEX_FLAGS: u8 = 0x30;
const SLOW_FLAG: u8 = 0x08;
/// Hits of the run through Freshet at least.
const HITS_MIN: u64 = 1000;
/// How long one table is awaited at most.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[test]
#[ignore = "files of MariaDB's main suite; make test-long runs them"]
fn mariadb_main() -> Result<()> {
    let Some(folder) = unpacked("mariadb") else { return left_out("MariaDB's main suite") };
    let folder = folder.join("main");
    // Plans depend on what was inserted alone, not on when statistics were read.
    let settings = Kind::settings().with("innodb-stats-auto-recalc = OFF");
    let server = || Database::create(Kind::Mariadb.start(&settings)?);
    let servers = Servers { direct: server()?, other: server()?, pair: Pair::over(server()?, "", &[])? };
    // Its sessions get other numbers.
    for _ in 0..100 {
        servers.other.connect()?;
    }
    let all = Outcome::of_files(FILES.split_whitespace(), |file| servers.run(&folder, file))?;
    ensure!(all.hits >= HITS_MIN || !servers.pair.freshet.is_there(), "{} hits", all.hits);
    Ok(())
}

struct Servers {
    direct: Database,
    other: Database,
    pair: Pair,
}

impl Servers {
    /// Runs a file on all servers at once.
    fn run(&self, folder: &Path, file: &str) -> Result<Outcome> {
        let text = std::fs::read(folder.join(format!("{file}.test"))).with_context(|| file.to_owned())?;
        let statements = script::statements(&String::from_utf8_lossy(&text));
        let mut statements = statements.with_context(|| format!("{file} needs several connections"))?;
        statements.retain(|sql| !LEFT_OUT.iter().any(|(name, piece, _)| *name == file && sql.contains(piece)));
        for sql in &mut statements {
            *sql = lasting(sql);
        }
        let begin = ["create database if not exists test", "use test"].map(str::to_owned);
        statements.splice(0..0, begin);
        statements.push("drop database test".to_owned());
        let before = self.pair.freshet.metrics()?;
        let [direct, other, through] = thread::scope(|scope| {
            let direct = scope.spawn(|| answers(self.direct.connect()?, &statements, None));
            let other = scope.spawn(|| {
                // The time, which servers print in seconds, differs then.
                time_passes("another second begins", Duration::from_millis(1100));
                answers(self.other.connect()?, &statements, None)
            });
            let through = scope.spawn(|| answers(self.pair.connect()?, &statements, Wait::new(&self.pair)?));
            [direct, other, through].map(|run| run.join().expect("no panic while statements are sent"))
        });
        let (direct, other, through) = (direct?, other?, through.context("through Freshet")?);
        let after = self.pair.freshet.metrics()?;
        Ok(Outcome::of(file, [&direct, &other, &through]).with(&before, &after))
    }
}

fn answers(mut client: RawClient, statements: &[String], mut wait: Option<Wait>) -> Result<Answers<'_, Packet>> {
    let mut answers = Vec::new();
    for row in rows(statements) {
        for _ in 0..row.times {
            // `EXPLAIN CACHE` is a statement, too, so that it changes what these say.
            let looks_back = row.statements.iter().any(|sql| sql.to_ascii_lowercase().contains("found_rows"));
            if let Some(wait) = wait.as_mut().filter(|_| row.times > 1 && !looks_back) {
                wait.for_tables(&mut client, row.statements)?;
            }
            for sql in row.statements {
                client.heard.clear();
                let ended = client.query(sql).is_err();
                answers.push((sql.as_str(), comparable(sql, std::mem::take(&mut client.heard))));
                if ended {
                    return Ok(answers);
                }
            }
        }
    }
    Ok(answers)
}

/// Without what depends on the plan, and so on statistics: the order of rows, and flags that tell of it.
fn comparable(sql: &str, mut packets: Vec<Packet>) -> Vec<Packet> {
    // The columns of a temporary table have other flags, and whether there is one the plan says. Statistics are read when somebody looks
    // at the information schema, as Freshet does.
    let sql = sql.to_ascii_lowercase();
    let grouped = ["distinct", "group by"].iter().any(|word| sql.contains(word));
    for packet in &mut packets {
        packet.sequence = 0;
        // At the end of a result: flags behind the number of rows and an insert id, which are 0.
        if let [0xfe, 0, 0, flags, more, ..] = &mut packet.payload[..] {
            *flags &= !INDEX_FLAGS;
            *more &= !SLOW_FLAG;
        }
        if let [3, b'd', b'e', b'f', .., flags, more, _, 0, 0] = &mut packet.payload[..]
            && grouped
        {
            (*flags, *more) = (0, 0);
        }
        sort_state(&mut packet.payload);
    }
    packets.sort_by(|one, other| one.payload.cmp(&other.payload));
    packets
}

/// The session-state changes in an OK, in one order: a server's order depends on its process.
fn sort_state(payload: &mut Vec<u8>) {
    let Some((start, mut changes)) = state(payload) else { return };
    changes.sort_unstable();
    let sorted = changes.concat();
    payload.truncate(start);
    payload.extend(sorted);
}

/// The changes of the session's state that end an OK packet, and where they begin.
fn state(payload: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut reader = Reader(payload);
    reader.fixed(1).filter(|first| [0, 0xfe].contains(first))?;
    reader.integer()?;
    reader.integer()?;
    reader.fixed(2).filter(|flags| flags & u64::from(status::SESSION_STATE_CHANGED) != 0)?;
    reader.fixed(2)?;
    let length = reader.integer()?;
    reader.bytes(length.try_into().ok()?)?;
    let length = reader.integer()?;
    let mut rest = Reader(reader.bytes(length.try_into().ok()?)?);
    let start = payload.len() - rest.0.len();
    let mut changes = Vec::new();
    while !rest.0.is_empty() {
        let before = rest.0;
        rest.fixed(1)?;
        let length = rest.integer()?;
        rest.bytes(length.try_into().ok()?)?;
        changes.push(before[..before.len() - rest.0.len()].to_vec());
    }
    reader.0.is_empty().then_some((start, changes))
}

#[test]
fn changes_of_the_state_are_compared_as_a_set() {
    let ok = |state: &[u8]| {
        let head = [0, 0, 0, 2, 0x40, 0, 0, 0];
        [&head[..], &[u8::try_from(state.len()).unwrap()], state].concat()
    };
    let (database, variable) = (b"\x01\x02\x01a", b"\x00\x04\x01b\x01c");
    let sorted = |state: &[u8]| {
        let mut payload = ok(state);
        sort_state(&mut payload);
        payload
    };
    let (one, other) = ([&database[..], variable].concat(), [&variable[..], database].concat());
    assert_eq!(sorted(&one), sorted(&other));
    assert_eq!(sorted(&other), ok(&other));
    assert_ne!(sorted(&one), sorted(database));
    // What is no OK stays as it is.
    let cut = &one[..one.len() - 1];
    assert_eq!(sorted(cut), ok(cut));
}

/// Waits for the tables that reads name.
struct Wait {
    /// A direct connection: it says which tables others see.
    direct: RawClient,
    /// What was awaited in vain.
    lost: HashSet<String>,
}

impl Wait {
    /// None without a Freshet.
    fn new(pair: &Pair) -> Result<Option<Self>> {
        let wait = || Ok(Self { direct: pair.database.connect()?, lost: HashSet::new() });
        pair.freshet.is_there().then(wait).transpose()
    }

    /// Waits until Freshet knows the tables.
    fn for_tables(&mut self, client: &mut RawClient, reads: &[String]) -> Result<()> {
        for sql in reads {
            let begun = Instant::now();
            while let Some(missing) = self.missing(client, sql)? {
                if begun.elapsed() > WAIT_MAX {
                    self.lost.insert(missing);
                } else {
                    pace(Duration::from_millis(5));
                }
            }
        }
        Ok(())
    }

    /// A relation that `EXPLAIN CACHE` does not know although others see it.
    fn missing(&mut self, client: &mut RawClient, sql: &str) -> Result<Option<String>> {
        let answer = client.query(&format!("explain cache {sql}"))?;
        let values = answer.rows().into_iter().filter_map(|mut row| row.pop().flatten());
        for value in values {
            if value.ends_with("is being read again") && !self.lost.contains(&value) {
                return Ok(Some(value));
            }
            let name = value.strip_suffix(" is not known").and_then(|value| value.rsplit_once("relation "));
            let Some((_, name)) = name else { continue };
            let name = name.rsplit_once('.').map_or(name, |(_, name)| name).replace('\'', "''");
            let seen = format!("select count(*) from information_schema.tables where table_name = '{name}'");
            if !self.lost.contains(&value) && self.direct.value(&seen)? != "0" {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
