//! SIGUSR2: the new process logs in to the server with what the client has proven to the old one.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::guarded::{Attempt, Guarded, Kind, block_on};
use super::tls::certificate;
use crate::operating::configuration::until_logged;
use crate::operating::upgrades::{Successor, old_ends_well};
use crate::operating::upgrades_carried::sessions_are;
use crate::support::{Freshet, PATIENCE, Version, eventually, on_both_at_length, program};

on_both_at_length!(proven_logins_go_on, removed_users_do_not_go_on, other_rules_end_sessions);

async fn connected(guarded: &Guarded, user: &str, address: SocketAddr) -> Result<Client> {
    let attempt = Attempt { user, password: "pencil", database: &guarded.database.name };
    attempt.connect(None, address).await?.ok().context("refused")
}

async fn user_of(client: &Client) -> Result<String> {
    Ok(client.query_one("select current_user::text", &[]).await?.get(0))
}

/// The driver has been told, or is at its next statement.
async fn ended_by_command(client: &Client) -> Result<()> {
    let Err(error) = client.query_one("select 1", &[]).await else { bail!("the session goes on") };
    let code = error.code().map(SqlState::code);
    ensure!(error.is_closed() || code == Some("57P01"), "{error:?}");
    Ok(())
}

fn proven_logins_go_on(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = [guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?];
    let pool = ["--pool", "transaction", "--default-pool-size", "2", "--upgrade-grace", "3600s"];
    let mut freshet = guarded.freshet_as_service(&[&["--auth-query"], &pool[..]].concat())?;
    if !freshet.is_there() {
        return Ok(());
    }
    block_on(async {
        let mut clients = Vec::new();
        for user in roles.iter().cycle().take(40) {
            clients.push((user, connected(&guarded, user, freshet.address).await?));
        }
        let first = Successor::of(&freshet, freshet.pid().context("no process")?)?;
        old_ends_well(&mut freshet)?;
        sessions_are(&freshet, 40)?;
        for (user, client) in &clients {
            ensure!(user_of(client).await? == **user, "another user");
        }
        // The new process is the old one of another, once it knows that the first has ended.
        until_logged(&freshet, "the process before this one has ended")?;
        let second = Successor::of(&freshet, first.0)?;
        eventually(PATIENCE, || {
            ensure!(first.has_ended(), "it still runs:\n{}", freshet.log());
            Ok(())
        })?;
        sessions_are(&freshet, 40)?;
        for (user, client) in &clients {
            ensure!(user_of(client).await? == **user, "another user");
        }
        second.end()
    })
}

fn removed_users_do_not_go_on(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = [guarded.role("stays", Kind::Scram, "pencil")?, guarded.role("goes", Kind::Scram, "pencil")?];
    let [stays, goes] = [&*roles[0], &*roles[1]];
    let users = guarded.users_file(&[stays, goes])?;
    let pool = ["--pool", "transaction", "--upgrade-grace", "3600s"];
    let mut freshet = guarded.freshet_as_service(&[&["--users", &users], &pool[..]].concat())?;
    if !freshet.is_there() {
        return Ok(());
    }
    block_on(async {
        let (first, second) =
            (connected(&guarded, stays, freshet.address).await?, connected(&guarded, goes, freshet.address).await?);
        guarded.users_file(&[stays])?;
        let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
        old_ends_well(&mut freshet)?;
        ensure!(user_of(&first).await? == stays, "another user");
        ended_by_command(&second).await?;
        successor.end()
    })
}

/// The new process lets clients in by another method, or with TLS only.
fn other_rules_end_sessions(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let Some(program) = program()? else { return Ok(()) };
    let user = guarded.role("proven", Kind::Scram, "pencil")?;
    let (users, tls) = (guarded.users_file(&[&user])?, certificate(&guarded, "carried")?);
    let before = format!(
        "upstream = \"{}\"\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\npool = \"transaction\"\nupgrade_grace = \"3600s\"\n\
         tls_cert = \"{}\"\ntls_key = \"{}\"\n",
        guarded.database.url(),
        tls.cert.display(),
        tls.key.display(),
    );
    for rule in ["auth = \"trust\"\n", "tls_required = true\n"] {
        let config = guarded.write("carried.toml", &before)?;
        let mut command = Command::new(&program);
        command.args(["serve", "--config", &config, "--users", &users]);
        let mut freshet = Freshet::spawn(guarded.database.address(), Some(command))?;
        block_on(async {
            let client = connected(&guarded, &user, freshet.address).await?;
            guarded.write("carried.toml", &format!("{before}{rule}"))?;
            let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
            old_ends_well(&mut freshet)?;
            ended_by_command(&client).await.context(rule)?;
            successor.end()
        })?;
    }
    Ok(())
}
