//! The number of round trips to the server until a session's reads hit; they hit under the session's own settings all the same.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::support::packets::Value;
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::turns::Turns;
use crate::support::{Freshet, PATIENCE, eventually};

on_both!(
    first_reads,
    first_reads_under_other_settings,
    expressions_are_no_writes,
    blocks,
    diagnostics_behind_a_block_begins
);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), made TIMESTAMP NULL); \
     INSERT INTO item VALUES (7, 'seven', 10, '2024-01-02 03:04:05'), (8, 'eight', 20, NULL)";
const READ: &str = "SELECT name FROM item WHERE id = 7";
const OTHER: &str = "SELECT name FROM item WHERE id = 8";

/// A server of its own, and Freshet behind a relay that counts.
struct Stage {
    freshet: Freshet,
    relay: Turns,
    database: Database,
}

impl Stage {
    /// None where there is no Freshet. These reads hit.
    fn new(kind: Kind, reads: &[&str]) -> Result<Option<Self>> {
        let database = Database::create(kind.start(&Kind::settings())?)?;
        database.run(SCHEMA)?;
        let relay = Turns::to(database.address(), Duration::ZERO)?;
        let near = database.address().to_string();
        // Connections of Freshet's own stay open, so that the last one is a session's.
        let url = database.url().replace(&near, &relay.address.to_string()) + "?ssl-mode=disabled";
        let freshet =
            Freshet::start_unready(relay.address, &url, &["--max-staleness", "10m", "--admission", "always"])?;
        freshet.wait_ready()?;
        if !freshet.is_there() {
            return Ok(None);
        }
        let stage = Self { freshet, relay, database };
        for read in reads {
            stage.until_hit(&mut stage.connect()?, read)?;
        }
        Ok(Some(stage))
    }

    fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.freshet.address, self.database.login())
    }

    fn until_hit(&self, client: &mut RawClient, read: &str) -> Result<()> {
        eventually(PATIENCE, || {
            let before = self.freshet.metrics()?.hits();
            client.run(read)?;
            ensure!(self.freshet.metrics()?.hits() > before, "no hit");
            Ok(())
        })
    }

    /// A new session, what is done in it, and how many turns and hits that took beside the login.
    fn costs(&self, session: impl Fn(&mut RawClient) -> Result<()>) -> Result<(usize, u64)> {
        let hits = self.freshet.metrics()?.hits();
        let mut client = self.connect()?;
        let turns = self.relay.last()?;
        let login = turns();
        session(&mut client)?;
        Ok((turns() - login, self.freshet.metrics()?.hits() - hits))
    }
}

fn first_reads(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, &[READ])? else { return Ok(()) };
    let text = stage.costs(|c| c.run(READ))?;
    assert_eq!(text, (1, 1), "one question, and a hit");
    let prepared = |c: &mut RawClient| {
        let statement = c.prepare("SELECT name FROM item WHERE id = ?")?;
        c.execute(statement, &[Value::Int(7)]).map(|_| ())
    };
    eventually(PATIENCE, || {
        let (turns, hits) = stage.costs(prepared)?;
        ensure!(
            (turns, hits) == (2, 1),
            "{turns} turns, {hits} hits: the statement is prepared, and there is one question"
        );
        Ok(())
    })?;
    eventually(PATIENCE, || {
        let (turns, hits) = stage.costs(|c| c.run("SET NAMES utf8mb4").and_then(|()| c.run(READ)))?;
        ensure!((turns, hits) == (2, 1), "{turns} turns, {hits} hits: there is the setting and one question");
        Ok(())
    })
}

/// What new sessions begin with is changed: none hits what it would not read.
fn first_reads_under_other_settings(kind: Kind) -> Result<()> {
    let (made, share) = ("SELECT made FROM item WHERE id = 7", "SELECT price / 7 FROM item WHERE id = 7");
    let Some(stage) = Stage::new(kind, &[made, share])? else { return Ok(()) };
    let mut direct = stage.database.connect()?;
    for setting in ["time_zone = '+05:00'", "div_precision_increment = 8", "time_zone = '+01:00'"] {
        direct.run(&format!("SET GLOBAL {setting}"))?;
        for read in [made, share] {
            let right = stage.database.connect()?.value(read)?;
            assert_eq!(stage.connect()?.value(read)?, right, "{setting}: {read}");
            stage.until_hit(&mut stage.connect()?, read)?;
            assert_eq!(stage.connect()?.value(read)?, right, "{setting}: {read}");
        }
    }
    Ok(())
}

/// DO is acknowledged as soon as the server has answered, unless it may write.
fn expressions_are_no_writes(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, &[READ])? else { return Ok(()) };
    stage.database.run(
        "CREATE FUNCTION rename_item() RETURNS INT DETERMINISTIC BEGIN UPDATE item SET name = 'renamed' WHERE id = 7; RETURN 1; END",
    )?;
    let held = || Ok::<_, anyhow::Error>(stage.freshet.metrics()?.count("freshet_commit_waits_total"));
    let mut client = stage.connect()?;
    client.run(READ)?;
    let before = held()?;
    for sql in ["DO 0", "DO 1 + 1, RELEASE_LOCK('none')", "DO SLEEP(0)"] {
        client.run(sql)?;
    }
    assert_eq!(held()?, before, "nothing was written");
    stage.until_hit(&mut client, READ)?;
    client.run("DO 0")?;
    let hits = stage.freshet.metrics()?.hits();
    client.run(READ)?;
    assert_eq!(stage.freshet.metrics()?.hits(), hits + 1, "it tells nothing");
    client.run("DO rename_item()")?;
    assert!(held()? > before, "it may have written");
    for mut reader in [client, stage.connect()?] {
        assert_eq!(reader.value(READ)?, "renamed");
    }
    Ok(())
}

/// Under REPEATABLE READ the first read takes the snapshot, and the question goes with BEGIN.
fn blocks(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, &[READ, OTHER])? else { return Ok(()) };
    eventually(PATIENCE, || {
        let (turns, hits) = stage.costs(|c| {
            c.run("BEGIN")?;
            assert_eq!((c.value(READ)?, c.value(OTHER)?), ("seven".to_owned(), "eight".to_owned()));
            c.run("COMMIT")
        })?;
        assert!(turns <= 4, "{turns} turns, and direct it were four");
        ensure!((turns, hits) == (3, 1), "{turns} turns, {hits} hits");
        Ok(())
    })?;
    // What the session is like is known from the question ahead of BEGIN.
    let mut client = stage.connect()?;
    client.run("BEGIN")?;
    assert_eq!(client.value(READ)?, "seven");
    stage.database.run("UPDATE item SET name = 'VIII' WHERE id = 8")?;
    assert_eq!(client.value(OTHER)?, "eight", "its snapshot is older");
    client.run("COMMIT")?;
    eventually(PATIENCE, || {
        ensure!(client.value(OTHER)? == "VIII", "not seen");
        Ok(())
    })
}

fn diagnostics_behind_a_block_begins(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let openings: [&[&str]; 4] = [&[], &["SET NAMES utf8mb4"], &["SET sql_mode = 'NO_SUCH_MODE'"], &["SHOW TABLES"]];
    for opening in openings {
        for asks in ["SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW WARNINGS"] {
            // In a new session MariaDB's FOUND_ROWS() is what an earlier session has left that ran in the same thread.
            let is_left = kind == Kind::Mariadb && asks == "SELECT FOUND_ROWS()" && opening != ["SHOW TABLES"];
            let begins: &[&str] = if is_left { &["BEGIN"] } else { &["BEGIN", asks, asks] };
            pair.same(|c| {
                for sql in opening.iter().chain(begins).copied().chain([READ, asks, "COMMIT", asks]) {
                    c.query(sql)?;
                }
                c.expect_silence()
            })?;
        }
    }
    Ok(())
}
