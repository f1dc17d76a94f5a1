//! What a session has set for a transaction alone does not show in prepared statements of others.

use anyhow::{Result, ensure};

use super::{is_silent, shared, shared_by_one};
use crate::support::frames::{bind_text, describe_portal, describe_statement, execute, parse, query, sync};
use crate::support::{RawClient, Version, on_both};

on_both!(
    a_block_behind_the_question,
    plans_made_in_a_block,
    plans_made_under_other_settings,
    all_settings_are_reset,
    statements_of_blocks_with_a_tenant_stay,
);

const SCHEMA: &str = "create table t (id int primary key); insert into t values (1)";

fn prepare(name: &str, sql: &str) -> Vec<u8> {
    [parse(name, sql), describe_statement(name), sync()].concat()
}

fn run(name: &str) -> Vec<u8> {
    [bind_text("", name, &[]), describe_portal(""), execute("", 0), sync()].concat()
}

/// The only column of the only row.
fn value_of(client: &mut RawClient, name: &str) -> Result<String> {
    let told = client.exchange(&run(name), 1)?;
    let row = told.iter().find(|message| message.tag == b'D');
    let Some(row) = row else { anyhow::bail!("no row: {told:?}") };
    Ok(String::from_utf8_lossy(row.body.get(6..).unwrap_or_default()).into_owned())
}

fn a_block_behind_the_question(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let date = prepare("s", "select '01/02/2026'::date::text from t for share");
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    b.run("set datestyle = 'ISO, MDY'")?;
    b.exchange(&date, 1)?;
    ensure!(value_of(&mut b, "s")? == "2026-01-02");
    // The question what lives on the connection waits for this lock.
    let mut lock = pair.database.connect()?;
    lock.run("begin; lock table pg_catalog.pg_extension in access exclusive mode")?;
    a.run("set datestyle = 'ISO, MDY'")?;
    a.send(&[query("begin"), query("set local datestyle = 'SQL, DMY'"), date].concat())?;
    ensure!(is_silent(&a)?, "the question does not wait");
    lock.run("commit")?;
    for _ in 0..3 {
        a.until(b'Z')?;
    }
    ensure!(value_of(&mut a, "s")? == "01/02/2026");
    a.run("commit")?;
    // Another session gets the connection, unless this one keeps it for its statement.
    a.exchange(&[crate::support::frames::close_statement("s"), sync()].concat(), 1)?;
    ensure!(value_of(&mut b, "s")? == "2026-01-02", "the constant is another session's");
    Ok(())
}

/// The text of the quotient is computed when the statement is planned, which is when it is first used.
const THIRD: &str = "select (1::float8 / 3)::text from t for share";

fn plans_made_in_a_block(version: Version) -> Result<()> {
    plan_between(version, "begin; set local extra_float_digits = -3", "commit")
}

fn plans_made_under_other_settings(version: Version) -> Result<()> {
    plan_between(version, "set extra_float_digits = -3", "reset extra_float_digits")
}

/// A session uses the statement under a setting that is in force between these; another one uses it behind them.
fn plan_between(version: Version, set: &str, unset: &str) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    b.exchange(&prepare("s", THIRD), 1)?;
    a.exchange(&prepare("s", THIRD), 1)?;
    a.run(set)?;
    ensure!(value_of(&mut a, "s")? == "0.333333333333");
    a.run(unset)?;
    ensure!(value_of(&mut b, "s")? == "0.3333333333333333", "the plan is another session's");
    Ok(())
}

/// On a connection that does not have the statement yet, whose constant is that of the settings of before.
fn all_settings_are_reset(version: Version) -> Result<()> {
    let pair = shared_by_one(version, SCHEMA, 2)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("set datestyle = 'SQL, DMY'")?;
    a.exchange(&prepare("s", "select '01/02/2026'::date::text from t for share"), 1)?;
    ensure!(value_of(&mut a, "s")? == "01/02/2026");
    b.run("begin; select 1 from t for share")?;
    a.run("reset all")?;
    ensure!(value_of(&mut a, "s")? == "2026-02-01", "the constant was read again");
    b.run("commit")
}

/// Row-level security sets a name for each transaction: its statements are prepared once.
fn statements_of_blocks_with_a_tenant_stay(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}; create function prepared() returns text language sql stable as \
         $$ select string_agg(prepare_time::text, ' ' order by name) from pg_prepared_statements where statement like '%for share%' $$"
    );
    let pair = shared(version, &schema, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let mut first = None;
    for round in 0..3 {
        for client in [&mut a, &mut b] {
            client.run("begin")?;
            client.run(&format!("set local app.user_role = 'names of {round}'"))?;
            if round == 0 {
                client.exchange(&prepare("s", "select id::text from t for share"), 1)?;
            }
            ensure!(value_of(client, "s")? == "1");
            client.run("commit")?;
            ensure!(value_of(client, "s")? == "1");
        }
        if round > 0 {
            let prepared = b.value("select prepared()")?;
            ensure!(
                !prepared.is_empty() && *first.get_or_insert(prepared.clone()) == prepared,
                "prepared again: {first:?} {prepared}"
            );
        }
    }
    Ok(())
}
