//! Roles: a result is cached for the role that read it.

use anyhow::Result;

use super::{READ, Twins, pair};
use crate::support::{Version, on_both};

on_both!(roles_have_keys_of_their_own, ways_back_to_a_role, roles_of_a_transaction);

fn roles_have_keys_of_their_own(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    twins.run(&["set role reader"])?;
    twins.new_key(READ)?;
    twins.run(&["set role member"])?;
    twins.new_key(READ)?;
    twins.run(&["reset role"])?;
    twins.known_key(READ)?;
    twins.run(&["set session authorization reader"])?;
    twins.new_key(READ)?;
    // The same as a session that logged in as that role.
    Twins::login(&pair, pair.database.login_as("reader"))?.known_key(READ)?;
    let mut member = Twins::login(&pair, pair.database.login_as("member"))?;
    member.new_key(READ)?;
    member.run(&["set role reader"])?;
    member.new_key(READ)?;
    // Refused, and nothing has changed.
    member.run(&["set role postgres", "set session authorization postgres"])?;
    member.known_key(READ)
}

fn ways_back_to_a_role(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for there in ["set role reader", "set session authorization reader"] {
        for back in [
            "reset role; reset session authorization",
            "set role none; set session authorization default",
            "discard all",
        ] {
            twins.run(&[there])?;
            twins.fills_until_hit(&crate::support::frames::query(READ))?;
            // DISCARD ALL cannot be in a message with others.
            twins.run(&[back])?;
            twins.known_key(READ)?;
        }
    }
    twins.run(&["select set_config('role', 'reader', false)"])?;
    twins.known_key(READ)?;
    // RESET ALL leaves the role as it is.
    twins.run(&["reset all"])?;
    twins.known_key(READ)?;
    twins.run(&["select set_config('role', 'none', false)"])?;
    twins.known_key(READ)
}

fn roles_of_a_transaction(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for sql in [
        &["begin", "set local role reader", READ, "commit"][..],
        &["begin", "set role reader", READ, "rollback"],
        &["begin", "set local session authorization reader", READ, "select 1/0", READ, "commit"],
        &["begin; set local role reader; commit"],
        &["begin; set role reader; rollback"],
    ] {
        twins.run(sql)?;
        twins.known_key(READ)?;
    }
    twins.run(&["begin; set role reader; commit"])?;
    // The role's block may have filled it.
    twins.fills_until_hit(&crate::support::frames::query(READ)).map(drop)
}
