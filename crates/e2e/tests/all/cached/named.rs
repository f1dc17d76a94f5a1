//! Settings that statements read by name, as those of PostgREST, Hasura and applications with tenants do: each session gets the results of its own
//! settings.

use anyhow::{Context as _, Result, ensure};

use super::until_hit;
use crate::support::frames::{sync, unnamed};
use crate::support::{PATIENCE, Pair, RawClient, Version, ensure_hits, eventually, on_both, rest, undisturbed};

on_both!(tenants_have_their_own, settings_come_and_go, what_is_not_keyed_passes, values_cost_others_nothing);

const SCHEMA: &str = "
    create table note (id int primary key, tenant text);
    insert into note values (1, 'a'), (2, 'b'), (3, 'b');
    create table log (id int);
    create function moved(text) returns text language sql as $$ select set_config('app.tenant', $1, false) $$;
    create function by_trigger() returns trigger language plpgsql as $$
     begin perform moved('by trigger'); return new; end $$;
    create trigger moves before insert on log for each row execute function by_trigger();
    create view mine as select id from note where tenant = current_setting('app.tenant', true);";

const READ: &str = "select id from note where tenant = current_setting('app.tenant', true) order by id";
const CLAIMS: &str = "select current_setting('request.jwt.claims', true)::json ->> 'sub', pg_catalog.current_setting('App.Tenant', true)";

/// As the database answers in a session with these settings.
fn expect(pair: &Pair, c: &mut RawClient, settings: &str, when: &str) -> Result<()> {
    let mut direct = pair.database.connect()?;
    direct.run(settings)?;
    for sql in [READ, CLAIMS, "select id from mine order by id"] {
        let (expected, got) = (direct.query(sql)?, c.query(sql)?);
        ensure!(expected == got, "{sql} {when}:\n  expected {expected:?}\n  got {got:?}");
        let bound = [unnamed(sql, &[]), sync()].concat();
        let (expected, got) = (direct.exchange(&bound, 1)?, c.exchange(&bound, 1)?);
        ensure!(expected == got, "{sql} bound, {when}:\n  expected {expected:?}\n  got {got:?}");
    }
    Ok(())
}

fn all_hit(pair: &Pair, c: &mut RawClient) -> Result<()> {
    for sql in [READ, CLAIMS] {
        until_hit(pair, c, sql)?;
        let bound = [unnamed(sql, &[]), sync()].concat();
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            c.exchange(&bound, 1)?;
            let after = pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{sql}, bound, does not hit: {:?}", after.passed_since(&before));
            Ok(())
        })?;
    }
    Ok(())
}

fn tenants_have_their_own(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let of =
        |tenant: &str| format!("set app.tenant = '{tenant}'; set request.jwt.claims = '{{\"sub\": \"{tenant}, {{\"}}'");
    let mut sessions = Vec::new();
    for tenant in ["a", "b", "a,b", "NULL", "a"] {
        let mut c = pair.connect()?;
        c.run(&of(tenant))?;
        sessions.push((of(tenant), c));
    }
    // Texts of another encoding differ, too.
    for letter in [232, 233] {
        let settings = format!("set client_encoding = 'LATIN1'; select set_config('app.tenant', chr({letter}), false)");
        let mut c = pair.connect()?;
        c.run(&settings)?;
        sessions.push((settings, c));
    }
    sessions.push(("select 1".to_owned(), pair.connect()?));
    for round in 0..2 {
        for (settings, c) in &mut sessions {
            all_hit(&pair, c)?;
            expect(&pair, c, settings, settings)?;
        }
        sessions[0]
            .1
            .run(&format!("insert into note select {} + i, 'b' from generate_series(1, 2) i", 10 + 10 * round))?;
        for (settings, c) in &mut sessions {
            expect(&pair, c, settings, "after new rows")?;
        }
    }
    // Others of their statements are shared.
    let shared = "select count(*) from note";
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut sessions[0].1, shared)?;
        ensure_hits(&pair.freshet, 1, || sessions[1].1.query(shared)).context("not shared").map(drop)
    })
}

fn settings_come_and_go(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let steps: [(&str, &str); 14] = [
        ("set app.tenant = 'a'", "set app.tenant = 'a'"),
        ("set \"App\".tenant = 'b'", "set app.tenant = 'b'"),
        ("select set_config('app.tenant', 'a', false)", "set app.tenant = 'a'"),
        ("begin; set app.tenant = 'b'; rollback", "set app.tenant = 'a'"),
        ("begin; set local app.tenant = 'b'; commit", "set app.tenant = 'a'"),
        ("do $$ begin perform set_config('app.tenant', 'b', false); end $$", "set app.tenant = 'b'"),
        ("select moved('a')", "set app.tenant = 'a'"),
        ("begin; savepoint s; set app.tenant = 'b'; rollback to s; commit", "set app.tenant = 'a'"),
        ("insert into log values (1)", "set app.tenant = 'by trigger'"),
        ("set app.tenant = ''", "set app.tenant = ''"),
        ("reset app.tenant", "set app.tenant = ''"),
        ("set app.tenant = 'b'; reset all", "set app.tenant = ''; set request.jwt.claims = '{}'"),
        (
            "set request.jwt.claims = '{\"sub\": \"me\"}'",
            "set app.tenant = ''; set request.jwt.claims = '{\"sub\": \"me\"}'",
        ),
        ("discard all", "set app.tenant = ''; set request.jwt.claims = '{}'"),
    ];
    for (step, settings) in steps {
        all_hit(&pair, &mut c)?;
        c.run(step)?;
        if step.ends_with(" all") {
            c.run("set request.jwt.claims = '{}'")?; // an empty text is no JSON
        }
        expect(&pair, &mut c, settings, step)?;
    }
    // In a transaction, as PostgREST sends it.
    for tenant in ["a", "b", "a"] {
        let local = format!("select set_config('app.tenant', '{tenant}', true)");
        c.run("begin")?;
        c.query(&local)?;
        expect(&pair, &mut c, &format!("begin; set app.tenant = '{tenant}'; set request.jwt.claims = '{{}}'"), &local)?;
        c.run("commit")?;
        expect(&pair, &mut c, "set app.tenant = ''; set request.jwt.claims = '{}'", "behind it")?;
    }
    Ok(())
}

fn what_is_not_keyed_passes(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, "select current_setting('TimeZone'), current_setting('server_version_num')")?;
    super::never_hits(&pair, &mut c, "select current_setting('work_mem')", "construct")?;
    super::never_hits(&pair, &mut c, "select current_setting(lower('app.tenant'), true)", "function")?;
    super::never_hits(&pair, &mut c, "select id from mine", "function")
}

/// Neither long ones, nor those that are of each request, nor those that the client's encoding does not know.
fn values_cost_others_nothing(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    c.run("set app.tenant = 'b'; set app.request = 'first'")?;
    let of_request = "select current_setting('app.request', true)";
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut c, READ)?;
        until_hit(&pair, &mut c, of_request)?;
        for number in 0..3 {
            c.run(&format!("set app.request = 'number {number}'"))?;
            ensure!(c.value(of_request)? == format!("number {number}"));
            rest();
            ensure_hits(&pair.freshet, 1, || c.query(READ)).context("the read of another setting")?;
        }
        Ok(())
    })?;
    let long = "x".repeat(100_000);
    for tenant in [long.as_str(), "b"] {
        let mut direct = pair.database.connect()?;
        for session in [&mut c, &mut direct] {
            session.run(&format!("set app.tenant = '{tenant}'"))?;
        }
        until_hit(&pair, &mut c, READ)?;
        ensure!(c.query(READ)? == direct.query(READ)?, "of {} bytes", tenant.len());
    }
    let mut latin = pair.connect()?;
    latin.run("select set_config('app.tenant', chr(8364), false)")?;
    latin.run("set client_encoding = 'LATIN1'")?;
    until_hit(&pair, &mut latin, READ)?;
    c.run("set app.tenant = 'a'")?;
    until_hit(&pair, &mut c, READ)
}
