//! No session sees the state of another: random statements of many sessions over few connections, each compared with a session of its own, direct.

use anyhow::{Context, Result, ensure};

use super::shared;
use crate::support::{Message, RawClient, Version, ensure_same, on_both};

on_both!(sessions_never_see_each_other);

const SCHEMA: &str = "create schema one; create schema two;
    create table one.t (v text); insert into one.t values ('one'); create table two.t (v text); insert into two.t values ('two');
    create table public.notes (v int); create table public.t (v text); insert into public.t values ('public');
    create function set_it(text) returns void language plpgsql as $$ begin perform set_config('search_path', $1, false); end $$";

const STATEMENTS: &[&str] = &[
    "select v from t",
    "select v from t",
    "show search_path",
    "set search_path = one",
    "set search_path = two, public",
    "reset search_path",
    "select set_it('two')",
    "begin",
    "commit",
    "rollback",
    "set local search_path = one",
    "savepoint s",
    "rollback to s",
    "set timezone = 'Asia/Tokyo'",
    "set datestyle = 'German'",
    "reset all",
    "discard all",
    "select '2024-02-29 12:00+00'::timestamptz",
    "create temp table t (v text)",
    "insert into pg_temp.t values ('temporary')",
    "drop table pg_temp.t",
    "select current_setting('app.name', true)",
    "set app.name = 'x'",
    "set local app.name = 'y'",
    "reset app.name",
    "show app.name",
    "select current_setting('app.other', true)",
    "select set_config('app.other', 'z', true)",
    "set local /* the other */ app.other = 'w'",
    "discard all",
    "select v from nowhere",
    "select 1/0",
    "prepare p as select v from t",
    "execute p",
    "deallocate all",
    "declare c cursor with hold for select v from t",
    "fetch c",
    "close c",
    "set role pg_monitor",
    "select current_user",
    "reset role",
    "show standard_conforming_strings",
    "show work_mem",
    "set work_mem = '1MB'",
    "set datestyle = 'SQL, DMY'",
    "select '01/02/2024'::date",
    "set client_min_messages = 'warning'",
    "set standard_conforming_strings = off",
    "select 'a\\b'",
    "set application_name = 'mine'",
    "set extra_float_digits = -3",
    "select 1.1::float8 / 3",
    "select set_config('intervalstyle', 'iso_8601', false), '1 day 2 hours'::interval",
    "set local timezone = 'UTC'",
    "select set_config('work_mem', '7MB', false)",
    "set client_encoding = 'latin1'",
    "set seq_page_cost = 1.5",
    "insert into public.notes values (1)",
    "select count(*) from pg_listening_channels()",
    "listen here",
    "unlisten *",
];

/// A sequence of numbers that is the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}

/// Without the descriptions of rows, which have the numbers of temporary tables.
fn comparable(messages: Vec<Message>) -> Vec<Message> {
    messages.into_iter().filter(|message| !matches!(message.tag, b'N' | b'T')).collect()
}

fn sessions_never_see_each_other(version: Version) -> Result<()> {
    // Sessions with something of theirs keep their connections: there must be one for each of them.
    let pair = shared(version, SCHEMA, 6)?;
    let mut sessions: Vec<(RawClient, RawClient, Vec<&str>)> = Vec::new();
    let mut numbers = Numbers(7);
    for step in 0..1500 {
        let at = numbers.below(6);
        if at >= sessions.len() || numbers.below(40) == 0 {
            // The one before may have the last connection.
            if at < sessions.len() {
                sessions.swap_remove(at);
            }
            sessions.push((pair.database.connect()?, pair.connect()?, Vec::new()));
            continue;
        }
        let (direct, through, told) = &mut sessions[at];
        let sql = STATEMENTS[numbers.below(STATEMENTS.len())];
        told.push(sql);
        let (expected, got) = (comparable(direct.query(sql)?), comparable(through.query(sql)?));
        ensure_same(&expected, &got).with_context(|| format!("step {step}, session {at}: {told:?}"))?;
    }
    ensure!(sessions.len() > 1);
    Ok(())
}
