//! Sessions with the same context share cached results, however they got it.

use anyhow::Result;

use super::{READ, Twins, pair, server};
use crate::support::{Login, Version, on_both};

on_both!(equal_settings_share, settings_of_the_start_count, settings_of_roles_and_databases);

fn equal_settings_share(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let (mut first, mut second) = (Twins::new(&pair)?, Twins::new(&pair)?);
    first.new_key(READ)?;
    second.known_key(READ)?;
    first.run(&["set timezone = 'Asia/Tokyo'", "set datestyle = 'german'"])?;
    first.new_key(READ)?;
    // In another order, and by other means.
    second.run(&["set datestyle = 'german'; set timezone = 'Asia/Tokyo'"])?;
    second.known_key(READ)?;
    Twins::new(&pair)?.known_key(READ)
}

fn settings_of_the_start_count(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    twins.run(&["set timezone = 'Europe/Vienna'", "set search_path = other"])?;
    twins.new_key(READ)?;
    for more in [
        &[("TimeZone", "Europe/Vienna"), ("search_path", "other")][..],
        &[("options", "-c timezone=Europe/Vienna -c search_path=other")],
        &[("options", "-c search_path=other"), ("timezone", "Europe/Vienna"), ("application_name", "a driver")],
    ] {
        let mut started = Twins::login(&pair, Login { more, ..pair.login() })?;
        started.known_key(READ)?;
        // What a session starts with is what it goes back to.
        started.run(&["set search_path = public", "discard all"])?;
        started.known_key(READ)?;
    }
    Ok(())
}

/// They count for sessions that begin after them, and leave the others alone.
fn settings_of_roles_and_databases(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut before = Twins::new(&pair)?;
    before.new_key(READ)?;
    let name = &pair.database.name;
    server(version).psql(&format!("alter database {name} set timezone = 'Asia/Tokyo'"))?;
    Twins::new(&pair)?.new_key(READ)?;
    before.known_key(READ)?;
    server(version).psql(&format!("alter role postgres in database {name} set search_path = other"))?;
    Twins::new(&pair)?.new_key(READ)?;
    before.known_key(READ)?;
    before.run(&["reset all", "discard all"])?;
    before.known_key(READ)?;
    // The role's own settings are stronger than the database's.
    Twins::login(&pair, pair.database.login_as("tuned"))?.new_key(READ)
}
