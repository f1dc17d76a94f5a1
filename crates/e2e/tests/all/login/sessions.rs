//! After a login that Freshet decided: cancel requests, replication connections, many at once.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::guarded::{Attempt, Guarded, Kind, block_on, wrong_password};
use crate::support::{PATIENCE, Version, eventually_async, on_both_at_length};

on_both_at_length!(cancel_requests, replication_connections, many_at_once, unix_sockets);

fn cancel_requests(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let users = guarded.users_file(&[&user])?;
    let freshet = guarded.freshet(&["--users", &users])?;
    let attempt = Attempt { user: &user, password: "pencil", database: &guarded.database.name };
    block_on(async {
        let client = attempt.connect(None, freshet.address).await?.ok().context("refused")?;
        let token = client.cancel_token();
        let sleep = client.simple_query("select pg_sleep(60)");
        let cancel = async {
            let active = "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and usename = ";
            eventually_async(PATIENCE, async || {
                ensure!(guarded.database.connect()?.value(&format!("{active}'{user}'"))? != "0", "it does not run");
                Ok(())
            })
            .await?;
            let stream = tokio::net::TcpStream::connect(freshet.address).await?;
            token.cancel_query_raw(stream, tokio_postgres::NoTls).await?;
            anyhow::Ok(())
        };
        let (slept, cancelled) = tokio::join!(sleep, cancel);
        cancelled?;
        let code = slept.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
        ensure!(code.as_deref() == Some("57014"), "{code:?}");
        Ok(())
    })
}

/// psql on a walsender, with the password of a role that may replicate.
fn replication_connections(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    guarded.database.run(&format!("alter role \"{user}\" replication"))?;
    let users = guarded.users_file(&[&user])?;
    let freshet = guarded.freshet(&["--users", &users])?;
    let program = guarded.database.server.installation().program("psql");
    let identify = |address: std::net::SocketAddr, password: &str, replication: &str| -> Result<String> {
        let (host, port, database) = (address.ip(), address.port(), &guarded.database.name);
        let conninfo = format!("host={host} port={port} user={user} dbname={database} replication={replication}");
        let mut psql = Command::new(&program);
        psql.env("PGPASSWORD", password).env("LC_ALL", "C").args(["-XAtw", "-d", &conninfo]);
        let output = psql.args(["-c", "IDENTIFY_SYSTEM"]).output()?;
        let text = [output.stdout, output.stderr].concat();
        // The position in the log goes on.
        let text = String::from_utf8_lossy(&text);
        Ok(text.split('|').enumerate().filter(|(i, _)| *i != 2).map(|(_, part)| part).collect())
    };
    for replication in ["database", "true"] {
        let direct = identify(guarded.database.address(), "pencil", replication)?;
        let through = identify(freshet.address, "pencil", replication)?;
        ensure!(direct == through && !direct.contains("FATAL"), "{replication}: {direct}, {through}");
        let wrong = identify(freshet.address, "wrong", replication)?;
        ensure!(wrong.contains(&wrong_password(&user).message), "{replication}: {wrong}");
    }
    Ok(())
}

/// No user is taken for another.
fn many_at_once(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let mut roles = Vec::new();
    for i in 0..6 {
        let kind = if i % 2 == 0 { Kind::Scram } else { Kind::Md5 };
        roles.push(guarded.role(&format!("app{i}"), kind, &format!("pencil {i}"))?);
    }
    let users = guarded.users_file(&roles.iter().step_by(3).map(String::as_str).collect::<Vec<_>>())?;
    let freshet = guarded.freshet_as_service(&["--users", &users, "--auth-query", "--login-failures-max", "1000"])?;
    block_on(async {
        let mut sessions = Vec::new();
        for i in 0..60 {
            // Every fifth has the password of somebody else.
            let whose = if i % 5 == 0 { i + 1 } else { i };
            let (user, database) = (roles[i % 6].clone(), guarded.database.name.clone());
            let (password, address) = (format!("pencil {}", whose % 6), freshet.address);
            sessions.push(tokio::spawn(async move {
                let attempt = Attempt { user: &user, password: &password, database: &database };
                match attempt.connect(None, address).await? {
                    Err(refused) => {
                        ensure!(i % 5 == 0 && refused == wrong_password(&user), "{user} {password}: {refused:?}");
                    }
                    Ok(client) => {
                        let row = client.query_one("select session_user::text", &[]).await?;
                        ensure!(i % 5 != 0 && row.get::<_, &str>(0) == user, "{user} {password}: {row:?}");
                    }
                }
                Ok(())
            }));
        }
        for session in sessions {
            session.await??;
        }
        Ok(())
    })
}

/// Over a Unix socket passwords are asked for as well, but nobody can lock the others out.
fn unix_sockets(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let users = guarded.users_file(&[&user])?;
    let directory = guarded.directory();
    let options = ["--listen", directory, "--users", &users, "--login-failures-max", "3"];
    let freshet = guarded.freshet(&options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let found = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_socket = |path: &&std::path::PathBuf| path.to_string_lossy().contains("/.s.PGSQL.");
    let socket = found.iter().find(is_socket).with_context(|| format!("no socket: {found:?}"))?;
    block_on(async {
        for i in 0..20 {
            let password = if i % 5 == 4 { "pencil" } else { "wrong" };
            let attempt = Attempt { user: &user, password, database: &guarded.database.name };
            let outcome = attempt.connect_on(tokio::net::UnixStream::connect(socket).await?).await?;
            match outcome {
                Ok(client) => {
                    let row = client.query_one("select session_user::text", &[]).await?;
                    ensure!(password == "pencil" && row.get::<_, &str>(0) == user, "{i}: {row:?}");
                }
                Err(refused) => ensure!(password == "wrong" && refused == wrong_password(&user), "{i}: {refused:?}"),
            }
        }
        Ok(())
    })
}
