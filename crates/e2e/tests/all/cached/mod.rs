//! The view of applications whose reads are served from the cache.
//!
//! Reads hit; writes, through Freshet or around it, are seen; settings, roles and the schema count as in the database; and statements that were not
//! served from the cache are listed with their reason.

mod acknowledgements;
mod admin;
mod beside_direct;
mod binary_keys;
mod comments;
mod composites;
mod cool_off;
mod definitions;
mod drivers;
mod edges;
mod enums;
mod freshness;
mod hazards;
mod identity;
mod joining;
mod limits;
mod local_settings;
mod logins;
mod made_types;
mod moving;
mod named;
mod privileges;
mod published;
mod questions;
mod redefinitions;
mod refreshing;
mod relations;
mod resolved;
mod schema;
mod session_state;
mod sessions_hazards;
mod settings;
mod shapes;
mod signals;
mod skipped;
mod transaction_hazards;
mod transactions;
mod trigrams;
mod trusted;
mod turns;

use anyhow::{Context as _, Result, ensure};

use crate::support::{PATIENCE, Pair, RawClient, eventually, rest};

/// What most of these tests read.
const SCHEMA: &str = "
    create table film (id int primary key, title text not null, genre text, votes int not null default 0);
    insert into film select i, 'film ' || i, case i % 3 when 0 then 'drama' when 1 then 'comedy' end, i
        from generate_series(1, 200) i;
    create table role (film_id int not null references film, actor text not null, primary key (film_id, actor));
    insert into role select i % 200 + 1, 'actor ' || i from generate_series(1, 500) i;";

/// D, within which a write around Freshet is seen, with room for a busy machine.
const SEEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The process that sends the change stream.
fn walsender(pair: &Pair) -> Result<u32> {
    let children = pair.database.server.children()?;
    let walsender = children.iter().find(|process| process.title().contains("walsender"));
    Ok(walsender.context("no walsender")?.pid)
}

/// Reads until a read comes from the cache; fails if none does.
pub(crate) fn until_hit(pair: &Pair, client: &mut RawClient, sql: &str) -> Result<()> {
    if !pair.freshet.is_there() {
        return Ok(());
    }
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        client.query(sql)?;
        let after = pair.freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql} does not hit: {:?}", after.passed_since(&before));
        Ok(())
    })
}

/// Runs a statement several times: none of them may hit, and Freshet gives this reason (any, if empty).
fn never_hits(pair: &Pair, client: &mut RawClient, sql: &str, reason: &str) -> Result<()> {
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let before = pair.freshet.metrics()?;
    for _ in 0..2 {
        client.query(sql)?;
        client.query(sql)?;
        // Some of these tests are about a Freshet without a change stream.
        if before.value("freshet_stream_age_seconds").is_finite() {
            rest();
        }
    }
    // Other reasons may come first, such as a definition that the catalogue does not show yet.
    eventually(PATIENCE, || {
        let after = pair.freshet.metrics()?;
        let named = reason.is_empty() || after.passed(reason) > before.passed(reason);
        if !named {
            client.query(sql)?;
        }
        ensure!(named, "{sql} passes, but not as {reason}: {:?}", after.passed_since(&before));
        Ok(())
    })?;
    ensure!(pair.freshet.metrics()?.hits() == before.hits(), "{sql} hits");
    Ok(())
}
