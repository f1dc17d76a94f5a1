//! No user gets a result that this user could not have read.

use std::time::Instant;

use anyhow::{Result, ensure};
use freshet_testbed::Settings;
use serde_json::Value;

use super::{SCHEMA, SEEN_WITHIN, never_hits, until_hit};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, get, on_both};

on_both!(
    a_role_without_the_privilege,
    revoked_privileges,
    revoked_memberships,
    changed_roles,
    column_privileges,
    row_security,
    views_and_functions_of_others,
    a_new_role_flushes_nothing,
);

const READ: &str = "select title from film where id = 1";
const DENIED: Option<&str> = Some("42501");

/// A role of this test alone. Roles belong to the whole server, so it goes with the test.
struct Role<'a> {
    pair: &'a Pair,
    name: String,
}

impl<'a> Role<'a> {
    fn create(pair: &'a Pair, suffix: &str) -> Result<Self> {
        let name = format!("{}_{suffix}", pair.database.name);
        pair.database.run(&format!("create role {name} login"))?;
        Ok(Self { pair, name })
    }

    fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.pair.address(), self.pair.database.login_as(&self.name))
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let _ = self.pair.database.run(&format!("drop owned by {0}; drop role {0}", self.name));
    }
}

/// The SQLSTATE of the answer, None if it is a result.
fn refusal(client: &mut RawClient, sql: &str) -> Result<Option<String>> {
    let messages = client.query(sql)?;
    Ok(messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C')))
}

fn denied(client: &mut RawClient, sql: &str) -> Result<()> {
    let code = refusal(client, sql)?;
    ensure!(code.as_deref() == DENIED, "{sql}: {code:?} rather than a refusal");
    Ok(())
}

fn a_role_without_the_privilege(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let role = Role::create(&pair, "stranger")?;
    let (mut owner, mut stranger) = (pair.connect()?, role.connect()?);
    until_hit(&pair, &mut owner, READ)?;
    for _ in 0..3 {
        denied(&mut stranger, READ)?;
    }
    // The same session under another role, and back.
    owner.query(&format!("set role {}", role.name))?;
    denied(&mut owner, READ)?;
    owner.query("reset role")?;
    ensure!(refusal(&mut owner, READ)?.is_none(), "refused after RESET ROLE");
    owner.query(&format!("set session authorization {}", role.name))?;
    denied(&mut owner, READ)?;
    owner.query("reset session authorization")?;
    ensure!(refusal(&mut owner, READ)?.is_none(), "refused after RESET SESSION AUTHORIZATION");
    owner.query(&format!("begin; set local role {}", role.name))?;
    denied(&mut owner, READ)?;
    owner.query("rollback")?;
    owner.query(&format!("select set_config('role', '{}', false)", role.name))?;
    denied(&mut owner, READ)?;
    owner.query("discard all")?;
    ensure!(refusal(&mut owner, READ)?.is_none(), "refused after DISCARD ALL");
    until_hit(&pair, &mut pair.connect()?, READ)
}

fn revoked_privileges(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let role = Role::create(&pair, "reader")?;
    let name = &role.name;
    // With its schema: without, a schema that may not be used is skipped, and the table does not exist.
    let read = "select title from public.film where id = 1";
    for (grant, revoke) in [
        (format!("grant select on film to {name}"), format!("revoke select on film from {name}")),
        (format!("alter table film owner to {name}"), "alter table film owner to postgres".to_owned()),
        (
            format!("grant select on film to {name}; grant usage on schema public to {name}"),
            "revoke usage on schema public from public".to_owned()
                + &format!("; revoke usage on schema public from {name}"),
        ),
    ] {
        pair.database.run(&grant)?;
        let mut reader = role.connect()?;
        until_hit(&pair, &mut reader, read)?;
        pair.database.run(&revoke)?;
        eventually(SEEN_WITHIN, || denied(&mut reader, read))?;
        denied(&mut role.connect()?, read)?;
    }
    Ok(())
}

fn revoked_memberships(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (group, member) = (Role::create(&pair, "group")?, Role::create(&pair, "member")?);
    pair.database.run(&format!("grant select on film to {0}; grant {0} to {1}", group.name, member.name))?;
    let mut client = member.connect()?;
    until_hit(&pair, &mut client, READ)?;
    pair.database.run(&format!("revoke {} from {}", group.name, member.name))?;
    eventually(SEEN_WITHIN, || denied(&mut client, READ))?;
    pair.database.run(&format!("grant pg_read_all_data to {}", member.name))?;
    eventually(SEEN_WITHIN, || {
        ensure!(refusal(&mut client, READ)?.is_none(), "still refused");
        Ok(())
    })?;
    pair.database.run(&format!("revoke pg_read_all_data from {}", member.name))?;
    eventually(SEEN_WITHIN, || denied(&mut client, READ))
}

fn changed_roles(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let role = Role::create(&pair, "fallen")?;
    pair.database.run(&format!("alter role {} superuser", role.name))?;
    let mut client = role.connect()?;
    until_hit(&pair, &mut client, READ)?;
    pair.database.run(&format!("alter role {} nosuperuser", role.name))?;
    eventually(SEEN_WITHIN, || denied(&mut client, READ))?;
    // Renamed: the name in the session's memory now means nobody, or somebody else.
    pair.database.run(&format!("grant select on film to {}", role.name))?;
    eventually(SEEN_WITHIN, || {
        ensure!(refusal(&mut client, READ)?.is_none(), "still refused");
        Ok(())
    })
}

fn column_privileges(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let role = Role::create(&pair, "partial")?;
    pair.database.run(&format!("grant select (id, title) on film to {}", role.name))?;
    let (mut owner, mut partial) = (pair.connect()?, role.connect()?);
    until_hit(&pair, &mut owner, "select votes from film where id = 1")?;
    until_hit(&pair, &mut owner, "select count(*) from film where genre = 'drama'")?;
    denied(&mut partial, "select votes from film where id = 1")?;
    denied(&mut partial, "select count(*) from film where genre = 'drama'")?;
    denied(&mut partial, "select * from film where id = 1")?;
    ensure!(refusal(&mut partial, READ)?.is_none(), "refused its own columns");
    pair.database.run(&format!("revoke select (title) on film from {}", role.name))?;
    eventually(SEEN_WITHIN, || denied(&mut partial, READ))
}

fn row_security(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}
        create table letter (id int primary key, addressee text, content text);
        insert into letter select i, case i % 2 when 0 then 'a' else 'b' end, 'content ' || i from generate_series(1, 10) i;"
    );
    let pair = Pair::new(version, &schema)?;
    let role = Role::create(&pair, "addressee")?;
    let name = &role.name;
    pair.database.run(&format!("grant select on letter to {name}"))?;
    let read = "select count(*) from letter where id > 0";
    let mut client = role.connect()?;
    until_hit(&pair, &mut client, read)?;
    ensure!(client.value(read)? == "10", "before the policy");
    // The policy counts within D, also for results that are cached already.
    pair.database.run(
        "create policy own on letter using (addressee = current_setting('app.who', true));
        alter table letter enable row level security",
    )?;
    eventually(SEEN_WITHIN, || {
        let count = client.value(read)?;
        ensure!(count == "0", "{count} rows are seen past the policy");
        Ok(())
    })?;
    client.query("set app.who = 'a'")?;
    ensure!(client.value(read)? == "5", "the rows of a");
    never_hits(&pair, &mut client, read, "row_security")?;
    client.query("set app.who = 'nobody'")?;
    ensure!(client.value(read)? == "0", "rows that the role may not read are counted");
    // The owner is not subject to it, and the others must not get the owner's result.
    let mut owner = pair.connect()?;
    ensure!(owner.value(read)? == "10", "the owner");
    ensure!(client.value(read)? == "0", "the owner's rows are shown to others");
    pair.database.run("alter table letter disable row level security")?;
    eventually(SEEN_WITHIN, || {
        ensure!(client.value(read)? == "10", "after the policy");
        Ok(())
    })?;
    until_hit(&pair, &mut client, read)
}

fn views_and_functions_of_others(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}
        create view mine as select id, title, current_user as reader from film where title <> current_user;
        create function whoami(int) returns text language sql security definer stable as 'select current_user::text';"
    );
    let pair = Pair::new(version, &schema)?;
    let mut c = pair.connect()?;
    never_hits(&pair, &mut c, "select whoami(id) from film where id = 1", "")?;
    never_hits(&pair, &mut c, "select has_table_privilege('film', 'select') from film where id = 1", "")?;
    // Who asks is part of the key.
    let name = &pair.database.name;
    let (one, other) = (format!("{name}_one"), format!("{name}_other"));
    pair.database.run(&format!(
        "create role {one}; create role {other}; grant select on film, mine to {one}, {other};
         insert into film values (1001, '{one}'), (1002, '{other}')"
    ))?;
    let reads = [
        "select reader from mine where id = 1",
        "select current_user from film where id = 1",
        "select title from film where title = current_user and id > 1000",
        "select session_user from film where id = 1",
    ];
    for statement in ["set role", "set session authorization"] {
        for role in [&one, &other, &one] {
            c.run(&format!("{statement} {role}"))?;
            for read in &reads[..if statement == "set role" { 3 } else { 4 }] {
                until_hit(&pair, &mut c, read)?;
                ensure!(c.value(read)? == *role, "{read} after {statement} {role}");
            }
        }
        c.run("reset role; reset session authorization")?;
    }
    pair.database.run(&format!("drop owned by {one}, {other}; drop role {one}, {other}"))
}

/// A role that was only created is in no answer. Its rights are found as those of other roles are.
fn a_new_role_flushes_nothing(version: Version) -> Result<()> {
    // Of its own: the roles of other tests flush.
    let server = version.start(&Settings::default())?;
    let pair = Pair::over(Database::create(server)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    // A reading of the catalogue that began after this.
    let noticed = || -> Result<()> {
        let begin = Instant::now();
        eventually(PATIENCE, || {
            let elapsed = begin.elapsed().as_secs_f64();
            let (_, body) = get(pair.freshet.http, "/api/streams")?;
            let age = serde_json::from_str::<Value>(&body)?[0]["catalog_age_seconds"].as_f64();
            ensure!(age.is_some_and(|age| age < elapsed), "{age:?} after {elapsed}: {body}");
            Ok(())
        })
    };
    // Whether the result is cached behind that. Nothing else is.
    let flushes = |sql: &str| -> Result<bool> {
        until_hit(&pair, &mut pair.connect()?, READ)?;
        let entries = || pair.freshet.metrics().map(|metrics| metrics.value("freshet_entries"));
        ensure!(entries()? > 0.0, "nothing is cached");
        pair.database.run(sql)?;
        noticed()?;
        Ok(entries()? == 0.0)
    };
    flushes("create role grouped; grant select on film to grouped")?;
    for alone in [
        "create role first login password 'secret'",
        "create role second; create role third superuser createdb",
        "create role fourth; grant fourth to grouped",
    ] {
        ensure!(!flushes(alone)?, "{alone} flushes");
    }
    for with_rights in [
        "create role fifth in role grouped",
        "create role sixth; grant select on film to sixth",
        "create role seventh; create schema of_seventh authorization seventh",
        "grant grouped to first",
        "alter role second bypassrls",
        "drop role third",
    ] {
        ensure!(flushes(with_rights)?, "{with_rights} flushes nothing");
    }
    // One that is used has its rights, and loses them.
    let mut first = RawClient::login(pair.address(), pair.database.login_as("first"))?;
    until_hit(&pair, &mut first, READ)?;
    pair.database.run("revoke grouped from first")?;
    eventually(PATIENCE, || denied(&mut first, READ))
}
