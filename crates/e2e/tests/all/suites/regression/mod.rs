//! PostgreSQL's regression files: each answer is the same directly and through Freshet.
//!
//! The files run on three servers: on two of them directly, on the third through Freshet. An answer is compared if the two direct ones are equal:
//! other answers depend on the time, on a process or on an object's id. Reads are sent several times. Rows that the files load from other files are
//! generated. Each table that a file creates gets `REPLICA IDENTITY FULL`, because most have no primary key.

mod script;
mod wait;

use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use self::wait::Wait;
use super::comparing::{Answers, Outcome, lasting, rows};
use super::unpacked;
use crate::clients::left_out;
use crate::support::{Database, Message, Pair, RawClient, Version, frames};

/// The files that are run. Those that read most, and those that change what a read means: DDL, rights, transactions,
/// types, functions. All files take more than an hour, and some of the others need plans of data that is generated here.
const FILES: &str = "test_setup select select_distinct select_having select_implicit subselect union case with limit
    groupingsets prepare plancache portals transactions temp namespace rowtypes domain enum truncate update delete
    returning insert_conflict merge matview generated_stored rowsecurity updatable_views inherit create_cast
    create_operator create_function_sql regproc rangefuncs arrays strings text numeric int4 int8 float8 date time
    timestamp timestamptz interval uuid money bit inet name json jsonb rangetypes window";
/// Hits of the run through Freshet at least.
const HITS_MIN: u64 = 1000;
/// Tables without a primary key are not published without it.
const FULL: &str = "create schema harness; grant usage on schema harness to public;
    create function harness.full_identity() returns event_trigger language plpgsql as $$
    declare made text; begin
        for made in select object_identity from pg_catalog.pg_event_trigger_ddl_commands()
            join pg_catalog.pg_class on pg_class.oid = objid and relkind = 'r' and relpersistence = 'p'
            where classid = 'pg_catalog.pg_class'::pg_catalog.regclass
        loop execute 'alter table ' || made || ' replica identity full'; end loop;
    end $$;
    create event trigger harness_full_identity on ddl_command_end
        when tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO') execute function harness.full_identity()";

#[test]
#[ignore = "PostgreSQL's regression files; make test-long runs them"]
fn postgresql() -> Result<()> {
    let Some(folder) = unpacked("postgresql-regress") else { return left_out("PostgreSQL's regression files") };
    let folder = folder.join("postgres_regress");
    let settings = Settings::default().with("autovacuum = off").with("timezone = 'America/Los_Angeles'");
    let server = || Database::create(Version::V18.start(&settings)?);
    let (direct, other, pair) = (server()?, server()?, Pair::over(server()?, FULL, &[])?);
    direct.run(FULL)?;
    other.run(FULL)?;
    // Its objects and transactions get other numbers.
    other.run("do 'begin for i in 1..500 loop perform lo_create(0); commit; end loop; end'")?;
    let servers = Servers { direct, other, pair };
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
        let text = std::fs::read(folder.join(format!("{file}.sql")))?;
        let statements = script::statements(&String::from_utf8_lossy(&text));
        let statements: Vec<_> =
            schema(file).into_iter().chain(statements.iter().filter_map(|sql| prepared(file, sql))).collect();
        let before = self.pair.freshet.metrics()?;
        let [direct, other, through] = thread::scope(|scope| {
            let direct = scope.spawn(|| answers(self.direct.connect()?, &statements, None));
            let other = scope.spawn(|| answers(self.other.connect()?, &statements, None));
            let through = scope.spawn(|| answers(self.pair.connect()?, &statements, Wait::new(&self.pair)?));
            [direct, other, through].map(|run| run.join().expect("no panic while statements are sent"))
        });
        let (direct, other, through) = (direct?, other?, through.context("through Freshet")?);
        let after = self.pair.freshet.metrics()?;
        Ok(Outcome::of(file, [&direct, &other, &through]).with(&before, &after))
    }
}

fn answers(mut client: RawClient, statements: &[String], mut wait: Option<Wait>) -> Result<Answers<'_, Message>> {
    // Numbers of tables that are made differ.
    client.makes_tables = true;
    let mut answers = Vec::new();
    for row in rows(statements) {
        for time in 0..row.times {
            if let Some(wait) = wait.as_mut().filter(|_| row.times > 1) {
                wait.for_tables(&mut client, row.statements, time > 0)?;
            }
            for sql in row.statements {
                client.heard.clear();
                let ended = ask(&mut client, sql).is_err();
                answers.push((sql.as_str(), std::mem::take(&mut client.heard)));
                if ended {
                    return Ok(answers);
                }
            }
        }
    }
    Ok(answers)
}

/// Sends a statement and keeps the answer. No data is there for COPY.
fn ask(client: &mut RawClient, sql: &str) -> Result<()> {
    client.send(&frames::query(sql))?;
    loop {
        match client.read()?.tag {
            b'Z' => return Ok(()),
            b'G' => client.send(&frames::copy_fail("no data"))?,
            _ => {}
        }
    }
}

/// A file's tables are its own, but for those of the first file.
fn schema(file: &str) -> Option<String> {
    let sql = format!(
        "create schema of_{file}; grant all on schema of_{file} to public; set search_path = of_{file}, public"
    );
    (file != "test_setup").then_some(sql)
}

/// The statement as it is sent. Generated rows take the place of data that is loaded. What else needs a variable of psql
/// is left out. Temporary tables become ordinary ones, except in the file that tests them.
fn prepared(file: &str, sql: &str) -> Option<String> {
    let rows = |table: &str, count: u32| {
        let letters =
            |n: &str| format!("chr(65 + {n} % 26) || chr(65 + {n} / 26 % 26) || chr(65 + {n} / 676) || 'Axxx'");
        let (first, second) = (letters("u"), letters("i"));
        format!(
            "insert into {table} select u, i, u % 2, u % 4, u % 10, u % 20, u % 100, u % 1000, u % 2000, u % 5000, u,
                u % 100 * 2, u % 100 * 2 + 1, {first}, {second}, (array['AAAAxx', 'HHHHxx', 'OOOOxx', 'VVVVxx'])[i % 4 + 1]
                from (select i, i * 7919 % {count} as u from generate_series(0, {count} - 1) i) numbers"
        )
    };
    match sql {
        _ if sql.starts_with("COPY onek FROM") => Some(rows("onek", 1000)),
        _ if sql.starts_with("COPY tenk1 FROM") => Some(rows("tenk1", 10_000)),
        _ if sql.contains(":'") => None,
        _ if file == "temp" => Some(sql.to_owned()),
        _ => Some(lasting(sql)),
    }
}
