//! SIGUSR2: the new process logs in to the server with what the client has proven to the old one.

use anyhow::{Context as _, Result, ensure};
use tokio_postgres::Client;

use super::guarded::{Attempt, Guarded, Kind, block_on};
use crate::operating::upgrades::{Successor, old_ends_well};
use crate::operating::upgrades_carried::sessions_are;
use crate::support::{PATIENCE, Version, eventually, on_both_at_length};

on_both_at_length!(proven_logins_go_on);

fn proven_logins_go_on(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let roles = [guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?];
    let pool = ["--pool", "transaction", "--default-pool-size", "2", "--upgrade-grace", "3600s"];
    let mut freshet = guarded.freshet_as_service(&[&["--auth-query"], &pool[..]].concat())?;
    if !freshet.is_there() {
        return Ok(());
    }
    let user_of = async |client: &Client| -> Result<String> {
        let row = client.query_one("select current_user::text", &[]).await?;
        Ok(row.get(0))
    };
    block_on(async {
        let mut clients = Vec::new();
        for user in roles.iter().cycle().take(40) {
            let attempt = Attempt { user, password: "pencil", database: &guarded.database.name };
            clients.push((user, attempt.connect(None, freshet.address).await?.ok().context("refused")?));
        }
        let first = Successor::of(&freshet, freshet.pid().context("no process")?)?;
        old_ends_well(&mut freshet)?;
        sessions_are(&freshet, 40)?;
        for (user, client) in &clients {
            ensure!(user_of(client).await? == **user, "another user");
        }
        // The new process is the old one of another.
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
