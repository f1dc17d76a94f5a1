//! Settings that a transaction block changes for itself: what PostgREST sends, and applications whose tenants are settings of the transaction.

use anyhow::{Result, ensure};

use crate::support::frames::{bind_text, execute, parse, sync};
use crate::support::{Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    blocks_of_postgrest_hit,
    blocks_of_set_local_hit,
    blocks_end_in_every_way,
    behind_a_block_that_is_not_followed
);

const SCHEMA: &str = "
    create schema api; create table api.note (id int primary key, tenant text, body text);
    insert into api.note values (1, 'a', 'x'), (2, 'b', 'y'), (3, 'b', 'z');
    create table note (id int primary key, tenant text, body text); insert into note values (9, 'b', 'public');
    do $$ begin create role local_anon; exception when duplicate_object or unique_violation then null; end $$;
    do $$ begin create role local_admin; exception when duplicate_object or unique_violation then null; end $$;
    grant usage on schema api to local_anon, local_admin; grant select on api.note to local_anon, local_admin;
    grant insert on api.note to local_admin;";

/// Statements of the shape of PostgREST's.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
const SETTINGS: &str = "select set_config('search_path', $1, true), set_config('role', $2, true), \
    set_config('request.jwt.claims', $3, true), set_config('request.method', $4, true), set_config('request.path', $5, true), \
    set_config('request.headers', $6, true), set_config('request.cookies', $7, true)";
const READ: &str = "WITH pgrst_source AS (SELECT \"api\".\"note\".* FROM \"api\".\"note\" WHERE \"api\".\"note\".\"tenant\" = $1 \
    AND \"api\".\"note\".\"body\" <> coalesce(current_setting('request.jwt.claims', true)::json ->> 'not', '')) \
    SELECT null::bigint AS total_result_set, pg_catalog.count(_postgrest_t) AS page_total, \
    coalesce(json_agg(_postgrest_t), '[]') AS body, nullif(current_setting('response.headers', true), '') AS response_headers, \
    nullif(current_setting('response.status', true), '') AS response_status, '' AS response_inserted \
    FROM (SELECT * FROM pgrst_source) _postgrest_t";

/// One request: its parts are sent one by one, each prepared by its name once.
fn request(c: &mut RawClient, (role, claims, number): (&str, &str, u32), end: &str) -> Result<Vec<Message>> {
    let headers = format!("{{\"x-request-id\": \"{number}\"}}");
    let values = ["\"api\", \"public\"", role, claims, "GET", "/note", &headers, "{}"];
    let run = |name: &str, sql: &str, values: &[&str]| {
        let prepared = if number == 0 { parse(name, sql) } else { Vec::new() };
        [prepared, bind_text("", name, values), execute("", 0), sync()].concat()
    };
    c.exchange(&run("0", BEGIN, &[]), 1)?;
    c.exchange(&run("1", SETTINGS, &values), 1)?;
    let answer = c.exchange(&run("2", READ, &["b"]), 1)?;
    c.exchange(&run(&format!("end {end}"), end, &[]), 1)?;
    Ok(answer.into_iter().filter(|message| message.tag != b'1').collect())
}

fn blocks_of_postgrest_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut direct, mut through) = (pair.database.connect()?, pair.connect()?);
    let (anon, admin) = (("local_anon", "{\"not\": \"y\"}"), ("local_admin", "{\"not\": \"y\"}"));
    let mut number = 0;
    let mut ask = |through: &mut RawClient, (role, claims): (&str, &str)| {
        let expected = request(&mut direct, (role, claims, number), "COMMIT")?;
        let before = pair.freshet.metrics()?;
        let got = request(through, (role, claims, number), "COMMIT")?;
        let after = pair.freshet.metrics()?;
        number += 1;
        ensure!(expected == got, "{role}, {claims}:\n  expected {expected:?}\n  got {got:?}");
        Ok::<_, anyhow::Error>((after.hits() > before.hits(), format!("{:?}", after.passed_since(&before))))
    };
    let mut hits = |through: &mut RawClient, who| {
        eventually(PATIENCE, || {
            let (hit, passed) = ask(through, who)?;
            ensure!(hit || !pair.freshet.is_there(), "{who:?} does not hit: {passed}");
            Ok(())
        })
    };
    for who in [anon, ("local_anon", "{\"not\": \"z\"}"), admin, anon] {
        hits(&mut through, who)?;
    }
    // The session's own settings are back: no schema, no role.
    ensure!(through.value("select body from note where tenant = 'b'")? == "public", "the path is not back");
    let claims = through.value("select current_setting('request.jwt.claims', true)")?;
    ensure!(claims.is_empty(), "the claims are not back: {claims}");
    for change in ["update api.note set body = 'new' where id = 3", "insert into api.note values (4, 'b', 'w')"] {
        pair.connect()?.run(change)?; // acknowledged to another session, it is seen by this one
        for who in [anon, admin] {
            hits(&mut through, who)?;
        }
    }
    pair.connect()?.run("revoke select on api.note from local_anon")?;
    hits(&mut through, admin)?;
    let refused = request(&mut pair.connect()?, (anon.0, anon.1, 0), "COMMIT")?;
    ensure!(refused.iter().any(|message| message.tag == b'E'), "{refused:?}");
    pair.database.run("grant select on api.note to local_anon")
}

/// `SET LOCAL` of a role and of a tenant: each has its own results, and the session its own behind the block.
fn blocks_of_set_local_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut through = pair.connect()?;
    let read = "select body from api.note where tenant = current_setting('app.tenant', true) order by id";
    let ask = |through: &mut RawClient, tenant: &str, expected: &str| {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            for sql in ["begin", "set local role local_anon", &format!("set local app.tenant = '{tenant}'")] {
                through.run(sql)?;
            }
            let got = format!("{:?}", through.query(read)?.iter().map(Message::columns).collect::<Vec<_>>());
            through.run("commit")?;
            let after = pair.freshet.metrics()?;
            assert!(
                expected.split(' ').all(|value| got.contains(&format!("{:?}", value.as_bytes()))),
                "{tenant}: {got}"
            );
            let hit = after.hits() > before.hits();
            ensure!(hit || !pair.freshet.is_there(), "{tenant} does not hit: {:?}", after.passed_since(&before));
            Ok(())
        })
    };
    for _ in 0..2 {
        ask(&mut through, "a", "x")?;
        ask(&mut through, "b", "y z")?;
        let who = through.value("select current_user || coalesce(current_setting('app.tenant', true), '')")?;
        ensure!(!who.starts_with("local_anon") && !who.ends_with('b'), "left over: {who}");
    }
    pair.connect()?.run("update api.note set body = 'new' where id = 1")?;
    ask(&mut through, "a", "new")?;
    ask(&mut through, "b", "y z")
}

/// Whatever ends a block, or takes its settings back within it, what is read then is what the settings say.
fn blocks_end_in_every_way(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select body, current_setting('app.tenant', true) from note where tenant = 'b'";
    let set = |path: &str| {
        format!("select set_config('search_path', '{path}', true), set_config('app.tenant', '{path}', true)")
    };
    let local = "set local search_path = api";
    let api = set("api");
    let blocks: [&[&str]; 18] = [
        &["begin", &api, read, read, "commit", read],
        &["begin", &api, read, "rollback", read],
        &["begin", local, read, read, "commit", read],
        &["begin", "savepoint s", &api, read, "rollback to s", read, "commit", read],
        &[
            "begin",
            &api,
            read,
            "savepoint s",
            "set local search_path = public",
            read,
            "rollback to s",
            read,
            "commit",
            read,
        ],
        &["begin", &api, read, "commit and chain", read, read, "commit", read],
        &["begin", &api, read, "rollback and chain", read, "rollback", read],
        &["begin", &api, "select 1 / 0", read, "commit", read],
        &["begin", "select set_config('search_path', 'api', true), 1 / 0", read, "commit", read],
        &["begin", &api, "set search_path = public, api", read, "commit", read, "reset search_path", read],
        &["begin", &api, "select set_config('search_path', 'public', false)", read, "rollback", read],
        &["begin isolation level repeatable read", &api, read, read, "commit", read],
        &["begin", local, "set transaction isolation level repeatable read", read, read, "commit", read],
        &["begin", local, "set local app.tenant = 'x'", read, "set local app.tenant = 'y'", read, "commit", read],
        &["begin", "savepoint s", local, "rollback to s", read, "release s", read, "commit", read],
        &["begin", local, read, "update note set body = body", read, "rollback", read],
        &["begin", local, read, "prepare transaction 'none'", read, "rollback", read],
        &["begin", "select set_config('transaction_isolation', 'serializable', true)", read, "commit", read],
    ];
    for _ in 0..3 {
        for block in blocks {
            pair.same(|c| {
                for sql in block {
                    c.query(sql)?;
                }
                Ok(())
            })?;
        }
    }
    // Sent at once, and several of them in one text.
    pair.same(|c| {
        for _ in 0..4 {
            c.exchange(&["begin", &api, read, "commit", read].map(crate::support::frames::query).concat(), 5)?;
            c.query(&format!("begin; {api}; {read}; commit; {read}"))?;
            c.query(read)?;
        }
        Ok(())
    })
}

/// The session's own values are in force behind a block, even if that was not followed to its end, and the context behind a write is as it was before.
fn behind_a_block_that_is_not_followed(version: Version) -> Result<()> {
    const READ: &str = "select current_setting('app.tenant', true) from note where id = 9";
    const WRITE: &str = "select touch()";
    let schema = format!(
        "{SCHEMA} create table touched (n int); create function touch() returns void language plpgsql as \
         $$ begin insert into touched values (1); end $$;"
    );
    let pair = Pair::new(version, &schema)?;
    let mut through = pair.connect()?;
    through.run("set app.tenant = 'outer'")?;
    for round in 0..6 {
        through.run(WRITE)?;
        ensure!(through.value(READ)? == "outer" && through.value(READ)? == "outer", "round {round}");
        for is_followed in [true, false] {
            through.run("begin")?;
            through.run("set local app.tenant = 'inner'")?;
            ensure!(through.value(READ)? == "inner", "round {round}");
            if !is_followed {
                through.run("savepoint s")?;
                through.run(WRITE)?;
            }
            through.run("commit")?;
            let behind = through.value(READ)?;
            ensure!(behind == "outer", "round {round}, followed: {is_followed}: {behind}");
        }
        crate::support::rest();
    }
    Ok(())
}
