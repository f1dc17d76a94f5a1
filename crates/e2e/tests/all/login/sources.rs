//! The sources of verifiers, and that the upstream session is the client's own.

use anyhow::{Context, Result, ensure};

use super::guarded::{Attempt, Guarded, Kind, block_on, wrong_password};
use crate::support::{Database, Freshet, PATIENCE, Version, eventually, on_both_at_length};

on_both_at_length!(
    users_file,
    odd_names_and_passwords,
    names_that_are_too_long,
    auth_query_by_default,
    auth_query_of_ones_own,
    auth_query_that_fails,
    auth_query_with_a_bad_answer,
    users_file_before_auth_query,
    a_stale_users_file,
    trust,
    trust_that_the_database_does_not_share,
    relay,
    hits_are_for_those_who_may_read,
);

/// Two roles, one for each kind of verifier, log in with their passwords alone, and as themselves.
fn roles_log_in(guarded: &Guarded, freshet: &Freshet, roles: &[(String, &str)]) -> Result<()> {
    for (user, password) in roles {
        let attempt = |password| Attempt { user, password, database: &guarded.database.name };
        let outcome = attempt(*password).at(freshet.address)?;
        ensure!(outcome.as_ref() == Ok(user), "{user}: {outcome:?}; the log:\n{}", freshet.log());
        for wrong in ["wrong", "", "Pencil", "pencil "] {
            let direct = attempt(wrong).at(guarded.database.address())?;
            let through = attempt(wrong).at(freshet.address)?;
            ensure!(direct == through && direct == Err(wrong_password(user)), "{wrong:?}: {direct:?}, {through:?}");
        }
        // The database knows whose session it is.
        block_on(async {
            let session = attempt(*password).connect(None, freshet.address).await?;
            let count = format!("select count(*) from pg_stat_activity where usename = '{user}'");
            ensure!(session.is_ok() && guarded.database.connect()?.value(&count)? != "0", "{session:?}");
            Ok(())
        })?;
    }
    Ok(())
}

fn two_roles(guarded: &Guarded) -> Result<Vec<(String, &'static str)>> {
    Ok(vec![
        (guarded.role("scram", Kind::Scram, "pencil")?, "pencil"),
        (guarded.role("md5", Kind::Md5, "pencil")?, "pencil"),
    ])
}

fn users_file(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let users = guarded.users_file(&[&roles[0].0, &roles[1].0])?;
    roles_log_in(&guarded, &guarded.freshet(&["--users", &users])?, &roles)
}

fn odd_names_and_passwords(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let mut roles = Vec::new();
    for (i, password) in ["it's 100% \"ok\"\\", "pässwörd", "Ⅸ a\u{a0}b", "\u{1f642}"].into_iter().enumerate() {
        let kind = if i % 2 == 0 { Kind::Scram } else { Kind::Md5 };
        roles.push((guarded.role(&format!("Odd #{i}, ünï=c"), kind, password)?, password));
    }
    let names: Vec<_> = roles.iter().map(|(name, _)| name.as_str()).collect();
    let users = guarded.users_file(&names)?;
    roles_log_in(&guarded, &guarded.freshet(&["--users", &users])?, &roles)
}

/// The server cuts them, so that two names can mean one role.
fn names_that_are_too_long(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let longest = guarded.name(&"x".repeat(63 - guarded.name("").len()));
    guarded.database.run(&format!("create role {longest} login"))?;
    guarded.set_password(&longest, Kind::Scram, "pencil")?;
    let users = guarded.users_file(&[&longest])?;
    let freshet = Freshet::start(&guarded.database, &["--users", &users])?;
    for user in [longest.clone(), format!("{longest}y"), format!("{longest}ü"), longest.repeat(2)] {
        for password in ["pencil", "wrong"] {
            let attempt = Attempt { user: &user, password, database: &guarded.database.name };
            let (direct, through) = (attempt.at(guarded.database.address())?, attempt.at(freshet.address)?);
            ensure!(direct == through, "{attempt:?}\n direct:  {direct:?}\n through: {through:?}");
        }
    }
    Ok(())
}

fn auth_query_by_default(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let freshet = guarded.freshet_as_service(&["--auth-query"])?;
    roles_log_in(&guarded, &freshet, &roles)?;
    // A changed password counts at once, and so does a new role.
    let (user, _) = &roles[0];
    for (kind, password) in [(Kind::Scram, "second"), (Kind::Md5, "third")] {
        guarded.set_password(user, kind, password)?;
        let attempt = |password| Attempt { user, password, database: &guarded.database.name }.at(freshet.address);
        ensure!(attempt("pencil")? == Err(wrong_password(user)), "the old password is still good");
        ensure!(attempt(password)?.as_ref() == Ok(user), "the new password is not good");
    }
    let late = guarded.role("late", Kind::Scram, "pencil")?;
    roles_log_in(&guarded, &freshet, &[(late, "pencil")])
}

fn auth_query_of_ones_own(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let query = "select rolname, rolpassword from pg_authid where rolname = $1";
    roles_log_in(&guarded, &guarded.freshet(&["--auth-query", query])?, &roles)
}

/// Nobody is let in, nobody is told that the password is wrong, and all is well once the function is there.
fn auth_query_that_fails(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let service = guarded.service_account()?;
    guarded.database.run("alter schema freshet rename to not_there")?;
    let freshet = Freshet::start_unready(guarded.database.address(), &service, &["--auth-query"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    for (user, password) in &roles {
        let attempt = Attempt { user, password, database: &guarded.database.name };
        let refused = attempt.at(freshet.address)?.err().context("let in")?;
        ensure!(refused.severity == "FATAL" && refused.code == "08006", "{refused:?}");
    }
    ensure!(freshet.log().contains("--auth-query"), "{}", freshet.log());
    guarded.database.run("alter schema not_there rename to freshet")?;
    roles_log_in(&guarded, &freshet, &roles)?;
    // A lost connection is opened again, without an effect on clients.
    for (user, password) in &roles {
        let lost = format!(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = '{}'",
            guarded.name("service")
        );
        ensure!(guarded.database.connect()?.value(&lost)? != "0", "no connection of the service account");
        let outcome = Attempt { user, password, database: &guarded.database.name }.at(freshet.address)?;
        ensure!(outcome.as_ref() == Ok(user), "{outcome:?}; the log:\n{}", freshet.log());
    }
    Ok(())
}

/// Malformed answers admit no client.
fn auth_query_with_a_bad_answer(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    for query in [
        "select rolpassword from pg_authid where rolname = $1",
        "select rolname, rolpassword from pg_authid where rolname = $1 union all select 'x', 'y'",
        "select $1::text, 'pencil'::text",
        "select $1::text, null::text",
        "select $1::text, rolpassword from pg_authid where false",
        "select $1::text, 1 / 0",
        "no SQL at all",
        "",
    ] {
        let freshet = guarded.freshet(&["--auth-query", query])?;
        for (user, password) in &roles {
            let outcome = Attempt { user, password, database: &guarded.database.name }.at(freshet.address)?;
            ensure!(outcome.is_err() || !freshet.is_there(), "{query}: {outcome:?}");
        }
    }
    Ok(())
}

fn users_file_before_auth_query(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let users = guarded.users_file(&[&roles[0].0])?;
    let freshet = guarded.freshet_as_service(&["--users", &users, "--auth-query"])?;
    roles_log_in(&guarded, &freshet, &roles)?;
    // The file is asked first, so a password that is only in the database is wrong.
    let (user, _) = &roles[0];
    guarded.set_password(user, Kind::Scram, "changed")?;
    let outcome = Attempt { user, password: "changed", database: &guarded.database.name }.at(freshet.address)?;
    if freshet.is_there() {
        ensure!(outcome == Err(wrong_password(user)), "{outcome:?}");
    }
    Ok(())
}

/// The password in the users file opens no door that the database has closed.
fn a_stale_users_file(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    let users = guarded.users_file(&[&roles[0].0, &roles[1].0])?;
    let freshet = guarded.freshet(&["--users", &users])?;
    for (user, password) in &roles {
        let attempt = || Attempt { user, password, database: &guarded.database.name }.at(freshet.address);
        ensure!(attempt()?.as_ref() == Ok(user), "not let in");
        guarded.set_password(user, Kind::Scram, "changed")?;
        let outcome = attempt()?;
        ensure!(outcome == Err(wrong_password(user)), "{user}: {outcome:?}");
        // The log tells the operator why.
        eventually(PATIENCE, || {
            let told = !freshet.is_there() || freshet.log().contains("users file");
            ensure!(told, "{}", freshet.log());
            Ok(())
        })?;
    }
    Ok(())
}

fn trust(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let name = format!("{}_trusted", database.name);
    database.run(&format!("create role {name} login"))?;
    let freshet = Freshet::start_unready(database.address(), &database.url(), &["--auth", "trust"])?;
    for user in [name.as_str(), database.server.superuser(), "nobody at all"] {
        let attempt = Attempt { user, password: "not asked for", database: &database.name };
        let (direct, through) = (attempt.at(database.address())?, attempt.at(freshet.address)?);
        ensure!(direct == through, "{direct:?}, {through:?}");
    }
    drop(freshet);
    database.run(&format!("drop role {name}"))
}

/// `--auth trust` does not bypass a database that asks for a password.
fn trust_that_the_database_does_not_share(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let freshet = guarded.freshet(&["--auth", "trust"])?;
    for (user, password) in &two_roles(&guarded)? {
        let outcome = Attempt { user, password, database: &guarded.database.name }.at(freshet.address)?;
        ensure!(outcome.is_err() || !freshet.is_there(), "{outcome:?}");
    }
    Ok(())
}

fn relay(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = two_roles(&guarded)?;
    roles_log_in(&guarded, &guarded.freshet(&[])?, &roles)
}

fn hits_are_for_those_who_may_read(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let reader = guarded.role("reader", Kind::Scram, "pencil")?;
    let other = guarded.role("other", Kind::Scram, "pencil")?;
    guarded.database.run(&format!(
        "create table film (id int primary key, title text); insert into film values (1, 'film 1');
         grant select on film to \"{reader}\""
    ))?;
    let users = guarded.users_file(&[&reader, &other])?;
    let freshet = Freshet::start(&guarded.database, &["--users", &users])?;
    let read = async |user: &str| {
        let attempt = Attempt { user, password: "pencil", database: &guarded.database.name };
        let client = attempt.connect(None, freshet.address).await?.map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
        anyhow::Ok(
            client.query_one("select title from film where id = 1", &[]).await.map(|row| row.get::<_, String>(0)),
        )
    };
    eventually(PATIENCE, || {
        let title = block_on(read(&reader))?;
        ensure!(title.as_deref().ok() == Some("film 1"), "{title:?}");
        ensure!(!freshet.is_there() || freshet.metrics()?.hits() > 0, "no hits");
        Ok(())
    })?;
    let refused = block_on(read(&other))?;
    let code = refused.as_ref().err().and_then(|error| error.code()).map(|code| code.code().to_owned());
    ensure!(code.as_deref() == Some("42501"), "{refused:?}");
    Ok(())
}
