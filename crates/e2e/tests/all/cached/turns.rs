//! The number of round trips to the server until a session's reads hit; they hit under the session's own settings all the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::support::turns::Turns;
use crate::support::{Database, Freshet, Login, PATIENCE, Version, connect, eventually, on_both};

on_both!(first_reads, first_reads_behind_settings, first_reads_under_other_settings, wrong_passwords);

const SCHEMA: &str = "create table item (id int primary key, name text); insert into item values (7, 'seven'); \
     create schema other; create table other.item (id int primary key, name text); insert into other.item values (7, 'other'); \
     grant usage on schema other to public; grant select on item, other.item to public; \
     create role reader login password 'word'";
const READ: &str = "select name from item where id = 7";

/// The reader proves its password; all others are trusted.
fn asking() -> Settings {
    let lines = ["host all reader all scram-sha-256", "host all all all trust", "host replication all all trust"];
    lines.into_iter().chain(["local all all trust"]).fold(Settings::default(), Settings::with_hba)
}

/// A server of its own, and Freshet behind a relay that counts.
struct Stage {
    freshet: Freshet,
    relay: Turns,
    database: Database,
    runtime: Runtime,
}

impl Stage {
    /// None where there is no Freshet. The read hits.
    fn new(version: Version, settings: &Settings) -> Result<Option<Self>> {
        let database = Database::create(version.start(settings)?)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let relay = Turns::to(database.address(), Duration::ZERO)?;
        let near = database.address().to_string();
        // Connections of Freshet's own stay open, so that the last one is a session's.
        let url = database.url().replace(&near, &relay.address.to_string()) + "?sslmode=disable";
        // Each session logs in to the server itself, even where all tests share server connections.
        let freshet = Freshet::start_unready(
            relay.address,
            &url,
            &["--auth", "auto", "--max-staleness", "10m", "--admission", "always"],
        )?;
        let stage = Self { freshet, relay, database, runtime };
        stage.database.run(SCHEMA)?;
        stage.freshet.wait_ready()?;
        if !stage.freshet.is_there() {
            return Ok(None);
        }
        stage.until_hit(false)?;
        stage.until_hit(true)?;
        Ok(Some(stage))
    }

    fn login(&self) -> Login<'_> {
        Login { password: Some("word"), ..self.database.login_as("reader") }
    }

    /// What the reader reads directly.
    fn direct(&self) -> Result<Option<String>> {
        self.runtime.block_on(async { text(&connect(self.database.address(), self.login()).await?).await })
    }

    fn until_hit(&self, prepared: bool) -> Result<()> {
        eventually(PATIENCE, || {
            let (_, hits, _) = self.costs(Some(prepared))?;
            ensure!(hits == 1, "no hit");
            Ok(())
        })
    }

    /// A new session reads, prepared, as text or not at all: how many turns and hits that and its login took, and what it has read.
    fn costs(&self, prepared: Option<bool>) -> Result<(usize, u64, Option<String>)> {
        self.costs_behind("", prepared)
    }

    /// The same behind another statement.
    fn costs_behind(&self, begin: &str, prepared: Option<bool>) -> Result<(usize, u64, Option<String>)> {
        let before = self.freshet.metrics()?.hits();
        self.runtime.block_on(async {
            let client = connect(self.freshet.address, self.login()).await?;
            if !begin.is_empty() {
                client.batch_execute(begin).await?;
            }
            let mut value = None;
            let mut statement = None;
            match prepared {
                None => {}
                Some(false) => value = text(&client).await?,
                Some(true) => {
                    let statement = statement.insert(client.prepare(READ).await?);
                    value = Some(client.query_one(statement, &[]).await?.get(0));
                }
            }
            Ok((self.relay.of_last()?, self.freshet.metrics()?.hits() - before, value))
        })
    }

    fn value(&self) -> Result<String> {
        self.costs(Some(false))?.2.context("no row")
    }
}

/// The value that is read as text.
async fn text(client: &Client) -> Result<Option<String>> {
    let rows = client.simple_query(READ).await?;
    let value = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    Ok(rows.iter().find_map(value))
}

/// The question for the session's context goes with the last proof of the login; where none is asked for, it is one turn.
fn first_reads(version: Version) -> Result<()> {
    // Start-up; with SCRAM two messages more.
    for (settings, login, question) in [(asking(), 3, 0), (Settings::default(), 1, 1)] {
        let Some(stage) = Stage::new(version, &settings)? else { return Ok(()) };
        for (prepared, turns, hits) in
            [(None, login, 0), (Some(false), login + question, 1), (Some(true), login + question + 1, 1)]
        {
            eventually(PATIENCE, || {
                let costs = stage.costs(prepared)?;
                ensure!((costs.0, costs.1) == (turns, hits), "prepared {prepared:?}: {costs:?}, not {turns} turns");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The question comes behind the settings that a session begins with; the read itself would be one turn.
fn first_reads_behind_settings(version: Version) -> Result<()> {
    for (settings, login) in [(asking(), 3), (Settings::default(), 1)] {
        let Some(stage) = Stage::new(version, &settings)? else { return Ok(()) };
        for begin in ["set timezone to 'UTC'", "select set_config('TimeZone', 'UTC', false)"] {
            eventually(PATIENCE, || {
                let costs = stage.costs_behind(begin, Some(false))?;
                ensure!((costs.0, costs.1) == (login + 2, 1), "{begin}: {costs:?}, login {login}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// What new sessions begin with is changed: none hits what it would not read.
fn first_reads_under_other_settings(version: Version) -> Result<()> {
    let Some(stage) = Stage::new(version, &asking())? else { return Ok(()) };
    let name = &stage.database.name;
    let user = "reader";
    for (set, reset) in [
        (format!("alter role {user} set search_path = other"), format!("alter role {user} reset search_path")),
        (format!("alter database {name} set search_path = other"), format!("alter database {name} reset search_path")),
        (
            format!("alter role {user} in database {name} set search_path = other"),
            format!("alter role {user} in database {name} reset search_path"),
        ),
        (
            "alter system set search_path = other; select pg_reload_conf()".to_owned(),
            "alter system reset search_path; select pg_reload_conf()".to_owned(),
        ),
    ] {
        for (change, right) in [(&set, "other"), (&reset, "seven")] {
            for statement in change.split("; ") {
                stage.database.run(statement)?;
            }
            eventually(PATIENCE, || {
                ensure!(stage.direct()?.as_deref() == Some(right), "not in force yet");
                Ok(())
            })?;
            for _ in 0..5 {
                assert_eq!(stage.value()?, right, "{change}");
            }
            stage.until_hit(false)?;
            assert_eq!(stage.value()?, right, "{change}");
        }
    }
    Ok(())
}

/// The server's own words come all the same where the proof before the question is refused.
fn wrong_passwords(version: Version) -> Result<()> {
    let Some(stage) = Stage::new(version, &asking())? else { return Ok(()) };
    let login = Login { password: Some("wrong"), ..stage.login() };
    let refused = |address| {
        let error = stage.runtime.block_on(connect(address, login)).err();
        error.map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let direct = refused(stage.database.address());
    ensure!(direct.contains("password authentication failed"), "{direct}");
    for _ in 0..20 {
        assert_eq!(refused(stage.freshet.address), direct);
    }
    stage.until_hit(false)
}
