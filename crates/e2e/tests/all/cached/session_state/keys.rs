//! Settings: those that change results have keys of their own, all others share them.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::{READ, Twins, each, pair, pair_of};
use crate::support::{Database, PATIENCE, Pair, Version, eventually, on_both};

on_both!(
    settings_with_keys_of_their_own,
    settings_that_share_keys,
    ways_back,
    search_paths,
    settings_that_bypass,
    settings_by_function,
    a_reloaded_configuration,
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
    twins.fills_until_hit(&crate::support::frames::query(READ))?;
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
        ("set standard_conforming_strings = off", "settings_unknown"),
    ] {
        twins.run(&[set])?;
        twins.passes(READ, reason)?;
        twins.run(&["reset all"])?;
        twins.known_key(READ)?;
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
            ensure!(told, "the client has not been told of {zone}");
            Ok(())
        })?;
        twins.fills_until_hit(&crate::support::frames::query(READ))?;
    }
    Ok(())
}
