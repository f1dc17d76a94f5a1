//! The list of sessions, in `/api/sessions` and on the dashboard: who is connected, and what the database executes for them. Both families together.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::configuration::File;
use super::databases;
use crate::clients::left_out;
use crate::mysql::support as mysql;
use crate::support::browser::{Driver, Window};
use crate::support::{Database, Freshet, Login, PATIENCE, RawClient, Version, eventually, frames, get};

const READ: &str = "select count(*) from film where id > 0";

/// Two databases, and one session in each that waits for a lock.
struct Stage {
    postgres: Database,
    maria: mysql::Database,
    freshet: Freshet,
    _file: File,
    in_maria: SocketAddr,
}

impl Stage {
    /// None: there is no program to test.
    fn new(name: &str) -> Result<Option<Self>> {
        let (postgres, maria) = (Database::shared(Version::V18)?, mysql::Database::shared(mysql::Kind::Mariadb)?);
        postgres.run(&databases::schema("pg"))?;
        maria.run("create table film (id int primary key, title varchar(100) not null)")?;
        let file = File::new(
            name,
            &format!(
                "[[database]]\nname = \"shop\"\nupstream = \"{}\"\n\
                 [[database]]\nname = \"maria\"\nupstream = \"{}\"\nlisten = \"127.0.0.1:0\"\n",
                postgres.url(),
                maria.url()
            ),
        )?;
        let Some(freshet) = databases::start(&file, &postgres)? else { return Ok(None) };
        let in_maria = *freshet.others.first().context("a second address")?;
        Ok(Some(Self { postgres, maria, freshet, _file: file, in_maria }))
    }

    fn postgres_session(&self, application: &str) -> Result<RawClient> {
        let more = [("application_name", application)];
        RawClient::login(self.freshet.address, Login { database: "shop", more: &more, ..self.postgres.login() })
    }

    fn maria_session(&self) -> Result<mysql::RawClient> {
        mysql::RawClient::login(self.in_maria, self.maria.login())
    }

    /// The sessions of a database that have this state.
    fn sessions(&self, database: &str, state: &str) -> Result<Vec<Value>> {
        let (status, body) = get(self.freshet.http, &format!("/api/sessions?database={database}"))?;
        ensure!(status == 200, "{status} {body}");
        let figures: Value = serde_json::from_str(&body)?;
        ensure!(figures["left_out"] == 0, "{figures}");
        let list = figures["list"].as_array().context("no list")?;
        Ok(list.iter().filter(|session| session["state"] == state).cloned().collect())
    }

    /// The only one of these.
    fn one(&self, database: &str, state: &str) -> Result<Value> {
        eventually(PATIENCE, || {
            let mut sessions = self.sessions(database, state)?;
            ensure!(sessions.len() == 1, "{database}, {state}: {sessions:?}");
            Ok(sessions.remove(0))
        })
    }
}

/// It executes the read, and says for how long.
fn is_reading(stage: &Stage, database: &str) -> Result<Value> {
    // It is active from the first byte of the statement on, before that is known.
    let session = eventually(PATIENCE, || {
        let session = stage.one(database, "active")?;
        ensure!(session["query"].as_str().is_some_and(|query| query.contains("count(*) from film")), "{session}");
        Ok(session)
    })?;
    ensure!(session["digest"].as_str().is_some_and(|digest| digest.len() == 16), "{session}");
    let lasts = |session: &Value| session["running_seconds"].as_f64().context("it does not run");
    let before = lasts(&session)?;
    eventually(PATIENCE, || {
        let now = lasts(&stage.one(database, "active")?)?;
        ensure!(now > before, "{now} after {before}");
        Ok(())
    })?;
    Ok(session)
}

#[test]
fn they_are_listed() -> Result<()> {
    let Some(stage) = Stage::new("sessions.toml")? else { return Ok(()) };
    let (mut holder, mut maria_holder) = (stage.postgres.connect()?, stage.maria.connect()?);
    let (mut waiter, mut idler) = (stage.postgres_session("report")?, stage.postgres_session("shop")?);
    let mut maria_waiter = stage.maria_session()?;
    idler.run("begin")?;
    let idle = stage.one("shop", "idle in transaction")?;
    ensure!(
        idle["application_name"] == "shop" && idle["query"].is_null() && idle["running_seconds"].is_null(),
        "{idle}"
    );
    idler.run("rollback")?;

    holder.run("begin; lock table film in access exclusive mode")?;
    maria_holder.run("lock tables film write")?;
    waiter.send(&frames::query(READ))?;
    maria_waiter.send(&mysql::packets::query(READ))?;
    let session = is_reading(&stage, "shop")?;
    let login = stage.postgres.login();
    let (client, server) = (waiter.socket()?.local_addr()?, stage.postgres.address());
    for (key, value) in [
        ("user", login.user.to_owned()),
        ("connected_to", "shop".to_owned()),
        ("application_name", "report".to_owned()),
        ("client", client.to_string()),
        ("server", server.to_string()),
    ] {
        ensure!(session[key] == value, "{key} is not {value}: {session}");
    }
    let session = is_reading(&stage, "maria")?;
    ensure!(session["server"] == stage.maria.address().to_string(), "{session}");
    ensure!(session["client"] == maria_waiter.socket()?.local_addr()?.to_string(), "{session}");

    holder.run("rollback")?;
    maria_holder.run("unlock tables")?;
    waiter.until(b'Z')?;
    maria_waiter.answer()?;
    for database in ["shop", "maria"] {
        ensure!(stage.sessions(database, "active")?.is_empty(), "{database}: it still runs");
    }
    // Within a transaction it is idle, too.
    maria_waiter.run("start transaction")?;
    stage.one("maria", "idle in transaction")?;
    // The extended protocol: the statement that passes is named, too.
    holder.run("begin; lock table film in access exclusive mode")?;
    waiter.send(&[frames::unnamed("update film set title = 'x' where id = $1", &["1"]), frames::sync()].concat())?;
    eventually(PATIENCE, || {
        let session = stage.one("shop", "active")?;
        ensure!(session["query"].as_str().is_some_and(|query| query.contains("update film set")), "{session}");
        Ok(())
    })?;
    holder.run("rollback")?;
    waiter.until(b'Z')?;
    drop(waiter);
    eventually(PATIENCE, || {
        let left = stage.sessions("shop", "idle")?;
        ensure!(left.len() == 1 && left[0]["application_name"] == "shop", "{left:?}");
        Ok(())
    })
}

const LINES: &str = "[...document.querySelectorAll('#sessions-table tbody tr')].map((row) => row.textContent)";

fn lines(window: &Window<'_>) -> Result<Vec<String>> {
    Ok(serde_json::from_value(window.run(&format!("return {LINES}"))?)?)
}

/// The lines that have these texts, in this order.
fn shows(window: &Window<'_>, wanted: &[&str]) -> Result<()> {
    eventually(PATIENCE, || {
        let lines = lines(window)?;
        let are_same = lines.len() == wanted.len() && lines.iter().zip(wanted).all(|(line, text)| line.contains(text));
        ensure!(are_same, "{lines:?} instead of {wanted:?}");
        Ok(())
    })
}

#[test]
fn the_page_shows_them() -> Result<()> {
    let Some(stage) = Stage::new("page.toml")? else { return Ok(()) };
    let Some(driver) = Driver::start()? else { return left_out("no chromedriver to open the dashboard with") };
    let mut holder = stage.postgres.connect()?;
    let (mut waiter, _idler) = (stage.postgres_session("report")?, stage.postgres_session("another")?);
    let _maria = stage.maria_session()?;
    holder.run("begin; lock table film in access exclusive mode")?;
    waiter.send(&frames::query(READ))?;
    stage.one("shop", "active")?;
    let window = driver.open((1400, 1000), false)?;
    window.visit(&format!("http://{}/", stage.freshet.http))?;
    // What runs comes first.
    eventually(PATIENCE, || {
        let lines = lines(&window)?;
        let first = lines.first().context("no line")?;
        ensure!(lines.len() == 3 && first.contains("count(*) from film") && first.contains("report"), "{lines:?}");
        Ok(())
    })?;
    window.click("#sessions-by-application button")?;
    shows(&window, &["another", "report", "–"])?;
    window.click("#sessions-by-application button")?;
    shows(&window, &["report", "another", "–"])?;
    let sorted = window.run("return document.getElementById('sessions-by-application').getAttribute('aria-sort')")?;
    ensure!(sorted == "descending", "aria-sort is {sorted}");
    window.fill_in("#sessions-search", "COUNT(*)")?;
    shows(&window, &["report"])?;
    window.fill_in("#sessions-search", "nobody")?;
    shows(&window, &[])?;
    let note = window.run("return document.getElementById('sessions-note').textContent")?;
    ensure!(note == "No session matches the search.", "{note}");
    window.fill_in("#sessions-search", "film")?;
    holder.run("rollback")?;
    waiter.until(b'Z')?;
    // It runs no more.
    shows(&window, &[])?;
    let complaints = window.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}
